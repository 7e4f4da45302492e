"""The commands for people on Redis.

Each shard of a key has a stream with the ids of its executions. The streams of several shards are merged by id. So the
cost of a query depends on what it shows, not on the size of the log.
"""

from __future__ import annotations

import heapq
import itertools

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError, StoreRefusesError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import UNCHANGED, Execution, Released, Unblocked
from oncecron.core.model import LEAST, Retention
from oncecron.core.readable import Unreadable
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.each import redis_lists as item_lists
from oncecron.stores import schema_version
from oncecron.stores.address import command_line
from oncecron.stores.redis import (
    dead_letters,
    holding,
    key_hosts,
    look,
    notices,
    pauses,
    plain_skips,
    scripts,
    skips,
)
from oncecron.stores.redis.examine import examine
from oncecron.stores.redis.explain import ACL_RULE, misfit
from oncecron.stores.redis.people_client import PeopleClient
from oncecron.stores.redis.rows import (
    KEY_FIELDS,
    all_older,
    is_wanted,
    key_of,
    lease_of,
    oldest_start,
    order_of,
    output_of,
    shard_name,
    start_of,
    stored_execution,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.errors import StoreError
    from oncecron.core.log_rows import (
        Diagnosis,
        HistoryQuery,
        HostTicks,
        ItemQuery,
        ItemRow,
        JobKey,
        KeyHost,
        LeaseView,
        LeastRetention,
        ListView,
        Notice,
        Pause,
        Roles,
        Skip,
        SkipReason,
        Traced,
        TracedSkip,
    )
    from oncecron.core.model import Output, Request
    from oncecron.core.tick import Tick
    from oncecron.each.values import MendedState
    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.people_client import Command
    from oncecron.stores.redis.resp import Reply
    from oncecron.stores.redis.rows import StoredExecution

_PAGE = 500
_PAGE_OF_MANY = 50  # ids of each shard, when a query covers several shards
_BATCH = 1000  # executions, or skips, that one step of prune looks at
_SCANS = 100  # batches of names: a tenth of a million names, at 1.3 ms of the server's time each


class RedisInspector:
    """The people's half of the store on Redis or Valkey; see `oncecron.stores.api.Inspector`."""

    has_roles = False

    def __init__(self, target: Target, *, namespace: str) -> None:
        self._target = target
        self._namespace = namespace
        self._names = scripts.Names(namespace)
        self._pipeline = PeopleClient(target, self._names, self._refusal)
        self.unreadable = Unreadable()

    def _refusal(self, recorded: Reply) -> StoreError | None:
        """Return the error of data that do not serve this program, by the version on record."""
        layout, oldest = look.texts(recorded)
        return misfit(self._target, self._namespace, layout, oldest) if layout else None

    def history(self, query: HistoryQuery) -> Iterator[Execution]:
        """Yield executions, newest first, or oldest first after an id."""
        for traced in self.traced(query):
            yield traced.execution

    def traced(self, query: HistoryQuery) -> Iterator[Traced]:
        """Yield the executions of `history` with their unpublished details."""
        found: Iterator[StoredExecution] = (
            row for row in self._rows(query) if is_wanted(row.traced.execution, query)
        )
        if query.exhausted:
            found = dead_letters.exhausted(self._pipeline, found, self.unreadable)
        yield from (row.traced for row in itertools.islice(found, query.limit))

    def timeline(self, since: float | None) -> Iterator[Traced]:
        """Yield all executions since a time, shard by shard in the order of starts.

        That is the order of their ids, except for executions that were inserted late. Those are read first and merged.
        """
        for shard in self._shards(None):
            late = [row for row in self._rows_of(shard) if row.late]
            late.sort(key=start_of)
            others = (row for row in self._rows_of(shard) if not row.late)
            for row in heapq.merge(others, late, key=start_of):
                if since is None or start_of(row) >= since:
                    yield row.traced

    def _rows_of(self, shard: str) -> Iterator[StoredExecution]:
        """Yield the rows of one shard of a key, the oldest id first."""
        stream = self._names.of_shard("log", shard)
        ids = self._read(
            stream, self._pipeline.ask([_page(stream, "0", True, _PAGE)])[0], True, _PAGE
        )
        while page := list(itertools.islice(ids, _PAGE)):
            yield from filter(None, self._executions(page))

    def _rows(self, query: HistoryQuery) -> Iterator[StoredExecution]:
        ids = self._ids(query)
        size = min(_PAGE, query.limit or _PAGE)
        oldest = oldest_start(query)
        while page := list(itertools.islice(ids, size)):
            for row in filter(None, self._executions(page)):
                if oldest is not None and all_older(row, oldest):
                    return
                yield row

    def _ids(self, query: HistoryQuery) -> Iterator[int]:
        """Yield the ids of executions in the order of the query, from all shards that it covers."""
        shards = self._shards(query.key)
        size = min(_PAGE if len(shards) == 1 else _PAGE_OF_MANY, query.limit or _PAGE)
        forward = query.after_id is not None
        after = f"{query.after_id}-0" if forward else ""
        streams = [self._names.of_shard("log", shard) for shard in shards]
        heads = self._pipeline.ask([_page(stream, after, forward, size) for stream in streams])
        readers = [
            self._read(stream, head or [], forward, size)
            for stream, head in zip(streams, heads, strict=True)
        ]
        return heapq.merge(*readers, reverse=not forward)

    def _read(self, stream: str, entries: Any, forward: bool, size: int) -> Iterator[int]:
        while True:
            yield from _ids_of(entries)
            if len(entries) < size:
                return
            last = entries[-1][0].decode()
            [entries] = self._pipeline.ask([_page(stream, last, forward, size)])

    def newest(self, limit: int, keys: Collection[str] | None = None) -> Iterator[Execution]:
        """Yield the newest executions of many keys: two questions, which do not depend on how many keys there are."""
        shards = [shard for shard in self._shards(None) if keys is None or _key_of(shard) in keys]
        streams = [self._names.of_shard("log", shard) for shard in shards]
        pages = self._pipeline.ask([_page(stream, "", False, limit) for stream in streams])
        ids: dict[str, list[int]] = {}
        for shard, page in zip(shards, pages, strict=True):
            ids.setdefault(_key_of(shard), []).extend(_ids_of(page))
        wanted = [each for found in ids.values() for each in heapq.nlargest(limit, found)]
        for at in range(0, len(wanted), _PAGE):
            for row in filter(None, self._executions(wanted[at : at + _PAGE])):
                yield row.traced.execution.without_texts()

    def reasons(self, since: Mapping[str, Tick]) -> Iterator[SkipReason]:
        """Yield why ticks of many keys were skipped."""
        shards = [shard for shard in self._shards(None) if _key_of(shard) in since]
        yield from skips.reasons(self._pipeline, shards, since, self.unreadable)
        yield from plain_skips.reasons(self._pipeline, shards, since, self.unreadable)

    def skips(self, query: HistoryQuery) -> Iterator[Skip]:
        """Yield recorded refusals, the newest first."""
        for traced in self.traced_skips(query):
            yield traced.skip

    def traced_skips(self, query: HistoryQuery) -> Iterator[TracedSkip]:
        """Yield the skips of `skips` with their unpublished details."""
        readers: list[Iterator[TracedSkip]] = []
        for shard in self._shards(query.key):
            asked = (self._pipeline, shard, query, self.unreadable)
            readers += [skips.of_shard(*asked), plain_skips.of_shard(*asked, self._executions)]
        yield from itertools.islice(heapq.merge(*readers, key=order_of), query.limit)

    def execution(self, execution_id: int) -> Execution | None:
        """Return one execution."""
        [row] = self._executions([execution_id])
        return None if row is None else row.traced.execution

    def output(self, execution_id: int) -> Output | None:
        """Return the captured output of an execution."""
        [text] = self._pipeline.ask([("HGET", self._names.of_namespace("outputs"), execution_id)])
        if text is None:
            return None
        return self.unreadable.read(f"the output of execution {execution_id}", output_of, text)

    def leases(self) -> Sequence[LeaseView]:
        """Return every lease of this namespace."""
        shards = self._shards(None)
        names = [self._names.of_shard("lease", shard) for shard in shards]
        (now, micros), *hashes = self._pipeline.ask(
            [("TIME",), *(("HGETALL", name) for name in names)]
        )
        found = {shard: lease for shard, lease in zip(shards, hashes, strict=True) if lease}
        ids = [lease.get(b"execution_id", b"") for lease in found.values()]
        rows = self._executions(ids)
        asked_at = int(now) + int(micros) / 1e6
        leases = [
            self.unreadable.read(
                f"the lease of {shard}",
                lease_of,
                shard,
                lease,
                row and row.traced.execution,
                asked_at,
            )
            for (shard, lease), row in zip(found.items(), rows, strict=True)
        ]
        return [lease for lease in leases if lease]

    def job_keys(self) -> Sequence[JobKey]:
        """Return every shard of every key as it was last claimed."""
        shards = self._shards(None)
        names = [self._names.of_shard("key", shard) for shard in shards]
        answers = self._pipeline.ask([("HMGET", name, *KEY_FIELDS) for name in names])
        found = (
            self.unreadable.read(f"key {shard}", key_of, shard, values)
            for shard, values in zip(shards, answers, strict=True)
        )
        return sorted(filter(None, found), key=lambda key: (key.key, key.shard))

    def key_hosts(self) -> Sequence[KeyHost]:
        """Return the hosts that fire each shard of each key."""
        return key_hosts.listed(self._pipeline, self._shards(None), self.unreadable)

    def host_ticks(self) -> Sequence[HostTicks]:
        """Return less of the hosts that fire each shard of each key."""
        return key_hosts.ticks(self._pipeline, self._shards(None), self.unreadable)

    def namespaces(self) -> Iterator[str]:
        """Yield the namespaces among the first 100,000 names of this server; in a cluster, of this node."""
        pattern = scripts.Names("*").of_namespace("parts")
        cursor = 0
        for _ in range(_SCANS):
            scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", _BATCH)
            [[following, names]] = self._pipeline.ask([scan])
            for name in (name.decode(errors="replace") for name in names):
                namespace = name.partition(":")[0]
                if name == scripts.Names(namespace).of_namespace("parts"):
                    yield namespace
            cursor = int(following)
            if not cursor:
                return

    def pauses(self) -> Sequence[Pause]:
        """Return the pauses and the drained hosts."""
        return pauses.listed(self._pipeline, self.unreadable)

    def pause(
        self, key: str, *, author: str, reason: str | None, seconds: float | None
    ) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a key; see `Inspector.pause`."""
        now, before = self._change(key=key, author=author, reason=reason, seconds=seconds)
        return now, before  # type: ignore[return-value]  # there is one now

    def resume(self, key: str) -> Pause | None:
        """End the pause of a key; see `Inspector.resume`."""
        return self._change(key=key)[1]

    def drain(self, host: str, *, author: str) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a host; see `Inspector.drain`."""
        now, before = self._change(drained=host, author=author)
        return now, before  # type: ignore[return-value]  # there is one now

    def undrain(self, host: str) -> Pause | None:
        """Let the host claim again; see `Inspector.undrain`."""
        return self._change(drained=host)[1]

    def forget(self, key: str) -> bool:
        """Expect no further runs of a key; see `Inspector.forget`."""
        shards = self._shards(key)
        for shard in shards:
            self._pipeline.step("forget", [shard], {"part": shard})
        return bool(shards)

    def notices(self, channels: Collection[str]) -> Sequence[Notice]:
        """Return what these channels were notified of."""
        return notices.listed(self._pipeline, channels, self.unreadable)

    def put_notice(self, notice: Notice) -> bool:
        """Write what a channel was notified of; see `Inspector.put_notice`."""
        return notices.put(self._pipeline, notice)

    def other_notices(self, channels: Collection[str], *, remove: bool = False) -> int:
        """Return how many other channels there are; see `Inspector.other_notices`."""
        return notices.others(self._pipeline, channels, remove=remove)

    def forget_host(self, host: str) -> bool:
        """Expect no further firings of a host; see `Inspector.forget_host`."""
        return key_hosts.forget(self._pipeline, self._shards(None), host)

    def _change(self, **what: str | float | None) -> tuple[Pause | None, Pause | None]:
        return pauses.change(self._pipeline, what, self.unreadable)

    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        """Send a request to the holder; see `Inspector.request`."""
        name = scripts.shard_of(key, shard)
        values = {"part": name, "execution_id": execution_id, **request._asdict()}
        return bool(self._pipeline.step("request", [name], values))

    def release(
        self,
        key: str,
        shard: int,
        execution_id: int | None,
        *,
        author: str,
        force: bool,  # noqa: ARG002 - no lock hangs on a session
    ) -> Released:
        """Free a shard of a key; see `Inspector.release`."""
        name = scripts.shard_of(key, shard)
        values = {"part": name, "execution_id": execution_id, "author": author}
        state, ends_in = self._pipeline.confirmed_step("release", [name], values)
        return Released(state.decode(), ends_in=float(ends_in))

    def least_retention(self) -> Retention:
        """Return the retention below which no caller's counts."""
        fields = [f"least_{name}" for name in LEAST._fields]
        [found] = self._pipeline.ask([("HMGET", self._names.of_namespace("namespace"), *fields)])

        def retention() -> Retention:
            known = zip(found, LEAST, strict=True)
            return Retention(*(default if text is None else float(text) for text, default in known))

        return self.unreadable.read("the least retention", retention) or LEAST

    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
        """Let marks of a wrong clock count no further than now; see `Inspector.unblock`."""
        found = []
        for name in self._shards(key):
            number = int(name.rpartition("#")[2])
            if shard is None or number == shard:
                values: dict[str, str | float] = {"part": name, "max_skew": MAX_CLOCK_SKEW}
                marks = self._pipeline.confirmed_step("unblock", [name], values)
                if any(marks):
                    found.append(
                        Unblocked(number, *(float(mark) if mark else None for mark in marks))
                    )
        return sorted(found)

    def prune(self, retention: Retention, *, names_kept: int = 1000) -> tuple[int, int]:
        """Remove expired records; return how many executions and how many skips were removed."""
        executions = skips = 0
        for shard in self._shards(None):
            values: holding.Values = {
                "part": shard,
                **holding.of_retention(retention, self._target.keep),
                "most": _BATCH,
                "names": names_kept,
            }
            more = 1
            while more:
                step = self._pipeline.step("prune", [shard], values)
                executions, skips, more = executions + step[0], skips + step[1], step[2]
        kept = holding.of_retention(retention, self._target.keep)
        [lists] = self._pipeline.ask([("ZRANGE", self._names.of_namespace("lists"), 0, -1)])
        for member in lists:
            while item_lists.expire(self._pipeline, member, kept) > 1:
                pass
        return executions, skips

    def item_lists(self, key: str | None = None) -> list[ListView]:
        """Return the lists of items with their counts; see `Inspector.item_lists`."""
        return item_lists.listed(self._pipeline, key, self.unreadable)

    def items(self, query: ItemQuery) -> Iterator[ItemRow]:
        """Yield the items of one list; see `Inspector.items`."""
        yield from item_lists.items(self._pipeline, query, self.unreadable)

    def mend_items(self, query: ItemQuery, state: MendedState, *, author: str) -> int:
        """Queue items again, or mark them as done; see `Inspector.mend_items`."""
        return item_lists.mend(self._pipeline, query, state, author)

    def initialise(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Record the version of the data, or upgrade them, and set what is given; return a sentence about it."""
        if any(roles):
            raise ConfigurationError(f"Redis has no roles; limit the user by an ACL: {ACL_RULE}")
        found = self._upgrade()
        [info] = self._pipeline.ask([("INFO", "server")])
        version = info.get("valkey_version") or info.get("redis_version")
        name = self._names.of_namespace("namespace")
        given = least.given().items()
        self._pipeline.ask([("HSET", name, f"least_{field}", seconds) for field, seconds in given])
        where = f"Redis {self._target.shown} (version {version})"
        if found != scripts.LAYOUT:
            return f"{where}: upgraded the data of {self._namespace} from version {found} to {scripts.LAYOUT}"
        return f"{where} needs no preparation"

    def _upgrade(self) -> int:
        """Bring the data to the version of this program, whole or not at all; return the version that they had."""
        where = f"Redis {self._target.shown}"
        self._pipeline.close()
        self._pipeline = PeopleClient(self._target, self._names)
        name = self._names.of_namespace("namespace")
        [(layout, oldest)] = self._pipeline.ask([("HMGET", name, "layout", "oldest")])
        if layout:
            recorded = schema_version.Recorded(int(layout), oldest and int(oldest))
            schema_version.missing(where, recorded, scripts.LAYOUT, scripts.STEPS)
        answer = self._pipeline.step("upgrade", [], {})
        if answer == b"rights":
            raise StoreRefusesError(
                f"{where}: an upgrade also needs the right to RESTORE; run "
                f"{command_line('init', self._target.shown, self._namespace)} as the server's administrator"
            )
        return int(answer)

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Raise `ConfigurationError`: there is no SQL."""
        del roles, least
        raise ConfigurationError(
            f"a Redis store has no SQL; what its user needs is this ACL: {ACL_RULE}"
        )

    def examine(self) -> Iterator[Diagnosis]:
        """Yield what the server says about itself; see `Inspector.examine`."""
        before = clock.wall()
        [info, (seconds, micros)] = self._pipeline.ask([("INFO",), ("TIME",)])
        after = clock.wall()
        yield from examine(self._target, info, int(seconds) + int(micros) / 1e6, before, after)

    def close(self) -> None:
        """Close the connection."""
        self._pipeline.close()

    def _shards(self, key: str | None) -> list[str]:
        """Return the shards of a key, or of all keys, as KEY#SHARD."""
        name = self._names.of_namespace("parts")
        [shards] = self._pipeline.ask([("ZRANGE", name, 0, -1)])
        known = (
            self.unreadable.read(f"the shard {shard!r}", shard_name, shard) for shard in shards
        )
        return sorted(shard.name for shard in known if shard and (key is None or shard.key == key))

    def _executions(self, ids: Sequence[int | bytes]) -> list[StoredExecution | None]:
        """Return the executions, None for those that are not there or cannot be read."""
        if not ids:
            return []
        name = self._names.of_namespace("executions")
        [texts] = self._pipeline.ask([("HMGET", name, *ids)])
        return [
            None if text is None else self._read_execution(text, execution_id)
            for text, execution_id in zip(texts, ids, strict=True)
        ]

    def _read_execution(self, text: bytes, execution_id: int | bytes) -> StoredExecution | None:
        number = execution_id if isinstance(execution_id, int) else execution_id.decode("latin-1")
        return self.unreadable.read(f"execution {number}", stored_execution, text, number)


def _key_of(shard: str) -> str:
    return shard.rpartition("#")[0]


def _ids_of(entries: Iterable[Any]) -> Iterator[int]:
    """Yield the ids of executions in entries of a stream."""
    for entry_id, _ in entries:
        yield int(entry_id.partition(b"-")[0])


def _page(stream: str, after: str, forward: bool, size: int) -> Command:
    """Return the command for the page after the entry `after`, or for the newest page."""
    if forward:
        return ("XRANGE", stream, f"({after}", "+", "COUNT", size)
    return ("XREVRANGE", stream, f"({after}" if after else "+", "-", "COUNT", size)
