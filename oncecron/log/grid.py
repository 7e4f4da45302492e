"""The grid of a timeline: keys, or the hosts of a key, by time. Each mark says what became of the ticks in its column.

Several ticks in one column are gathered into one mark, which has the worst of their outcomes: a bad tick is never
hidden by good ones. The terminal and the pages draw the same grid.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.tick import minute_tick
from oncecron.core.units import DAY, HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GRID_STEPS = (
    *(60, 120, 300, 600, 900, 1200, 1800),
    *(1 * HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 8 * HOUR, 12 * HOUR),
    *(1 * DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY, 3640 * DAY),
)
"""How much time a column of `timeline` may have: parts of an hour, of a day, then days and weeks."""

WORST_FIRST = (
    *("lost", "no-end", "failed", "timed-out", "missed", "incomplete"),
    *("stopped", "unclaimed", "orphaned", "stale", "overrun", "silent", "overdue"),
    *("running", "succeeded", "skipped", "paused", "drained"),
)
"""What can become of a tick. The outcomes are those of the log; `no-end`: it is recorded as running without a lease;
`orphaned` and `stale`: with a lease whose holder seems dead.
A timeline shows `unclaimed` as a success or a failure.

Of a key also `missed` (due, and nobody started it), `incomplete` (not every shard was started), `overrun` (skipped, as
the run before still ran), `overdue` (due, and not missed yet), `paused` and `drained` (people held it back).
Of a host also `skipped` (it fired, and did not start the command), `silent` (it did not fire), `paused`, `drained`.
"""
_RANKS = {word: rank for rank, word in enumerate(WORST_FIRST)}


class Ticks(NamedTuple):
    """Ticks of one line with the same outcome."""

    word: str
    """Of `WORST_FIRST`."""
    times: Sequence[float]
    """The instants of ticks, or the starts of what has none; rising, in seconds since the epoch."""
    host: str | None = None
    """Which ran them; None: nobody did."""
    name: str | None = None
    """Of a tick that is no instant."""
    has_tick: bool = True
    """False: firings that belong to no tick."""


class Mark(NamedTuple):
    """What became of the ticks in one column of a line."""

    word: str
    """The worst of their outcomes, one of `WORST_FIRST`."""
    count: int  # type: ignore[assignment]  # nobody counts in a tuple
    """How many ticks it gathers."""
    counts: tuple[tuple[str, int], ...]
    """How many of each outcome, the worst first."""
    at: float
    """The instant of the newest of the worst ticks, or its start."""
    tick: str | None
    """That tick; None: it belongs to none."""
    host: str | None
    """Which ran it; None: nobody did."""


class Line(NamedTuple):
    """A key, or a host of a key, with one mark for each column."""

    name: str
    marks: tuple[Mark | None, ...]
    """None: nothing was due in that column, and nothing ran."""
    counts: tuple[tuple[str, int], ...]
    """How many ticks of each outcome there are in all columns, the worst first."""


class Grid(NamedTuple):
    """Lines by time."""

    starts: tuple[float, ...]
    """When each column begins, in seconds since the epoch; rising."""
    until: float
    """When the last column ends."""
    lines: tuple[Line, ...]
    key: str | None = None
    """The key whose hosts the lines are; None: each line is a key."""


class Run(NamedTuple):
    """An execution, for the bars of the last runs of a key."""

    tick: str | None
    outcome: str
    """Of `WORST_FIRST`."""
    started_at: float
    duration: float | None
    """In seconds; None while it runs."""
    host: str
    execution_id: int


def worst(words: Iterable[str]) -> str:
    """Return the worst of some outcomes."""
    return min(words, key=_RANKS.__getitem__)


def gather(name: str, ticks: Iterable[Ticks], starts: Sequence[float], until: float) -> Line:
    """Return a line with one mark for each column: its word is the worst of what it gathers."""
    counts: list[Counter[str]] = [Counter() for _ in starts]
    newest: list[dict[str, tuple[float, Ticks]]] = [{} for _ in starts]
    in_all: Counter[str] = Counter()
    for each in ticks:
        for column, found in _by_column(each.times, starts, until):
            counts[column][each.word] += len(found)
            in_all[each.word] += len(found)
            known = newest[column].get(each.word)
            if known is None or known[0] <= found[-1]:
                newest[column][each.word] = found[-1], each
    marks = tuple(map(_mark, counts, newest))
    return Line(name, marks, _sorted(in_all))


def _by_column(
    times: Sequence[float], starts: Sequence[float], until: float
) -> Iterator[tuple[int, Sequence[float]]]:
    at = bisect_left(times, starts[0])
    while at < len(times) and times[at] < until:
        column = bisect_right(starts, times[at]) - 1
        end = starts[column + 1] if column + 1 < len(starts) else until
        first, at = at, bisect_left(times, end, at)
        yield column, times[first:at]


def _mark(counts: Counter[str], newest: dict[str, tuple[float, Ticks]]) -> Mark | None:
    if not counts:
        return None
    word = worst(counts)
    at, ticks = newest[word]
    tick = ticks.name or (_tick_at(at) if ticks.has_tick else None)
    return Mark(word, counts.total(), _sorted(counts), at, tick, ticks.host)


@lru_cache(4096)  # the ticks of many keys are at the same times
def _tick_at(at: float) -> str | None:
    return minute_tick(at).text


def _sorted(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda each: _RANKS[each[0]]))


def columns(since: float, until: float, most: int, *, utc: bool = False) -> tuple[float, ...]:
    """Return when each of at most so many columns begins, which cover a span of time.

    They begin at round times of this host's zone, or of UTC, so the first one may begin before the span.
    """
    for step in GRID_STEPS:
        if (until - since) / step <= most:
            found = tuple(_starts(since, until, step, utc=utc))
            if len(found) <= most:
                return found
    return (since,)


def days(since: float, until: float, *, utc: bool = False) -> tuple[float, ...]:
    """Return when each day of a span begins, in this host's zone or in UTC."""
    return tuple(_starts(since, until, DAY, utc=utc))


def _starts(since: float, until: float, step: int, *, utc: bool) -> Iterator[float]:
    """Yield round times: each day of the local calendar begins anew, whatever the clock does on it."""
    zone = UTC if utc else None
    first = datetime.fromtimestamp(since, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    stride = timedelta(max(1, step // DAY))
    for number in itertools.count():
        begin, end = ((first + stride * each).timestamp() for each in (number, number + 1))
        if begin >= until:
            return
        inner = itertools.takewhile(lambda at: at < end, itertools.count(begin, step))  # noqa: B023
        for at in [begin] if step >= DAY else inner:
            if min(at + step, end) > since and at < until:
                yield at
