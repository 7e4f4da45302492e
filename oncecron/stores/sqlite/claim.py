"""The steps of a claim on SQLite, for the loop in `oncecron.stores.claiming`.

Each step runs in a transaction that the caller began: `look` only reads, and the others hold the file's write lock.
That locks every key, for about as long as one write to the disk takes. Under the lock a step looks once more and
compares everything. There is no session lock: the kernel clock of one machine ends a lease, so no second safeguard is
needed.

The lease clock (boot id and CLOCK_MONOTONIC) at the beginning of the transaction decides whether a lease has expired.
The wall clock is for the log, the gap, the deadline and the fencing token. It is also the host's clock, so the two
never differ. Only a derived tick far ahead of the present time shows that the clock was wrong.
"""

from __future__ import annotations

from oncecron import __version__
from oncecron.core import clock
from oncecron.core.claim import Attempt, HeldLease, State, Stop
from oncecron.core.errors import UNREADABLE
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import Holder, lease_of
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.core.units import HOUR

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.claim import Grant
    from oncecron.core.model import Firing, Lease, LostByStore
    from oncecron.stores.sqlite.connection import Connection

Values = dict[str, "Any"]


class Facts(NamedTuple):
    """What a look has read: a grant reads it once more and compares."""

    awaited: int | None
    pause: Stop | None
    drain: Stop | None
    rows: tuple[tuple[Any, ...] | None, ...]


def moment(boot: str) -> Values:
    """Return the present time of all clocks, by their names in the statements."""
    return {"boot": boot, "lease_now": clock.lease_time(clock.MONOTONIC), "now": clock.wall()}


def look(store: Connection, firing: Firing, now: Values, awaited: int | None) -> State:
    """Return what the store knows."""
    asked = _asked(firing, now, awaited)
    own, key = store.one("own_execution", **asked), store.one("find_key", **asked)
    lease, newest = store.one("find_lease", **asked), _newest(store, firing, asked)
    other = store.one("other_number_of_shards", **asked)
    pause, drain = stops(store, asked)
    rows = tuple(row and tuple(row) for row in (own, key, lease, newest, other))
    return State(
        version=Facts(awaited, pause, drain, rows),
        now=asked["now"],
        host_ahead=0.0,
        own=own and _attempt(own)._replace(token=own["fencing_token"], cause=own["cause"]),
        own_has_lease=bool(own and own["has_lease"]),
        pause=pause,
        drain=drain,
        other_shards=other and other["shards"],
        lease=lease and held_lease(lease, asked),
        newest=newest and _attempt(newest),
        forgotten=bool(newest and newest["attempts"] > newest["kept"]),
        high_water=key and key["high_water"],
        last_start=key and key["last_start"],
        last_lateness=key and key["last_lateness"],
        last_holder=_holder(key) if key and key["host"] is not None else None,
        running=bool(key and key["running"]),
        attempts=newest["attempts"] if newest else 0,
        fence=key["fence"] if key else 0,
    )


def grant(
    store: Connection, firing: Firing, now: Values, seen: State, granted: Grant
) -> Lease | None:
    """Write what a start writes, unless something has changed since `seen`."""
    if look(store, firing, now, seen.version.awaited).version != seen.version:
        return None
    asked = _asked(firing, now, None) | {
        "attempt": granted.attempt,
        "cause": granted.cause,
        "fencing_token": max(seen.fence + 1, microseconds(now)),
        "tick_instant": firing.tick.instant,
        "mark": marked(seen.high_water, firing.tick.instant, now["now"]),
        "latest": now["now"] + MAX_CLOCK_SKEW,
        "named": firing.tick.text is not None and firing.tick.instant is None,
        "pid": firing.holder.pid,
        "user": firing.holder.user,
        "command": firing.command,
        "ttl": firing.ttl,
        "schedule": firing.expected_schedule,
        "zone": firing.zone,
        "starting_deadline": firing.starting_deadline,
        "fired_at": firing.fired_at,
        "lateness": firing.fired_at % 60,
        "retries": firing.retries,
    }
    store.execute("register_key", **asked)
    asked["execution_id"] = store.execute("insert_execution", **asked).lastrowid
    store.execute("insert_lease", **asked)
    store.execute("mark_key", **asked)
    see(store, firing, now["now"], won=True)
    return lease_of(
        firing,
        sent=now["lease_now"],
        execution_id=asked["execution_id"],
        attempt=granted.attempt,
        token=asked["fencing_token"],
        started_at=asked["now"],
        cause=granted.cause,
    )


def see(store: Connection, firing: Firing, now: float, *, won: bool) -> None:
    """Write what a firing tells about its host, when it has won its tick or has skipped it."""
    place = {"key": firing.key, "shard": firing.shard, "host": firing.holder.host}
    row = store.one("find_key_host", **place)
    try:
        told = _told(row and dict(row), firing, now, won=won)
    except UNREADABLE:
        told = _told(None, firing, now, won=won)
    store.execute("put_key_host", **place, **told, now=now, version=__version__)


