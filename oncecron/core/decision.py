"""The claim: what a firing is answered. It is decided here, once, for every store.

A store only says what it knows about a key at one instant of its own clock, by named facts, and writes what was
decided, if nothing has changed since:

    look      one read, without a lock, of the facts. Most firings are skipped after it.
    state_of  `core.facts`: the `State` that they mean, made once for every store.
    decide    this module: no clock, no store, nothing but the two arguments.
    grant     one atomic compare-and-set: a higher fencing token, the execution, the lease.
    expire    one atomic compare-and-set: the lease is removed, its execution is lost, the fencing token rises.

What keeps two firings apart is the comparison and the constraints of the store (one lease for a key, one running
execution, each attempt of a tick once). The decision only says which of the two may try. `stores.claim_loop` has the
loop around it.

The order of the decision:

0. A known owner. An execution of this owner, key and shard that still has its lease gets the same lease again, renewed,
   because the answer to its claim was lost. If it has ended since, the answer is `done` by its own execution
   (`Refusal.own`), which has never begun. An owner is never refused because of its own lease.
1. `paused` and `drained` are refused. Three things are a `ConfigurationError`:
   - The host's clock names the tick, and it differs from the store's clock by more than `MAX_CLOCK_SKEW`.
   - The tick is an instant more than that ahead of the store's clock: every tick before it would be skipped. A name
     that is not an instant has no bound.
   - The number of shards differs from the number with which any shard of this tick was granted.
2. The lease of another owner. If it ends more than its ttl ahead, the store's clock was set back, and it is cut to
   now + ttl. If it has not expired, a firing of the same tick is refused `held`, and so is one with `failover` if
   neither has a tick: it waits for that execution. For any other, the holder may be dead if its last heartbeat is older
   than two intervals or its session lock is free. Then the answer is `AskAgain("orphaned")` until that lease has
   expired or was renewed; else `held`.
3. The end of the newest execution of the tick is unknown: it is recorded as running, or its lease has expired. It is
   expired, if the safeguards (6) allow it, and then the decision is made anew.
4. The tick has an execution: `done`, unless all its executions are `not-started`. An instant below the high-water mark
   is `passed`, with the newer tick as the detail. So is an instant at the mark without an execution, or where retention
   may have removed a start. `again` skips both. A mark more than `MAX_CLOCK_SKEW` ahead was written by a clock that was
   wrong, and counts as a day ago: an older instant may have run, and be out of the log. With `failover` a tick is taken
   over if its last attempt that started is `lost`, or if it is `failed` or `timed-out` and a retry was to follow
   (`keep`). It is refused if its instant is below the high-water mark (`passed`), or if that attempt's number is above
   `retries` (`exhausted`). A firing that `resumes` follows an attempt that is `lost` or `stopped`, with neither of
   these limits. Without a tick, a firing with `failover` that has `awaited` an execution is refused `done` when that
   execution, or the newest one without a tick since, has ended. It has not ended if it is `lost` or `not-started`, if
   it is `stopped` without a request, or if a retry was to follow. `again` skips this too.
5. `recent`: the minute rule refuses when the last start was less than `min_gap` ago and came itself later than 60 s -
   `min_gap` into its own minute (by its own host's clock). Without a tick it refuses when the last start was less than
   `min_gap` ago. A last start in the future counts as now; more than `MAX_CLOCK_SKEW` ahead it was written by a clock
   that was wrong, and does not count. A takeover ignores the gap; without a tick, only if the attempt that it follows
   was the last start. `recent` has the holder of that start, if the store knows it. `late`: more than
   `starting_deadline` after an instant. `again` skips both.
6. The store's second safeguards. A server that may have forgotten leases in a restart or a promotion: the answer is
   `AskAgain("recovering")`, until every lease that it may have granted has expired. A session lock that is taken: if a
   lease has expired, the answer is `AskAgain("stale")`; if the heartbeat has not changed since (`watched`), the claim
   continues without the lock. If there is no lease, the answer is `AskAgain("contended")`, unless the claim is to
   continue without the lock (`alone`).
7. An expired lease of another tick is expired. This comes last: a refused firing starts nothing, so it leaves a late
   holder alone.
8. Granted. The cause is `manual` with `again`, `takeover` if it follows an attempt that was lost or whose retry never
   came, `catch-up` if the tick was missed, else `schedule`. But a firing with `catch_up` is told `Behind` first if the
   scheduled time before its own is above the high-water mark: it makes up what was missed, and claims again.
"""

