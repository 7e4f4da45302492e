"""What became of every tick in a span of time: of each key, and of each host of a key (`core.grid`).

The judgement is that of the other reports. Of several attempts of a tick the last counts, of several shards the worst.
A tick is missed as `core.missed` and `audit` say: it was due by the schedule that its key is expected to follow, nobody
started it, and no people held it back.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import tick
from oncecron.core.clock import believed, is_ahead
from oncecron.core.grid import Grid, Run, Ticks, gather, worst
from oncecron.core.job_summary import is_living
from oncecron.core.log_rows import is_internal, is_success
from oncecron.core.missed import expected_shards, grace_of, is_held_back, paused_since
from oncecron.core.timing import MAX_CLOCK_SKEW, MISSED_AFTER, SETTLED
from oncecron.log.jobs import as_known

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import Execution, Expectation, JobKey, LeaseView, SkipReason, Traced
    from oncecron.core.missed import Reasons
    from oncecron.log.jobs import Sources

Which = tuple[str | None, float]
"""A tick by its name and its time: None for an instant, whose time says all. A firing without a tick has its owner."""


class Span(NamedTuple):
    """Which time is looked at, in seconds since the epoch."""

    since: float
    until: float
    skips_since: float = -math.inf
    """No skip before that is on record any more."""
    missed_after: float = MISSED_AFTER


class KeyTicks(NamedTuple):
    """What became of the ticks of a key."""

    ticks: list[Ticks]
    hosts: dict[str, list[Ticks]]
    """The same for each host that fires the key; empty unless they were wanted."""


def timeline(
    sources: Sources,
    starts: Sequence[float],
    until: float,
    keys: Collection[str] = (),
    *,
    internal: bool = True,
) -> Grid:
    """Return a line for each key by name, or only for `keys`. For `internal` see `jobs`."""
    found = ticks_of(sources, Span(starts[0], until), keys, internal=internal)
    lines = (gather(key, each.ticks, starts, until) for key, each in found.items())
    return Grid(tuple(starts), until, tuple(lines))


def hosts_timeline(sources: Sources, starts: Sequence[float], until: float, key: str) -> Grid:
    """Return a line for each host that fires a key, by name."""
    found = ticks_of(sources, Span(starts[0], until), [key], hosts=True)
    lines = [
        gather(host, each, starts, until)
        for host, each in sorted(found[key].hosts.items() if key in found else ())
    ]
    return Grid(tuple(starts), until, tuple(lines), key)


def last_runs(sources: Sources, limit: int, keys: Collection[str] = ()) -> dict[str, list[Run]]:
    """Return the newest executions of every key, or of `keys`, the oldest first; one question for all of them."""
    leases = _by_key(sources.leases)
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
    shards: dict[str, list[JobKey]] = {}
    for shard in sources.job_keys:
        if shard.key in keys if keys else internal or not is_internal(shard.key):
            shards.setdefault(shard.key, []).append(shard)
    leases = _by_key(sources.leases)
    past = {
        key: _Past(known, leases.get(key, ()), sources.now, span)
        for key, known in sorted(shards.items())
    }
    for row in sources.log.timeline(span.since - MAX_CLOCK_SKEW, keys or None):
        if row.execution.key in past:
            past[row.execution.key].add(row)
    return _judged(sources, past, span, hosts=hosts)


class _Past:
    """What was started of the ticks of a key."""

    def __init__(
        self, shards: Sequence[JobKey], leases: Sequence[LeaseView], now: float, span: Span
    ) -> None:
        self.shards = shards
        self._leases = leases
        self._now = now
        self._span = span
        self._living = {(each.shard, each.fencing_token) for each in leases if is_living(each, now)}
        self.ticks: dict[Which, dict[int, Execution]] = {}
        """The last attempt of each shard, by tick."""
        self.of_hosts: dict[str, dict[Which, dict[int, Execution]]] = {}
        """The same of each host, by its own attempts."""
        self.given_back: dict[int, set[float]] = {}

    def add(self, row: Traced) -> None:
        """Note an execution, in any order."""
        run, instant = row.execution, row.instant
        at = run.started_at if instant is None else instant
        if not self._span.since <= at < self._span.until:
            return
        if run.outcome == "not-started":
            self.given_back.setdefault(run.shard, set()).add(at)
            return
        which = (None if instant is not None else run.tick or run.owner, at)
        if instant is None:  # all shards and attempts have one time
            which = next((each for each in self.ticks if each[0] == which[0]), which)
        run = as_known(run, self._leases, self._now)
        for ticks in (self.ticks, self.of_hosts.setdefault(run.host, {})):
            of_shards = ticks.setdefault(which, {})
            if run.shard not in of_shards or of_shards[run.shard].attempt <= run.attempt:
                of_shards[run.shard] = run

    def word(self, run: Execution) -> str:
        """Return the outcome of an execution; a lease that is kept for the next attempt says that the tick runs."""
        return "running" if (run.shard, run.fencing_token) in self._living else _word(run)

    def outcome(self, of_shards: Mapping[int, Execution], over_before: float) -> str:
        """Return the outcome of a tick that was started."""
        words = {self.word(each) for each in of_shards.values()}
        if "running" in words:
            return "running"
        shards = max(each.shards for each in of_shards.values())
        ended = max(each.finished_at or each.started_at for each in of_shards.values())
        if len(of_shards) < shards and ended < over_before:
            words.add("incomplete")
        return worst(words)


def _judged(
    sources: Sources, past: Mapping[str, _Past], span: Span, *, hosts: bool
) -> dict[str, KeyTicks]:
    """Return the ticks of each key with what became of them, also of those that nobody started."""
    due = {key: _not_started(each, span, sources.now) for key, each in past.items()}
    first = {
        key: min((at for ats in each.values() for at in ats), default=math.inf)
        for key, each in due.items()
    }
    if hosts:
        first = dict.fromkeys(past, span.since)
    asked = {key: tick.minute_tick(at) for key, at in first.items() if math.isfinite(at)}
    reasons: dict[str, list[SkipReason]] = {}
    for skip in sources.log.reasons(asked) if asked else ():
        reasons.setdefault(skip.key, []).append(skip)
    return {
        key: _of_key(sources, key, each, due[key], reasons.get(key, ()), span, hosts=hosts)
        for key, each in past.items()
    }


def _not_started(past: _Past, span: Span, now: float) -> dict[int, set[float]]:
    """Return by shard the ticks that were due and that nobody has started."""
    found = {}
    for shard, expected in expected_shards(past.shards):
        started = {at for (_, at), runs in past.ticks.items() if shard.shard in runs}
        due = _due(expected, max(min(expected.since, now), span.since - 1), min(now, span.until))
        found[shard.shard] = {at for at in due if at not in started}
    return found


def _due(expected: Expectation, since: float, until: float) -> list[float]:
    """Return the ticks after a time; none where this host knows no such zone, or the schedule is none."""
    found = []
    try:
        for each in tick.next_ticks(expected.schedule, expected.zone, since):
            if (each.instant or 0.0) > until:
                break
            found.append(each.instant or 0.0)
    except ValueError:
        return []
    return found


def _of_key(
    sources: Sources,
    key: str,
    past: _Past,
    not_started: Mapping[int, Collection[float]],
    skips: Sequence[SkipReason],
    span: Span,
    *,
    hosts: bool,
) -> KeyTicks:
    reasons: dict[float, Reasons] = {}
    for skip in skips:
        instant = tick.instant_of(skip.tick)
        if instant is not None:
            reasons.setdefault(instant, {}).setdefault(skip.reason, {})[skip.host] = None
    words = {which: past.outcome(runs, sources.now - SETTLED) for which, runs in past.ticks.items()}
    for at, word in _without_start(sources, key, past, not_started, reasons, skips, span):
        words[None, at] = worst({word, words.get((None, at), word)})
    found = KeyTicks(_batches(past, words), {})
    if hosts:
        found.hosts.update(_of_hosts(sources, key, past, words, reasons, span))
    return found


def _without_start(
    sources: Sources,
    key: str,
    past: _Past,
    not_started: Mapping[int, Collection[float]],
    reasons: Mapping[float, Reasons],
    skips: Sequence[SkipReason],
    span: Span,
) -> Iterator[tuple[float, str]]:
    """Yield the ticks that nobody has started, or of which a shard was not started, with what became of them."""
    now = sources.now
    paused = paused_since(key, sources.pauses)
    paused = math.inf if paused is None else believed(paused, now)
    known_hosts = {*past.of_hosts} | {skip.host for skip in skips}
    for shard, expected in expected_shards(past.shards):
        started = (
            at for (name, at), runs in past.ticks.items() if shard.shard in runs and name is None
        )
        late_before = max((at for at in started if not is_ahead(at, now)), default=-math.inf)
        late_before = max(late_before, now - grace_of(expected, span.missed_after))
        for at in not_started.get(shard.shard, ()):
            of_tick = reasons.get(at, {})
            if at >= paused or "paused" in of_tick:
                yield at, "paused"
            elif is_held_back(of_tick, known_hosts):
                yield at, "drained"
            elif "held" in of_tick:
                yield at, "overrun"
            elif at >= late_before:
                yield at, "overdue"
            else:
                yield at, "incomplete" if (None, at) in past.ticks else "missed"


def _of_hosts(
    sources: Sources,
    key: str,
    past: _Past,
    words: Mapping[Which, str],
    reasons: Mapping[float, Reasons],
    span: Span,
) -> Iterator[tuple[str, list[Ticks]]]:
    """Yield the hosts that fire a key with what each did at each tick: it ran it, skipped it, or did not fire."""
    skipped: dict[str, dict[float, str]] = {}
    for at, of_tick in reasons.items():
        for reason, of_hosts in of_tick.items():
            word = reason if reason in ("paused", "drained") else "skipped"
            for host in of_hosts:
                skipped.setdefault(host, {})[at] = word
    fires = {row.host for row in sources.store.key_hosts() if row.key == key}
    settled = sources.now - span.missed_after
    ticks = {
        at
        for name, at in words
        if name is None and max(span.since, span.skips_since) <= at < settled
    }
    for host in sorted({*past.of_hosts, *skipped} | fires):
        ran = past.of_hosts.get(host, {})
        found: dict[Which, str] = {(None, at): "silent" for at in ticks}
        found |= {
            (None, at): word for at, word in skipped.get(host, {}).items() if at >= span.since
        }
        found |= {which: worst(map(past.word, runs.values())) for which, runs in ran.items()}
        yield host, _batches(past, found, host)


def _batches(past: _Past, words: Mapping[Which, str], host: str | None = None) -> list[Ticks]:
    """Return ticks by outcome and host."""
    found: dict[tuple[str, str | None, str | None, bool], list[float]] = {}
    for (name, at), word in words.items():
        runs = past.ticks.get((name, at))
        ran = (
            next((each for each in runs.values() if past.word(each) == word), None)
            if runs
            else None
        )
        has_tick = name is None or (ran is not None and ran.tick is not None)
        which = (word, host or (ran.host if ran else None), name if has_tick else None, has_tick)
        found.setdefault(which, []).append(at)
    return [
        Ticks(word, sorted(times), of_host, name, has_tick)
        for (word, of_host, name, has_tick), times in found.items()
    ]


def _word(run: Execution) -> str:
    """Return the outcome of an execution as a grid shows it."""
    if run.outcome == "unclaimed":
        return "succeeded" if is_success(run) else "failed"
    return run.outcome


def _by_key(leases: Iterable[LeaseView]) -> dict[str, list[LeaseView]]:
    found: dict[str, list[LeaseView]] = {}
    for each in leases:
        found.setdefault(each.key, []).append(each)
    return found
