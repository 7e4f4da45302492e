"""Scheduled ticks without a start: the log of a shard compared with the schedule that it was last claimed with.

Only ticks between the first and the last tick on record are expected. A tick on record that is not in the schedule
means that the schedule was another one until then, so nothing before it is expected. Missing ticks are kept as ranges,
so that a year of missing minutes needs no memory.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import tick
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.timing import MAX_CLOCK_SKEW, SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.log_rows import Execution, JobKey, Skip, Traced
    from oncecron.stores.api import Inspector

_SKIPS_READ = 500

Reasons = dict[str, dict[str, None]]
"""The hosts that skipped, by reason, in the order in which they were read."""


class _Range(NamedTuple):
    first: float
    last: float


class Gaps:
    """The scheduled ticks of one shard that have no start."""

    example: Execution
    """Any execution of this shard."""

    def __init__(self, known: JobKey, skipped: float | None) -> None:
        """`skipped`: the newest instant of which a skip is on record."""
        assert known.schedule is not None  # noqa: S101 - see `schedules`
        self._schedule, self._zone = known.schedule, known.zone
        self._key, self._shard = known.key, known.shard
        self._skipped = skipped
        self._since = 0.0
        self._coming: Iterator[tick.Tick] | None = None
        self._next = 0.0
        self._last = 0.0
        self._ranges: list[_Range] = []
        self._started_later: set[float] = set()
        self._not_started: dict[float, str] = {}

    def begin(self, since: float) -> None:
        """Expect no ticks that are older."""
        self._since = since

    def see(self, traced: Traced) -> None:
        """Read the next execution, in the order of starts."""
        self.example, instant = traced.execution, traced.instant
        if instant is None or instant < self._since:
            return
        if traced.execution.outcome == "not-started":
            self._not_started[instant] = traced.execution.host
            if self._coming is not None and instant > self._last:
                self._pass_by(instant + 1)
            return
        self._not_started.pop(instant, None)
        if self._coming is None or instant > self._last:
            self._arrive(instant)
        elif self._ranges and instant >= self._ranges[0].first:
            self._started_later.add(instant)

    def _arrive(self, instant: float) -> None:
        if self._coming is None:
            if self._is_scheduled(instant):
                self._begin_behind(instant)
            return
        self._pass_by(instant)
        if self._next == instant:
            self._step()
        else:  # not a tick of this schedule: the schedule was another one until then
            self._ranges.clear()
            self._begin_behind(instant)

    def _is_scheduled(self, instant: float) -> bool:
        try:
            return tick.scheduled_tick(self._schedule, self._zone, instant).instant == instant
        except ValueError:  # this host knows no such zone
            return False

    def _begin_behind(self, instant: float) -> None:
        self._last = instant
        self._coming = tick.next_ticks(self._schedule, self._zone, instant)
        self._next = _instant(next(self._coming))

    def _step(self) -> None:
        assert self._coming is not None  # noqa: S101 - begun by now
        self._last, self._next = self._next, _instant(next(self._coming))

    def _pass_by(self, instant: float) -> None:
        """Note the ticks that were due before this instant and have no start."""
        first = self._next
        while self._next < instant:
            self._step()
        if first < instant:
            self._ranges.append(_Range(first, self._last))

    def missing(self, log: Inspector) -> Iterator[tuple[str, str, int, str]]:
        """Yield the missing ticks: the first and the last one, how many, and why, as far as skips on record say."""
        if self._coming is not None and self._skipped is not None:
            self._pass_by(self._skipped + 1)
        if not self._ranges:
            return
        reasons = self._reasons(log)
        for missing in self._ranges:
            found = ((each, self._why(each, reasons)) for each in self._ticks_of(missing))
            for why, ticks in itertools.groupby(found, key=lambda pair: pair[1]):
                first, last, count = _ends(each for each, _ in ticks)
                if why is not None:
                    yield str(first.text), str(last.text), count, why

    def _ticks_of(self, missing: _Range) -> Iterator[tick.Tick]:
        """Yield the ticks of a range, also those that were started later: they separate two groups."""
        for each in tick.next_ticks(self._schedule, self._zone, missing.first - 1):
            if _instant(each) > missing.last:
                return
            yield each

    def _why(self, missing: tick.Tick, reasons: dict[str, Reasons]) -> str | None:
        """Return why nothing ran; None where the tick was started later, or paused."""
        instant = _instant(missing)
        of_tick = reasons.get(str(missing.text), {})
        if instant in self._started_later or "paused" in of_tick:
            return None
        return listed_reasons(of_tick, given_back_by=self._not_started.get(instant))

    def _reasons(self, log: Inspector) -> dict[str, Reasons]:
        reasons: dict[str, Reasons] = {}
        since = self._ranges[0].first - MAX_CLOCK_SKEW
        for skip in log.skips(HistoryQuery(key=self._key, since=since, limit=None)):
            if skip.shard == self._shard and skip.tick and self._is_missing(skip):
                reasons.setdefault(skip.tick, {}).setdefault(skip.reason, {})[skip.host] = None
        return reasons

    def _is_missing(self, skip: Skip) -> bool:
        instant = tick.named_tick(skip.tick or "-").instant
        return instant is not None and any(first <= instant <= last for first, last in self._ranges)


def schedules(store: Inspector, log: Inspector, now: float) -> dict[tuple[str, int], Gaps]:
    """Return the shards that have a schedule, by key and shard. Call this before reading the log.

    Then a tick whose skip was seen here has its start among the executions that are read, if it has one.
    """
    found = {}
    for known in store.job_keys():
        if known.schedule is None:
            continue
        newest = _newest_skip(log, known)
        settled = newest is not None and newest.at < now - SETTLED and newest.tick
        skipped = tick.named_tick(settled).instant if settled else None
        found[known.key, known.shard] = Gaps(known, skipped)
    return found


def _newest_skip(log: Inspector, known: JobKey) -> Skip | None:
    """Return the newest skip of a shard; None also where it is far older than those of the key's other shards."""
    newest = log.skips(HistoryQuery(key=known.key, limit=_SKIPS_READ))
    return next((skip for skip in newest if skip.shard == known.shard), None)


def listed_reasons(reasons: Reasons, *, given_back_by: str | None = None) -> str:
    """Return why nothing was started, as far as skips on record say."""
    found = [f"{reason} on {_list(hosts)}" for reason, hosts in sorted(reasons.items())]
    if given_back_by is not None:
        found.insert(0, f"claimed and given back by {given_back_by}")
    if found:
        return "not started: " + "; ".join(found)
    return (
        "not started, and no skip is on record: no host fired, or its record is still spooled, or its skips have been "
        "pruned"
    )


def _ends(ticks: Iterator[tick.Tick]) -> tuple[tick.Tick, tick.Tick, int]:
    """Return the first and the last one, and how many there are."""
    first = last = next(ticks)
    count = 1
    for each in ticks:
        last = each
        count += 1
    return first, last, count


def _instant(each: tick.Tick) -> float:
    assert each.instant is not None  # noqa: S101 - scheduled ticks are instants
    return each.instant


def _list(hosts: dict[str, None]) -> str:
    names = sorted(hosts)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")  # noqa: PLR2004
