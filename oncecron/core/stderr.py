"""How messages are written to standard error: one line each, and never with a wait."""

from __future__ import annotations

import os
import select


def valid(text: str) -> str:
    r"""Return a text from the command line or the system as valid UTF-8, with other bytes escaped (`\xff`)."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def complain(text: str) -> None:
    """Write one line to standard error; drop it if standard error is closed or full."""
    _write("oncecron: " + " ".join(text.split()) + "\n")


def show_trace() -> None:
    """Write the traceback of the current exception to standard error."""
    import traceback  # noqa: PLC0415 - only for a bug

    _write(traceback.format_exc())


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