from __future__ import annotations

from oncecron.core.clock import believed, is_ahead
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import (
    AskAgain,
    Behind,
    BlockingLease,
    Holder,
    Refusal,
    why_clocks_differ,
    why_not_yet,
    why_other_shards,
)
from oncecron.core.tick import minute_tick
from oncecron.core.timing import (
    HEARTBEATS_PER_TTL,
    MAX_CLOCK_SKEW,
    PLAIN_SKIP_EARLY,
    PLAIN_SKIP_LATE,
    PLAIN_SKIP_WITHIN,
    SILENT_FOR,
)

if TYPE_CHECKING:
    from typing import Any, Literal

    from oncecron.core.model import Cause, Firing, Outcome, RefusalReason

    Lock = Literal["none", "unknown", "free", "taken", "busy"]
    """The session lock. `none`: the store has none, or not for this connection. `unknown`: it was not looked at, nor
    was `recovering_for`. `busy`: its holder is in the middle of a claim or an end."""

CONTENDED_PAUSE = 0.05
"""After meeting another firing in the middle of its claim or end: both last for some milliseconds."""


class Attempt(NamedTuple):
    """An execution, as far as a claim has to know it."""

    execution_id: int
    attempt: int
    """Its number in its tick, from 1."""
    outcome: Outcome
    retrying: bool
    """Whether a retry was to follow (`keep`)."""
    requested_by: str | None
    """Who requested its end."""
    started_at: float
    holder: Holder
    fencing_token: int = 0
    """Of the firing's own execution."""
    cause: Cause = "schedule"
    """Of the firing's own execution."""
    place: str | None = None
    """Of the firing's own execution, as the store keeps it (`place_text`)."""


class HeldLease(NamedTuple):
    """The lease of the key, expired or not."""

    execution_id: int
    tick: str | None
    holder: Holder | None
    """None: its execution is not on record any more."""
    started_at: float
    ttl: float
    ends_in: float
    """Seconds; 0 or less: it has expired."""
    silent_for: float
    """Seconds since the last heartbeat."""
    heartbeat: float | str
    """The last heartbeat, as the store wants it back (`watched`)."""
    has_session: bool = False
    """Whether its holder has the session lock, if it lives."""
    backend_pid: int | None = None
    backend_start: int | None = None
    """In microseconds since the epoch."""


class Stop(NamedTuple):
    """What keeps a key from its start: its own pause, else that of all keys, else the drain of the host.

    What oncecron runs for itself is kept from it by its own pause alone: a pass of notify tells people of the others.
    """

    refusal: Literal["paused", "drained"]
    author: str
    reason: str | None
    since: float


class State(NamedTuple):
    """What a store knows of a key and a firing, at one instant of its own clock."""

    version: Any
    """What `grant` and `expire` compare, as the store wants it back: it differs when anything below has changed that is
    not time itself."""
    now: float
    host_ahead: float
    """Seconds by which the host's clock is ahead of the store's."""
    own: Attempt | None = None
    """The newest execution of this owner, for this shard."""
    own_has_lease: bool = False
    stop: Stop | None = None
    other_shards: int | None = None
    """A number of shards, other than the firing's, with which a shard of this tick was granted."""
    lease: HeldLease | None = None
    newest: Attempt | None = None
    """Of the tick; without a tick, of the awaited execution and those without a tick since. The newest that may have
    started, else the newest."""
    forgotten: bool = False
    """Whether retention may have removed a start of the tick."""
    high_water: float | None = None
    """The newest instant that was granted."""
    last_start: float | None = None
    """When a job of the key was last started."""
    last_lateness: float | None = None
    """How many seconds into its own minute, by its own host's clock."""
    last_holder: Holder | None = None
    running: bool = False
    """Whether an execution is recorded as running."""
    attempts: int = 0
    """The highest number of an attempt of the tick; 0 without a tick."""
    fence: int = 0
    """The last fencing token."""
    presence: str | None = None
    """What is known of the firing's host (`core.presence`)."""
    lock: Lock = "none"
    recovering_for: float = 0.0
    """Seconds until every lease that a restarted server may have forgotten has expired."""


