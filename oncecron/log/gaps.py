"""Runs that the log does not have: scheduled ticks without a start, and shards without a start.

The log of a shard is compared with the schedule that it is expected to follow. A tick is missing once a newer one was
started, or when it is missed (`core.missed`). Missing ticks are kept as ranges, so that a year of missing minutes needs
no memory.

A shard is missing of a tick of which another shard was started. A key's log is read newest first. A tick is forgotten
once all its shards were found, so memory does not grow with the log. What is left is read again, as a whole.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import tick
from oncecron.core.clock import is_ahead
from oncecron.core.job_summary import is_living
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.missed import expected_shards, grace_of, is_held_back, paused_since
from oncecron.core.timing import MAX_CLOCK_SKEW, SETTLED
from oncecron.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.log_rows import Execution, Expectation, JobKey, Skip, Traced
    from oncecron.core.missed import Reasons
    from oncecron.stores.api import Inspector

_COMPLETE_REMEMBERED = 4096
"""Complete ticks that are remembered: an older attempt at one of them does not open the tick again."""


class _Range(NamedTuple):
    first: float
    last: float


class Gaps:
    """The scheduled ticks of one shard that have no start."""

    def __init__(self, known: JobKey, expected: Expectation, paused: float | None) -> None:
        """`paused`: since when the key is paused. What was due since then is not missing."""
        self.key, self.shard = known.key, known.shard
        self._expected = expected
        self._paused_since = math.inf if paused is None else paused
        self._since = self._due = self._now = expected.since
        self._coming: Iterator[tick.Tick] = iter(())
        self._next = math.inf
        self._last = -math.inf
        self._ranges: list[_Range] = []
        self._started_later: set[float] = set()
        self._not_started: dict[float, str] = {}
        self._hosts: set[str] = set()

    def expect(self, since: float, now: float) -> None:
        """Expect the ticks that are newer than `since`, and due by `now`."""
        self._now, self._due = now, now - grace_of(self._expected)
        self._since = max(min(self._since, now), since)
        schedule, zone = self._expected.schedule, self._expected.zone
        # This host knows no such zone, or the schedule is none: nothing is expected.
        with contextlib.suppress(ValueError):
            self._coming = tick.next_ticks(schedule, zone, self._since)
            self._step()

    def see(self, traced: Traced) -> None:
        """Read the next execution, in the order of starts."""
        execution, instant = traced.execution, traced.instant
        self._hosts.add(execution.host)
        if instant is None or instant < self._since or is_ahead(instant, self._now):
            return
        if execution.outcome == "not-started":
            self._not_started[instant] = execution.host
            self._pass_by(instant + 1)
            return
        self._not_started.pop(instant, None)
        self._pass_by(instant)
        if self._next == instant:
            self._step()
        elif self._ranges and instant >= self._ranges[0].first:
            self._started_later.add(instant)

    def _step(self) -> None:
        self._last = self._next
        self._next = next((_instant(each) for each in self._coming), math.inf)

    def _pass_by(self, instant: float) -> None:
        """Note the ticks that were due before this instant and have no start."""
        first = self._next
        while self._next < instant:
            self._step()
        if first < instant:
            self._ranges.append(_Range(first, self._last))

    def missing(self, log: Inspector) -> Iterator[tuple[str, str, int, str]]:
        """Yield the missing ticks: the first and the last one, how many, and why, as far as skips on record say."""
        self._pass_by(self._due)
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
        expected = self._expected
        for each in tick.next_ticks(expected.schedule, expected.zone, missing.first - 1):
            if _instant(each) > missing.last:
                return
            yield each

    def _why(self, missing: tick.Tick, reasons: dict[str, Reasons]) -> str | None:
        """Return why nothing ran; None where the tick was started later, or people held it back."""
        instant = _instant(missing)
        of_tick = reasons.get(str(missing.text), {})
        if (
            instant in self._started_later
            or instant >= self._paused_since
            or is_held_back(of_tick, self._hosts)
        ):
            return None
        return listed_reasons(of_tick, given_back_by=self._not_started.get(instant))

    def _reasons(self, log: Inspector) -> dict[str, Reasons]:
        reasons: dict[str, Reasons] = {}
        since = self._ranges[0].first - MAX_CLOCK_SKEW
        for skip in log.skips(HistoryQuery(key=self.key, since=since, limit=None)):
            self._hosts.add(skip.host)
            if skip.shard == self.shard and skip.tick and self._is_missing(skip):
                reasons.setdefault(skip.tick, {}).setdefault(skip.reason, {})[skip.host] = None
        return reasons

    def _is_missing(self, skip: Skip) -> bool:
        instant = tick.instant_of(skip.tick)
        return instant is not None and any(first <= instant <= last for first, last in self._ranges)


def expected_gaps(store: Inspector, since: float, now: float) -> dict[tuple[str, int], Gaps]:
    """Return the shards that are expected to run, by key and shard, of which no tick before `since` is missed."""
    pauses = store.pauses()
    found = {}
    for known, expected in expected_shards(store.job_keys()):
        gaps = Gaps(known, expected, paused_since(known.key, pauses))
        gaps.expect(since, now)
        found[known.key, known.shard] = gaps
    return found


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


class MissingShard(NamedTuple):
    """A shard that was not started."""

    execution: Execution
    """The newest of the tick's other shards."""
    instant: float | None
    shard: int
    reason: str


