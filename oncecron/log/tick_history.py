"""What is known of one tick: executions, skips, records that are still spooled on this host, pauses.

Of a tick that is divided into shards: the outcome of each, and which were not started (`Division`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.core import tick
from oncecron.core.log_rows import HistoryQuery, is_success, pauses_of
from oncecron.core.making_up import HELD_BACK
from oncecron.core.suggestion import unknown_key
from oncecron.core.timing import CLOCK_ROUNDING, SAME_TIME
from oncecron.log.grid import WORST_FIRST, worst
from oncecron.log.job_summary import NO_END, is_living
from oncecron.log.jobs import dead_letters
from oncecron.log.missed import Due, Known, dues, paused_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oncecron.core.log_rows import (
        Execution,
        JobKey,
        KeyHost,
        LeaseView,
        Pause,
        Skip,
        Traced,
        TracedSkip,
    )
    from oncecron.log.sources import Sources
    from oncecron.run.spool import Spool
    from oncecron.stores.reader import Reader

LOOKED_AT = 50
"""Records of a key that are searched for the newest tick."""

_SEARCHED = 20_000
"""The newest executions of a key that are searched for the run because of which a host skipped."""

_WORDS = {
    NO_END: "without an end on record",
    "timed-out": "timed out",
    "unclaimed": "run without a lease",
}
"""What is said of an outcome of shards, where it is not its name."""


class Which(NamedTuple):
    """A tick of a key, or a firing without a tick."""

    tick: str | None
    owner: str | None = None
    """Of a firing without a tick; None: of the newest one."""


def which_of(execution: Execution) -> Which:
    """Return the tick of an execution, or its firing."""
    return Which(execution.tick, None if execution.tick is not None else execution.owner)


class Facts(NamedTuple):
    """One tick of a key."""

    key: str
    tick: str | None
    """None: a firing that belonged to no tick."""
    instant: float | None
    job_keys: Sequence[JobKey]
    """The shards of the key as they were last claimed."""
    executions: Sequence[Traced]
    """By shard and attempt."""
    skips: Sequence[TracedSkip]
    """The earliest first."""
    spooled: Sequence[dict[str, Any]]
    leases: Sequence[LeaseView]
    pauses: Sequence[Pause]
    after_loss: dict[int, Execution]
    """The next execution of a shard, by shard, where the last one of this tick was lost."""
    exhausted: frozenset[int]
    """Ids of last attempts whose ticks were given up."""
    now: float
    due: Due = Due()
    """What was due since the newest start; if a tick was named, only what is made up with it."""
    holders: Sequence[Traced] = ()
    """Executions of other ticks, because of which hosts skipped this one; and their further attempts."""
    newest_start: Execution | None = None
    """The newest start of the key, where something may be due since, or this tick has no start."""
    hosts: Sequence[KeyHost] = ()
    """The hosts that fire the key, where none fired this tick."""
    oldest: float | None = None
    """Since when there are records of the key, where there is none of this tick."""
    is_divided: bool = False
    """Whether a plugin divides the work of this tick: `oncecron run` does not run it again."""


def facts_of(
    sources: Sources,
    key: str,
    which: Which,
    spooled: Sequence[dict[str, Any]] = (),
    *,
    judges: bool = False,
) -> Facts:
    """Return what is known of a tick.

    `spooled`: the key's records that this host has not delivered. `judges`: also find what was due since the newest
    start.
    """
    text, log = which.tick, sources.log
    leases = [lease for lease in sources.leases if lease.key == key]
    executions = [_with_place(sources, each) for each in _executions(log, key, which)]
    skips = _skips(log, key, which)
    spooled = [record for record in spooled if record.get("tick") == text]
    job_keys = [known for known in sources.job_keys if known.key == key]
    facts = Facts(
        key=key,
        tick=text,
        instant=tick.instant_of(text),
        job_keys=job_keys,
        executions=executions,
        skips=skips,
        spooled=spooled,
        leases=leases,
        pauses=[pause for pause in sources.pauses if pause.key in pauses_of(key)],
        after_loss=_after_loss(log, executions),
        exhausted=_exhausted(sources, text, executions, leases),
        now=sources.now,
        holders=_holders(log, key, executions, skips),
        is_divided=text is not None and sources.work.of_tick(key, text) is not None,
    )
    if job_keys and (judges or (not executions and facts.instant is not None)):
        newest = list(log.history(HistoryQuery(key=key, limit=LOOKED_AT)))
        due = _due(sources, job_keys, newest, facts)
        if not judges:
            due = _made_up_with(due, facts)
        facts = facts._replace(due=due, newest_start=next(iter(newest), None))
    if not executions and facts.newest_start is None:
        newest_start = next(log.history(HistoryQuery(key=key, limit=1)), None)
        facts = facts._replace(newest_start=newest_start)
    if executions or skips or spooled:
        return facts
    return facts._replace(hosts=_hosts(sources, key), oldest=_oldest(log, key))


def spooled_of(sources: Sources, key: str, spools: Iterable[Spool]) -> list[dict[str, Any]]:
    """Return the records of a key that this host has not delivered. Raises `NotFoundError` for an unknown key."""
    spooled = [record for spool in spools for _, record in spool.pending(key)]
    keys = {known.key for known in sources.job_keys}
    if key in keys or spooled:
        return spooled
    raise unknown_key(key, keys, (row.host for row in sources.key_hosts))


def _due(
    sources: Sources,
    job_keys: Sequence[JobKey],
    newest: Sequence[Execution],
    facts: Facts,
) -> Due:
    key, runs = facts.key, any(map(is_living, facts.leases))
    in_vain = sources.in_vain.get(key, ())
    known = Known(job_keys, newest, *paused_time(key, facts.pauses), in_vain=in_vain, runs=runs)
    return dues({key: known}, sources.log.reasons, sources.now, rows=lambda: sources.key_hosts)[key]


def _made_up_with(due: Due, facts: Facts) -> Due:
    """Return of what is due only what the next firing makes up, if this tick is one of that."""
    first, at = tick.instant_of(due.first_caught_up), facts.instant or 0.0
    is_held_back = any(each.skip.reason in (*HELD_BACK, "held") for each in facts.skips)
    if first is None or not first <= at < (due.next_at or 0.0) or is_held_back:
        return Due()
    return Due(catching_up=due.catching_up, first_caught_up=due.first_caught_up)


def _executions(log: Reader, key: str, which: Which) -> list[Traced]:
    rows = log.traced(HistoryQuery(key=key, tick=which.tick, limit=None))
    if which.tick is not None:
        return sorted(rows, key=_by_attempt)
    owner = which.owner
    untied = (each for each in rows if each.execution.tick is None)
    if owner is None:
        some = [*itertools.islice(untied, LOOKED_AT)]
    else:
        since = itertools.dropwhile(lambda each: each.execution.owner != owner, untied)
        some = [*itertools.islice(since, LOOKED_AT)]
    found = [each for each in some if each.execution.owner == some[0].execution.owner]
    return sorted(found, key=_by_attempt)


def _with_place(sources: Sources, traced: Traced) -> Traced:
    if traced.execution.outcome not in ("running", "lost"):
        return traced
    place = sources.place_of(traced.execution)
    return traced._replace(execution=traced.execution._replace(place=place))


def _by_attempt(each: Traced) -> tuple[int, int, int]:
    execution = each.execution
    return execution.shard, execution.attempt, execution.execution_id


def _skips(log: Reader, key: str, which: Which) -> list[TracedSkip]:
    if which.owner is not None:
        return []  # no record says to which firing without a tick they belong
    text = which.tick
    limit = LOOKED_AT if text is None else None
    found = log.traced_skips(HistoryQuery(key=key, tick=text, limit=limit))
    return sorted((each for each in found if each.skip.tick == text), key=lambda each: each.skip.at)


def _holders(
    log: Reader, key: str, executions: Sequence[Traced], skips: Sequence[TracedSkip]
) -> list[Traced]:
    waiting = [
        each.skip
        for each in skips
        if (each.skip.reason == "held" or (each.skip.reason == "recent" and each.skip.tick))
        and not holder_of(each.skip, executions)
    ]
    rows = log.traced(HistoryQuery(key=key, limit=None)) if waiting else iter(())
    begun = min((skip.at for skip in waiting), default=0.0)
    near: list[Traced] = []
    for row in itertools.islice(rows, _SEARCHED):
        near.append(row)
        if row.execution.started_at <= begun and all(holder_of(skip, near) for skip in waiting):
            break
    runs = [row for skip in waiting for row in [holder_of(skip, near)] if row]
    found = {row.execution.execution_id: row for row in runs}
    for run in [*found.values()]:
        first = run.execution
        later = _executions(log, key, which_of(first)) if first.attempt else []
        found |= {
            each.execution.execution_id: each
            for each in later
            if each.execution.shard == first.shard and each.execution.attempt > first.attempt
        }
    return sorted(found.values(), key=lambda each: each.execution.started_at)


def holder_of(skip: Skip, rows: Iterable[Traced]) -> Traced | None:
    """Return the execution that a skip may mean: of its shard and its holder, the last one that began before it.

    A claim that waited for the other one may have been dated a little earlier.
    """
    fitting = [
        row
        for row in rows
        for run in [row.execution]
        if run.shard == skip.shard
        and run.outcome != "not-started"
        and run.started_at <= skip.at + SAME_TIME
        and skip.holder_host in (None, run.host)
        and skip.holder_pid in (None, run.pid)
    ]
    before = [row for row in fitting if row.execution.started_at <= skip.at + CLOCK_ROUNDING]
    if before:
        return max(before, key=lambda row: row.execution.started_at)
    return min(fitting, key=lambda row: row.execution.started_at, default=None)


def _hosts(sources: Sources, key: str) -> list[KeyHost]:
    rows = [row for row in sources.key_hosts if row.key == key]
    return sorted(rows, key=lambda row: -row.seen_at)


def _oldest(log: Reader, key: str) -> float | None:
    oldest = next(log.traced(HistoryQuery(key=key, after_id=0, limit=1)), None)
    if oldest is None:
        return None
    return min(oldest.execution.started_at, oldest.instant or oldest.execution.started_at)


def _after_loss(log: Reader, executions: Sequence[Traced]) -> dict[int, Execution]:
    found = {}
    last = {each.execution.shard: each for each in executions}
    for shard, each in last.items():
        if each.lost_at is None:
            continue
        lost = each.execution
        query = HistoryQuery(key=lost.key, after_id=lost.execution_id, limit=LOOKED_AT)
        later = next((other for other in log.history(query) if other.shard == shard), None)
        if later:
            found[shard] = later
    return found


def _exhausted(
    sources: Sources, text: str | None, executions: Sequence[Traced], leases: Sequence[LeaseView]
) -> frozenset[int]:
    if all(is_success(each.execution) for each in executions):
        return frozenset()
    key = executions[0].execution.key
    query = HistoryQuery(key=key, tick=text, limit=LOOKED_AT if text is None else None)
    found = dead_letters(sources.log, query, leases)
    return frozenset(each.execution_id for each in found)


def outcome_of(executions: Sequence[Execution]) -> str | None:
    """Return the outcome of a tick by its executions, in any order; None if nothing was started."""
    in_order = sorted(executions, key=lambda each: (each.shard, each.attempt, each.execution_id))
    divided = division(in_order)
    if divided:
        return divided.verdict()
    return next(
        (each.outcome for each in reversed(in_order) if each.outcome != "not-started"), None
    )


class Division(NamedTuple):
    """The known shards of a tick."""

    shards: int
    outcomes: dict[int, str]
    """The outcome of the last attempt, by shard."""

    def missing(self) -> list[int]:
        """Return the shards that were not started."""
        return [shard for shard in range(self.shards) if shard not in self.outcomes]

    def verdict(self) -> str:
        """Return the worst outcome; `running` where any shard runs, `incomplete` where one was not started."""
        found = set(self.outcomes.values())
        if "running" in found:
            return "running"
        if self.missing():
            return "incomplete"
        return worst(found)

    def summary(self) -> str:
        """Return the shards by outcome, with their numbers: `3 succeeded (0-2), 1 not started (3)`."""
        shards: dict[str, list[int]] = {}
        for shard, outcome in sorted(self.outcomes.items()):
            shards.setdefault(outcome, []).append(shard)
        described = [
            f"{len(shards[each])} {_WORDS.get(each, each)} ({number_ranges(shards[each])})"
            for each in sorted(shards, key=WORST_FIRST.index, reverse=True)
        ]
        if missing := self.missing():
            described.append(f"{len(missing)} not started ({number_ranges(missing)})")
        return ", ".join(described)


def division(executions: Sequence[Execution]) -> Division | None:
    """Return how a tick is divided, None if it is not; `executions` are sorted by attempt."""
    started = [each for each in executions if each.outcome != "not-started"]
    shards = max((each.shards for each in started), default=1)
    if shards == 1:
        return None
    return Division(shards, {each.shard: each.outcome for each in started})


def number_ranges(numbers: Iterable[int]) -> str:
    """Return rising numbers as text, with runs as ranges: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
