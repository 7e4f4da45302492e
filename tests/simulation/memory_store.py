"""A store in memory: dictionaries, and a clock that is given to it. Each method of `Memory` is one atomic step.

It keeps the contract (tests/contract) as the fourth store beside those of the product, and shows what a store must
bring: every rule is the product's own code. `memory_reader` has what people ask, `memory_items` the items of `each`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from oncecron.core import attempt, bounds, clock, facts
from oncecron.core.decision import stop_refusal
from oncecron.core.errors import StoreError
from oncecron.core.log_rows import ALL_KEYS, is_internal
from oncecron.core.making_up import HELD_BACK
from oncecron.core.model import (
    LEAST,
    Retention,
    place_text,
    recordable_values,
    stored_request,
    trust_after,
)
from oncecron.core.timing import HOST_FORGOTTEN_AFTER, MAX_CLOCK_SKEW, PAUSES_KEPT
from oncecron.stores import steadied
from oncecron.stores.claim_loop import ClaimLoop
from oncecron.stores.sqlite import lease_store, retention
from oncecron.stores.sqlite.lease_store import TOKEN_AHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from oncecron.core.decision import Attempt, Grant, PlainSkip, State
    from oncecron.core.log_rows import Pause
    from oncecron.core.model import Ending, Firing, Lease, LostRun, Refusal, Unconfirmed
    from oncecron.core.presence import Seen

Row = dict[str, Any]
Place = tuple[str, int]
"""A key and a shard."""
Old = tuple[float, dict[Any, Row], Any]
"""Since when a record is there, and where."""

_HOLDER = ("host", "pid", "user")
_SHOWN = ("execution_id", "attempt", "outcome", "retrying", "requested_by", "started_at", *_HOLDER)
_TICK = ("tick", "tick_instant")
_FIRED = ("key", "shard", *_TICK, "owner", *_HOLDER, "command", "fired_at", "shards", "retries")
"""What a start copies from its firing, and a retry from the attempt before."""
_ENDED = ("outcome", "exit_code", "signal", "duration", "finished_at", "output", "output_cut")
_STAYS = ("lost_reason", "request", "requested_by", "place")
"""What an end replaces only by something."""
_NOT_ENDED = dict.fromkeys((*_ENDED, *_STAYS, "note", "lost_at"))
_REQUESTED = ("request", "requested_by", "request_acknowledged_at")
_EXPECTED = ("schedule", "zone", "expected_shards", "starting_deadline", "expected_since")
_LAST = ("high_water", "last_start", "last_lateness")
_PREVIOUS = ("last_execution_id", "previous_start", "previous_lateness")
_MARKS = dict.fromkeys((*_LAST, *_PREVIOUS, *_EXPECTED, "forgotten_at", "forgotten_by"))


def is_named(row: Row) -> bool:
    """Return whether an execution belongs to a tick that is no instant."""
    return row["tick"] is not None and row["tick_instant"] is None


def _prefixed(prefix: str, row: Row | None, *names: str) -> Row:
    return {f"{prefix}{name}": row[name] for name in names} if row else {}


class Part:
    """What there is of a shard of a key."""

    def __init__(self) -> None:
        self.marks: Row = {"fence": 0, **_MARKS}
        self.lease: Row | None = None
        self.rows: dict[int, Row] = {}
        """The executions by id. A row is replaced, never changed."""
        self.running: set[int] = set()
        self._ids: defaultdict[tuple[str, str | None], list[int]] = defaultdict(list)
        """By owner and by tick, also of rows that are gone."""
        self.skips: dict[tuple[str, str, str], Row] = {}
        self.plain: dict[tuple[int, str], Row] = {}
        self.hosts: dict[str, Row] = {}

    def of(self, name: str, value: str | None) -> list[Row]:
        """Return the executions of an `owner` or of a `tick`."""
        ids = self._ids.get((name, value), ())
        return [self.rows[each] for each in ids if each in self.rows]

    def row(self, execution_id: int | None) -> Row | None:
        """Return an execution."""
        return self.rows.get(execution_id)

    def leased(self) -> int | None:
        """Return the execution that has the lease."""
        return self.lease["execution_id"] if self.lease else None

    def put(self, row: Row, **values: Any) -> Row:
        """Add or replace an execution; return it as it is now."""
        row, execution_id = {**row, **values}, row["execution_id"]
        if execution_id not in self.rows:
            for name in ("owner", "tick"):
                self._ids[name, row[name]].append(execution_id)
        self.rows[execution_id] = row
        self.running.discard(execution_id)
        self.running |= {execution_id} if row["outcome"] == "running" else set()
        return row

    def presence(self, host: str) -> str | None:
        """Return what is known of a host that fires the key."""
        return self.hosts[host]["presence"] if host in self.hosts else None

    def old(self, before: float, names_kept: int | None) -> Iterator[Old]:
        """Yield the executions that may go; None: none of a name, of which the newest ones stay."""
        rows = self.rows.values()
        firsts = [row for row in rows if names_kept and is_named(row) and row["attempt"] == 1]
        firsts = sorted(firsts, key=lambda row: row["started_at"])[-(names_kept or 0) :]
        names = {row["tick"] for row in firsts}
        oldest = firsts[0]["started_at"] if len(firsts) == names_kept else float("-inf")
        for execution_id, row in self.rows.items():
            is_kept = is_named(row) and (row["tick"] in names or row["started_at"] >= oldest)
            is_over = execution_id not in self.running and execution_id != self.leased()
            if row["started_at"] < before and is_over and not is_kept:
                yield row["started_at"], self.rows, execution_id


class Memory:
    """What the store has, and the steps of claims and holders."""

    constraints = True
    """One lease of a shard, one running execution, each attempt of a tick once."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.ids, self.oldest = now, 0, float("inf")
        """The clock; the last id of an execution; and no record is older than this."""
        self.parts: defaultdict[Place, Part] = defaultdict(Part)
        self.shards: defaultdict[str, set[int]] = defaultdict(set)
        self.stops: dict[tuple[str | None, str | None], Pause] = {}
        self.past: list[tuple[tuple[str | None, str | None], float, float]] = []
        """The stops that have ended: of which key or host, since when, and until when."""
        self.versions: Counter[str] = Counter()
        """Of what is known of a key; of `ALL_KEYS`: of the stops."""
        self.least: dict[str, float] = {}
        self.notices: dict[str, tuple[int, str]] = {}
        self.lists: dict[tuple[str, str], Row] = {}
        """Of items; see `memory_items`."""

    def written(self, key: str, shard: int) -> Part:
        """Return a part that is about to change: no grant counts that has looked before."""
        self.versions[key] += 1
        self.shards[key].add(shard)
        return self.parts[key, shard]

    def known(self, key: str, shard: int) -> Part:
        """Return a part to read; of one that is unknown, an empty one."""
        return self.parts.get((key, shard)) or Part()

    def of_key(self, key: str) -> list[Part]:
        """Return the parts of a key."""
        return [self.parts[key, shard] for shard in sorted(self.shards.get(key, ()))]

    def stop_of(self, key: str, host: str) -> Row:
        """Return the pause of a key, or the drain of a host, by the names of the facts."""
        places = ((key, None), (ALL_KEYS, None), (None, host))
        for place in places[:1] if is_internal(key) else places:
            stop = self.stops.get(place)
            if stop and (stop.until is None or stop.until > self.now()):
                told = _prefixed("stop_", stop._asdict(), "author", "reason", "since")
                return told | {"stop_kind": "key" if stop.key else "host"}
        return {}

    def end_stop(self, place: tuple[str | None, str | None]) -> None:
        """Move a pause, or a drain, to those that have ended."""
        if stop := self.stops.pop(place, None):
            until = self.now() if stop.until is None else min(self.now(), stop.until)
            self.past.append((place, stop.since, until))

    def is_living(self, key: str, shard: int, execution_id: int) -> bool:
        """Return whether an execution has its lease."""
        part = self.known(key, shard)
        return part.leased() == execution_id and part.lease["expires_at"] > self.now()

    # The steps of a claim

    def version(self, key: str) -> tuple[int, ...]:
        """Return what a grant compares."""
        return self.versions[key], self.versions[ALL_KEYS]

    def look(self, firing: Firing, awaited: int | None, closely: bool) -> Row:
        part = self.known(firing.key, firing.shard)
        own = max(
            part.of("owner", firing.owner), key=lambda row: row["owner_attempt"], default=None
        )
        found = {"version": self.version(firing.key), "now": self.now()}
        found |= {name: part.marks[name] for name in ("fence", *_LAST)}
        found |= _prefixed("own_", own, *_SHOWN, "fencing_token", "cause", "place")
        found["own_has_lease"] = own and own["execution_id"] == part.leased()
        found["running"] = bool(part.running)
        found |= self.stop_of(firing.key, firing.holder.host)
        found |= _prefixed(
            "lease_", part.lease, "execution_id", "ttl", "expires_at", "heartbeat_at"
        )
        found |= _prefixed("lease_", part.row(part.leased()), "tick", "started_at", *_HOLDER)
        found |= _prefixed("last_", part.row(part.marks["last_execution_id"]), *_HOLDER)
        found["presence"] = part.presence(firing.holder.host)
        return found | self._look_at_tick(part, firing, awaited)

    def _look_at_tick(self, part: Part, firing: Firing, awaited: int | None) -> Row:
        text, found, order = firing.tick.text, {}, "execution_id"
        rows = part.of("tick", text) if text is not None or (firing.failover and awaited) else []
        if text is not None:
            attempts, order = max((row["attempt"] for row in rows), default=0), "attempt"
            of_tick = (row for each in self.of_key(firing.key) for row in each.of("tick", text))
            others = {row["shards"] for row in of_tick} - {firing.shards}
            found = {"other_shards": min(others, default=None)}
            found |= {"attempts": attempts, "forgotten": attempts > len(rows)}
        elif any(row["execution_id"] == awaited for row in rows):
            rows = [row for row in rows if row["execution_id"] >= awaited]
        else:
            rows = []
        ordered = sorted(rows, key=lambda row: (row["outcome"] != "not-started", row[order]))
        return found | _prefixed("newest_", ordered[-1] if ordered else None, *_SHOWN)

    def grant(
        self, firing: Firing, version: object, grant: Grant, presence: str, alone: bool
    ) -> Row | None:
        if self.version(firing.key) != version:
            return None
        part, now = self.written(firing.key, firing.shard), self.now()
        marks, lateness = part.marks, firing.fired_at % 60
        place = (part.row(grant.follows) or {}).get("place")
        values = facts.start_values(firing) | {"place": place}
        row = self._begin(part, values, grant.attempt, grant.cause, lateness)
        part.lease = {"owner": firing.owner, "ttl": firing.ttl, "acquired_at": now}
        self._move(part.lease, row)
        marks["high_water"] = self._high_water(marks, firing.tick.instant)
        wanted, since = (
            (firing.expected_schedule, firing.zone, firing.shards),
            marks["expected_since"],
        )
        if wanted[0] is not None:
            is_known = wanted == tuple(map(marks.get, _EXPECTED[:3]))
            since = since if is_known and since <= now + MAX_CLOCK_SKEW else now
            marks |= zip(_EXPECTED, (*wanted, firing.starting_deadline, since), strict=True)
        part.hosts[firing.holder.host] = {"seen_at": now, "presence": presence}
        return row

    def _high_water(self, marks: Row, instant: float | None) -> float | None:
        return lease_store.high_water_after(marks["high_water"], instant, self.now())

    def _raise_fence(self, marks: Row) -> int:
        marks["fence"] = max(marks["fence"] + 1, int(self.now() * 1e6))
        return marks["fence"]

    def _begin(
        self, part: Part, values: Row, number: int, cause: str, lateness: float | None
    ) -> Row:
        if self.constraints and (part.running or (part.lease and cause != "retry")):
            raise StoreError("a constraint is violated")
        now, marks = self.now(), part.marks
        begun = {"outcome": "running", "cause": cause, "started_at": now, "owner_attempt": number}
        row = self._add(part, values | begun, number, self._raise_fence(marks))
        marks |= {"previous_start": marks["last_start"], "last_start": now}
        marks |= {"previous_lateness": marks["last_lateness"], "last_lateness": lateness}
        marks["last_execution_id"] = self.ids
        return row

    def _add(self, part: Part, values: Row, number: int, token: int | None) -> Row:
        if self.constraints and values["tick"] and number in self._attempts(part, values["tick"]):
            raise StoreError("a constraint is violated")
        self.ids, self.oldest = self.ids + 1, min(self.oldest, values["started_at"])
        row = {**_NOT_ENDED, "retrying": False, **recordable_values(values), "attempt": number}
        return part.put(row | {"execution_id": self.ids, "fencing_token": token})

    @staticmethod
    def _attempts(part: Part, tick: str | None) -> list[int]:
        return [row["attempt"] for row in part.of("tick", tick)] if tick is not None else []

    def _move(self, lease: Row, row: Row) -> None:
        lease |= dict.fromkeys(_REQUESTED) | {"execution_id": row["execution_id"]}
        self._renewed(lease)

    def _renewed(self, lease: Row) -> None:
        now = self.now()
        lease |= {"heartbeat_at": now, "expires_at": now + lease["ttl"]}

    def expire(self, firing: Firing, version: object, note: str) -> Row | None:
        lease = self.known(firing.key, firing.shard).lease
        if self.version(firing.key) != version or (lease and lease["expires_at"] > self.now()):
            return None
        return self.take_away(self.written(firing.key, firing.shard), "expired", note)

    def take_away(self, part: Part, reason: str, note: str) -> Row | None:
        """Declare what runs without a lease lost, and raise the token; return what was lost."""
        kept, lost = part.row(part.leased()), [part.rows[each] for each in part.running]
        lost += [kept] if kept and kept["retrying"] and kept["lost_at"] is None else []
        lost = [self._lose(part, row, reason, note) for row in lost]
        part.lease = None
        self._raise_fence(part.marks)
        return lost[0] if lost else None

    def _lose(self, part: Part, row: Row, reason: str, note: str) -> Row:
        outcome = "lost" if row["outcome"] == "running" else row["outcome"]
        lost = {"outcome": outcome, "lost_at": self.now(), "lost_reason": reason}
        return part.put(row, **lost, note=attempt.join(row["note"], note))

    def look_back(self, firing: Firing, since: float) -> list[Any]:
        part, rows = self.known(firing.key, firing.shard), []
        plan = [part.marks[name] for name in ("schedule", "zone", "expected_since")]
        rows += [("plan", *plan, None)] if plan[0] else []
        stops = [(place, stop.since, stop.until) for place, stop in self.stops.items()]
        for (key, host), *span in (*self.past, *stops):
            if key in (firing.key, ALL_KEYS) or host in part.hosts:
                rows.append(("pause" if key else "drain", key or host, None, *span))
        rows += [("host", host, None, None, None) for host in part.hosts]
        for tick, host, reason in part.skips:
            if reason in HELD_BACK:
                rows.append((reason, tick, host, None, None))
        for row in part.rows.values():
            is_run = row["finished_at"] and row["outcome"] not in ("not-started", "unclaimed")
            if is_run and row["finished_at"] > since:
                rows.append(("run", None, None, row["started_at"], row["finished_at"]))
        return rows

    def cut(self, key: str, shard: int) -> None:
        lease, now = self.written(key, shard).lease, self.now()
        if lease and lease["expires_at"] > now + lease["ttl"]:
            heartbeat = min(lease["heartbeat_at"], now)
            lease |= {"expires_at": now + lease["ttl"], "heartbeat_at": heartbeat}

    # What a holder asks

    def _held(self, key: str, shard: int, execution_id: int, owner: str) -> Part | None:
        """Renew a lease; return its part, or None if the lease is another one."""
        part = self.known(key, shard)
        if part.leased() != execution_id or part.lease["owner"] != owner:
            return None
        part = self.written(key, shard)
        self._renewed(part.lease)
        return part

    def regain(self, *named: Any) -> bool:
        return self._held(*named) is not None

    def renew(self, *named: Any) -> tuple[Any] | None:
        *named, place = named
        part = self._held(*named)
        if part is None:
            return None
        if place is not None:
            part.put(part.row(part.leased()), place=place)
        if part.lease["request"] and part.lease["request_acknowledged_at"] is None:
            part.lease["request_acknowledged_at"] = self.now()
        return (part.lease["request"],)

    def keep(self, lease: Lease, ending: Ending) -> bool:
        part = self._held(lease.key, lease.shard, lease.execution_id, lease.owner)
        row = part and part.row(lease.execution_id)
        if row and row["outcome"] == "running":
            values = recordable_values(facts.ending_values(ending)) | {"finished_at": self.now()}
            ended = {name: values[name] for name in _ENDED} | {"retrying": True}
            ended |= {} if values["place"] is None else {"place": values["place"]}
            part.put(row, **ended, note=attempt.join(row["note"], values["note"]))
        return part is not None

    def retry(self, lease: Lease) -> Row | None:
        part = self.known(lease.key, lease.shard)
        row, held = part.row(part.leased()), part.lease
        if row is None or held["owner"] != lease.owner:
            return None
        if not row["retrying"] and row["execution_id"] <= lease.execution_id:
            return None
        part = self.written(lease.key, lease.shard)
        if row["execution_id"] != lease.execution_id:  # its answer was lost
            self._renewed(held)
            return row
        if stop := self.stop_of(lease.key, row["host"]):
            refusal = stop_refusal(facts.stop_of(stop))
            told = {"reason": refusal.reason, "detail": refusal.detail, "at": self.now()}
            self._count(part, row | told | {"holder_host": None, "holder_pid": None, "count": 1})
            return stop
        number = max(self._attempts(part, row["tick"]) or [row["attempt"]]) + 1
        copied = {name: row[name] for name in (*_FIRED, "place")}
        begun = self._begin(part, copied, number, "retry", part.marks["last_lateness"])
        self._move(held, begun)
        return begun

    def finish(self, lease: Lease, ending: Ending, wanted: Retention) -> bool:
        row = self.known(lease.key, lease.shard).row(lease.execution_id)
        if row is None or row["owner"] != lease.owner:
            return False
        part, was_lost = self.written(lease.key, lease.shard), row["lost_at"] is not None
        late = attempt.ENDED_LATE if was_lost and not row["retrying"] else None
        values = facts.ending_values(ending) | {"finished_at": self.now()}
        if self._conclude(part, row, values, late):
            self._remove_a_few((lease.key, lease.shard), wanted)
        return not was_lost

    def _conclude(self, part: Part, row: Row, values: Row, late: str | None) -> bool:
        values, was_lost = recordable_values(values), row["lost_at"] is not None
        known = (row["execution_id"], row["outcome"], row["duration"] is not None)
        known = attempt.Known(*known, row["retrying"], was_lost, row["note"])
        ended = attempt.effect_of_end(known, values["note"], late)
        is_own = part.lease is not None and part.lease["owner"] == row["owner"]
        if ended.how == "give-up":
            part.put(row, retrying=False, note=ended.note)
            if is_own and part.leased() != row["execution_id"]:
                nothing = _NOT_ENDED | {"outcome": "not-started", "duration": 0.0}
                nothing["finished_at"] = values["finished_at"]
                self._conclude(part, part.row(part.leased()), nothing, attempt.UNHEARD)
        elif ended.how == "end":
            told = {name: values[name] for name in _ENDED}
            told |= {name: values[name] for name in _STAYS if values.get(name) is not None}
            part.put(row, **told, note=ended.note)
            marks = part.marks
            if (values["outcome"], marks["last_execution_id"]) == ("not-started", known[0]):
                names = (None, marks["previous_start"], marks["previous_lateness"])
                marks |= zip(("last_execution_id", *_LAST[1:]), names, strict=True)
        if is_own and part.leased() == row["execution_id"]:
            part.lease = None
        return ended.how != "nothing"

    # Skips, and who fires

    def record_skip(
        self, firing: Firing, values: Row, presence: Seen | None, plain: PlainSkip | None
    ) -> bool:
        known = self.known(firing.key, firing.shard).presence(firing.holder.host)
        if presence and presence.before != known:
            return False
        part, now = self.written(firing.key, firing.shard), self.now()
        if presence:
            part.hosts[firing.holder.host] = {"seen_at": now, "presence": presence.after}
        if plain:
            place = (plain.window, firing.holder.host)
            known = part.plain.get(place, {"words": "", "at": now})
            part.plain[place] = {"words": known["words"] + plain.word, "at": max(known["at"], now)}
            self.oldest = min(self.oldest, now)
        else:
            self._count(part, values | {"at": now, "count": 1})
        return True

    def _count(self, part: Part, values: Row, owner: str = "") -> None:
        """Count a skip; one that was delivered by an `owner` only once."""
        values = recordable_values(values)
        place = (values["tick"] or "", values["host"], values["reason"])
        known = part.skips.get(place, {"count": 0, "at": values["at"], "delivered": []})
        if owner not in known["delivered"]:
            count = min(known["count"] + values["count"], (1 << 53) - 1)
            newest = {"at": max(known["at"], values["at"]), "count": count}
            delivered = [*known["delivered"], *filter(None, [owner])][-8:]
            part.skips[place] = values | newest | {"delivered": delivered}
            self.oldest = min(self.oldest, newest["at"])

    # Late records

    def deliver(self, record: Row, wanted: Retention | None = None) -> None:
        bounds.check(record)
        place = (record["key"], record["shard"])
        part = self.written(*place)
        if record["kind"] == "skip":
            self._count(part, record | {"at": min(record["at"], self.now())}, record["owner"])
            return
        number, owned = record["attempt"], part.of("owner", record["owner"])
        owned = [row for row in owned if number in (None, row["owner_attempt"])]
        late = attempt.RECORDED_LATER if record.get("late") else None
        if not owned:
            ends = self._insert(part, record, late)
        else:
            row = max(owned, key=lambda each: each["owner_attempt"])
            ends = record["outcome"] != "running" and self._conclude(part, row, record, late)
        if ends and wanted:
            self._remove_a_few(place, wanted)

    def _insert(self, part: Part, record: Row, late: str | None) -> bool:
        """Add an execution that the store has forgotten, or has never had; return whether it has ended."""
        outcome, token, marks = record["outcome"], record["fencing_token"], part.marks
        now, notes = self.now(), [record["note"], late]
        if outcome == "not-started" and token is None:
            return False
        if attempt.supersedes(token, marks["fence"]):
            for each in part.running - {part.leased()}:
                self._lose(part, part.rows[each], "superseded", attempt.UNFINISHED)
        beside = bool(part.running or part.lease)
        values = {name: record[name] for name in (*_FIRED, *_ENDED, *_STAYS, "cause", "started_at")}
        if attempt.is_superseded(outcome, token, marks["fence"], beside=beside):
            values |= {"outcome": "lost", "lost_reason": "superseded"}
            notes.insert(1, attempt.UNFINISHED)
        number = max([record["attempt"], *(n + 1 for n in self._attempts(part, record["tick"]))])
        values |= {"owner_attempt": record["attempt"], "note": attempt.join(*notes)}
        self._add(part, values, number, token)
        marks["fence"] = max(marks["fence"], min(token or 0, int((now + TOKEN_AHEAD) * 1e6)))
        if outcome != "not-started":
            marks["high_water"] = self._high_water(marks, record["tick_instant"])
            start, last = min(record["started_at"], now), marks["last_start"]
            if last is None or last < start or clock.is_ahead(last, now):
                marks |= {"last_start": start, "last_execution_id": None}
                marks["last_lateness"] = record["fired_at"] % 60
        return bool(outcome != "running")

    # Retention

    def least_retention(self) -> Retention:
        """Return the retention below which no caller's counts."""
        return LEAST._replace(**self.least)

    def _remove_a_few(self, place: Place, wanted: Retention) -> None:
        """Remove what retention wants at an end: the names of one part, of all else a little."""
        executions, skips = self.expired(wanted, [place], retention.NAMES_KEPT)
        self.remove(executions[: retention.MOST_PER_FINISH])
        self.remove(skips[: retention.SKIPS_PER_FINISH])
        self.forget_old(wanted)

    def expired(
        self, wanted: Retention, of_names: Collection[Place], names_kept: int
    ) -> tuple[list[Old], list[Old]]:
        """Return the executions and the skips that may go, the oldest first."""
        executions: list[Old] = []
        skips: list[Old] = []
        kept, now = Retention(*map(max, wanted, self.least_retention())), self.now()
        for place, part in self.parts.items() if self.oldest < now - min(kept) else ():
            executions += part.old(now - kept.executions, names_kept if place in of_names else None)
            for rows in (part.skips, part.plain):
                skips += [(row["at"], rows, name) for name, row in rows.items()]
        skips = [each for each in skips if each[0] < now - kept.skips]
        return sorted(executions, key=lambda old: old[0]), sorted(skips, key=lambda old: old[0])

    @staticmethod
    def remove(found: Iterable[Old], *, dry_run: bool = False) -> int:
        """Remove records; return how many there were, each plain skip counted."""
        get = dict.get if dry_run else dict.pop
        gone = [get(rows, name) for _, rows, name in found]
        return sum(row["words"].count(" ") if "words" in row else 1 for row in gone)

    def forget_old(self, wanted: Retention) -> None:
        """Remove hosts that are gone, and lists of items that have expired; end the pauses whose time is over."""
        now, before = self.now(), self.now() - max(wanted[0], self.least_retention()[0])
        for place, stop in list(self.stops.items()):
            if stop.until is not None and stop.until <= now:
                self.end_stop(place)
        self.past = [each for each in self.past if each[2] >= now - PAUSES_KEPT]
        for part in self.parts.values():
            for name, host in list(part.hosts.items()):
                if host["seen_at"] < now - HOST_FORGOTTEN_AFTER:
                    del part.hosts[name]
        for items_of, found in list(self.lists.items()):
            if self._has_expired(*items_of, found, before):
                del self.lists[items_of]

    def _has_expired(self, key: str, tick: str, found: Row, before: float) -> bool:
        """Return whether a list of items is of no use: its executions are gone, or its load was cut off."""
        loaded_at = found["loaded_at"]
        if loaded_at is None:
            return not self.is_living(*found["loader"])
        rows = (row for part in self.of_key(key) for row in part.of("tick", tick))
        return loaded_at < min(before, self.now() - found["keep"]) and not any(
            row["outcome"] != "running"
            or row["started_at"] >= before
            or self.is_living(key, row["shard"], row["execution_id"])
            for row in rows
        )


