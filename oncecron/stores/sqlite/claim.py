"""The claim on SQLite, in the numbered steps of `oncecron.stores.api`.

Both halves run in a transaction that the caller began. `look` (steps 0 to 2) only reads, and most losing firings end
there. `decide` (all steps) holds the file's write lock, which is step 4. It locks every key, for about as long as one
write to the disk takes. There is no session lock (step 3): the kernel clock of one machine ends a lease, so no second
safeguard is needed.

The lease clock (boot id and CLOCK_MONOTONIC) at the beginning of the transaction decides whether a lease has expired.
The wall clock is for the log, the gap, the deadline and the fencing token. The host's clock is the store's own clock,
so the two never differ. Only a derived tick far ahead of the present time shows that the clock was wrong.
"""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import (
    AskAgain,
    BlockingLease,
    Holder,
    Lease,
    Refusal,
    trust_after,
    why_not_yet,
    why_other_shards,
)
from oncecron.core.tick import minute_tick
from oncecron.core.timing import HEARTBEATS_PER_TTL, MAX_CLOCK_SKEW

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.model import Firing, LostByStore, RefusalReason
    from oncecron.stores.sqlite.connection import Connection

Values = dict[str, "Any"]


def moment(boot: str) -> Values:
    """Return the present time of all clocks, by their names in the statements."""
    return {"boot": boot, "lease_now": clock.lease_time(clock.MONOTONIC), "now": clock.wall()}


def look(
    store: Connection, firing: Firing, now: Values, awaited: int | None
) -> Refusal | AskAgain | None:
    """Return the answer, or None if the decision needs the lock."""
    asked = _asked(firing, now, awaited)
    own = store.one("own_execution", **asked)
    if own is not None:
        return None if own["has_lease"] else _done(own)
    refusal = _gate(store, firing, asked)
    if refusal is not None:
        return refusal
    lease = store.one("find_lease", **asked)
    if lease is None:
        return _already_ran(store, firing, asked)
    if 0 < lease["ends_in"] <= lease["ttl"]:
        return _blocked_by(lease, firing)
    return None


def decide(
    store: Connection, firing: Firing, now: Values, awaited: int | None
) -> Lease | Refusal | AskAgain:
    """Decide, write the result, and return the answer."""
    asked = _asked(firing, now, awaited)
    own = store.one("own_execution", **asked)  # 0
    if own is not None:
        return _granted_before(store, firing, asked, own)
    store.execute("register_key", **asked)  # 1
    refusal = _gate(store, firing, asked)
    if refusal is not None:
        return refusal
    store.execute("cut_lease", **asked)  # 2
    lease = store.one("find_lease", **asked)
    if lease is not None and lease["ends_in"] > 0:
        return _blocked_by(lease, firing)
    if _has_no_end(_newest(store, firing, asked), lease):
        _take_expired_away(store, asked)  # 5: of this tick
    refusal = _already_ran(store, firing, asked)
    left = _attempt_to_follow(store, firing, asked)
    refusal = refusal or _is_recent(store, firing, asked, left)  # 6
    if refusal is not None:
        return refusal
    _take_expired_away(store, asked)  # 5
    return _grant(store, firing, asked, left)  # 7


def microseconds(now: Values) -> int:
    """Return the store's clock as a fencing token."""
    return int(now["now"] * 1_000_000)


def refused(store: Connection, asked: Values) -> Refusal | None:
    """Return the refusal by a pause of the key or a drain of the host, or None."""
    pause = store.one("find_pause", **asked)
    if pause is not None:
        words = (f"by {pause['author']}", pause["reason"])
        return Refusal("paused", since=pause["at"], detail=": ".join(filter(None, words)))
    drain = store.one("find_drain", **asked)
    if drain is not None:
        return Refusal("drained", since=drain["at"], detail=f"by {drain['author']}")
    return None


def take_away(store: Connection, asked: Values, reason: LostByStore, note: str) -> bool:
    """Declare executions without a valid lease lost: their jobs are dead by then. Return whether there was one."""
    lost = store.execute("declare_lost", **asked, lost_reason=reason, note=note).rowcount
    store.execute("lose_kept", **asked, lost_reason=reason, note=note)
    return bool(store.execute("take_lease_away", **asked).rowcount or lost)


