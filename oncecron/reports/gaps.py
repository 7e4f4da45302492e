"""Scheduled ticks without a start: the schedule that a part of a key was last claimed with, laid beside its log.

Looked for between the first and the last tick that is recorded, and not before the newest that the schedule does not
know: then it was another one. What is missing is kept as ranges, so that a year of minutes needs no memory.
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

_REFUSALS_LOOKED_AT = 500

Reasons = dict[str, dict[str, None]]
"""Hosts by reason, in the order in which they were met."""


class _Range(NamedTuple):
    first: float
    last: float


class Gaps:
    """The ticks of one part that should be there."""

    example: Execution
    """Any execution of this part."""

    def __init__(self, part: JobKey, refused: float | None) -> None:
        """`refused`: the newest instant of which a refusal is recorded."""
        assert part.schedule is not None  # noqa: S101 - see `schedules`
        self._schedule, self._zone = part.schedule, part.zone
        self._key, self._shard = part.key, part.shard
        self._refused = refused
        self._since = 0.0
        self._coming: Iterator[tick.Tick] | None = None
        self._next = 0.0
        self._last = 0.0
        self._ranges: list[_Range] = []
        self._started_later: set[float] = set()
        self._not_started: dict[float, str] = {}

    def begin(self, since: float) -> None:
        """Look for nothing that is older."""
        self._since = since

    def see(self, traced: Traced) -> None:
        """Take the next execution, in the order of starts."""
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
        else:  # not of this schedule: it was another one until then
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
        """Note what should have come before this instant."""
        first = self._next
        while self._next < instant:
            self._step()
        if first < instant:
            self._ranges.append(_Range(first, self._last))

    def missing(self, log: Inspector) -> Iterator[tuple[str, str, int, str]]:
        """Yield what is missing: first and last tick, how many, and why as far as refusals tell."""
        if self._coming is not None and self._refused is not None:
            self._pass_by(self._refused + 1)
        if not self._ranges:
            return
        told = self._reasons(log)
        for missing in self._ranges:
            found = ((each, self._why(each, told)) for each in self._ticks_of(missing))
            for why, ticks in itertools.groupby(found, key=lambda pair: pair[1]):
                first, last, count = _ends(each for each, _ in ticks)
                if why is not None:
                    yield str(first.text), str(last.text), count, why

    def _ticks_of(self, missing: _Range) -> Iterator[tick.Tick]:
        """Yield them again; one that has its start by now divides two groups, so that it comes too."""
        for each in tick.next_ticks(self._schedule, self._zone, missing.first - 1):
            if _instant(each) > missing.last:
                return
            yield each

    def _why(self, missing: tick.Tick, told: dict[str, Reasons]) -> str | None:
        """Return why nothing ran; None where that is as it should be."""
        instant = _instant(missing)
        reasons = told.get(str(missing.text), {})
        if instant in self._started_later or "paused" in reasons:
            return None
        return listed_reasons(reasons, not_started_by=self._not_started.get(instant))

    def _reasons(self, log: Inspector) -> dict[str, Reasons]:
        told: dict[str, Reasons] = {}
        since = self._ranges[0].first - MAX_CLOCK_SKEW
        for skip in log.skips(HistoryQuery(key=self._key, since=since, limit=None)):
            if skip.shard == self._shard and skip.tick and self._is_missing(skip):
                told.setdefault(skip.tick, {}).setdefault(skip.reason, {})[skip.host] = None
        return told

    def _is_missing(self, skip: Skip) -> bool:
        instant = tick.named_tick(skip.tick or "-").instant
        return instant is not None and any(first <= instant <= last for first, last in self._ranges)


def schedules(store: Inspector, log: Inspector, now: float) -> dict[tuple[str, int], Gaps]:
    """Return what can be looked for, by key and shard. To be asked before the log is read.

    Then whatever was refused has its start in what is read, if it has one.
    """
    found = {}
    for part in store.job_keys():
        if part.schedule is None:
            continue
        newest = _newest_refusal(log, part)
        settled = newest is not None and newest.at < now - SETTLED and newest.tick
        refused = tick.named_tick(settled).instant if settled else None
        found[part.key, part.shard] = Gaps(part, refused)
    return found


def _newest_refusal(log: Inspector, part: JobKey) -> Skip | None:
    """Return the newest refusal of a part: the others say nothing of one that is no more."""
    newest = log.skips(HistoryQuery(key=part.key, limit=_REFUSALS_LOOKED_AT))
    return next((skip for skip in newest if skip.shard == part.shard), None)


def listed_reasons(reasons: Reasons, *, not_started_by: str | None = None) -> str:
    """Return why nothing was started, as far as refusals tell."""
    parts = [f"{reason} on {_list(hosts)}" for reason, hosts in sorted(reasons.items())]
    if not_started_by is not None:
        parts.insert(0, f"not started by {not_started_by}")
    if parts:
        return "no start: " + "; ".join(parts)
    return "no start, and no refusal is recorded: no host fired, or it could not tell, or it is long ago"


def _ends(ticks: Iterator[tick.Tick]) -> tuple[tick.Tick, tick.Tick, int]:
    """Return the first, the last, and how many there are."""
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
