"""The wire to Redis keeps its deadline whatever happens, sends a command once, and says what is wrong."""

import _socket
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from redis_wires import Wires, at_most, line_of, soon
from servers import FaultProxy, RedisServer
from servers.process import free_port
from servers.scripted import Behave, Scripted, dribbles, floods

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.stores.redis.client import RedisClient

NewProxy = Callable[..., FaultProxy]
NewScripted = Callable[..., Scripted]


def dies(wire: RedisClient, *words: Any, within: float = 0.5) -> str:
    """Return what is told when there is no answer; the wire is dead then."""
    with at_most(within), pytest.raises(StoreUnavailable) as caught:
        wire.ask(*words or ("PING",), deadline=soon(within))
    assert wire.fileno() == -1
    with pytest.raises(StoreUnavailable, match="this connection is closed"):
        wire.ask("PING", deadline=soon())
    return line_of(caught.value)


def test_the_socket(redis_server: RedisServer, wires: Wires) -> None:
    """Sends at once, notices silence, belongs to nobody else; readable when the server has hung up."""
    wire = wires(redis_server.url(), patience=4)
    wire.ask("PING", deadline=soon())
    assert not os.get_inheritable(wire.fileno())
    with closing(socket.socket(fileno=os.dup(wire.fileno()))) as own:
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 4000
    assert select.select([wire.fileno()], [], [], 0)[0] == []
    with redis_server.connect() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    assert select.select([wire.fileno()], [], [], 5)[0] == [wire.fileno()]
    assert "closed the connection" in dies(wire)


# Faults


@pytest.mark.parametrize("login", ["", "default:x"])
def test_a_black_hole(
    redis_server: RedisServer, new_proxy: NewProxy, wires: Wires, login: str
) -> None:
    """Before the first command and after it: the deadline holds."""
    proxy = new_proxy(redis_server)
    used = wires(redis_server.url(via=proxy, login=login))
    used.ask("PING", deadline=soon())
    proxy.deaf()
    fresh = wires(redis_server.url(3, via=proxy, login=login))
    assert "no answer in time" in dies(used)
    assert "no answer in time" in dies(fresh)


def test_an_answer_that_trickles(new_scripted: NewScripted, wires: Wires) -> None:
    """Bytes that keep coming do not move the deadline."""

    def trickle(connection: socket.socket, _: int) -> None:
        connection.sendall(b"+OK\r\n$100000\r\n")
        never = threading.Event()
        while not never.wait(0.02):  # the pace of a server that dies slowly
            connection.sendall(b"x")

    assert "no answer in time" in dies(wires(new_scripted(trickle).url))


@pytest.mark.parametrize(
    "half", [b"", b"+O", b"$10\r\nabc", b"*2\r\n:1\r\n", b"$3\r\nabc\r", b":12"]
)
def test_half_an_answer(new_scripted: NewScripted, wires: Wires, half: bytes) -> None:
    """Never taken for a whole one."""

    def hang_up(connection: socket.socket, _: int) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"+OK\r\n" + half)
        connection.shutdown(socket.SHUT_WR)

    assert "closed the connection" in dies(wires(new_scripted(hang_up).url), within=2)


# Several addresses


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that makes any name resolve to these addresses."""

    def to(*addresses: tuple[str, int]) -> None:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(_socket, "getaddrinfo", lambda *_: found)

    return to


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """Give an address at which connecting takes for ever: its backlog is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield listener.getsockname()
        for filler in fillers:
            filler.close()


def test_each_address_of_a_name_is_tried(
    redis_server: RedisServer, wires: Wires, resolves: Callable[..., None], silent: tuple[str, int]
) -> None:
    """One where nobody listens, one that is silent: the patience is for all of them together."""
    here = (redis_server.host, redis_server.port)
    resolves(("127.0.0.1", free_port()), silent, here)
    with at_most(1):
        assert wires.ask("redis://db", patience=2) == b"PONG"
    resolves(silent, silent)
    with at_most(0.4):
        assert "no answer in time" in wires.complaint(StoreUnavailable, "redis://db", patience=0.4)


# Answers that say nothing about the command


@pytest.mark.parametrize(
    ("behave", "error", "told"),
    [
        (floods(b"$400000000000\r\n", b"x"), StoreRefusesError, "larger than 64 MB"),
        (floods(b"*1000000000\r\n", b"$3\r\nabc\r\n"), StoreRefusesError, "larger than 64 MB"),
        (floods(b"", b"*1\r\n"), StoreRefusesError, "is not Redis"),
        (floods(b"+", b"x"), StoreRefusesError, "is not Redis"),
        (floods(b"", b">1\r\n+a\r\n"), StoreUnavailable, "no answer in time"),
        (dribbles(b"$4000\r\nabcdefghi"), StoreUnavailable, "no answer in time"),
        (dribbles(b">2\r\n+a\r\n+b\r\n"), StoreUnavailable, "no answer in time"),
    ],
)
def test_an_answer_without_end(
    new_scripted: NewScripted, wires: Wires, behave: Behave, error: Any, told: str
) -> None:
    """It has a largest size and a last moment, whatever comes meanwhile."""
    with at_most(10):
        assert told in wires.complaint(error, new_scripted(behave).url)


def test_what_was_said_before_a_reset_is_heard(new_scripted: NewScripted, wires: Wires) -> None:
    """Though nothing can be sent any more."""
    connected = threading.Event()

    def refuse(connection: socket.socket, _: int) -> None:
        connected.wait(5)
        connection.sendall(b"-ERR max number of clients reached\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    wire = wires(new_scripted(refuse).url)
    connected.set()
    waiting = select.poll()
    waiting.register(wire.fileno(), 0)  # errors alone
    assert waiting.poll(5000)[0][1] & select.POLLERR
    assert "said: ERR max number of clients reached" in dies(wire)
