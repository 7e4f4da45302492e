"""A server that speaks the protocol of PostgreSQL and lets everybody in, and what it may send instead of an answer."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

Chunks = Callable[[], Iterator[bytes]]

NO_ENCRYPTION = (80877103, 80877104)
"""The codes of SSLRequest and GSSENCRequest, which are refused with one byte."""
USUAL = {
    "server_version": "15.4",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
}


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


READY = message(b"Z", b"I")
LET_IN = message(b"R", struct.pack("!i", 0))


def opening(**parameters: str) -> bytes:
    """Return all that a server says to a login that succeeds."""
    settings = (f"{name}\0{value}\0".encode() for name, value in (USUAL | parameters).items())
    told = b"".join(message(b"S", each) for each in settings)
    return LET_IN + told + message(b"K", struct.pack("!ii", 4711, 1)) + READY


def error(sqlstate: str, text: str, severity: str = "FATAL") -> bytes:
    fields = {"S": severity, "V": "FATAL", "C": sqlstate, "M": text}
    return message(b"E", b"".join(f"{k}{v}\0".encode() for k, v in fields.items()) + b"\0")


def notice(text: str = "hostile") -> bytes:
    fields = {"S": "NOTICE", "V": "NOTICE", "C": "00000", "M": text}
    return message(b"N", b"".join(f"{k}{v}\0".encode() for k, v in fields.items()) + b"\0")


def columns(*oids: int) -> bytes:
    """Return the head of rows whose columns have these types."""
    each = (b"c\0" + struct.pack("!IhIhih", 0, 0, oid, -1, -1, 0) for oid in oids)
    head = message(b"T", struct.pack("!H", len(oids)) + b"".join(each))
    return message(b"1") + message(b"2") + head


def row(*values: bytes) -> bytes:
    texts = (struct.pack("!I", len(value)) + value for value in values)
    return message(b"D", struct.pack("!H", len(values)) + b"".join(texts))


def rows(oid: int, *values: bytes) -> bytes:
    """Return the whole answer of one row, whose columns all have one type."""
    head = columns(*[oid] * len(values))
    return head + row(*values) + message(b"C", b"SELECT 1\0") + READY


def parameters() -> Iterator[bytes]:
    """Yield settings without end, each with a name of its own."""
    number = 0
    while True:
        names = (f"p{number + each}\0{'x' * 100}\0".encode() for each in range(500))
        yield b"".join(message(b"S", each) for each in names)
        number += 500


@contextlib.contextmanager
def fake_postgres(
    answer: Callable[[], Iterator[bytes]] | None = None,
    greeting: Callable[[], Iterator[bytes]] | None = None,
    **more: str,
) -> Iterator[str]:
    """Give the address of one that sends `answer` to each question; None: it hangs up at the first.

    `greeting` is said to a login instead of what lets it in with the usual settings and more.
    """

    def talk(connection: socket.socket) -> None:
        while struct.unpack("!ii", connection.recv(8, socket.MSG_PEEK))[1] in NO_ENCRYPTION:
            connection.recv(8)
            connection.sendall(b"N")
        connection.recv(10000)
        for chunk in greeting() if greeting else (opening(**more),):
            connection.sendall(chunk)
        while connection.recv(100_000) and answer:
            for chunk in answer():
                connection.sendall(chunk)

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, struct.error):
            talk(connection)

    def accept(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        yield f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/d"
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
