"""Wires to Redis for the tests: connected with little patience, closed at the end; and servers that misbehave."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
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


class Scripted:
    """A server that does to each connection what the test says: `behave(socket, number)`."""

    def __init__(self, behave: Callable[[socket.socket, int], None]) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.host, self.port = self._listener.getsockname()
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """The store's URL."""
        return f"redis://{self.host}:{self.port}"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self.accepted += 1
                arguments = (connection, self.accepted)
                threading.Thread(target=self._one, args=arguments, daemon=True).start()

    def _one(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            self._behave(connection, number)

    def close(self) -> None:
        """End all connections."""
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def says(answer: bytes) -> Callable[[socket.socket, int], None]:
    """Return a behaviour: to each command, this."""

    def behave(connection: socket.socket, _: int) -> None:
        while data := connection.recv(1 << 16):
            connection.sendall(answer * (b"\r\n" + data).count(b"\r\n*"))

    return behave
