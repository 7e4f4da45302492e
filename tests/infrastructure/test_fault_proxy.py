"""The faulty proxy has exactly the fault that it was told to have."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from servers import FaultProxy, eventually

SILENCE = 0.15  # how long "nothing comes" is watched; it can only miss, never invent, a reply


class Upper:
    """A server that answers each line with the line in capitals and remembers what it got."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.orderly_ends = 0
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while line := connection.recv(1000):
                    self.heard.append(line)
                    connection.sendall(line.upper())
            except OSError:
                return
            self.orderly_ends += 1


@pytest.fixture
def upper() -> Iterator[Upper]:
    """Start a server behind the proxy."""
    server = Upper()
    yield server
    server.close()


@pytest.fixture
def proxy(upper: Upper, new_proxy: Callable[..., FaultProxy]) -> FaultProxy:
    return new_proxy(upper)


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=30)


def ask(client: socket.socket, line: bytes) -> bytes:
    client.sendall(line)
    return client.recv(1000)


def assert_silent(client: socket.socket) -> None:
    """Check that nothing comes, not even an end."""
    client.settimeout(SILENCE)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(30)


def test_passing_forwards_both_ways_and_counts(proxy: FaultProxy) -> None:
    """Requests, round trips and bytes are counted for each connection."""
    with connect(proxy) as first, connect(proxy) as second:
        assert [ask(first, b"a"), ask(first, b"bc"), ask(second, b"def")] == [b"A", b"BC", b"DEF"]
    eventually(lambda: not any(connection.open for connection in proxy.connections()))
    one, two = proxy.connections()
    assert (one.requests, one.round_trips, one.bytes_to_server, one.bytes_to_client) == (2, 2, 3, 3)
    assert (two.requests, two.round_trips, two.bytes_to_server, two.bytes_to_client) == (1, 1, 3, 3)
    assert proxy.round_trips() == 3


def test_deaf_keeps_connections_and_forwards_nothing(proxy: FaultProxy, upper: Upper) -> None:
    """A deaf proxy accepts and swallows; what it held back arrives once it hears again."""
    with connect(proxy) as old:
        assert ask(old, b"a") == b"A"
        proxy.deaf()
        old.sendall(b"lost?")
        with connect(proxy) as new:
            new.sendall(b"new")
            assert_silent(old)
            assert_silent(new)
            assert upper.heard == [b"a"]
            assert upper.connections == 1
            proxy.passing()
            assert old.recv(1000) == b"LOST?"
            assert new.recv(1000) == b"NEW"


@pytest.mark.parametrize("towards", ["server", "client"])
def test_one_way_stops_the_other(proxy: FaultProxy, upper: Upper, towards: str) -> None:
    """The client hears nothing; the server hears the client if that way is open."""
    with connect(proxy) as client:
        ask(client, b"a")
        proxy.one_way(towards)
        client.sendall(b"b")
        if towards == "server":
            eventually(lambda: upper.heard == [b"a", b"b"])
        assert_silent(client)
        assert upper.heard == ([b"a", b"b"] if towards == "server" else [b"a"])


@pytest.mark.parametrize("new_ones_too", [True, False])
def test_reset_and_sever_hit_living_connections(proxy: FaultProxy, new_ones_too: bool) -> None:
    """They get RST; so do new ones after a reset, until the proxy passes again."""
    with connect(proxy) as client:
        ask(client, b"a")
        (proxy.reset if new_ones_too else proxy.sever)()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    if new_ones_too:
        with pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(1)
        proxy.passing()
    with connect(proxy) as client:
        assert ask(client, b"b") == b"B"


def test_refuse_spares_living_connections(proxy: FaultProxy) -> None:
    """New connections are refused, old ones go on, and passing() opens the port again."""
    with connect(proxy) as old:
        ask(old, b"a")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert ask(old, b"b") == b"B"
        proxy.passing()
        with connect(proxy) as new:
            assert ask(new, b"c") == b"C"


@pytest.mark.parametrize("towards", ["server", "client"])
def test_delay_of_one_direction_leaves_the_other_alone(
    proxy: FaultProxy, upper: Upper, towards: str
) -> None:
    """A request whose answer is late was heard at once; one that is late itself was not."""
    with connect(proxy) as client:
        assert ask(client, b"a") == b"A"
        proxy.delay(60, towards=towards)
        client.sendall(b"b")
        if towards == "client":
            eventually(lambda: upper.heard == [b"a", b"b"])
        assert_silent(client)
        assert upper.heard == ([b"a", b"b"] if towards == "client" else [b"a"])
        proxy.passing()
        assert client.recv(1000) == b"B"


def test_dropped_reply_was_a_request_that_the_server_did(proxy: FaultProxy, upper: Upper) -> None:
    """The server hears the request and an orderly end; the client only gets the end."""
    with connect(proxy) as client:
        assert ask(client, b"a") == b"A"
        proxy.drop_next_reply()
        assert ask(client, b"b") == b""
    proxy.wait_dropped()
    eventually(lambda: upper.orderly_ends == 1)
    assert upper.heard == [b"a", b"b"]
    with connect(proxy) as client:
        assert ask(client, b"c") == b"C"
    assert proxy.dropped_replies() == 1


def test_dropped_reply_is_that_of_the_nth_request_with_the_bytes(proxy: FaultProxy) -> None:
    """Requests without the bytes, and those before the n-th, are answered."""
    proxy.drop_next_reply(2, containing=b"claim")
    with connect(proxy) as one, connect(proxy) as two:
        answers = [ask(one, b"claim 1"), ask(one, b"other"), ask(two, b"claim 2"), ask(one, b"x")]
    assert answers == [b"CLAIM 1", b"OTHER", b"", b"X"]


def test_new_clients_are_led_to_several_servers_in_turn(proxy: FaultProxy, upper: Upper) -> None:
    """Who is connected stays where he is."""
    other = Upper()
    try:
        with connect(proxy) as old:
            assert ask(old, b"a") == b"A"
            proxy.lead_to(other, upper)
            for _ in range(4):
                with connect(proxy) as new:
                    assert ask(new, b"b") == b"B"
            assert ask(old, b"c") == b"C"
        assert (upper.connections, other.connections) == (3, 2)
    finally:
        other.close()
