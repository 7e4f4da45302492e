"""Check the log for runs that break the promise; each is a finding.

    overlap   two executions of one shard of a key ran at the same time
    twice     a tick was started again, although no --again, no loss and no retry or failover explains it
    no-run    scheduled ticks without a start, up to now (`gaps`); or a shard without a start, of a tick of which
              another shard was started
    no-end    `running` without an active lease, or `lost` without an end on record
    token     a fencing token that is not higher than the token of an earlier start

The log is read shard by shard in the order of starts; of what was read, only ticks are in memory. An execution ends at
its start (store's clock) plus its duration (the host's monotonic clock), or at `finished_at` where that is earlier.
Where an end was recorded late, `finished_at` is from the host's clock and cannot be compared with the next start.
"""

from __future__ import annotations

import collections
import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.job_summary import is_living
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.progress import no_progress
from oncecron.core.text import part_of
from oncecron.core.tick import instant_of
from oncecron.core.timing import CLOCK_ROUNDING, ONE_STEP
from oncecron.log.gaps import (
    TICKS_AT_ONCE,
    Gaps,
    MissingShard,
    ShardsLeft,
    expected_gaps,
    missing_shards,
    read_reasons,
)
from oncecron.log.jobs import Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from oncecron.core.log_rows import Execution, JobKey, Traced
    from oncecron.core.progress import Progress
    from oncecron.core.text import Clock
    from oncecron.stores.reader import Reader

_TICKS_REMEMBERED = 256  # of a shard; older ones are read from the log again
_ROWS_PER_LOOK = 1000  # between two calls of the progress
_WAITING = 1000  # findings and shards, until it is known why ticks were not started
_TRIED_AGAIN = ("failed", "timed-out", "stopped")


class Finding(NamedTuple):
    """A breach of the promise, in the order of its published fields."""

    finding: str
    key: str
    shard: int
    tick: str | None
    last_tick: str | None
    """Of several ticks in a row; None for one."""
    count: int  # type: ignore[assignment]  # published name; nobody counts in a tuple
    at: float | None
    execution_id: int | None
    other_execution_id: int | None
    reason: str


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
    progress: Progress = no_progress
    """Called now and then: how many shards have been read, and of how many."""

    def asks_for(self, key: str) -> bool:
        """Return whether a key is audited."""
        return not self.keys or key in self.keys

    @property
    def oldest(self) -> float:
        """Return since when the log is whole, of what is audited."""
        return max(self.now - self.kept, self.since or -math.inf)


def audit(question: Question) -> Iterator[Finding]:
    """Yield the findings by key; shards without a start, then executions without an end come last."""
    living = _living(question)
    sources = Sources(question.store, question.log, question.now, question.configured)
    every = expected_gaps(sources, question.oldest).items()
    expected = {shard: gaps for shard, gaps in every if question.asks_for(shard[0])}
    endless: list[Execution] = []
    divided: dict[str, ShardsLeft] = collections.defaultdict(ShardsLeft)
    reported: list[Finding] = []
    shards = _audit_shards(question, living, expected, divided, endless)
    for found in _explained(question, shards):
        if found.finding == "no-run":
            reported.append(found)
        yield found
    for key, left in sorted(divided.items()):
        yield from _missing(question, key, left, [each for each in reported if each.key == key])
    yield from _without_end(question, endless)


def _explained(question: Question, found: Iterable[Finding | Gaps]) -> Iterator[Finding]:
    """Yield findings in the same order, with the ticks without a start; what comes behind these waits in memory."""
    waiting: list[Finding | Gaps] = []
    ticks = 0
    for each in found:
        more = len(each.ticks) if isinstance(each, Gaps) else 0
        if ticks + more > TICKS_AT_ONCE or len(waiting) >= _WAITING:
            yield from _no_runs(question, waiting)
            waiting, ticks = [], 0
        if waiting or more:
            waiting.append(each)
            ticks += more
        elif isinstance(each, Finding):
            yield each
    yield from _no_runs(question, waiting)


def _no_runs(question: Question, waiting: Sequence[Finding | Gaps]) -> Iterator[Finding]:
    read_reasons((each for each in waiting if isinstance(each, Gaps)), question.log)
    for each in waiting:
        if isinstance(each, Finding):
            yield each
            continue
        for first, last, count, reason in each.missing(question.log):
            last_of_many = last if count > 1 else None
            yield Finding(
                "no-run", each.key, each.shard, first, last_of_many, count, None, None, None, reason
            )


