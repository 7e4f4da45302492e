"""A wire that is to listen, and servers that will not have it, or say things in an order of their own."""

import select
import socket
from collections.abc import Callable

import pytest
from redis_wires import Wires, at_most, soon
from servers.scripted import Scripted

from oncecron.core.errors import StoreUnavailable

HELLO = b"%1\r\n$5\r\nproto\r\n:3\r\n"
SUBSCRIBED = b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
SUBSCRIBED_IN_RESP2 = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
MESSAGE = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nended\r\n"
UNKNOWN = b"-ERR unknown command `HELLO`, with args beginning with: `3`\r\n"
NO_CHANNEL = b"-NOPERM No permissions to access a channel\r\n"


@pytest.fixture
def server(new_scripted: Callable[..., Scripted]) -> Callable[..., Scripted]:
    """Give a function that makes a server of what it says: to HELLO and SUBSCRIBE, and to any other command."""

    def make(to_listening: bytes, to_others: bytes = b"+PONG\r\n") -> Scripted:
        def behave(connection: socket.socket, _: int) -> None:
            while data := connection.recv(1 << 16):
                if b"HELLO" in data:
                    connection.sendall(to_listening)
                else:
                    connection.sendall(b"+OK\r\n" * data.count(b"SETNAME") + to_others)

        return new_scripted(behave)

    return make


def readable(wire: object, within: float = 0) -> bool:
    """Return whether what is to be watched stirs."""
    return bool(select.select([wire.watch_fd()], [], [], within)[0])  # type: ignore[attr-defined]


def test_what_comes_in_one_piece_with_an_answer_stirs_too(
    server: Callable[..., Scripted], wires: Wires
) -> None:
    """The socket has nothing left to be read; the next answer takes it away."""
    wire = wires(server(HELLO + SUBSCRIBED, b"+PONG\r\n" + MESSAGE).url)
    wire.ask("PING", deadline=soon())
    assert readable(wire)
    assert wire.listen("c", deadline=soon())
    assert not readable(wire)
    wire.ask("PING", deadline=soon())
    assert wire.watch_fd() != wire.fileno()
    assert readable(wire)
    assert wire.listen("c", deadline=soon())
    assert readable(wire), "nothing was asked, so nothing was read"


def test_messages_before_the_word_that_we_listen_are_no_such_word(
    server: Callable[..., Scripted], wires: Wires
) -> None:
    """Another channel may have been listened to before."""
    wire = wires(server(HELLO + MESSAGE + MESSAGE + SUBSCRIBED).url)
    wire.ask("PING", deadline=soon())
    assert wire.listen("c", deadline=soon())
    assert wire.ask("PING", deadline=soon()) == b"PONG"


@pytest.mark.parametrize("answer", [HELLO + NO_CHANNEL, UNKNOWN + NO_CHANNEL, UNKNOWN + UNKNOWN])
def test_a_refusal_costs_nothing_else(
    server: Callable[..., Scripted], wires: Wires, answer: bytes
) -> None:
    """The wire goes on."""
    wire = wires(server(answer).url)
    wire.ask("PING", deadline=soon())
    assert not wire.listen("c", deadline=soon())
    assert wire.ask("PING", deadline=soon()) == b"PONG"


@pytest.mark.parametrize("refusal", [UNKNOWN, b"-NOPROTO unsupported protocol version\r\n"])
def test_a_server_without_resp3_that_listens_all_the_same_is_left(
    server: Callable[..., Scripted], wires: Wires, refusal: bytes
) -> None:
    """It would execute nothing else on this connection."""
    wire = wires(server(refusal + SUBSCRIBED_IN_RESP2).url)
    wire.ask("PING", deadline=soon())
    assert not wire.listen("c", deadline=soon())
    assert wire.fileno() == wire.watch_fd() == -1


@pytest.mark.parametrize("answer", [b"", b"-LOADING Redis is loading\r\n" * 2, HELLO])
def test_a_server_that_cannot_tell_now_may_be_asked_later(
    server: Callable[..., Scripted], wires: Wires, answer: bytes
) -> None:
    """Silent, or busy: the wire is dead by the deadline."""
    wire = wires(server(answer).url)
    wire.ask("PING", deadline=soon())
    with at_most(1), pytest.raises(StoreUnavailable):
        wire.listen("c", deadline=soon(1))
    assert wire.fileno() == -1
