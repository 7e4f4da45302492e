"""The commands for people on SQLite."""

from __future__ import annotations

import glob
import heapq
import itertools
import json
import os
import sqlite3
from contextlib import closing

from oncecron.core import bounds, clock
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import (
    UNCHANGED,
    Diagnosis,
    Execution,
    HistoryQuery,
    ItemRow,
    LeaseView,
    ListView,
    Notice,
    Pause,
    Released,
    Skip,
    SkipReason,
    Traced,
    TracedSkip,
    Unblocked,
    count_of_last_day,
    host_ticks_of,
    job_key_of,
    key_host_of,
    owner_digest,
)
from oncecron.core.model import LEAST, MOST_CHANNELS, Output
from oncecron.core.readable import Unreadable
from oncecron.core.timing import HEARTBEATS_PER_TTL, INSPECTOR_TIMEOUT, MAX_CLOCK_SKEW
from oncecron.core.units import HOUR
from oncecron.each.sqlite_store import identities_of, mend
from oncecron.stores.address import DEFAULT_NAMESPACE
from oncecron.stores.sqlite import plain_skips
from oncecron.stores.sqlite.claim import moment, raise_fence, take_away
from oncecron.stores.sqlite.connection import (
    SCHEMA_OLDEST,
    SCHEMA_VERSION,
    connect,
    explained,
    file_of,
    statements,
)
from oncecron.stores.sqlite.kept_connection import Handle
from oncecron.stores.sqlite.retention import NAMES_KEPT, least_retention, prune

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.log_rows import HostTicks, ItemQuery, JobKey, KeyHost, LeastRetention, Roles
    from oncecron.core.model import Request, Retention
    from oncecron.core.tick import Tick
    from oncecron.each.values import MendedState
    from oncecron.stores.sqlite.connection import Connection

_SIGNATURE = b"SQLite format 3\0"
"""The first bytes of a database; its -wal and -shm files, which have names like a namespace's, begin differently."""


