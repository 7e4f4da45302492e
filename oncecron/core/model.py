"""The values that pass between a firing and its store.

Wall times are float seconds since the epoch by the *store's* clock unless a name or its text says host;
durations are float seconds; trust is in seconds of the store's lease clock on this host.
"""

from __future__ import annotations

from oncecron.core.light_modules import sha256_digest
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import TRUST_MARGIN, TRUST_MARGIN_PER_TTL
from oncecron.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from oncecron.core.errors import StoreError
    from oncecron.core.tick import Tick

    RefusalReason = Literal[
        "held", "done", "passed", "recent", "late", "paused", "drained", "exhausted", "broken", "unmet", "no-store",
        "interrupted",
    ]  # fmt: skip
    Outcome = Literal[
        "running", "succeeded", "failed", "timed-out", "stopped", "lost", "not-started", "unclaimed"
    ]
    Cause = Literal["schedule", "manual", "takeover", "retry", "catch-up"]
    """Why an execution started. `schedule`: an ordinary firing, with or without a tick. `manual`: --again. `takeover`:
    --failover, after an attempt that was lost, or whose retry never came. `retry`: --retries. `catch-up`: --catch-up,
    by a later firing."""
    LostByStore = Literal["expired", "released", "superseded"]
    """Why the store declared an execution lost. `expired`: a later claim found its lease expired. `released`: a person
    ran `oncecron release`. `superseded`: a later start of its key was recorded."""
    LostByHolder = Literal["revoked", "not-renewed", "guard-killed", "guard-failed", "guard-hung"]
    """Why the holder killed its job and recorded it as lost; it replaces the store's reason. `revoked`: the store no
    longer had the lease. `not-renewed`: the lease could not be renewed in time. `guard-...`: the wrapper killed it."""
    RequestKind = Literal["stop", "release"]

# The same values at run time: a firing does not import `typing`. A test compares them.
REFUSAL_REASONS: tuple[RefusalReason, ...] = (
    *("held", "done", "passed", "recent", "late"),
    *("paused", "drained", "exhausted", "broken", "unmet", "no-store", "interrupted"),
)
OUTCOMES: tuple[Outcome, ...] = (
    *("running", "succeeded", "failed", "timed-out"),
    *("stopped", "lost", "not-started", "unclaimed"),
)
CAUSES: tuple[Cause, ...] = ("schedule", "manual", "takeover", "retry", "catch-up")
LOST_BY_STORE: tuple[LostByStore, ...] = ("expired", "released", "superseded")
LOST_BY_HOLDER: tuple[LostByHolder, ...] = (
    *("revoked", "not-renewed"),
    *("guard-killed", "guard-failed", "guard-hung"),
)

REQUEST_KINDS: tuple[RequestKind, ...] = ("stop", "release")
REQUEST_SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL")
"""The signals that a request may name."""

FAILOVER_RETRIES = 2
"""The limit of takeovers of a tick without --retries: a job that crashes its host must not crash every host."""

COMMAND_SHOWN = 1000
"""So many characters of a command the store keeps with each host that fires the key: enough to tell two apart."""


def recordable(text: str) -> str:
    r"""Return a text as every store can keep it: a NUL, and what is not UTF-8, as escapes (`\x00`, `\xff`)."""
    if text.isprintable():
        return text
    text = text.replace("\0", r"\x00")
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return recordable("".join(map(_without_surrogate, text)))


def _without_surrogate(letter: str) -> str:
    alone = "\ud800" <= letter < "\udc80" or "\udcff" < letter <= "\udfff"
    return rf"\u{ord(letter):04x}" if alone else letter


def recordable_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return named values with their texts as every store can keep them."""
    return {
        name: recordable(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def why_not_yet(tick: Tick, ahead: float) -> str:
    """Return why a named instant is refused that is `ahead` seconds ahead of the store's clock."""
    from oncecron.core.units import format_duration  # noqa: PLC0415 - a refusal that ends the firing

    return (
        f"the tick {tick.text} is {format_duration(ahead)} ahead of the store's clock, and every tick before it would "
        "be skipped; name an instant in the past, or a name that is not an instant"
    )


def why_clocks_differ(tick: Tick, seconds: float) -> str:
    """Return why a tick is refused that the host's clock named, `seconds` away from the store's clock."""
    return (
        f"tick {tick.text}: this host's clock and the store's clock are {seconds:.0f} s apart; compare `date -u` on "
        "this host and on the store's server, and correct the clock that is wrong"
    )


