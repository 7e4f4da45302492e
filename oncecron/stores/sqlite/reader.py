"""The commands for people on SQLite."""

from __future__ import annotations

import glob
import json
import os
import sqlite3
from contextlib import closing
from functools import partial

from oncecron.core import clock
from oncecron.core.decision import PLAIN_WINDOW
from oncecron.core.diagnosis import Diagnosis
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import UNCHANGED, Execution, Released, Skip, SkipReason, Unblocked
from oncecron.core.model import owner_digest
from oncecron.core.progress import no_progress
from oncecron.core.timing import HEARTBEATS_PER_TTL, MAX_CLOCK_SKEW, READER_TIMEOUT
from oncecron.host.names import boot_id
from oncecron.stores.address import DEFAULT_NAMESPACE
from oncecron.stores.reader import PackedRuns, PackedSkips, Reader, answered, brought
from oncecron.stores.sqlite.connection import (
    SCHEMA_OLDEST,
    SCHEMA_VERSION,
    Handle,
    connect,
    explained,
    file_of,
    plugin_files,
    statements,
)
from oncecron.stores.sqlite.lease_store import moment, raise_fence, take_away
from oncecron.stores.sqlite.retention import (
    at_least,
    expire_executions,
    expire_items,
    expire_names,
    expire_skips,
    forget_old,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from oncecron.core.log_rows import LeastRetention, Roles
    from oncecron.core.model import Request, Retention
    from oncecron.core.progress import Progress
    from oncecron.stores.api import Row
    from oncecron.stores.sqlite.connection import Connection

_SIGNATURE = b"SQLite format 3\0"
"""The first bytes of a database; its -wal and -shm files, which have names like a namespace's, begin differently."""
_ROWS_PER_STEP = 500
"""Rows that one transaction of a prune removes; firings can run between two."""
_ITEMS_PER_STEP = 5000
_NO_LIMIT = -1
"""As the LIMIT of SQLite."""
_OWNER = Execution._fields.index("owner")
_CONSTANTS = {"heartbeats": HEARTBEATS_PER_TTL, "plain_window": PLAIN_WINDOW}
"""What some statements need beside the bounds of their view and the time."""


class SQLiteReader(Reader):
    """The people's half of the store in a SQLite file; see `oncecron.stores.api.Views`.

    Only `initialise` creates a missing file.
    """

    def __init__(self, path: str, *, namespace: str) -> None:
        super().__init__()
        self._default_path = path
        path = file_of(path, namespace)
        names = ("reader", "firing", "retention", *plugin_files())
        self._handle = Handle(path, create=False, statements=names)
        self._boot = boot_id()

    @answered
    def rows(self, view: str, **bounds: Any) -> Iterator[Row]:
        view = view.rpartition("/")[2]  # a plugin's query is among the others
        if view == "namespaces":
            yield from ((name,) for name in self._namespaces())
            return
        if view == "runs":
            yield from self.rows("single_runs", **bounds)
            yield from self.rows("packed_runs", **bounds)
            return
        with self._handle.until(_deadline()) as store:
            known = {
                **_CONSTANTS,
                **moment(self._boot),
                **{name: _bound(bounds[name]) for name in bounds},
            }
            rows = store.execute(_statement(view, bounds), **known)
            yield from map(_MADE_OF.get(view, tuple), rows)

    def _namespaces(self) -> Iterator[str]:
        stem, suffix = os.path.splitext(self._default_path)
        if _is_database(self._default_path):
            yield DEFAULT_NAMESPACE
        for path in glob.iglob(f"{glob.escape(stem)}-*{glob.escape(suffix)}"):
            if _is_database(path):
                yield path.removeprefix(f"{stem}-").removesuffix(suffix)

    def stop_starts(
        self,
        key: str | None,
        host: str | None,
        author: str | None,
        reason: str | None = None,
        seconds: float | None = None,
    ) -> tuple[Any, Row | None]:
        since = clock.wall()
        until = None if seconds is None else since + seconds
        row = {"key": key, "host": host, "author": author, "reason": reason, "since": since}
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            found = {tuple(each)[:2]: each for each in store.execute("pauses", now=since)}
            store.execute("put_pause" if author else "take_pause", **row, until=until)
        return (*row.values(), until) if author else None, found.get((key, host))

    @answered
    def forget(self, key: str, author: str) -> bool:
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            return bool(store.execute("forget", key=key, author=author, now=clock.wall()).rowcount)

    @answered
    def forget_host(self, host: str) -> bool:
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            return bool(store.execute("forget_host", host=host).rowcount)

    @answered
    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        asked = {"key": key, "shard": shard, "execution_id": execution_id, **request._asdict()}
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            has_lease = bool(store.execute("put_request", **asked).rowcount)
            if has_lease:
                store.execute("note_requester", **asked)
        return has_lease

    @answered
    def release(
        self,
        key: str,
        shard: int,
        execution_id: int | None,
        *,
        author: str,
        force: bool,  # noqa: ARG002 - no session holds a lock
    ) -> Released:
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

    @answered
    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            now = clock.wall()
            asked = {"key": key, "shard": shard, "now": now, "latest": now + MAX_CLOCK_SKEW}
            found = [Unblocked(*row) for row in store.execute("wrong_marks", **asked)]
            store.execute("cut_marks", **asked)
        return found

    @answered
    def change(self, name: str, by: str, **values: Any) -> Any:
        del by
        with self._handle.until(_deadline()) as store, store.writing(durable=True):
            return brought(name, "sqlite")(store, **values, **moment(self._boot))

    @answered
    def pruned(
        self, retention: Retention, names_kept: int, *, dry_run: bool
    ) -> Iterator[tuple[int, int]]:
        in_steps = self._without_a_step if dry_run else self._in_steps
        now, most = moment(boot_id()), _ROWS_PER_STEP
        with self._handle.until(_deadline()) as store:
            kept = at_least(store, retention)
            parts = [(row["key"], row["shard"]) for row in store.execute("parts_with_names")]
        before, skips_before = now["now"] - kept.executions, now["now"] - kept.skips
        for gone in in_steps(partial(expire_executions, before=before, most=most)):
            yield gone, 0
        for gone in in_steps(partial(expire_skips, before=skips_before, most=most)):
            yield 0, gone
        limits = {"before": before, "names_kept": names_kept, "most": most}
        for part in parts:
            for gone in in_steps(partial(expire_names, part=part, **limits)):
                yield gone, 0
        if not dry_run:
            of_items = {"before": before, "moment": now, "most": _ITEMS_PER_STEP}
            for _ in self._in_steps(partial(expire_items, **of_items)):
                yield 0, 0
            with self._handle.until(_deadline()) as store, store.writing(durable=False):
                forget_old(store, now["now"])

    def _in_steps(self, step: Callable[[Any], int]) -> Iterator[int]:
        """Repeat a step, each in a transaction of its own, until it removes nothing; yield how much each removes."""
        more = 1
        while more:
            with self._handle.until(_deadline()) as store, store.writing(durable=False):
                more = step(store)
            yield more

    def _without_a_step(self, step: Callable[[Any], int]) -> Iterator[int]:
        with self._handle.until(_deadline()) as store, store.reading():
            found = step(_DryStore(store))
        yield found

    @answered
    def initialise(
        self, roles: Roles, least: LeastRetention = UNCHANGED, *, progress: Progress = no_progress
    ) -> str:
        _refuse_roles(roles)
        path = self._handle.path
        with closing(connect(path, deadline=_deadline(), create=True, check=False)) as connection:
            try:
                found = connection.upgrade()
            except sqlite3.Error as error:
                raise explained(error, path) from error
        progress()
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

    @answered
    def versions(self) -> tuple[int, str]:
        return SCHEMA_VERSION, f"SQLite {sqlite3.sqlite_version}"

    @answered
    def examine(self) -> Iterator[Diagnosis]:
        with self._handle.until(_deadline()):
            text = f"{self._handle.path}, for this machine alone (SQLite {sqlite3.sqlite_version})"
        yield Diagnosis("ok", "server", text)

    def close(self) -> None:
        self._handle.close()


class _Removable(list):  # type: ignore[type-arg]
    @property
    def rowcount(self) -> int:
        """Return how many rows a statement that returns none would remove."""
        return int(self[0][0])


class _DryStore:
    def __init__(self, store: Connection) -> None:
        self.one = store.one
        self._store = store

    def execute(self, name: str, /, **values: Any) -> _Removable:
        """Ask for all rows at once."""
        return _Removable(self._store.removable(name, **{**values, "most": _NO_LIMIT}))


def _deadline() -> float:
    return clock.lease_time(clock.MONOTONIC) + READER_TIMEOUT


def _statement(view: str, bounds: Mapping[str, Any]) -> str:
    if view == "executions":
        return _history_statement(bounds)
    if view == "skips":
        return "skips" if bounds["key"] is None else "skips_of_key"
    is_of_few = view == "reasons" and bounds["wanted"] is not None
    return "reasons_of_ticks" if is_of_few else view


def _history_statement(bounds: Mapping[str, Any]) -> str:
    if bounds["exhausted"]:
        return "dead_letters"
    if bounds["after_id"] is not None:
        return "history_after"
    if bounds["key"] is None:
        return "history"
    return "history_of_key" if bounds["tick"] is None else "history_of_tick"


def _published(row: Any) -> Row:
    owner = row[_OWNER]
    digest = owner_digest(owner) if isinstance(owner, str) else None
    return (*row[:_OWNER], digest, *row[_OWNER + 1 :])


def _unless_packed(fields: int) -> Callable[[Any], Row]:
    def made(row: Any) -> Row:
        if row[-1] is None:
            return row[:fields]  # type: ignore[no-any-return]
        return PackedSkips(*(row[field] for field in PackedSkips._fields))

    return made


def _bound(value: object) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


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


_MADE_OF: dict[str, Callable[[Any], Row]] = {
    **dict.fromkeys(("executions", "execution", "newest", "timeline", "single_runs"), _published),
    "packed_runs": PackedRuns._make,
    "skips": _unless_packed(len(Skip._fields) + 1),
    "reasons": _unless_packed(len(SkipReason._fields)),
}
"""What is made of the rows of a view."""
