"""A store that cannot be reached, or whose server hangs up or is another program: 69 or 78 with a line, never 70."""

import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.oncecron import Oncecron
from servers.process import free_port
from servers.scripted import Behave, Scripted

LINGER = struct.pack("ii", 1, 0)


def hangs_up(_connection: socket.socket, _number: int) -> None:
    """Close at once."""


def resets(connection: socket.socket, _number: int) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)


def resets_later(connection: socket.socket, number: int) -> None:
    connection.recv(1000)
    resets(connection, number)


def says(data: bytes) -> Behave:
    """Answer a question with something, and hang up."""

    def behave(connection: socket.socket, _number: int) -> None:
        connection.recv(1000)
        connection.sendall(data)

    return behave


BEHAVIOURS: dict[str, Behave | None] = {
    "nobody": None,
    "hangs up": hangs_up,
    "resets": resets,
    "resets later": resets_later,
    "hangs up later": says(b""),
    "web server": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "half a TLS record": says(b"\x16\x03\x03\x00"),
    "TLS alert": says(b"\x15\x03\x03\x00\x02\x02\x28"),
    "refuses": says(b"-ERR go away\r\n"),
    "pong and gone": says(b"+PONG\r\n"),
    "PostgreSQL's error": says(b"E\0\0\0\x10SFATAL\0\0\0\0\0\0"),
    "moved to nowhere": says(b"-MOVED 1 127.0.0.1:1\r\n" * 3),
}
ADDRESSES = (
    "redis://{}", "rediss://{}", "redis+cluster://{}", "rediss+cluster://{}", "rediss+cluster://{},127.0.0.1:1",
    "redis+sentinel://{}/m", "rediss+sentinel://{}/m", "postgresql://{}/d",
)  # fmt: skip


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_it_is_told_in_one_line(
    public_path: Path, new_scripted: Callable[[Behave], Scripted], name: str
) -> None:
    """By commands for people and by a firing, for each kind of address."""
    behave = BEHAVIOURS[name]
    port = free_port() if behave is None else new_scripted(behave).port
    for address in ADDRESSES:
        host = Oncecron(address.format(f"127.0.0.1:{port}"), public_path)
        for words in (["history"], ["init"], ["stop", "k"]):
            ended = host(*words)
            assert ended.status in (69, 78), (address, words, ended)
            assert (ended.out, ended.err.count("\n")) == (b"", 1), (address, words, ended)
            if behave is None:
                assert ended.status == 69, (address, words, ended)
    ended = host.run("k", "--connect-timeout", "1s", "--", "true")
    assert ended.status in (69, 78)
    assert ended.err.count("\n") == 1
