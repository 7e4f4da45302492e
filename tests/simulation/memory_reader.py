"""What people ask the store in memory, and change there: `Views`. The Reader applies the filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import memory_items

from oncecron.core import clock
from oncecron.core.doctor import Diagnosis
from oncecron.core.errors import ConfigurationError
from oncecron.core.log_rows import (
    PACKED_OUTCOMES,
    UNCHANGED,
    Execution,
    LeaseView,
    LeastRetention,
    Notice,
    Pause,
    Released,
    Skip,
    Unblocked,
    owner_digest,
)
from oncecron.core.model import LEAST, MOST_CHANNELS, Retention, recordable, recordable_values
from oncecron.core.progress import no_progress
from oncecron.core.timing import HEARTBEATS_PER_TTL
from oncecron.core.units import HOUR
from oncecron.stores.reader import PackedRuns, PackedSkips, Reader
from oncecron.stores.sqlite.retention import NAMES_KEPT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from memory_store import Memory, Row

    from oncecron.core.log_rows import Mending, NewPause, Roles
    from oncecron.core.model import Request
    from oncecron.core.progress import Progress

_EXECUTION = (*Execution._fields, "tick_instant", "fired_at", "lost_at")
_KEY = (
    *("schedule", "zone", "expected_shards", "starting_deadline", "expected_since"),
    *("high_water", "last_start", "forgotten_at", "forgotten_by"),
)
_FIRED = ("seen_at", "version", "clock_ahead", "ticks", "ticks_at", "schedule", "zone", "command",
          "wins", "skips", "twice", "passed", "utc_offset")  # fmt: skip
_FIRED_SHORT = ("seen_at", "clock_ahead", "ticks", "ticks_at", "twice", "utc_offset")


def _columns(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _published(row: Row) -> tuple[Any, ...]:
    return _columns(row | {"owner": owner_digest(row["owner"])}, _EXECUTION)


class MemoryReader(Reader):
    """The people's half of the store in memory."""

    has_roles = False

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory

    # Views

    def rows(self, view: str, **bounds: Any) -> Iterator[Any]:
        with self._memory.lock:
            found = list(getattr(self, f"_view_{view}")(**bounds))
        yield from found

    def _all(self, keys: Collection[str] | None = None) -> list[Row]:
        """Return the executions, of all keys or of some, by id."""
        parts = self._memory.parts.items()
        found = [
            row
            for (key, _), part in parts
            if keys is None or key in keys
            for row in part.rows.values()
        ]
        return sorted(found, key=lambda row: row["execution_id"])

    def _view_executions(self, **bounds: Any) -> Iterator[Any]:
        key, after = bounds["key"], bounds["after_id"]
        rows = self._all(None if key is None else [key])
        rows = [row for row in rows if not bounds["exhausted"] or self._is_dead(row)]
        newer = [row for row in rows if after is None or row["execution_id"] > after]
        return map(_published, newer[::-1] if after is None else newer)

    def _is_dead(self, row: Row) -> bool:
        """Return whether an execution failed for good."""
        part = self._memory.parts[row["key"], row["shard"]]
        is_leased = part.lease and part.lease["execution_id"] == row["execution_id"]
        if not row["retries"] or row["outcome"] not in ("failed", "timed-out", "lost") or is_leased:
            return False
        name, order = ("owner", "owner_attempt") if row["tick"] is None else ("tick", "attempt")
        started = [each for each in part.of(name, row[name]) if each["outcome"] != "not-started"]
        return max(each[order] for each in started) == row[order]

    def _view_execution(self, execution_id: int) -> Iterator[Any]:
        return (_published(row) for row in self._all() if row["execution_id"] == execution_id)

    def _view_newest(self, limit: int, keys: Collection[str] | None) -> Iterator[Any]:
        for key in {key for key, _ in self._memory.parts if keys is None or key in keys}:
            yield from map(_published, self._all([key])[-limit:])

    def _view_timeline(self, since: float | None, keys: Collection[str] | None) -> Iterator[Any]:
        order = ("key", "shard", "started_at", "execution_id")
        return map(_published, sorted(self._all(keys), key=lambda row: _columns(row, order)))

    def _view_runs(self, since: float, keys: Collection[str] | None) -> Iterator[Any]:
        packed = []
        for row in self._all(keys):
            is_named = row["tick"] is not None and row["tick_instant"] is None
            is_first = (row["attempt"], row["shards"], is_named) == (1, 1, False)
            if row["started_at"] < since:
                continue
            if is_first and row["outcome"] in PACKED_OUTCOMES:
                at = row["started_at"] if row["tick_instant"] is None else row["tick_instant"]
                named = _columns(row, ("key", "host", "outcome"))
                packed.append(PackedRuns(*named, row["tick"] is not None, str(int(at // 60))))
            else:
                yield _published(row)
        yield from packed

    def _view_output(self, execution_id: int) -> Iterator[Any]:
        found = (row for row in self._all() if row["execution_id"] == execution_id)
        return ((row["output"], row["output_cut"]) for row in found if row["output"] is not None)

    def _skip_rows(self, keys: Collection[str] | None) -> Iterator[tuple[float, Row | PackedSkips]]:
        for (key, shard), part in self._memory.parts.items():
            if keys is None or key in keys:
                yield from ((row["at"], row) for row in part.skips.values())
                for (window, host), kept in part.plain.items():
                    yield kept["at"], PackedSkips(key, shard, host, window, kept["words"])

    def _view_skips(self, key: str | None, **_: Any) -> Iterator[Any]:
        found = sorted(self._skip_rows(key and [key]), key=lambda each: -each[0])
        for _at, row in found:
            is_packed = isinstance(row, PackedSkips)
            yield row if is_packed else (*_columns(row, Skip._fields), None)

    def _view_reasons(self, ticks: dict[str, str], **_: Any) -> Iterator[Any]:
        for _at, row in self._skip_rows(ticks):
            if isinstance(row, PackedSkips):
                yield row
            elif row["tick"]:
                yield _columns(row, ("key", "tick", "host", "reason", "shard"))

    def _view_holders(self, ids: list[int]) -> Iterator[Any]:
        wanted = (row for row in self._all() if row["execution_id"] in ids)
        return (_columns(row, ("execution_id", "host", "pid", "outcome")) for row in wanted)

    def _view_keys(self) -> Iterator[Any]:
        for place, part in self._memory.parts.items():
            yield *place, *_columns(part.marks, _KEY)

    def _host_rows(self) -> Iterator[tuple[str, int, str, Row]]:
        hour = int(self._memory.now() // HOUR)
        for place, part in self._memory.parts.items():
            for host, row in part.hosts.items():
                yield *place, host, row | {"passed": hour - row["hour"]}

    def _view_key_hosts(self) -> Iterator[Any]:
        for key, shard, host, row in self._host_rows():
            yield key, shard, host, *_columns(row, _FIRED)

    def _view_host_ticks(self) -> Iterator[Any]:
        for key, _, host, row in self._host_rows():
            yield key, host, *_columns(row, _FIRED_SHORT)

    def _view_leases(self) -> Iterator[Any]:
        now = self._memory.now()
        for part in self._memory.parts.values():
            if lease := part.lease:
                row = part.rows[lease["execution_id"]]
                silent = now - lease["heartbeat_at"] > 2 * lease["ttl"] / HEARTBEATS_PER_TTL
                known = {"state": "stale" if silent or lease["expires_at"] <= now else "held"}
                known |= {"backend_pid": None, "client_address": None, "asked_at": now}
                fields = LeaseView._fields[: LeaseView._fields.index("asked_at") + 1]
                yield _columns(row | lease | known, fields)

    def _view_pauses(self) -> list[Pause]:
        now = self._memory.now()
        return [
            each for each in self._memory.stops.values() if each.until is None or each.until > now
        ]

    def _view_notices(self, channels: list[str]) -> list[Notice]:
        return [each for each in self._memory.notices.values() if each.channel in channels]

    def _view_least_retention(self) -> list[tuple[float | None, ...]]:
        return [tuple(self._memory.least.get(name) for name in LEAST._fields)]

    def _view_namespaces(self) -> list[Any]:
        return []

    def _view_item_lists(self, key: str | None) -> Iterator[Any]:
        return memory_items.list_rows(self._memory)

    def _view_items(
        self, key: str, tick: str, item_ids: list[str] | None, **_: Any
    ) -> Iterator[Any]:
        return memory_items.item_rows(self._memory, (key, tick), item_ids)

    # What people change

    def stop_starts(self, wanted: NewPause) -> tuple[Pause, Pause | None]:
        with self._memory.lock:
            since = self._memory.now()
            until = None if wanted.seconds is None else since + wanted.seconds
            named = recordable_values(wanted._asdict())
            del named["seconds"]
            stop = Pause(**named, since=since, until=until)
            return stop, self._replace((wanted.key, wanted.host), stop)

    def allow_starts(self, *, key: str | None, host: str | None) -> Pause | None:
        with self._memory.lock:
            return self._replace((key, host), None)

    def _replace(self, place: tuple[str | None, str | None], stop: Pause | None) -> Pause | None:
        before = next((each for each in self._view_pauses() if each[:2] == place), None)
        self._memory.stops.pop(place, None)
        if stop:
            self._memory.stops[place] = stop
        self._memory.stops_changed()
        return before

    def forget(self, key: str, author: str) -> bool:
        with self._memory.lock:
            parts = self._memory.of_key(key)
            for part in parts:
                part.marks |= dict.fromkeys(_KEY[:5])
                part.marks |= {"forgotten_at": self._memory.now(), "forgotten_by": author}
            return bool(parts)

    def forget_host(self, host: str) -> bool:
        with self._memory.lock:
            gone = [part.hosts.pop(host, None) for part in self._memory.parts.values()]
            return any(gone)

    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        with self._memory.lock:
            part = self._memory.known((key, shard))
            if not part.lease or part.lease["execution_id"] != execution_id:
                return False
            author = recordable(request.author)
            asked = {"request": request._replace(author=author), "request_acknowledged_at": None}
            part.lease |= asked | {"requested_by": author}
            part.put(part.rows[execution_id], request=request.kind, requested_by=author)
            return True

    def release(
        self, key: str, shard: int, execution_id: int | None, *, author: str, force: bool
    ) -> Released:
        with self._memory.lock:
            if shard not in self._memory.shards.get(key, ()):
                return Released("free")
            self._memory.cut(key, shard)
            part = self._memory.written((key, shard))
            if part.lease:
                if part.lease["execution_id"] != execution_id:
                    return Released("other")
                if (ends_in := part.lease["expires_at"] - self._memory.now()) > 0:
                    return Released("alive", ends_in)
            self._memory.take_away(part, "released", f"released by {author}")
            return Released("free")

    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
        with self._memory.lock:
            found, now = [], self._memory.now()
            for number in sorted(self._memory.shards.get(key, ())):
                if shard in (None, number):
                    marks, names = (
                        self._memory.written((key, number)).marks,
                        ("high_water", "last_start"),
                    )
                    wrong = [_if_wrong(marks[name], now) for name in names]
                    for name in (*names, "previous_start"):
                        marks[name] = marks[name] if _if_wrong(marks[name], now) is None else now
                    found += [Unblocked(number, *wrong)] if any(wrong) else []
            return found

    def write_notice(self, channel: str, version: int, document: str) -> bool | None:
        notices = self._memory.notices
        with self._memory.lock:
            if not version and len({*notices} - {channel}) >= MOST_CHANNELS:
                return None
            known = notices.get(channel)
            if version != (known.version if known else 0):
                return False
            notices[channel] = Notice(channel, version + 1, document)
            return True

    def other_notices(self, channels: Collection[str], *, remove: bool = False) -> int:
        with self._memory.lock:
            others = [each for each in self._memory.notices if each not in channels]
            for each in others if remove else ():
                del self._memory.notices[each]
            return len(others)

    def mend_items(self, mending: Mending) -> int:
        with self._memory.lock:
            return memory_items.mend(self._memory, mending)

    def prune(
        self,
        retention: Retention,
        *,
        names_kept: int = NAMES_KEPT,
        dry_run: bool = False,
        progress: Progress = no_progress,
    ) -> tuple[int, int]:
        with self._memory.lock:
            memory, now = self._memory, self._memory.now()
            kept = Retention(*map(max, retention, memory.least_retention()))
            before = now - kept.executions
            executions = memory.old_executions(before, list(memory.parts), names_kept)
            skips = memory.old_skips(now - kept.skips)
            removed = [memory.remove(each, dry_run=dry_run) for each in (executions, skips)]
            if not dry_run:
                memory.forget_old(before)
            return removed[0], removed[1]

    def initialise(
        self, roles: Roles, least: LeastRetention = UNCHANGED, *, progress: Progress = no_progress
    ) -> str:
        self._memory.least |= least.given()
        return "the store in memory needs no schema"

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        raise ConfigurationError("the store in memory has no SQL")

    def versions(self) -> tuple[int, str]:
        return 1, "memory"

    def examine(self) -> Iterator[Diagnosis]:
        yield Diagnosis("ok", "server", "in memory")

    def close(self) -> None:
        return


def _if_wrong(at: float | None, now: float) -> float | None:
    return at if at is not None and clock.is_ahead(at, now) else None
