"""Deliver a spooled record, perhaps twice, or a record for a log store.

The record is identified by owner, key, shard and the owner's number of the attempt. A recorded end stays; `running` and
`lost` are replaced; an attempt whose retry was to follow is given up. Only the owner's own lease is released. An
execution that the store never saw is inserted, with the next free number if its own is taken. A `not-started` that was
never granted has no effect. A higher token than all before means that a later start has the key: an execution that was
running and has no lease here is `lost`, and so is a start that comes after a higher token.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import MAX_CLOCK_SKEW

if TYPE_CHECKING:
    from typing import Any

    from oncecron.stores.sqlite.connection import Connection

_LATE = "recorded later"
_UNFINISHED = "its end was not recorded"
_UNHEARD = "its owner never got the answer"
_NOTHING_TOLD = dict.fromkeys(
    (
        *("exit_code", "signal", "note", "output", "output_cut"),
        *("lost_reason", "request", "requested_by"),
    )
)


def deliver(store: Connection, record: dict[str, Any], now: float) -> None:
    """Write the record, in a transaction that the caller began; `now` is wall time."""
    store.execute("register_key", **record)
    if record["kind"] == "skip":
        store.execute("deliver_skip", **record)
        return
    known = store.one("find_delivered", **record)
    if known is None:
        _insert(store, record, now)
    elif record["outcome"] != "running":
        note = joined(known["note"], record["note"], _late(record))
        values = {**record, "execution_id": known["execution_id"], "note": note}
        if known["retrying"]:
            give_up(store, values)
        else:
            end(store, values)


def end(store: Connection, values: dict[str, Any]) -> None:
    """Write the end of an execution that has none yet, and release its own lease."""
    ended = store.execute("end_execution", **values).rowcount
    store.execute("release_lease", **values)
    if ended and values["outcome"] == "not-started":
        store.execute("take_back_start", **values)


def give_up(store: Connection, values: dict[str, Any]) -> None:
    """Record that no retry follows an attempt that was kept, unless another firing has taken over.

    This is final, also if the lease was lost. A retry that has begun, but whose answer the owner never got, did not
    start.
    """
    store.execute("give_up", **values)
    lease = store.one("find_own_lease", **values)
    if lease is not None and lease["execution_id"] != values["execution_id"]:
        unheard = {"execution_id": lease["execution_id"], "outcome": "not-started", "duration": 0.0}
        end(store, {**values, **_NOTHING_TOLD, **unheard, "note": _UNHEARD})
    store.execute("release_lease", **values)


def joined(*notes: str | None) -> str | None:
    """Return the notes as one text, without duplicates."""
    text = ""
    for note in notes:
        if note and note not in text:
            text = f"{text}; {note}" if text else note
    return text or None


def _late(record: dict[str, Any]) -> str | None:
    return _LATE if record.get("late") else None


def _insert(store: Connection, record: dict[str, Any], now: float) -> None:
    outcome, token = record["outcome"], record["fencing_token"]
    if outcome == "not-started" and token is None:
        return
    values = {
        **record,
        "named": record["tick"] is not None and record["tick_instant"] is None,
        "note": joined(record["note"], _late(record)),
        "latest": now + MAX_CLOCK_SKEW,
        "lateness": record["fired_at"] % 60,
    }
    fence = store.one("find_key", **record)["fence"]
    if token is not None and token >= fence:
        store.execute("declare_unanswered_lost", **record, now=now, unfinished=_UNFINISHED)
    if outcome == "running" and ((token or 0) < fence or store.one("find_running", **record)):
        note = joined(record["note"], _UNFINISHED, _late(record))
        values.update(outcome="lost", lost_reason="superseded", note=note)
    store.execute("insert_delivered", **values)
    store.execute("mark_delivered", **values)
    if outcome != "not-started":
        store.execute("mark_delivered_tick", **values)
        store.execute("mark_delivered_start", **values)
