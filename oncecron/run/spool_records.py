"""Records as `deliver` takes them: what a store is told later, and what the log beside it is told at once."""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.errors import StoreError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Ending

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.model import Firing, Lease, Refusal
    from oncecron.run.spool import Spool
    from oncecron.stores.api import LeaseStore


def execution_record(
    firing: Firing, lease: Lease | None, ending: Ending, *, started_at: float | None = None
) -> dict[str, Any]:
    """Return how an execution ended; without a lease it was `unclaimed`.

    `started_at`: wall time, where there is no lease that knows it.
    """
    now = clock.wall()
    return {
        **_firing_fields(firing),
        "kind": "execution",
        "attempt": lease.attempt if lease else None if ending.outcome == "not-started" else 1,
        "outcome": ending.outcome,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "cause": lease.cause if lease else "manual" if firing.again else "schedule",
        "user": firing.holder.user,
        "command": firing.command,
        "started_at": lease.started_at if lease else started_at or now,
        "finished_at": now,
        "duration": ending.duration,
        "fencing_token": lease.token if lease else None,
        "owner": firing.owner,
        "note": ending.note,
        "lost_reason": ending.lost_reason,
        "request": ending.request and ending.request.kind,
        "requested_by": ending.request and ending.request.author,
        "output": ending.output and ending.output.text,
        "output_cut": ending.output and ending.output.cut,
        "shards": firing.shards,
        "retries": firing.retries,
    }


def start_record(firing: Firing, lease: Lease) -> dict[str, Any]:
    """Return an execution of which only the start is known."""
    started = execution_record(firing, lease, Ending("running", None, None, 0.0))
    return {**started, "finished_at": None, "duration": None}


def skip_record(firing: Firing, refusal: Refusal) -> dict[str, Any]:
    """Return a refusal; a firing has one for a reason at most, so that its owner tells it from all others."""
    host, pid, _ = refusal.holder or (None, None, None)
    return {
        **_firing_fields(firing),
        "kind": "skip",
        "owner": firing.owner,
        "reason": refusal.reason,
        "holder_host": host,
        "holder_pid": pid,
        "detail": refusal.detail,
        "at": clock.wall(),
        "count": 1,
    }


def tell_skip(
    store: LeaseStore, spool: Spool, firing: Firing, refusal: Refusal, *, deadline: float
) -> None:
    """Record a refusal that the store did not decide; one that is away is told later.

    It never changes what was decided. Raises `SpoolError` when the disk does not take it either.
    """
    try:
        store.skip(firing, refusal, deadline=deadline)
    except StoreError:
        spool.add(skip_record(firing, refusal))


def _firing_fields(firing: Firing) -> dict[str, Any]:
    return {
        "key": firing.key,
        "shard": firing.shard,
        "tick": firing.tick.text,
        "tick_instant": firing.tick.instant,
        "host": firing.holder.host,
        "pid": firing.holder.pid,
        "fired_at": firing.fired_at,
    }
