"""Wires to Redis for the tests: connected with little patience, closed at the end."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oncecron.core import clock
from oncecron.core.errors import OncecronError
from oncecron.stores.redis import people_client
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.client import RedisClient
from oncecron.stores.redis.people_client import PeopleClient
from oncecron.stores.redis.resp import Reply
from oncecron.stores.redis.scripts import Names

CLOCK = clock.BOOTTIME
COUNT = "return redis.call('INCR', KEYS[1])"


def soon(seconds: float = 5) -> float:
    """Return a deadline."""
    return clock.lease_time(CLOCK) + seconds


class Wires:
    """Makes wires; the fixture closes them."""

    def __init__(self) -> None:
        self.made: list[RedisClient] = []
        self.people: list[PeopleClient] = []

    def __call__(
        self, url: str, *, within: float = 5, patience: float = 2, name: str = "oncecron a/1 k", **defaults: str
    ) -> RedisClient:  # fmt: skip
        """Connect."""
        target = parse(url, tuple(defaults.items()))
        wire = RedisClient(
            target, clock=CLOCK, deadline=soon(within), server_timeout=patience, name=name
        )
        self.made.append(wire)
        return wire

    def ask(self, url: str, *words: Any, **options: Any) -> Reply:
        """Connect and ask one thing."""
        return self(url, **options).ask(*words or ("PING",), deadline=soon())

    def ask_as_people(self, url: str, *words: Any, patience: float = 2, **defaults: Any) -> Any:
        """Connect as the commands for people do, and ask one thing."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(people_client, "READER_TIMEOUT", patience)
            client = PeopleClient(parse(url, tuple(defaults.items())), Names("oncecron"))
            self.people.append(client)
            return client.ask([words or ("PING",)])[0]

    def complaint(
        self, error: type[OncecronError], url: str, *words: Any, people: bool = True, **options: Any
    ) -> str:
        """Return the one line that is told when connecting, or asking, fails: to a firing, and to people alike."""
        lines = set()
        for ask in (self.ask, self.ask_as_people) if people else (self.ask,):
            with pytest.raises(error) as caught:
                ask(url, *words, **options)
            assert type(caught.value) is error
            lines.add(line_of(caught.value))
        assert len(lines) == 1, lines
        [line] = lines
        return line

    def close(self) -> None:
        """Close all; twice does no harm."""
        for client in self.people:
            client.close()
            client.close()
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
    """Fail if the block takes longer; a second is for a busy machine."""
    begin = time.monotonic()
    yield
    taken = time.monotonic() - begin
    assert taken < seconds + 1, f"{taken:.3f} s instead of {seconds} s"
