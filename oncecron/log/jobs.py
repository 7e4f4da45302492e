"""One line a key: its last outcome, where it runs, its usual duration, when it is due, whether it is paused.

The outcome is that of a tick: of several attempts the last counts, of several shards the worst. A tick has not ended
while a shard runs or a lease is kept for the next attempt. An execution that is recorded as running but has no living
lease has ended. One without a tick that was cut short has not, as long as another one runs.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.clock import is_ahead
from oncecron.core.log_rows import HistoryQuery, is_failure, is_success, pauses_of
from oncecron.core.text import count
from oncecron.core.timing import LEAST_SILENCE, MISSED_AFTER
from oncecron.log.job_summary import (
    DOUBTFUL,
    FIRST_LOOK,
    NO_END,
    STREAK_AT_MOST,
    JobSummary,
    by_key,
    has_failed,
    is_living,
    is_lost,
    is_slow,
)
from oncecron.log.missed import Known, dues, paused_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from oncecron.core.log_rows import Execution, JobKey, LeaseView, Pause
    from oncecron.log.missed import Due
    from oncecron.log.sources import Sources
    from oncecron.stores.reader import Reader

    Row = TypeVar("Row", Execution, LeaseView)

WRONG = {
    **dict.fromkeys(("missed", "lost", "failed", "silent"), 2),
    **dict.fromkeys(("stopped", "overdue", "slow", "overrun", *DOUBTFUL), 1),
}
"""The states in which something is wrong with a key, and how bad that is."""
USUAL_OF = 20
"""Successes whose median is the usual duration."""


class State(NamedTuple):
    """A state of a key."""

    word: str | None
    """A key of `WRONG`, `catch-up`, `running`, `paused` or `ok`; None: it has not run yet, and nothing is due."""
    count: int = 0  # type: ignore[assignment]  # nobody counts in a tuple
    """How many ticks are meant; 0: it is not about a number of ticks."""


def states(job: JobSummary) -> list[State]:
    """Return all that is wrong with a key, the worst first, then that it runs if it does; else its one state."""
    was_stopped = job.outcome == "stopped" and job.stopped_by is not None
    wrong = (
        (is_lost(job), State("lost")),
        (has_failed(job), State("failed")),
        (job.missed, State("missed", job.missed)),
        (job.silent_since is not None, State("silent")),
        (job.lease in DOUBTFUL, State(job.lease)),
        (was_stopped and job.lease is None, State("stopped")),
        (job.overdue is not None, State("overdue")),
        (job.slow, State("slow")),
        (job.overruns, State("overrun", job.overruns)),
    )
    found = [state for is_so, state in wrong if is_so]
    if job.catching_up:
        found.append(State("catch-up", job.catching_up))
    if job.lease == "held":
        found.insert(1, State("running"))
    return found or [State(_word_where_well(job))]


def severity(job: JobSummary, sign: int = -1) -> tuple[int, int, str]:
    """Return where a person wants to see a key: what is wrong comes first, and then what runs; last with `sign` 1."""
    return sign * WRONG.get(str(job.state), 0), sign * bool(job.running_on), job.key


def in_words(found: Collection[JobSummary], *, besides: bool = False) -> str:
    """Return how many keys are in which wrong state, by the worst of each: `12 missed of 36 keys; 1 paused`.

    `besides`: whether something else is wrong.
    """
    counts = Counter(str(job.state) for job in found)
    wrong = ", ".join(f"{counts[word]} {word}" for word in WRONG if counts[word])
    of = f"{wrong} of" if wrong else f"nothing {'else ' * besides}is wrong with"
    paused = counts["paused"]
    return f"{of} {count(len(found), 'key')}" + (f"; {paused} paused" if paused else "")


def _word_where_well(job: JobSummary) -> str | None:
    if job.paused_by is not None:
        return "paused"
    return None if job.outcome is None else "ok"


class _Past(NamedTuple):
    newest: list[Execution]
    ended: Execution | None
    success: Execution | None
    failure: Execution | None
    successes: int
    failures: int
    usual: float | None


def jobs(
    sources: Sources,
    keys: Collection[str] = (),
    *,
    internal: bool = True,
    brief: bool = False,
    missed_after: float = MISSED_AFTER,
) -> Iterator[JobSummary]:
    """Yield every key by name, or only `keys`. However many there are, each store is asked a few questions.

    `internal`: among all keys also those of what oncecron runs for itself.

    `brief`: only findings are wanted. Of a key that is well, its newest execution alone is read, so how many succeeded
    in a row, its last failure and its usual duration are not known.
    """
    now, log = sources.now, sources.log
    running = by_key(lease for lease in sources.leases if is_living(lease))
    asked_at = max((lease.asked_at for lease in sources.leases), default=now)
    shards = sources.shards(keys, internal=internal)
    some = keys or None
    newest = _newest_in_brief(log, some, shards, running, now) if brief else _newest(log, some)
    pasts = {
        key: _past(log, key, newest.get(key, []), running.get(key, []), asked_at)
        for key in sorted(shards)
    }
    known_keys = {
        key: Known(
            *(shards[key], past.newest, *paused_time(key, sources.pauses)),
            in_vain=sources.in_vain.get(key, ()),
            runs=key in running,
        )
        for key, past in pasts.items()
    }
    more = functools.partial(_newest, log) if brief else None
    due = dues(known_keys, log.reasons, now, more, missed_after, lambda: sources.key_hosts)
    for key, past in pasts.items():
        job = _job(known_keys[key], past, running.get(key, []), due[key], sources)
        yield job._replace(place=_place(sources, past.newest)) if keys and not brief else job


def _place(sources: Sources, newest: Sequence[Execution]) -> str | None:
    """Return the place of an attempt that has not succeeded; executions come without what may be long."""
    if not newest or newest[0].outcome == "succeeded":
        return None
    return sources.place_of(newest[0])


def _newest_in_brief(
    log: Reader,
    keys: Collection[str] | None,
    shards: Mapping[str, Sequence[JobKey]],
    running: Mapping[str, Sequence[LeaseView]],
    now: float,
) -> dict[str, list[Execution]]:
    found = by_key(log.newest(1, keys))
    unclear = [
        key
        for key, known in shards.items()
        if key in running or key not in found or not _is_well(found[key][0], known, now)
    ]
    return found | _newest(log, unclear) if unclear else found


def _is_well(newest: Execution, shards: Sequence[JobKey], now: float) -> bool:
    is_whole = newest.shards == 1 and all(each.shard == newest.shard for each in shards)
    if any(is_ahead(each.high_water or 0.0, now) for each in shards):
        return False
    # Without a schedule, a key that has started so recently cannot be silent: its older starts are not needed.
    has_habit_for_now = (
        any(each.expected for each in shards) or newest.started_at > now - LEAST_SILENCE
    )
    return (
        newest.outcome == "succeeded" and newest.tick is not None and is_whole and has_habit_for_now
    )


def _newest(log: Reader, keys: Collection[str] | None) -> dict[str, list[Execution]]:
    found = by_key(log.newest(FIRST_LOOK, keys))
    unclear = [
        key
        for key, newest in found.items()
        if len(newest) == FIRST_LOOK and (newest[0].shards > 1 or not any(map(is_success, newest)))
    ]
    return found | by_key(log.newest(STREAK_AT_MOST, unclear)) if unclear else found


def _pause_of(key: str, pauses: Iterable[Pause]) -> Pause | None:
    """Return the pause that lasts longest; of two that last as long, the key's own."""
    found = (pause for pause in pauses if pause.key in pauses_of(key))
    return max(found, key=lambda pause: (pause.until or math.inf, pause.key == key), default=None)