class Grant(NamedTuple):
    """Nothing that was looked at is in the way."""

    attempt: int
    cause: Cause
    follows: int | None = None
    """The execution after which it goes on: from its place, if that has one."""


class Expire(NamedTuple):
    """A lease has expired, or an execution runs without one: take it away, and look again."""

    note: str


class Cut(NamedTuple):
    """A lease ends too far ahead: let it end a ttl from now, and look again."""


class Regain(NamedTuple):
    """The firing has its lease already: renew it."""

    own: Attempt


class PlainSkip(NamedTuple):
    """A skip of which a store needs to keep only what differs from tick to tick (`plain_skip`)."""

    minute: int
    """Of the tick, since the epoch."""
    code: int
    """20 bits: whether the reason is `done` and not `held`, and when the skip happened, in milliseconds since
    `PLAIN_SKIP_EARLY` before the time of the tick (19 bits)."""
    execution_id: int
    """Of the holder: the first attempt of the tick."""

    @property
    def window(self) -> int:
        """Return the minute at which the window of `PLAIN_WINDOW` minutes begins that the tick is in."""
        return self.minute - self.minute % PLAIN_WINDOW

    @property
    def packed(self) -> tuple[int, int]:
        """Return the minute from which a number counts, and the number: 31 bits, where the holder need not be in it."""
        return self.minute & -2048, (self.minute & 2047) << PLAIN_BITS | self.code

    @property
    def word(self) -> str:
        """Return what a store keeps of it that has one text for each window (`stores.reader.PackedSkips`)."""
        return f"{(self.minute - self.window) << PLAIN_BITS | self.code:x}:{self.execution_id:x} "


class LookCloser(NamedTuple):
    """The second safeguards have to be looked at (`Lock`)."""


def decide(
    state: State, firing: Firing, *, watched: float | str | None = None, alone: bool = False
) -> Refusal | AskAgain | Behind | Grant | Expire | Cut | Regain | LookCloser:
    """Decide, in the numbered steps above. Raises `ConfigurationError`.

    `watched`: the last heartbeat of a holder that has been silent since; `alone`: do without the session lock. Both are
    those of `LeaseStore.claim`.
    """
    if state.own is not None:  # 0
        lost = _because_of("done", state.own)._replace(own=True)
        return Regain(state.own) if state.own_has_lease else lost
    if state.stop is not None:  # 1
        return stop_refusal(state.stop)
    _check_clocks(state, firing)
    if state.other_shards is not None:
        raise ConfigurationError(why_other_shards(firing, state.other_shards))
    lease = state.lease  # 2
    if lease is None or lease.ends_in <= 0:
        return _without_valid_lease(state, firing, watched, alone=alone)
    return Cut() if lease.ends_in > lease.ttl else _blocked_by(lease, firing, state.lock)


def stop_refusal(stop: Stop) -> Refusal:
    """Return the refusal by a pause or a drain."""
    why = f": {stop.reason}" if stop.reason else ""
    return Refusal(stop.refusal, since=stop.since, detail=f"by {stop.author}{why}")


def _because_of(reason: RefusalReason, attempt: Attempt) -> Refusal:
    return Refusal(reason, attempt.holder, attempt.started_at, attempt.outcome)


def _check_clocks(state: State, firing: Firing) -> None:
    tick = firing.tick
    ahead = 0.0 if tick.instant is None else tick.instant - state.now
    if tick.rule == "name":
        if ahead > MAX_CLOCK_SKEW:
            raise ConfigurationError(why_not_yet(tick, ahead))
    elif tick.rule in ("schedule", "minute", "catch-up"):
        off = max(abs(state.host_ahead), ahead)  # the host's clock, now and when it named the tick
        if off > MAX_CLOCK_SKEW:
            raise ConfigurationError(why_clocks_differ(tick, off))