def raise_fence(store: Connection, asked: Values) -> None:
    """Raise the fencing token, so that the job of an earlier execution fails its fence check."""
    store.execute("raise_fence", **asked, microseconds=microseconds(asked))


def _asked(firing: Firing, now: Values, awaited: int | None) -> Values:
    return {
        "key": firing.key,
        "shard": firing.shard,
        "shards": firing.shards,
        "tick": firing.tick.text,
        "awaited": awaited,
        "owner": firing.owner,
        "host": firing.holder.host,
        **now,
    }


def _granted_before(store: Connection, firing: Firing, asked: Values, own: Any) -> Lease | Refusal:
    """Answer a repeated claim, whose first answer was lost."""
    renewed = store.execute("renew_lease", **asked, execution_id=own["execution_id"]).rowcount
    return _lease(firing, asked, own) if renewed else _done(own)


def _gate(store: Connection, firing: Firing, asked: Values) -> Refusal | None:
    refusal = refused(store, asked)
    if refusal is not None:
        return refusal
    instant = firing.tick.instant
    if instant is not None and instant > asked["now"] + MAX_CLOCK_SKEW:
        ahead = instant - asked["now"]
        if firing.tick.rule == "name":
            raise ConfigurationError(why_not_yet(firing.tick, ahead))
        raise ConfigurationError(
            f"tick {firing.tick.text} is {ahead:.0f} s ahead of this machine's clock, which was set back "
            "after the tick was derived; check the clock: `date -u`"
        )
    other = store.one("other_number_of_parts", **asked)
    if other is not None:
        raise ConfigurationError(why_other_shards(firing, other["shards"]))
    return None


def _blocked_by(lease: Any, firing: Firing) -> Refusal | AskAgain:
    """Answer a firing that found a valid lease: a holder that does not renew may be dead."""
    ends_in, heartbeat = lease["ends_in"], lease["heartbeat"]
    same_tick = firing.tick.text == lease["tick"]
    blocked_by = BlockingLease(lease["execution_id"], ends_in, heartbeat, same_tick)
    held = Refusal("held", _holder(lease), lease["started_at"], blocked_by=blocked_by)
    interval = lease["ttl"] / HEARTBEATS_PER_TTL
    this_tick = same_tick and lease["tick"] is not None
    if this_tick or lease["silent_for"] <= 2 * interval:
        return held
    return AskAgain("orphaned", min(ends_in, interval), ends_in, held, watched=heartbeat)


def _already_ran(store: Connection, firing: Firing, asked: Values) -> Refusal | None:
    """Refuse a tick that has an execution, or that is older than the newest claimed tick."""
    if firing.tick.text is None:
        return _over(store, firing, asked)
    newest = store.one("find_newest", **asked)
    outcome = None if newest is None else newest["outcome"]
    if firing.again or outcome == "running":  # without a lease: the lock decides
        return None
    resumes = firing.failover and _may_be_followed(newest)
    if outcome not in (None, "not-started") and not resumes:
        return _done(newest)
    forgotten = newest is None or (newest["forgotten"] and not resumes)  # and may have started
    high_water = _overtaken_by(store, firing, asked, forgotten=forgotten)
    if high_water is not None:
        return Refusal("passed", detail=f"by tick {minute_tick(high_water).text}")
    if resumes and newest["attempt"] > firing.retries:
        return _refusal("exhausted", newest)
    return None


def _overtaken_by(
    store: Connection, firing: Firing, asked: Values, *, forgotten: bool
) -> float | None:
    """Return a newer claimed instant, or this one if retention has removed its execution; else None."""
    key, instant = store.one("find_key", **asked), firing.tick.instant
    if instant is None or key is None or key["high_water"] is None:
        return None
    overtaken = instant < key["high_water"] or (instant == key["high_water"] and forgotten)
    return float(key["high_water"]) if overtaken else None


def _over(store: Connection, firing: Firing, asked: Values) -> Refusal | None:
    """Refuse a standby without a tick when the execution that it waits for has ended as intended."""
    leader = None if firing.again else _newest(store, firing, asked)
    if (
        leader is None
        or leader["outcome"] in ("running", "not-started")
        or _may_be_followed(leader)
    ):
        return None
    shut_down = leader["outcome"] == "stopped" and leader["requested_by"] is None
    return None if shut_down else _done(leader)


