"""Wires to Redis for the tests: connected with little patience, closed at the end."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oncecron.core import clock
from oncecron.core.errors import OncecronError
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.client import RedisClient
from oncecron.stores.redis.resp import Reply

CLOCK = clock.BOOTTIME
COUNT = "return redis.call('INCR', KEYS[1])"


def soon(seconds: float = 5) -> float:
    return clock.lease_time(CLOCK) + seconds


class Wires:
    """Makes wires; the fixture closes them."""

    def __init__(self) -> None:
        self.made: list[RedisClient] = []

    def __call__(
        self, url: str, *, within: float = 5, patience: float = 2, name: str = "oncecron a/1 k", **defaults: str
    ) -> RedisClient:  # fmt: skip
        target = parse(url, tuple(defaults.items()))
        wire = RedisClient(
            target, clock=CLOCK, deadline=soon(within), server_timeout=patience, name=name
        )
        self.made.append(wire)
        return wire

    def ask(self, url: str, *words: Any, **options: Any) -> Reply:
        return self(url, **options).ask(*words or ("PING",), deadline=soon())

    def complaint(self, error: type[OncecronError], url: str, *words: Any, **options: Any) -> str:
        """Return the one line that is told when connecting, or asking, fails."""
        with pytest.raises(error) as caught:
            self.ask(url, *words, **options)
        assert type(caught.value) is error
        return line_of(caught.value)

    def close(self) -> None:
        """Close all; twice does no harm."""
        for wire in self.made:
            wire.close()
            wire.close()
            assert wire.fileno() == -1


def line_of(error: BaseException) -> str:
    """Return what an error says: one line."""
    told = str(error)
    assert "\n" not in told
    assert not told.endswith(".")
    return told


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer; three seconds are for a busy machine, and the next limit is five."""
    begin = time.monotonic()
    yield
    taken = time.monotonic() - begin
    assert taken < seconds + 3, f"{taken:.3f} s instead of {seconds} s"
