"""How messages are written to standard error: one line each, without control characters, and never with a wait."""

from __future__ import annotations

import os
import select

from oncecron.core.secrets import without_logins


def valid(text: str) -> str:
    r"""Return a text from the command line or the system as valid UTF-8, with other bytes escaped (`\xff`)."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def visible(text: str) -> str:
    """Return a text with its control characters escaped, so that a terminal cannot execute them.

    A name or a reason may come from another host, from a database that others write to, or from a variable. Escaped are
    C0, C1, line and paragraph separators, what changes the direction of a text, and invisible blanks.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def complain(text: str) -> None:
    """Write one line to standard error; drop it if standard error is closed or full."""
    _write("oncecron: " + visible(without_logins(" ".join(text.split()))) + "\n")


def show_trace() -> None:
    """Write the traceback of the current exception to standard error."""
    import traceback  # noqa: PLC0415 - only for a bug

    lines = traceback.format_exc().splitlines()
    _write("".join(f"{visible(line)}\n" for line in lines))


def _write(text: str) -> None:
    """Write what can be written without waiting: a kill or a record may be next.

    poll(2) reports a pipe as writable while `PIPE_BUF` bytes fit.
    """
    data = text.encode("utf-8", "backslashreplace")
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    try:
        for begin in range(0, len(data), select.PIPE_BUF):
            if not poll.poll(0):
                return
            os.write(2, data[begin : begin + select.PIPE_BUF])
    except OSError:
        return
