"""The log of a store as the tests read it: straight from its tables, whatever `oncecron` says of it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from servers import Database


class Record(NamedTuple):
    """An execution."""

    tick: str | None
    attempt: int
    outcome: str
    exit_code: int | None
    signal: int | None
    note: str | None
    host: str
    command: str


class Skipped(NamedTuple):
    """A refusal."""

    tick: str
    reason: str
    host: str
    holder_host: str | None
    count: int


class Store(Protocol):
    """A store that two hosts share."""

    url: str
    owner_url: str
    """For whoever may remove records."""

    def query(self, statement: str, key: str) -> list[Any]:
        """Return the rows of a statement with one `{key}` in it."""


class PostgresLog:
    """A database."""

    def __init__(self, database: Database) -> None:
        self.url = database.url()
        self.owner_url = database.url("owner")
        self._database = database

    def query(self, statement: str, key: str) -> list[Any]:
        """Run the statement as superuser."""
        statement = statement.replace("{log}", "oncecron.executions").replace("{ns}", "oncecron.")
        rows = self._database.execute(statement.replace("{key}", "%s"), key)
        return [tuple(row) for row in rows]


class SQLiteLog:
    """A file."""

    def __init__(self, path: Path) -> None:
        self.url = self.owner_url = f"sqlite://{path}"
        self._path = path

    def query(self, statement: str, key: str) -> list[Any]:
        """Run the statement in a connection of its own."""
        if not self._path.exists():
            return []  # nobody has asked this store yet
        statement = statement.replace("{log}", "job_execution").replace("{ns}", "")
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
            return database.execute(statement.replace("{key}", "?"), [key]).fetchall()


def executions(store: Store, key: str) -> list[Record]:
    """Return the executions of a key, the oldest first."""
    columns = "tick, attempt, outcome, exit_code, signal, note, host, command"
    statement = f"select {columns} from {{log}} where key = {{key}} order by execution_id"
    return [Record(*row) for row in store.query(statement, key)]


def skips(store: Store, key: str) -> list[Skipped]:
    """Return the refusals of a key, the oldest first."""
    statement = "select coalesce(tick, ''), reason, host, holder_host, count from {ns}{table} where key = {key}"
    table = "skips" if isinstance(store, PostgresLog) else "skip"
    return [
        Skipped(*row)
        for row in store.query(statement.replace("{table}", table) + " order by at", key)
    ]


def heartbeat(store: Store, key: str) -> float | None:
    """Return when the lease of a key was last renewed, in seconds since the epoch."""
    if isinstance(store, PostgresLog):
        rows = store.query(
            "select extract(epoch from heartbeat_at)::float8 from {ns}leases"
            " where key = {key} and heartbeat_at is not null",
            key,
        )
    else:
        rows = store.query("select heartbeat_at from lease where key = {key}", key)
    return rows[0][0] if rows else None
