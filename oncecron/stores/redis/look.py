"""What a claim tells the Lua steps, and the `State` that it makes of what they tell about the key."""

from __future__ import annotations

from oncecron import __version__
from oncecron.core import clock
from oncecron.core.claim import Attempt, HeldLease, State, Stop
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Holder
from oncecron.stores.redis.scripts import LAYOUT, OLDEST, shard_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.core.model import Firing
    from oncecron.stores.redis.resp import Reply

    Facts = Mapping[str, str]
    Values = dict[str, str | int | float | None]

FITTING = ((None, None), (str(LAYOUT), None if OLDEST is None else str(OLDEST)))
"""The versions that a new namespace has on record, and that this program writes."""


def asked(firing: Firing, awaited: int | None) -> Values:
    """Return the arguments of a step that gathers the facts."""
    return {
        "key": firing.key,
        "tick": firing.tick.text,
        "owner": firing.owner,
        "host": firing.holder.host,
        "shards": firing.shards,
        "ttl": firing.ttl,
        "awaited": awaited,
    }


def first_shard(firing: Firing) -> str | None:
    """Return the first shard of the key, which knows how each tick was divided; None if that is the firing's own."""
    return shard_of(firing.key, 0) if firing.shard else None


def described(firing: Firing) -> Values:
    """Return the arguments of a step that writes an execution."""
    tick, holder = firing.tick, firing.holder
    return {
        "key": firing.key,
        "shard": firing.shard,
        "tick": tick.text,
        "tick_instant": tick.instant,
        "owner": firing.owner,
        **holder._asdict(),
        "command": firing.command,
        "fired_at": firing.fired_at,
        "shards": firing.shards,
        "retries": firing.retries,
    }


def seen(firing: Firing) -> Values:
    """Return what a firing tells about its host and its crontab."""
    return {
        "version": __version__,
        "host_now": clock.wall(),
        "again": firing.again,
        "schedule": firing.expected_schedule,
        "zone": firing.zone,
        "shown_command": firing.shown_command,
        "machine": firing.machine,
    }


def texts(found: Reply) -> list[str | None]:
    """Return the values of a list, None for those that are not there."""
    values = found if isinstance(found, list) else []
    return [value.decode("latin-1") if isinstance(value, bytes) else None for value in values]


def named(flat: Reply) -> dict[str, str]:
    """Return an answer as a dictionary."""
    words = [
        word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
        for word in (flat if isinstance(flat, list) else [])
    ]
    return dict(zip(words[::2], words[1::2], strict=True))


def state_of(facts: Facts, firing: Firing, *, host_now: float, awaited: int | None) -> State:
    """Return the state. `host_now`: the host's clock when it looked; `awaited`: what it told the server."""
    now = float(facts["now"])
    own = _attempt(facts, "own_")
    return State(
        version=(facts["version"], awaited),
        now=now,
        host_ahead=host_now - now,
        own=own,
        own_has_lease=own is not None and _is_leased(own, facts, firing.owner),
        pause=stop(facts, "pause_"),
        drain=stop(facts, "drain_"),
        other_shards=_int(facts, "other_shards"),
        lease=_lease(facts, now),
        newest=_attempt(facts, "newest_"),
        forgotten="forgotten" in facts,
        high_water=_float(facts, "high_water"),
        last_start=_float(facts, "last_start"),
        last_lateness=_float(facts, "last_lateness"),
        last_holder=_holder(facts, "last_"),
        running="running" in facts,
        attempts=_int(facts, "attempts") or 0,
        fence=_int(facts, "fence") or 0,
        recovering_for=_float(facts, "recovering_for") or 0.0,
    )


def stop(facts: Facts, prefix: str) -> Stop | None:
    """Return a pause or a drain."""
    author = facts.get(prefix + "author")
    if author is None:
        return None
    return Stop(author, facts.get(prefix + "reason"), float(facts[prefix + "at"]))


def _attempt(facts: Facts, prefix: str) -> Attempt | None:
    if prefix + "id" not in facts:
        return None
    return Attempt(
        execution_id=int(facts[prefix + "id"]),
        number=int(facts[prefix + "attempt"]),
        outcome=facts[prefix + "outcome"],  # type: ignore[arg-type]
        retrying=prefix + "retrying" in facts,
        requested_by=facts.get(prefix + "requested_by"),
        started_at=float(facts[prefix + "started_at"]),
        holder=Holder(facts[prefix + "host"], int(facts[prefix + "pid"]), facts[prefix + "user"]),
        token=int(facts.get(prefix + "fencing_token", 0)),
        cause=facts.get(prefix + "cause", "schedule"),  # type: ignore[arg-type]
    )


def _is_leased(own: Attempt, facts: Facts, owner: str) -> bool:
    """Return whether an execution of the firing goes on, and has the lease."""
    lease = facts.get("lease_owner"), facts.get("lease_execution_id")
    return lease == (owner, str(own.execution_id)) and (own.outcome == "running" or own.retrying)


def _lease(facts: Facts, now: float) -> HeldLease | None:
    if "lease_owner" not in facts:
        return None
    return HeldLease(
        execution_id=int(facts["lease_execution_id"]),
        tick=facts.get("lease_tick"),
        holder=_holder(facts, "lease_"),
        started_at=float(facts.get("lease_started_at", facts["lease_acquired_at"])),
        ttl=float(facts["lease_ttl"]),
        ends_in=float(facts["lease_expires_at"]) - now,
        silent_for=now - float(facts["lease_heartbeat_at"]),
        heartbeat=facts["lease_heartbeat_at"],
    )


def _holder(facts: Facts, prefix: str) -> Holder | None:
    """Return a holder, unless his execution is not on record any more."""
    host = facts.get(prefix + "host")
    if host is None:
        return None
    return Holder(host, int(facts.get(prefix + "pid", 0)), facts.get(prefix + "user", ""))


def _float(facts: Facts, name: str) -> float | None:
    return float(facts[name]) if name in facts else None


def _int(facts: Facts, name: str) -> int | None:
    return int(facts[name]) if name in facts else None
