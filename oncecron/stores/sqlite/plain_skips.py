"""Read the plain skips (`oncecron.stores.plain_skips`) in a SQLite file: a text for each host and window."""

from __future__ import annotations

from oncecron.core.claim import PLAIN_WINDOW
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import SkipReason
from oncecron.core.tick import instant_of
from oncecron.stores.plain_skips import KeptSkips, shown, window_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oncecron.core.log_rows import HistoryQuery, Skip
    from oncecron.core.readable import Unreadable
    from oncecron.core.tick import Tick
    from oncecron.stores.plain_skips import KeptSkip, Window
    from oncecron.stores.sqlite.connection import Connection


def wanted(store: Connection, query: HistoryQuery, unreadable: Unreadable) -> list[Skip]:
    """Return the plain skips of a query, the newest first."""
    instant = instant_of(query.tick)
    if query.tick is not None and instant is None:
        return []
    window = None if instant is None else _window_at(instant)
    filters = {"key": query.key, "since": query.since, "host": query.host}
    rows = store.execute("plain_skips", **filters, oldest=window, newest=window).fetchall()
    found = [
        shown(each, store.one("holder", execution_id=each.execution_id))
        for each in _skips_in(rows, unreadable)
        if query.tick in (None, each.tick)
        and query.outcome in (None, each.reason)
        and (query.since is None or each.at >= query.since)
    ]
    return sorted(found, key=order_of)


def order_of(skip: Skip) -> tuple[object, ...]:
    """Return the sort key of skips: newest first, as in the statement for the others."""
    return (-skip.at, skip.key, skip.shard, skip.host, skip.reason)


def reasons(
    store: Connection, key: str, first: Tick, unreadable: Unreadable
) -> Iterator[SkipReason]:
    """Yield the hosts that have plainly skipped a tick of a key since the first one."""
    filters = {"key": key, "since": None, "host": None}
    oldest = _window_at(first.instant or 0.0)
    rows = store.execute("plain_skips", **filters, oldest=oldest, newest=None).fetchall()
    for each in _skips_in(rows, unreadable):
        if each.tick >= str(first.text):
            yield SkipReason(key, each.tick, each.of.host, each.reason)


def _window_at(instant: float) -> int:
    return int(instant // 60 // PLAIN_WINDOW) * PLAIN_WINDOW


def _skips_in(rows: list[Any], unreadable: Unreadable) -> Iterator[KeptSkip]:
    for row in rows:
        name = f"skips of key {row['key']} by host {row['host']}"
        window = unreadable.read(name, _window, *row)
        yield from window.skips if window else ()


def _window(key: str, shard: int, host: str, window: int, words: str) -> Window:
    return window_of(KeptSkips(key, shard, host, int(window), words))
