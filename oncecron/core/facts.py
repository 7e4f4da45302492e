"""What a claim, a start, an end and a skip exchange with a store, by name: the same names and units in every store.

**Facts** are what a store answers. A value may be as the store has it: a number may be text, and a flag is true unless
it is 0. What is not so is absent, or None. Times are seconds since the epoch, and an attempt, an execution and a holder
have the same fields behind a prefix (`own_`, `newest_`, `lease_`, `last_`):

    now, host_now       the store's clock, and the host's when it looked; without `host_now` they are one clock
    version             what `grant` and `expire` compare
    own_...             the fields of an attempt, fencing_token, cause, place, has_lease
    newest_...          execution_id, attempt, outcome, retrying, requested_by, started_at, host, pid, user
    attempts, forgotten
    lease_...           execution_id, tick, started_at, ttl, expires_at, heartbeat_at, has_session, backend_pid,
                        backend_start; and host, pid, user, unless its execution is not on record any more
    lease_now           the clock of `lease_expires_at` and `lease_heartbeat_at`, where it is not `now`
    last_...            host, pid, user of the last start; `last_start`, `last_lateness`
    stop_...            kind (`key` or `host`), author, reason, since
    other_shards, high_water, running, fence, presence, lock, recovering_for

`State` explains those that have its names. **Values** are what a store is sent; their order is fixed, because a store
may take them by their places.
"""

from __future__ import annotations

