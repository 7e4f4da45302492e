"""PostgreSQL as a store that keeps the contract: directly, and behind a transaction pooler."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from older import older, older_past
from servers import Database, PostgresServer, eventually

from oncecron.core.log_rows import LeastRetention, Roles
from oncecron.stores.api import LeaseStore
from oncecron.stores.postgres.lease_store import PostgresLeaseStore
from oncecron.stores.postgres.reader import PostgresReader
from oncecron.stores.reader import Reader
from oncecron_each.store import ItemStore

TTL = 60.0
TIMES = {
    "job_key": (
        *("last_started_at", "previous_started_at", "newest_started_at"),
        *("expected_since", "forgotten_at"),
        *("acquired_at", "heartbeat_at", "expires_at", "request_acknowledged_at"),
    ),
    "job_execution": ("started_at", "finished_at", "lost_at"),
    "skip": ("at",),
    "pause": ("created_at", "until"),
    "item_list": ("loaded_at",),
    "item_slot": ("taken_at",),
    "item_batch": ("taken_at", "settled_at"),
    "item_mark": ("not_before", "changed_at"),
    "key_host": ("seen_at",),
}
OLDER_PLAIN_SKIPS = """
update oncecron.plain_skips set plain_from = plain_from - {0} / 60, plain_until = plain_until - {0} / 60;
update oncecron.key_host set plain_from = plain_from - {0} / 60
"""
OLDER_PAUSE = "update oncecron.pause set past = %s where kind = %s and name = %s"
OLDER_HOST = "update oncecron.key_host set presence = %s where key_id = %s and host = %s"


@contextmanager
def installed(server: PostgresServer) -> Iterator[Database]:
    """Make a database with the schema, for the stores of all tests to copy."""
    with server.create_database().until_dropped() as database:
        owner = PostgresReader(database.url("owner"), namespace="oncecron")
        owner.initialise(Roles(run=("runner",), read=("reader",)), LeastRetention(0.0, 0.0))
        owner.close()
        yield database


class PostgresKind:
    """A database of its own; the hosts are roles that may only run, read, or own."""

    own_clock: ClassVar[bool] = True
    is_shared: ClassVar[bool] = True
    has_connections: ClassVar[bool] = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.database = request.getfixturevalue("new_database")()
        self._given: list[LeaseStore | ItemStore | Reader] = []
        self.address = self.database.url("runner", via=self.way(request))

    @staticmethod
    def way(request: pytest.FixtureRequest) -> Any:
        del request

    @staticmethod
    def connect(address: str) -> LeaseStore:
        """Open a session of its own at the first call."""
        return PostgresLeaseStore(address, namespace="oncecron", ttl=TTL)

    def firing(self) -> LeaseStore:
        store = self.connect(self.address)
        self._given.append(store)
        return store

    def items(self) -> ItemStore:
        from oncecron_each.postgres_store import PostgresItemStore

        store = PostgresItemStore(self.address, namespace="oncecron", ttl=TTL)
        self._given.append(store)
        return store

    def people(self) -> Reader:
        """Return what the owner asks: pruning is no reader's right."""
        store = PostgresReader(self.database.url("owner"), namespace="oncecron")
        self._given.append(store)
        return store

    def cut(self) -> None:
        self.database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'runner'"
            " and datname = current_database()"
        )

    def age(self, seconds: float) -> None:
        """Move every time in every table, and make retention due, which is by chance."""
        by = f"make_interval(secs => {seconds})"
        statements = [
            f"update oncecron.{table} set "
            + ", ".join(f"{column} = {column} - {by}" for column in columns)
            for table, columns in TIMES.items()
        ]
        rounded = OLDER_PLAIN_SKIPS.format(round(seconds))
        due = "update oncecron.job_key set prunes = true"
        self.database.execute("; ".join([*statements, rounded, due]))
        hosts = "select presence, key_id, host from oncecron.key_host"
        for presence, *place in self.database.execute(hosts):
            self.database.execute(OLDER_HOST, older(presence, seconds), *place)
        for past, *name in self.database.execute("select past, kind, name from oncecron.pause"):
            self.database.execute(OLDER_PAUSE, older_past(past, seconds), *name)

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def expire(self, key: str, shard: int = 0) -> None:
        """End the lease a second ago, a ttl after its last heartbeat, and all sessions."""
        for store in self._given:
            store.close()
        self.database.execute(
            "update oncecron.job_key set expires_at = clock_timestamp() - interval '1 s',"
            " heartbeat_at = clock_timestamp() - interval '1 s' - ttl"
            " where owner is not null and key = %s and shard = %s",
            *(key, shard),
        )
        eventually(lambda: self.database.execute(
            "select 1 from pg_locks where locktype = 'advisory' and objsubid = 2") == [])  # fmt: skip

    def stored_items(self) -> int:
        [(count,)] = self.database.execute("select count(*) from oncecron.item")
        return int(count)

    def fence(self, key: str) -> int:
        statement = "select fence from oncecron.job_key where key = %s and shard = 0"
        [(fence,)] = self.database.execute(statement, key)
        return int(fence)

    def mark(self, key: str, high_water: float | None, last_start: float | None) -> None:
        self.database.execute(
            "update oncecron.job_key set high_water = to_timestamp(%s), last_started_at = to_timestamp(%s),"
            " previous_started_at = to_timestamp(%s) where key = %s and shard = 0",
            *(high_water, last_start, last_start, key),
        )

    def empty(self) -> None:
        """Delete the rows, which for a few is faster than to truncate the tables."""
        tables = (
            *("skip", "key_host", "pause", "job_output", "job_execution"),
            *("item", "item_mark", "item_batch", "item_list"),
        )
        statements = [f"delete from oncecron.{table}" for table in (*tables, "job_key")]
        self.database.execute("; ".join(statements))

    def without_lock(self, backend_pid: int | None) -> bool:
        statement = "select 1 from pg_locks where locktype = 'advisory' and pid = %s"
        return self.database.execute(statement, backend_pid) == []

    def close(self) -> None:
        for store in self._given:
            store.close()


class PooledPostgresKind(PostgresKind):
    """The same through PgBouncer in transaction mode: the lease's row stands alone."""

    @staticmethod
    def way(request: pytest.FixtureRequest) -> Any:
        return request.getfixturevalue("pgbouncer")


class UnheldPostgresKind(PostgresKind):
    """The same with `?hold=no`: hosts hold no session."""

    @staticmethod
    def connect(address: str) -> LeaseStore:
        """Open a session at the first call, as a pooler's."""
        return PostgresLeaseStore(address, namespace="oncecron", ttl=TTL, hold="no")


class _WarmLeaseStore(PostgresLeaseStore):
    def _door(self, function: str, deadline: float) -> str:
        del deadline
        return f"warm_{function}"


class WarmPostgresKind(PostgresKind):
    """Directly, by the functions that are for the sessions of poolers."""

    @staticmethod
    def connect(address: str) -> LeaseStore:
        """Open a session at the first call, as if it had been used before."""
        return _WarmLeaseStore(address, namespace="oncecron", ttl=TTL)
