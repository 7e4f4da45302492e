"""One line a key: how it went last, where it runs, how it usually goes, when it is due, whether it is paused.

What counts is the tick: of several attempts the last, of several parts the worst. One that goes on, since a part
runs or its lease is kept for the next attempt, has not ended.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, NamedTuple

from oncecron import tick
from oncecron.model import ALL_KEYS, HistoryQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.model import Execution, JobKey, LeaseView, Pause
    from oncecron.store import PeopleStore

STREAK_AT_MOST = 100
"""Executions of a key that are looked at: a longer streak of ticks is not counted on."""

USUAL_OF = 20
"""Successes whose median is the usual duration."""


class Job(NamedTuple):
    """A key at a glance, in the order of its published fields."""

    key: str
    outcome: str | None
    """Of the newest tick, or firing without one, that has ended; `running` where none has."""
    exit_code: int | None
    signal: int | None
    started_at: float | None
    succeeded_at: float | None
    """When its newest success ended."""
    running_host: str | None
    """Several, joined by commas, where parts of the key run on several hosts."""
    running_since: float | None
    streak: int
    """How many ticks in a row succeeded, or did not; at most `STREAK_AT_MOST`."""
    usual_duration: float | None
    next_at: float | None
    paused_by: str | None
    paused_until: float | None
    paused_reason: str | None
    schedule: str | None
    zone: str | None


class _Past(NamedTuple):
    """What the log tells of a key."""

    ended: Execution | None
    success: Execution | None
    streak: int
    usual: float | None


def jobs(store: PeopleStore, log: PeopleStore, now: float) -> Iterator[Job]:
    """Yield every key by name; `store` knows leases, pauses and schedules, `log` what has happened."""
    parts: dict[str, list[JobKey]] = {}
    for part in itertools.chain(store.job_keys(), () if log is store else log.job_keys()):
        parts.setdefault(part.key, []).append(part)
    pauses = {pause.key: pause for pause in store.pauses()}
    running: dict[str, list[LeaseView]] = {}
    for lease in store.leases():
        if is_living(lease, now):
            running.setdefault(lease.key, []).append(lease)
    for key in sorted(parts):
        pause = pauses.get(key) or pauses.get(ALL_KEYS)
        leases = running.get(key, [])
        yield _job(key, parts[key], _past(log, key, leases), leases, pause, now)


def is_living(lease: LeaseView, now: float) -> bool:
    """Return whether a lease keeps others out; `now` where the store did not tell its own time."""
    return lease.expires_at is not None and lease.expires_at > (lease.asked_at or now)


def dead_letters(
    log: PeopleStore, query: HistoryQuery, leases: Iterable[LeaseView], now: float
) -> Iterator[Execution]:
    """Yield the last attempts of what was given up.

    By their tokens none is one that a lease is kept for: a log beside the store knows of no lease.
    """
    kept = {(each.key, each.shard, each.fencing_token) for each in leases if is_living(each, now)}
    for each in log.history(query._replace(exhausted=True)):
        if (each.key, each.shard, each.fencing_token) not in kept:
            yield each


def succeeded(execution: Execution) -> bool:
    """Return whether the command did what it should, with or without a lease."""
    unclaimed = execution.outcome == "unclaimed" and execution.exit_code == 0
    return execution.outcome == "succeeded" or unclaimed


def _past(log: PeopleStore, key: str, running: Sequence[LeaseView]) -> _Past:
    newest = list(log.history(HistoryQuery(key=key, limit=STREAK_AT_MOST)))
    ended = _ended(newest, {(lease.shard, lease.fencing_token) for lease in running})
    successes = [each for each in newest if succeeded(each)][:USUAL_OF]
    if not successes and len(newest) == STREAK_AT_MOST:
        successes = list(log.history(HistoryQuery(key=key, outcome="succeeded", limit=USUAL_OF)))
    durations = [each.duration for each in successes if each.duration is not None]
    well = [each for each in ended if succeeded(each)] or successes
    return _Past(
        ended[0] if ended else newest[0] if newest else None,
        well[0] if well else None,
        len(list(itertools.takewhile(lambda each: succeeded(each) == succeeded(ended[0]), ended))),
        statistics.median(durations) if durations else None,
    )


def _ended(newest: Sequence[Execution], living: set[tuple[int, int | None]]) -> list[Execution]:
    """Return of each tick that has ended the execution that says how, the newest tick first."""
    ticks: dict[str, dict[int, Execution]] = {}
    for each in newest:
        last = ticks.setdefault(each.tick or each.owner, {})
        before = last.get(each.shard)
        if each.outcome != "not-started" and (not before or before.attempt < each.attempt):
            last[each.shard] = each
    if len(newest) == STREAK_AT_MOST and len(ticks) > 1 and newest[-1].shards > 1:
        del ticks[newest[-1].tick or newest[-1].owner]  # its other parts are older
    return [
        _of_all(parts.values())
        for parts in ticks.values()
        if parts
        and not any(
            each.outcome == "running" or (each.shard, each.fencing_token) in living
            for each in parts.values()
        )
    ]


def _of_all(parts: Iterable[Execution]) -> Execution:
    """Return the execution that tells how a tick ended: the newest that did not succeed, else the newest."""
    by_age = sorted(parts, key=lambda each: each.execution_id, reverse=True)
    return next((each for each in by_age if not succeeded(each)), by_age[0])


def _job(
    key: str,
    parts: Sequence[JobKey],
    past: _Past,
    running: Sequence[LeaseView],
    pause: Pause | None,
    now: float,
) -> Job:
    ended, success = past.ended, past.success
    known = next((part for part in parts if part.schedule is not None), parts[0])
    since = [lease.acquired_at for lease in running if lease.acquired_at is not None]
    return Job(
        key=key,
        outcome=ended.outcome if ended else None,
        exit_code=ended.exit_code if ended else None,
        signal=ended.signal if ended else None,
        started_at=ended.started_at if ended else None,
        succeeded_at=(success.finished_at or success.started_at) if success else None,
        running_host=",".join(sorted({lease.host or "?" for lease in running})) or None,
        running_since=min(since, default=None),
        streak=past.streak,
        usual_duration=past.usual,
        next_at=_next(known, now),
        paused_by=pause.author if pause else None,
        paused_until=pause.until if pause else None,
        paused_reason=pause.reason if pause else None,
        schedule=known.schedule,
        zone=known.zone,
    )


def _next(part: JobKey, now: float) -> float | None:
    """Return the next tick of the schedule as it was last claimed, in the host's zone where it named none."""
    if part.schedule is None:
        return None
    try:
        return next(tick.next_ticks(part.schedule, part.zone, now)).instant
    except ValueError:  # this host knows no such zone
        return None
