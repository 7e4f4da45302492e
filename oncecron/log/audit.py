"""Check the log for runs that break the promise; each is a finding.

    no-run    scheduled ticks without a start, up to now (`gaps`); or a shard without a start, of a tick of which
              another shard was started
    no-end    `running` without an active lease, or `lost` without an end on record

and what the rules of `protocol` find. The log is read shard by shard in the order of starts; of what was read, only
ticks are in memory.
"""

from __future__ import annotations

import collections
import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.log_rows import HistoryQuery
from oncecron.core.progress import no_progress
from oncecron.core.tick import instant_of
from oncecron.log.gaps import (
    TICKS_AT_ONCE,
    Gaps,
    ShardsLeft,
    expected_gaps,
    missing_shards,
    note_shard,
    read_reasons,
)
from oncecron.log.job_summary import is_living
from oncecron.log.protocol import Breach, Known, ShardRules, found, label, name_of
from oncecron.log.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from oncecron.core.log_rows import Execution, JobKey, Pause, Traced
    from oncecron.core.progress import Progress
    from oncecron.core.text import Clock
    from oncecron.log.protocol import Name
    from oncecron.stores.reader import Reader

_ROWS_PER_LOOK = 1000  # between two calls of the progress
_WAITING = 1000  # findings and shards, until it is known why ticks were not started


class Question(NamedTuple):
    """What is audited."""

    log: Reader
    store: Reader
    """Where the leases are; the same as `log` unless --log names another one."""
    since: float | None
    kept: float
    """Retention of executions, in seconds."""
    now: float
    clock: Clock
    wait: Callable[[], None]
    """Called before executions without an end are read again: a separate log gets their ends later than the store."""
    keys: Collection[str] = ()
    """Those that are audited; none: all of them."""
    configured: Collection[JobKey] = ()
    """What the configuration file expects."""
    until: float = math.inf
    """Nothing that started, or was due, then or later."""
    progress: Progress = no_progress
    """Called now and then: how many shards have been read, and of how many."""

    def asks_for(self, key: str) -> bool:
        """Return whether a key is audited."""
        return not self.keys or key in self.keys

    @property
    def oldest(self) -> float:
        """Return since when the log is whole, of what is audited."""
        return max(self.now - self.kept, self.since or -math.inf)


def audit(question: Question) -> Iterator[Breach]:
    """Yield the findings by key; shards without a start, then executions without an end come last."""
    living = _living(question)  # before any execution is read: see `_without_end`
    sources = Sources(question.store, question.log, question.now, question.configured)
    known = _known(question, living, sources.pauses)
    every = expected_gaps(sources, question.oldest, question.until).items()
    expected = {shard: gaps for shard, gaps in every if question.asks_for(shard[0])}
    endless: list[Execution] = []
    divided: dict[str, ShardsLeft] = collections.defaultdict(dict)
    reported: list[Breach] = []
    shards = _audit_shards(question, known, expected, divided, endless)
    for each in _explained(sources, shards):
        if each.finding == "no-run":
            reported.append(each)
        yield each
    for key, left in sorted(divided.items()):
        yield from _missing(question, key, left, [each for each in reported if each.key == key])
    yield from _without_end(question, endless)


def _explained(sources: Sources, findings: Iterable[Breach | Gaps]) -> Iterator[Breach]:
    """Yield findings in the same order, with the ticks without a start; what comes behind these waits in memory."""
    waiting: list[Breach | Gaps] = []
    ticks = 0
    for each in findings:
        more = len(each.ticks) if isinstance(each, Gaps) else 0
        if ticks + more > TICKS_AT_ONCE or len(waiting) >= _WAITING:
            yield from _no_runs(sources, waiting)
            waiting, ticks = [], 0
        if waiting or more:
            waiting.append(each)
            ticks += more
        elif isinstance(each, Breach):
            yield each
    yield from _no_runs(sources, waiting)


def _no_runs(sources: Sources, waiting: Sequence[Breach | Gaps]) -> Iterator[Breach]:
    read_reasons((each for each in waiting if isinstance(each, Gaps)), sources)
    for each in waiting:
        if isinstance(each, Breach):
            yield each
        else:
            yield from each.missing(sources.log)


