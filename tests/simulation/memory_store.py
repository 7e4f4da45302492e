"""A store in memory: dictionaries, and a clock that is given to it. Each method of `Memory` is one atomic step.

It keeps the contract (tests/contract) as the fourth store, beside the three of the product, and shows how little a
store has to bring: every rule is the product's own code. `memory_reader` has what people ask, `memory_items` the items
of `each`.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from oncecron.core import attempt, bounds, clock
from oncecron.core.decision import stop_refusal
from oncecron.core.errors import StoreError
from oncecron.core.facts import (
    ending_values,
    first_lease,
    lost_run,
    next_lease,
    presence_values,
    skip_values,
    start_values,
    stop_of,
)
from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.model import LEAST, Retention, recordable_values, stored_request, trust_after
from oncecron.core.timing import HOST_FORGOTTEN_AFTER, MAX_CLOCK_SKEW, TOKEN_AHEAD
from oncecron.stores.claim_loop import Claimer
from oncecron.stores.sqlite.lease_store import high_water_after, ticks_and_counts
from oncecron.stores.sqlite.retention import MOST_PER_FINISH, NAMES_KEPT, SKIPS_PER_FINISH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncecron.core.decision import Attempt, Grant, PlainSkip, State
    from oncecron.core.log_rows import Notice, Pause
    from oncecron.core.model import Ending, Firing, Lease, LostRun, Refusal, Unconfirmed

Row = dict[str, Any]
Place = tuple[str, int]
"""A key and a shard."""

_HOLDER = ("host", "pid", "user")
_SHOWN = (
    *("execution_id", "attempt", "outcome", "retrying", "requested_by", "started_at"),
    *_HOLDER,
)
_END = (
    *("outcome", "exit_code", "signal", "duration", "finished_at", "note"),
    *("output", "output_cut"),
)
_STAYS = ("lost_reason", "request", "requested_by")
"""What an end replaces only by something."""
_NOT_ENDED = dict.fromkeys((*_END, *_STAYS, "lost_at"))
_COPIED = (
    *("key", "shard", "tick", "tick_instant", "owner", *_HOLDER),
    *("command", "fired_at", "shards", "retries"),
)
EXPECTED = ("schedule", "zone", "expected_shards", "starting_deadline", "expected_since")
_STARTS = (
    *("high_water", "last_execution_id", "last_start", "last_lateness"),
    *("previous_start", "previous_lateness"),
)
_MOST = (1 << 53) - 1
_MARKS = {"fence": 0, **dict.fromkeys((*_STARTS, *EXPECTED, "forgotten_at", "forgotten_by"))}


def is_named(row: Row) -> bool:
    """Return whether an execution belongs to a tick that is no instant."""
    return row["tick"] is not None and row["tick_instant"] is None


def _prefixed(prefix: str, row: Row | None, *names: str) -> Row:
    return {f"{prefix}{name}": row[name] for name in names} if row else {}


class Part:
    """What there is of a shard of a key."""

    def __init__(self) -> None:
        self.marks: Row = dict(_MARKS)
        self.lease: Row | None = None
        self.rows: dict[int, Row] = {}
        """The executions by id. A row is replaced, never changed."""
        self.running: set[int] = set()
        self._ids: defaultdict[tuple[str, str | None], list[int]] = defaultdict(list)
        """By owner and by tick, those of removed rows too."""
        self.skips: dict[tuple[str, str, str], Row] = {}
        self.plain: dict[tuple[int, str], Row] = {}
        self.hosts: dict[str, Row] = {}

    def of(self, name: str, value: str | None) -> list[Row]:
        """Return the executions of an `owner` or of a `tick`."""
        ids = self._ids.get((name, value), ())
        return [self.rows[each] for each in ids if each in self.rows]

    def row(self, execution_id: int) -> Row | None:
        """Return an execution."""
        return self.rows.get(execution_id)

    def add(self, row: Row) -> None:
        """Add an execution."""
        for name in ("owner", "tick"):
            self._ids[name, row[name]].append(row["execution_id"])
        self.put(row)

    def put(self, row: Row, **values: Any) -> Row:
        """Replace an execution; return it as it is now."""
        row = {**row, **values}
        self.rows[row["execution_id"]] = row
        (self.running.add if row["outcome"] == "running" else self.running.discard)(
            row["execution_id"]
        )
        return row

    def is_old(self, row: Row, before: float) -> bool:
        """Return whether an execution is over and started before a time."""
        is_leased = self.lease is not None and self.lease["execution_id"] == row["execution_id"]
        return row["started_at"] < before and row["outcome"] != "running" and not is_leased

    def old_names(self, before: float, names_kept: int) -> Iterator[Row]:
        """Yield the old executions of names that are not among the newest."""
        named = [row for row in self.rows.values() if is_named(row)]
        firsts = sorted((row["started_at"] for row in named if row["attempt"] == 1), reverse=True)
        if len(firsts) < names_kept:
            return
        oldest = firsts[names_kept - 1]
        kept = {row["tick"] for row in named if row["attempt"] == 1 and row["started_at"] >= oldest}
        for row in named:
            if row["tick"] not in kept and self.is_old(row, min(before, oldest)):
                yield row


class Memory:
    """What the store has, and the steps of claims and holders."""

    constraints = True
    """One lease a shard, one running execution, each attempt once."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.lock = now, threading.RLock()
        self.ids, self.oldest = 0, float("inf")
        """The last id of an execution; and no record is older than this."""
        self.least: dict[str, float] = {}
        self.parts: defaultdict[Place, Part] = defaultdict(Part)
        self.shards: defaultdict[str, set[int]] = defaultdict(set)
        self._versions: Counter[str] = Counter()
        self.stops: dict[tuple[str | None, str | None], Pause] = {}
        self.notices: dict[str, Notice] = {}
        self.lists: dict[tuple[str, str], Row] = {}
        """Of items; see `memory_items`."""

    def written(self, place: Place) -> Part:
        """Return a part that is about to change: no grant counts that has looked before."""
        key, shard = place
        self._versions[key] += 1
        self.shards[key].add(shard)
        return self.parts[place]

    def known(self, place: Place) -> Part:
        """Return a part to read; of one that is unknown, an empty one."""
        return self.parts.get(place) or Part()

    def stops_changed(self) -> None:
        """Let no grant count that has looked before."""
        self._versions[ALL_KEYS] += 1

    def of_key(self, key: str) -> list[Part]:
        """Return the parts of a key."""
        return [self.parts[key, shard] for shard in sorted(self.shards.get(key, ()))]

    def stop_of(self, key: str, host: str) -> Row:
        """Return the pause of a key, or the drain of a host, by the names of the facts."""
        for place in ((key, None), (ALL_KEYS, None), (None, host)):
            stop = self.stops.get(place)
            if stop and (stop.until is None or stop.until > self.now()):
                told = {"stop_author": stop.author, "stop_reason": stop.reason}
                return told | {
                    "stop_kind": "key" if stop.key else "host",
                    "stop_since": stop.since,
                }
        return {}

    def is_living(self, place: Place, execution_id: int) -> bool:
        """Return whether an execution has its lease."""
        lease = self.known(place).lease
        has_lease = lease is not None and lease["execution_id"] == execution_id
        return has_lease and lease["expires_at"] > self.now()

    # The steps of a claim

    def version(self, key: str) -> tuple[int, ...]:
        """Return what a grant compares."""
        return self._versions[key], self._versions[ALL_KEYS]

    def look(self, firing: Firing, awaited: int | None, closely: bool) -> Row:
        part = self.known((firing.key, firing.shard))
        facts: Row = {"version": self.version(firing.key), "now": self.now()}
        own = part.of("owner", firing.owner)
        newest = max(own, key=lambda row: row["owner_attempt"], default=None)
        facts |= _prefixed("own_", newest, *_SHOWN, "fencing_token", "cause")
        if newest and (lease := part.lease):
            facts["own_has_lease"] = lease["execution_id"] == newest["execution_id"]
        facts |= self.stop_of(firing.key, firing.holder.host)
        if lease := part.lease:
            names = ("execution_id", "ttl", "expires_at", "heartbeat_at")
            facts |= _prefixed("lease_", lease, *names)
            row = part.row(lease["execution_id"])
            facts |= _prefixed("lease_", row, "tick", "started_at", *_HOLDER)
        facts |= {name: part.marks[name] for name in ("fence", *_STARTS[:4])}
        last = part.marks["last_execution_id"]
        facts |= _prefixed("last_", last and part.row(last), *_HOLDER)
        facts["running"] = bool(part.running)
        return facts | self._look_at_tick(part, firing, awaited)

    def _look_at_tick(self, part: Part, firing: Firing, awaited: int | None) -> Row:
        text, facts, order = firing.tick.text, {}, "execution_id"
        rows = part.of("tick", text) if text is not None or (firing.failover and awaited) else []
        if text is not None:
            attempts, order = max((row["attempt"] for row in rows), default=0), "attempt"
            facts = {"attempts": attempts, "forgotten": attempts > len(rows)}
            of_tick = (
                row["shards"] for each in self.of_key(firing.key) for row in each.of("tick", text)
            )
            others = (shards for shards in of_tick if shards != firing.shards)
            facts["other_shards"] = next(others, None)
        elif rows:
            has_awaited = any(row["execution_id"] == awaited for row in rows)
            rows = [row for row in rows if has_awaited and row["execution_id"] >= awaited]
        by_start = lambda row: (row["outcome"] != "not-started", row[order])  # noqa: E731
        newest = max(rows, key=by_start, default=None)
        return facts | _prefixed("newest_", newest, *_SHOWN)

    def grant(
        self, firing: Firing, version: object, number: int, cause: str, presence: Row, alone: bool
    ) -> Row | None:
        now, place = self.now(), (firing.key, firing.shard)
        if self.version(firing.key) != version:
            return None
        part = self.written(place)
        if self.constraints and (part.lease or part.running):
            raise StoreError("a constraint is violated")
        row = self._begin(part, start_values(firing), number, cause, firing.fired_at % 60)
        part.lease = {"owner": firing.owner, "ttl": firing.ttl, "acquired_at": now}
        self._move(part.lease, row)
        marks = part.marks
        marks["high_water"] = high_water_after(marks["high_water"], firing.tick.instant, now)
        self._expect(marks, firing, now)
        self._see(part, firing, presence, won=True)
        return row

    @staticmethod
    def _expect(marks: Row, firing: Firing, now: float) -> None:
        wanted = (firing.expected_schedule, firing.zone, firing.shards)
        if wanted[0] is None:
            return
        known = tuple(marks[name] for name in EXPECTED[:3])
        is_known = known == wanted and marks["expected_since"] <= now + MAX_CLOCK_SKEW
        since = marks["expected_since"] if is_known else now
        marks |= zip(EXPECTED, (*wanted, firing.starting_deadline, since), strict=True)

    def _begin(
        self, part: Part, values: Row, number: int, cause: str, lateness: float | None
    ) -> Row:
        now, marks = self.now(), part.marks
        marks["fence"] = max(marks["fence"] + 1, int(now * 1e6))
        row = self._add(part, values, number) | {"outcome": "running", "cause": cause}
        row = part.put(row, owner_attempt=number, fencing_token=marks["fence"], started_at=now)
        marks |= {"previous_start": marks["last_start"], "last_start": now}
        marks |= {"previous_lateness": marks["last_lateness"], "last_lateness": lateness}
        marks["last_execution_id"] = self.ids
        return row

    def _add(self, part: Part, values: Row, number: int) -> Row:
        taken = [row["attempt"] for row in part.of("tick", values["tick"]) if values["tick"]]
        if self.constraints and number in taken:
            raise StoreError("a constraint is violated")
        self.ids += 1
        self.oldest = min(self.oldest, values.get("started_at", self.now()))
        row = {**_NOT_ENDED, **recordable_values(values), "attempt": number, "retrying": False}
        part.add(row | {"execution_id": self.ids, "outcome": values.get("outcome", "running")})
        return part.rows[self.ids]

    def _move(self, lease: Row, row: Row) -> None:
        """Let a lease be that of an execution."""
        nobody = dict.fromkeys(("request", "requested_by", "request_acknowledged_at"))
        lease |= nobody | {"execution_id": row["execution_id"]}
        self._renewed(lease)

    def _renewed(self, lease: Row) -> None:
        now = self.now()
        lease |= {"heartbeat_at": now, "expires_at": now + lease["ttl"]}

    def expire(self, firing: Firing, version: object, note: str) -> Row | None:
        place = (firing.key, firing.shard)
        lease = self.known(place).lease
        if self.version(firing.key) != version or (lease and lease["expires_at"] > self.now()):
            return None
        return self.take_away(self.written(place), "expired", note)

    def take_away(self, part: Part, reason: str, note: str) -> Row | None:
        """Declare what runs without a lease lost, and raise the token; return what was lost."""
        lost, lease = None, part.lease
        ended = {"lost_at": self.now(), "lost_reason": reason}
        kept = part.row(lease["execution_id"]) if lease else None
        if kept and kept["retrying"] and kept["lost_at"] is None:
            lost = part.put(kept, **ended, note=attempt.join(kept["note"], note))
        for execution_id in list(part.running):
            row = part.rows[execution_id]
            lost = part.put(row, **ended, outcome="lost", note=attempt.join(row["note"], note))
        part.lease = None
        part.marks["fence"] = max(part.marks["fence"] + 1, int(self.now() * 1e6))
        return lost

    def cut(self, key: str, shard: int) -> None:
        part, now = self.written((key, shard)), self.now()
        if part.lease and part.lease["expires_at"] > now + part.lease["ttl"]:
            part.lease["expires_at"] = now + part.lease["ttl"]
            part.lease["heartbeat_at"] = min(part.lease["heartbeat_at"], now)

    # What a holder asks

    def _held(self, key: str, shard: int, execution_id: int, owner: str) -> Part | None:
        """Renew a lease; return its part, or None if the lease is another one."""
        lease = self.known((key, shard)).lease
        if not lease or (lease["execution_id"], lease["owner"]) != (execution_id, owner):
            return None
        part = self.written((key, shard))
        self._renewed(lease)
        return part

    def regain(self, *named: Any) -> bool:
        return self._held(*named) is not None

    def renew(self, *named: Any) -> tuple[Any] | None:
        part = self._held(*named)
        if part is None:
            return None
        lease = part.lease
        if lease["request"]:
            lease["request_acknowledged_at"] = lease["request_acknowledged_at"] or self.now()
        return (lease["request"],)

    def keep(self, lease: Lease, ending: Ending) -> bool:
        part = self._held(lease.key, lease.shard, lease.execution_id, lease.owner)
        if part is None:
            return False
        row = part.row(lease.execution_id)
        if row["outcome"] == "running":
            values = recordable_values(ending_values(ending) | {"finished_at": self.now()})
            values["note"] = attempt.join(row["note"], values["note"])
            part.put(row, **{name: values[name] for name in _END}, retrying=True)
        return True

    def retry(self, lease: Lease) -> Row | None:
        part = self.known((lease.key, lease.shard))
        held = part.lease
        row = held and part.row(held["execution_id"])
        if not held or held["owner"] != lease.owner:
            return None
        if not (row["retrying"] or row["execution_id"] > lease.execution_id):
            return None
        part = self.written((lease.key, lease.shard))
        if row["execution_id"] != lease.execution_id:  # its answer was lost
            self._renewed(held)
            return row
        if stop := self.stop_of(lease.key, row["host"]):
            refusal = stop_refusal(stop_of(stop))
            told = {"reason": refusal.reason, "detail": refusal.detail, "at": self.now()}
            self._count(part, row | told | {"holder_host": None, "holder_pid": None, "count": 1})
            return stop
        tried = [each["attempt"] for each in part.of("tick", row["tick"]) if row["tick"]]
        copied = {name: row[name] for name in _COPIED}
        number = max(tried or [row["attempt"]]) + 1
        begun = self._begin(part, copied, number, "retry", part.marks["last_lateness"])
        self._move(held, begun)
        return begun

    def finish(self, lease: Lease, ending: Ending, retention: Retention) -> bool:
        place = (lease.key, lease.shard)
        row = self.known(place).row(lease.execution_id)
        if row is None or row["owner"] != lease.owner:
            return False
        lost = row["lost_at"] is not None
        late = attempt.ENDED_LATE if lost and not row["retrying"] else None
        values = ending_values(ending) | {"finished_at": self.now()}
        if self._conclude(self.written(place), row, values, ending.note, late):
            self._remove_a_few(place, retention)
        return not lost

    def _conclude(self, part: Part, row: Row, values: Row, *notes: str | None) -> bool:
        """Write the end of an execution that has none, and release its lease; return whether it had none."""
        values, lost = recordable_values(values), row["lost_at"] is not None
        known = attempt.Known(
            *(row["execution_id"], row["outcome"], row["duration"] is not None),
            *(row["retrying"], lost, row["note"]),
        )
        notes = recordable_values(dict(enumerate(notes))).values()
        ended = attempt.effect_of_end(known, *notes)
        lease = part.lease if part.lease and part.lease["owner"] == row["owner"] else None
        if ended.how == "give-up":
            part.put(row, retrying=False, note=ended.note)
            if lease and lease["execution_id"] != row["execution_id"]:
                nothing = _NOT_ENDED | {"outcome": "not-started", "duration": 0.0}
                self._conclude(part, part.row(lease["execution_id"]), nothing, attempt.UNHEARD)
        elif ended.how == "end":
            told = {name: values[name] for name in _END}
            told |= {name: values[name] for name in _STAYS if values.get(name) is not None}
            part.put(row, **told | {"note": ended.note})
            if values["outcome"] == "not-started":
                self._take_back(part.marks, row)
        if lease and lease["execution_id"] == row["execution_id"]:
            part.lease = None
        return ended.how != "nothing"

    @staticmethod
    def _take_back(marks: Row, row: Row) -> None:
        if marks["last_execution_id"] == row["execution_id"]:
            marks |= {"last_start": marks["previous_start"], "last_execution_id": None}
            marks["last_lateness"] = marks["previous_lateness"]

    # Skips, and who fires

    def skip(self, firing: Firing, values: Row, presence: Row, plain: PlainSkip | None) -> None:
        part, now = self.written((firing.key, firing.shard)), self.now()
        if plain:
            kept = {"words": "", "at": now}
            kept = part.plain.setdefault((plain.window, firing.holder.host), kept)
            kept |= {"words": kept["words"] + plain.word, "at": max(kept["at"], now)}
            self.oldest = min(self.oldest, now)
        else:
            self._count(part, values | {"at": now, "count": 1})
        self._see(part, firing, presence, won=False)

    def _count(self, part: Part, values: Row) -> None:
        values = recordable_values(values)
        place = (values["tick"] or "", values["host"], values["reason"])
        known = part.skips.get(place, {"count": 0, "at": 0.0, "delivered": []})
        delivered, owner = known["delivered"], values.get("delivered")
        if owner in delivered:
            return
        count = min(known["count"] + values["count"], _MOST)
        delivered = [*delivered, *([owner] if owner else [])][-8:]
        newest = {"at": max(known["at"], values["at"]), "count": count, "delivered": delivered}
        part.skips[place] = values | newest
        self.oldest = min(self.oldest, newest["at"])

    def _see(self, part: Part, firing: Firing, presence: Row, *, won: bool) -> None:
        now, host = self.now(), firing.holder.host
        history = ticks_and_counts(part.hosts.get(host), firing, now, won=won)
        told = presence | history
        shown = {"version": told["oncecron"], "command": told["shown_command"]}
        shown |= {"seen_at": now, "clock_ahead": told["host_now"] - now}
        part.hosts[host] = told | shown

    # Late records

    def deliver(self, record: Row, retention: Retention | None = None) -> None:
        bounds.check(record)
        place, late = (record["key"], record["shard"]), record.get("late")
        part = self.written(place)
        if record["kind"] == "skip":
            at = min(record["at"], self.now())
            self._count(part, record | {"at": at, "delivered": record["owner"]})
            return
        owned, late = part.of("owner", record["owner"]), attempt.RECORDED_LATER if late else None
        if record["attempt"] is not None:
            owned = [row for row in owned if row["owner_attempt"] == record["attempt"]]
        if not owned:
            ends = self._insert(part, record, late)
        elif record["outcome"] == "running":
            return
        else:
            row = max(owned, key=lambda each: each["owner_attempt"])
            ends = self._conclude(part, row, record, record["note"], late)
        if ends and retention:
            self._remove_a_few(place, retention)

    def _insert(self, part: Part, record: Row, late: str | None) -> bool:
        """Add an execution that the store has forgotten, or has never had; return whether it has ended."""
        outcome, token, now, marks = (
            record["outcome"],
            record["fencing_token"],
            self.now(),
            part.marks,
        )
        if outcome == "not-started" and token is None:
            return False
        if attempt.supersedes(token, marks["fence"]):
            lease = part.lease["execution_id"] if part.lease else None
            for row in [part.rows[each] for each in part.running if each != lease]:
                note = attempt.join(row["note"], attempt.UNFINISHED)
                lost = {"outcome": "lost", "lost_at": now, "lost_reason": "superseded"}
                part.put(row, **lost, note=note)
        beside = bool(part.running or part.lease)
        values = {name: record[name] for name in (*_COPIED, *_END, *_STAYS)}
        values |= {name: record[name] for name in ("cause", "started_at", "fencing_token")}
        notes = [record["note"], late]
        if attempt.is_superseded(outcome, token, marks["fence"], beside=beside):
            values |= {"outcome": "lost", "lost_reason": "superseded"}
            notes.insert(1, attempt.UNFINISHED)
        tried = [row["attempt"] + 1 for row in part.of("tick", record["tick"]) if record["tick"]]
        number = record["attempt"]
        values |= {"owner_attempt": number, "note": attempt.join(*notes)}
        self._add(part, values, max([number, *tried]))
        marks["fence"] = max(marks["fence"], min(token or 0, int((now + TOKEN_AHEAD) * 1e6)))
        if outcome != "not-started":
            instant = record["tick_instant"]
            marks["high_water"] = high_water_after(marks["high_water"], instant, now)
            self._mark_start(marks, record, now)
        return bool(outcome != "running")

    @staticmethod
    def _mark_start(marks: Row, record: Row, now: float) -> None:
        start, last = min(record["started_at"], now), marks["last_start"]
        if last is None or last < start or clock.is_ahead(last, now):
            marks |= {"last_start": start, "last_execution_id": None}
            marks["last_lateness"] = record["fired_at"] % 60

    # Retention

    def least_retention(self) -> Retention:
        """Return the retention below which no caller's counts."""
        return Retention(
            *(self.least.get(name, default) for name, default in LEAST._asdict().items())
        )

    def _remove_a_few(self, place: Place, wanted: Retention) -> None:
        """Remove what retention wants at an end: the names of one part, of all else a little."""
        kept, now = Retention(*map(max, wanted, self.least_retention())), self.now()
        before = now - kept.executions
        if now - min(kept) > self.oldest:
            self.remove(self.old_executions(before, [place], NAMES_KEPT)[:MOST_PER_FINISH])
            self.remove(self.old_skips(now - kept.skips)[:SKIPS_PER_FINISH])
        self.forget_old(before)

    def old_executions(
        self, before: float, named: Iterable[Place], names_kept: int
    ) -> list[tuple[float, dict[Any, Row], int]]:
        """Return the executions that may go: when each started, and where it is."""
        found = []
        for place, part in self.parts.items():
            old = [
                row for row in part.rows.values() if not is_named(row) and part.is_old(row, before)
            ]
            old += part.old_names(before, names_kept) if place in named else []
            found += [(row["started_at"], part.rows, row["execution_id"]) for row in old]
        return sorted(found, key=lambda each: each[0])

    def old_skips(self, before: float) -> list[tuple[float, dict[Any, Row], Any]]:
        """Return the skips that may go, as above."""
        kinds = (kind for part in self.parts.values() for kind in (part.skips, part.plain))
        found = [(row["at"], kind, name) for kind in kinds for name, row in kind.items()]
        return sorted((each for each in found if each[0] < before), key=lambda each: each[0])

    @staticmethod
    def remove(found: Iterable[tuple[float, dict[Any, Row], Any]], *, dry_run: bool = False) -> int:
        """Remove records; return how many there were, each plain skip counted."""
        get = dict.get if dry_run else dict.pop
        gone = [get(rows, name) for _, rows, name in found]
        return sum(row["words"].count(" ") if "words" in row else 1 for row in gone)

    def forget_old(self, before: float) -> None:
        """Remove the pauses that have ended, the hosts that are gone, and the lists of items that have expired."""
        now = self.now()
        for place, stop in list(self.stops.items()):
            if stop.until is not None and stop.until <= now:
                del self.stops[place]
        for part in self.parts.values():
            for name, host in list(part.hosts.items()):
                if host["seen_at"] < now - HOST_FORGOTTEN_AFTER:
                    del part.hosts[name]
        for items_of, found in list(self.lists.items()):
            if self._has_expired(items_of, found, before):
                del self.lists[items_of]

    def _has_expired(self, items_of: tuple[str, str], found: Row, before: float) -> bool:
        if found["loaded_at"] is None:
            return not self.is_living(found["loading_place"], found["loading_execution"])
        if found["loaded_at"] >= before or found["loaded_at"] + found["keep"] >= self.now():
            return False
        key, tick = items_of
        return not any(
            row["outcome"] != "running"
            or row["started_at"] >= before
            or self.is_living((key, row["shard"]), row["execution_id"])
            for part in self.of_key(key)
            for row in part.of("tick", tick)
        )