def _blocked_by(lease: HeldLease, firing: Firing, lock: Lock) -> Refusal | AskAgain | LookCloser:
    """Answer a firing that found a valid lease: a holder that does not renew may be dead."""
    same_tick = lease.tick == firing.tick.text
    blocked_by = BlockingLease(lease.execution_id, lease.ends_in, lease.heartbeat, same_tick)
    held = Refusal("held", lease.holder, lease.started_at, blocked_by=blocked_by)
    if same_tick and (firing.tick.text is not None or firing.failover):
        return held
    seems_dead = lease.silent_for > lease.ttl * SILENT_FOR
    if not seems_dead and lease.has_session:
        if lock == "unknown":
            return LookCloser()
        seems_dead = lock == "free"
    if not seems_dead:
        return held
    return _ask_again("orphaned", lease, firing, min(lease.ends_in, lease.ttl / HEARTBEATS_PER_TTL))


def _ask_again(
    why: Literal["orphaned", "stale"], lease: HeldLease, firing: Firing, after: float
) -> AskAgain:
    stale, same_tick = why == "stale", lease.tick == firing.tick.text
    ends_in = max(0.0, lease.ends_in)
    detail = f"by PostgreSQL backend {lease.backend_pid}" if stale else None
    blocked_by = BlockingLease(lease.execution_id, ends_in, lease.heartbeat, same_tick)
    held = Refusal("held", lease.holder, lease.started_at, detail, blocked_by)
    backend = (lease.backend_pid, lease.backend_start) if stale else (None, None)
    return AskAgain(why, after, ends_in, held, lease.heartbeat, *backend)


def _without_valid_lease(
    state: State, firing: Firing, watched: float | str | None, *, alone: bool
) -> Refusal | AskAgain | Behind | Grant | Expire | LookCloser:
    newest = state.newest
    safeguard = _second_safeguard(state, firing, watched, alone=alone)  # 6
    expire = Expire(f"its lease ended, found by {firing.holder.host}")
    if _has_unknown_end(newest, state.lease):  # 3
        return expire if safeguard is None else safeguard
    follows = newest if newest is not None and _is_taken_over(newest, firing) else None
    refusal = _already_ran(state, firing, follows) or _too_soon(state, firing, follows)  # 4, 5
    if refusal is not None:
        return refusal
    if state.lease is not None or state.running:
        return expire if safeguard is None else safeguard  # 7
    if isinstance(safeguard, AskAgain):
        return safeguard
    mark, before = state.high_water, firing.previous
    if before is not None and mark is not None and mark < before:
        return Behind(mark)
    cause = _cause(firing, follows)
    unfinished = newest.execution_id if newest and newest.outcome != "succeeded" else None
    return Grant(state.attempts + 1, cause, unfinished)  # 8; it looks at the safeguards itself


def _has_unknown_end(newest: Attempt | None, lease: HeldLease | None) -> bool:
    if newest is None:
        return False
    has_lease = lease is not None and lease.execution_id == newest.execution_id
    return newest.outcome == "running" or has_lease


def _is_taken_over(newest: Attempt, firing: Firing) -> bool:
    if firing.again:
        return False
    if firing.resumes:
        return newest.outcome in ("lost", "stopped")
    return firing.failover and (newest.outcome == "lost" or newest.retrying)


def goes_on_after(state: State, firing: Firing, lost: int) -> bool:
    """Return whether a firing takes over after an execution that its claim has declared lost.

    Then the run that takes over reports the end of the tick.
    """
    newest = state.newest
    if newest is None or newest.execution_id != lost:
        return False
    follows = newest._replace(outcome="lost")
    if not _is_taken_over(follows, firing):
        return False
    after = state._replace(newest=follows)
    return not (_already_ran(after, firing, follows) or _too_soon(after, firing, follows))


def _already_ran(state: State, firing: Firing, follows: Attempt | None) -> Refusal | None:
    """Refuse a tick that has an execution, or that is older than the newest claimed tick."""
    newest = state.newest
    if firing.again:
        return None
    started = None if newest is None or newest.outcome == "not-started" else newest
    if firing.tick.text is None:
        return _over(started) if started is not None and follows is None else None
    if started is not None and follows is None:
        return _because_of("done", started)
    instant = None if firing.resumes and follows is not None else firing.tick.instant
    high_water = state.high_water
    if instant is not None and high_water is not None:
        forgotten = newest is None or (started is None and state.forgotten)
        mark = believed(high_water, state.now)
        if instant < mark or (instant == mark and forgotten):
            return Refusal("passed", detail=f"by tick {minute_tick(high_water).text}")
    if follows is not None and follows.attempt > firing.retries and not firing.resumes:
        return _because_of("exhausted", follows)
    return None