def why_other_shards(firing: Firing, shards: int) -> str:
    """Say why a tick is refused for which another host has another number of shards."""
    if firing.resumes:  # of `each`: one shard is the load
        return (
            f"key {firing.key}, tick {firing.tick.text}: another host has --slots {shards - 1}, this host "
            f"--slots {firing.shards - 1}; use the same number on every host"
        )
    return (
        f"key {firing.key}, tick {firing.tick.text}: another host has --shards {shards}, this host "
        f"--shards {firing.shards}; use the same number on every host"
    )


def trust_after(sent: float, ttl: float) -> float:
    """Return until when a lease may be trusted whose renewal was sent at `sent` (lease clock).

    sent + ttl - margin, margin = 1 % + 2 ms (`TRUST_MARGIN_PER_TTL`, `TRUST_MARGIN`). The store counts the lease from
    when it saw the request, and that was not before it was sent.
    """
    return sent + ttl - (TRUST_MARGIN_PER_TTL * ttl + TRUST_MARGIN)


class Holder(NamedTuple):
    """The oncecron process that cron started, which holds the lease."""

    host: str
    pid: int
    user: str


class Firing(NamedTuple):
    """One invocation of `oncecron run`, as it is sent to the store."""

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
    """The number of shards of the key; 1: the key is not divided."""
    failover: bool = False
    """Whether it takes over a tick whose last attempt was lost, or whose retry never came."""
    retries: int = 0
    """How many further attempts its tick may have, counted across all hosts."""
    resumes: bool = False
    """Whether it goes on with a tick whose last attempt was lost or stopped (`each`), however often and however old."""
    machine: str | None = None
    """Which boot of which machine or container fires; None: not known."""
    utc_offset: int | None = None
    """Seconds by which the zone is ahead of UTC at the tick, by the tz database of this host; None: no schedule."""
    catch_up: float | None = None
    """How old a missed tick may be that it makes up, in seconds (`--catch-up`); 0: any, and only the newest one."""
    previous: float | None = None
    """The scheduled time before its tick, if that is one that it would make up; None: it makes up nothing."""

    @property
    def shown_command(self) -> str:
        """Return the beginning of the command, as the store keeps it with the host."""
        return self.command[:COMMAND_SHOWN]

    @property
    def expected_schedule(self) -> str | None:
        """Return the schedule by which the key is expected to run from now on; None: what was expected stays."""
        return None if self.again else self.schedule


class Request(NamedTuple):
    """A request of a person to the holder of one execution; it ends with that execution."""

    kind: RequestKind
    author: str
    """USER@HOST."""
    signal: int
    grace: float | None
    """Seconds from the signal to KILL; None: the run's own."""


def stored_request(kind: Any, author: Any, signal: Any, grace: Any) -> Request:
    """Return a request as it stands in a store, whatever stands there; `oncecron.run.job` judges it.

    A signal that is no number is 0, and a grace that is none is NaN.
    """
    try:
        number = int(signal)
    except (TypeError, ValueError, OverflowError):
        number = 0
    try:
        seconds = None if grace is None else float(grace)
    except (TypeError, ValueError, OverflowError):
        seconds = float("nan")
    return Request(kind, str(author or ""), number, seconds)


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
    """Lease clock of this host: the job must be dead before then."""
    request: Request | None = None
    """The request that the last renewal returned."""
    cause: Cause = "schedule"
    """Why this attempt was started."""
    place: bytes = b""
    """Where the work of its tick goes on: what the attempt before left, or what was confirmed since; empty: none."""


LONGEST_PLACE = 4096
"""In bytes."""


def place_text(place: bytes | None) -> str | None:
    r"""Return a place as stores and records keep it: a backslash, and what is not ASCII, as escapes (`\\`, `\xff`)."""
    if place is None:
        return None
    return place.replace(b"\\", rb"\\").decode("ascii", "backslashreplace")


def place_of(text: str | None) -> bytes:
    """Return the place that a store has kept; empty if it has none, or if another program has written it."""
    try:
        parts = [_bytes_of(part) for part in (text or "").encode("ascii").split(rb"\\")]
    except ValueError:
        return b""
    place = b"\\".join(parts)
    return b"" if len(place) > LONGEST_PLACE or b"\0" in place else place