def _newest(store: Connection, firing: Firing, asked: Values) -> Any:
    """Return the newest execution of the tick, or without a tick since the awaited one."""
    if firing.tick.text is not None:
        return store.one("find_newest", **asked)
    return store.one("find_awaited", **asked) if firing.failover else None


def _has_no_end(execution: Any, lease: Any) -> bool:
    """Return whether an execution has no recorded end, or still has its lease, which has expired."""
    if execution is None:
        return False
    leased = lease is not None and lease["execution_id"] == execution["execution_id"]
    return leased or bool(execution["outcome"] == "running")


def _take_expired_away(store: Connection, asked: Values) -> None:
    if take_away(store, asked, "expired", f"its lease ended, found by {asked['host']}"):
        raise_fence(store, asked)


def _attempt_to_follow(store: Connection, firing: Firing, asked: Values) -> Any:
    """Return the attempt that this firing takes over, or None if it is a new start."""
    if firing.again or not firing.failover:
        return None
    before = _newest(store, firing, asked)
    return before if _may_be_followed(before) else None


def _may_be_followed(execution: Any) -> bool:
    """Return whether an execution was lost, or failed and its retry never came."""
    return execution is not None and bool(execution["outcome"] == "lost" or execution["retrying"])


def _is_recent(store: Connection, firing: Firing, asked: Values, left: Any) -> Refusal | None:
    key = store.one("find_key", **asked)
    gap, last = firing.min_gap, key["last_start"]
    if gap is not None and last is not None and not firing.again:
        ago = max(0.0, asked["now"] - last)
        by_itself = left is not None and (firing.tick.text or last <= left["started_at"])
        late_in_its_minute = firing.tick.rule == "minute" and key["last_lateness"] > 60 - gap
        if ago < gap and not by_itself and (firing.tick.rule == "none" or late_in_its_minute):
            started = store.one("last_started", **asked)
            return Refusal("recent", None if started is None else _holder(started), since=last)
    instant, limit = firing.tick.instant, firing.starting_deadline
    if instant is not None and limit is not None and asked["now"] - instant > limit:
        return Refusal("late", since=instant)
    return None


def _grant(store: Connection, firing: Firing, asked: Values, left: Any) -> Lease:
    granted = {
        "attempt": store.one("next_attempt", **asked)[0],
        "fencing_token": max(store.one("find_key", **asked)["fence"] + 1, microseconds(asked)),
        "started_at": asked["now"],
    }
    asked = {
        **asked,
        **granted,
        "tick_instant": firing.tick.instant,
        "named": firing.tick.text is not None and firing.tick.instant is None,
        "pid": firing.holder.pid,
        "user": firing.holder.user,
        "command": firing.command,
        "ttl": firing.ttl,
        "schedule": firing.schedule,
        "zone": firing.zone,
        "lateness": firing.fired_at % 60,
        "retries": firing.retries,
        "cause": "manual" if firing.again else "schedule" if left is None else "takeover",
    }
    asked["execution_id"] = store.execute("insert_execution", **asked).lastrowid
    store.execute("insert_lease", **asked)
    store.execute("mark_key", **asked)
    return _lease(firing, asked, asked)


def _lease(firing: Firing, asked: Values, execution: Any) -> Lease:
    """Return the lease; its trust counts from the beginning of the transaction, by the same clock."""
    return Lease(
        key=firing.key,
        shard=firing.shard,
        tick=firing.tick.text,
        owner=firing.owner,
        attempt=execution["attempt"],
        execution_id=execution["execution_id"],
        token=execution["fencing_token"],
        ttl=firing.ttl,
        started_at=execution["started_at"],
        trusted_until=trust_after(asked["lease_now"], firing.ttl),
        cause=execution["cause"],
    )


def _done(execution: Any) -> Refusal:
    return _refusal("done", execution)


def _refusal(reason: RefusalReason, execution: Any) -> Refusal:
    return Refusal(reason, _holder(execution), execution["started_at"], execution["outcome"])


def _holder(row: Any) -> Holder:
    return Holder(row["host"], row["pid"], row["user"])
