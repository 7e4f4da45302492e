"""The commands for people on PostgreSQL, with psycopg and the SQL of `reader.sql`.

History is read in pages that begin after the id of the last row. So a million rows need no memory, no open transaction
and no sort, neither here nor on the server.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import time

import psycopg

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import UNCHANGED, HistoryQuery, Released, Unblocked
from oncecron.core.model import recordable_values
from oncecron.core.progress import no_progress
from oncecron.core.tick import minute_tick
from oncecron.core.timing import READER_TIMEOUT
from oncecron.core.units import typed_duration
from oncecron.stores.address import as_role, command_line, masked, shell_quoted
from oncecron.stores.postgres import people_sql, schema, sql_files
from oncecron.stores.postgres.doctor import examine, of_foreign_locks
from oncecron.stores.postgres.people_connection import (
    INIT_CURE,
    OWNERS_CURE,
    READERS_CURE,
    Connection,
)
from oncecron.stores.reader import PackedRuns, Reader, answered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from oncecron.core.diagnosis import Diagnosis
    from oncecron.core.log_rows import LeastRetention, Roles
    from oncecron.core.model import Request, Retention
    from oncecron.core.progress import Progress
    from oncecron.stores.address import Hold
    from oncecron.stores.api import Row

_SESSION_LOCK_FREED_AFTER = 1.0
"""A PostgreSQL session whose client has ended frees its lock within this time."""
_TERMINATED_AFTER = 5.0
"""A PostgreSQL session that was terminated ends within this time."""
_RELEASE_POLL = 0.05  # waited for in select(2): libfaketime 0.9.10 breaks time.sleep()
"""Between two tries of `release --force` while a terminated session ends, and of a pause while a write is under way."""
_SKIP_WINDOWS = (600.0, 4800.0, 38400.0, 307200.0)
"""PostgreSQL looks for the newest skips in the last ten minutes, then in windows eight times as long, then in all
skips: the index on their time finds a range without sorting the rest."""

_PAGE = 400
"""Rows of one answer, of which the largest have 150 KiB: `LARGEST_ANSWER` has room for them."""
_PAGES = {"packed_runs": 8}
"""Of larger rows: a key has all its minutes in one."""
_BATCH = 5000  # rows that one step of retention removes

_OLDEST_SERVER = 130000
_WATCHERS_CURE = "to read, {read}; to stop and release, {operate}"
_OPERATORS_CURE = "{operate}"
_RUNNERS_CURE = "{run}"
_ENDERS_CURE = (
    "do it as a role that has that session's rights, or have a superuser run "
    "`select pg_terminate_backend({pid})`"
)

_CURES = {
    "run": _RUNNERS_CURE,
    "operate": _OPERATORS_CURE,
    "own": OWNERS_CURE.format(words="prune"),
}
"""Of a change of a plugin: by whom it can be made."""
_NO_FILTERS = HistoryQuery()._asdict() | {"before": None, "window": None}
_STREAMED = ("timeline", "skips", "reasons", "reasons_of_ticks", "key_hosts")
"""Views of many rows, which the server sends as they are read."""


def _reasons(
    ticks: Mapping[str, str], minutes: Mapping[str, int], wanted: Mapping[str, list[int]] | None
) -> tuple[str, dict[str, Any]]:
    if wanted is None:
        values = {"ticks": [*ticks.values()], "minutes": [*minutes.values()]}
        return "reasons", {"keys": [*ticks], **values}
    pairs = [(key, minute) for key, found in wanted.items() for minute in found]
    names = [minute_tick(minute * 60).text for _, minute in pairs]
    values = {"ticks": names, "minutes": [minute for _, minute in pairs]}
    return "reasons_of_ticks", {"keys": [key for key, _ in pairs], **values}


class PostgresReader(Connection, Reader):
    """The people's half of the store on PostgreSQL; see `oncecron.stores.api.Views`."""

    has_roles = True

    def __init__(self, url: str, *, namespace: str, hold: Hold = "auto") -> None:
        """Connect at the first call. Raises `ConfigurationError` for an invalid namespace."""
        Connection.__init__(self, url, namespace)
        Reader.__init__(self)
        self._hold = hold

    @answered
    def rows(self, view: str, **bounds: Any) -> Iterator[Row]:
        if "/" in view:
            return self._stream(view.rpartition("/")[2], bounds, _WATCHERS_CURE)
        if view == "executions":
            return self._history(bounds)
        if view == "skips" and bounds["limit"] is not None:
            return self._newest_skips(bounds)
        if view == "runs":
            packed = map(PackedRuns._make, self._stream("packed_runs", bounds))
            return itertools.chain(self._stream("single_runs", bounds), packed)
        if view == "reasons":
            view, bounds = _reasons(**bounds)
        if view in _STREAMED:
            return self._stream(view, bounds)
        return iter(self._all(view, bounds))

    def _all(self, view: str, bounds: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if view == "namespaces":
            with self._explained(READERS_CURE):
                return self._connected().execute(self._sql[view]).fetchall()
        if view == "newest":  # they may be more than one answer has room for
            return [*self._stream(view, bounds)]
        cure = _WATCHERS_CURE if view == "leases" else READERS_CURE
        return self._ask(view, {**_NO_FILTERS, **bounds}, cure)

    def _history(self, bounds: dict[str, Any]) -> Iterator[Row]:
        section = "history"
        if bounds["after_id"] is not None:
            section = "history_after"
        elif bounds["tick"] is not None:
            section = "history_of_tick"
        elif bounds["key"] is not None:
            section = "history_of_key"
        forward = section == "history_after"
        size = min(bounds["limit"] or _PAGE, _PAGE)
        while True:
            rows = self._ask(section, {**_NO_FILTERS, **bounds, "limit": size})
            yield from rows
            if len(rows) < size:
                return
            bounds["after_id" if forward else "before"] = rows[-1][0]
            size = _PAGE

    def _newest_skips(self, bounds: Mapping[str, Any]) -> Iterator[Row]:
        """Yield skips, no more than the limit. A window lets the server find the last few without sorting all."""
        rows: list[tuple[Any, ...]] = []
        for window in (*_SKIP_WINDOWS, None):
            rows = self._ask("skips", {**bounds, "window": window})
            if len(rows) >= bounds["limit"]:
                break
        yield from rows

    def _stream(
        self, section: str, values: Mapping[str, Any], cure: str = READERS_CURE
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows as the server sends them; only one such query may run at a time."""
        connection = self._installed(cure)
        fetch = f"fetch {_PAGES.get(section, _PAGE)} from {section}"
        # A named cursor of psycopg describes what pgpool-II does not know.
        declared = f"declare {section} no scroll cursor for {self._sql[section]}"
        with self._explained(cure), connection.transaction():
            connection.execute(declared, recordable_values({**_NO_FILTERS, **values}))
            while rows := connection.execute(fetch).fetchall():
                yield from rows
            connection.execute(
                f"close {section}"
            )  # another stream may have its transaction around this one

    def stop_starts(
        self,
        key: str | None,
        host: str | None,
        author: str | None,
        reason: str | None = None,
        seconds: float | None = None,
    ) -> tuple[Any, Row | None]:
        wanted = {"key": key, "host": host, "author": author, "reason": reason, "seconds": seconds}
        sections = ("pause", "resume") if host is None else ("drain", "undrain")
        section = sections[author is None]
        give_up = time.monotonic() + READER_TIMEOUT
        # Until no write is under way. Each try is short, because heartbeats wait behind it.
        while True:
            try:
                found = [*[None] * (author is None), *self._ask(section, wanted, _OPERATORS_CURE)]
                return found[0], found[1] if found[1:] else None
            except StoreUnavailable as error:
                waited = isinstance(error.__cause__, psycopg.errors.LockNotAvailable)
                if not waited or time.monotonic() > give_up:
                    raise
            select.select((), (), (), _RELEASE_POLL)

    @answered
    def forget(self, key: str, author: str) -> bool:
        return bool(self._ask("forget", {"key": key, "author": author}, _OPERATORS_CURE)[0][0])

    @answered
    def forget_host(self, host: str) -> bool:
        return bool(self._ask("forget_host", {"host": host}, _OPERATORS_CURE)[0][0])

    @answered
    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        part = {"key": key, "shard": shard, "execution_id": execution_id}
        return bool(self._ask("request", {**part, **request._asdict()}, _OPERATORS_CURE)[0][0])

    @answered
    def release(
        self, key: str, shard: int, execution_id: int | None, *, author: str, force: bool
    ) -> Released:
        part = {"key": key, "shard": shard, "execution_id": execution_id, "author": author}
        give_up = time.monotonic() + _SESSION_LOCK_FREED_AFTER
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
                give_up = time.monotonic() + _TERMINATED_AFTER
            select.select((), (), (), _RELEASE_POLL)

    @answered
    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
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

    @answered
    def change(self, name: str, by: str, **values: Any) -> Any:
        return self._ask(name.rpartition("/")[2], values, _CURES[by])[0][0]

    @answered
    def pruned(
        self, retention: Retention, names_kept: int, *, dry_run: bool
    ) -> Iterator[tuple[int, int]]:
        values = {**retention._asdict(), "most": _BATCH, "names_kept": names_kept}
        ages = "".join(
            f" --{what} {typed_duration(age)}" for what, age in retention._asdict().items()
        )
        cure = OWNERS_CURE.format(words=f"prune{ages}{' --dry-run' * dry_run}")
        # Until it is rolled back, a key waits for its next start if its newest one has expired.
        rolled_back = self._installed(cure).transaction(force_rollback=True) if dry_run else None
        with self._explained(cure), rolled_back or contextlib.nullcontext():
            yield from self._prune_steps({**values, "key_id": None}, cure)
            self._ask("prune_keys", {}, cure)  # before each key that is left is looked at
            for (key_id,) in self._ask("part_ids", {}, cure):
                yield from self._prune_steps({**values, "key_id": key_id}, cure)

    def _prune_steps(self, values: Mapping[str, Any], cure: str) -> Iterator[tuple[int, int]]:
        more = True
        while more:
            row = self._ask("prune", values, cure)[0]
            yield row[0], row[1]
            more = any(row)

    def offered_roles(self) -> list[str]:
        with self._explained(READERS_CURE):
            values = {"namespace": self._namespace}
            rows = self._connected().execute(self._sql["offered_roles"], values).fetchall()
        return [name for (name,) in rows]

    @answered
    def initialise(
        self, roles: Roles, least: LeastRetention = UNCHANGED, *, progress: Progress = no_progress
    ) -> str:
        connection = self._connected()
        if connection.info.server_version < _OLDEST_SERVER:
            raise StoreRefusesError(
                f"PostgreSQL {masked(self._url)}: server version {connection.info.server_version // 10000} "
                "is too old; oncecron needs 13 or newer"
            )
        progress()
        with self._explained(_init_cure(_init_words(roles, least))):
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
        give_up = time.monotonic() + READER_TIMEOUT
        while True:
            try:
                return self._made(connection, roles, least)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                if time.monotonic() > give_up:
                    raise StoreUnavailable(
                        f"{schema.where(self._namespace)}: not upgraded, because other sessions use its tables "
                        f"({error.diag.message_primary}); end long reports and dumps, and run it again"
                    ) from error
            select.select((), (), (), _RELEASE_POLL)

    def _made(
        self, connection: psycopg.Connection[tuple[Any, ...]], roles: Roles, least: LeastRetention
    ) -> int | None:
        with connection.transaction():
            words = _init_words(roles, least)
            cure = _init_cure(words)
            self._refuse_intruders(connection, words)
            found = self._recorded(connection, cure)
            if found is None:
                changes = sql_files.script(self._namespace)
            else:
                connection.execute(self._sql["lock_schema"])
                # Another session may have upgraded it.
                found = self._recorded(connection, cure) or found
                changes = people_sql.upgrade(self._namespace, found)
            changes += people_sql.settings(self._namespace, least)
            changes += people_sql.grants(self._namespace, roles)
            if changes:
                connection.execute(changes)
        return found.version if found else None

    def _refuse_intruders(
        self, connection: psycopg.Connection[tuple[Any, ...]], words: str
    ) -> None:
        """Raise `StoreRefusesError` if another role could change what is in the schema; `words`: this command."""
        row = connection.execute(self._sql["intruders"], {"namespace": self._namespace}).fetchone()
        if row is None:
            return
        what, role, may_create = row
        if may_create:
            why = f"role {role} may create objects in it; run: revoke create on schema {self._namespace} from {role}"
        elif what == f"schema {self._namespace}":
            owner = command_line(words, as_role(self._url, role), self._namespace)
            why = f"{what} belongs to {role}; if that is right, run {owner}"
        else:
            why = f"{what} belongs to {role}; have it dropped, or given back by alter ... owner to"
        raise StoreRefusesError(f"PostgreSQL, schema {self._namespace}: {why}")

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        changes = people_sql.settings(self._namespace, least) + people_sql.grants(
            self._namespace, roles
        )
        return f"begin;\n\n{people_sql.printed(self._namespace)}\n{changes}commit;\n"

    @answered
    def versions(self) -> tuple[int, str]:
        version = self._installed().info.parameter_status("server_version") or "unknown"
        return schema.VERSION, f"PostgreSQL {version.partition(' ')[0]}"

    @answered
    def examine(self) -> Iterator[Diagnosis]:
        with self._explained(READERS_CURE):
            connection = self._installed()
            yield from examine(connection, self._sql, self._hold, self._filled("{run}"))
        with contextlib.suppress(StoreRefusesError):  # this role may not see the leases
            yield from of_foreign_locks(
                self.leases(),
                self._connected().info.dbname,
                lambda words: command_line(words, self._url, self._namespace),
            )


def _init_words(roles: Roles, least: LeastRetention) -> str:
    words = "init"
    for part, names in roles._asdict().items():
        if names:
            option = "operator" if part == "operate" else part
            words += f" --{option}-role {shell_quoted(','.join(names))}"
    for what, seconds in least.given().items():
        words += f" --keep-{what} {typed_duration(seconds)}"
    return words


def _init_cure(words: str) -> str:
    return INIT_CURE.format(words=words.replace("{", "{{").replace("}", "}}"))
