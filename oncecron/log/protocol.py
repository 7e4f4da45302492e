"""What the log alone shows of the protocol: pure functions of executions, and the finding that each breach is.

`oncecron audit` judges production by them, and the checker of the drill and of the proofs the logs that these leave.

    overlap    two executions of one shard of a key ran at the same time
    lease      an execution was started while the lease of another one of its shard lived
    twice      a tick was started again, although no --again, no loss and no retry or failover explains it
    gap        an attempt of a tick without the one before it
    token      a fencing token that is not higher than the token of an earlier start
    late-end   an execution ended after its lease had been taken away
    in-pause   an execution was started under a pause, or on a drained host
    record     the fields of an execution contradict each other

The rules see the executions of one shard in the order of starts. An execution ends at its start (store's clock) plus
its duration (the host's monotonic clock), or at `finished_at` where that is earlier. Where an end was recorded late,
`finished_at` is from the host's clock and cannot be compared with the next start. Of pauses only those are known that
have not ended: a store forgets a pause with its end.
"""

from __future__ import annotations

import collections
import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.clock import is_ahead
from oncecron.core.log_rows import is_internal, pauses_of
from oncecron.core.timing import CLOCK_ROUNDING
from oncecron.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import Execution, Pause, Traced
    from oncecron.core.text import Clock

    Name = tuple[str, int, int | None]
    Attempts = Callable[[Execution], Sequence[Traced]]

_ONE_STEP = 0.5
"""A loss and the start that found it are one step, but a store may read its clock twice for them."""

_TICKS_REMEMBERED = 256  # of a shard; older ones are read from the log again
_STARTS_REMEMBERED = 8  # between two attempts of one owner nobody else starts at all
FAILED = ("failed", "timed-out")
"""The outcomes after which a firing may retry."""
_WITHOUT_JOB = ("not-started", "unclaimed")
_BY_THE_STORE = ("expired", "released")
_BY_THE_HOLDER = ("not-renewed", "guard-hung")
_BY_THE_WRAPPER = ("guard-killed", "guard-failed")
"""It cannot tell when the job ended: only that it had by then."""

_LOST_WRITE = "look for a failover, a restored backup or deleted rows of the store"
_WHAT_TO_DO = {
    "overlap": "check what both have done",
    "lease": f"check what both have done, and {_LOST_WRITE}",
    "twice": f"check what both have done, and {_LOST_WRITE}",
    "gap": _LOST_WRITE,
    "token": _LOST_WRITE,
    "late-end": "its host was frozen, or a clock was set: check what it did after that time",
    "in-pause": "the store had lost the pause, or a clock was set back; `oncecron stop {key}` ends the run",
    "record": "the row was damaged, or changed by hand: compare it with the job's own log",
}
RULES = tuple(_WHAT_TO_DO)


class Breach(NamedTuple):
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


class Known(NamedTuple):
    """What the rules know beside the rows."""

    clock: Clock
    held: Mapping[Name, float] = {}
    """The executions whose lease was alive, and when it was."""
    pauses: Collection[Pause] = ()
    """Those that have not ended."""
    now: float = math.inf
    kept_since: float = -math.inf
    """Retention may have removed what started before."""
    attempts: Attempts = lambda _execution: ()
    """Reads all attempts of the tick of an execution, in its shard."""
    elsewhere: Attempts = lambda _execution: ()
    """The same of the store, where the log is another one: it may lack what the store has on record."""


# One execution, or two


def label(execution: Execution) -> str:
    """Return an execution in words."""
    text = f"execution {execution.execution_id} on {execution.host}"
    return f"{text} (unclaimed: no lease)" if execution.outcome == "unclaimed" else text


def found(
    finding: str, execution: Execution, reason: str, other: Execution | None = None
) -> Breach:
    """Return what is wrong with an execution, with what that calls for."""
    todo = _WHAT_TO_DO.get(finding, "").format(key=execution.key)
    return Breach(
        finding, execution.key, execution.shard, execution.tick, None, 1, execution.started_at,
        execution.execution_id, other.execution_id if other else None, f"{reason}; {todo}" if todo else reason,
    )  # fmt: skip


def name_of(execution: Execution) -> Name:
    """Return what names an execution in the log and in the store alike: a separate log has ids of its own."""
    return execution.key, execution.shard, execution.fencing_token


def was_lost(execution: Execution) -> bool:
    """Return whether an execution was declared lost, whatever was recorded of it later."""
    return execution.outcome == "lost" or execution.lost_reason is not None


