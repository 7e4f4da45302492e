"""The values that pass between a firing and its store.

Wall times are float seconds since the epoch by the *store's* clock unless a name says `host`;
durations are float seconds; trust is in seconds of the store's lease clock on this host.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import (
    KEEP_EXECUTIONS,
    KEEP_SKIPS,
    TRUST_MARGIN,
    TRUST_MARGIN_PER_TTL,
)

if TYPE_CHECKING:
    from typing import Literal

    from oncecron.core.errors import StoreError
    from oncecron.core.tick import Tick

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
        "running", "succeeded", "failed", "timed-out", "stopped", "lost", "not-started", "unclaimed"
    ]
    Cause = Literal["schedule", "manual", "takeover", "retry"]
    """Why an execution was started. `schedule`: by an ordinary firing, with or without a tick. `manual`: by --again.
    `takeover`: by --failover, after an attempt that was lost or not followed. `retry`: by --retries."""
    LostByStore = Literal["expired", "released", "superseded"]
    """Why the store declared an execution lost. `expired`: a later claim found that its lease had ended. `released`:
    somebody ran `oncecron release` after that. `superseded`: a later start of its key was recorded."""
    LostByHolder = Literal["revoked", "not-renewed", "guard-killed", "guard-failed", "guard-hung"]
    """Why a holder ended its job and called it lost; it replaces the store's reason. `revoked`: the store no longer had
    the lease. `not-renewed`: the lease could not be renewed in time. `guard-...`: the wrapper had to end the job."""
    RequestKind = Literal["stop", "release"]

# The same at run time, in their order: `typing` is not imported by a firing (a test compares them).
REFUSAL_REASONS: tuple[RefusalReason, ...] = (
    *("held", "done", "passed", "recent", "late"),
    *("paused", "drained", "exhausted", "broken", "no-store"),
)
OUTCOMES: tuple[Outcome, ...] = (
    *("running", "succeeded", "failed", "timed-out"),
    *("stopped", "lost", "not-started", "unclaimed"),
)
CAUSES: tuple[Cause, ...] = ("schedule", "manual", "takeover", "retry")
LOST_BY_STORE: tuple[LostByStore, ...] = ("expired", "released", "superseded")
LOST_BY_HOLDER: tuple[LostByHolder, ...] = (
    *("revoked", "not-renewed"),
    *("guard-killed", "guard-failed", "guard-hung"),
)

FAILOVER_RETRIES = 2
"""Further attempts of a tick that failover makes where nobody says how many: a job may kill its host."""


def why_not_yet(tick: Tick, ahead: float) -> str:
    """Say why a named instant is refused that the store's clock shows only `ahead` seconds from now."""
    from oncecron.core.units import format_duration  # noqa: PLC0415 - a refusal that ends the firing

    return (
        f"the tick {tick.text} is {format_duration(ahead)} ahead of the store's clock, and every tick before it would "
        "be skipped; name an instant in the past, or a name that is not an instant"
    )


def trust_after(sent: float, ttl: float) -> float:
    """Return until when a renewal sent at `sent` (lease clock) may be trusted.

    sent + ttl - margin, margin = 1 % + 2 ms (`TRUST_MARGIN_PER_TTL`, `TRUST_MARGIN`). The store counts the lease from
    when it saw the request, and that was not before it was sent.
    """
    return sent + ttl - (TRUST_MARGIN_PER_TTL * ttl + TRUST_MARGIN)


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

    kind: RequestKind
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
    cause: Cause = "schedule"
    """Why this attempt was started."""


class Refusal(NamedTuple):
    """Why a firing may not start its command, and because of whom."""

    reason: RefusalReason
    holder: Holder | None = None
    since: float | None = None
    detail: str | None = None
    blocked_by: BlockingLease | None = None
    """With `held`."""


class BlockingLease(NamedTuple):
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
    lost_reason: LostByHolder | None = None
    """With `lost`."""
    request: Request | None = None
    """What somebody had asked of its holder, as far as the holder knows."""


class Retention(NamedTuple):
    """How long records are kept, in seconds."""

    executions: float = KEEP_EXECUTIONS
    skips: float = KEEP_SKIPS