def as_known(execution: Execution, leases: Iterable[LeaseView], now: float) -> Execution:
    """Return it, where it is recorded as running, with what is true of it by `leases`.

    `NO_END`: it has no active lease. One of `DOUBTFUL`: the holder of its lease seems dead. An execution that started
    after the leases were read is running. They were read at `now` where there is none.
    """
    if execution.outcome != "running":
        return execution
    for lease in leases:
        ours = (lease.shard, lease.fencing_token) == (execution.shard, execution.fencing_token)
        if ours and is_living(lease):
            return execution._replace(outcome=lease.state if lease.state in DOUBTFUL else "running")
    asked = next((lease.asked_at for lease in leases), now)
    return execution._replace(outcome=NO_END) if execution.started_at < asked else execution


def as_is(
    found: Iterable[Execution], leases: Iterable[LeaseView], now: float
) -> Iterator[Execution]:
    """Yield executions `as_known`, by leases that were read before them."""
    of_keys = by_key(leases)
    return (as_known(each, of_keys.get(each.key, ()), now) for each in found)


def dead_letters(
    log: Reader, query: HistoryQuery, leases: Iterable[LeaseView]
) -> Iterator[Execution]:
    """Yield the last attempts of ticks that were given up.

    Attempts whose lease is kept for a retry are left out, by token: a separate log has no leases.
    """
    kept = {(each.key, each.shard, each.fencing_token) for each in leases if is_living(each)}
    for each in log.history(query._replace(exhausted=True)):
        if (each.key, each.shard, each.fencing_token) not in kept:
            yield each


