"""Convert rows of the views that people read to the values of `core.log_rows`."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import Execution, LeaseView, Traced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oncecron.core.log_rows import Pause


def traced_of(row: tuple[Any, ...]) -> Traced:
    """Return an execution with its unpublished details."""
    return Traced(Execution._make(row[:-3]), *row[-3:])


def lease_of(row: tuple[Any, ...]) -> LeaseView:
    """Return a lease; a lock without a lease has only the name of its session: `oncecron HOST/PID KEY`."""
    view = LeaseView(*row[:-1])
    words = (row[-1] or "").split(" ")
    if view.host is None and words[0] == "oncecron" and len(words) > 1:
        host, _, pid = words[1].rpartition("/")
        return view._replace(host=host or None, pid=int(pid) if pid.isdigit() else None)
    return view


def now_and_before(pauses: Iterator[Pause]) -> tuple[Pause, Pause | None]:
    """Return a new pause, and the one that it replaced."""
    return next(pauses), next(pauses, None)