def ended_at(execution: Execution) -> float:
    """Return until when an execution certainly ran."""
    if execution.lost_reason in _BY_THE_WRAPPER:
        return execution.started_at
    ends = [] if execution.finished_at is None else [execution.finished_at]
    if execution.duration is not None:
        ends.append(execution.started_at + execution.duration)
    return min(ends, default=execution.started_at)


def contradiction(execution: Execution) -> str | None:
    """Return what the fields of one execution say that cannot be, whatever happened."""
    outcome, code, signal = execution.outcome, execution.exit_code, execution.signal
    if code is not None and signal is not None:
        return f"has exit code {code} and signal {signal}"
    if outcome in ("succeeded", *FAILED) and code is None and signal is None:
        return f"is recorded as {outcome} without exit code and signal"
    if (outcome == "succeeded" and code != 0) or (outcome == "failed" and code == 0):
        return f"is recorded as {outcome} with exit code {code}"
    if execution.fencing_token is None and outcome not in _WITHOUT_JOB:
        return f"is recorded as {outcome} without a fencing token"
    if execution.cause in ("retry", "takeover") and execution.tick and execution.attempt == 1:
        return f"is attempt 1 of its tick, and has the cause {execution.cause}"
    return None


def why_not_again(first: Execution, second: Execution, *, lost: bool) -> str | None:
    """Return why an attempt must not follow the one before it (`lost`: whose lease was lost).

    It may where a person asked for it, where a firing retried its own failure, and where another one took over after a
    loss, after a failed attempt whose host died before the next one, or as `each` resumes a slot that was stopped.
    """
    recorded = f"the first is recorded as {first.outcome}"
    if second.cause == "manual":
        return None
    if second.cause == "retry":
        if first.owner != second.owner:
            return "a retry of what another firing had started"
        return None if first.outcome in FAILED else f"{recorded}: only what failed is tried again"
    if second.cause == "takeover":
        is_over = not lost and first.outcome not in ("lost", "stopped", *FAILED)
        return f"{recorded}, and was not lost" if is_over else None
    return "no --again, retry or failover explains it"


# One shard, in the order of starts


class ShardRules:
    """All rules of one shard of a key; only some last starts and ticks are in memory."""

    def __init__(self, known: Known) -> None:
        self._rules = (_Starts(known), _Overlaps(known), _Tokens(), _Alone(known), _Kept())

    def see(self, traced: Traced) -> Iterator[Breach]:
        """Look at the next start."""
        return itertools.chain.from_iterable(rule.see(traced) for rule in self._rules)


class _Overlaps:
    """Find overlaps: remembers what has run until the latest time so far, and whose lease has lived.

    In a store whose clock was set back, a later start has an earlier time and a higher token: times prove nothing then.
    A token is at least the time of the clock, in microseconds: one ahead of its start tells what that clock had read.
    """

    def __init__(self, known: Known) -> None:
        self._clock = known.clock
        self._held = known.held
        self._ran, self._leased = _Until(), _Until()

    def see(self, traced: Traced) -> Iterator[Breach]:
        execution = traced.execution
        if execution.outcome == "not-started":
            return
        ran, leased = self._ran, self._leased
        if ran.is_after(execution):
            is_over = ran.execution.outcome != "running"
            end = f"ran until {self._clock.exactly(ran.until)}" if is_over else "is still running"
            yield self._beside("overlap", execution, ran.execution, end)
        elif leased.is_after(execution) and execution.fencing_token is not None:
            end = f"had its lease until {self._clock.exactly(leased.until)}"
            yield self._beside("lease", execution, leased.execution, end)
        held_at = self._held.get(name_of(execution))
        ran.note(execution, _ran_until(traced, held_at))
        leased.note(execution, held_at or _leased_until(traced))

    def _beside(self, rule: str, execution: Execution, other: Execution, end: str) -> Breach:
        started = f"{label(execution)} started at {self._clock.exactly(execution.started_at)}"
        reason = f"{started}, but {label(other)} of tick {other.tick or '-'} {end}"
        return found(rule, execution, reason, other)