def _past(
    log: Reader,
    key: str,
    found: Sequence[Execution],
    running: Sequence[LeaseView],
    asked_at: float,
) -> _Past:
    newest = [as_known(each, running, asked_at) for each in found]
    living = {(lease.shard, lease.fencing_token) for lease in running}
    every = _ended(newest, living)
    ended = _not_gone_on_with(every, newest, living)
    last = next(iter(ended or newest), None)
    if last and running and not ended:
        word = _state_of(running)
        outcome = word if word in DOUBTFUL else "running"
        last = last._replace(outcome=str(outcome), exit_code=None, signal=None)
    well = [each for each in ended if is_success(each)]
    successes = _successes(log, key, newest)
    if newest and newest[0].shards > 1 and not well:
        successes = []  # of single shards
    durations = [each.duration for each in successes if each.duration is not None]
    well = well or successes
    return _Past(
        newest,
        last,
        well[0] if well else None,
        next(filter(is_failure, every), None),
        *_in_a_row(ended),
        statistics.median(durations) if durations else None,
    )


def _in_a_row(ended: Sequence[Execution]) -> tuple[int, int]:
    ended = [each for each in ended if is_success(each) or is_failure(each)]
    well = len([*itertools.takewhile(is_success, ended)])
    badly = len([*itertools.takewhile(lambda each: not is_success(each), ended)])
    return min(well, FIRST_LOOK), min(badly, STREAK_AT_MOST)


def _successes(log: Reader, key: str, newest: Sequence[Execution]) -> list[Execution]:
    successes = [each for each in newest if is_success(each)][:USUAL_OF]
    if not successes and len(newest) == STREAK_AT_MOST:
        return list(log.history(HistoryQuery(key=key, outcomes=["succeeded"], limit=USUAL_OF)))
    return successes


def _ended(newest: Sequence[Execution], living: set[tuple[int, int | None]]) -> list[Execution]:
    """Return one execution for each tick that has ended, the one with the tick's outcome; newest tick first."""
    ticks: dict[str, dict[int, Execution]] = {}
    for each in newest:
        last = ticks.setdefault(each.tick or each.owner, {})
        before = last.get(each.shard)
        if each.outcome != "not-started" and (not before or before.attempt < each.attempt):
            last[each.shard] = each
    if len(newest) == STREAK_AT_MOST and len(ticks) > 1 and newest[-1].shards > 1:
        del ticks[newest[-1].tick or newest[-1].owner]  # its other shards are older
    return [
        _of_all(shards.values())
        for shards in ticks.values()
        if shards
        and not any(
            each.outcome == "running" or (each.shard, each.fencing_token) in living
            for each in shards.values()
        )
    ]


