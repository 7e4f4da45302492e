"""Runs that the log does not have: scheduled ticks without a start, and shards without a start.

The log of a shard is compared with the schedule that it is expected to follow. A tick is missing once a newer one was
started, or when it is missed (`log.missed`). Of one shard at a time, the instants of all starts are in memory. Why
ticks were not started is read of many shards at once.

A shard is missing of a tick of which another shard was started, once the tick is over. Of a key with shards, the ticks
are in memory.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING

from oncecron.core import tick
from oncecron.core.clock import is_ahead
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.making_up import HELD_BACK, withheld
from oncecron.core.text import listed, part_of
from oncecron.core.timing import MAX_CLOCK_SKEW, SETTLED
from oncecron.core.units import DAY
from oncecron.log.job_summary import FIRST_LOOK, by_key, is_living
from oncecron.log.missed import (
    Known,
    Unstarted,
    dues,
    expected_shards,
    not_missed_from,
    paused_time,
    reasons_by,
    scheduled,
)
from oncecron.log.protocol import Breach

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from oncecron.core.log_rows import Execution, Expectation, JobKey, SkipReason, Traced
    from oncecron.log.missed import Reasons
    from oncecron.log.sources import Sources
    from oncecron.stores.reader import Reader

TICKS_AT_ONCE = 5000
"""Of so many, a store is asked for the skips of each; of more, for all since the first."""


class Gaps:
    """The scheduled ticks of one shard that have no start."""

    def __init__(
        self,
        known: JobKey,
        expected: Expectation,
        paused: float | None,
        span: tuple[float, float],
        now: float,
    ) -> None:
        """`span`: no tick outside is missing. `paused`: since when the key is paused, so that nothing is missing."""
        self.key, self.shard = known.key, known.shard
        self._expected = expected
        self._now = now
        self._since = max(min(expected.since, now), span[0])
        self._until = span[1]
        self._paused = paused
        self._started: set[float] = set()
        self._given_back: dict[float, str] = {}
        self._hosts: set[str] = set()
        self._in_a_row: list[list[int]] = []
        self._reasons: dict[int, Reasons | None] = {}
        self._made_up_from = math.inf

    def add(self, traced: Traced) -> None:
        """Note an execution, in any order."""
        execution, instant = traced.execution, traced.instant
        self._hosts.add(execution.host)
        if instant is None or instant < self._since or is_ahead(instant, self._now):
            return
        if execution.outcome == "not-started":
            self._given_back[instant] = execution.host
        else:
            self._started.add(instant)

    def end(self) -> None:
        """Find the ticks without a start, after the last execution; the starts are forgotten."""
        expected, started, given_back = self._expected, self._started, self._given_back
        before = Unstarted(expected, started, given_back, self._paused, self._now).before
        until = math.ceil(min(before, self._until)) - 1  # the last whole second before
        due = scheduled(expected.schedule, expected.zone, self._since, until)
        by_start = itertools.groupby(due, key=self._started.__contains__)
        self._in_a_row = [list(ticks) for is_started, ticks in by_start if not is_started]
        self._reasons = dict.fromkeys(itertools.chain(*self._in_a_row))
        self._started.clear()

    @property
    def ticks(self) -> Collection[int]:
        """Return the ticks without a start, rising, once they are found."""
        return self._reasons.keys()

    def note(self, skip: SkipReason) -> None:
        """Note why a host has not started a tick."""
        at = _instant_of(skip.tick)
        if skip.shard == self.shard and at in self._reasons:
            reasons = self._reasons[int(at)] = self._reasons[int(at)] or {}
            reasons.setdefault(skip.reason, {})[skip.host] = None

    def note_made_up(self, first: float) -> None:
        """Note from which tick on those without a start are not missed yet."""
        self._made_up_from = first

    def missing(self, log: Reader) -> Iterator[Breach]:
        """Yield the missing ticks, those in a row as one finding, with why, as far as skips on record say."""
        skipping = functools.cache(lambda: self._skipping(log))
        for row in self._in_a_row:
            for why, ticks in itertools.groupby(row, key=lambda at: self._why(at, skipping)):
                if why is not None:
                    texts = [tick.minute_tick(at).text for at in ticks]
                    last = texts[-1] if texts[1:] else None
                    yield _no_run(self.key, self.shard, texts[0], why, last=last, count=len(texts))

    def _why(self, at: int, skipping: Callable[[], set[str]]) -> str | None:
        reasons = self._reasons[at] or {}
        # Of the hosts that fire the key, those that have started it are known. The others are read where they matter.
        why = withheld(reasons, self._hosts)
        if (withheld(reasons, skipping()) if why == "drained" else why) in HELD_BACK:
            return None
        if why is None and at >= self._made_up_from:
            return None
        return reason_text(reasons, given_back_by=self._given_back.get(at))

    def _skipping(self, log: Reader) -> set[str]:
        since = self._in_a_row[0][0] - MAX_CLOCK_SKEW
        return {skip.host for skip in log.skips_since(since, self.key)}


_instant_of = functools.lru_cache(1000)(tick.instant_of)


def _no_run(
    key: str,
    shard: int,
    text: str | None,
    reason: str,
    *,
    last: str | None = None,
    count: int = 1,
    other: int | None = None,
) -> Breach:
    return Breach("no-run", key, shard, text, last, count, None, None, other, reason)


def read_reasons(found: Iterable[Gaps], sources: Sources) -> None:
    """Read why the ticks of some shards were not started, and what is made up: one question each for all of them."""
    of_keys = by_key(each for each in found if each.ticks)
    wanted = {
        key: sorted({*itertools.chain(*(each.ticks for each in gaps))})
        for key, gaps in of_keys.items()
    }
    are_few = sum(map(len, wanted.values())) <= TICKS_AT_ONCE
    first = {key: tick.minute_tick(ats[0]) for key, ats in wanted.items()}
    for skip in sources.log.reasons(first, wanted if are_few else None) if first else ():
        for each in of_keys[skip.key]:
            each.note(skip)
    for key, at in made_up_from(sources, of_keys).items():
        for each in of_keys[key]:
            each.note_made_up(at)


def expected_gaps(
    sources: Sources, since: float, until: float = math.inf
) -> dict[tuple[str, int], Gaps]:
    """Return the shards that are expected to run, by key and shard: which ticks from `since` to `until` they missed."""
    pauses, now = sources.pauses, sources.now
    return {
        (known.key, known.shard): Gaps(
            known, expected, paused_time(known.key, pauses)[0], (since, until), now
        )
        for known, expected in expected_shards(sources.job_keys)
    }


def made_up_from(sources: Sources, keys: Collection[str]) -> dict[str, float]:
    """Return from which tick on those without a start are not missed yet (`not_missed_from`), by key.

    Of keys with --catch-up alone. The hosts that fire keys are read unless `keys` is empty; the rest where one has it.
    """
    rows = sources.key_hosts if keys else ()
    some = {row.key for row in rows if row.catch_up is not None and row.key in keys}
    if not some:
        return {}
    newest = by_key(sources.log.newest(FIRST_LOOK, some))
    known = {
        key: Known(of_key, newest.get(key, ()), *paused_time(key, sources.pauses))
        for key, of_key in sources.shards(some, internal=True).items()
    }
    due = dues(known, sources.log.reasons, sources.now, rows=lambda: sources.key_hosts)
    return {key: not_missed_from(each) for key, each in due.items()}


def reason_text(reasons: Reasons, *, given_back_by: str | None = None) -> str:
    """Return why nothing was started, as far as skips on record say."""
    found = [f"{reason} on {listed(sorted(hosts))}" for reason, hosts in sorted(reasons.items())]
    if given_back_by is not None:
        found.insert(0, f"claimed and given back by {given_back_by}")
    if found:
        return "not started: " + "; ".join(found)
    return (
        "not started, and no skip is on record: no host fired, or its record is still spooled, or its skips have been "
        "pruned"
    )


ShardsLeft = dict[str, int]
"""The ticks of a key, each with the shards that have no start, as bits."""


def note_shard(left: ShardsLeft, execution: Execution) -> None:
    """Note an execution of a key with shards, in any order."""
    if execution.tick is not None and execution.outcome != "not-started":
        every = (1 << execution.shards) - 1
        left[execution.tick] = left.get(execution.tick, every) & ~(1 << execution.shard)


def missing_shards(
    store: Reader, log: Reader, key: str, left: ShardsLeft, *, kept: float, now: float
) -> Iterator[Breach]:
    """Yield the shards that were not started, of ticks that are over."""
    running = {lease.tick for lease in store.leases() if lease.key == key and is_living(lease)}
    for text in (text for text, missing in left.items() if missing):
        of_tick = HistoryQuery(key=key, tick=text, limit=None)
        found = [each for each in log.traced(of_tick) if each.execution.outcome != "not-started"]
        started = [each.execution for each in found]
        over = max((each.finished_at or each.started_at for each in started), default=now)
        first = min((each.started_at for each in started), default=now)
        # Within a day of the end of the retention, some shards of a tick may be pruned already.
        if text in running or over > now - SETTLED or first < now - kept + DAY:
            continue
        known = {each.shard for each in started}
        reasons = reasons_by(lambda skip: skip.shard, log.skips(of_tick))
        newest = started[0]
        for shard in range(newest.shards):
            if shard not in known and "paused" not in reasons.get(shard, {}):
                why = f"shard {part_of(shard, newest.shards)} {reason_text(reasons.get(shard, {}))}"
                yield _no_run(key, shard, text, why, other=newest.execution_id)
