"""What people ask the store in memory, and change there: `Views`. The Reader applies the filters."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from memory_store import is_named

from oncecron.core import clock, log_rows
from oncecron.core.diagnosis import Diagnosis
from oncecron.core.errors import ConfigurationError
from oncecron.core.log_rows import Execution, LeaseView, Pause, Released, Skip, Unblocked
from oncecron.core.model import LEAST, owner_digest, recordable, recordable_values
from oncecron.core.progress import no_progress
from oncecron.core.timing import HEARTBEATS_PER_TTL
from oncecron.stores.reader import PackedRuns, PackedSkips, Reader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from memory_store import Memory, Row

    from oncecron.core.log_rows import LeastRetention, Roles
    from oncecron.core.model import Request, Retention
    from oncecron.core.progress import Progress

    Keys = Collection[str] | None
    """None: all."""

_EXPECTED = ("schedule", "zone", "expected_shards", "starting_deadline", "expected_since")
_execution = itemgetter(*Execution._fields, "tick_instant", "fired_at", "lost_at")
_marks = itemgetter(*_EXPECTED, "high_water", "last_start", "forgotten_at", "forgotten_by")
_lease = itemgetter(*LeaseView._fields[: LeaseView._fields.index("asked_at") + 1])
_holder = itemgetter("execution_id", "host", "pid", "outcome")
_reason = itemgetter("key", "tick", "host", "reason", "shard")
_of_part = itemgetter("key", "shard", "started_at", "execution_id")


def _published(row: Row) -> Row:
    return _execution(row | {"owner": owner_digest(row["owner"])})


class MemoryReader(Reader):
    """The people's half of the store in memory."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory

    def rows(self, view: str, **bounds: Any) -> Iterator[Any]:
        return iter([*getattr(self, f"_view_{view.rpartition('/')[2]}")(**bounds)])

    def _all(self, keys: Keys = None) -> list[Row]:
        parts = self._memory.parts.items()
        found = (part.rows.values() for (key, _), part in parts if keys is None or key in keys)
        return sorted(chain.from_iterable(found), key=itemgetter("execution_id"))

    def _view_executions(
        self, key: str | None, after_id: int | None, exhausted: bool, **_: Any
    ) -> Iterable[Any]:
        rows = [row for row in self._all(key and [key]) if not exhausted or self._is_dead(row)]
        newer = [row for row in rows if after_id is None or row["execution_id"] > after_id]
        return map(_published, newer[::-1] if after_id is None else newer)

    def _is_dead(self, row: Row) -> bool:
        part = self._memory.parts[row["key"], row["shard"]]
        is_over = row["execution_id"] != part.leased()
        if not row["retries"] or row["outcome"] not in ("failed", "timed-out", "lost"):
            return False
        name, order = ("owner", "owner_attempt") if row["tick"] is None else ("tick", "attempt")
        started = [each for each in part.of(name, row[name]) if each["outcome"] != "not-started"]
        return is_over and max(each[order] for each in started) == row[order]

    def _view_execution(self, execution_id: int) -> Iterable[Any]:
        return (_published(row) for row in self._all() if row["execution_id"] == execution_id)

    def _view_newest(self, limit: int, keys: Keys) -> Iterable[Any]:
        for key in {key for key, _ in self._memory.parts if keys is None or key in keys}:
            yield from map(_published, self._all([key])[-limit:])

    def _view_timeline(self, keys: Keys, **_: Any) -> Iterable[Any]:
        return map(_published, sorted(self._all(keys), key=_of_part))

    def _view_runs(self, since: float, keys: Keys) -> Iterable[Any]:
        rows = [row for row in self._all(keys) if row["started_at"] >= since]
        yield from (_published(row) for row in rows if not self._is_packed(row))
        for row in filter(self._is_packed, rows):
            at = row["started_at"] if row["tick_instant"] is None else row["tick_instant"]
            about = (row["key"], row["host"], row["outcome"], row["tick"] is not None)
            yield PackedRuns(*about, str(int(at // 60)))

    @staticmethod
    def _is_packed(row: Row) -> bool:
        is_plain = (row["attempt"], row["shards"], is_named(row)) == (1, 1, False)
        return is_plain and row["outcome"] in log_rows.PACKED_OUTCOMES

    def _view_output(self, execution_id: int) -> Iterable[Any]:
        found = (row for row in self._all() if row["execution_id"] == execution_id)
        return ((row["output"], row["output_cut"]) for row in found if row["output"] is not None)

    def _view_skips(self, key: str | None, **_: Any) -> Iterable[Any]:
        found = sorted(self._skips(key and [key]), key=lambda each: -each[0])
        skip = itemgetter(*Skip._fields)
        return (row if isinstance(row, PackedSkips) else (*skip(row), None) for _, row in found)

    def _view_reasons(self, ticks: dict[str, str], **_: Any) -> Iterable[Any]:
        for _at, row in self._skips(ticks):
            if isinstance(row, PackedSkips) or row["tick"]:
                yield row if isinstance(row, PackedSkips) else _reason(row)

    def _skips(self, keys: Keys) -> Iterable[tuple[float, Any]]:
        for (key, shard), part in self._memory.parts.items():
            if keys is None or key in keys:
                yield from ((row["at"], row) for row in part.skips.values())
                for (window, host), kept in part.plain.items():
                    yield kept["at"], PackedSkips(key, shard, host, window, kept["words"])

    def _view_holders(self, ids: list[int]) -> Iterable[Any]:
        return (_holder(row) for row in self._all() if row["execution_id"] in ids)

    def _view_keys(self) -> Iterable[Any]:
        return ((*place, *_marks(part.marks)) for place, part in self._memory.parts.items())

    def _view_key_hosts(self) -> Iterable[Any]:
        for place, part in self._memory.parts.items():
            for host, row in part.hosts.items():
                yield *place, host, row["seen_at"], row["presence"]

    def _view_leases(self) -> Iterable[Any]:
        now = self._memory.now()
        known = {"backend_pid": None, "client_address": None, "asked_at": now}
        for part in self._memory.parts.values():
            if lease := part.lease:
                is_silent = now - lease["heartbeat_at"] > 2 * lease["ttl"] / HEARTBEATS_PER_TTL
                known["state"] = "stale" if is_silent or lease["expires_at"] <= now else "held"
                yield _lease(part.rows[part.leased()] | lease | known)

    def _view_pauses(self) -> list[Pause]:
        stops, now = self._memory.stops.values(), self._memory.now()
        return [each for each in stops if each.until is None or each.until > now]

    def _view_notices(self, channels: list[str], **_: Any) -> Iterable[Any]:
        return ((name, *each) for name, each in self._memory.notices.items() if name in channels)

    def _view_other_notices(self, channels: list[str]) -> Iterable[Any]:
        return [(len({*self._memory.notices} - {*channels}),)]

    def _view_least_retention(self) -> Iterable[Any]:
        return [tuple(map(self._memory.least.get, LEAST._fields))]

    def _view_namespaces(self) -> Iterable[Any]:
        return ()

    def _view_item_lists(self, **_: Any) -> Iterable[Any]:
        import memory_items

        return memory_items.list_rows(self._memory)

    def _view_items(
        self, key: str, tick: str, item_ids: list[str] | None, **_: Any
    ) -> Iterable[Any]:
        import memory_items

        return memory_items.item_rows(self._memory, key, tick, item_ids)

    # What people change

    def stop_starts(
        self,
        key: str | None,
        host: str | None,
        author: str | None,
        reason: str | None = None,
        seconds: float | None = None,
    ) -> tuple[Pause | None, Pause | None]:
        if author is None:
            return None, self._replace((key, host), None)
        named = recordable_values({"key": key, "host": host, "author": author, "reason": reason})
        since = self._memory.now()
        stop = Pause(**named, since=since, until=None if seconds is None else since + seconds)
        return stop, self._replace((key, host), stop)

    def _replace(self, place: tuple[str | None, str | None], stop: Pause | None) -> Pause | None:
        before = {each[:2]: each for each in self._view_pauses()}.get(place)
        self._memory.end_stop(place)
        self._memory.stops |= {place: stop} if stop else {}
        self._memory.versions[log_rows.ALL_KEYS] += 1
        return before

    def forget(self, key: str, author: str) -> bool:
        forgotten = {"forgotten_at": self._memory.now(), "forgotten_by": author}
        for part in self._memory.of_key(key):
            part.marks |= dict.fromkeys(_EXPECTED) | forgotten
        return bool(self._memory.of_key(key))

    def forget_host(self, host: str) -> bool:
        gone = [part.hosts.pop(host, None) for part in self._memory.parts.values()]
        return any(gone)

    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        part, author = self._memory.known(key, shard), recordable(request.author)
        if part.leased() != execution_id:
            return False
        self._memory.written(key, shard)
        asked = {"request": request._replace(author=author), "requested_by": author}
        part.lease |= asked | {"request_acknowledged_at": None}
        part.put(part.rows[execution_id], request=request.kind, requested_by=author)
        return True

    def release(
        self, key: str, shard: int, execution_id: int | None, *, author: str, force: bool
    ) -> Released:
        if (key, shard) not in self._memory.parts:
            return Released("free")
        self._memory.cut(key, shard)
        part = self._memory.written(key, shard)
        if part.lease and part.leased() != execution_id:
            return Released("other")
        ends_in = part.lease["expires_at"] - self._memory.now() if part.lease else 0.0
        if ends_in > 0:
            return Released("alive", ends_in)
        self._memory.take_away(part, "released", f"released by {author}")
        return Released("free")

    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
        found, now = [], self._memory.now()
        for number in sorted(self._memory.shards.get(key, ())):
            if shard in (None, number):
                marks = self._memory.written(key, number).marks
                names = ("high_water", "last_start", "previous_start")
                wrong = {
                    name: marks[name] for name in names if clock.is_ahead(marks[name] or 0, now)
                }
                marks |= dict.fromkeys(wrong, now)
                both = [wrong.get(name) for name in names[:2]]
                found += [Unblocked(number, *both)] if any(both) else []
        return found

    def change(self, name: str, by: str, **values: Any) -> Any:
        return getattr(self, f"_{name.rpartition('/')[2]}")(**values)

    def _put_notice(self, channel: str, version: int, document: str, most: int) -> bool | None:
        notices = self._memory.notices
        if not version and len({*notices} - {channel}) >= most:
            return None
        if version != notices.get(channel, (0,))[0]:
            return False
        notices[channel] = (version + 1, document)
        return True

    def _remove_other_notices(self, channels: list[str]) -> int:
        others = {*self._memory.notices} - {*channels}
        for each in others:
            del self._memory.notices[each]
        return len(others)

    def _mend_items(self, **values: Any) -> int:
        import memory_items

        return memory_items.mend_items(self._memory, **values)

    def pruned(
        self, retention: Retention, names_kept: int, *, dry_run: bool
    ) -> Iterator[tuple[int, int]]:
        memory = self._memory
        found = memory.expired(retention, memory.parts, names_kept)
        executions, skips = (memory.remove(each, dry_run=dry_run) for each in found)
        if not dry_run:
            memory.forget_old(retention)
        yield executions, skips

    def initialise(
        self, roles: Roles, least: LeastRetention = log_rows.UNCHANGED, *, progress: Progress = no_progress
    ) -> str:  # fmt: skip
        self._memory.least |= least.given()
        return "the store in memory needs no schema"

    def schema_sql(self, roles: Roles, least: LeastRetention = log_rows.UNCHANGED) -> str:
        raise ConfigurationError("the store in memory has no SQL")

    def versions(self) -> tuple[int, str]:
        return 1, "memory"

    def examine(self) -> Iterator[Diagnosis]:
        return iter([Diagnosis("ok", "server", "in memory")])

    def close(self) -> None:
        return