def _not_gone_on_with(
    ended: Sequence[Execution], newest: Iterable[Execution], living: set[tuple[int, int | None]]
) -> Sequence[Execution]:
    """Leave out the newest runs without a tick that were cut short, if another one runs: it goes on with their work.

    So a standby judges, too (`core.decision`, step 4). Of a tick, which has not run then, it stays.
    """
    if not any(each.tick is None and (each.shard, each.fencing_token) in living for each in newest):
        return ended
    return [*itertools.dropwhile(_was_cut_short, ended)]


def _was_cut_short(execution: Execution) -> bool:
    is_lost = execution.outcome in ("lost", NO_END)
    with_its_host = execution.outcome == "stopped" and execution.requested_by is None
    return execution.tick is None and (is_lost or with_its_host)


def _of_all(shards: Iterable[Execution]) -> Execution:
    by_age = sorted(shards, key=lambda each: each.execution_id, reverse=True)
    return next((each for each in by_age if not is_success(each)), by_age[0])


def _job(
    known: Known, past: _Past, running: Sequence[LeaseView], due: Due, sources: Sources
) -> JobSummary:
    ended, success, failure = past.ended, past.success, past.failure
    key, work = known.shards[0].key, sources.work
    pause = _pause_of(key, sources.pauses)
    expected = next((shard.expected for shard in known.shards if shard.expected), None)
    since = [at for lease in running if (at := _runs_since(lease, past.newest)) is not None]
    forgotten = _forgotten(known.shards)
    names = ("outcome", "exit_code", "signal", "started_at", "host", "tick")
    of_end: dict[str, Any] = {name: getattr(ended, name, None) for name in names}
    job = JobSummary(
        key=key,
        **of_end,
        succeeded_at=(success.finished_at or success.started_at) if success else None,
        failed_at=(failure.finished_at or failure.started_at) if failure else None,
        running_on=tuple(sorted({lease.host or "?" for lease in running})),
        running_since=min(since, default=None),
        successes=past.successes,
        failures=past.failures,
        usual_duration=past.usual,
        **due._asdict(),
        paused_by=pause.author if pause else None,
        paused_until=pause.until if pause else None,
        paused_reason=pause.reason if pause else None,
        schedule=expected.schedule if expected else None,
        zone=expected.zone if expected else None,
        progress=work.newest(key),
        settled=ended is not None and work.is_settled(ended),
        forgotten_at=forgotten.forgotten_at if forgotten else None,
        forgotten_by=forgotten.forgotten_by if forgotten else None,
        retired=forgotten is not None and not (expected or known.in_vain),
        stopped_by=ended.requested_by if ended and ended.outcome == "stopped" else None,
        lease=_state_of(running),
    )
    job = job._replace(slow=is_slow(job, sources.now))
    return job._replace(state=states(job)[0].word)


def _state_of(leases: Sequence[LeaseView]) -> str | None:
    words = [lease.state for lease in leases]
    return next((word for word in DOUBTFUL if word in words), "held" if words else None)


def _runs_since(lease: LeaseView, newest: Iterable[Execution]) -> float | None:
    for each in newest:
        if (each.shard, each.fencing_token) == (lease.shard, lease.fencing_token):
            return each.started_at if each.outcome in ("running", *DOUBTFUL) else None
    return lease.acquired_at


def _forgotten(shards: Sequence[JobKey]) -> JobKey | None:
    last = max(shards, key=lambda each: each.forgotten_at or 0.0)
    newest = max(each.last_start or 0.0 for each in shards)
    return last if last.forgotten_at is not None and last.forgotten_at > newest else None
