"""What people read of Redis: plain rows (`oncecron.stores.api.Views`) of JSON, hashes and sets.

Each shard of a key has a stream with the ids of its executions. The streams of several shards are merged by id. So the
cost of a query depends on what it shows, not on the size of the log. No script runs, which a reader may not.
"""

from __future__ import annotations

import heapq
from itertools import count, islice

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import Execution, HistoryQuery
from oncecron.core.model import LEAST
from oncecron.core.tick import instant_of
from oncecron.core.timing import MAX_CLOCK_SKEW, PLAIN_SKIP_EARLY
from oncecron.stores.reader import PackedRuns, Reader, answered, brought, is_wanted
from oncecron.stores.redis import rows, scripts
from oncecron.stores.redis.explain import misfit
from oncecron.stores.redis.people_client import PeopleClient

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.errors import StoreError
    from oncecron.stores.api import Row
    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.people_client import Command
    from oncecron.stores.redis.rows import Shard, StoredExecution

    Columns = tuple[Any, ...]

_PAGE = 500
_RUNS_AT_ONCE = 1000  # read together, in 2 ms of the server's time
_LOOKS = 64  # at once, at executions whose starts tell where those since a time begin
_TURNS = 10  # four of them are enough for ten million, unless most are gone
_PAGE_OF_MANY = 50  # ids of each shard, when a query covers several shards
_SHARDS_AT_ONCE = 10
_HOSTS_OF = 50  # shards; each host has a text of 400 bytes
_FIRST_OF_MANY = 10  # skips of each shard, likewise
_CANDIDATES = 100  # failed executions that are looked at together
_NAMES = 1000  # of a server that are looked at together, in 1.3 ms of its time
_SCANS = 100