def _told(row: Values | None, firing: Firing, now: float, *, won: bool) -> Values:
    """Return the row of a host. A firing by hand (`again`) fires no tick, and tells nothing about the crontab."""
    hour, nothing = int(now // HOUR), ""
    before = row or {
        "ticks": nothing,
        "ticks_at": nothing,
        "hour": hour,
        "wins": nothing,
        "skips": nothing,
        "machine": firing.machine,
        "twice": nothing,
    }
    ticks, ticks_at = before["ticks"].split(), before["ticks_at"].split()
    twice = before["twice"].split()
    if not firing.again and firing.tick.text is not None:
        if firing.tick.text not in ticks:
            ticks, ticks_at = [firing.tick.text, *ticks][:3], [f"{now:.6f}", *ticks_at][:3]
        elif firing.tick.text not in twice and _differ(before["machine"], firing.machine):
            twice = [firing.tick.text, *twice][:2]
    crontab: Values = {
        "schedule": firing.schedule,
        "zone": firing.zone,
        "command": firing.shown_command,
    }
    if firing.again:
        crontab = {name: before.get(name) for name in crontab}
    passed = hour - before["hour"]
    return {
        **crontab,
        "ticks": " ".join(ticks),
        "ticks_at": " ".join(ticks_at),
        "hour": hour,
        "wins": _counted(before["wins"], passed, int(won)),
        "skips": _counted(before["skips"], passed, int(not won)),
        "machine": firing.machine,
        "twice": " ".join(twice),
    }


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _counted(counts: str, hours: int, more: int) -> str:
    """Return the counts of 24 hours, the newest last, `hours` later and with `more` in the newest."""
    hourly = [*([0] * 24), *map(int, counts.split()), *([0] * min(hours, 24))][-24:]
    return " ".join(map(str, [*hourly[:-1], hourly[-1] + more]))


def expire(store: Connection, firing: Firing, now: Values, seen: State, note: str) -> None:
    """Take the expired lease away, unless something has changed since `seen`."""
    if look(store, firing, now, seen.version.awaited).version == seen.version:
        asked = _asked(firing, now, None)
        take_away(store, asked, "expired", note)
        raise_fence(store, asked)


def cut(store: Connection, firing: Firing, now: Values) -> None:
    """Let a lease that ends too far ahead end a ttl from now."""
    store.execute("cut_lease", **_asked(firing, now, None))


def regain(store: Connection, firing: Firing, now: Values, own: Attempt) -> Lease | None:
    """Renew the lease whose grant was not answered."""
    asked = _asked(firing, now, None) | {"execution_id": own.execution_id}
    if not store.execute("renew_lease", **asked).rowcount:
        return None
    return lease_of(
        firing,
        sent=now["lease_now"],
        execution_id=own.execution_id,
        attempt=own.number,
        token=own.token,
        started_at=own.started_at,
        cause=own.cause,
    )


def marked(mark: float | None, instant: float | None, now: float) -> float | None:
    """Return the high-water mark after a start of this instant.

    An instant far ahead is ignored: every tick before it would be skipped. A claim with one is refused before
    (`core.claim`).
    """
    if instant is None or clock.is_ahead(instant, now):
        return mark
    return instant if mark is None or instant > clock.believed(mark, now) else mark


def microseconds(now: Values) -> int:
    """Return the store's clock as a fencing token."""
    return int(now["now"] * 1_000_000)


def stops(store: Connection, asked: Values) -> tuple[Stop | None, Stop | None]:
    """Return the pause of the key and the drain of the host."""
    pause, drain = store.one("find_pause", **asked), store.one("find_drain", **asked)
    return pause and Stop(*pause), drain and Stop(*drain)


def held_lease(lease: Any, now: Values) -> HeldLease:
    """Return the lease; one of another boot has expired."""
    lives = lease["boot"] == now["boot"]
    return HeldLease(
        execution_id=lease["execution_id"],
        tick=lease["tick"],
        holder=_holder(lease),
        started_at=lease["started_at"],
        ttl=lease["ttl"],
        ends_in=lease["expires_on_lease_clock"] - now["lease_now"] if lives else 0.0,
        silent_for=now["lease_now"] - lease["heartbeat"],
        heartbeat=lease["heartbeat"],
    )


def take_away(store: Connection, asked: Values, reason: LostByStore, note: str) -> None:
    """Declare executions without a valid lease lost: their jobs are dead by then."""
    store.execute("declare_lost", **asked, lost_reason=reason, note=note)
    store.execute("lose_kept", **asked, lost_reason=reason, note=note)
    store.execute("take_lease_away", **asked)


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


def _newest(store: Connection, firing: Firing, asked: Values) -> Any:
    """Return the newest execution of the tick, or without a tick since the awaited one."""
    if firing.tick.text is not None:
        return store.one("find_newest", **asked)
    return store.one("find_awaited", **asked) if firing.failover else None


def _attempt(row: Any) -> Attempt:
    return Attempt(
        execution_id=row["execution_id"],
        number=row["attempt"],
        outcome=row["outcome"],
        retrying=bool(row["retrying"]),
        requested_by=row["requested_by"],
        started_at=row["started_at"],
        holder=_holder(row),
    )


def _holder(row: Any) -> Holder:
    return Holder(row["host"], row["pid"], row["user"])