def _read(question: Question) -> Iterator[Traced]:
    shards = sum(question.asks_for(part.key) for part in question.log.job_keys())
    before, begun = None, 0
    rows = question.log.timeline(question.since, question.keys or None)
    for number, traced in enumerate(rows):
        if _shard(traced) != before:
            before, begun = _shard(traced), begun + 1
        if not number % _ROWS_PER_LOOK:
            known = shards if begun <= shards else None
            question.progress(begun - 1, known, f"{number:,} executions")
        yield traced


def _missing(
    question: Question, key: str, left: ShardsLeft, reported: list[Breach]
) -> Iterator[Breach]:
    store, log, kept, now = question.store, question.log, question.kept, question.now
    for missing in missing_shards(store, log, key, left, kept=kept, now=now):
        if not any(_covers(each, missing) for each in reported):
            yield missing


def _covers(finding: Breach, missing: Breach) -> bool:
    at = instant_of(missing.tick)
    if finding.shard != missing.shard or at is None:
        return False
    first = instant_of(finding.tick) or math.inf
    last = instant_of(finding.last_tick or finding.tick) or -math.inf
    return first <= at <= last


def _shard(traced: Traced) -> tuple[str, int]:
    return traced.execution.key, traced.execution.shard


def _audit_shards(
    question: Question,
    known: Known,
    expected: dict[tuple[str, int], Gaps],
    divided: dict[str, ShardsLeft],
    endless: list[Execution],
) -> Iterator[Breach | Gaps]:
    """Yield the findings by shard, and behind them its ticks without a start; shards without any start come last."""
    for shard, rows in itertools.groupby(_read(question), _shard):
        gaps = expected.pop(shard, None)
        yield from _audit_shard(question, rows, known, gaps, divided, endless)
        if gaps:
            gaps.end()
            yield gaps
    for shard in sorted(expected):
        gaps = expected.pop(shard)
        gaps.end()
        yield gaps


def _audit_shard(
    question: Question,
    rows: Iterator[Traced],
    known: Known,
    gaps: Gaps | None,
    divided: dict[str, ShardsLeft],
    endless: list[Execution],
) -> Iterator[Breach]:
    rules = ShardRules(known)
    for traced in rows:
        execution = traced.execution
        if gaps:
            gaps.add(traced)
        if execution.started_at >= question.until:
            continue
        if execution.shards > 1:
            note_shard(divided[execution.key], execution)
        yield from rules.see(traced)
        if execution.outcome == "running":
            if name_of(execution) not in known.held:
                endless.append(execution)
        elif execution.outcome == "lost" and execution.duration is None:
            yield _no_end(traced, question.clock)


def _living(question: Question) -> dict[Name, float]:
    return {
        (lease.key, lease.shard, lease.fencing_token): lease.asked_at
        for lease in question.store.leases()
        if is_living(lease)
    }


def attempts(log: Reader, execution: Execution) -> list[Traced]:
    """Return all attempts of the tick of an execution, in its shard."""
    query = HistoryQuery(key=execution.key, tick=execution.tick, limit=None)
    traced = log.traced(query)
    return [each for each in traced if each.execution.shard == execution.shard]


def _known(question: Question, held: dict[Name, float], pauses: Sequence[Pause]) -> Known:
    log, store = question.log, question.store
    known = Known(
        question.clock,
        held,
        pauses,
        question.now,
        question.now - question.kept,
        partial(attempts, log),
    )
    return known if log is store else known._replace(elsewhere=partial(attempts, store))


def _no_end(traced: Traced, clock: Clock) -> Breach:
    execution = traced.execution
    when = f" at {clock.seconds(traced.lost_at)}" if traced.lost_at else ""
    return found(
        "no-end", execution, f"{label(execution)} was declared lost{when} and has no end on record"
    )


def _without_end(question: Question, endless: list[Execution]) -> Iterator[Breach]:
    """Read executions without a lease again: they may have started after the leases were read, or have ended.

    The leases are read first. The store writes an execution and its lease in one step. So an execution that is still
    running now, was running then and had no lease then, has none.
    """
    if not endless:
        return
    question.wait()
    living = _living(question)
    for execution in endless:
        now = question.log.execution(execution.execution_id)
        if now and now.outcome == "running" and name_of(now) not in living:
            yield found(
                "no-end", now, f"{label(now)} is recorded as running, but its lease has ended"
            )