class _OpenTick:
    """A tick of which not all shards have been found yet."""

    def __init__(self, traced: Traced) -> None:
        self.newest = traced
        self.shards = traced.execution.shards
        self.found: set[int] = set()


def missing_shards(
    store: Inspector, log: Inspector, key: str, *, since: float | None, kept: float, now: float
) -> Iterator[MissingShard]:
    """Yield the shards that were not started, of ticks that began after `since` and are over."""
    query = HistoryQuery(key=key, since=since, limit=None)
    running = {lease.tick for lease in store.leases() if lease.key == key and is_living(lease, now)}
    for found in _incomplete(log.traced(query)):
        execution = found.newest.execution
        of_tick = HistoryQuery(key=key, tick=execution.tick, limit=None)
        started = [each for each in log.history(of_tick) if each.outcome != "not-started"]
        over = max((each.finished_at or each.started_at for each in started), default=now)
        first = min((each.started_at for each in started), default=now)
        # Within a day of the end of the retention, some shards of a tick may be pruned already.
        if execution.tick in running or over > now - SETTLED or first < now - kept + DAY:
            continue
        known = {each.shard for each in started}
        reasons = _reasons_by_shard(log, of_tick)
        for shard in range(found.shards):
            if shard not in known and "paused" not in reasons.get(shard, {}):
                why = listed_reasons(reasons.get(shard, {}))
                yield MissingShard(execution, found.newest.instant, shard, why)


def _incomplete(executions: Iterator[Traced]) -> list[_OpenTick]:
    """Return the ticks of which a shard is missing; `executions` are sorted newest first."""
    opened: dict[str, _OpenTick] = {}
    complete: collections.OrderedDict[str, None] = collections.OrderedDict()
    for traced in executions:
        execution = traced.execution
        if (
            execution.tick is None
            or execution.shards == 1
            or execution.outcome == "not-started"
            or execution.tick in complete
        ):
            continue
        found = opened.setdefault(execution.tick, _OpenTick(traced))
        found.found.add(execution.shard)
        if len(found.found) == found.shards:
            del opened[execution.tick]
            complete[execution.tick] = None
            if len(complete) > _COMPLETE_REMEMBERED:
                complete.popitem(last=False)
    return list(opened.values())


def _reasons_by_shard(log: Inspector, of_tick: HistoryQuery) -> dict[int, Reasons]:
    reasons: dict[int, Reasons] = {}
    for skip in log.skips(of_tick):
        reasons.setdefault(skip.shard, {}).setdefault(skip.reason, {})[skip.host] = None
    return reasons