def _bytes_of(part: bytes) -> bytes:
    first, *escaped = part.split(rb"\x")
    return first + b"".join(bytes([int(each[:2], 16)]) + each[2:] for each in escaped)


def owner_digest(owner: str) -> str:
    """Return what is published of an owner id: 16 hexadecimal digits of its SHA-256.

    The id itself is the secret of a lease: who knows it may renew the lease, or end it.
    """
    return sha256_digest(owner)[:16]


class LostRun(NamedTuple):
    """An execution of another firing that a claim has declared lost, as far as its end can be reported."""

    execution_id: int
    owner_digest: str
    tick: str | None
    attempt: int
    cause: Cause
    outcome: Outcome
    """`lost`; or the end of an attempt after which a retry was to follow."""
    exit_code: int | None
    signal: int | None
    lost_reason: LostByStore
    requested_by: str | None
    host: str
    pid: int
    user: str
    started_at: float
    duration: float | None
    note: str | None
    shards: int


class Refusal(NamedTuple):
    """Why a firing may not start its command, and which holder is in the way."""

    reason: RefusalReason
    holder: Holder | None = None
    since: float | None = None
    detail: str | None = None
    blocked_by: BlockingLease | None = None
    """With `held`."""
    recorded: bool = True
    """Whether the store has the skip; False: it could not be recorded after a claim."""
    own: bool = False
    """The firing had the lease, and lost it before it got this answer: no skip is recorded."""


class BlockingLease(NamedTuple):
    """The lease in the way of a firing, which may wait for its end."""

    execution_id: int
    ends_in: float
    """Seconds until the lease expires, if it is not renewed."""
    heartbeat: float | str
    """The last heartbeat, as in `AskAgain.watched`: it does not change while the holder does not renew."""
    same_tick: bool = True
    """Whether the lease is for the tick that was claimed, or both have no tick."""


class AskAgain(NamedTuple):
    """The store cannot decide yet: claim again later with the same owner."""

    why: Literal["contended", "orphaned", "stale", "fenced", "recovering"]
    """`contended`: another host is in the middle of a claim or an end. `orphaned`: the lease has not expired, but its
    holder seems dead. `stale`: the lease has expired, but its session lock is taken. `fenced`: a job's own transaction
    holds the fence. `recovering`: the server may have forgotten a lease, until every lease that it may have granted
    has expired."""
    after: float
    """Seconds to wait before the next claim."""
    ends_in: float
    """Seconds until the lease in the way expires; 0 if it has expired, or if there is none."""
    refusal: Refusal
    """The answer if the firing does not claim again."""
    watched: float | str | None = None
    """The last heartbeat of the holder; to be sent with the next claim."""
    backend_pid: int | None = None
    backend_start: int | None = None
    """In microseconds since the epoch."""


class Behind(NamedTuple):
    """Nothing is in the way of a firing with `catch_up`, but ticks before its own may have been missed."""

    mark: float
    """The newest instant that was granted."""


class Unconfirmed(NamedTuple):
    """A lease that does not count yet: claim again with the same owner, or give it back."""

    lease: Lease
    error: StoreError
    """Why it does not count; a retry may help if it is `StoreUnavailable`."""


class Output(NamedTuple):
    """The end of the standard output and standard error of an execution, in the order of arrival."""

    text: str
    """Without NUL; bytes that are not UTF-8 are escaped (`\\xff`)."""
    cut: int
    """How many bytes came before it and were not kept."""


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
    """The request that the holder received."""
    place: bytes | None = None
    """What the job has left for the next attempt of its tick; None: nothing new, empty: it took its place back."""


class Retention(NamedTuple):
    """How long records are kept, in seconds. The defaults are those of [retention]."""

    executions: float = 400 * DAY
    """More than a year, so that a yearly job has its last run on record."""
    skips: float = 7 * DAY
    """40 hosts with 50 minutely lines write 2.8 million skips a day."""


KEY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@-")
_LONGEST_KEY = 200


def is_key(text: str) -> bool:
    """Return whether a text can be a key."""
    return 0 < len(text) <= _LONGEST_KEY and KEY_LETTERS.issuperset(text)


LEAST = Retention(executions=7 * DAY, skips=DAY)
"""The least retention of a store where `init` has set none, whatever a firing asks for: the last run of a weekly job,
and the skips of the last night, for more could fill a small disk."""
