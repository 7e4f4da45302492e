"""What a second start of the command reads, for each kind of standard input. Each is given to a process of its own."""

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PLAY = """
import os
from oncecron.run.repeated_input import RepeatedInput
given = RepeatedInput()
read = []
for _ in range(3):
    streams = given.begin()
    if given.is_lost:
        read.append("lost")
        break
    source = streams[0][1] if streams else 0
    data = b""
    while more := os.read(source, 1 << 20):
        data += more
    read.append(len(data))
print(read)
"""


def starts(stdin: int) -> str:
    """Return how many bytes each of three starts reads from a descriptor."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PLAY], stdin=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def pipe(*blocks: bytes, size: int | None = None, ended: bool = True) -> int:
    """Return the end of a pipe in which these blocks wait."""
    reader, writer = os.pipe()
    if size:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)
    for block in blocks:
        os.write(writer, block)
    if ended:
        os.close(writer)
    return reader


def sockets(data: bytes, *, ended: bool) -> int:
    here, there = socket.socketpair()
    there.sendall(data)
    if ended:
        there.close()
    else:
        there.detach()
    return here.detach()


@pytest.mark.parametrize(
    ("stdin", "read"),
    [
        (lambda: pipe(b"x" * 28), "[28, 28, 28]"),
        (lambda: pipe(b"x" * 65536), "[65536, 65536, 65536]"),
        (lambda: pipe(*[b"x" * 1024] * 200, size=1 << 20), "[204800, 204800, 204800]"),
        (pipe, "[0, 0, 0]"),
        (lambda: pipe(ended=False), "['lost']"),
        (lambda: pipe(b"x", ended=False), "['lost']"),
        (lambda: sockets(b"", ended=True), "[0, 0, 0]"),
        (lambda: sockets(b"x", ended=True), "['lost']"),
        (lambda: sockets(b"", ended=False), "['lost']"),
        (lambda: os.open(os.devnull, os.O_RDONLY), "[0, 0, 0]"),
    ],
)
def test_every_start_reads_the_same_or_there_is_no_other(
    stdin: Callable[[], int], read: str
) -> None:
    """What may have been read, and cannot be given again, is said to be lost."""
    descriptor = stdin()
    try:
        assert starts(descriptor) == read
    finally:
        os.close(descriptor)


def test_a_file_is_read_from_where_the_first_start_began(tmp_path: Path) -> None:
    """The caller may have read its beginning."""
    path = tmp_path / "input"
    path.write_bytes(b"12345678")
    descriptor = os.open(path, os.O_RDONLY)
    os.read(descriptor, 3)
    assert starts(descriptor) == "[5, 5, 5]"
    os.close(descriptor)


def test_what_the_command_leaves_in_a_pipe_stays_there() -> None:
    """As without oncecron: `... | while read -r host; do oncecron run ...; done`."""
    reader = pipe(b"a\nb\n")
    look = "from oncecron.run.repeated_input import RepeatedInput; RepeatedInput().begin()"
    subprocess.run([sys.executable, "-P", "-c", look], stdin=reader, check=True)
    assert os.read(reader, 9) == b"a\nb\n"
    os.close(reader)
