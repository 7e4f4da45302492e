"""Runs that the log does not have: scheduled ticks without a start, and shards without a start.

The log of a shard is compared with the schedule that it is expected to follow. A tick is missing once a newer one was
started, or when it is missed (`core.missed`). Of one shard at a time, the instants of all starts are in memory.

A shard is missing of a tick of which another shard was started, once the tick is over. Of a key with shards, the ticks
are in memory.
"""

from __future__ import annotations

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

    from oncecron.core.log_rows import Execution, Expectation, JobKey, Traced
    from oncecron.core.missed import Reasons
    from oncecron.stores.reader import Reader


class Gaps:
    """The scheduled ticks of one shard that have no start."""

    def __init__(
        self, known: JobKey, expected: Expectation, paused: float | None, since: float, now: float
    ) -> None:
        """`since`: no older tick is missing. `paused`: since when the key is paused, so that nothing is missing."""
        self.key, self.shard = known.key, known.shard
        self._expected = expected
        self._now = now
        self._since = max(min(expected.since, now), since)
        self._before = now - grace_of(expected)
        self._paused = math.inf if paused is None else paused
        self._started: set[float] = set()
        self._given_back: dict[float, str] = {}
        self._hosts: set[str] = set()

    def add(self, traced: Traced) -> None:
        """Note an execution, in any order."""
        execution, instant = traced.execution, traced.instant
        self._hosts.add(execution.host)
        if instant is None or instant < self._since or is_ahead(instant, self._now):
            return
        if execution.outcome == "not-started":
            self._given_back[instant] = execution.host
            self._before = max(self._before, instant + 1)
        else:
            self._started.add(instant)
            self._before = max(self._before, instant)

    def missing(self, log: Reader) -> Iterator[tuple[str, str, int, str]]:
        """Yield the missing ticks: the first and the last one, how many, and why, as far as skips on record say."""
        for why, ticks in itertools.groupby(self._reasoned(log), key=lambda pair: pair[1]):
            if why is not None:
                first, last, count = _ends(each for each, _ in ticks)
                yield str(first.text), str(last.text), count, why

    def _reasoned(self, log: Reader) -> Iterator[tuple[tick.Tick, str | None]]:
        """Yield the ticks with why nothing ran; None where it ran, or people held it back."""
        reasons: dict[str, Reasons] | None = None
        for each in self._ticks():
            instant = each.instant or 0.0
            if instant in self._started or instant >= self._paused:
                yield each, None
                continue
            if reasons is None:
                reasons = self._reasons(log, instant)
            of_tick = reasons.get(str(each.text), {})
            given_back = self._given_back.get(instant)
            held_back = is_held_back(of_tick, self._hosts)
            yield each, None if held_back else reason_text(of_tick, given_back_by=given_back)

    def _ticks(self) -> Iterator[tick.Tick]:
        """Yield what was due; nothing where this host knows no such zone, or the schedule is none."""
        with contextlib.suppress(ValueError):
            due = tick.next_ticks(self._expected.schedule, self._expected.zone, self._since)
            yield from itertools.takewhile(lambda each: (each.instant or 0.0) < self._before, due)

    def _reasons(self, log: Reader, first: float) -> dict[str, Reasons]:
        reasons: dict[str, Reasons] = {}
        for skip in log.skips(HistoryQuery(key=self.key, since=first - MAX_CLOCK_SKEW, limit=None)):
            self._hosts.add(skip.host)
            is_missing = tick.instant_of(skip.tick) not in self._started
            if skip.shard == self.shard and skip.tick and is_missing:
                reasons.setdefault(skip.tick, {}).setdefault(skip.reason, {})[skip.host] = None
        return reasons


def expected_gaps(store: Reader, since: float, now: float) -> dict[tuple[str, int], Gaps]:
    """Return the shards that are expected to run, by key and shard, of which no tick before `since` is missed."""
    pauses = store.pauses()
    return {
        (known.key, known.shard): Gaps(known, expected, paused_since(known.key, pauses), since, now)
        for known, expected in expected_shards(store.job_keys())
    }


def reason_text(reasons: Reasons, *, given_back_by: str | None = None) -> str:
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
    first = last = next(ticks)
    count = 1
    for each in ticks:
        last = each
        count += 1
    return first, last, count


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


class ShardsLeft:
    """The ticks of a key, each with the shards that have no start, as bits."""

    def __init__(self) -> None:
        self._ticks: dict[str, int] = {}

    def add(self, execution: Execution) -> None:
        """Note an execution, in any order."""
        if execution.tick is not None and execution.outcome != "not-started":
            every = (1 << execution.shards) - 1
            left = self._ticks.get(execution.tick, every)
            self._ticks[execution.tick] = left & ~(1 << execution.shard)

    def ticks(self) -> Iterator[str]:
        """Yield the ticks of which a shard has no start."""
        return (text for text, left in self._ticks.items() if left)


def missing_shards(
    store: Reader, log: Reader, key: str, left: ShardsLeft, *, kept: float, now: float
) -> Iterator[MissingShard]:
    """Yield the shards that were not started, of ticks that are over."""
    running = {lease.tick for lease in store.leases() if lease.key == key and is_living(lease, now)}
    for text in left.ticks():
        of_tick = HistoryQuery(key=key, tick=text, limit=None)
        found = [each for each in log.traced(of_tick) if each.execution.outcome != "not-started"]
        started = [each.execution for each in found]
        over = max((each.finished_at or each.started_at for each in started), default=now)
        first = min((each.started_at for each in started), default=now)
        # Within a day of the end of the retention, some shards of a tick may be pruned already.
        if text in running or over > now - SETTLED or first < now - kept + DAY:
            continue
        known = {each.shard for each in started}
        reasons = _reasons_by_shard(log, of_tick)
        for shard in range(started[0].shards):
            if shard not in known and "paused" not in reasons.get(shard, {}):
                why = reason_text(reasons.get(shard, {}))
                yield MissingShard(started[0], found[0].instant, shard, why)


def _reasons_by_shard(log: Reader, of_tick: HistoryQuery) -> dict[int, Reasons]:
    reasons: dict[int, Reasons] = {}
    for skip in log.skips(of_tick):
        reasons.setdefault(skip.shard, {}).setdefault(skip.reason, {})[skip.host] = None
    return reasons
