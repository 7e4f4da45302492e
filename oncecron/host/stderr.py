"""How messages are written to standard error: one line each, without control characters, and never with a wait.

And that it is standard error to which they are written, not a file or a socket with its number.
"""

from __future__ import annotations

import os
import select
import time

from oncecron.core import clock, system
from oncecron.core.errors import ConfigurationError, shortage_of
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.masking import visible, without_logins
from oncecron.core.timing import SILENT_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable


_clear: list[Callable[[], None]] = []


def before_a_line(clear: Callable[[], None] | None) -> None:
    """Set what is done before a message is written, on the line of the terminal that a bar takes; None: nothing."""
    _clear[:] = [clear] if clear else []


def complain(text: str) -> None:
    """Write one line to standard error, which fits a terminal; drop it if standard error is closed or full."""
    for clear in _clear:
        clear()
    line = "oncecron: " + visible(without_logins(" ".join(text.split())))
    if system.calls.isatty(2):
        from oncecron.core.columns import fold  # noqa: PLC0415 - only where a person reads it

        line = "\n".join(fold(line, terminal_size(2)[0] or len(line), 2))
    write(line + "\n")


class Patience:
    """Says on one line what a person at a terminal waits for, after two seconds without a word.

    A thread says it, because the wait may be within a call of a library.
    """

    def __init__(self, *, wanted: bool | int = False) -> None:
        """`wanted`: also where standard error is no terminal (-v)."""
        self.is_wanted = bool(wanted) or system.calls.isatty(2)
        self._since: float | None = None
        self._what = ("", "")
        self.said: set[str] = set()
        """The kinds that have been said."""

    def wait(self, kind: str, what: str) -> None:
        """Wait for this from now on, in the same wait as before if there is one. Each kind is said once."""
        if not self.is_wanted:
            return
        self._what = (kind, what)
        if self._since is None:
            self._since = since = _now()
            try:
                system.calls.start_thread(self._say_in_time, (since,))
            except RuntimeError:  # the user's limit of threads
                return
        elif _now() >= self._since + SILENT_WAIT:
            self._say()

    def over(self) -> None:
        """Wait no more."""
        self._since = None

    def _say_in_time(self, since: float) -> None:
        time.sleep(SILENT_WAIT)
        if self._since == since:
            self._say()

    def _say(self) -> None:
        kind, what = self._what
        if kind not in self.said:
            self.said.add(kind)
            complain(f"waiting: {what}")


def _now() -> float:
    return clock.lease_time(clock.MONOTONIC)


def show_trace() -> None:
    """Write the traceback of the current exception to standard error."""
    import traceback  # noqa: PLC0415 - only for a bug

    lines = traceback.format_exc().splitlines()
    write("".join(f"{visible(line)}\n" for line in lines))


def write(text: str) -> None:
    """Write what can be written without waiting: a kill or a record may be next.

    poll(2) reports a pipe as writable while `PIPE_BUF` bytes fit.
    """
    data = text.encode("utf-8", "backslashreplace")
    poll = system.calls.poll()
    poll.register(2, select.POLLOUT)
    try:
        for begin in range(0, len(data), select.PIPE_BUF):
            if not poll.poll(0):
                return
            system.calls.write(2, data[begin : begin + select.PIPE_BUF])
    except OSError:
        return


def terminal_size(descriptor: int) -> tuple[int, int]:
    """Return how many columns and lines the terminal has that a descriptor is; 0: it is none, or it does not say."""
    try:
        return os.get_terminal_size(descriptor)
    except OSError:
        return 0, 0


def fill_standard_descriptors() -> None:
    """Open /dev/null in place of each of the descriptors 0 to 2 that the caller has closed.

    Otherwise a socket or a file that is opened later gets the number 0, 1 or 2, and a message for standard error goes
    to the database: `oncecron stop KEY 2>&-` did that. It is closed when another program is executed, so a job finds
    closed what its caller had closed. Raises `ConfigurationError`, or `OSError` for a shortage.
    """
    try:
        while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:  # noqa: PLR2004
            pass
    except OSError as error:
        if shortage_of(error):
            raise
        raise ConfigurationError(
            f"cannot open {os.devnull}: {error.strerror}; "
            "give this host or container a /dev with null in it"
        ) from error
    os.close(descriptor)
