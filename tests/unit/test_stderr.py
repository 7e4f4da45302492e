"""Words on standard error, which may be full."""

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncecron.host import stderr

CAPACITY = 1 << 16  # bytes, of a pipe as Linux makes it


@contextmanager
def standard_error_to_a_pipe() -> Iterator[int]:
    """Yield the end to read. No fixture: pytest replaces standard error between set-up and test."""
    kept = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield reader
    finally:
        os.close(reader)  # who waits to write gets EPIPE
        os.dup2(kept, 2)
        os.close(kept)


def test_nothing_waits_for_who_does_not_read() -> None:
    """What kills and records says something first; a byte of room is not enough to write without a wait."""
    with standard_error_to_a_pipe() as reader:
        assert os.write(2, b"x" * CAPACITY) == CAPACITY
        assert os.read(reader, 1) == b"x"
        teller = threading.Thread(target=stderr.complain, args=("lost",), daemon=True)
        teller.start()
        teller.join(30)
        assert not teller.is_alive()
        assert os.read(reader, CAPACITY) == b"x" * (CAPACITY - 1)


def test_a_long_line_is_whole_where_it_fits() -> None:
    """A record that no disk took."""
    record = "r" * 3 * select.PIPE_BUF
    with standard_error_to_a_pipe() as reader:
        stderr.complain(record)
        assert os.read(reader, CAPACITY) == f"oncecron: {record}\n".encode()


@pytest.mark.parametrize(
    "text", ["a\x1b[2Jb", "\x9b31m", "\u202etxt", "\x07", "\x7f", "\u2066x", "\udc9b"]
)
def test_a_message_has_no_control_characters(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Of the reason of a pause, the name of another host, a command line, or a configuration."""
    stderr.complain(f"skipped: k is paused by ann@{text}")
    told = capfd.readouterr().err
    assert told.endswith("\n")
    assert told[:-1].isprintable()
    try:
        raise AttributeError(text)  # noqa: TRY301
    except AttributeError:
        stderr.show_trace()
    told = capfd.readouterr().err
    assert "AttributeError" in told
    assert told.replace("\n", "").isprintable()
