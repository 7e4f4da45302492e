"""`cli.progress_bar`: when a bar is drawn, and that it leaves nothing behind."""

import os
import pty
import select
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncecron.cli.progress_bar import Bar, progress_bar
from oncecron.core.progress import no_progress
from oncecron.host.stderr import complain


@contextmanager
def terminal() -> Iterator[int]:
    """Let standard error be a terminal of 60 columns; give its other end. No fixture: pytest takes over between."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 60))
    before = os.dup(2)
    os.dup2(its, 2)
    try:
        yield ours
    finally:
        os.dup2(before, 2)
        for descriptor in (before, ours, its):
            os.close(descriptor)


def shown(screen: int) -> str:
    """Return what comes to the terminal, up to a mark that is written after it: the kernel takes its time."""
    os.write(2, b"\0")
    seen = b""
    while not seen.endswith(b"\0"):
        assert select.select([screen], (), (), 10)[0]
        seen += os.read(screen, 65536)
    return seen[:-1].decode()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the time that the bar sees."""
    now = [0.0]
    monkeypatch.setattr("oncecron.cli.progress_bar.time.monotonic", lambda: now[0])
    return now


def test_a_bar_comes_after_a_second(clock: list[float]) -> None:
    """What is done by then has shown nothing."""
    with terminal() as screen:
        bar = Bar("audit")
        bar.show(1, 4)
        assert shown(screen) == ""
        clock[0] = 1.0
        bar.show(1, 4)
        assert shown(screen) == "audit  [" + 6 * "#" + 18 * "-" + "]  1/4"
        bar.close()
        assert shown(screen) == f"\r{' ' * 59}\r"


def test_it_fits_and_says_what_is_known(clock: list[float]) -> None:
    """Without a total, how much has been done; in a narrow terminal it is cut."""
    with terminal() as screen:
        bar = Bar("records of the store")
        clock[0] = 75.0
        bar.show(12_000)
        line = shown(screen)
        assert line.startswith("records of the store  [")
        assert line.endswith("]  12000")
        bar.show(what="x" * 200)
        assert len(shown(screen).rpartition("\r")[2]) == 59
        bar.close()


def test_a_message_has_a_line_of_its_own(clock: list[float]) -> None:
    """The bar comes back below it."""
    with terminal() as screen:
        bar = Bar("audit")
        clock[0] = 2.0
        bar.show(1, 4)
        shown(screen)
        complain("a row cannot be read")
        assert shown(screen) == f"\r{' ' * 59}\roncecron: a row cannot be read\r\n"
        bar.close()
        complain("done")
        assert shown(screen) == "oncecron: done\r\n"


def test_where_nobody_looks_there_is_none(capfd: pytest.CaptureFixture[str]) -> None:
    """A pipe sees nothing of it."""
    with progress_bar("audit") as show:
        assert show is no_progress
        show(1, 2)
    assert capfd.readouterr() == ("", "")
