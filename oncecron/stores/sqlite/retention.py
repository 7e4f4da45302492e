"""Remove expired records: a few at every end, all of them in a prune. None goes before the least retention of the file.

Only the log keeps a tick with a name from running twice, so each key keeps its newest names, however old they are. For
ticks that are instants the high-water mark on the key's row does that. A running execution is never removed.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LEAST, Retention
from oncecron.core.timing import HOST_FORGOTTEN_AFTER, PAUSES_KEPT

if TYPE_CHECKING:
    from typing import Any

    from oncecron.stores.sqlite.connection import Connection

    Values = dict[str, Any]

NAMES_KEPT = 1000
MOST_PER_FINISH = 100
SKIPS_PER_FINISH = 1000
"""More than the hosts add at a tick."""

Part = tuple[str, int]
"""A key and a shard."""


def least_retention(store: Connection) -> Retention:
    """Return the retention below which no caller's counts."""
    found = store.one("least_retention")
    return Retention(
        *(default if set_ is None else set_ for set_, default in zip(found, LEAST, strict=True))
    )


def at_least(store: Connection, wanted: Retention) -> Retention:
    """Return how long records are kept for a caller who wants them kept this long."""
    return Retention(*map(max, wanted, least_retention(store)))


def expire(store: Connection, part: Part, wanted: Retention, moment: Values) -> None:
    """Remove a few expired rows; executions of names only for this shard. `moment`: the time of all clocks."""
    kept = at_least(store, wanted)
    most = MOST_PER_FINISH
    now = moment["now"]
    before = now - kept.executions
    most -= expire_executions(store, before, most=most)
    expire_names(store, part, before, names_kept=NAMES_KEPT, most=most)
    expire_skips(store, now - kept.skips, most=SKIPS_PER_FINISH)
    expire_items(store, before, moment, most=20 * MOST_PER_FINISH)  # the rows are small
    forget_old(store, now)


def forget_old(store: Connection, now: float) -> None:
    """Remove pauses that were over long ago, and hosts that fire a key no more; end pauses whose time is over."""
    store.execute("expire_pauses", now=now)
    store.execute("forget_pauses", before=now - PAUSES_KEPT)
    store.execute("expire_key_hosts", before=now - HOST_FORGOTTEN_AFTER)


def expire_executions(store: Connection, before: float, *, most: int) -> int:
    """Remove executions that started before a wall time, except those of names; return how many."""
    return store.execute("expire_executions", before=before, most=most).rowcount


def expire_names(
    store: Connection, part: Part, before: float, *, names_kept: int, most: int
) -> int:
    """Remove executions of a shard that started before a time, except those of its newest names; return how many."""
    key, shard = part
    oldest = store.one("oldest_kept_name", key=key, shard=shard, names=names_kept)
    if oldest is None:
        return 0
    asked = {"key": key, "shard": shard, "before": before, "oldest": oldest[0], "most": most}
    return store.execute("expire_names", **asked).rowcount


def expire_skips(store: Connection, before: float, *, most: int) -> int:
    """Remove skips that were last counted before a wall time; return how many."""
    plain = [row[0] for row in store.execute("expire_plain_skips", before=before, most=most)]
    rows: int = store.execute("expire_skips", before=before, most=most).rowcount
    return rows + sum(map(int, plain))


def expire_items(store: Connection, before: float, moment: Values, *, most: int) -> int:
    """Remove rows of the lists of items that have expired, or that no load has completed, and none does now."""
    if not store.knows("expire_lists"):
        return 0  # a program without items
    store.execute("expire_lists", before=before, **moment)
    removed = 0
    while removed < most and (found := store.one("expired_list")):
        of_list = {"list_id": found[0], "most": most - removed}
        gone = sum(
            store.execute(f"expire_{what}", **of_list).rowcount
            for what in ("marks", "batches", "items")
        )
        if gone < of_list["most"]:
            store.execute("expire_slots", list_id=found[0])
            store.execute("expire_list", list_id=found[0])
        removed += max(gone, 1)
    return removed
