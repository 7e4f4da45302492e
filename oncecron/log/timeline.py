"""What became of every tick in a span of time: of each key, and of each host of a key (`log.grid`).

The judgement is that of the other reports. Of several attempts of a tick the last counts, of several shards the worst.
A tick is missed as `log.missed` and `audit` say: it was due by the schedule that its key is expected to follow, nobody
started it, and no people held it back.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.log_rows import EndedRuns, is_success
from oncecron.core.making_up import HELD_BACK
from oncecron.core.model import Retention
from oncecron.core.tick import instant_of, minute_tick
from oncecron.core.timing import MAX_CLOCK_SKEW, MISSED_AFTER, SETTLED
from oncecron.log.gaps import made_up_from
from oncecron.log.grid import Run, Ticks, worst
from oncecron.log.job_summary import DOUBTFUL, by_key, is_living
from oncecron.log.jobs import as_known
from oncecron.log.missed import (
    Unstarted,
    expected_shards,
    paused_time,
    reasons_by,
    scheduled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import (
        Execution,
        JobKey,
        LeaseView,
        Skip,
        SkipReason,
        Traced,
    )
    from oncecron.log.sources import Sources

    Which = tuple[str | None, float | None]
    """A tick by its instant. One without has its name, and a firing without a tick its owner."""
    Ran = dict[Which, dict[int, Execution]]
    """The last attempt of each shard, by tick."""
    NotStarted = Mapping[int, tuple[Unstarted, Sequence[float]]]
    """The ticks of each shard that were due and that nobody has started."""

_USUAL = Retention()


class Span(NamedTuple):
    """Which time is looked at, in seconds since the epoch."""

    since: float
    until: float
    kept: Retention = _USUAL
    """Nothing older is missing, as it may have been removed."""


class KeyTicks(NamedTuple):
    """What became of the ticks of a key."""

    ticks: list[Ticks]
    hosts: dict[str, list[Ticks]]
    """The same for each host that fires the key; empty unless they were wanted."""


def last_runs(sources: Sources, limit: int, keys: Collection[str] = ()) -> dict[str, list[Run]]:
    """Return the newest executions of every key, or of `keys`, the oldest first; one question for all of them."""
    leases = by_key(sources.leases)
    found: dict[str, list[Run]] = {}
    for each in sources.log.newest(limit, keys or None):
        word = _word(as_known(each, leases.get(each.key, ()), sources.now))
        run = Run(each.tick, word, each.started_at, each.duration, each.host, each.execution_id)
        found.setdefault(each.key, []).insert(0, run)
    return found


def ticks_of(
    sources: Sources,
    span: Span,
    keys: Collection[str] = (),
    *,
    internal: bool = True,
    hosts: bool = False,
) -> dict[str, KeyTicks]:
    """Return what became of the ticks in a span, by key; each store is asked a few questions, however many keys."""
    leases = by_key(sources.leases)  # before what they say is running
    shards = sources.shards(keys, internal=internal)
    pasts = {
        key: _Past(known, leases.get(key, ()), sources.now, span)
        for key, known in sorted(shards.items())
    }
    few = keys if 0 < len(keys) <= _FEW_KEYS else None
    for row in sources.log.runs(span.since - MAX_CLOCK_SKEW, few):
        key = row.key if isinstance(row, EndedRuns) else row.execution.key
        if key in pasts:
            pasts[key].add(row)
    due_by = functools.cache(scheduled)  # many keys have the same schedule
    due = {
        key: past.not_started(due_by, sources.log.keeps, paused_time(key, sources.pauses)[0])
        for key, past in pasts.items()
    }
    skips = _skips(sources, due, span, hosts=hosts)
    wanting = {key for key, shards in due.items() if any(ticks for _, ticks in shards.values())}
    made_up = made_up_from(sources, wanting)
    return {
        key: _Judgement(
            sources, key, past, due[key], skips.get(key, ()), span, made_up.get(key, math.inf)
        ).ticks(hosts=hosts)
        for key, past in pasts.items()
    }


_FEW_KEYS = 20
"""Of more keys, a store filters no rows: that takes longer than to read some in vain."""


class _Past:
    def __init__(
        self, shards: Sequence[JobKey], leases: Sequence[LeaseView], now: float, span: Span
    ) -> None:
        self.shards = shards
        self._leases = leases
        self._now = now
        self._span = span
        living = [each for each in leases if is_living(each)]
        self._living = {(each.shard, each.fencing_token) for each in living}
        self._kept = {instant_of(each.tick): each for each in living}
        """The leases that have not ended, by the tick: where its last attempt has ended, another one follows."""
        self.ended: list[EndedRuns] = []
        """Ticks that were started once; those that are also in `ticks` do not count."""
        self.ticks: Ran = {}
        self.of_hosts: dict[str, Ran] = {}
        """The same of each host, by its own attempts."""
        self._given_back: dict[int, set[float]] = {}
        self._read: Counter[int] = Counter()
        """How many executions of each shard there are."""

    def add(self, row: Traced | EndedRuns) -> None:
        """Note what the store answers, in any order."""
        since, until = self._span.since, self._span.until
        if isinstance(row, EndedRuns):
            self._read[0] += len(row.times)  # a store packs no runs of keys with shards
            first, last = (bisect.bisect_left(row.times, each) for each in (since, until))
            self.ended.append(row._replace(times=row.times[first:last]))
            return
        run, instant = row.execution, row.instant
        self._read[run.shard] += 1
        at = run.started_at if instant is None else instant
        if since <= at < until and run.outcome == "not-started":
            self._given_back.setdefault(run.shard, set()).add(at)
        elif since <= at < until:
            self._add(run, None if instant is not None else run.tick or run.owner, at)

    def _add(self, run: Execution, name: str | None, at: float) -> None:
        run = as_known(run, self._leases, self._now)
        for ticks in (self.ticks, self.of_hosts.setdefault(run.host, {})):
            of_shards = ticks.setdefault((name, None if name else at), {})
            if run.shard not in of_shards or of_shards[run.shard].attempt <= run.attempt:
                of_shards[run.shard] = run

    def word(self, run: Execution) -> str:
        """Return the outcome of an execution; a lease that is kept for the next attempt says that the tick runs."""
        is_kept = (run.shard, run.fencing_token) in self._living and run.outcome not in DOUBTFUL
        return "running" if is_kept else _word(run)

    def hosts(self) -> set[str]:
        return {*self.of_hosts} | {each.host for each in self.ended if each.times}

    def started(self, shard: int) -> set[float]:
        found: set[float] = {
            at for (_, at), runs in self.ticks.items() if at is not None and shard in runs
        }
        return found.union(*(each.times for each in self.ended if each.has_tick))

    def not_started(
        self, due_by: Callable[..., Sequence[int]], keeps: int | None, paused: float | None
    ) -> NotStarted:
        """Return the ticks that were due and that nobody has started.

        `keeps`: how many executions of a shard the store keeps. Before the oldest of so many, nothing is missing.
        """
        span, now, found = self._span, self._now, {}
        # `scheduled` has what is later than `since`: a tick at the very beginning of the span is in it.
        since, until = max(span.since - 1, now - span.kept.executions), min(now, span.until)
        for known, expected in expected_shards(self.shards):
            shard, started = known.shard, self.started(known.shard)
            due = due_by(expected.schedule, expected.zone, since, until)
            due = due[bisect.bisect_right(due, min(expected.since, until)) :]
            if keeps is not None and self._read[shard] >= keeps:
                due = due[bisect.bisect_left(due, min(started, default=math.inf)) :]
            given_back = self._given_back.get(shard, ())
            judge = Unstarted(expected, started, given_back, paused, now)
            found[shard] = judge, [at for at in due if at not in started]
        return found

    def outcome(self, of_shards: Mapping[int, Execution]) -> str:
        words = {self.word(each) for each in of_shards.values()}
        if "running" in words:
            return "running"
        shards = max(each.shards for each in of_shards.values())
        ended = max(each.finished_at or each.started_at for each in of_shards.values())
        if len(of_shards) < shards and ended < self._now - SETTLED:
            words.add("incomplete")
        return worst(words)

    def once(self, host: str | None = None) -> Iterator[Ticks]:
        """Yield the ticks that were started once, or only those that a host has started."""
        again = self.ticks if host is None else self.of_hosts.get(host, {})
        for each in self.ended:
            if not each.times or host not in (None, each.host):
                continue
            times: Sequence[float] = each.times
            if each.has_tick and (again or self._kept):
                times = [at for at in times if (None, at) not in again and at not in self._kept]
                for at in {*each.times}.intersection(self._kept).difference(times):
                    if (None, at) not in again:
                        yield Ticks("running", [at], each.host)
            yield Ticks(each.outcome, times, each.host, None, each.has_tick)


def _skips(
    sources: Sources, due: Mapping[str, NotStarted], span: Span, *, hosts: bool
) -> Mapping[str, Sequence[Skip | SkipReason]]:
    if hosts:
        since = span.since - MAX_CLOCK_SKEW
        return {key: [*sources.log.skips_since(since, key)] for key in due}
    kept = sources.now - span.kept.skips - MAX_CLOCK_SKEW
    wanted = {}
    for key, of_shards in due.items():
        ats = sorted({at for _, ticks in of_shards.values() for at in ticks if at >= kept})
        if ats:  # with the tick before, whose hosts may be those that say nothing of the first one
            wanted[key] = [*range(int(ats[0] - MAX_CLOCK_SKEW), int(ats[0]), 60), *ats]
    first = {key: minute_tick(ats[0]) for key, ats in wanted.items()}
    return by_key(sources.log.reasons(first, wanted) if first else ())


class _Judgement:
    def __init__(
        self,
        sources: Sources,
        key: str,
        past: _Past,
        not_started: NotStarted,
        skips: Sequence[Skip | SkipReason],
        span: Span,
        made_up_from: float,
    ) -> None:
        self._sources = sources
        self._key = key
        self._past = past
        self._not_started = not_started
        self._span = span
        self._made_up_from = made_up_from
        self._skipping = {skip.host for skip in skips}
        by_tick = reasons_by(lambda skip: skip.tick, skips)
        self._reasons = {
            (text if at is None else None, at): reasons
            for text, reasons in by_tick.items()
            for at in [instant_of(text)]
            if text is not None and (at is None or span.since <= at < span.until)
        }

    def ticks(self, *, hosts: bool) -> KeyTicks:
        past = self._past
        words = {which: past.outcome(runs) for which, runs in past.ticks.items()}
        for at, word in self._without_start():
            words[None, at] = worst({word, words.get((None, at), word)})
        found = [*past.once(), *_by_word(words, past.ticks)]
        if not hosts:
            return KeyTicks(found, {})
        known = {row.host for row in self._sources.key_hosts if row.key == self._key}
        names = sorted(known | past.hosts() | self._skipping)
        times: dict[Which, float] = {
            (each.name, None if each.name else at): at
            for each in found
            if each.has_tick
            for at in each.times
        }
        return KeyTicks(found, {host: [*self._of_host(host, times)] for host in names})

    def _without_start(self) -> Iterator[tuple[float, str]]:
        hosts = self._past.hosts() | self._skipping
        for judge, ticks in self._not_started.values():
            for at in ticks:
                word = judge.word(at, self._reasons.get((None, at), {}), hosts)
                if word == "missed" and at >= self._made_up_from:
                    word = "overdue"
                divided = word == "missed" and (None, at) in self._past.ticks
                yield at, "incomplete" if divided else word

    def _of_host(self, host: str, times: Mapping[Which, float]) -> Iterator[Ticks]:
        past = self._past
        again = past.of_hosts.get(host, {})
        once = [*past.once(host)]
        yield from once
        words = {which: worst(map(past.word, runs.values())) for which, runs in again.items()}
        yield from _by_word(words, again)
        ran = {*words, *((None, at) for each in once for at in each.times)}
        did: dict[Which, str] = {}
        for which, reasons in self._reasons.items():
            found = [reason for reason, hosts in reasons.items() if host in hosts]
            if found and which not in ran:
                did[which] = next((each for each in found if each in HELD_BACK), "skipped")
        # Each host has fired by then if it ever does, and its skips are still kept.
        now, kept = self._sources.now, self._span.kept.skips
        settled = {which for which, at in times.items() if kept > now - at > MISSED_AFTER}
        silent = dict.fromkeys(settled - ran - did.keys(), "silent")
        yield from _by_word(did | silent, {}, times)


def _by_word(
    words: Mapping[Which, str], ran: Ran, times: Mapping[Which, float] = MappingProxyType({})
) -> Iterator[Ticks]:
    """Yield ticks by what became of them. `ran`: who has started them; `times`: of ticks that others have started."""
    found: dict[tuple[str, str | None, str | None, bool], list[float]] = {}
    for which, word in words.items():
        runs = [*ran.get(which, {}).values()]
        run = next((each for each in runs if _word(each) == word), runs[0] if runs else None)
        name, at = which
        if at is None and which in times:
            at = times[which]
        elif at is None and runs:
            at = min(each.started_at for each in runs)
        if at is None:
            continue  # a named tick that nobody has started
        has_tick = run is None or run.tick is not None
        kind = word, run and run.host, name if has_tick else None, has_tick
        found.setdefault(kind, []).append(at)
    for (word, host, name, has_tick), ats in found.items():
        yield Ticks(word, sorted(ats), host, name, has_tick)


def _word(run: Execution) -> str:
    if run.outcome == "unclaimed":
        return "succeeded" if is_success(run) else "failed"
    return run.outcome