class _Until:
    def __init__(self) -> None:
        self.until = -math.inf
        self.execution: Execution

    def is_after(self, execution: Execution) -> bool:
        """Return whether it still lasted at a start, and had not been granted later."""
        if execution.started_at >= self.until - CLOCK_ROUNDING:
            return False
        one, other = self.execution.fencing_token, execution.fencing_token
        if one is None or other is None:
            return True
        by_the_clock = _clock_of(one) <= self.execution.started_at + CLOCK_ROUNDING
        is_over = (
            self.execution.outcome != "running" and by_the_clock and _clock_of(other) >= self.until
        )
        return one <= other and not is_over

    def note(self, execution: Execution, until: float) -> None:
        """Look at the end of the next one."""
        if until >= self.until:
            self.until, self.execution = until, execution


def _ran_until(traced: Traced, held_at: float | None) -> float:
    """Return until when an execution certainly ran: one without an end until it was declared lost."""
    execution = traced.execution
    if execution.outcome == "running":
        return held_at or execution.started_at
    if execution.outcome == "lost" and execution.duration is None:
        return _leased_until(traced)
    return ended_at(execution)


def _leased_until(traced: Traced) -> float:
    """Return until when the lease of an execution certainly lived, by its loss; `superseded` is found out later."""
    is_known = traced.lost_at is not None and traced.execution.lost_reason in _BY_THE_STORE
    until = (traced.lost_at or 0.0) - _ONE_STEP if is_known else -math.inf
    return max(traced.execution.started_at, until)


class _Kept:
    def __init__(self) -> None:
        self._last: collections.deque[Execution] = collections.deque(maxlen=_STARTS_REMEMBERED)

    def see(self, traced: Traced) -> Iterator[Breach]:
        execution = traced.execution
        token = execution.fencing_token
        if token is None:
            return
        if execution.cause == "retry":
            others = itertools.takewhile(
                lambda each: each.owner != execution.owner, reversed(self._last)
            )
            between = list(others)
            if len(between) < len(self._last):
                before = self._last[-1 - len(between)].fencing_token or 0
                for other in reversed(between):
                    if before < (other.fencing_token or 0) < token:
                        yield found(
                            "lease", other, f"{label(other)} was started between two attempts of "
                            f"{label(execution)}, which kept its lease meanwhile", execution,
                        )  # fmt: skip
        self._last.append(execution)


class _Tokens:
    """Find tokens that do not rise: remembers the highest so far.

    In a store whose clock was set back, later starts have earlier times. So a lower token is a finding only where the
    execution ids also say that the other start came first.
    """

    def __init__(self) -> None:
        self._highest: Execution | None = None

    def see(self, traced: Traced) -> Iterator[Breach]:
        execution, highest = traced.execution, self._highest
        token = execution.fencing_token
        if token is None or execution.outcome == "not-started":
            return
        if highest and highest.fencing_token is not None:
            same = token == highest.fencing_token
            if same or (
                token < highest.fencing_token and execution.execution_id > highest.execution_id
            ):
                reason = (
                    f"{label(execution)} has token {token}, not higher than token {highest.fencing_token} of the "
                    f"earlier {label(highest)}"
                )
                yield found("token", execution, reason, highest)
            if token < highest.fencing_token:
                return
        self._highest = execution


class _Alone:
    def __init__(self, known: Known) -> None:
        self._known = known

    def see(self, traced: Traced) -> Iterator[Breach]:
        execution = traced.execution
        if what := contradiction(execution):
            yield found("record", execution, f"{label(execution)} {what}")
        if execution.outcome not in _WITHOUT_JOB:
            yield from self._in_a_pause(execution)
            yield from self._after_its_loss(traced)

    def _in_a_pause(self, execution: Execution) -> Iterator[Breach]:
        for pause in self._known.pauses:
            is_drain = pause.host is not None
            concerned = (
                execution.host == pause.host and not is_internal(execution.key)
                if is_drain
                else pause.key in pauses_of(execution.key)
            )
            if (
                concerned
                and execution.started_at > pause.since + _ONE_STEP
                and not is_ahead(execution.started_at, self._known.now)
            ):
                since = self._known.clock.exactly(pause.since)
                what = "its host has been drained" if is_drain else "its key has been paused"
                started = self._known.clock.exactly(execution.started_at)
                yield found(
                    "in-pause", execution,
                    f"{label(execution)} started at {started}, but {what} since {since} by {pause.author}",
                )  # fmt: skip

    def _after_its_loss(self, traced: Traced) -> Iterator[Breach]:
        """Yield an end after the store had taken the lease; of `revoked` it is right that its holder came late."""
        execution, lost_at = traced.execution, traced.lost_at
        is_told = execution.lost_reason in (*_BY_THE_STORE, *_BY_THE_HOLDER)
        if lost_at is None or not is_told or ended_at(execution) <= lost_at + _ONE_STEP:
            return
        ended, lost = map(self._known.clock.exactly, (ended_at(execution), lost_at))
        yield found(
            "late-end",
            execution,
            f"{label(execution)} ended at {ended}, but its lease was taken away at {lost}",
        )


