"""The store's server: dictionaries in memory, and a clock of its own. Each method of `Server` is one atomic step.

The steps do what the SQL of the SQLite store does, and use the product's own `core.attempt` and `core.facts` for what
a start and an end write. By seed a lease has a session lock beside it, as on PostgreSQL, or a restart makes claims
wait, as on Redis.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from oncecron.core import attempt, bounds, clock
from oncecron.core.errors import StoreError
from oncecron.core.facts import ending_values, start_values
from oncecron.core.timing import TOKEN_AHEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel import Kernel
    from store import Connection

    from oncecron.core.model import Ending, Firing, Lease

Row = dict[str, Any]
Place = tuple[str, int]
"""A key and a shard."""

EPOCH = 1_795_132_800.0  # 2026-11-20T00:00Z
KEPT_ROWS, LOOKED_AT = 300, 60
_ENDED = (
    *("exit_code", "signal", "duration", "finished_at", "note", "lost_at", "lost_reason"),
    *("request", "requested_by", "output", "output_cut"),
)
_COPIED = (
    *("key", "shard", "tick", "tick_instant", "host", "pid", "user", "command", "fired_at"),
    *("owner", "shards", "retries"),
)
_SHOWN = (
    *("execution_id", "attempt", "outcome", "retrying", "requested_by", "started_at"),
    *("host", "pid", "user"),
)


class Part:
    """What the store has about a shard of a key."""

    def __init__(self) -> None:
        self.version = self.fence = 0
        self.high_water = self.last_start = self.last_lateness = self.last_row = None
        self.previous: tuple[float | None, float | None] = (None, None)
        self.lease: Row | None = None
        self.session: Connection | None = None
        self.rows: list[Row] = []

    def of(self, name: str, value: object) -> list[Row]:
        """Return those of the newest rows that have this value."""
        return [row for row in self.rows[-LOOKED_AT:] if row[name] == value]

    def row(self, **wanted: Any) -> Row | None:
        """Return the newest of all rows that has these values."""
        rows = reversed(self.rows)
        return next((row for row in rows if wanted.items() <= row.items()), None)

    def add(self, row: Row) -> None:
        """Add a row; old ones are forgotten."""
        self.rows.append(row)
        del self.rows[:-KEPT_ROWS]


class Server:
    """The steps of claims and holders; `offset` is the error of its clock."""

    constraints, forgets = True, 0.0
    """One lease a key and one running execution; the seconds of writes that a restart loses (to be broken)."""

    def __init__(self, kernel: Kernel, *, guarded: bool, sessions: bool) -> None:
        self.kernel, self.guarded, self.sessions = kernel, guarded, sessions
        self.offset, self.epoch, self.away_until, self.recovering_until = 0.0, 0, 0.0, 0.0
        self.parts: defaultdict[Place, Part] = defaultdict(Part)
        self.stops: dict[tuple[str, str], tuple[str, float]] = {}
        self.stops_version = self.ids = 0
        self.undo: list[tuple[float, Place, Part]] = []
        self.on_expire: Callable[[Part], None] = lambda part: None
        self.longest_ttl = 0.0

    def now(self) -> float:
        """Return the server's clock."""
        return EPOCH + self.kernel.now + self.offset

    def restart(self, away: float) -> None:
        """End all sessions; be away for some seconds."""
        self.epoch += 1
        self.away_until = self.kernel.now + away
        while self.undo and self.undo[-1][0] > self.kernel.now - self.forgets:
            _, place, part = self.undo.pop()
            self.parts[place] = part
        if self.guarded:
            self.recovering_until = self.now() + away + self.longest_ttl

    def stop(self, place: tuple[str, str], author: str | None) -> None:
        """Pause a key or drain a host; end that without an author."""
        self.stops_version += 1
        self.stops.pop(place, None)
        if author:
            self.stops[place] = (author, self.now())

    def request(self, place: Place, request: tuple[Any, ...]) -> None:
        """Ask a holder to stop, or to release."""
        if self.parts[place].lease:
            part = self._written(place)
            part.lease["request"] = request
            row = part.row(execution_id=part.lease["execution_id"])
            row |= {"request": request[0], "requested_by": request[1]}

    def _written(self, place: Place) -> Part:
        part = self.parts[place]
        if self.forgets:
            since = self.kernel.now - self.forgets
            self.undo = [each for each in self.undo if each[0] > since]
            self.undo.append((self.kernel.now, place, copy.deepcopy(part)))
        part.version += 1
        return part

    def _stop_of(self, key: str, host: str) -> Row:
        for kind, name in (("key", key), ("host", host)):
            if (kind, name) in self.stops:
                author, since = self.stops[kind, name]
                told = {"stop_kind": kind, "stop_author": author, "stop_since": since}
                return told | {"stop_reason": None}
        return {}

    def _is_locked(self, part: Part, connection: Connection) -> bool:
        session = part.session
        return bool(self.sessions and session and session is not connection and session.lives())

    def _lock(self, part: Part, connection: Connection) -> None:
        if not self._is_locked(part, connection):
            part.session = connection

    # The steps of a claim

    def look(
        self, firing: Firing, awaited: int | None, closely: bool, connection: Connection
    ) -> Row:
        part, now = self.parts[firing.key, firing.shard], self.now()
        facts: Row = {"version": self._version(part), "now": now, "fence": part.fence}
        self._look_at_own(facts, part, firing)
        facts |= self._stop_of(firing.key, firing.holder.host)
        self._look_at_lease(facts, part)
        names = ("high_water", "last_start", "last_lateness")
        facts |= {name: getattr(part, name) for name in names}
        if part.last_row:
            facts |= {f"last_{name}": part.last_row[name] for name in ("host", "pid", "user")}
        facts["running"] = bool(part.of("outcome", "running"))
        if self.sessions and not closely:
            facts["lock"] = "unknown"
        else:
            facts["recovering_for"] = max(0.0, self.recovering_until - now)
            taken = "taken" if part.lease else "busy"
            free = "free" if self.sessions else "none"
            facts["lock"] = taken if self._is_locked(part, connection) else free
        self._look_at_newest(facts, part, firing, awaited)
        return facts

    def _version(self, part: Part) -> tuple[int, int, int]:
        return part.version, self.stops_version, self.epoch

    @staticmethod
    def _look_at_own(facts: Row, part: Part, firing: Firing) -> None:
        if owned := part.of("owner", firing.owner):
            own = max(owned, key=lambda row: row["owner_attempt"])
            names = (*_SHOWN, "fencing_token", "cause")
            facts |= {f"own_{name}": own[name] for name in names}
            lease = part.lease
            facts["own_has_lease"] = lease and lease["execution_id"] == own["execution_id"]

    @staticmethod
    def _look_at_lease(facts: Row, part: Part) -> None:
        if lease := part.lease:
            row = part.row(execution_id=lease["execution_id"])
            facts |= {f"lease_{name}": row[name] for name in ("tick", "started_at", *_SHOWN[-3:])}
            names = ("execution_id", "ttl", "expires_at", "heartbeat_at")
            facts |= {f"lease_{name}": lease[name] for name in names}
            facts["lease_has_session"] = lease["session"]

    @staticmethod
    def _look_at_newest(facts: Row, part: Part, firing: Firing, awaited: int | None) -> None:
        rows, order = [], "execution_id"
        if firing.tick.text is not None:
            rows, order = part.of("tick", firing.tick.text), "attempt"
            facts["attempts"] = max((row["attempt"] for row in rows), default=0)
            facts["forgotten"] = facts["attempts"] > len(rows)
        elif firing.failover and awaited:
            rows = [row for row in part.rows if not row["tick"] and row["execution_id"] >= awaited]
        if rows:
            started = [row for row in rows if row["outcome"] != "not-started"] or rows
            newest = max(started, key=lambda row: row[order])
            facts |= {f"newest_{name}": newest[name] for name in _SHOWN}

    def grant(
        self, firing: Firing, version: object, number: int, cause: str, alone: bool, by: Connection
    ) -> Row | None:
        now, place = self.now(), (firing.key, firing.shard)
        part = self.parts[place]
        if self._version(part) != version or self.recovering_until > now:
            return None
        if self._is_locked(part, by) and not alone:
            return None
        part = self._written(place)
        self._lock(part, by)
        if self.constraints and (part.lease or part.of("outcome", "running")):
            raise StoreError("a constraint is violated")
        row = self._begin(part, start_values(firing), number, cause)
        row["owner_attempt"] = number
        part.lease = {"owner": firing.owner, "ttl": firing.ttl, "session": self.sessions}
        part.lease |= {"execution_id": self.ids, "request": None}
        self._renewed(part.lease)
        self.longest_ttl = max(self.longest_ttl, firing.ttl)
        self._mark(part, firing.tick.instant, now)
        part.previous = (part.last_start, part.last_lateness)
        part.last_start, part.last_lateness, part.last_row = now, firing.fired_at % 60, row
        return row

    def _begin(self, part: Part, values: Row, number: int, cause: str) -> Row:
        now = self.now()
        self.ids += 1
        token = max(part.fence + 1, int(now * 1e6))
        row = dict.fromkeys(_ENDED) | values | {"execution_id": self.ids, "fencing_token": token}
        row |= {"attempt": number, "owner_attempt": number, "outcome": "running", "cause": cause}
        row |= {"started_at": now, "retrying": False}
        row["stopped"] = bool(self._stop_of(row["key"], row["host"]))  # for the ledger
        part.add(row)
        part.fence = token
        return row

    @staticmethod
    def _mark(part: Part, instant: float | None, now: float) -> None:
        mark = part.high_water
        if instant is None or clock.is_ahead(instant, now):
            return
        if mark is None or instant > clock.believed(mark, now):
            part.high_water = instant

    def expire(self, firing: Firing, version: object, note: str) -> Row | None:
        now, place = self.now(), (firing.key, firing.shard)
        part = self.parts[place]
        lease = part.lease
        if self._version(part) != version or (lease and lease["expires_at"] > now):
            return None
        self.on_expire(part)
        part = self._written(place)
        lost, ended = None, {"lost_at": now, "lost_reason": "expired"}
        for lost in part.of("outcome", "running"):
            lost.update(ended, outcome="lost", note=attempt.join(lost["note"], note))
        if lease:
            row = part.row(execution_id=lease["execution_id"])
            if row["retrying"] and row["lost_at"] is None:
                row |= ended
                lost = row
        part.lease, part.fence = None, max(part.fence + 1, int(now * 1e6))
        return lost

    def cut(self, key: str, shard: int) -> None:
        part = self._written((key, shard))
        if part.lease and part.lease["expires_at"] > self.now() + part.lease["ttl"]:
            self._renewed(part.lease)

    def evict(self, key: str, shard: int) -> None:
        self._written((key, shard)).session = None

    def _renewed(self, lease: Row) -> None:
        now = self.now()
        lease |= {"heartbeat_at": now, "expires_at": now + lease["ttl"]}

    # What a holder asks

    def renew(
        self, key: str, shard: int, execution_id: int, owner: str, by: Connection | None = None
    ) -> tuple[Any] | None:
        lease = self.parts[key, shard].lease
        if not lease or (lease["execution_id"], lease["owner"]) != (execution_id, owner):
            return None
        part = self._written((key, shard))
        self._renewed(lease)
        if by:
            self._lock(part, by)
        return (lease["request"],)

    def keep(self, lease: Lease, ending: Ending) -> bool:
        if not self.renew(lease.key, lease.shard, lease.execution_id, lease.owner):
            return False
        row = self.parts[lease.key, lease.shard].row(execution_id=lease.execution_id)
        if row["outcome"] == "running":
            values, note = ending_values(ending), attempt.join(row["note"], ending.note)
            row |= {name: values[name] for name in ("outcome", "exit_code", "signal", "duration")}
            row |= {"finished_at": self.now(), "retrying": True, "note": note}
        return True

    def retry(self, lease: Lease) -> Row | None:
        part = self.parts[lease.key, lease.shard]
        held = part.lease
        row = held and part.row(execution_id=held["execution_id"])
        if not held or held["owner"] != lease.owner:
            return None
        if not (row["retrying"] or row["execution_id"] > lease.execution_id):
            return None
        part = self._written((lease.key, lease.shard))
        if row["execution_id"] != lease.execution_id:  # its answer was lost
            self._renewed(held)
            return row
        if stop := self._stop_of(lease.key, row["host"]):
            return stop
        number = max((each["attempt"] for each in part.of("tick", row["tick"])), default=0) + 1
        number = row["attempt"] + 1 if row["tick"] is None else number
        begun = self._begin(part, {name: row[name] for name in _COPIED}, number, "retry")
        held |= {"execution_id": self.ids, "request": None}
        self._renewed(held)
        part.previous = (part.last_start, part.last_lateness)
        part.last_start, part.last_row = begun["started_at"], begun
        return begun

    def finish(self, lease: Lease, ending: Ending) -> bool:
        place = (lease.key, lease.shard)
        row = self.parts[place].row(execution_id=lease.execution_id, owner=lease.owner)
        if row is None:
            return False
        lost = row["lost_at"] is not None
        late = attempt.ENDED_LATE if lost and not row["retrying"] else None
        values = ending_values(ending) | {"finished_at": self.now()}
        self._conclude(self._written(place), row, values, ending.note, late)
        return not lost

    def _conclude(self, part: Part, row: Row, values: Row, *notes: str | None) -> None:
        known = attempt.Known(
            *(row["execution_id"], row["outcome"], row["duration"] is not None, row["retrying"]),
            *(row["lost_at"] is not None, row["note"]),
        )
        ended = attempt.effect_of_end(known, *notes)
        lease = part.lease if part.lease and part.lease["owner"] == row["owner"] else None
        if ended.how == "give-up":
            row |= {"retrying": False, "note": ended.note}
            if lease and lease["execution_id"] != row["execution_id"]:
                begun = part.row(execution_id=lease["execution_id"])
                nothing = dict.fromkeys(_ENDED) | {"outcome": "not-started", "duration": 0.0}
                self._conclude(part, begun, nothing, attempt.UNHEARD)
        elif ended.how == "end":
            names = ("outcome", "exit_code", "signal", "duration", "finished_at")
            row |= {name: values.get(name) for name in names} | {"note": ended.note}
            names = ("lost_reason", "request", "requested_by")
            row |= {name: values[name] for name in names if values.get(name) is not None}
            if values["outcome"] == "not-started" and part.last_row is row:
                (part.last_start, part.last_lateness), part.last_row = part.previous, None
        if lease and part.lease and lease["execution_id"] == row["execution_id"]:
            part.lease = None

    def skip(self, values: Row) -> None:
        """Take a skip; it is not kept, because nothing is decided by it."""

    def deliver(self, record: Row) -> None:
        bounds.check(record)
        if record["kind"] == "skip":
            return
        part = self._written((record["key"], record["shard"]))
        owned = [row for row in part.rows if row["owner"] == record["owner"]]
        if record["attempt"] is not None:
            owned = [row for row in owned if row["owner_attempt"] == record["attempt"]]
        late = attempt.RECORDED_LATER if record.get("late") else None
        if not owned:
            if record["outcome"] != "not-started" or record["fencing_token"] is not None:
                self._add_delivered(part, record, late)
        elif record["outcome"] != "running":
            row = max(owned, key=lambda each: each["owner_attempt"])
            self._conclude(part, row, record, record["note"], late)

    def _add_delivered(self, part: Part, record: Row, late: str | None) -> None:
        """Add an execution that the store has forgotten, or has never had."""
        now, token, number = self.now(), record["fencing_token"], record["attempt"]
        self.ids += 1
        taken = [row["attempt"] + 1 for row in part.of("tick", record["tick"])]
        row = dict.fromkeys(_ENDED) | record | {"note": attempt.join(record["note"], late)}
        row |= {"execution_id": self.ids, "owner_attempt": number, "attempt": max([number, *taken])}
        row |= {"retrying": False, "lost_at": None}
        if attempt.supersedes(token, part.fence):
            for each in part.of("outcome", "running"):
                if not part.lease or part.lease["execution_id"] != each["execution_id"]:
                    each.update(outcome="lost", lost_at=now, lost_reason="superseded")
        part.add(row)
        part.fence = max(part.fence, min(token or 0, int((now + TOKEN_AHEAD) * 1e6)))
        if record["outcome"] != "not-started":
            self._mark(part, record["tick_instant"], now)
            if part.last_start is None or part.last_start < record["started_at"]:
                part.last_start, part.last_row = min(record["started_at"], now), None
                part.last_lateness = record["fired_at"] % 60
