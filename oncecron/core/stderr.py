"""What oncecron says on standard error: one line each, never anything that cron would mail for nothing."""

from __future__ import annotations

import os
import select
import time

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecron.core.model import Firing, Refusal


def valid(text: str) -> str:
    r"""Return a text of the command line or the system as it is recorded: bytes that are no UTF-8 as `\xff`."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def complain(text: str) -> None:
    """Write one line to standard error; a closed or full one is not our problem."""
    _write("oncecron: " + " ".join(text.split()) + "\n")


def show_trace() -> None:
    """Write to standard error where the exception comes from that is being handled."""
    import traceback  # noqa: PLC0415 - only for a bug

    _write(traceback.format_exc())


def _write(text: str) -> None:
    """Write what can be written without a wait: a kill, or a record, may be next.

    poll(2) calls a pipe writable while `PIPE_BUF` bytes fit.
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


def refusal_sentence(firing: Firing, refusal: Refusal, *, waits: bool = False) -> str:
    """Tell a person why the command was not started, and what can be done; `waits`: it may be yet."""
    tick = f" tick {firing.tick.text}" if firing.tick.text else ""
    tick += f" shard {firing.shard}" if firing.shards > 1 else ""
    by = ""
    if refusal.holder:
        by = f" by {refusal.holder.host} pid {refusal.holder.pid}"
    if refusal.since is not None:
        by += time.strftime(" at %Y-%m-%dT%H:%M:%SZ", time.gmtime(refusal.since))
    if refusal.detail:
        by += f" ({refusal.detail})"
    what = {
        "held": f"is being run{by}; " + ("waiting" if waits else "--wait DURATION waits for it"),
        "done": f"has been run{by}; --again runs it once more",
        "passed": f"was passed{by}; --again runs it all the same",
        "recent": f"was started{by}, which is too recent; --again runs it all the same",
        "exhausted": f"has had all its attempts{by}; --again runs it once more",
        "late": "is later than --starting-deadline allows",
        "paused": f"is paused{by}; oncecron resume {firing.key} ends it, or resume --all where every key is",
        "drained": f"is skipped: this host is drained{by}; oncecron undrain ends it",
    }.get(refusal.reason, f"is skipped: {refusal.reason}{by}")
    return f"key {firing.key}{tick} {what}"
