"""Keep, begin and end the attempts under one lease, each in a transaction that the caller began.

What an end does is decided in `core.attempt`.
"""

from __future__ import annotations

from oncecron.core.attempt import ENDED_LATE, joined
from oncecron.core.claim import stopped
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Lease, Refusal, trust_after
from oncecron.stores.sqlite.claim import microseconds, stops
from oncecron.stores.sqlite.delivery import conclude, known

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.model import Ending
    from oncecron.stores.sqlite.claim import Values
    from oncecron.stores.sqlite.connection import Connection


def keep(store: Connection, lease: Lease, ending: Ending, now: Values) -> bool:
    """Record the end of an attempt and keep the lease; see `LeaseStore.keep`."""
    if not store.execute("renew_lease", **lease._asdict(), **now).rowcount:
        return False
    found = store.one("find_ending", **lease._asdict())
    note = joined(found["note"], ending.note)
    store.execute("keep_execution", **_ending_values(lease, ending, now["now"]), note=note)
    return True


def retry(store: Connection, lease: Lease, now: Values) -> Lease | Refusal | None:
    """Begin the next attempt; see `LeaseStore.retry`."""
    kept = store.one("find_kept", **lease._asdict())
    if kept is None:
        return None
    asked = {**lease._asdict(), **now, "host": kept["host"], "execution_id": kept["execution_id"]}
    if kept["execution_id"] != lease.execution_id:  # its answer was lost
        store.execute("renew_lease", **asked)
        return _lease(lease, asked, kept)
    refusal = stopped(*stops(store, asked))
    if refusal is None:
        return _begin(store, lease, asked)
    skip = {**asked, "pid": kept["pid"], "holder_host": None, "holder_pid": None, "at": now["now"]}
    store.execute("count_skip", **skip, reason=refusal.reason, detail=refusal.detail)
    return refusal


def finish(store: Connection, lease: Lease, ending: Ending, now: float) -> tuple[bool, bool]:
    """Record the end; return whether the lease was never lost, and whether this is the end, which is told once."""
    row = store.one("find_ending", **lease._asdict())
    if row is None:
        return False, False
    execution = known(row)
    late = ENDED_LATE if execution.lost and not execution.retrying else None
    values = _ending_values(lease, ending, now)
    ends = conclude(store, execution, values, ending.note, late)
    return not execution.lost, ends


def _begin(store: Connection, lease: Lease, asked: Values) -> Lease:
    number = lease.attempt + 1 if lease.tick is None else store.one("next_attempt", **asked)[0]
    begun = {
        "attempt": number,
        "fencing_token": max(store.one("find_marks", **asked)["fence"] + 1, microseconds(asked)),
        "started_at": asked["now"],
        "cause": "retry",
    }
    asked = {**asked, **begun}
    asked["next_id"] = store.execute("insert_next_attempt", **asked).lastrowid
    store.execute("move_lease", **asked)
    store.execute("mark_next_attempt", **asked)
    return _lease(lease, asked, {**begun, "execution_id": asked["next_id"]})


def _ending_values(lease: Lease, ending: Ending, now: float) -> Values:
    output, cut = ending.output or (None, None)
    kind, author, *_ = ending.request or (None, None)
    values = {**ending._asdict(), "output": output, "output_cut": cut}
    del values["note"]
    values |= {"request": kind, "requested_by": author, "finished_at": now}
    return {**lease._asdict(), **values}


def _lease(lease: Lease, asked: Values, execution: Any) -> Lease:
    return lease._replace(
        attempt=execution["attempt"],
        execution_id=execution["execution_id"],
        token=execution["fencing_token"],
        started_at=execution["started_at"],
        trusted_until=trust_after(asked["lease_now"], lease.ttl),
        request=None,
        cause=execution["cause"],
    )