class MemoryStore(Claimer):
    """`LeaseStore` of one firing."""

    lease_clock = clock.BOOTTIME
    survives_fork = holds_connection = True

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def _call(self, op: str, deadline: float, *args: Any) -> tuple[Any, float]:
        """Return the answer to a step, and when it was sent (lease clock)."""
        sent = clock.lease_time(self.lease_clock)
        with self._memory.lock:
            return getattr(self._memory, op)(*args), sent

    # ClaimSteps

    def look(self, firing: Firing, *, awaited: int | None, closely: bool, deadline: float) -> Row:
        host_now = clock.wall()
        facts, _ = self._call("look", deadline, firing, awaited, closely)
        return facts | {"host_now": host_now}

    def peek(self, firing: Firing, *, deadline: float) -> Row:
        return self.look(firing, awaited=None, closely=True, deadline=deadline)

    def grant(
        self, firing: Firing, state: State, grant: Grant, *, alone: bool, deadline: float
    ) -> Lease | Unconfirmed | None:
        given = (firing, state.version, grant.attempt, grant.cause, presence_values(firing), alone)
        row, sent = self._call("grant", deadline, *given)
        return row and self._confirmed(first_lease(firing, row, sent))

    def _confirmed(self, lease: Lease) -> Lease | Unconfirmed:
        return lease

    def expire(self, firing: Firing, state: State, note: str, *, deadline: float) -> LostRun | None:
        lost, _ = self._call("expire", deadline, firing, state.version, note)
        return lost and lost_run(lost)

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:
        self._call("cut", deadline, firing.key, firing.shard)

    def regain(
        self, firing: Firing, own: Attempt, *, deadline: float
    ) -> Lease | Unconfirmed | None:
        named = (firing.key, firing.shard, own.execution_id, firing.owner)
        held, sent = self._call("regain", deadline, *named)
        return self._confirmed(first_lease(firing, own._asdict(), sent)) if held else None

    def skip(
        self, firing: Firing, refusal: Refusal, *, deadline: float, plain: PlainSkip | None = None
    ) -> None:
        values = skip_values(firing, refusal)
        self._call("skip", deadline, firing, values, presence_values(firing), plain)

    # LeaseStore

    def renew(self, lease: Lease, *, deadline: float) -> Lease | None:
        named = (lease.key, lease.shard, lease.execution_id, lease.owner)
        held, sent = self._call("renew", deadline, *named)
        if held is None:
            return None
        request = held[0] and stored_request(*held[0])
        return lease._replace(trusted_until=trust_after(sent, lease.ttl), request=request)

    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        return self._call("keep", deadline, lease, ending)[0]

    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        answer, sent = self._call("retry", deadline, lease)
        if answer is None:
            return None
        is_stop = "stop_kind" in answer
        return stop_refusal(stop_of(answer)) if is_stop else next_lease(lease, answer, sent)

    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        return self._call("finish", deadline, lease, ending, retention)[0]

    def deliver(self, record: Row, *, deadline: float, retention: Retention | None = None) -> None:
        self._call("deliver", deadline, record, retention)

    def listen(self, firing: Firing, *, deadline: float) -> bool:
        return False

    def evict(self, stale: object, *, deadline: float) -> None:
        return

    def watch_fd(self) -> int | None:
        return None

    def readdress(self, address: object) -> None:
        return

    def close(self) -> None:
        return
