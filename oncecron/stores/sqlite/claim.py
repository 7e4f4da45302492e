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

from oncecron.core import clock
from oncecron.core.errors import UNREADABLE
from oncecron.core.facts import first_lease, presence_values, start_values, stop_of
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.core.units import HOUR

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.claim import Attempt, Grant, State, Stop
    from oncecron.core.facts import Facts
    from oncecron.core.model import Firing, Lease, LostByStore
    from oncecron.stores.sqlite.connection import Connection

Values = dict[str, "Any"]


def moment(boot: str) -> Values:
    """Return the present time of all clocks, by their names in the statements."""
    return {"boot": boot, "lease_now": clock.lease_time(clock.MONOTONIC), "now": clock.wall()}


def look(store: Connection, firing: Firing, now: Values, awaited: int | None) -> Facts:
    """Return the facts of a claim. Their version is all that was read: a grant reads it once more and compares."""
    given = _given(firing, now) | {"shards": firing.shards, "awaited": awaited}
    names = ["find_own", "find_key", "find_lease", "find_other_shards", "find_stop"]
    if firing.tick.text is not None:
        names.append("find_newest")
    elif firing.failover:
        names.append("find_awaited")
    rows = [store.one(name, **given) for name in names]
    facts: Values = {"version": (awaited, rows), "now": now["now"], "lease_now": now["lease_now"]}
    for row in rows:
        facts.update(row or ())
    return facts


def grant(
    store: Connection, firing: Firing, now: Values, state: State, granted: Grant
) -> Lease | None:
    """Write what a start writes, unless something has changed since the look."""
    if not _is_unchanged(store, firing, now, state):
        return None
    started = {
        "attempt": granted.attempt,
        "cause": granted.cause,
        "fencing_token": max(state.fence + 1, microseconds(now)),
        "started_at": now["now"],
    }
    values = _given(firing, now) | start_values(firing) | started
    values |= {
        "mark": high_water_after(state.high_water, firing.tick.instant, now["now"]),
        "latest": now["now"] + MAX_CLOCK_SKEW,
        "named": firing.tick.text is not None and firing.tick.instant is None,
        "ttl": firing.ttl,
        "schedule": firing.expected_schedule,
        "zone": firing.zone,
        "starting_deadline": firing.starting_deadline,
        "lateness": firing.fired_at % 60,
    }
    store.execute("register_key", **values)
    values["execution_id"] = store.execute("insert_execution", **values).lastrowid
    store.execute("insert_lease", **values)
    store.execute("mark_key", **values)
    see(store, firing, now["now"], won=True)
    return first_lease(firing, values, now["lease_now"])


def see(store: Connection, firing: Firing, now: float, *, won: bool) -> None:
    """Write what a firing says about its host, when it has won its tick or has skipped it."""
    values = presence_values(firing) | {"key": firing.key, "shard": firing.shard}
    values |= {"host": firing.holder.host, "now": now}
    row = store.one("find_key_host", **values)
    try:
        history = _ticks_and_counts(row and dict(row), firing, now, won=won)
    except UNREADABLE:
        history = _ticks_and_counts(None, firing, now, won=won)
    store.execute("put_key_host", **values | history)


def _ticks_and_counts(row: Values | None, firing: Firing, now: float, *, won: bool) -> Values:
    """Return what a host's row keeps of earlier firings. One by hand (`again`) fires no tick."""
    hour, tick, machine = int(now // HOUR), firing.tick.text, firing.machine
    before: Values = dict.fromkeys(("ticks", "ticks_at", "wins", "skips", "twice"), "")
    before |= {"hour": hour, **(row or {})}
    ticks, ticks_at, twice = (before[name].split() for name in ("ticks", "ticks_at", "twice"))
    known_machine = before.get("machine")
    if firing.again:  # it says nothing about the crontab either
        crontab = {name: before.get(name) for name in ("schedule", "zone")}
        crontab["shown_command"] = before.get("command")
    else:
        crontab = {}
        if tick is not None and tick not in ticks:
            ticks, ticks_at = [tick, *ticks][:3], [f"{now:.6f}", *ticks_at][:3]
        elif tick not in (None, *twice) and known_machine and machine not in (None, known_machine):
            twice = [tick, *twice][:2]
    passed = hour - before["hour"]
    return {
        **crontab,
        "ticks": " ".join(ticks),
        "ticks_at": " ".join(ticks_at),
        "hour": hour,
        "wins": _counted(before["wins"], passed, int(won)),
        "skips": _counted(before["skips"], passed, int(not won)),
        "twice": " ".join(twice),
    }


def _counted(counts: str, hours: int, more: int) -> str:
    """Return the counts of 24 hours, the newest last, `hours` later and with `more` in the newest."""
    hourly = [*([0] * 24), *map(int, counts.split()), *([0] * min(hours, 24))][-24:]
    return " ".join(map(str, [*hourly[:-1], hourly[-1] + more]))


def expire(store: Connection, firing: Firing, now: Values, state: State, note: str) -> None:
    """Take the expired lease away, unless something has changed since the look."""
    if _is_unchanged(store, firing, now, state):
        given = _given(firing, now)
        take_away(store, given, "expired", note)
        raise_fence(store, given)


def cut(store: Connection, firing: Firing, now: Values) -> None:
    """Let a lease that ends too far ahead end a ttl from now."""
    store.execute("cut_lease", **_given(firing, now))


def regain(store: Connection, firing: Firing, now: Values, own: Attempt) -> Lease | None:
    """Renew the lease whose grant was not answered."""
    held = {**_given(firing, now), "execution_id": own.execution_id}
    renewed = store.execute("renew_lease", **held).rowcount
    return first_lease(firing, own._asdict(), now["lease_now"]) if renewed else None


def high_water_after(mark: float | None, instant: float | None, now: float) -> float | None:
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


def find_stop(store: Connection, given: Values) -> Stop | None:
    """Return the pause of the key, or the drain of the host."""
    return stop_of(dict(store.one("find_stop", **given) or ()))


def take_away(store: Connection, given: Values, reason: LostByStore, note: str) -> None:
    """Declare executions without a valid lease lost: their jobs are dead by then."""
    store.execute("declare_lost", **given, lost_reason=reason, note=note)
    store.execute("lose_kept", **given, lost_reason=reason, note=note)
    store.execute("take_lease_away", **given)


def raise_fence(store: Connection, given: Values) -> None:
    """Raise the fencing token, so that the job of an earlier execution fails its fence check."""
    store.execute("raise_fence", **given, microseconds=microseconds(given))


def _given(firing: Firing, now: Values) -> Values:
    """Return what most statements of a claim need."""
    return {
        "key": firing.key,
        "shard": firing.shard,
        "tick": firing.tick.text,
        "owner": firing.owner,
        "host": firing.holder.host,
        **now,
    }


def _is_unchanged(store: Connection, firing: Firing, now: Values, state: State) -> bool:
    return bool(look(store, firing, now, state.version[0])["version"] == state.version)
