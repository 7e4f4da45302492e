"""A spooled record on its way into the log: what really happened, told late and perhaps twice.

It is found again by its owner, key, shard and attempt, as the owner counted them. What has an end keeps it;
`running` and `lost` are replaced; only the owner's own lease goes. What the store never saw is put in, with the next
free number if another execution of the tick has its own; a `not-started` of which the store knows nothing
says nothing, and a start without an end is `lost` until its end is delivered.
"""

from __future__ import annotations

from oncecron.model import MAX_CLOCK_SKEW

TYPE_CHECKING = False  # importing `typing` costs a firing more than all of this module
if TYPE_CHECKING:
    from typing import Any

    from oncecron.stores.sqlite.connection import Connection

_LATE = "recorded later"
_UNFINISHED = "its end was not recorded"


def deliver(store: Connection, record: dict[str, Any], now: float) -> None:
    """Put the record in, in a transaction that the caller began; `now` is wall time."""
    store.execute("register_key", **record)
    if record["kind"] == "skip":
        store.execute("deliver_skip", **record)
        return
    known = store.one("find_delivered", **record)
    if known is None:
        _insert(store, record, now)
    elif record["outcome"] != "running":
        values = {**record, "execution_id": known["execution_id"]}
        if known["outcome"] in ("running", "lost"):
            values["note"] = joined(known["note"], record["note"], _LATE)
            end(store, values)


def end(store: Connection, values: dict[str, Any]) -> None:
    """Write the end of an execution that is `running` or `lost`, and release its own lease."""
    store.execute("end_execution", **values)
    store.execute("release_lease", **values)
    if values["outcome"] == "not-started":
        store.execute("take_back_start", **values)


def joined(*notes: str | None) -> str | None:
    """Return the notes as one, none of them twice."""
    text = ""
    for note in notes:
        if note and note not in text:
            text = f"{text}; {note}" if text else note
    return text or None


def _insert(store: Connection, record: dict[str, Any], now: float) -> None:
    if record["outcome"] == "not-started":
        return
    values = {
        **record,
        "named": record["tick"] is not None and record["tick_instant"] is None,
        "note": joined(record["note"], _LATE),
        "latest": now + MAX_CLOCK_SKEW,
        "lateness": record["fired_at"] % 60,
    }
    if record["outcome"] == "running":
        values.update(outcome="lost", note=joined(record["note"], _UNFINISHED))
    store.execute("insert_delivered", **values)
    store.execute("mark_delivered", **values)
    store.execute("mark_delivered_start", **values)