class MemoryStore(ClaimLoop):
    """`LeaseStore` of one firing."""

    lease_clock = clock.BOOTTIME
    survives_fork = holds_connection = True

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def _call(self, op: str, deadline: float, *args: Any) -> tuple[Any, float]:
        """Return the answer to a step, and when it was sent (lease clock)."""
        sent = clock.lease_time(self.lease_clock)
        return getattr(self._memory, op)(*args), sent

    # ClaimSteps

    def look(self, firing: Firing, *, awaited: int | None, closely: bool, deadline: float) -> Row:
        host_now = clock.wall()
        found, _ = self._call("look", deadline, firing, awaited, closely)
        return found | {"host_now": host_now}

    def peek(self, firing: Firing, *, deadline: float) -> Row:
        return self.look(firing, awaited=None, closely=True, deadline=deadline)

    def grant(
        self,
        firing: Firing,
        state: State,
        grant: Grant,
        presence: Seen,
        *,
        alone: bool,
        deadline: float,
    ) -> Lease | Unconfirmed | None:
        given = (firing, state.version, grant, presence.after, alone)
        row, sent = self._call("grant", deadline, *given)
        return row and self._confirmed(facts.first_lease(firing, row, sent))

    def _confirmed(self, lease: Lease) -> Lease | Unconfirmed:
        return lease

    def expire(self, firing: Firing, state: State, note: str, *, deadline: float) -> LostRun | None:
        lost, _ = self._call("expire", deadline, firing, state.version, note)
        return lost and facts.lost_run(lost)

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:
        self._call("cut", deadline, firing.key, firing.shard)

    def regain(
        self, firing: Firing, own: Attempt, *, deadline: float
    ) -> Lease | Unconfirmed | None:
        named = (firing.key, firing.shard, own.execution_id, firing.owner)
        held, sent = self._call("regain", deadline, *named)
        return self._confirmed(facts.first_lease(firing, own._asdict(), sent)) if held else None

    @steadied
    def look_back(self, firing: Firing, since: float, *, deadline: float) -> list[Any]:
        return self._call("look_back", deadline, firing, since)[0]

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
        told = (facts.skip_values(firing, refusal), presence, plain)
        return self._call("record_skip", deadline, firing, *told)[0]

    # LeaseStore

    @steadied
    def renew(self, lease: Lease, *, deadline: float, place: bytes | None = None) -> Lease | None:
        named = (lease.key, lease.shard, lease.execution_id, lease.owner, place_text(place))
        held, sent = self._call("renew", deadline, *named)
        if held is None:
            return None
        lease = lease if place is None else lease._replace(place=place)
        request = held[0] and stored_request(*held[0])
        return lease._replace(trusted_until=trust_after(sent, lease.ttl), request=request)

    @steadied
    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        return self._call("keep", deadline, lease, ending)[0]

    @steadied
    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        answer, sent = self._call("retry", deadline, lease)
        if answer and "stop_kind" in answer:
            return stop_refusal(facts.stop_of(answer))
        return answer and facts.next_lease(lease, answer, sent)

    @steadied
    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        return self._call("finish", deadline, lease, ending, retention)[0]

    @steadied
    def deliver(self, record: Row, *, deadline: float, retention: Retention | None = None) -> None:
        self._call("deliver", deadline, record, retention)

    def close(self) -> None:
        return
