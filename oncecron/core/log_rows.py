"""The rows of the job-execution log and of the leases, as commands show them.

Times are float seconds since the epoch by the *store's* clock unless a name says `host`; durations are float seconds.
"""

from __future__ import annotations

import shlex

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.masking import visible

if TYPE_CHECKING:
    from typing import Literal, Protocol

    class _Ended(Protocol):
        @property
        def outcome(self) -> str | None: ...

        @property
        def exit_code(self) -> int | None: ...


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
    """A digest of the firing's owner id, see `owner_digest`."""
    note: str | None
    """For people only: everything that a program reads has its own field."""
    shards: int = 1
    """The number of shards of its key."""
    cause: str = "schedule"
    """See `Cause`."""
    lost_reason: str | None = None
    """Why its lease was lost (see `LostByStore`, `LostByHolder`); it stays when the end is recorded later."""
    request: str | None = None
    """The last request that its holder received: `stop` or `release`."""
    requested_by: str | None = None
    """The author of the request: USER@HOST."""
    place: str | None = None
    """Where the next attempt of its tick goes on: what its job left last, masked; what is not UTF-8 is escaped."""

    def without_texts(self) -> Execution:
        """Return it without what may be long, for reports that have many executions in memory."""
        is_short = not self.command and self.note is None and self.place is None
        return self if is_short else self._replace(command="", note=None, place=None)


INTERNAL = "oncecron/"
"""How the keys begin of what oncecron runs for itself, such as a pass of `oncecron notify`."""


def is_internal(key: str) -> bool:
    """Return whether a key is of what oncecron runs for itself: it is shown to those who ask for it."""
    return key.startswith(INTERNAL)


FAILURES = ("failed", "timed-out", "stopped", "lost", "not-started", "unclaimed")
"""The outcomes of what neither succeeded nor runs; of `unclaimed`, without a lease, the exit status decides."""


def is_success(execution: _Ended) -> bool:
    """Return whether the command succeeded, with or without a lease."""
    unclaimed = execution.outcome == "unclaimed" and execution.exit_code == 0
    return execution.outcome == "succeeded" or unclaimed


def is_failure(execution: Execution) -> bool:
    """Return whether it ended badly. What a person stopped is no failure, and no success."""
    by_a_person = execution.outcome == "stopped" and execution.requested_by is not None
    return execution.outcome != "running" and not (by_a_person or is_success(execution))


class Skip(NamedTuple):
    """A refusal as it was recorded: one row per (key, tick, shard, host, reason)."""

    key: str
    shard: int
    tick: str | None
    reason: str
    holder_host: str | None
    holder_pid: int | None
    host: str
    pid: int | None
    """None for a plain skip (`oncecron.core.decision.plain_skip`), of which less is kept."""
    at: float
    count: int  # type: ignore[assignment]  # the published name, which hides tuple.count
    detail: str | None
    """Of the newest skip: who paused or drained and why, how the tick ended, what was broken."""


class Traced(NamedTuple):
    """An execution with unpublished details."""

    execution: Execution
    instant: float | None
    """Of its tick; None for a name and for no tick."""
    fired_at: float | None
    """By the clock of its host; None where the store does not keep it."""
    lost_at: float | None
    """When its lease was found expired; it stays when the end is recorded later."""


class EndedRuns(NamedTuple):
    """First attempts of a key with one shard that ended alike on one host, without their details."""

    key: str
    host: str
    outcome: str
    """Of `PACKED_OUTCOMES`."""
    has_tick: bool
    """Whether they belong to ticks, which are all instants."""
    times: tuple[int, ...]
    """The instants of the ticks, or the starts of what has none, to the minute; rising, in seconds since the epoch."""


PACKED_OUTCOMES = ("succeeded", "failed", "timed-out", "stopped", "lost")
"""The outcomes of `EndedRuns`."""


class TracedSkip(NamedTuple):
    """A skip with unpublished details."""

    skip: Skip
    fired_at: float | None
    """By the clock of its host; None where the store does not keep it."""


class SkipReason(NamedTuple):
    """Why a host has skipped a tick of a key: a row of the skips, without its details."""

    key: str
    tick: str
    host: str
    reason: str
    shard: int = 0


class Expectation(NamedTuple):
    """When a shard of a key is expected to run: as it was last claimed with a schedule."""

    schedule: str
    zone: str | None
    """None: the zone of each host."""
    shards: int
    """How many shards of the key there were."""
    starting_deadline: float | None
    since: float
    """When a claim first had this schedule, zone and number of shards."""


class JobKey(NamedTuple):
    """A shard of a key: what is known of it beside the log."""

    key: str
    shard: int
    expected: Expectation | None = None
    """None: it was never claimed with a schedule, or it was forgotten since."""
    high_water: float | None = None
    """The newest scheduled instant that was ever granted."""
    last_start: float | None = None
    forgotten_at: float | None = None
    """When `oncecron forget` removed what was expected."""
    forgotten_by: str | None = None
    """USER@HOST."""