def _over(awaited: Attempt) -> Refusal | None:
    """Refuse a standby without a tick when the execution that it waits for has ended as intended."""
    shut_down = awaited.outcome == "stopped" and awaited.requested_by is None
    return None if shut_down else _because_of("done", awaited)


def _too_soon(state: State, firing: Firing, follows: Attempt | None) -> Refusal | None:
    if firing.again:
        return None
    tick, gap, last = firing.tick, firing.min_gap, state.last_start
    if last is not None and is_ahead(last, state.now):
        last = None
    if gap is not None and last is not None:
        by_itself = follows is not None and (tick.text is not None or last <= follows.started_at)
        late_in_its_minute = tick.rule == "minute" and (state.last_lateness or 0.0) > 60 - gap
        ago = max(0.0, state.now - last)
        if ago < gap and not by_itself and (tick.rule == "none" or late_in_its_minute):
            return Refusal("recent", state.last_holder, since=last)
    instant, limit = tick.instant, firing.starting_deadline
    if tick.rule == "catch-up":
        return None
    if instant is not None and limit is not None and state.now - instant > limit:
        return Refusal("late", since=instant)
    return None


def _second_safeguard(
    state: State, firing: Firing, watched: float | str | None, *, alone: bool
) -> AskAgain | LookCloser | None:
    """Answer a firing that only a server in doubt, or a session lock that is taken, keeps from its start."""
    if state.lock == "unknown":
        return LookCloser()
    if state.recovering_for > 0:
        seconds = state.recovering_for
        return AskAgain("recovering", seconds, seconds, Refusal("held"))
    if alone or state.lock not in ("taken", "busy"):
        return None
    if state.lease is None or state.lock == "busy":
        return contention()
    if state.lease.heartbeat == watched:
        return None
    return _ask_again("stale", state.lease, firing, state.lease.ttl * SILENT_FOR)


def contention() -> AskAgain:
    """Return the answer to a firing that met another one in the middle of a claim or an end."""
    return AskAgain("contended", CONTENDED_PAUSE, 0.0, Refusal("held"))


def _cause(firing: Firing, follows: Attempt | None) -> Cause:
    if firing.again:
        return "manual"
    if follows is not None:
        return "takeover"
    return "catch-up" if firing.tick.rule == "catch-up" else "schedule"


PLAIN_BITS = 20
"""Of `PlainSkip.code`."""
PLAIN_DONE = 1 << PLAIN_BITS - 1
PLAIN_WINDOW = 128
"""Minutes: two hours of skips of a host in one text of at most two kilobytes."""


def plain_skip(state: State, firing: Firing, refusal: Refusal) -> PlainSkip | None:
    """Return the skip if it is one of those that every host but one has at every tick; None if it tells more.

    Another host runs, or has run, the first attempt of the same tick, which is a minute, and the firing was in time.
    What the skip says of its holder is then what the log says of that attempt.
    """
    tick, first, lease = firing.tick, state.newest, state.lease
    done = refusal.reason == "done"
    held = (
        refusal.reason == "held"
        and lease is not None
        and first is not None
        and lease.execution_id == first.execution_id
    )
    if (
        not (done or held)
        or state.own is not None
        or first is None
        or first.attempt != 1
        or firing.again
    ):
        return None
    if (
        tick.instant is None
        or tick.instant % 60
        or abs(state.now - firing.fired_at) > PLAIN_SKIP_WITHIN
    ):
        return None
    late = state.now - tick.instant
    if not -PLAIN_SKIP_EARLY <= late < PLAIN_SKIP_LATE:
        return None
    code = int((late + PLAIN_SKIP_EARLY) * 1000) + (PLAIN_DONE if done else 0)
    return PlainSkip(int(tick.instant // 60), code, first.execution_id)