def _read(question: Question) -> Iterator[Traced]:
    """Yield what is audited, shard by shard, and show the progress."""
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
    question: Question, key: str, left: ShardsLeft, reported: list[Finding]
) -> Iterator[Finding]:
    """Yield the shards without a start, except those that `Gaps` has reported already."""
    store, log, kept, now = question.store, question.log, question.kept, question.now
    for missing in missing_shards(store, log, key, left, kept=kept, now=now):
        if not any(_covers(each, missing) for each in reported):
            execution = missing.execution
            yield Finding(
                "no-run", key, missing.shard, execution.tick, None, 1,
                None, None, execution.execution_id,
                f"shard {part_of(missing.shard, execution.shards)} {missing.reason}",
            )  # fmt: skip


def _covers(finding: Finding, missing: MissingShard) -> bool:
    if finding.shard != missing.shard or missing.instant is None:
        return False
    first = instant_of(finding.tick) or math.inf
    last = instant_of(finding.last_tick or finding.tick) or -math.inf
    return first <= missing.instant <= last


def _shard(traced: Traced) -> tuple[str, int]:
    return traced.execution.key, traced.execution.shard


def _audit_shards(
    question: Question,
    living: set[tuple[str, int, int | None]],
    expected: dict[tuple[str, int], Gaps],
    divided: dict[str, ShardsLeft],
    endless: list[Execution],
) -> Iterator[Finding | Gaps]:
    """Yield the findings by shard, and behind them its ticks without a start; shards without any start come last."""
    for shard, rows in itertools.groupby(_read(question), _shard):
        gaps = expected.pop(shard, None)
        yield from _audit_shard(question, rows, living, gaps, divided, endless)
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
    living: set[tuple[str, int, int | None]],
    gaps: Gaps | None,
    divided: dict[str, ShardsLeft],
    endless: list[Execution],
) -> Iterator[Finding]:
    overlaps, tokens, starts = _Overlaps(question, living), _Tokens(), _Starts(question)
    for traced in rows:
        execution = traced.execution
        if gaps:
            gaps.add(traced)
        if execution.shards > 1:
            divided[execution.key].add(execution)
        yield from starts.see(traced)
        if execution.outcome == "not-started":
            continue
        yield from overlaps.see(traced)
        yield from tokens.see(execution)
        if execution.outcome == "running":
            if _name(execution) not in living:
                endless.append(execution)
        elif execution.outcome == "lost" and execution.duration is None:
            yield _no_end(traced, question.clock)


def _living(question: Question) -> set[tuple[str, int, int | None]]:
    """Return the executions with an active lease, by token: a separate log has execution ids of its own."""
    return {
        (lease.key, lease.shard, lease.fencing_token)
        for lease in question.store.leases()
        if is_living(lease, question.now)
    }


def _name(execution: Execution) -> tuple[str, int, int | None]:
    return execution.key, execution.shard, execution.fencing_token


def _finding(
    finding: str, execution: Execution, reason: str, other: Execution | None = None
) -> Finding:
    return Finding(
        finding, execution.key, execution.shard, execution.tick, None, 1, execution.started_at,
        execution.execution_id, other.execution_id if other else None, reason,
    )  # fmt: skip


def _label(execution: Execution) -> str:
    text = f"execution {execution.execution_id} on {execution.host}"
    return f"{text} (unclaimed: no lease)" if execution.outcome == "unclaimed" else text


class _Overlaps:
    """Find overlaps in one shard: remembers the execution that has run until the latest time so far."""

    def __init__(self, question: Question, living: set[tuple[str, int, int | None]]) -> None:
        self._question = question
        self._living = living
        self._last: Execution | None = None
        self._until = -math.inf

    def see(self, traced: Traced) -> Iterator[Finding]:
        """Look at the next start."""
        execution = traced.execution
        last = self._last
        if last and execution.started_at < self._until - CLOCK_ROUNDING and self._still(execution):
            clock = self._question.clock
            end = (
                "is still running"
                if math.isinf(self._until)
                else f"ran until {clock.exactly(self._until)}"
            )
            yield _finding(
                "overlap",
                execution,
                f"{_label(execution)} started at {clock.exactly(execution.started_at)}, but "
                f"{_label(last)} of tick {last.tick or '-'} {end}",
                last,
            )
        until = self._end(traced)
        if until >= self._until:
            self._last, self._until = execution, until

    def _still(self, execution: Execution) -> bool:
        """Return whether it still overlaps: an execution that was running when it was read may have ended since."""
        if not self._last or not math.isinf(self._until):
            return True
        again = self._question.log.execution(self._last.execution_id)
        if again and again.outcome != "running":
            self._until = _ended(again)
        return execution.started_at < self._until - CLOCK_ROUNDING

    def _end(self, traced: Traced) -> float:
        """Return until when an execution certainly ran."""
        execution = traced.execution
        if execution.outcome == "running":
            return math.inf if _name(execution) in self._living else execution.started_at
        if execution.outcome == "lost" and execution.duration is None and traced.lost_at:
            if execution.lost_reason == "superseded":  # found some time after the lease had ended
                return execution.started_at
            return max(execution.started_at, traced.lost_at - ONE_STEP)
        return _ended(execution)