class _Starts:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._ticks: collections.OrderedDict[str, list[Traced]] = collections.OrderedDict()

    def see(self, traced: Traced) -> Iterator[Breach]:
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
            yield from self._twice(known, traced)
        yield from self._gap(known, traced)

    def _ask(self, execution: Execution) -> list[Traced]:
        return [
            each
            for each in self._known.attempts(execution)
            if each.execution.execution_id != execution.execution_id
            and each.execution.started_at <= execution.started_at
        ]

    def _twice(self, known: list[Traced], new: Traced) -> Iterator[Breach]:
        """Judge an attempt by its neighbours.

        One that is missing between them may come later in this order, if the store's clock was set back.
        """
        seen = {each.execution.attempt for each in known}
        attempts = [each for each in known if each.execution.outcome != "not-started"]
        at = attempts.index(new)
        for first, second in itertools.pairwise(attempts[max(at - 1, 0) : at + 2]):
            one, other = first.execution, second.execution
            if not seen.issuperset(range(one.attempt + 1, other.attempt)):
                continue
            why = _why_not_after(known, first, second)
            if why and not self._store_explains(first, second):
                reason = f"{label(other)} started the tick again (attempt {other.attempt}) after {label(one)}: {why}"
                yield found("twice", other, reason, one)

    def _store_explains(self, first: Traced, second: Traced) -> bool:
        """Return whether the store explains the attempt: a separate log may not have the loss on record."""
        elsewhere = self._known.elsewhere(second.execution)
        by_token = {each.execution.fencing_token: each for each in elsewhere}
        one, other = (by_token.get(each.execution.fencing_token) for each in (first, second))
        return one is not None and other is not None and not _why_not_after(elsewhere, one, other)

    def _gap(self, attempts: list[Traced], new: Traced) -> Iterator[Breach]:
        """Yield an attempt without the one before: that may be out of the log by its age, or not yet be in it."""
        execution, missing = new.execution, new.execution.attempt - 1
        if missing == 0 or _has(attempts, missing) or self._may_be_pruned(new, attempts):
            return
        known = self._known
        if not _has(known.attempts(execution), missing) and not _has(
            known.elsewhere(execution), missing
        ):
            reason = f"{label(execution)} is attempt {execution.attempt}, and attempt {missing} is not on record"
            yield found("gap", execution, reason)

    def _may_be_pruned(self, new: Traced, attempts: Iterable[Traced]) -> bool:
        """Return whether the attempt before may be older than the log: a person may repeat any tick."""
        execution = new.execution
        since = new.instant
        if since is None:
            earlier = [
                each.execution.started_at
                for each in attempts
                if each.execution.attempt < execution.attempt
            ]
            soon = (
                execution.started_at - DAY
                if execution.cause in ("retry", "takeover")
                else -math.inf
            )
            since = min(earlier, default=soon)
        return since < self._known.kept_since + DAY


def _has(attempts: Iterable[Traced], number: int) -> bool:
    return any(each.execution.attempt == number for each in attempts)


def _clock_of(token: int) -> float:
    """Return what the store's clock reads at a token that is not ahead of it (POSIX)."""
    return token / 1e6


def _why_not_after(attempts: Iterable[Traced], first: Traced, second: Traced) -> str | None:
    """Return why an attempt must not follow another: it may take over from what was lost before its job began.

    That must itself be right after the first.
    """
    between = [
        each
        for each in attempts
        if first.execution.attempt < each.execution.attempt < second.execution.attempt
        and each.execution.outcome == "not-started"
        and each.lost_at is not None
    ]
    between.sort(key=lambda each: each.execution.attempt)
    chain = itertools.pairwise([first, *between, second])
    is_explained = between and not any(_why_not_again(*each) for each in chain)
    return None if is_explained else _why_not_again(first, second)


def _why_not_again(first: Traced, second: Traced) -> str | None:
    lost = first.lost_at is not None
    return why_not_again(first.execution, second.execution, lost=lost)
