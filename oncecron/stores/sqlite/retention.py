"""Remove expired records: a few at every end, all of them in a prune. None goes before the least retention of the file.

Only the log keeps a tick with a name from running twice, so each key keeps its newest names, however old they are. For
ticks that are instants the high-water mark on the key's row does that. A running execution is never removed.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LEAST, Retention
from oncecron.core.timing import HOST_FORGOTTEN_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from oncecron.core.progress import Progress
    from oncecron.stores.sqlite.connection import Connection

    Values = dict[str, Any]
    Open = Callable[[], AbstractContextManager[Connection]]
    """Gives the store for one transaction."""

NAMES_KEPT = 1000
MOST_PER_FINISH = 100
SKIPS_PER_FINISH = 1000
"""More than the hosts add at a tick."""
ROWS_PER_STEP = 500
"""Rows that one transaction of a prune removes; firings can run between two."""
ITEMS_PER_STEP = 5000

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
    store.execute("expire_pauses", now=now)
    expire_items(store, before, moment, most=20 * MOST_PER_FINISH)  # the rows are small
    expire_hosts(store, now)


def expire_hosts(store: Connection, now: float) -> None:
    """Remove the hosts of a key that have not fired it for long."""
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


class _Removable(list):  # type: ignore[type-arg]
    @property
    def rowcount(self) -> int:
        """Return how many rows a statement that returns none would remove."""
        return int(self[0][0])


class _DryStore:
    def __init__(self, store: Connection) -> None:
        self.one = store.one
        self._store = store

    def execute(self, name: str, /, **values: Any) -> _Removable:
        """Ask for all rows at once."""
        return _Removable(self._store.removable(name, **{**values, "most": _NO_LIMIT}))


_NO_LIMIT = -1
"""As the LIMIT of SQLite."""


def prune(
    open_store: Open,
    wanted: Retention,
    moment: Values,
    names_kept: int,
    *,
    dry_run: bool,
    progress: Progress,
) -> tuple[int, int]:
    """Remove all that has expired; return how many executions and how many skips were removed.

    `dry_run`: remove nothing, and return how many would be removed.
    """
    executions = skips = 0
    for removed in _pruned(open_store, wanted, moment, names_kept, dry_run=dry_run):
        executions, skips = executions + removed[0], skips + removed[1]
        progress(executions + skips)
    return executions, skips


def _pruned(
    open_store: Open, wanted: Retention, moment: Values, names_kept: int, *, dry_run: bool
) -> Iterator[tuple[int, int]]:
    """Yield how many executions and how many skips each step removes."""
    in_steps = _without_a_step if dry_run else _in_steps
    with open_store() as store:
        kept = at_least(store, wanted)
        parts: list[Part] = [
            (row["key"], row["shard"]) for row in store.execute("parts_with_names")
        ]
    now, most = moment["now"], ROWS_PER_STEP
    before = now - kept.executions
    for gone in in_steps(open_store, lambda store: expire_executions(store, before, most=most)):
        yield gone, 0
    for gone in in_steps(
        open_store, lambda store: expire_skips(store, now - kept.skips, most=most)
    ):
        yield 0, gone
    for part in parts:

        def step(store: Connection, part: Part = part) -> int:
            return expire_names(store, part, before, names_kept=names_kept, most=most)

        for gone in in_steps(open_store, step):
            yield gone, 0
    if dry_run:
        return
    for _ in _in_steps(
        open_store, lambda store: expire_items(store, before, moment, most=ITEMS_PER_STEP)
    ):
        yield 0, 0
    with open_store() as store, store.writing(durable=False):
        expire_hosts(store, now)


def _without_a_step(open_store: Open, step: Callable[[Connection], int]) -> Iterator[int]:
    with open_store() as store, store.reading():
        yield step(_DryStore(store))  # type: ignore[arg-type]


def _in_steps(open_store: Open, step: Callable[[Connection], int]) -> Iterator[int]:
    """Repeat a step, each in a transaction of its own, until it removes nothing; yield how much each removes."""
    more = 1
    while more:
        with open_store() as store, store.writing(durable=False):
            more = step(store)
        yield more
