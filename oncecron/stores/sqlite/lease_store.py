"""The store of a firing on SQLite: each method is one transaction.

`look` only reads, and all others hold the file's write lock. That locks every key, for about as long as one write to
the disk takes. Under the lock a step of a claim looks once more and compares everything. There is no session lock: the
kernel clock of one machine ends a lease, so no second safeguard is needed.

The lease clock (boot id and CLOCK_MONOTONIC) at the beginning of the transaction decides whether a lease has expired.
The wall clock is for the log, the gap, the deadline and the fencing token. It is also the host's clock, so the two
never differ. Only a derived tick far ahead of the present time shows that the clock was wrong.

Commits of grants, ends and deliveries wait for the disk. Heartbeats and skips do not: after a power cut they are not
needed, because a lease of another boot has ended. What an end, or a late record, does is decided in `core.attempt`.
"""

from __future__ import annotations

import os

from oncecron.core import attempt, clock
from oncecron.core.attempt import ENDED_LATE, Known, join
from oncecron.core.decision import stop_refusal
from oncecron.core.facts import (
    ending_values,
    first_lease,
    lease_values,
    lost_run,
    next_lease,
    skip_values,
    start_values,
    stop_of,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import place_text, stored_request, trust_after
from oncecron.core.tick import at
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.core.units import DAY
from oncecron.host.names import boot_id
from oncecron.stores import steadied
from oncecron.stores.claim_loop import ClaimLoop
from oncecron.stores.sqlite.connection import Handle, file_of
from oncecron.stores.sqlite.retention import expire

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.decision import Attempt, Grant, PlainSkip, State, Stop
    from oncecron.core.facts import Facts
    from oncecron.core.making_up import Row
    from oncecron.core.model import Ending, Firing, Lease, LostByStore, LostRun, Refusal, Retention
    from oncecron.core.presence import Seen
    from oncecron.stores.sqlite.connection import Connection

TOKEN_AHEAD = 1.0 * DAY
"""A fencing token that a record or a re-adoption brings counts up to this far ahead of the store's clock. Tokens
are the store's clock in microseconds, or the last one plus one. With `--log` they are another store's."""

Values = dict[str, "Any"]

_NOTHING_SAID = dict.fromkeys(
    (
        *("exit_code", "signal", "note", "output", "output_cut", "place"),
        *("lost_reason", "request", "requested_by"),
    )
)


class SQLiteLeaseStore(ClaimLoop):
    """The firing half of the store in a SQLite file; see `oncecron.stores.api.LeaseStore`.

    `path` is absolute and is the file of the default namespace; other namespaces have a file beside it.
    """

    lease_clock = clock.MONOTONIC
    survives_fork = False  # SQLite keeps its file locks of a process in memory
    holds_connection = True

    def __init__(self, path: str, *, namespace: str) -> None:
        path = file_of(path, namespace)
        self._handle = Handle(path, create=True, statements=("firing", "retention"))
        self._boot = boot_id()

    def look(
        self,
        firing: Firing,
        *,
        awaited: int | None,
        closely: bool,  # noqa: ARG002 - every look is
        deadline: float,
    ) -> Facts:
        with self._handle.until(deadline) as store, store.reading():
            return _look(store, firing, moment(self._boot), awaited)

    def peek(self, firing: Firing, *, deadline: float) -> Facts | None:
        if not os.path.exists(self._handle.path):
            return None
        handle = Handle(self._handle.path, create=False, statements=("firing",))
        try:
            with handle.until(deadline) as store, store.reading():
                return _look(store, firing, moment(self._boot), None)
        finally:
            handle.close()

    def grant(
        self,
        firing: Firing,
        state: State,
        grant: Grant,
        presence: Seen,
        *,
        alone: bool,  # noqa: ARG002 - there is no session lock
        deadline: float,
    ) -> Lease | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            if not _is_unchanged(store, firing, now, state):
                return None
            started = {
                "attempt": grant.attempt,
                "cause": grant.cause,
                "fencing_token": max(state.fence + 1, _microseconds(now)),
                "started_at": now["now"],
                "place": None,
            }
            if grant.follows is not None:
                started |= dict(store.one("find_place", execution_id=grant.follows) or ())
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
            store.execute("put_key_host", **values, presence=presence.after)
            return first_lease(firing, values, now["lease_now"])

    def expire(self, firing: Firing, state: State, note: str, *, deadline: float) -> LostRun | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            if not _is_unchanged(store, firing, now, state):
                return None
            given = _given(firing, now)
            take_away(store, given, "expired", note)
            raise_fence(store, given)
            lost = store.one("find_lost", **given)
            return None if lost is None else lost_run(dict(lost))

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:  # noqa: ARG002 - its own condition
        with self._handle.until(deadline) as store, store.writing(durable=True):
            store.execute("cut_lease", **_given(firing, moment(self._boot)))

    def regain(self, firing: Firing, own: Attempt, *, deadline: float) -> Lease | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            held = {**_given(firing, now), "execution_id": own.execution_id}
            renewed = store.execute("renew_lease", **held).rowcount
        return first_lease(firing, own._asdict(), now["lease_now"]) if renewed else None

    @steadied
    def renew(self, lease: Lease, *, deadline: float, place: bytes | None = None) -> Lease | None:
        """Renew the lease; see `LeaseStore.renew`. A place waits for the disk.

        If the file was replaced, the lease is lost and is not put back: processes that use the old file and processes
        that use the new one do not see each other's leases.
        """
        with self._handle.until(deadline) as store, store.writing(durable=place is not None):
            now = moment(self._boot)
            values = lease_values(lease) | now
            if not store.execute("renew_lease", **values).rowcount:
                return None
            if place is not None:
                store.execute("put_place", **values, place=place_text(place))
            request = store.one("find_request", **values)
            if request:
                store.execute("hear_request", **values)
        return lease._replace(
            trusted_until=trust_after(now["lease_now"], lease.ttl),
            request=request and stored_request(*request),
            place=lease.place if place is None else place,
        )

    @steadied
    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            values = lease_values(lease) | now
            if not store.execute("renew_lease", **values).rowcount:
                return False
            note = join(store.one("find_ending", **values)["note"], ending.note)
            values |= ending_values(ending) | {"note": note, "finished_at": now["now"]}
            store.execute("keep_execution", **values)
            return True

    @steadied
    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            kept = store.one("find_kept", **lease_values(lease))
            if kept is None:
                return None
            under = {"host": kept["host"], "execution_id": kept["execution_id"]}
            values = lease_values(lease) | now | under
            if kept["execution_id"] != lease.execution_id:  # its answer was lost
                store.execute("renew_lease", **values)
                return next_lease(lease, dict(kept), now["lease_now"])
            stop = find_stop(store, values)
            if stop is None:
                begun = _begin(store, lease, values) | {"place": kept["place"]}
                return next_lease(lease, begun, now["lease_now"])
            refusal = stop_refusal(stop)
            skip = {"pid": kept["pid"], "holder_host": None, "holder_pid": None, "at": now["now"]}
            store.execute(
                "count_skip", **values | skip, reason=refusal.reason, detail=refusal.detail
            )
            return refusal

    @steadied
    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            row = store.one("find_ending", **lease_values(lease))
            if row is None:
                return False
            execution = _known_execution(row)
            late = ENDED_LATE if execution.lost and not execution.retrying else None
            values = lease_values(lease) | ending_values(ending) | {"finished_at": now["now"]}
            if _conclude(store, execution, values, ending.note, late):
                expire(store, (lease.key, lease.shard), retention, now)
        return not execution.lost

    @steadied
    def look_back(self, firing: Firing, since: float, *, deadline: float) -> list[Row]:
        given = {"key": firing.key, "shard": firing.shard, "since": since}
        with self._handle.until(deadline) as store, store.reading():
            return store.execute("look_back", **given, tick_since=at(since, "").text).fetchall()

    @steadied
    def record_skip(
        self,
        firing: Firing,
        refusal: Refusal,
        presence: Seen | None,
        plain: PlainSkip | None,
        *,
        deadline: float,
    ) -> bool:
        now = clock.wall()
        values = {**skip_values(firing, refusal), "now": now, "at": now}
        with self._handle.until(deadline) as store, store.writing(durable=False):
            if presence is not None:
                known = store.one("find_key_host", **values)
                if (known and known["presence"]) != presence.before:
                    return False
                store.execute("put_key_host", **values, presence=presence.after)
            store.execute("register_key", **values)
            if plain is not None:
                store.execute("add_plain_skip", **values, window=plain.window, word=plain.word)
            else:
                store.execute("count_skip", **values)
        return True

    @steadied
    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            ends = _deliver(store, record, now["now"])
            if retention and ends:
                expire(store, (record["key"], record["shard"]), retention, now)

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def moment(boot: str) -> Values:
    """Return the present time of all clocks, by their names in the statements."""
    return {"boot": boot, "lease_now": clock.lease_time(clock.MONOTONIC), "now": clock.wall()}


def _given(firing: Firing, now: Values) -> Values:
    return {
        "key": firing.key,
        "shard": firing.shard,
        "tick": firing.tick.text,
        "owner": firing.owner,
        "host": firing.holder.host,
        **now,
    }


def _look(store: Connection, firing: Firing, now: Values, awaited: int | None) -> Facts:
    """Return the facts of a claim. Their version is all that was read: a grant reads it once more and compares."""
    given = _given(firing, now) | {"shards": firing.shards, "awaited": awaited}
    names = [
        *("find_own", "find_key", "find_lease", "find_other_shards", "find_stop"),
        "find_key_host",
    ]
    if firing.tick.text is not None:
        names.append("find_newest")
    elif firing.failover:
        names.append("find_awaited")
    rows = [store.one(name, **given) for name in names]
    facts: Values = {"version": (awaited, rows), "now": now["now"], "lease_now": now["lease_now"]}
    for row in rows:
        facts.update(row or ())
    return facts


def _is_unchanged(store: Connection, firing: Firing, now: Values, state: State) -> bool:
    return bool(_look(store, firing, now, state.version[0])["version"] == state.version)


def high_water_after(mark: float | None, instant: float | None, now: float) -> float | None:
    """Return the high-water mark after a start of this instant.

    An instant far ahead is ignored: every tick before it would be skipped. A claim with one is refused before
    (`core.decision`).
    """
    if instant is None or clock.is_ahead(instant, now):
        return mark
    return instant if mark is None or instant > clock.believed(mark, now) else mark


def _microseconds(now: Values) -> int:
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
    store.execute("raise_fence", **given, microseconds=_microseconds(given))


def _begin(store: Connection, lease: Lease, values: Values) -> Values:
    number = lease.attempt + 1 if lease.tick is None else store.one("next_attempt", **values)[0]
    fence = store.one("find_marks", **values)["fence"]
    begun = {
        "attempt": number,
        "fencing_token": max(fence + 1, _microseconds(values)),
        "started_at": values["now"],
        "cause": "retry",
    }
    values = {**values, **begun}
    values["next_id"] = store.execute("insert_next_attempt", **values).lastrowid
    store.execute("move_lease", **values)
    store.execute("mark_next_attempt", **values)
    return {**begun, "execution_id": values["next_id"]}


def _deliver(store: Connection, record: dict[str, Any], now: float) -> bool:
    """Take a late record; `now` is wall time.

    Return whether it is the end of an execution that had none. Raises `RecordRefusedError`.
    """
    from oncecron.core import bounds  # noqa: PLC0415 - only where there is such a record

    bounds.check(record)
    store.execute("register_key", **record)
    if record["kind"] == "skip":
        store.execute("deliver_skip", **record | {"at": min(record["at"], now)})
        return False
    row = store.one("find_delivered", **record)
    if row is None:
        return _insert(store, record, now)
    if record["outcome"] == "running":
        return False
    return _conclude(store, _known_execution(row), record, record["note"], _late(record))


def _insert(store: Connection, record: dict[str, Any], now: float) -> bool:
    outcome, token = record["outcome"], record["fencing_token"]
    if outcome == "not-started" and token is None:
        return False
    values = {
        **record,
        "named": record["tick"] is not None and record["tick_instant"] is None,
        "note": join(record["note"], _late(record)),
        "latest": now + MAX_CLOCK_SKEW,
        "most_believable": int((now + TOKEN_AHEAD) * 1_000_000),
        "last_start": min(record["started_at"], now),
        "lateness": record["fired_at"] % 60,
    }
    fence, mark = store.one("find_marks", **record)
    if attempt.supersedes(token, fence):
        store.execute("declare_unanswered_lost", **record, now=now, unfinished=attempt.UNFINISHED)
    beside = store.one("find_running_or_leased", **record) is not None
    if attempt.is_superseded(outcome, token, fence, beside=beside):
        note = join(record["note"], attempt.UNFINISHED, _late(record))
        values.update(outcome="lost", lost_reason="superseded", note=note)
    store.execute("insert_delivered", **values)
    store.execute("mark_delivered", **values)
    if outcome != "not-started":
        values["mark"] = high_water_after(mark, record["tick_instant"], now)
        store.execute("mark_delivered_tick", **values)
        store.execute("mark_delivered_start", **values)
    return bool(outcome != "running")


def _late(record: dict[str, Any]) -> str | None:
    return attempt.RECORDED_LATER if record.get("late") else None


def _known_execution(row: Any) -> Known:
    return Known(
        execution_id=row["execution_id"],
        outcome=row["outcome"],
        has_duration=row["duration"] is not None,
        retrying=bool(row["retrying"]),
        lost=row["lost_at"] is not None,
        note=row["note"],
    )


def _conclude(
    store: Connection, execution: Known, values: dict[str, Any], *notes: str | None
) -> bool:
    """Write the end of an execution, if it has none, and release its own lease; return whether it had none."""
    ended = attempt.effect_of_end(execution, *notes)
    values = {**values, "execution_id": execution.execution_id, "note": ended.note}
    if ended.how == "give-up":
        _give_up(store, values)
        return True
    if ended.how == "end":
        store.execute("end_execution", **values)
        if values["outcome"] == "not-started":
            store.execute("take_back_start", **values)
    store.execute("release_lease", **values)
    return ended.how == "end"


def _give_up(store: Connection, values: dict[str, Any]) -> None:
    """Record that no retry follows an attempt that was kept, unless another firing has taken over.

    This is final, also if the lease was lost. A retry that has begun, but whose answer the owner never got, did not
    start.
    """
    store.execute("give_up", **values)
    lease = store.one("find_own_lease", **values)
    if lease is not None and lease["execution_id"] != values["execution_id"]:
        unheard = {**values, **_NOTHING_SAID, "outcome": "not-started", "duration": 0.0}
        _conclude(store, _known_execution(lease), unheard, attempt.UNHEARD)
    store.execute("release_lease", **values)