class RedisViews(Reader):
    """Gives the rows of each view, by the method that has its name."""

    def __init__(self, target: Target, *, namespace: str) -> None:
        super().__init__()
        self.keeps = target.keep
        self._target = target
        self._namespace = namespace
        self._names = scripts.Names(namespace)
        self._client = PeopleClient(target, self._names, self._refusal)

    def _refusal(self, recorded: Any) -> StoreError | None:
        layout, oldest = scripts.texts(recorded)
        return misfit(self._target, self._namespace, layout, oldest) if layout else None

    @answered
    def rows(self, view: str, **bounds: Any) -> Iterator[Row]:
        found: Iterable[Row | None]
        if "/" in view:
            found = brought(view, "redis")(self._client, self, **bounds)
        else:
            found = getattr(self, f"_view_{view}")(**bounds)
        return (row for row in found if row is not None)

    def close(self) -> None:
        self._client.close()

    def _ask(self, *words: Any) -> Any:
        return self._client.ask([words])[0]

    def _ask_shards(self, verb: str, name: str, shards: Iterable[Shard], *words: Any) -> list[Any]:
        """Ask the same of each shard, in one round trip."""
        names = [self._names.of_shard(name, shard.name) for shard in shards]
        return self._client.ask([(verb, each, *words) for each in names])

    def _now(self) -> float:
        seconds, microseconds = self._ask("TIME")
        return int(seconds) + int(microseconds) / 1e6

    def _shards(self, keys: Collection[str] | None, without: str | None = None) -> list[Shard]:
        members = self._ask("ZRANGE", self._names.of_namespace("parts"), 0, -1)
        known = (self.readable("the shard {0!r}", rows.shard_named, member) for member in members)
        wanted = (each for each in known if each and (keys is None or each.key in keys))
        return sorted(each for each in wanted if not (without and each.key.startswith(without)))

    # Executions

    def _view_executions(self, **bounds: Any) -> Iterator[Row]:
        query = HistoryQuery(**bounds)
        found = self._history(query)
        if query.exhausted:
            found = self._exhausted(
                row for row in found if query.key in (None, row.shard_name.rpartition("#")[0])
            )
        return (row.columns for row in found)

    def _history(self, query: HistoryQuery) -> Iterator[StoredExecution]:
        ids = self._ids(query)
        oldest = _oldest_start(query)
        while page := list(islice(ids, min(_PAGE, query.limit or _PAGE))):
            for row in self._stored(page):
                # A late row started long before it got its id, so it proves nothing about the others.
                if oldest is not None and not row.late and row.started_at < oldest:
                    return
                yield row

    def _ids(self, query: HistoryQuery) -> Iterator[int]:
        if query.exhausted:
            return self._given_up(query.after_id)
        shards = self._shards(query.key and [query.key], query.without)
        size = min(_PAGE if len(shards) == 1 else _PAGE_OF_MANY, query.limit or _PAGE)
        forward = query.after_id is not None
        return self._merged(shards, f"{query.after_id}-0" if forward else "", forward, size)

    def _given_up(self, after_id: int | None) -> Iterator[int]:
        name = self._names.of_namespace("given_up")
        forward, last = after_id is not None, after_id
        while True:
            end = "+inf" if last is None else f"({last}"
            span = ("ZRANGEBYSCORE", end, "+inf") if forward else ("ZREVRANGEBYSCORE", end, "-inf")
            found = [int(each) for each in self._ask(span[0], name, *span[1:], "LIMIT", 0, _PAGE)]
            yield from found
            if len(found) < _PAGE:
                return
            last = found[-1]

    def _merged(
        self, shards: Sequence[Shard], after: str, forward: bool, size: int
    ) -> Iterator[int]:
        streams = [self._names.of_shard("log", shard.name) for shard in shards]
        heads = self._client.ask([_page(stream, after, forward, size) for stream in streams])
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
            entries = self._ask(*_page(stream, entries[-1][0].decode(), forward, size))

    def _view_execution(self, execution_id: int) -> Iterator[Row]:
        return (row.columns for row in self._stored([execution_id]))

    def _view_newest(self, limit: int, keys: list[str] | None) -> Iterator[Row]:
        """Ask two questions, however many keys there are."""
        shards = self._shards(keys)
        ids: dict[str, list[int]] = {}
        pages = self._ask_shards("XREVRANGE", "log", shards, "+", "-", "COUNT", limit)
        for shard, page in zip(shards, pages, strict=True):
            ids.setdefault(shard.key, []).extend(_ids_of(page))
        wanted = [each for found in ids.values() for each in heapq.nlargest(limit, found)]
        for at in range(0, len(wanted), _PAGE):
            yield from (row.columns for row in self._stored(wanted[at : at + _PAGE]))

    def _view_timeline(self, since: float | None, keys: list[str] | None) -> Iterator[Row]:
        """Read a few shards at a time, from an id on before which nothing has started since that time."""
        after = 0 if since is None else self._started_before(since - MAX_CLOCK_SKEW)
        shards = iter(self._shards(keys))
        while some := list(islice(shards, _SHARDS_AT_ONCE)):
            for row in self._by_start(some, after, since):
                if since is None or row.started_at >= since:
                    yield row.columns

    def _view_runs(self, since: float, keys: list[str] | None) -> Iterator[Row]:
        """Read the rows by their ids, the newest first; decode only those that are not packed."""
        ids = (
            self._every_id()
            if keys is None
            else self._merged(self._shards(keys), "", False, _PAGE_OF_MANY)
        )
        packed: dict[tuple[str, str, str, bool], list[int]] = {}
        while page := list(islice(ids, _RUNS_AT_ONCE)):
            texts = self._ask("HMGET", self._names.of_namespace("executions"), *page)
            singles = []
            for number, text in zip(page, texts, strict=True):
                if text is None:
                    continue
                run = rows.packed_run(text)
                if run is None:
                    singles.append(number)
                    continue
                which, minute, started_at, late = run
                if started_at >= since:
                    packed.setdefault(which, []).append(minute)
                elif not late:
                    ids = iter(())  # ids rise with the starts: all that follow are older
            yield from (row.columns for row in self._stored(singles))
        for which, minutes in packed.items():
            yield PackedRuns(*which, " ".join(map(str, minutes)))

    def _every_id(self) -> Iterator[int]:
        """Yield the ids that an execution may have, the newest first: to read them takes longer than to try each."""
        firsts = self._ask_shards("XRANGE", "log", self._shards(None), "-", "+", "COUNT", 1)
        first = min((each for entries in firsts for each in _ids_of(entries)), default=1)
        return iter(range(self._last_id(), first - 1, -1))

    def _last_id(self) -> int:
        name = self._names.of_namespace("namespace")
        return int(self._ask("HGET", name, "last_execution_id") or 0)

    def _by_start(
        self, some: Sequence[Shard], after: int, since: float | None
    ) -> Iterator[StoredExecution]:
        streams = [self._names.of_shard("log", shard.name) for shard in some]
        pages = self._client.ask([_page(stream, str(after), True, _PAGE) for stream in streams])
        short = {
            shard: list(_ids_of(page))
            for shard, page in zip(some, pages, strict=True)
            if len(page) < _PAGE
        }
        ids = [number for of_shard in short.values() for number in of_shard]
        known = {row.execution_id: row for row in self._stored(ids, since)}
        for shard in some:
            if shard in short:
                yield from sorted(
                    (known[number] for number in short[shard] if number in known), key=_start
                )
            else:
                yield from self._long(shard, after, since)

    def _long(self, shard: Shard, after: int, since: float | None) -> Iterator[StoredExecution]:
        late = sorted((row for row in self._log_of(shard, after, since) if row.late), key=_start)
        others = (row for row in self._log_of(shard, after, since) if not row.late)
        yield from heapq.merge(others, late, key=_start)

    def _started_before(self, time: float) -> int:
        """Return an id up to which nothing has started since a time, by looks at ever fewer ids.

        Ids rise with the starts of all keys. A late execution proves nothing, and neither does one that is gone.
        """
        begin, end = 0, self._last_id() + 1
        for _ in range(_TURNS):
            if end - begin <= _PAGE:
                break
            # At first the older, the sparser: what retention has removed is old.
            steps = [2**power for power in range(end.bit_length()) if 2**power < end]
            if begin:
                steps = [(end - begin) * part // _LOOKS for part in range(1, _LOOKS)]
            found = [row for row in self._stored([end - step for step in steps]) if not row.late]
            first = min((row.execution_id for row in found if row.started_at >= time), default=end)
            before = (row.execution_id for row in found if row.started_at < time)
            last = max((each for each in before if each < first), default=begin)
            if (last, first) == (begin, end):
                break
            begin, end = last, first
        return begin

    def _log_of(self, shard: Shard, after: int, since: float | None) -> Iterator[StoredExecution]:
        ids = self._merged([shard], str(after), True, _PAGE)
        while page := list(islice(ids, _PAGE)):
            yield from self._stored(page, since)

    def _stored(
        self, ids: Sequence[int | bytes], since: float | None = None
    ) -> Iterator[StoredExecution]:
        texts = self._ask("HMGET", self._names.of_namespace("executions"), *ids) if ids else ()
        for text, each in zip(texts, ids, strict=True):
            if text and since is not None and rows.started_before(text, since):
                continue
            number = each.decode("latin-1") if isinstance(each, bytes) else each
            row = text and self.readable("execution {1}", rows.stored_execution, text, number)
            if row:
                yield row

    def _exhausted(self, rows: Iterator[StoredExecution]) -> Iterator[StoredExecution]:
        """Yield the dead letters: the last attempts of their ticks, or of their owners, that have no lease."""
        while page := list(islice(rows, _CANDIDATES)):
            newest = self._newest_attempts(page)
            leases = self._client.ask(
                [
                    ("HGET", self._names.of_shard("lease", row.shard_name), "execution_id")
                    for row in page
                ]
            )
            for row, last, lease in zip(page, newest, leases, strict=True):
                if last == row.execution_id and lease != b"%d" % row.execution_id:
                    yield row

    def _newest_attempts(self, page: Sequence[StoredExecution]) -> list[int]:
        questions = [
            ("owners", row.owner) if row.tick is None else ("ticks", row.tick) for row in page
        ]
        answers = self._client.ask(
            [
                ("HGET", self._names.of_shard(name, row.shard_name), field)
                for row, (name, field) in zip(page, questions, strict=True)
            ]
        )
        attempts = [
            [int(word.rpartition(b":")[2]) for word in (answer or b"").split()]
            for answer in answers
        ]
        # Several in a row may not have started: one that was lost at first may turn out to be of them.
        unsure = attempts
        while unsure := [ids for ids in unsure if len(ids) > 1]:
            outcomes = {
                row.execution_id: row.outcome for row in self._stored([i[-1] for i in unsure])
            }
            unsure = [ids for ids in unsure if outcomes.get(ids[-1]) == "not-started"]
            for ids in unsure:
                ids.pop()
        return [ids[-1] if ids else 0 for ids in attempts]

    def _view_holders(self, ids: list[int]) -> Iterator[Row]:
        for row in self._stored(ids):
            known = dict(zip(Execution._fields, row.columns, strict=False))
            yield row.execution_id, known["host"], known["pid"], row.outcome

    def _view_output(self, execution_id: int) -> Iterator[Row | None]:
        text = self._ask("HGET", self._names.of_namespace("outputs"), execution_id)
        if text is not None:
            yield self.readable(f"the output of execution {execution_id}", rows.output, text)

    # Skips

    def _view_skips(self, minute: int | None, **bounds: Any) -> Iterator[Row | None]:
        """Merge the members of the sets of all shards by time, and fetch the texts of those that are asked for."""
        del minute
        query = HistoryQuery(**bounds)
        shards = self._shards(query.key and [query.key], query.without)
        sets = [(shard, kind) for shard in shards for kind in ("skips", "plain")]
        size = min(_PAGE, query.limit or _PAGE)
        first = min(size, _FIRST_OF_MANY) if len(shards) > 1 else size
        oldest = "-inf" if query.since is None else repr(query.since)
        heads = self._client.ask([self._by_time(each, oldest, 0, first) for each in sets])
        readers = [
            self._members(each, oldest, head, first, size)
            for each, head in zip(sets, heads, strict=True)
        ]
        members = heapq.merge(*readers, key=lambda found: -found[0])
        while page := list(islice(members, size)):
            texts = self._client.ask([self._text_of(*each) for each in page])
            for (at, shard, kind, member), text in zip(page, texts, strict=True):
                if text is not None:
                    convert = self._skip if kind == "skips" else self._packed
                    yield convert(shard, _text(member), at, text)

    def _by_time(self, of_set: tuple[Shard, str], oldest: str, offset: int, size: int) -> Command:
        name = self._names.of_shard(of_set[1], of_set[0].name)
        return (*("ZREVRANGEBYSCORE", name, "+inf", oldest, "WITHSCORES"), *("LIMIT", offset, size))

    def _members(
        self, of_set: tuple[Shard, str], oldest: str, flat: Sequence[bytes], first: int, size: int
    ) -> Iterator[tuple[float, Shard, str, bytes]]:
        offset, asked = 0, first
        while True:
            for member, at in zip(flat[::2], flat[1::2], strict=True):
                yield float(at), *of_set, member
            if len(flat) < 2 * asked:
                return
            offset, asked = offset + asked, size
            flat = self._ask(*self._by_time(of_set, oldest, offset, size))

    def _text_of(self, _at: float, shard: Shard, kind: str, member: bytes) -> Command:
        name = "skip_rows" if kind == "skips" else "plain_rows"
        return ("HGET", self._names.of_shard(name, shard.name), member)

    def _skip(self, shard: Shard, member: str, at: float, text: bytes) -> Row | None:
        return self.readable("the skip {1} of {0.name}", rows.skip, shard, member, at, text)

    def _packed(self, shard: Shard, member: str, _at: float, text: bytes) -> Row | None:
        return self.readable("the skips {1} of {0.name}", rows.packed_skips, shard, member, text)

    def _view_reasons(
        self,
        ticks: Mapping[str, str],
        minutes: Mapping[str, int],
        wanted: Mapping[str, Sequence[int]] | None,
    ) -> Iterator[Row | None]:
        """Read page by page, of all shards at once. Their members of the set say the tick, but no order of it."""
        shards = self._shards(ticks)
        few = {key: rows.beginnings(found) for key, found in (wanted or {}).items()}
        for offset in count(0, _PAGE):
            pages = self._client.ask(
                [
                    (
                        *("ZREVRANGEBYSCORE", self._names.of_shard("skips", shard.name)),
                        *("+inf", minutes[shard.key] * 60 - MAX_CLOCK_SKEW, "LIMIT", offset, _PAGE),
                    )
                    for shard in shards
                ]
            )
            for shard, page in zip(shards, pages, strict=True):
                found = few.get(shard.key)
                for member in page:
                    if found is None or rows.beginning(member) in found:
                        name = "the skip {1} of {0.name}"
                        yield self.readable(name, rows.reason, shard, _text(member))
            shards = [s for s, page in zip(shards, pages, strict=True) if len(page) == _PAGE]
            if not shards:
                break
        yield from self._packed_reasons(self._shards(ticks), minutes, wanted)

    def _packed_reasons(
        self,
        shards: Sequence[Shard],
        minutes: Mapping[str, int],
        wanted: Mapping[str, Sequence[int]] | None,
    ) -> Iterator[Row | None]:
        pages = self._client.ask(
            [
                (
                    *("ZRANGEBYSCORE", self._names.of_shard("plain", shard.name)),
                    *(minutes[shard.key] * 60 - PLAIN_SKIP_EARLY, "+inf"),
                )
                for shard in shards
            ]
        )
        if wanted is not None:
            pages = [
                [
                    member
                    for member in page
                    if is_wanted(wanted.get(shard.key, ()), rows.window_of(member))
                ]
                for shard, page in zip(shards, pages, strict=True)
            ]
        found = [(shard, page) for shard, page in zip(shards, pages, strict=True) if page]
        texts = self._client.ask(
            [
                ("HMGET", self._names.of_shard("plain_rows", shard.name), *page)
                for shard, page in found
            ]
        )
        for (shard, page), of_shard in zip(found, texts, strict=True):
            for member, text in zip(page, of_shard, strict=True):
                if text is not None:
                    yield self._packed(shard, _text(member), 0.0, text)

    # Keys, their hosts and their leases

    def _view_keys(self) -> Iterator[Row | None]:
        shards = self._shards(None)
        for shard, values in zip(
            shards, self._ask_shards("HMGET", "key", shards, *rows.KEY), strict=True
        ):
            yield self.readable("key {0.name}", rows.key, shard, values)

    def _view_key_hosts(self) -> Iterator[Row | None]:
        shards = iter(self._shards(None))
        while some := list(islice(shards, _HOSTS_OF)):
            for shard, hosts in zip(some, self._ask_shards("HGETALL", "hosts", some), strict=True):
                for host, text in hosts.items():
                    yield self.readable(
                        "host {1} of {0.name}", rows.key_host, shard, _text(host), text
                    )

    def _view_leases(self) -> Iterator[Row | None]:
        shards, now = self._shards(None), self._now()
        leases = self._ask_shards("HGETALL", "lease", shards)
        held = [(shard, lease) for shard, lease in zip(shards, leases, strict=True) if lease]
        known = self._stored([lease.get(b"execution_id", b"") for _, lease in held])
        executions = {row.execution_id: row for row in known}
        for shard, lease in held:
            yield self.readable("the lease of {0.name}", rows.lease, shard, lease, executions, now)

    # Pauses, settings

    def _view_pauses(self) -> Iterator[Row | None]:
        now = self._now()
        for name, column in (("pauses", 0), ("drains", 1)):
            for member, text in self._ask("HGETALL", self._names.of_namespace(name)).items():
                stopped = _text(member)
                key, host = (stopped, None) if column == 0 else (None, stopped)
                row = self._pause_row(key, host, text)
                if row and (row[-1] is None or row[-1] > now):
                    yield row

    def _pause_row(self, key: str | None, host: str | None, text: bytes) -> Row | None:
        name = "the pause of {0}" if host is None else "the pause of {1}"
        return self.readable(name, rows.pause, key, host, text)

    def _view_least_retention(self) -> Iterator[Row]:
        fields = [f"least_{name}" for name in LEAST._fields]
        yield self._ask("HMGET", self._names.of_namespace("namespace"), *fields)

    def _view_namespaces(self) -> Iterator[Row]:
        """Look at the names of this server; in a cluster, of this node."""
        pattern = scripts.Names("*").of_namespace("parts")
        cursor = 0
        for _ in range(_SCANS):
            following, names = self._ask("SCAN", cursor, "MATCH", pattern, "COUNT", _NAMES)
            for name in (name.decode(errors="replace") for name in names):
                namespace = name.partition(":")[0]
                if name == scripts.Names(namespace).of_namespace("parts"):
                    yield (namespace,)
            cursor = int(following)
            if not cursor:
                return


def _start(row: StoredExecution) -> float:
    return row.started_at


def _oldest_start(query: HistoryQuery) -> float | None:
    """Return a time before which nothing started that a query wants, by the server's clock; None: there is none.

    The claim refuses a tick whose instant is more than `MAX_CLOCK_SKEW` ahead.
    """
    if query.after_id is not None:
        return None
    instant = instant_of(query.tick)
    times = (query.since, None if instant is None else instant - MAX_CLOCK_SKEW)
    return max((time for time in times if time is not None), default=None)


def _text(member: bytes) -> str:
    return member.decode("utf-8", "replace")


def _ids_of(entries: Iterable[Any]) -> Iterator[int]:
    for entry_id, _ in entries:
        yield int(entry_id.partition(b"-")[0])


def _page(stream: str, after: str, forward: bool, size: int) -> Command:
    if forward:
        return ("XRANGE", stream, f"({after}", "+", "COUNT", size)
    return ("XREVRANGE", stream, f"({after}" if after else "+", "-", "COUNT", size)
