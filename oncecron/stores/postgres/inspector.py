"""The commands for people on PostgreSQL, with psycopg and the SQL of `inspector.sql`.

History is read in pages that begin after the id of the last row. So a million rows need no memory, no open transaction
and no sort, neither here nor on the server.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import time
from collections import Counter

import psycopg

from oncecron.core import bounds
from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import (
    UNCHANGED,
    Execution,
    HistoryQuery,
    ItemRow,
    ListView,
    Notice,
    Pause,
    Released,
    Skip,
    SkipReason,
    TracedSkip,
    Unblocked,
    host_ticks_of,
    job_key_of,
    key_host_of,
)
from oncecron.core.model import LEAST, Output, Retention, recordable_values
from oncecron.core.readable import Unreadable
from oncecron.core.tick import instant_of
from oncecron.core.timing import (
    INSPECTOR_TIMEOUT,
    RELEASE_POLL,
    SESSION_LOCK_FREED_AFTER,
    SKIP_WINDOWS,
    TERMINATED_AFTER,
)
from oncecron.each.values import ITEM_STATES, mended
from oncecron.stores.address import as_role, command_line, masked
from oncecron.stores.postgres import schema
from oncecron.stores.postgres.examine import examine, of_foreign_locks
from oncecron.stores.postgres.people_connection import INIT_CURE, READERS_CURE, Connection
from oncecron.stores.postgres.upgrade import printed, upgrade
from oncecron.stores.postgres.viewed_rows import lease_of, now_and_before, traced_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    Value = TypeVar("Value")

    from oncecron.core.log_rows import (
        Diagnosis,
        HostTicks,
        ItemQuery,
        JobKey,
        KeyHost,
        LeaseView,
        LeastRetention,
        Roles,
        Traced,
    )
    from oncecron.core.model import Request
    from oncecron.core.tick import Tick
    from oncecron.each.values import MendedState
    from oncecron.stores.address import Hold

_PAGE = 1000
_BATCH = 5000  # rows that one step of retention removes

_OLDEST_SERVER = 130000
_WATCHERS_CURE = "to read, {read}; to stop and release, {operate}"
_OPERATORS_CURE = "{operate}"
_RUNNERS_CURE = "{run}"
_ENDERS_CURE = (
    "do it as a role that has that session's rights, or have a superuser run "
    "`select pg_terminate_backend({pid})`"
)
_OWNERS_CURE = "run it as {owner}, who owns the schema"


class PostgresInspector(Connection):
    """The people's half of the store on PostgreSQL; see `oncecron.stores.api.Inspector`."""

    has_roles = True

    def __init__(self, url: str, *, namespace: str, hold: Hold = "auto") -> None:
        """Connect at the first call. Raises `ConfigurationError` for an invalid namespace."""
        super().__init__(url, namespace)
        self._hold = hold
        self.unreadable = Unreadable()

    def history(self, query: HistoryQuery) -> Iterator[Execution]:
        """Yield executions, newest first, or oldest first after an id."""
        found = self._executions(Execution._make, self._pages(query, ""))
        yield from itertools.islice(found, query.limit)

    def traced(self, query: HistoryQuery) -> Iterator[Traced]:
        """Yield the executions of `history` with their unpublished details."""
        found = self._executions(traced_of, self._pages(query, "traced_"))
        yield from itertools.islice(found, query.limit)

    def _executions(
        self, convert: Callable[[tuple[Any, ...]], Value], rows: Iterable[tuple[Any, ...]]
    ) -> Iterator[Value]:
        for row in rows:
            if execution := self.unreadable.read(f"execution {row[0]}", convert, row):
                yield execution

    def _pages(self, query: HistoryQuery, columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows; after the limit of the query too, because some may be unreadable."""
        section = "history"
        if query.after_id is not None:
            section = "history_after"
        elif query.tick is not None:
            section = "history_of_tick"
        elif query.key is not None:
            section = "history_of_key"
        values: dict[str, Any] = {**query._asdict(), "before": None}
        page = min(query.limit or _PAGE, _PAGE)
        while True:
            rows = self._ask(columns + section, {**values, "page": page})
            yield from rows
            if len(rows) < page:
                return
            values["before" if query.after_id is None else "after_id"] = rows[-1][0]
            page = _PAGE

    def skips(self, query: HistoryQuery) -> Iterator[Skip]:
        """Yield recorded refusals, the newest first."""
        values = _skip_values(query)
        if query.limit is None:
            yield from self._skips(Skip._make, self._stream("skips", {**values, "window": None}))
            return
        for window in (*SKIP_WINDOWS, None):
            rows = self._ask("skips", {**values, "window": window})
            if window is None or len(rows) >= query.limit:
                yield from self._skips(Skip._make, rows)
                return

    def _skips(
        self, convert: Callable[[tuple[Any, ...]], Value], rows: Iterable[tuple[Any, ...]]
    ) -> Iterator[Value]:
        places = Skip._fields.index("key"), Skip._fields.index("host")
        for row in rows:
            key, host = (row[place] for place in places)
            if skip := self.unreadable.read(f"a skip of key {key} by host {host}", convert, row):
                yield skip

    def traced_skips(self, query: HistoryQuery) -> Iterator[TracedSkip]:
        """Yield the skips of `skips` with their unpublished details."""
        rows = self._stream("traced_skips", _skip_values(query))
        yield from self._skips(lambda row: TracedSkip(Skip._make(row[:-1]), row[-1]), rows)

    def newest(self, limit: int, keys: Collection[str] | None = None) -> Iterator[Execution]:
        """Yield the newest executions of many keys."""
        named = None if keys is None else list(keys)
        values = {**HistoryQuery()._asdict(), "before": None, "page": limit, "keys": named}
        yield from self._executions(Execution._make, self._ask("newest", values))

    def reasons(self, since: Mapping[str, Tick]) -> Iterator[SkipReason]:
        """Yield why ticks of many keys were skipped."""
        ticks = [first.text for first in since.values()]
        minutes = [int((first.instant or 0.0) // 60) for first in since.values()]
        values = {"keys": list(since), "ticks": ticks, "minutes": minutes}
        for row in self._stream("reasons", values):
            name = f"a skip of key {row[0]} by host {row[2]}"
            if reason := self.unreadable.read(name, SkipReason._make, row):
                yield reason

    def timeline(self, since: float | None) -> Iterator[Traced]:
        """Yield all executions since a time, shard by shard in the order of starts."""
        yield from self._executions(traced_of, self._stream("timeline", {"since": since}))

    def job_keys(self) -> Sequence[JobKey]:
        """Return every shard of every key as it was last claimed."""
        rows = self._ask("keys", {})
        found = [self.unreadable.read(f"key {row[0]}", job_key_of, *row) for row in rows]
        return [key for key in found if key]

    def key_hosts(self) -> Sequence[KeyHost]:
        """Return the hosts that fire each shard of each key."""
        rows = self._ask("key_hosts", {})
        found = (
            self.unreadable.read(f"host {row[2]} of key {row[0]}", key_host_of, *row)
            for row in rows
        )
        return sorted(each for each in found if each)

    def host_ticks(self) -> Sequence[HostTicks]:
        """Return less of the hosts that fire each shard of each key."""
        found = (
            self.unreadable.read(f"host {row[1]} of key {row[0]}", host_ticks_of, *row)
            for row in self._ask("host_ticks", {})
        )
        return sorted(each for each in found if each)

    def namespaces(self) -> list[str]:
        """Return the schemas of oncecron that this role may use; this one may be missing."""
        with self._explained(READERS_CURE):
            return [name for (name,) in self._connected().execute(self._sql["namespaces"])]

    def _stream(self, section: str, values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Yield rows as the server sends them; only one such query may run at a time."""
        connection = self._installed()
        with (
            self._explained(READERS_CURE),
            connection.transaction(),
            connection.cursor(name=section) as cursor,
        ):
            cursor.itersize = _PAGE
            cursor.execute(self._sql[section], recordable_values(values))
            yield from cursor

    def execution(self, execution_id: int) -> Execution | None:
        """Return one execution."""
        rows = self._ask("execution", {"execution_id": execution_id})
        return next(self._executions(Execution._make, rows), None)

    def output(self, execution_id: int) -> Output | None:
        """Return the captured output of an execution."""
        rows = self._ask("output", {"execution_id": execution_id})
        if not rows:
            return None
        name = f"the output of execution {execution_id}"
        return self.unreadable.read(name, Output._make, rows[0])

    def leases(self) -> Sequence[LeaseView]:
        """Return every lease and every session lock of this namespace."""
        rows = self._ask("leases", {}, _WATCHERS_CURE)
        found = [self.unreadable.read(f"the lease of key {row[0]}", lease_of, row) for row in rows]
        return [lease for lease in found if lease]

    def pauses(self) -> Sequence[Pause]:
        """Return the pauses and the drained hosts."""
        return [*self._pauses(self._ask("pauses", {}))]

    def pause(
        self, key: str, *, author: str, reason: str | None, seconds: float | None
    ) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a key; see `Inspector.pause`."""
        values = {"key": key, "author": author, "reason": reason, "seconds": seconds}
        return now_and_before(self._stop_starts("pause", values))

    def resume(self, key: str) -> Pause | None:
        """End the pause of a key; see `Inspector.resume`."""
        return next(self._operate("resume", {"key": key}), None)

    def drain(self, host: str, *, author: str) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a host; see `Inspector.drain`."""
        return now_and_before(self._stop_starts("drain", {"host": host, "author": author}))

    def undrain(self, host: str) -> Pause | None:
        """Let the host claim again; see `Inspector.undrain`."""
        return next(self._operate("undrain", {"host": host}), None)

    def forget(self, key: str) -> bool:
        """Expect no further runs of a key; see `Inspector.forget`."""
        return bool(self._ask("forget", {"key": key}, _OPERATORS_CURE)[0][0])

    def notices(self, channels: Collection[str]) -> list[Notice]:
        """Return what these channels were notified of."""
        rows = self._ask("notices", {"channels": list(channels)}, _WATCHERS_CURE)
        found = [self.unreadable.read(f"the notice of {row[0]}", Notice._make, row) for row in rows]
        return [notice for notice in found if notice]

    def put_notice(self, notice: Notice) -> bool:
        """Write what a channel was notified of; see `Inspector.put_notice`."""
        bounds.check(notice._asdict())
        return bounds.has_room(self._ask("put_notice", notice._asdict(), _RUNNERS_CURE)[0][0])

    def other_notices(self, channels: Collection[str], *, remove: bool = False) -> int:
        """Return how many other channels there are; see `Inspector.other_notices`."""
        section, cure = "count_other_notices", _WATCHERS_CURE
        if remove:
            section, cure = "remove_other_notices", _OWNERS_CURE
        return int(self._ask(section, {"channels": list(channels)}, cure)[0][0])

    def forget_host(self, host: str) -> bool:
        """Expect no further firings of a host; see `Inspector.forget_host`."""
        return bool(self._ask("forget_host", {"host": host}, _OPERATORS_CURE)[0][0])

    def _stop_starts(self, section: str, values: Mapping[str, Any]) -> Iterator[Pause]:
        """Ask until no write is under way. Each try is short, because heartbeats wait behind it."""
        give_up = time.monotonic() + INSPECTOR_TIMEOUT
        while True:
            try:
                return self._operate(section, values)
            except StoreUnavailable as error:
                waited = isinstance(error.__cause__, psycopg.errors.LockNotAvailable)
                if not waited or time.monotonic() > give_up:
                    raise
            select.select((), (), (), RELEASE_POLL)

    def _operate(self, section: str, values: Mapping[str, Any]) -> Iterator[Pause]:
        return self._pauses(self._ask(section, values, _OPERATORS_CURE))

    def _pauses(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Pause]:
        for row in rows:
            name = f"the pause of {row[0] or row[1]}"
            if pause := self.unreadable.read(name, Pause._make, row):
                yield pause

    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        """Send a request to the holder; see `Inspector.request`."""
        part = {"key": key, "shard": shard, "execution_id": execution_id}
        return bool(self._ask("request", {**part, **request._asdict()}, _OPERATORS_CURE)[0][0])

    def release(
        self, key: str, shard: int, execution_id: int | None, *, author: str, force: bool
    ) -> Released:
        """Free a shard of a key; see `Inspector.release`."""
        part = {"key": key, "shard": shard, "execution_id": execution_id, "author": author}
        give_up = time.monotonic() + SESSION_LOCK_FREED_AFTER
        ended: set[int | None] = set()
        while True:
            *answer, start = self._ask("release", part, _OPERATORS_CURE)[0]
            released = Released._make(answer)
            new = force and released.backend_pid not in ended
            if released.answer != "locked" or (time.monotonic() > give_up and not new):
                return released
            if new:
                self._end_session(released.backend_pid, start)
                ended.add(released.backend_pid)
                give_up = time.monotonic() + TERMINATED_AFTER
            select.select((), (), (), RELEASE_POLL)

    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
        """Let marks of a wrong clock count no further than now; see `Inspector.unblock`."""
        part = {"key": key, "shard": shard}
        return [Unblocked._make(row) for row in self._ask("unblock", part, _OPERATORS_CURE)]

    def _end_session(self, pid: int | None, start: int | None) -> None:
        """Terminate a session. Raises `StoreRefusesError` if this role may not."""
        cure = _ENDERS_CURE.format(pid=pid)
        rows = self._ask("end_session", {"pid": pid, "start": start}, cure)
        if rows and rows[0][0] is None:
            raise StoreRefusesError(
                f"PostgreSQL, schema {self._namespace}: backend pid {pid} is another role's session; {cure}"
            )

    def item_lists(self, key: str | None = None) -> list[ListView]:
        """Return the lists of items with their counts; see `Inspector.item_lists`."""
        rows = self._ask("item_lists", {"key": key}, _WATCHERS_CURE)
        found = [
            self.unreadable.read(f"the items of key {row[0]}", ListView._make, row) for row in rows
        ]
        return [view for view in found if view]

    def items(self, query: ItemQuery) -> Iterator[ItemRow]:
        """Yield the items of one list; see `Inspector.items`."""
        values = {
            **query.items_of._asdict(),
            "states": list(query.states) or list(ITEM_STATES),
            "identities": query.identities,
        }
        for row in self._stream("items", values):
            if item := self.unreadable.read(f"item {row[2]} of key {row[0]}", ItemRow._make, row):
                yield item

    def mend_items(self, query: ItemQuery, state: MendedState, *, author: str) -> int:
        """Queue items again, or mark them as done; see `Inspector.mend_items`."""
        values = {
            **query.items_of._asdict(),
            "states": list(query.states),
            "identities": query.identities,
            "state": state,
            "reason": mended(state, author),
        }
        return int(self._ask("mend_items", values, _OPERATORS_CURE)[0][0])

    def prune(self, retention: Retention, *, names_kept: int = 1000) -> tuple[int, int]:
        """Remove expired records; return how many executions and how many skips were removed."""
        values = {**retention._asdict(), "most": _BATCH, "names_kept": names_kept}
        removed = self._pruned({**values, "key_id": None})
        self._ask("prune_keys", {}, _OWNERS_CURE)  # before each key that is left is looked at
        for (key_id,) in self._ask("part_ids", {}, _OWNERS_CURE):
            removed += self._pruned({**values, "key_id": key_id})
        return removed["executions"], removed["skips"]

    def _pruned(self, values: Mapping[str, Any]) -> Counter[str]:
        removed: Counter[str] = Counter()
        while any(row := self._ask("prune", values, _OWNERS_CURE)[0]):
            removed.update(executions=row[0], skips=row[1])
        return removed

    def least_retention(self) -> Retention:
        """Return the retention below which no caller's counts."""
        row = self._ask("least_retention", {}, READERS_CURE)[0]
        return self.unreadable.read("the least retention", Retention, *row) or LEAST

    def initialise(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Create or upgrade the schema, set what is given and grant rights; return a sentence about what was done."""
        connection = self._connected()
        if connection.info.server_version < _OLDEST_SERVER:
            raise StoreRefusesError(
                f"PostgreSQL {masked(self._url)}: server version {connection.info.server_version // 10000} "
                "is too old; oncecron needs 13 or newer"
            )
        with self._explained(INIT_CURE):
            try:
                found = self._made_in_turn(connection, roles, least)
            except (psycopg.errors.DuplicateSchema, psycopg.errors.UniqueViolation):
                # Another session has made it meanwhile.
                found = self._made_in_turn(connection, roles, least)
        done = f"made schema {self._namespace}, version {schema.VERSION}"
        if found == schema.VERSION:
            done = f"schema {self._namespace} has version {schema.VERSION} already"
        elif found is not None:
            done = f"upgraded schema {self._namespace} from version {found} to {schema.VERSION}"
        names = ", ".join(dict.fromkeys(role for part in roles for role in part))
        return done + (f"; gave rights to {names}" if names else "")

    def _made_in_turn(
        self, connection: psycopg.Connection[tuple[Any, ...]], roles: Roles, least: LeastRetention
    ) -> int | None:
        """Repeat `_made` while others use the tables of a step. Each try is short: heartbeats wait behind it."""
        give_up = time.monotonic() + INSPECTOR_TIMEOUT
        while True:
            try:
                return self._made(connection, roles, least)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                if time.monotonic() > give_up:
                    raise StoreUnavailable(
                        f"{schema.where(self._namespace)}: not upgraded, because other sessions use its tables "
                        f"({error.diag.message_primary}); end long reports and dumps, and run it again"
                    ) from error
            select.select((), (), (), RELEASE_POLL)

    def _made(
        self, connection: psycopg.Connection[tuple[Any, ...]], roles: Roles, least: LeastRetention
    ) -> int | None:
        """Create or upgrade the schema, set what is given and grant rights; return the version that it had."""
        with connection.transaction():
            self._refuse_intruders(connection)
            found = self._recorded(connection)
            if found is None:
                changes = schema.script(self._namespace)
            else:
                connection.execute(self._sql["lock_schema"])
                found = self._recorded(connection) or found  # another session may have upgraded it
                changes = upgrade(self._namespace, found)
            changes += schema.settings(self._namespace, least)
            changes += schema.grants(self._namespace, roles)
            if changes:
                connection.execute(changes)
        return found.version if found else None

    def _refuse_intruders(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Raise `StoreRefusesError` if another role could change what is in the schema."""
        row = connection.execute(self._sql["intruders"], {"namespace": self._namespace}).fetchone()
        if row is None:
            return
        what, role, may_create = row
        if may_create:
            why = f"role {role} may create objects in it; run: revoke create on schema {self._namespace} from {role}"
        elif what == f"schema {self._namespace}":
            owner = command_line("init", as_role(self._url, role), self._namespace)
            why = f"{what} belongs to {role}; if that is right, run {owner}"
        else:
            why = f"{what} belongs to {role}; have it dropped, or given back by alter ... owner to"
        raise StoreRefusesError(f"PostgreSQL, schema {self._namespace}: {why}")

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Return the SQL that `initialise` would run."""
        changes = schema.settings(self._namespace, least) + schema.grants(self._namespace, roles)
        return f"begin;\n\n{printed(self._namespace)}\n{changes}commit;\n"

    def examine(self) -> Iterator[Diagnosis]:
        """Yield what the server says about itself and this connection; see `Inspector.examine`."""
        with self._explained(READERS_CURE):
            yield from examine(self._installed(), self._sql, self._hold)
        with contextlib.suppress(StoreRefusesError):  # this role may not see the leases
            yield from of_foreign_locks(self.leases())


def _skip_values(query: HistoryQuery) -> dict[str, Any]:
    """Return the values of the queries for skips; `minute`: of the tick, since the epoch."""
    instant = instant_of(query.tick)
    return {**query._asdict(), "minute": None if instant is None else int(instant // 60)}