class SQLiteInspector:
    """The people's half of the store in a SQLite file; see `oncecron.stores.api.Inspector`.

    Only `initialise` creates a missing file.
    """

    has_roles = False

    def __init__(self, path: str, *, namespace: str) -> None:
        self._default_path = path
        path = file_of(path, namespace)
        names = ("inspector", "firing", "items", "retention")
        self._handle = Handle(path, create=False, statements=names)
        self._boot = clock.boot_id()
        self.unreadable = Unreadable()

    def history(self, query: HistoryQuery) -> Iterator[Execution]:
        """Yield executions, newest first, or oldest first after an id."""
        for traced in self.traced(query):
            yield traced.execution

    def traced(self, query: HistoryQuery) -> Iterator[Traced]:
        """Yield the executions of `history` with their unpublished details."""
        with self._handle.until(_deadline()) as store:
            found = store.execute(_history_statement(query), **{**_filters(query), "limit": -1})
            yield from itertools.islice(self._readable(found), query.limit)

    def skips(self, query: HistoryQuery) -> Iterator[Skip]:
        """Yield recorded refusals, the newest first."""
        with self._handle.until(_deadline()) as store:
            rows = (self._readable_skip(row) for row in store.execute("skips", **_filters(query)))
            found = heapq.merge(
                filter(None, rows),
                plain_skips.wanted(store, query, self.unreadable),
                key=plain_skips.order_of,
            )
            yield from itertools.islice(found, query.limit)

    def _readable_skip(self, row: Any) -> Skip | None:
        name = f"a skip of key {row['key']} by host {row['host']}"
        return self.unreadable.read(name, Skip, *row)

    def traced_skips(self, query: HistoryQuery) -> Iterator[TracedSkip]:
        """Yield the skips of `skips`; SQLite keeps no other details of them."""
        for skip in self.skips(query):
            yield TracedSkip(skip, None)

    def newest(self, limit: int, keys: Collection[str] | None = None) -> Iterator[Execution]:
        """Yield the newest executions of many keys: a statement costs little without a server."""
        known = {each.key for each in self.job_keys()}
        for key in known if keys is None else keys:
            for execution in self.history(HistoryQuery(key=key, limit=limit)):
                yield execution.without_texts()

    def reasons(self, since: Mapping[str, Tick]) -> Iterator[SkipReason]:
        """Yield why ticks of many keys were skipped."""
        with self._handle.until(_deadline()) as store:
            for key, first in since.items():
                for row in store.execute("reasons", key=key, tick=first.text):
                    name = f"a skip of key {key} by host {row['host']}"
                    if reason := self.unreadable.read(name, SkipReason, *row):
                        yield reason
                yield from plain_skips.reasons(store, key, first, self.unreadable)

    def timeline(self, since: float | None) -> Iterator[Traced]:
        """Yield all executions since a time, shard by shard in the order of starts."""
        with self._handle.until(_deadline()) as store:
            yield from self._readable(store.execute("timeline", since=since))

    def _readable(self, rows: Iterable[Any]) -> Iterator[Traced]:
        for row in rows:
            if traced := self.unreadable.read(f"execution {row['execution_id']}", _traced, row):
                yield traced

    def job_keys(self) -> Sequence[JobKey]:
        """Return every shard of every key as it was last claimed."""
        with self._handle.until(_deadline()) as store:
            rows = store.execute("keys")
            found = [self.unreadable.read(f"key {row['key']}", job_key_of, *row) for row in rows]
        return [key for key in found if key]

    def key_hosts(self) -> Sequence[KeyHost]:
        """Return the hosts that fire each shard of each key."""
        with self._handle.until(_deadline()) as store:
            hour = clock.wall() // HOUR
            found = [
                self.unreadable.read(
                    f"host {row['host']} of key {row['key']}", _key_host, hour, *row
                )
                for row in store.execute("key_hosts")
            ]
        return [each for each in found if each]

    def host_ticks(self) -> Sequence[HostTicks]:
        """Return less of the hosts that fire each shard of each key."""
        with self._handle.until(_deadline()) as store:
            found = [
                self.unreadable.read(f"host {row[1]} of key {row[0]}", host_ticks_of, *row)
                for row in store.execute("host_ticks")
            ]
        return [each for each in found if each]

    def namespaces(self) -> Iterator[str]:
        """Yield the namespaces with a file in the same directory."""
        stem, suffix = os.path.splitext(self._default_path)
        if _is_database(self._default_path):
            yield DEFAULT_NAMESPACE
        for path in glob.iglob(f"{glob.escape(stem)}-*{glob.escape(suffix)}"):
            if _is_database(path):
                yield path.removeprefix(f"{stem}-").removesuffix(suffix)

    def execution(self, execution_id: int) -> Execution | None:
        """Return one execution."""
        with self._handle.until(_deadline()) as store:
            row = store.one("execution", execution_id=execution_id)
        if row is None:
            return None
        return self.unreadable.read(f"execution {execution_id}", _execution, row)

    def output(self, execution_id: int) -> Output | None:
        """Return the captured output of an execution."""
        with self._handle.until(_deadline()) as store:
            row = store.one("output", execution_id=execution_id)
        if row is None:
            return None
        return self.unreadable.read(f"the output of execution {execution_id}", Output, *row)

    def leases(self) -> Sequence[LeaseView]:
        """Return every lease."""
        with self._handle.until(_deadline()) as store:
            rows = store.execute("leases", **moment(self._boot), heartbeats=HEARTBEATS_PER_TTL)
            found = [
                self.unreadable.read(f"the lease of key {row['key']}", LeaseView, *row)
                for row in rows
            ]
        return [lease for lease in found if lease]

    def pauses(self) -> Sequence[Pause]:
        """Return the pauses and the drained hosts."""
        with self._handle.until(_deadline()) as store:
            return self._pauses(store, clock.wall())

    def _pauses(self, store: Connection, now: float) -> list[Pause]:
        found = [
            self.unreadable.read(f"the pause of {row['key'] or row['host']}", Pause, *row)
            for row in store.execute("pauses", now=now)
        ]
        return [pause for pause in found if pause]

    def pause(
        self, key: str, *, author: str, reason: str | None, seconds: float | None
    ) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a key; see `Inspector.pause`."""
        wanted = Pause(key, None, author, reason, since=0, until=seconds)
        return self._refuse("put_pause", wanted)

    def resume(self, key: str) -> Pause | None:
        """End the pause of a key; see `Inspector.resume`."""
        return self._refuse("take_pause", Pause(key, None, "", None, 0, None))[1]

    def drain(self, host: str, *, author: str) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a host; see `Inspector.drain`."""
        return self._refuse("put_drain", Pause(None, host, author, None, 0, None))

    def undrain(self, host: str) -> Pause | None:
        """Let the host claim again; see `Inspector.undrain`."""
        return self._refuse("take_drain", Pause(None, host, "", None, 0, None))[1]

    def forget(self, key: str) -> bool:
        """Expect no further runs of a key; see `Inspector.forget`."""
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            return bool(store.execute("forget", key=key, now=clock.wall()).rowcount)

    def notices(self, channels: Collection[str]) -> list[Notice]:
        """Return what these channels were notified of."""
        wanted = {"channels": json.dumps([*channels]), "most": bounds.LONGEST_DOCUMENT}
        with self._handle.until(_deadline()) as store:
            rows = store.execute("notices", **wanted)
            found = [
                self.unreadable.read(f"the notice of {row['channel']}", Notice, *row)
                for row in rows
            ]
        return [notice for notice in found if notice]

    def put_notice(self, notice: Notice) -> bool:
        """Write what a channel was notified of; see `Inspector.put_notice`."""
        bounds.check(notice._asdict())
        statement = "change_notice" if notice.version else "make_notice"
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            if not notice.version and _other_notices(store, [notice.channel]) >= MOST_CHANNELS:
                return bounds.has_room(None)
            return bool(store.execute(statement, **notice._asdict()).rowcount)

    def other_notices(self, channels: Collection[str], *, remove: bool = False) -> int:
        """Return how many other channels there are; see `Inspector.other_notices`."""
        with self._handle.until(_deadline()) as store:
            if not remove:
                return _other_notices(store, channels)
            with store.writing(durable=True):
                count = _other_notices(store, channels)
                store.execute("remove_other_notices", channels=json.dumps([*channels]))
                return count

    def forget_host(self, host: str) -> bool:
        """Expect no further firings of a host; see `Inspector.forget_host`."""
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            return bool(store.execute("forget_host", host=host).rowcount)

    def _refuse(self, statement: str, wanted: Pause) -> tuple[Pause, Pause | None]:
        """Set a pause, whose times count from now; return it and the one that was there before."""
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            now = clock.wall()
            until = None if wanted.until is None else now + wanted.until
            wanted = wanted._replace(since=now, until=until)
            found = {pause[:2]: pause for pause in self._pauses(store, now)}
            store.execute(statement, **wanted._asdict())
        return wanted, found.get(wanted[:2])

    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        """Send a request to the holder; see `Inspector.request`."""
        asked = {"key": key, "shard": shard, "execution_id": execution_id, **request._asdict()}
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            has_lease = bool(store.execute("put_request", **asked).rowcount)
            if has_lease:
                store.execute("note_requester", **asked)
        return has_lease

    def release(
        self,
        key: str,
        shard: int,
        execution_id: int | None,
        *,
        author: str,
        force: bool,  # noqa: ARG002 - no session holds a lock
    ) -> Released:
        """Free a shard of a key; see `Inspector.release`."""
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            asked = {"key": key, "shard": shard, **moment(self._boot)}
            store.execute("cut_lease", **asked)
            lease = store.one("find_lease", **asked)
            if lease is not None and lease["lease_execution_id"] != execution_id:
                return Released("other")
            ends_in = 0.0 if lease is None else lease["lease_expires_at"] - asked["lease_now"]
            if ends_in > 0:
                return Released("alive", ends_in)
            take_away(store, asked, "released", f"released by {author}")
            raise_fence(store, asked)
        return Released("free")

    def least_retention(self) -> Retention:
        """Return the retention below which no caller's counts."""
        with self._handle.until(_deadline()) as store:
            return self.unreadable.read("the least retention", least_retention, store) or LEAST

    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
        """Let marks of a wrong clock count no further than now; see `Inspector.unblock`."""
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            now = clock.wall()
            asked = {"key": key, "shard": shard, "now": now, "latest": now + MAX_CLOCK_SKEW}
            found = [Unblocked(*row) for row in store.execute("wrong_marks", **asked)]
            store.execute("cut_marks", **asked)
        return found

    def item_lists(self, key: str | None = None) -> list[ListView]:
        """Return the lists of items with their counts; see `Inspector.item_lists`."""
        with self._handle.until(_deadline()) as store:
            rows = store.execute("item_lists", key=key, tick=None, **moment(self._boot))
            found = [
                self.unreadable.read(f"the items of key {row[0]}", ListView._make, row)
                for row in rows
            ]
        return [view for view in found if view]

    def items(self, query: ItemQuery) -> Iterator[ItemRow]:
        """Yield the items of one list; see `Inspector.items`."""
        named = identities_of(query)
        values = {**query.items_of._asdict(), "identities": named, **moment(self._boot)}
        with self._handle.until(_deadline()) as store:
            for row in store.execute("items", **values):
                name = f"item {row['position']} of key {row['key']}"
                item = self.unreadable.read(name, ItemRow, *row)
                if item and (not query.states or item.state in query.states):
                    yield item

    def mend_items(self, query: ItemQuery, state: MendedState, *, author: str) -> int:
        """Queue items again, or mark them as done; see `Inspector.mend_items`."""
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            return mend(store, query, state, author, moment(self._boot))

    def prune(self, retention: Retention, *, names_kept: int = NAMES_KEPT) -> tuple[int, int]:
        """Remove expired records; return how many executions and how many skips were removed."""
        return prune(lambda: self._handle.until(_deadline()), retention, names_kept)

    def initialise(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Create what is missing of the file and its schema, and set what is given; return a sentence about it."""
        _refuse_roles(roles)
        path = self._handle.path
        with closing(connect(path, deadline=_deadline(), create=True, check=False)) as connection:
            try:
                found = connection.upgrade()
            except sqlite3.Error as error:
                raise explained(error, path) from error
        if given := least.given():
            with self._handle.until(_deadline()) as store, store.writing(durable=True):
                for name, seconds in given.items():
                    store.execute("set_least_retention", name=name, seconds=seconds)
        if connection.installed:
            return f"made the store {path} with schema version {SCHEMA_VERSION}"
        if found != SCHEMA_VERSION:
            return f"upgraded the store {path} from schema version {found} to {SCHEMA_VERSION}"
        return f"the store {path} has schema version {SCHEMA_VERSION} already"

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Return the SQL that `initialise` would run on an empty store."""
        _refuse_roles(roles)
        setting = statements("retention")["set_least_retention"]
        settings = (
            setting.replace(":name", f"'{name}'").replace(":seconds", f"{seconds!r}")
            for name, seconds in least.given().items()
        )
        version = statements("connection")["set_schema_version"]
        version = version.replace(":version", f"'{SCHEMA_VERSION}'")
        version = version.replace(
            ":oldest", "null" if SCHEMA_OLDEST is None else f"'{SCHEMA_OLDEST}'"
        )
        wanted = (
            *(statements("connection")["write_ahead"], *statements("schema").values()),
            *(version, *settings),
        )
        return "".join(f"{statement};\n" for statement in wanted)

    def examine(self) -> Iterator[Diagnosis]:
        """Yield that the file can be used; see `Inspector.examine`."""
        with self._handle.until(_deadline()):
            text = f"{self._handle.path}, for this machine alone (SQLite {sqlite3.sqlite_version})"
        yield Diagnosis("ok", "server", text)

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def _deadline() -> float:
    return clock.lease_time(clock.MONOTONIC) + INSPECTOR_TIMEOUT


def _history_statement(query: HistoryQuery) -> str:
    if query.exhausted:
        return "dead_letters"
    if query.after_id is not None:
        return "history_after"
    if query.key is None:
        return "history"
    return "history_of_key" if query.tick is None else "history_of_tick"


def _key_host(now: float, *values: Any) -> KeyHost:
    *told, wins, skips, twice, hour = values
    counts = [count_of_last_day(counts, int(now) - hour) for counts in (wins, skips)]
    return key_host_of(*told, *[*counts, twice])


def _other_notices(store: Connection, channels: Collection[str]) -> int:
    return int(store.one("count_other_notices", channels=json.dumps([*channels]))[0])


def _traced(row: Any) -> Traced:
    values = tuple(row)
    return Traced(_execution(values[:-3]), *values[-3:])


def _execution(values: Iterable[Any]) -> Execution:
    execution = Execution(*values)
    return execution._replace(owner=owner_digest(execution.owner))


def _filters(query: HistoryQuery) -> dict[str, object]:
    return {**query._asdict(), "limit": -1 if query.limit is None else query.limit}


def _refuse_roles(roles: Roles) -> None:
    if any(roles):
        raise ConfigurationError(
            "a SQLite store has no roles; grant access with the owner and mode of its file"
        )


def _is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_SIGNATURE)) == _SIGNATURE
    except OSError:
        return False
