"""Rows of the job-execution log and of the leases, as people are shown them.

Times are float seconds since the epoch by the *store's* clock unless a name says `host`; durations are float seconds.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal


class Execution(NamedTuple):
    """A row of the job-execution log, in the order of its published fields."""

    execution_id: int
    key: str
    shard: int
    tick: str | None
    attempt: int
    outcome: str
    exit_code: int | None
    signal: int | None
    host: str
    pid: int
    user: str
    command: str
    started_at: float
    finished_at: float | None
    duration: float | None
    fencing_token: int | None
    owner: str
    note: str | None
    """For people: whatever a program reads has a field of its own."""
    shards: int = 1
    """How many parts its key was divided into."""
    cause: str = "schedule"
    """See `Cause`."""
    lost_reason: str | None = None
    """Why its lease was lost (see `LostByStore`, `LostByHolder`); it stays when the end is recorded later."""
    request: str | None = None
    """What somebody asked of its holder: `stop` or `release`; of several requests the last one that it heard."""
    requested_by: str | None = None
    """Who asked: USER@HOST."""


class Skip(NamedTuple):
    """A refusal as it was recorded: one row per (key, tick, shard, host, reason)."""

    key: str
    shard: int
    tick: str | None
    reason: str
    holder_host: str | None
    holder_pid: int | None
    host: str
    pid: int
    at: float
    count: int  # type: ignore[assignment]  # published name; nobody counts in a tuple
    detail: str | None
    """Of the newest: who paused or drained and why, how the tick was done, what was broken."""


class Traced(NamedTuple):
    """An execution with what its published record does not tell."""

    execution: Execution
    instant: float | None
    """Of its tick; None for a name and for no tick."""
    fired_at: float | None
    """By the clock of its host; None where the store does not keep it."""
    lost_at: float | None
    """When its lease was found to be over, whatever it was told to be since."""


class TracedSkip(NamedTuple):
    """A refusal with what its published record does not tell."""

    skip: Skip
    fired_at: float | None
    """By the clock of its host; None where the store does not keep it."""


class JobKey(NamedTuple):
    """A part of a key as it was last claimed."""

    key: str
    shard: int
    schedule: str | None
    zone: str | None


class LeaseView(NamedTuple):
    """A lease, or a session lock without one, as people see it."""

    key: str
    shard: int
    tick: str | None
    execution_id: int | None
    attempt: int | None
    state: str
    """`held`; `stale`: expired or its holder silent; `orphaned`: its session lock is gone."""
    host: str | None
    pid: int | None
    user: str | None
    acquired_at: float | None
    heartbeat_at: float | None
    expires_at: float | None
    fencing_token: int | None
    backend_pid: int | None
    client_address: str | None
    shards: int = 1
    requested_by: str | None = None
    """Who asks the holder to stop, if anybody does: USER@HOST."""
    request_acknowledged_at: float | None = None
    """When the holder was told so."""
    asked_at: float | None = None
    """When the store was asked, by its clock: what the times are compared with. Not published."""


ALL_KEYS = "*"
"""What a pause of all keys has instead of a key; no key can be called so."""


class Pause(NamedTuple):
    """What refuses firings: a paused key, a pause of all keys, or a drained host."""

    key: str | None
    """Or `ALL_KEYS`; None: a host is drained."""
    host: str | None
    """The drained host."""
    author: str
    """USER@HOST."""
    reason: str | None
    since: float
    until: float | None
    """None: until somebody ends it."""


class Released(NamedTuple):
    """What became of a lease that somebody wants freed."""

    answer: Literal["free", "alive", "locked", "other"]
    """`free`: nothing stands in the way of the next firing, and the fencing token has risen. `alive`: the lease has
    not ended. `locked`: it has, but a session still holds its lock, or a job's own transaction its fence.
    `other`: another execution has the key by now; nothing was touched."""
    ends_in: float = 0.0
    """Seconds until a living lease ends."""
    backend_pid: int | None = None
    """The session that holds the lock or the fence."""


class HistoryQuery(NamedTuple):
    """Which records are wanted; None means any."""

    key: str | None = None
    since: float | None = None
    host: str | None = None
    outcome: str | None = None
    """An outcome of executions, or a reason of skips."""
    tick: str | None = None
    limit: int | None = 50
    after_id: int | None = None
    """Only executions with a higher id, the oldest first: for following the log."""
    exhausted: bool = False
    """Only the last attempts of ticks that might have had further ones and were given up: the dead letters."""


class Roles(NamedTuple):
    """Database roles that get rights: firings, readers, jobs that check their fence, operators."""

    run: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    operate: tuple[str, ...] = ()
