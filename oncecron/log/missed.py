"""When a tick counts as missed: the schedules that keys are expected to follow, and what was due of them.

A claim with --schedule writes what is expected of its shard (`Expectation`); a firing with --tick, --no-tick or --again
leaves it as it is, and `oncecron forget` removes it. Ticks from then on are expected. A key that no host has ever
started is expected as its hosts fire it, from its first skip on record; one that no host has ever fired, as its section
of the configuration file says. A tick is missed if it was due more than the grace ago (`MISSED_AFTER`, or a longer
--starting-deadline) and nobody has started it, unless the key was paused, or every host that fires it was drained. What
the next firing makes up (--catch-up) is not missed yet: it is missed once that firing is late, too.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import math

from oncecron.core import tick
from oncecron.core.clock import believed, is_ahead
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import Expectation, pauses_of
from oncecron.core.making_up import looks_back_to, newest_of, withheld
from oncecron.core.timing import LEAST_SILENCE, MISSED_AFTER
from oncecron.core.units import DAY
from oncecron.host import local_time
from oncecron.host.local_time import canonical
from oncecron.log.job_summary import by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from oncecron.core.log_rows import Execution, JobKey, KeyHost, Pause, Skip, SkipReason

    Skipped = TypeVar("Skipped", Skip, SkipReason, Skip | SkipReason)
    Which = TypeVar("Which")

MISSED_AT_MOST = 1000
"""Ticks since the newest start that are looked at."""

GAPS_OF = 20
"""The newest starts whose gaps say how often a key without a schedule runs."""

FEWEST_STARTS = 3
"""With fewer starts, a key has no habit. With fewer firings, it has not been started in vain."""

Reasons = dict[str, dict[str, None]]
"""The hosts that skipped a tick, by reason, in the order in which they were read."""


def has_tick(plan: Expectation, at: float) -> bool | None:
    """Return whether a schedule has a tick at a time; None: this host does not know its zone."""
    with contextlib.suppress(ValueError):
        return local_time.scheduled_tick(plan.schedule, plan.zone, at).instant == at
    return None


def expected_shards(keys: Iterable[JobKey]) -> Iterator[tuple[JobKey, Expectation]]:
    """Yield the shards that are expected to run: without those beyond the newest number of shards of their key."""
    newest: dict[str, Expectation] = {}
    scheduled = [(known, known.expected) for known in keys if known.expected is not None]
    for known, expected in scheduled:
        before = newest.get(known.key)
        if before is None or before.since < expected.since:
            newest[known.key] = expected
    for known, expected in scheduled:
        if known.shard < newest[known.key].shards:
            yield known, expected


def unstarted(keys: Iterable[JobKey]) -> dict[str, float]:
    """Return the keys of which nothing is expected, and that were never started, by name: 0.0.

    Or not since `oncecron forget`: then the time of that.
    """
    found = by_key(keys)
    forgotten = {
        key: max(each.forgotten_at or 0.0 for each in shards)
        for key, shards in found.items()
        if not any(each.expected for each in shards)
    }
    started = {key: max(each.last_start or 0.0 for each in found[key]) for key in forgotten}
    return {key: at for key, at in forgotten.items() if started[key] <= at}


def as_fired(
    keys: Iterable[JobKey], in_vain: Mapping[str, Sequence[Skip]], rows: Iterable[KeyHost]
) -> list[JobKey]:
    """Return the shards, with what hosts fire where nothing was ever started.

    `in_vain`: the newest skips of each `unstarted` key. `rows`: the hosts that fire them.
    """
    newest = sorted((row for row in rows if row.key in in_vain), key=lambda row: row.seen_at)
    plans = {(row.key, row.shard): row for row in newest if row.schedule}
    found = []
    for known in keys:
        row, skips = plans.get(known[:2]), in_vain.get(known.key, ())
        if row is None or row.schedule is None or not skips:
            found.append(known)
            continue
        # Before its first tick, which was skipped too.
        since = min(tick.instant_of(skip.tick) or skip.at for skip in skips) - 1
        plan = Expectation(row.schedule, row.zone, known.shard + 1, None, since)
        found.append(known._replace(expected=plan))
    return found


def as_configured(keys: Sequence[JobKey], configured: Iterable[JobKey]) -> list[JobKey]:
    """Return the shards, with what the configuration file expects.

    It counts for keys that no host has ever fired, and for those that were not started since their schedule was changed
    there: no firing can tell of the new one before it is due.
    """
    plans = {each.key: each for each in configured}
    found = [
        _as_planned(known, plans[known.key]) if known.key in plans else known for known in keys
    ]
    for known in keys:
        plans.pop(known.key, None)
    return [*found, *plans.values()]


def _as_planned(known: JobKey, configured: JobKey) -> JobKey:
    now, plan = known.expected, configured.expected
    if now is None or plan is None or plan.since <= (known.last_start or 0.0):
        return known
    if (now.schedule, canonical(now.zone or "")) == (plan.schedule, canonical(plan.zone or "")):
        return known
    return known._replace(expected=plan._replace(shards=now.shards))


def grace_of(expected: Expectation, missed_after: float = MISSED_AFTER) -> float:
    """Return how long after its time a tick may still start, in seconds."""
    return max(missed_after, expected.starting_deadline or 0.0)


def paused_time(key: str, pauses: Sequence[Pause]) -> tuple[float | None, float]:
    """Return since when a key is paused, by itself or with all keys, and until when; (None, 0.0) if it is not."""
    found = [pause for pause in pauses if pause.key in pauses_of(key)]
    ends = (math.inf if pause.until is None else pause.until for pause in found)
    return min((pause.since for pause in found), default=None), max(ends, default=0.0)


class Unstarted:
    """What became of the ticks of a shard that were due, and that nobody has started."""

    def __init__(
        self,
        expected: Expectation,
        started: Collection[float],
        given_back: Collection[float],
        paused: float | None,
        now: float,
    ) -> None:
        """Judge by the instants of ticks; `paused`: since when the key is paused."""
        # A tick that was given back is itself missed, without its grace: its firing is over.
        late = now - grace_of(expected), _newest(started, now), _newest(given_back, now) + 1
        self._late_before = max(late)
        self._paused = math.inf if paused is None else believed(paused, now)

    @property
    def before(self) -> float:
        """Return before which instant a tick is missed, unless its skips say otherwise."""
        return min(self._late_before, self._paused)

    def word(self, at: float, reasons: Reasons, hosts: Iterable[str]) -> str:
        """Return `missed`, `overdue`, or what `withheld` says."""
        if at >= self._paused:
            return "paused"
        return withheld(reasons, hosts) or ("missed" if at < self._late_before else "overdue")


def _newest(instants: Collection[float], now: float) -> float:
    newest = max(instants, default=-math.inf)
    if is_ahead(newest, now):  # rarely, and there may be a hundred thousand
        return max((at for at in instants if not is_ahead(at, now)), default=-math.inf)
    return newest


def scheduled(
    schedule: str, zone: str | None, after: float, until: float, at_most: int | None = None
) -> Sequence[int]:
    """Return what was due by a schedule, as `instants_between`; nothing where this host knows no such zone."""
    with contextlib.suppress(ValueError):
        return local_time.instants_between(schedule, zone, after, until, at_most)
    return ()


def reasons_by(which: Callable[[Skipped], Which], skips: Iterable[Skipped]) -> dict[Which, Reasons]:
    """Return the reasons of skips by what is asked of each."""
    found: dict[Which, Reasons] = {}
    for skip in skips:
        found.setdefault(which(skip), {}).setdefault(skip.reason, {})[skip.host] = None
    return found


class Due(NamedTuple):
    """What was due since the newest start of a key, and what is due next."""

    next_at: float | None = None
    """When the next tick is due that no pause holds back."""
    overdue: str | None = None
    """The first tick that is due and not started, as long as none is missed."""
    missed: int = 0
    """How many ticks are missed; at most `MISSED_AT_MOST`."""
    first_missed: str | None = None
    last_missed: str | None = None
    overruns: int = 0
    """How many ticks were skipped because an earlier run was still running."""
    catching_up: int = 0
    """How many ticks were not started, and will be made up at `next_at`."""
    first_caught_up: str | None = None
    """The oldest of them."""
    silent_since: float | None = None
    """Of a key without a schedule that does not run: its newest start, if the next one should have come long ago; or
    the first skip on record, if it was never started."""


class Known(NamedTuple):
    """What is known of a key."""

    shards: Sequence[JobKey]
    """All of them."""
    newest: Sequence[Execution]
    """Its newest executions; of a key that is well, perhaps one alone."""
    paused: float | None
    """Since when it is paused."""
    paused_until: float = 0.0
    """No tick before this time starts; infinite: until somebody resumes it."""
    in_vain: Sequence[Skip] = ()
    """The newest skips of a key that was never started."""
    runs: bool = False
    """Whether somebody has a lease of it: what is due meanwhile is skipped, and so not overdue. Nor is it silent."""


def dues(
    keys: Mapping[str, Known],
    skip_reasons: Callable[[Mapping[str, tick.Tick]], Iterable[SkipReason]],
    now: float,
    more: Callable[[Collection[str]], Mapping[str, Sequence[Execution]]] | None = None,
    missed_after: float = MISSED_AFTER,
    rows: Callable[[], Iterable[KeyHost]] | None = None,
) -> dict[str, Due]:
    """Return what is due of each key. `rows`: the hosts that fire keys, which are read if a tick is missed.

    `skip_reasons` answers why ticks were skipped, by the first tick of each key; it is called once. `more` reads the
    newest executions of keys that drained hosts have skipped, where `keys` may have one alone: their hosts count.
    """
    calendar = _Calendar(now, missed_after)
    plans = {key: calendar.scheduled(known) for key, known in keys.items()}
    since = {key: tick.minute_tick(each.ticks[0]) for key, each in plans.items() if each.ticks}
    skips = by_key(skip_reasons(since) if since else ())
    drained = [
        key for key, found in skips.items() if any(skip.reason == "drained" for skip in found)
    ]
    read = more(drained) if more and drained else {}
    found = {
        key: _due(
            known._replace(newest=read.get(key, known.newest)),
            plans[key],
            skips.get(key, ()),
            now,
        )
        for key, known in keys.items()
    }
    # Of more ticks than are looked at, nobody knows here which are the newest.
    late = [
        key
        for key, (due, _) in found.items()
        if due.missed and len(plans[key].ticks) < MISSED_AT_MOST
    ]
    ages = catch_up_ages(late, rows()) if rows and late else {}
    return {
        key: _without_made_up(keys[key], due, ticks, ages[key]) if key in ages else due
        for key, (due, ticks) in found.items()
    }


def not_missed_from(due: Due) -> float:
    """Return from which tick on those without a start are not missed yet, as the next firing makes them up.

    Infinite: from none.
    """
    first, last = tick.instant_of(due.first_caught_up), tick.instant_of(due.last_missed)
    return math.inf if first is None else max(first, -math.inf if last is None else last + 1)


def catch_up_ages(keys: Collection[str], rows: Iterable[KeyHost]) -> dict[str, float]:
    """Return how old a tick may be that the next firing makes up, of the keys of which every host does so.

    A host that has not fired for a day longer than the others may be gone.
    """
    found = by_key(row for row in rows if row.key in keys)
    newest = {key: max(row.seen_at for row in of_key) for key, of_key in found.items()}
    ages = {
        key: [row.catch_up for row in of_key if row.seen_at > newest[key] - DAY]
        for key, of_key in found.items()
    }
    return {
        key: min(each for each in of_key if each is not None)
        for key, of_key in ages.items()
        if None not in of_key
    }


def _without_made_up(known: Known, due: Due, ticks: Sequence[int], age: float) -> Due:
    """Return what is due without what the next firing makes up, as `core.making_up` does it (of `ticks`).

    Only the newest tick that is late is not missed yet: an older one was to be made up by a firing that did not come.
    """
    if due.next_at is None:
        return due
    marks = (each.high_water or math.inf for each in known.shards if each.expected)
    mark = max(marks, default=math.inf)  # in the store: a log beside it expects nothing
    oldest = max(mark, looks_back_to(due.next_at, age))
    made_up = newest_of([each for each in ticks if each > oldest], age)
    left = ticks[: min(due.missed, max(due.missed - 1, len(ticks) - len(made_up)))]
    return due._replace(
        missed=len(left),
        first_missed=_text(left[0]) if left else None,
        last_missed=_text(left[-1]) if left else None,
        catching_up=len(made_up),
        first_caught_up=_text(made_up[0]) if made_up else None,
    )


class _Scheduled(NamedTuple):
    ticks: Sequence[int]
    """That are due, and that no shard or not every shard has started, rising; at most `MISSED_AT_MOST`."""
    late_before: float
    """An older tick is missed, a younger one overdue."""
    next_at: float | None


class _Calendar:
    """The ticks of schedules up to now. Many keys have the same schedule, and stop running at the same time."""

    def __init__(self, now: float, missed_after: float) -> None:
        self._now = now
        self._missed_after = missed_after
        self._due = functools.cache(scheduled)
        self._following = functools.cache(_following)

    def scheduled(self, known: Known) -> _Scheduled:
        now, expected = self._now, list(expected_shards(known.shards))
        of_shards = [
            self._due(
                each.schedule,
                each.zone,
                _start(shard, each, known.newest, now),
                now,
                MISSED_AT_MOST,
            )
            for shard, each in expected
        ]
        ticks = of_shards[0] if of_shards else ()
        if any(each != ticks for each in of_shards[1:]):
            ticks = sorted({*itertools.chain(*of_shards)})[:MISSED_AT_MOST]
        if known.paused is not None:
            ticks = ticks[: bisect.bisect_left(ticks, believed(known.paused, now))]
        grace = min((grace_of(each, self._missed_after) for _, each in expected), default=0.0)
        coming = (
            self._following(each.schedule, each.zone, now, known.paused_until)
            for _, each in expected
        )
        return _Scheduled(ticks, now - grace, min(filter(None, coming), default=None))


def _following(schedule: str, zone: str | None, now: float, paused_until: float) -> float | None:
    # OverflowError: only a person ends the pause.
    with contextlib.suppress(ValueError, StopIteration, OverflowError):
        after = max(now, math.ceil(paused_until) - 1)
        return next(local_time.next_ticks(schedule, zone, after)).instant
    return None


def _due(
    known: Known, plan: _Scheduled, skips: Sequence[SkipReason], now: float
) -> tuple[Due, Sequence[int]]:
    """Return what is due, and the ticks that were not started."""
    ticks, late_before, next_at = plan
    if not ticks:
        return Due(next_at, silent_since=_silent_since(known, now)), ()
    hosts = {each.host for each in known.newest} | {each.host for each in skips}
    reasons = reasons_by(lambda skip: tick.instant_of(skip.tick), skips)
    # Only ticks with skips are judged one by one: thousands of keys may have a thousand ticks each after an outage.
    why = {at: withheld(found, hosts) for at, found in reasons.items()}
    overruns = [at for at in ticks if why.get(at) == "overrun"] if skips else ()
    if skips:
        ticks = [at for at in ticks if why.get(at) is None]
    missed = ticks[: bisect.bisect_left(ticks, late_before)]
    due = Due(
        next_at,
        overdue=None if missed or known.runs or not ticks else _text(ticks[0]),
        missed=len(missed),
        first_missed=_text(missed[0]) if missed else None,
        last_missed=_text(missed[-1]) if missed else None,
        overruns=len(overruns),
    )
    return due, ticks


def _text(at: float) -> str | None:
    return tick.minute_tick(at).text


def _silent_since(known: Known, now: float) -> float | None:
    """Return the newest start of a key without a schedule, if three times its longest recent gap have passed.

    Of one that was never started, the first skip on record, if a host has fired it `FEWEST_STARTS` times.
    """
    if known.in_vain and known.paused is None and not any(each.expected for each in known.shards):
        return _in_vain_since(known.in_vain)
    recorded = {each.started_at for each in known.newest[:GAPS_OF]}
    starts = sorted((each for each in recorded if not is_ahead(each, now)), reverse=True)
    scheduled = any(each.expected for each in known.shards)
    if scheduled or known.runs or known.paused is not None or len(starts) < FEWEST_STARTS:
        return None
    forgotten = max((each.forgotten_at or 0.0 for each in known.shards), default=0.0)
    longest = max(later - earlier for later, earlier in itertools.pairwise(starts))
    if forgotten > starts[0] or now - starts[0] <= max(3 * longest, LEAST_SILENCE):
        return None
    return starts[0]


def _in_vain_since(skips: Sequence[Skip]) -> float | None:
    fired: dict[str, int] = {}
    wanted = [skip for skip in skips if skip.reason not in ("paused", "drained")]
    for skip in wanted:
        fired[skip.host] = fired.get(skip.host, 0) + skip.count
    is_habit = max(fired.values(), default=0) >= FEWEST_STARTS
    return min(skip.at for skip in wanted) if is_habit else None


def _start(known: JobKey, expected: Expectation, newest: Sequence[Execution], now: float) -> float:
    """Return the instant since which ticks of a shard are due: its newest start that was not given back.

    What a wrong clock has written counts no further than now: since then, nothing was due.
    """
    started, since = known.high_water or -math.inf, min(expected.since, now)
    attempts = [each for each in newest if each.shard == known.shard and each.tick]
    if is_ahead(started, now) or (attempts and attempts[0].outcome == "not-started"):
        instants = [
            tick.instant_of(each.tick) for each in attempts if each.outcome != "not-started"
        ]
        right = [each for each in instants if each is not None and not is_ahead(each, now)]
        started = max(right, default=now if is_ahead(started, now) else -math.inf)
    return max(since, started)
