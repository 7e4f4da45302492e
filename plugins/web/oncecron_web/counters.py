"""Counters for rates: how many runs ended how, and how many firings were skipped why, as `metrics` has seen them.

The store has no counters, because each firing would pay for them. Numbers of rows in the log would fall when retention
removes some. So `metrics` counts what is new in the log since its last look, and keeps the sums itself: in its memory
with --listen, in the file with --textfile. They begin with 0 at the first look, which Prometheus takes for the restart
of a counter. Retention removes only what is old, so no sum ever falls.

- A run is counted once, when it is first seen with an end. If its own end comes after it was declared lost, it stays
  `lost` here.
- Runs are found by their ids. Concurrent starts may become visible in another order, so the newest `_UNSETTLED` ids are
  looked at again. Runs that had no end are looked up one by one.
- Skips are found by their time, a little after it. Each (key, tick, host, reason) counts once between two looks. A skip
  that was spooled is recorded with its old time, and does not count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.errors import UNREADABLE
from oncecron.core.log_rows import HistoryQuery
from oncecron_web.page_times import SKIPS_COUNTED_AFTER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from oncecron.core.log_rows import Execution
    from oncecron.stores.reader import Reader

Sums = Mapping[str, Mapping[str, int]]
"""By key, and by outcome or reason."""

_UNSETTLED = 200
"""How many of the newest ids may have predecessors that are not visible yet: more than there are concurrent claims."""
_MOST = 20_000
"""How many runs one look reads at most: the next look continues after them."""
_LINE = "# oncecron metrics has counted: "
"""The comment of the text file that has the sums. Who reads metrics ignores it."""


class Counts(NamedTuple):
    """What has been counted of a log."""

    log: str
    """Names the log: another one is counted from its present end."""
    until: int | None = None
    """Runs up to this id are counted, or open; None: nothing has been looked at."""
    counted: Collection[int] = ()
    """Later runs that are counted already."""
    open: Collection[int] = ()
    """Runs that had no end yet."""
    skips_until: float = 0.0
    runs: Mapping[str, Mapping[str, int]] = {}
    skips: Mapping[str, Mapping[str, int]] = {}


def count(counts: Counts, log: Reader, now: float) -> Counts:
    """Return the counts with what is new in the log. Raises `StoreError`."""
    newest = next(log.history(HistoryQuery(limit=1)), None)
    newest_id = newest.execution_id if newest else 0
    if counts.until is None or newest_id < counts.until:  # the log was replaced
        return _begin(counts, log, newest_id, now)
    rows = _runs_after(log, counts.until)
    open_ids = {*counts.open} | (rows.keys() - {*counts.counted})
    looked_up = {number: rows.get(number) or log.execution(number) for number in open_ids}
    ended = {
        number: row
        for number, row in looked_up.items()
        if row is None or row.outcome != "running"  # None: retention has removed it
    }
    skips_until = max(now - SKIPS_COUNTED_AFTER, counts.skips_until)
    skips = (skip for skip in log.skips_since(counts.skips_until) if skip.at < skips_until)
    until = max(counts.until, max(rows, default=0) - _UNSETTLED)
    return counts._replace(
        until=until,
        counted=sorted(each for each in {*counts.counted} | ended.keys() if each > until),
        open=sorted(open_ids - ended.keys()),
        skips_until=skips_until,
        runs=_sums(counts.runs, ((row.key, row.outcome) for row in ended.values() if row)),
        skips=_sums(counts.skips, ((skip.key, skip.reason) for skip in skips)),
    )


def _begin(counts: Counts, log: Reader, newest_id: int, now: float) -> Counts:
    until = max(0, newest_id - _UNSETTLED)
    rows = _runs_after(log, until)
    running = {lease.execution_id for lease in log.leases() if lease.execution_id is not None}
    running |= {number for number, row in rows.items() if row.outcome == "running"}
    return counts._replace(
        until=until,
        counted=sorted(rows.keys() - running),
        open=sorted(running),
        skips_until=now - SKIPS_COUNTED_AFTER,
    )


def _runs_after(log: Reader, number: int) -> dict[int, Execution]:
    found = log.history(HistoryQuery(after_id=number, limit=_MOST))
    return {row.execution_id: row for row in found}


def _sums(before: Sums, more: Iterable[tuple[str, str]]) -> Sums:
    sums = {key: {**of_key} for key, of_key in before.items()}
    for key, word in more:
        of_key = sums.setdefault(key, {})
        of_key[word] = of_key.get(word, 0) + 1
    return sums


def line_of(counts: Counts) -> bytes:
    """Return the line of a text file that has the counts."""
    return f"{_LINE}{json.dumps(counts)}\n".encode()


def line_in(text: bytes) -> bytes:
    """Return this line of a text file, empty if there is none."""
    begin = _LINE.encode()
    return next((line for line in text.splitlines(keepends=True) if line.startswith(begin)), b"")


def counts_in(line: bytes, log: str) -> Counts:
    """Return the counts in a line; those of nothing, if it is of another log or cannot be read."""
    try:
        found = Counts(*json.loads(line.removeprefix(_LINE.encode())))
        numbers = [
            *found.counted,
            *found.open,
            *(n for s in found[-2:] for k in s.values() for n in k.values()),
        ]
        if found.log == log and all(type(each) is int for each in (found.until, *numbers)):
            return found._replace(skips_until=float(found.skips_until))
    except UNREADABLE:
        pass
    return Counts(log)