class KeyHost(NamedTuple):
    """A host that fires a shard of a key, as its last firing that reached the store told it."""

    key: str
    shard: int
    host: str
    seen_at: float
    version: str
    """Of oncecron."""
    clock_ahead: float
    """Seconds by which the host's clock was ahead of the store's."""
    ticks: tuple[tuple[str, float], ...]
    """The last three ticks that it fired, and when; the newest first. None by --again."""
    schedule: str | None
    """Of its last firing, except by --again."""
    zone: str | None
    command: str | None
    """The beginning of it, see `Firing.shown_command`."""
    wins: int
    """How often it started the command in the last 24 hours, counted by whole hours."""
    skips: int
    """How often it did not."""
    machines: int = 1
    """2: two machines or more have fired the same ticks under its name."""
    utc_offset: int | None = None
    """Seconds by which its zone was ahead of UTC at the last tick, by its own tz database; None: no schedule."""
    catch_up: float | None = None
    """How old a missed tick may be that it makes up; 0: any, and only the newest one; None: it makes up nothing."""


class LeaseView(NamedTuple):
    """A lease, or a session lock without a lease."""

    key: str
    shard: int
    tick: str | None
    execution_id: int | None
    attempt: int | None
    state: str
    """`held`; `stale`: expired, or its holder does not renew it; `orphaned`: its session lock is gone."""
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
    """The author of a request to the holder: USER@HOST."""
    request_acknowledged_at: float | None = None
    """When the holder received the request."""
    asked_at: float = 0.0
    """The store's clock at the query, to compare the other times with. Not published."""
    progress: str | None = None
    """How far the work of its tick is, such as `12/40`, where a plugin divides it."""


ALL_KEYS = "*"
"""The key of a pause of all keys; it is not a valid key."""


def pauses_of(key: str) -> tuple[str, ...]:
    """Return of which keys a pause keeps one from its start; of what oncecron runs for itself, its own alone."""
    return (key,) if is_internal(key) else (key, ALL_KEYS)


class Pause(NamedTuple):
    """A paused key, a pause of all keys, or a drained host."""

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

    @property
    def end(self) -> str:
        """Return what ends it, after `oncecron`."""
        if self.host is not None:
            return f"undrain {shlex.quote(visible(self.host))}"
        return "resume --all" if self.key == ALL_KEYS else f"resume {self.key}"


class Released(NamedTuple):
    """The result of a release."""

    answer: Literal["free", "alive", "locked", "other"]
    """`free`: the next firing can start, and the fencing token has risen. `alive`: the lease has not expired.
    `locked`: it has expired, but a session still holds its lock, or a job's transaction still holds its fence.
    `other`: another execution has the key now; nothing was changed."""
    ends_in: float = 0.0
    """Seconds until the lease expires, with `alive`."""
    backend_pid: int | None = None
    """The session that holds the lock or the fence."""


class Unblocked(NamedTuple):
    """What a wrong clock had left on a shard of a key, and what counts no more; None: it was right."""

    shard: int
    high_water: float | None
    """The newest instant that was granted: every older tick was skipped."""
    last_start: float | None
    """The last start, which counted as now for --min-gap."""


class HistoryQuery(NamedTuple):
    """The filter of a query for records; None means any."""

    key: str | None = None
    since: float | None = None
    host: str | None = None
    outcomes: list[str] | None = None
    """Outcomes of executions, or reasons of skips."""
    tick: str | None = None
    limit: int | None = 50
    after_id: int | None = None
    """Only executions with a higher id, oldest first: to follow the log."""
    exhausted: bool = False
    """Only the dead letters: the last failed attempt of each tick that could have been retried and will not be."""
    without: str | None = None
    """Leave out the keys that begin with this text."""
    failed: bool = False
    """Only executions that ended badly (`is_failure`)."""
    until: float | None = None
    """Only what started, or was skipped, before."""

    def takes_outcome(self, row: Execution | Skip) -> bool:
        """Return whether a row has a wanted outcome, or reason."""
        if isinstance(row, Skip):
            return self.outcomes is None or row.reason in self.outcomes
        if self.failed and not is_failure(row):
            return False
        return self.outcomes is None or row.outcome in self.outcomes


class Roles(NamedTuple):
    """Database roles to grant rights to: firings, readers, jobs that check their fence, operators."""

    run: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    operate: tuple[str, ...] = ()


class LeastRetention(NamedTuple):
    """What `init` sets of a store's least retention, in seconds. None: it stays as it is."""

    executions: float | None = None
    skips: float | None = None

    def given(self) -> dict[str, float]:
        """Return what is set, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


UNCHANGED = LeastRetention()


class Told(NamedTuple):
    """What was told of one finding, and acknowledged."""

    at: float
    change: str
    """Such as `problem`, `recovered`."""
    state: str
    finding: str
    key: str | None
    words: str


class ConfiguredValue(NamedTuple):
    """A line of `oncecron config show`, in the order of its published fields."""

    option: str
    value: str | None
    """As it is written, with secrets masked; None if it is not set."""
    source: str | None
    """The variable, the file and section, or `default`; None if it is not set."""
