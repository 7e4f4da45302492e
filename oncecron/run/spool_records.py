"""Make the records that `LeaseStore.deliver` takes, for the spool and for the log store."""

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
    """Return the record of an execution that ended; without a lease it was `unclaimed`.

    `started_at`: wall time, only needed without a lease.
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
    """Return the record of a start."""
    started = execution_record(firing, lease, Ending("running", None, None, 0.0))
    return {**started, "finished_at": None, "duration": None}


def skip_record(firing: Firing, refusal: Refusal) -> dict[str, Any]:
    """Return the record of a skip; a firing has at most one for each reason, so its owner identifies it."""
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
    """Record a skip that the store did not decide, or spool it if the store is unreachable.

    This never changes the decision. Raises `SpoolError` when the disk refuses it too.
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
