"""Make the records that `LeaseStore.deliver` takes, for the spool and for the log store."""

from __future__ import annotations

from oncecron.config.options import is_key
from oncecron.core import clock
from oncecron.core.errors import StoreError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import (
    CAUSES,
    LOST_BY_HOLDER,
    LOST_BY_STORE,
    OUTCOMES,
    REFUSAL_REASONS,
    REQUEST_KINDS,
    Ending,
)

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


_KNOWN = {"kind", "key", "shard", "host", "pid", "fired_at", "owner"}
_FIELDS_OF = {
    "execution": (
        _KNOWN | {"outcome", "cause"},
        {"tick", "tick_instant", "attempt", "fencing_token", "note"}
        | {"lost_reason", "request", "requested_by"},
    ),
    "skip": (_KNOWN | {"reason", "at"}, {"tick", "tick_instant"}),
}
"""The fields that a record of a kind must have, and those that may be null."""
_WORDS = {
    "outcome": OUTCOMES,
    "reason": REFUSAL_REASONS,
    "cause": CAUSES,
    "lost_reason": (*LOST_BY_STORE, *LOST_BY_HOLDER),
    "request": REQUEST_KINDS,
}


def is_record(found: Any) -> bool:
    """Return whether a value that was read from a file is a record that a store can be asked to take."""
    kind = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS_OF:
        return False
    needed, others = _FIELDS_OF[kind]
    return (
        needed | others <= found.keys()
        and not any(found[name] is None for name in needed)
        and all(_fits(name, value) for name, value in found.items())
        and is_key(found["key"])
    )


def _fits(name: str, value: Any) -> bool:
    """Return whether a value is one that the field can have."""
    from oncecron.core import bounds  # noqa: PLC0415 - only where a record was spooled

    if name in _WORDS and value is not None:
        return value in _WORDS[name]
    return bounds.is_possible(name, value)


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
