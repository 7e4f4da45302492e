"""One line a key: its last outcome, where it runs, its usual duration, when it is due, whether it is paused.

The outcome is that of a tick: of several attempts the last counts, of several shards the worst. A tick has not ended
while a shard runs or a lease is kept for the next attempt. An execution that is recorded as running but has no living
lease has ended.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.clock import is_ahead
from oncecron.core.expected import paused_since
from oncecron.core.log_rows import ALL_KEYS, HistoryQuery
from oncecron.core.missed import Known, dues
from oncecron.core.timing import LEAST_SILENCE
from oncecron.each.reports import is_settled, newest_lists

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from oncecron.core.log_rows import Execution, JobKey, LeaseView, Pause
    from oncecron.core.missed import Due
    from oncecron.each.reports import ListView
    from oncecron.stores.api import Inspector

    Row = TypeVar("Row", Execution, LeaseView)

FIRST_LOOK = 25
"""Executions of each key that are read at first; a longer streak of successes is not counted further."""

STREAK_AT_MOST = 100
"""Executions of a key that are read if it has shards, or no success among the first: no longer streak is counted."""

USUAL_OF = 20
"""Successes whose median is the usual duration."""


NO_END = "no-end"
"""The outcome that is shown instead of `running` where the lease has ended."""


class JobSummary(NamedTuple):
    """A key at a glance, in the order of its published fields."""

    key: str
    outcome: str | None
    """Of the newest tick, or firing without a tick, that has ended; `running` where none has ended and one runs."""
    exit_code: int | None
    signal: int | None
    started_at: float | None
    succeeded_at: float | None
    """When its newest success ended."""
    failed_at: float | None
    """When its newest end that was no success was."""
    running_host: str | None
    """Several hosts, joined by commas, where shards of the key run on them."""
    running_since: float | None
    streak: int
    """How many ticks in a row succeeded, at most `FIRST_LOOK`, or did not succeed, at most `STREAK_AT_MOST`."""
    usual_duration: float | None
    next_at: float | None
    overdue: str | None
    """The first tick that is due and not started, as long as none is missed."""
    missed: int
    """How many ticks are missed since its newest start; at most `MISSED_AT_MOST`."""
    first_missed: str | None
    last_missed: str | None
    overruns: int
    """How many ticks since its newest start were skipped because an earlier run was still running."""
    silent_since: float | None
    """Of a key without a schedule: its newest start, if the next one should have come long ago."""
    paused_by: str | None
    paused_until: float | None
    paused_reason: str | None
    schedule: str | None
    zone: str | None
    items_ended: int | None = None
    """How many items of its newest list are done, lost or dead."""
    items_total: int | None = None
    settled: bool = False
    """Whether `outcome` is no success, but of a slot of `each`, and all items of its tick are done by now."""


class _Past(NamedTuple):
    """What the log has on a key."""

    newest: list[Execution]
    ended: Execution | None
    success: Execution | None
    failure: Execution | None
    streak: int
    usual: float | None


def jobs(
    store: Inspector,
    log: Inspector,
    now: float,
    keys: Collection[str] | None = None,
    *,
    leases: Sequence[LeaseView] | None = None,
    lists: Sequence[ListView] | None = None,
    known: Iterable[JobKey] | None = None,
    pauses: Sequence[Pause] | None = None,
    judged: bool = False,
) -> Iterator[JobSummary]:
    """Yield every key by name, or only `keys`.

    Leases, pauses, schedules and lists of items come from `store`, executions from `log`. `leases`, `lists`, `known`
    and `pauses` are those of the store, if the caller has asked for them. However many keys there are, each store is
    asked a few questions.

    `judged`: only findings are wanted. Of a key that is well, its newest execution alone is read, so its streak, its
    last failure and its usual duration are not known.
    """
    shards: dict[str, list[JobKey]] = {}
    of_store = store.job_keys() if known is None else known
    for shard in itertools.chain(of_store, () if log is store else log.job_keys()):
        if keys is None or shard.key in keys:
            shards.setdefault(shard.key, []).append(shard)
    pauses = store.pauses() if pauses is None else pauses
    leases = store.leases() if leases is None else leases
    running = _by_key(lease for lease in leases if is_living(lease, now))
    asked = max((lease.asked_at or now for lease in leases), default=now)
    newest = _judged(log, keys, shards, running, now) if judged else _newest(log, keys)
    pasts = {
        key: _past(log, key, newest.get(key, []), running.get(key, []), asked)
        for key in sorted(shards)
    }
    known_keys = {
        key: Known(shards[key], past.newest, paused_since(key, pauses))
        for key, past in pasts.items()
    }
    due = dues(known_keys, log, now, functools.partial(_newest, log) if judged else None)
    by_name = {pause.key: pause for pause in pauses}
    lists = store.item_lists() if lists is None else lists
    listed = newest_lists(lists)
    for key, past in pasts.items():
        job = _job(key, shards[key], past, running.get(key, []), _pause_of(key, by_name), due[key])
        counts = listed[key].counts if key in listed else None
        yield (
            job
            if counts is None
            else job._replace(
                items_ended=counts.ended,
                items_total=counts.total,
                settled=past.ended is not None and is_settled(past.ended, lists),
            )
        )


def _judged(
    log: Inspector,
    keys: Collection[str] | None,
    shards: Mapping[str, Sequence[JobKey]],
    running: Mapping[str, Sequence[LeaseView]],
    now: float,
) -> dict[str, list[Execution]]:
    """Return as many executions of each key as its findings need, the newest first."""
    found = _by_key(log.newest(1, keys))
    unclear = [
        key
        for key, known in shards.items()
        if key in running or key not in found or not _is_well(found[key][0], known, now)
    ]
    return found | _newest(log, unclear) if unclear else found


def _is_well(newest: Execution, shards: Sequence[JobKey], now: float) -> bool:
    """Return whether the newest execution of a key that does not run says that older ones make no finding."""
    is_whole = newest.shards == 1 and all(each.shard == newest.shard for each in shards)
    if any(is_ahead(each.high_water or 0.0, now) for each in shards):
        return False
    has_habit_for_now = (
        any(each.expected for each in shards) or newest.started_at > now - LEAST_SILENCE
    )
    return (
        newest.outcome == "succeeded" and newest.tick is not None and is_whole and has_habit_for_now
    )


def _newest(log: Inspector, keys: Collection[str] | None) -> dict[str, list[Execution]]:
    """Return the newest executions of each key, the newest first: more of a key of which a few say too little."""
    found = _by_key(log.newest(FIRST_LOOK, keys))
    unclear = [
        key
        for key, newest in found.items()
        if len(newest) == FIRST_LOOK and (newest[0].shards > 1 or not any(map(succeeded, newest)))
    ]
    return found | _by_key(log.newest(STREAK_AT_MOST, unclear)) if unclear else found


def _by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def _pause_of(key: str, pauses: Mapping[str | None, Pause]) -> Pause | None:
    """Return the pause that applies to a key; of two the one that lasts longer."""
    found = [pauses[name] for name in (key, ALL_KEYS) if name in pauses]
    ends = (math.inf if pause.until is None else pause.until for pause in found)
    return max(zip(ends, found, strict=True), key=lambda pair: pair[0], default=(0.0, None))[1]


def is_living(lease: LeaseView, now: float) -> bool:
    """Return whether a lease has not expired; `now` counts where the store did not return its own time."""
    return lease.expires_at is not None and lease.expires_at > (lease.asked_at or now)


def as_known(execution: Execution, leases: Iterable[LeaseView], now: float) -> Execution:
    """Return it with the outcome `NO_END` where it is recorded as running but has no active lease among `leases`.

    An execution that started after the leases were read is running. They were read at `now` where the store did not
    return its own time.
    """
    if execution.outcome != "running" or any(
        (lease.shard, lease.fencing_token) == (execution.shard, execution.fencing_token)
        and is_living(lease, now)
        for lease in leases
    ):
        return execution
    asked = next((lease.asked_at for lease in leases if lease.asked_at is not None), now)
    return execution._replace(outcome=NO_END) if execution.started_at < asked else execution


def dead_letters(
    log: Inspector, query: HistoryQuery, leases: Iterable[LeaseView], now: float
) -> Iterator[Execution]:
    """Yield the last attempts of ticks that were given up.

    Attempts whose lease is kept for a retry are left out, by token: a separate log has no leases.
    """
    kept = {(each.key, each.shard, each.fencing_token) for each in leases if is_living(each, now)}
    for each in log.history(query._replace(exhausted=True)):
        if (each.key, each.shard, each.fencing_token) not in kept:
            yield each


def succeeded(execution: Execution) -> bool:
    """Return whether the command succeeded, with or without a lease."""
    unclaimed = execution.outcome == "unclaimed" and execution.exit_code == 0
    return execution.outcome == "succeeded" or unclaimed


def _past(
    log: Inspector,
    key: str,
    found: Sequence[Execution],
    running: Sequence[LeaseView],
    asked: float,
) -> _Past:
    newest = [as_known(each, running, asked) for each in found]
    ended = _ended(newest, {(lease.shard, lease.fencing_token) for lease in running})
    last = next(iter(ended or newest), None)
    if last and running and not ended:
        last = last._replace(outcome="running", exit_code=None, signal=None)
    well = [each for each in ended if succeeded(each)]
    successes = _successes(log, key, newest)
    if newest and newest[0].shards > 1 and not well:
        successes = []  # of single shards
    durations = [each.duration for each in successes if each.duration is not None]
    well = well or successes
    return _Past(
        newest,
        last,
        well[0] if well else None,
        next((each for each in ended if not succeeded(each)), None),
        _streak(ended),
        statistics.median(durations) if durations else None,
    )


def _streak(ended: Sequence[Execution]) -> int:
    if not ended:
        return 0
    well = succeeded(ended[0])
    alike = itertools.takewhile(lambda each: succeeded(each) == well, ended)
    return min(len(list(alike)), FIRST_LOOK if well else STREAK_AT_MOST)


def _successes(log: Inspector, key: str, newest: Sequence[Execution]) -> list[Execution]:
    successes = [each for each in newest if succeeded(each)][:USUAL_OF]
    if not successes and len(newest) == STREAK_AT_MOST:
        return list(log.history(HistoryQuery(key=key, outcome="succeeded", limit=USUAL_OF)))
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


def _of_all(shards: Iterable[Execution]) -> Execution:
    """Return the execution with the tick's outcome: the newest that did not succeed, else the newest."""
    by_age = sorted(shards, key=lambda each: each.execution_id, reverse=True)
    return next((each for each in by_age if not succeeded(each)), by_age[0])


def _job(
    key: str,
    shards: Sequence[JobKey],
    past: _Past,
    running: Sequence[LeaseView],
    pause: Pause | None,
    due: Due,
) -> JobSummary:
    ended, success, failure = past.ended, past.success, past.failure
    expected = next((shard.expected for shard in shards if shard.expected), None)
    since = [lease.acquired_at for lease in running if lease.acquired_at is not None]
    return JobSummary(
        key=key,
        outcome=ended.outcome if ended else None,
        exit_code=ended.exit_code if ended else None,
        signal=ended.signal if ended else None,
        started_at=ended.started_at if ended else None,
        succeeded_at=(success.finished_at or success.started_at) if success else None,
        failed_at=(failure.finished_at or failure.started_at) if failure else None,
        running_host=",".join(sorted({lease.host or "?" for lease in running})) or None,
        running_since=min(since, default=None),
        streak=past.streak,
        usual_duration=past.usual,
        **due._asdict(),
        paused_by=pause.author if pause else None,
        paused_until=pause.until if pause else None,
        paused_reason=pause.reason if pause else None,
        schedule=expected.schedule if expected else None,
        zone=expected.zone if expected else None,
    )
