"""Servers that speak the protocol of PostgreSQL and do not keep its promises are refused by name, on every path."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.oncecron import Oncecron

NO_ENCRYPTION = (80877103, 80877104)
"""The codes of SSLRequest and GSSENCRequest, which are refused with one byte."""
USUAL = {
    "server_version": "15.4",
    "server_encoding": "UTF8",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
}
COMMANDS = (("run", "--key", "k", "--tick", "one", "--", "true"), ("history",), ("init",))


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message of the server."""
    return kind + struct.pack("!i", len(body) + 4) + body


@contextlib.contextmanager
def server(**parameters: str) -> Iterator[str]:
    """Let everybody in, send these settings, and close the connection at the first query; give the address."""
    settings = (f"{name}\0{value}\0".encode() for name, value in (USUAL | parameters).items())
    opening = message(b"R", struct.pack("!i", 0)) + b"".join(
        message(b"S", each) for each in settings
    )
    opening += message(b"K", struct.pack("!ii", 4711, 1)) + message(b"Z", b"I")

    def serve(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError, struct.error):
                    while (
                        struct.unpack("!ii", connection.recv(8, socket.MSG_PEEK))[1]
                        in NO_ENCRYPTION
                    ):
                        connection.recv(8)
                        connection.sendall(b"N")
                    connection.recv(10000)
                    connection.sendall(opening)
                    connection.recv(10000)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        yield f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/d"
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"crdb_version": "CockroachDB CCL v24.1.0", "server_version": "13.0.0"}, "CockroachDB"),
        ({"server_version": "11.2-YB-2.21.1.0-b0"}, "YugabyteDB"),
    ],
)
def test_it_is_refused_by_name(
    public_path: Path, words: tuple[str, ...], parameters: dict[str, str], name: str
) -> None:
    """Before the first query, whoever connects."""
    with server(**parameters) as address:
        ended = Oncecron(address, public_path)(*words)
    assert ended.status == 78, ended
    assert f": this is {name}, whose " in ended.err


def test_postgresql_itself_is_not(public_path: Path) -> None:
    """The same server without these settings is asked."""
    with server() as address:
        ended = Oncecron(address, public_path)("history")
    assert "this is" not in ended.err
    assert ended.status == 69, ended
