"""What reports and alarms both say of keys: a key at a glance."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import is_success

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol, TypeVar

    from oncecron.core.log_rows import LeaseView

    class _OfKey(Protocol):
        @property
        def key(self) -> str: ...

    Row = TypeVar("Row", bound=_OfKey)

FIRST_LOOK = 25
"""Executions of each key that are read at first; a longer streak of successes is not counted further."""

STREAK_AT_MOST = 100
"""Executions of a key that are read if it has shards, or no success among the first: no longer streak is counted."""

NO_END = "no-end"
"""The outcome that is shown instead of `running` where the lease has ended."""

DOUBTFUL = ("orphaned", "stale")
"""The states of a lease that has not ended, but whose holder seems dead; also shown instead of `running`."""

SLOW_TIMES = 3
"""A job is slow when it has run this many times as long as usual: the default of `check --slow`."""
_SLOW_AND_MORE = 60.0
"""A job is not slow before it has run this much longer than usual: short jobs vary by seconds."""


class JobSummary(NamedTuple):
    """A key at a glance, in the order of its published fields."""

    key: str
    outcome: str | None
    """Of the newest tick, or firing without a tick, that has ended; `running` or `DOUBTFUL` where none has ended."""
    exit_code: int | None
    signal: int | None
    started_at: float | None
    succeeded_at: float | None
    """When its newest success ended."""
    failed_at: float | None
    """When its newest end that was no success was."""
    running_on: tuple[str, ...]
    """The hosts that hold its leases: several where shards of the key run."""
    running_since: float | None
    """When the attempt that runs has started; None while the lease is kept for the next attempt."""
    successes: int
    """How many ticks in a row succeeded up to the newest that has ended; at most `FIRST_LOOK`."""
    failures: int
    """How many did not; at most `STREAK_AT_MOST`."""
    usual_duration: float | None
    next_at: float | None
    """When the next tick is due that no pause holds back."""
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
    progress: str | None = None
    """How far its newest work is, such as `12/40`, where a plugin divides it."""
    settled: bool = False
    """Whether `outcome` is no success, and yet nothing of its tick is left to do, as a plugin knows."""
    state: str | None = None
    """The worst that is wrong, else `catch-up`, `running`, `paused` or `ok`; None: not run yet, and nothing is due."""
    forgotten_at: float | None = None
    """When a person said that it is retired (`oncecron forget`), if it has not started since."""
    forgotten_by: str | None = None
    """USER@HOST."""
    retired: bool = False
    """Whether nobody expects it to run: it was forgotten, and no host has fired it since, not even in vain."""
    stopped_by: str | None = None
    """Who asked it to stop, where `outcome` is `stopped`: USER@HOST; None: nobody did, its host was shut down."""
    host: str | None = None
    """Where the execution ran that has its outcome."""
    lease: str | None = None
    """`held` while it runs; `orphaned` or `stale` where the holder seems dead; None: nobody has a lease."""
    slow: bool = False
    """Whether it has been running for much longer than usual."""
    tick: str | None = None
    """Of the execution that has its outcome."""
    catching_up: int = 0
    """How many ticks the next firing will make up; they are not missed yet."""
    first_caught_up: str | None = None
    """The oldest of them."""
    place: str | None = None
    """Where the next attempt of its newest tick goes on; only of keys that are asked for by name."""


_FAILED = ("failed", "timed-out", "unclaimed", "not-started")


def is_lost(job: JobSummary) -> bool:
    """Return whether the newest tick that has ended was lost, as far as is known."""
    return _counts(job) and job.outcome in ("lost", NO_END)


def has_failed(job: JobSummary) -> bool:
    """Return whether the newest tick that has ended did not succeed, and was neither lost nor stopped by a person."""
    is_cut_short = job.outcome == "stopped" and job.stopped_by is None
    return _counts(job) and (is_cut_short or job.outcome in _FAILED) and not is_success(job)


def is_slow(job: JobSummary, now: float, times: float = SLOW_TIMES) -> bool:
    """Return whether it has been running for so many times its usual duration, and a minute longer."""
    usual = job.usual_duration
    if job.running_since is None or job.lease != "held" or usual is None:
        return False
    return now - job.running_since > max(times * usual, usual + _SLOW_AND_MORE)


def _counts(job: JobSummary) -> bool:
    return not job.settled and job.forgotten_at is None


def by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return rows by their key, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def is_living(lease: LeaseView) -> bool:
    """Return whether a lease has not expired."""
    return lease.expires_at is not None and lease.expires_at > lease.asked_at