from oncecron.core.decision import Attempt, HeldLease, State, Stop
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import (
    Holder,
    Lease,
    LostRun,
    owner_digest,
    place_of,
    place_text,
    trust_after,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from oncecron.core.model import Ending, Firing, Refusal

    Facts = Mapping[str, Any]
    Values = dict[str, str | int | float | None]


_LARGEST = (1 << 53) - 1
"""Up to this, a double has every whole number, as Lua and JSON write them; SQLite and PostgreSQL have more."""


def state_of(facts: Facts) -> State:
    """Return what the facts of a look mean. Raises one of `UNREADABLE`."""
    now = float(facts["now"])
    return State(
        version=facts["version"],
        now=now,
        host_ahead=float(facts.get("host_now", now)) - now,
        own=_attempt(facts, "own_"),
        own_has_lease=bool(facts.get("own_has_lease")),
        stop=stop_of(facts),
        other_shards=_whole(facts, "other_shards") or None,
        lease=_lease(facts, _seconds(facts, "lease_now") or now),
        newest=_attempt(facts, "newest_"),
        forgotten=bool(facts.get("forgotten")),
        high_water=_seconds(facts, "high_water"),
        last_start=_seconds(facts, "last_start"),
        last_lateness=_seconds(facts, "last_lateness"),
        last_holder=_holder(facts, "last_"),
        running=bool(facts.get("running")),
        attempts=_whole(facts, "attempts") or 0,
        fence=_whole(facts, "fence") or 0,
        presence=facts.get("presence"),
        lock=facts.get("lock", "none"),
        recovering_for=_seconds(facts, "recovering_for") or 0.0,
    )


def stop_of(facts: Facts) -> Stop | None:
    """Return the pause or the drain that keeps a key from its start, if there is one."""
    kind = facts.get("stop_kind")
    if kind is None:
        return None
    refusal: Literal["paused", "drained"] = "paused" if kind == "key" else "drained"
    return Stop(refusal, facts["stop_author"], facts.get("stop_reason"), float(facts["stop_since"]))


def _attempt(facts: Facts, prefix: str) -> Attempt | None:
    execution_id = facts.get(prefix + "execution_id")
    if execution_id is None:
        return None
    return Attempt(
        int(execution_id),
        int(facts[prefix + "attempt"]),
        facts[prefix + "outcome"],
        bool(facts.get(prefix + "retrying")),
        facts.get(prefix + "requested_by"),
        float(facts[prefix + "started_at"]),
        Holder(facts[prefix + "host"], int(facts[prefix + "pid"]), facts[prefix + "user"]),
        _whole(facts, prefix + "fencing_token") or 0,
        facts.get(prefix + "cause", "schedule"),
        facts.get(prefix + "place"),
    )


def _lease(facts: Facts, now: float) -> HeldLease | None:
    execution_id = facts.get("lease_execution_id")
    if execution_id is None:
        return None
    heartbeat = facts["lease_heartbeat_at"]
    return HeldLease(
        execution_id=int(execution_id),
        tick=facts.get("lease_tick"),
        holder=_holder(facts, "lease_"),
        started_at=float(facts["lease_started_at"]),
        ttl=float(facts["lease_ttl"]),
        ends_in=float(facts["lease_expires_at"]) - now,
        silent_for=now - float(heartbeat),
        heartbeat=heartbeat,
        has_session=bool(facts.get("lease_has_session")),
        backend_pid=_whole(facts, "lease_backend_pid"),
        backend_start=_whole(facts, "lease_backend_start"),
    )


def _holder(facts: Facts, prefix: str) -> Holder | None:
    host = facts.get(prefix + "host")
    return host and Holder(host, int(facts[prefix + "pid"]), facts[prefix + "user"])


def _seconds(facts: Facts, name: str) -> float | None:
    value = facts.get(name)
    if value is not None and float(value) != float(value):
        raise ValueError(f"{name} is {value!r:.60}")
    return None if value is None else float(value)


def _whole(facts: Facts, name: str) -> int | None:
    """Return a whole number that rises by one in every store, as a fencing token does."""
    value = facts.get(name)
    if value is not None and not -_LARGEST < int(value) < _LARGEST:
        raise ValueError(f"{name} is {value!r:.60}")
    return None if value is None else int(value)


def lost_run(facts: Facts) -> LostRun:
    """Return what `expire` answers: the fields of `LostRun`, but `owner` where the store makes no digest."""
    return LostRun(
        execution_id=int(facts["execution_id"]),
        owner_digest=facts.get("owner_digest") or owner_digest(facts["owner"]),
        tick=facts.get("tick"),
        attempt=int(facts["attempt"]),
        cause=facts["cause"],
        outcome=facts["outcome"],
        exit_code=_whole(facts, "exit_code"),
        signal=_whole(facts, "signal"),
        lost_reason=facts["lost_reason"],
        requested_by=facts.get("requested_by"),
        host=facts["host"],
        pid=int(facts["pid"]),
        user=facts["user"],
        started_at=float(facts["started_at"]),
        duration=_seconds(facts, "duration"),
        note=facts.get("note"),
        shards=_whole(facts, "shards") or 1,
    )


def first_lease(firing: Firing, started: Facts, sent: float) -> Lease:
    """Return the lease that was granted to a claim which was sent at `sent` (lease clock); `started`: its execution."""
    return Lease(
        *(firing.key, firing.shard, firing.tick.text, firing.owner),
        *(int(started["attempt"]), int(started["execution_id"]), int(started["fencing_token"])),
        *(firing.ttl, float(started["started_at"]), trust_after(sent, firing.ttl)),
        cause=started["cause"],
        place=place_of(started.get("place")),
    )


def next_lease(lease: Lease, started: Facts, sent: float) -> Lease:
    """Return the lease of the next attempt, which was begun by a call that was sent at `sent` (lease clock)."""
    return lease._replace(
        attempt=int(started["attempt"]),
        execution_id=int(started["execution_id"]),
        token=int(started["fencing_token"]),
        started_at=float(started["started_at"]),
        trusted_until=trust_after(sent, lease.ttl),
        request=None,
        cause=started["cause"],
        place=place_of(started.get("place")),
    )


def start_values(firing: Firing) -> Values:
    """Return what a start records of its firing."""
    tick, holder = firing.tick, firing.holder
    return {
        "key": firing.key,
        "shard": firing.shard,
        "tick": tick.text,
        "tick_instant": tick.instant,
        "owner": firing.owner,
        "host": holder.host,
        "pid": holder.pid,
        "user": holder.user,
        "command": firing.command,
        "fired_at": firing.fired_at,
        "shards": firing.shards,
        "retries": firing.retries,
    }


def skip_values(firing: Firing, refusal: Refusal) -> Values:
    """Return what a skip records."""
    holder = refusal.holder
    return {
        "key": firing.key,
        "shard": firing.shard,
        "tick": firing.tick.text,
        "host": firing.holder.host,
        "reason": refusal.reason,
        "pid": firing.holder.pid,
        "holder_host": holder and holder.host,
        "holder_pid": holder and holder.pid,
        "detail": refusal.detail,
    }


def lease_values(lease: Lease) -> Values:
    """Return what a call with a lease says about it."""
    return {
        "key": lease.key,
        "shard": lease.shard,
        "tick": lease.tick,
        "execution_id": lease.execution_id,
        "owner": lease.owner,
        "attempt": lease.attempt,
        "started_at": lease.started_at,
        "fencing_token": lease.token,
        "ttl": lease.ttl,
        "cause": lease.cause,
    }


def ending_values(ending: Ending) -> Values:
    """Return what the end of an execution records."""
    output, request = ending.output, ending.request
    return {
        "outcome": ending.outcome,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "duration": ending.duration,
        "note": ending.note,
        "output": output and output.text,
        "output_cut": output and output.cut,
        "lost_reason": ending.lost_reason,
        "request": request and request.kind,
        "requested_by": request and request.author,
        "place": place_text(ending.place),
    }
