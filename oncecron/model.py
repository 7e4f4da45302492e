"""The values that pass between a firing and its store.

Wall times are float seconds since the epoch by the *store's* clock unless a name says `host`;
durations are float seconds; trust is in seconds of the store's lease clock on this host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from oncecron.errors import StoreError
    from oncecron.tick import Tick

RefusalReason = Literal[
    "held",
    "done",
    "passed",
    "recent",
    "late",
    "paused",
    "drained",
    "exhausted",
    "broken",
    "no-store",
]
Outcome = Literal[
    "running",
    "succeeded",
    "failed",
    "timed-out",
    "stopped",
    "lost",
    "not-started",
    "unclaimed",
]
OUTCOMES: tuple[Outcome, ...] = (
    "running",
    "succeeded",
    "failed",
    "timed-out",
    "stopped",
    "lost",
    "not-started",
    "unclaimed",
)
REFUSAL_REASONS: tuple[RefusalReason, ...] = (
    "held",
    "done",
    "passed",
    "recent",
    "late",
    "paused",
    "drained",
    "exhausted",
    "broken",
    "no-store",
)

HEARTBEATS_PER_TTL = 6
"""A lease is renewed this many times before it could expire."""

MINIMUM_TTL = 6.0
"""Seconds. Below it a heartbeat would come more than once a second."""

FAILOVER_RETRIES = 2
"""Further attempts of a tick that failover makes where nobody says how many: a job may kill its host."""

TAKEOVER = "takeover: attempt {attempt} on {host} was lost"
"""The note of a further attempt that failover makes; the stores write it in their own languages too."""

AGAIN = "by --again"
"""The note of a further attempt that a person asked for; the stores write it in their own languages too."""

MAX_CLOCK_SKEW = 300.0
"""Seconds a host's clock may be off the store's before a scheduled tick is refused, and a named instant ahead of it."""


def why_not_yet(tick: Tick, ahead: float) -> str:
    """Say why a named instant is refused that the store's clock shows only `ahead` seconds from now."""
    from oncecron.duration import format_duration  # noqa: PLC0415 - a refusal that ends the firing

    return (
        f"the tick {tick.text} is {format_duration(ahead)} ahead of the store's clock, and would use up all ticks "
        "before it: name an instant that has come, or any text that is not an instant, since such a name has no order"
    )


def trust_after(sent: float, ttl: float) -> float:
    """Return until when a renewal sent at `sent` (lease clock) may be trusted.

    sent + ttl - margin, margin = 1 % + 2 ms: the lease counts from when the store saw the
    request, which was not before it was sent; one per cent covers clocks of unequal speed.
    """
    return sent + ttl - (0.01 * ttl + 0.002)


class Holder(NamedTuple):
    """Who executes: the oncecron process that cron started."""

    host: str
    pid: int
    user: str


class Firing(NamedTuple):
    """One invocation of `oncecron run`, as the store is told of it."""

    key: str
    shard: int
    tick: Tick
    owner: str
    """Random uuid of this firing."""
    holder: Holder
    command: str
    """The command as one shell-quoted string."""
    fired_at: float
    """Host clock at the start of the process."""
    ttl: float
    min_gap: float | None
    starting_deadline: float | None
    again: bool
    schedule: str | None
    zone: str | None
    shards: int = 1
    """How many parts the key is divided into; 1: it is not."""
    failover: bool = False
    """Whether it goes on with a tick whose last attempt was lost, or was not followed by the next as it should."""
    retries: int = 0
    """How many further attempts its tick may have, whoever makes them."""


class Request(NamedTuple):
    """What somebody asks of the holder of one execution; it ends with that execution."""

    kind: Literal["stop", "release"]
    author: str
    """USER@HOST."""
    signal: int
    grace: float | None
    """Seconds from the signal to KILL; None: the run's own."""


class Lease(NamedTuple):
    """The exclusive right to run a key until it is released or expires."""

    key: str
    shard: int
    tick: str | None
    owner: str
    attempt: int
    execution_id: int
    token: int
    """Fencing token."""
    ttl: float
    started_at: float
    trusted_until: float
    """Lease clock of this host; after it the child must already be dead."""
    request: Request | None = None
    """What the last renewal told that somebody asks of us."""


class Refusal(NamedTuple):
    """Why a firing may not start its command, and because of whom."""

    reason: RefusalReason
    holder: Holder | None = None
    since: float | None = None
    detail: str | None = None
    in_the_way: InTheWay | None = None
    """With `held`."""


class InTheWay(NamedTuple):
    """The living lease that a firing was refused for, to be waited for."""

    execution_id: int
    ends_in: float
    """Seconds until the lease ends, if it is not renewed."""
    heartbeat: float | str
    """The last one, as `AskAgain.watched` tells it: equal while the holder is silent."""
    same_tick: bool = True
    """Whether it is a lease for the very tick that was claimed, or both are for none."""


class AskAgain(NamedTuple):
    """The store cannot tell yet: ask again later with the same owner."""

    why: Literal["contended", "orphaned", "stale", "fenced", "recovering"]
    """`contended`: somebody is half-way through a claim or an end. `orphaned`: the lease lives but its
    holder seems gone. `stale`: the lease expired but its session lock is taken. `fenced`: a job's own
    transaction holds the fence. `recovering`: the store may know less than it told, until all leases that it
    may have granted have ended."""
    after: float
    """Seconds to wait before asking again."""
    ends_in: float
    """Seconds until the lease in the way ends; 0 if it has, or if there is none."""
    refusal: Refusal
    """What the answer is if nobody asks again."""
    watched: float | str | None = None
    """Last heartbeat of the holder; handed back when asking again."""
    backend_pid: int | None = None
    backend_start: str | None = None


class Unconfirmed(NamedTuple):
    """The store granted a lease that does not count yet: ask again with the same owner, or give it back."""

    lease: Lease
    error: StoreError
    """Why it does not count; asking again may help if it is `StoreUnavailable`."""


class Output(NamedTuple):
    """The last of what an execution wrote to its standard output and standard error, in the order of arrival."""

    text: str
    """Without NUL; what was no UTF-8 is escaped (`\\xff`)."""
    cut: int
    """How many bytes came before and were not kept."""


class Ending(NamedTuple):
    """How an execution ended."""

    outcome: Outcome
    exit_code: int | None
    signal: int | None
    duration: float
    note: str | None = None
    output: Output | None = None
    """None: it was not captured."""


class Retention(NamedTuple):
    """How long records are kept, in seconds."""

    executions: float = 400 * 86400.0
    skips: float = 7 * 86400.0


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
    shards: int = 1
    """How many parts its key was divided into."""


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
    request_heard_at: float | None = None
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
