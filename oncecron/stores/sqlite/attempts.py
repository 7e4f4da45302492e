"""What follows a start on SQLite, each step in a transaction that the caller began.

What an end, or a late record, does is decided in `core.attempt`.
"""

from __future__ import annotations

from oncecron.core import attempt
from oncecron.core.attempt import ENDED_LATE, Known, join
from oncecron.core.claim import stop_refusal
from oncecron.core.facts import ending_values, lease_values, next_lease
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import MAX_CLOCK_SKEW, TOKEN_AHEAD
from oncecron.stores.sqlite.claim import find_stop, high_water_after, microseconds

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.model import Ending, Lease, Refusal
    from oncecron.stores.sqlite.claim import Values
    from oncecron.stores.sqlite.connection import Connection

_NOTHING_SAID = dict.fromkeys(
    (
        *("exit_code", "signal", "note", "output", "output_cut"),
        *("lost_reason", "request", "requested_by"),
    )
)


def keep(store: Connection, lease: Lease, ending: Ending, now: Values) -> bool:
    """Record the end of an attempt and keep the lease, unless it is lost."""
    values = lease_values(lease) | now
    if not store.execute("renew_lease", **values).rowcount:
        return False
    note = join(store.one("find_ending", **values)["note"], ending.note)
    values |= ending_values(ending) | {"note": note, "finished_at": now["now"]}
    store.execute("keep_execution", **values)
    return True


def retry(store: Connection, lease: Lease, now: Values) -> Lease | Refusal | None:
    """Begin the next attempt under the lease that was kept."""
    kept = store.one("find_kept", **lease_values(lease))
    if kept is None:
        return None
    under = {"host": kept["host"], "execution_id": kept["execution_id"]}
    values = lease_values(lease) | now | under
    if kept["execution_id"] != lease.execution_id:  # its answer was lost
        store.execute("renew_lease", **values)
        return next_lease(lease, kept, now["lease_now"])
    stop = find_stop(store, values)
    if stop is None:
        return next_lease(lease, _begin(store, lease, values), now["lease_now"])
    refusal = stop_refusal(stop)
    skip = {"pid": kept["pid"], "holder_host": None, "holder_pid": None, "at": now["now"]}
    store.execute("count_skip", **values | skip, reason=refusal.reason, detail=refusal.detail)
    return refusal


def _begin(store: Connection, lease: Lease, values: Values) -> Values:
    """Write the next attempt; return it."""
    number = lease.attempt + 1 if lease.tick is None else store.one("next_attempt", **values)[0]
    fence = store.one("find_marks", **values)["fence"]
    begun = {
        "attempt": number,
        "fencing_token": max(fence + 1, microseconds(values)),
        "started_at": values["now"],
        "cause": "retry",
    }
    values = {**values, **begun}
    values["next_id"] = store.execute("insert_next_attempt", **values).lastrowid
    store.execute("move_lease", **values)
    store.execute("mark_next_attempt", **values)
    return {**begun, "execution_id": values["next_id"]}


def finish(store: Connection, lease: Lease, ending: Ending, now: float) -> tuple[bool, bool]:
    """Record the end; return whether the lease was never lost, and whether this is the end, which is told once."""
    row = store.one("find_ending", **lease_values(lease))
    if row is None:
        return False, False
    execution = known_execution(row)
    late = ENDED_LATE if execution.lost and not execution.retrying else None
    values = lease_values(lease) | ending_values(ending) | {"finished_at": now}
    ends = conclude(store, execution, values, ending.note, late)
    return not execution.lost, ends


def deliver(store: Connection, record: dict[str, Any], now: float) -> bool:
    """Take a late record; `now` is wall time.

    Return whether it is the end of an execution that had none. Raises `RecordRefusedError`.
    """
    from oncecron.core import bounds  # noqa: PLC0415 - only where there is such a record

    bounds.check(record)
    store.execute("register_key", **record)
    if record["kind"] == "skip":
        store.execute("deliver_skip", **record | {"at": min(record["at"], now)})
        return False
    row = store.one("find_delivered", **record)
    if row is None:
        return _insert(store, record, now)
    if record["outcome"] == "running":
        return False
    return conclude(store, known_execution(row), record, record["note"], _late(record))


def known_execution(row: Any) -> Known:
    """Return what the end of an execution depends on."""
    return Known(
        execution_id=row["execution_id"],
        outcome=row["outcome"],
        has_duration=row["duration"] is not None,
        retrying=bool(row["retrying"]),
        lost=row["lost_at"] is not None,
        note=row["note"],
    )


def conclude(
    store: Connection, execution: Known, values: dict[str, Any], *notes: str | None
) -> bool:
    """Write the end of an execution, if it has none, and release its own lease; return whether it had none."""
    ended = attempt.effect_of_end(execution, *notes)
    values = {**values, "execution_id": execution.execution_id, "note": ended.note}
    if ended.how == "give-up":
        give_up(store, values)
        return True
    if ended.how == "end":
        store.execute("end_execution", **values)
        if values["outcome"] == "not-started":
            store.execute("take_back_start", **values)
    store.execute("release_lease", **values)
    return ended.how == "end"


def give_up(store: Connection, values: dict[str, Any]) -> None:
    """Record that no retry follows an attempt that was kept, unless another firing has taken over.

    This is final, also if the lease was lost. A retry that has begun, but whose answer the owner never got, did not
    start.
    """
    store.execute("give_up", **values)
    lease = store.one("find_own_lease", **values)
    if lease is not None and lease["execution_id"] != values["execution_id"]:
        unheard = {**values, **_NOTHING_SAID, "outcome": "not-started", "duration": 0.0}
        conclude(store, known_execution(lease), unheard, attempt.UNHEARD)
    store.execute("release_lease", **values)


def _late(record: dict[str, Any]) -> str | None:
    return attempt.RECORDED_LATER if record.get("late") else None


def _insert(store: Connection, record: dict[str, Any], now: float) -> bool:
    outcome, token = record["outcome"], record["fencing_token"]
    if outcome == "not-started" and token is None:
        return False
    values = {
        **record,
        "named": record["tick"] is not None and record["tick_instant"] is None,
        "note": join(record["note"], _late(record)),
        "latest": now + MAX_CLOCK_SKEW,
        "most_believable": int((now + TOKEN_AHEAD) * 1_000_000),
        "last_start": min(record["started_at"], now),
        "lateness": record["fired_at"] % 60,
    }
    fence, mark = store.one("find_marks", **record)
    if attempt.supersedes(token, fence):
        store.execute("declare_unanswered_lost", **record, now=now, unfinished=attempt.UNFINISHED)
    beside = store.one("find_running_or_leased", **record) is not None
    if attempt.is_superseded(outcome, token, fence, beside=beside):
        note = join(record["note"], attempt.UNFINISHED, _late(record))
        values.update(outcome="lost", lost_reason="superseded", note=note)
    store.execute("insert_delivered", **values)
    store.execute("mark_delivered", **values)
    if outcome != "not-started":
        values["mark"] = high_water_after(mark, record["tick_instant"], now)
        store.execute("mark_delivered_tick", **values)
        store.execute("mark_delivered_start", **values)
    return bool(outcome != "running")