def _ended(execution: Execution) -> float:
    ends = [] if execution.finished_at is None else [execution.finished_at]
    if execution.duration is not None:
        ends.append(execution.started_at + execution.duration)
    return min(ends, default=execution.started_at)


class _Tokens:
    """Find tokens that do not rise in one shard: remembers the highest so far.

    In a store whose clock was set back, later starts have earlier times. So a lower token is a finding only where the
    execution ids also say that the other start came first.
    """

    def __init__(self) -> None:
        self._highest: Execution | None = None

    def see(self, execution: Execution) -> Iterator[Finding]:
        """Look at the next start."""
        token, highest = execution.fencing_token, self._highest
        if token is None:
            return
        if highest and highest.fencing_token is not None:
            same = token == highest.fencing_token
            if same or (
                token < highest.fencing_token and execution.execution_id > highest.execution_id
            ):
                reason = (
                    f"{_label(execution)} has token {token}, not higher than token {highest.fencing_token} of the "
                    f"earlier {_label(highest)}"
                )
                yield _finding("token", execution, reason, highest)
            if token < highest.fencing_token:
                return
        self._highest = execution


class _Starts:
    """Find ticks of one shard that were started twice: remembers the last ticks with their attempts."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._ticks: collections.OrderedDict[str, list[Traced]] = collections.OrderedDict()

    def see(self, traced: Traced) -> Iterator[Finding]:
        """Look at the next attempt."""
        execution = traced.execution
        if execution.tick is None:
            return
        known = self._ticks.get(execution.tick)
        if known is None:
            known = self._ask(execution) if execution.attempt > 1 else []
            self._ticks[execution.tick] = known
            if len(self._ticks) > _TICKS_REMEMBERED:
                self._ticks.popitem(last=False)
        known.append(traced)
        known.sort(key=lambda each: (each.execution.attempt, each.execution.started_at))
        if execution.outcome != "not-started":
            yield from self._twice(
                [each for each in known if each.execution.outcome != "not-started"], traced
            )

    def _ask(self, execution: Execution) -> list[Traced]:
        return [
            each
            for each in _attempts(self._question.log, execution)
            if each.execution.execution_id != execution.execution_id
            and each.execution.started_at <= execution.started_at
        ]

    def _twice(self, attempts: list[Traced], new: Traced) -> Iterator[Finding]:
        at = attempts.index(new)
        for first, second in itertools.pairwise(attempts[max(at - 1, 0) : at + 2]):
            if _has_a_reason(first, second) or self._store_has_a_reason(first, second):
                continue
            one, other = first.execution, second.execution
            yield _finding(
                "twice",
                other,
                f"{_label(other)} started the tick again (attempt {other.attempt}) after {_label(one)}, and no "
                "--again, retry or failover explains it",
                one,
            )

    def _store_has_a_reason(self, first: Traced, second: Traced) -> bool:
        """Return whether the store explains the attempt: a separate log may not have the loss on record."""
        if self._question.store is self._question.log:
            return False
        known = {
            each.execution.fencing_token: each
            for each in _attempts(self._question.store, second.execution)
        }
        one = known.get(first.execution.fencing_token)
        other = known.get(second.execution.fencing_token)
        return one is not None and other is not None and _has_a_reason(one, other)


def _attempts(log: Reader, execution: Execution) -> Iterator[Traced]:
    query = HistoryQuery(key=execution.key, tick=execution.tick, limit=None)
    traced = log.traced(query)
    return (each for each in traced if each.execution.shard == execution.shard)


def _has_a_reason(first: Traced, second: Traced) -> bool:
    """Return whether an attempt may have followed the one before it.

    It may where a person asked for it, where the one before was lost, where a firing retried its own failure, where
    another host took over because the host of a failed attempt died before the next one, or where `each` resumed a slot
    that was stopped: only that one takes over what was stopped.
    """
    before, after = first.execution, second.execution
    if after.cause == "manual" or before.outcome == "lost" or first.lost_at is not None:
        return True
    retried = after.cause == "retry" and before.owner == after.owner
    return before.outcome in _TRIED_AGAIN and (after.cause == "takeover" or retried)


def _no_end(traced: Traced, clock: Clock) -> Finding:
    execution = traced.execution
    when = f" at {clock.seconds(traced.lost_at)}" if traced.lost_at else ""
    return _finding(
        "no-end", execution, f"{_label(execution)} was declared lost{when} and has no end on record"
    )


def _without_end(question: Question, endless: list[Execution]) -> Iterator[Finding]:
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
        if now and now.outcome == "running" and _name(now) not in living:
            yield _finding(
                "no-end", now, f"{_label(now)} is recorded as running, but its lease has ended"
            )
