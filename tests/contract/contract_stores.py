"""The stores that keep the contract: how the suite makes one, and moves its clock.

To add a store: a class with the members of `StoreKind`, and its name in `KINDS`.
"""

import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, Protocol

import pytest
from older import older, older_past
from postgres_stores import PooledPostgresKind, PostgresKind, UnheldPostgresKind, WarmPostgresKind
from redis_stores import RedisKind

from oncecron.core import clock
from oncecron.core.log_rows import LeastRetention, Roles
from oncecron.stores.api import LeaseStore
from oncecron.stores.reader import Reader
from oncecron.stores.sqlite.lease_store import SQLiteLeaseStore
from oncecron.stores.sqlite.reader import SQLiteReader
from oncecron_each.store import ItemStore

sys.path.append(str(Path(__file__).parents[1] / "simulation"))

from memory_reader import MemoryReader
from memory_store import Memory, MemoryStore


class StoreKind(Protocol):
    """An empty store that can be asked as many hosts, and whose rows can be moved in time.

    It has no least retention: what a test prunes is what it names.
    """

    own_clock: ClassVar[bool]
    """Whether its clock can differ from the host's."""
    is_shared: ClassVar[bool]
    """Whether another process can connect to it."""
    has_connections: ClassVar[bool]
    """Whether `cut` ends anything."""
    address: str
    """What `connect` takes in another process."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Make an empty store, with what fixtures give."""

    @staticmethod
    def connect(address: str) -> LeaseStore:
        """Return the firing half of the store at this address."""

    def firing(self) -> LeaseStore:
        """Return the firing half as another host has it."""

    def items(self) -> ItemStore:
        """Return the items of a firing as the worker of another host has them."""

    def people(self) -> Reader:
        """Return the people's half."""

    def cut(self) -> None:
        """End all connections of hosts, whatever they are doing."""

    def age(self, seconds: float) -> None:
        """Make all that is recorded that much older; negative: as if the store's clock had been set back."""

    def pass_time(self, seconds: float) -> None:
        """Let time pass by the store's clock, and not return before."""

    def expire(self, key: str, shard: int = 0) -> None:
        """Make the present lease of a part of the key expired, its holder silent and without a session."""

    def stored_items(self) -> int:
        """Return how many items are stored, those of lists that nobody sees included."""

    def fence(self, key: str) -> int:
        """Return the last fencing token of the key's first part."""

    def mark(self, key: str, high_water: float | None, last_start: float | None) -> None:
        """Write the marks of a key's first shard, which a wrong clock may have left."""

    def empty(self) -> None:
        """Remove everything that is recorded."""

    def without_lock(self, backend_pid: int | None) -> bool:
        """Whether no session of this server process holds a lock."""

    def close(self) -> None:
        """Give back what was taken."""


class SQLiteKind:
    """A file of its own."""

    own_clock: ClassVar[bool] = False
    is_shared: ClassVar[bool] = True
    has_connections: ClassVar[bool] = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.address = str(request.getfixturevalue("tmp_path") / "contract.db")
        self._given: list[LeaseStore | ItemStore | Reader] = []
        self.people().initialise(Roles(), LeastRetention(0.0, 0.0))

    @staticmethod
    def connect(address: str) -> LeaseStore:
        return SQLiteLeaseStore(address, namespace="oncecron")

    def firing(self) -> LeaseStore:
        store = self.connect(self.address)
        self._given.append(store)
        return store

    def items(self) -> ItemStore:
        from oncecron_each.sqlite_store import SQLiteItemStore

        store = SQLiteItemStore(self.address, namespace="oncecron")
        self._given.append(store)
        return store

    def people(self) -> Reader:
        store = SQLiteReader(self.address, namespace="oncecron")
        self._given.append(store)
        return store

    def cut(self) -> None:
        """There are none."""

    def age(self, seconds: float) -> None:
        times = {
            "job_key": ("last_start", "previous_start", "expected_since", "forgotten_at"),
            "job_execution": ("started_at", "finished_at", "lost_at"),
            "lease": (
                *("heartbeat_on_lease_clock", "expires_on_lease_clock"),
                *("acquired_at", "heartbeat_at", "expires_at", "request_acknowledged_at"),
            ),
            "skip": ("at",),
            "plain_skips": ("at",),
            "pause": ("at", "until"),
            "item_list": ("loaded_at",),
            "item_slot": ("taken_at",),
            "item_batch": ("taken_at", "settled_at"),
            "item_mark": ("not_before", "changed_at"),
            "key_host": ("seen_at",),
        }
        statements = ["BEGIN"]
        for table, columns in times.items():
            moved = ", ".join(f"{column} = {column} - {seconds}" for column in columns)
            statements.append(f"UPDATE {table} SET {moved}")
        statements.append("UPDATE key_host SET presence = older(presence)")
        statements.append("UPDATE pause SET past = older_past(past)")
        with closing(sqlite3.connect(self.address, isolation_level=None)) as database:
            database.create_function("older", 1, lambda text: older(text, seconds))
            database.create_function("older_past", 1, lambda text: older_past(text, seconds))
            database.executescript(";".join([*statements, "COMMIT"]))

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def expire(self, key: str, shard: int = 0) -> None:
        """End the lease a second ago, a ttl after its last heartbeat."""
        self.run(
            "UPDATE lease SET expires_on_lease_clock = :now - 1, heartbeat_on_lease_clock = :now - 1 - ttl,"
            " expires_at = :wall - 1, heartbeat_at = :wall - 1 - ttl WHERE key = :key AND shard = :shard",
            key=key,
            shard=shard,
            now=clock.lease_time(clock.MONOTONIC),
            wall=clock.wall(),
        )

    def stored_items(self) -> int:
        [(count,)] = self.run("SELECT count(*) FROM item")
        assert isinstance(count, int)
        return count

    def fence(self, key: str) -> int:
        [(fence,)] = self.run("SELECT fence FROM job_key WHERE key = :key AND shard = 0", key=key)
        assert isinstance(fence, int)
        return fence

    def mark(self, key: str, high_water: float | None, last_start: float | None) -> None:
        self.run(
            "UPDATE job_key SET high_water = :high_water, last_start = :last_start, previous_start = :last_start"
            " WHERE key = :key AND shard = 0",
            key=key,
            high_water=high_water,
            last_start=last_start,
        )

    def empty(self) -> None:
        items = ("item", "item_slot", "item_batch", "item_mark", "item_list")
        tables = (*items, *("lease", "skip", "key_host", "pause"), *("job_execution", "job_key"))
        statements = ["BEGIN", *(f"DELETE FROM {table}" for table in tables), "COMMIT"]
        with closing(sqlite3.connect(self.address, isolation_level=None)) as database:
            database.executescript(";".join(statements))

    def without_lock(self, backend_pid: int | None) -> bool:
        return backend_pid is None

    def run(self, statement: str, **values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.address, isolation_level=None)) as database:
            return database.execute(statement, values).fetchall()

    def close(self) -> None:
        for store in self._given:
            store.close()


class MemoryKind:
    """The store of the simulator."""

    own_clock: ClassVar[bool] = True
    is_shared: ClassVar[bool] = False
    has_connections: ClassVar[bool] = False
    address = ""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._passed, self._lock = 0.0, RLock()
        self.memory = Memory(self._now)
        self.empty()
        self._step_by_step(self.memory)

    def _now(self) -> float:
        return time.time() + self._passed

    def _step_by_step(self, half: Any) -> Any:
        def step(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
            with self._lock:
                return method(*args, **named)

        for name in dir(half):
            if not name.startswith("_") and callable(method := getattr(half, name)):
                setattr(half, name, partial(step, method))
        return half

    def empty(self) -> None:
        vars(self.memory).update(vars(Memory(self._now)))
        self.memory.least = {"executions": 0.0, "skips": 0.0}

    def firing(self) -> LeaseStore:
        return MemoryStore(self.memory)

    def items(self) -> ItemStore:
        from memory_items import MemoryItems

        return self._step_by_step(MemoryItems(self.memory))

    def people(self) -> Reader:
        return self._step_by_step(MemoryReader(self.memory))

    def cut(self) -> None:
        """There are no connections."""

    def age(self, seconds: float) -> None:
        memory = self.memory
        memory.oldest -= seconds
        memory.stops = {
            place: stop._replace(
                since=stop.since - seconds,
                until=None if stop.until is None else stop.until - seconds,
            )
            for place, stop in memory.stops.items()
        }
        memory.past = [(place, *(at - seconds for at in span)) for place, *span in memory.past]
        rows = [row for found in memory.lists.values() for row in (found, *found["items"])]
        for part in memory.parts.values():
            rows += [part.marks, *filter(None, [part.lease]), *part.rows.values()]
            rows += [*part.skips.values(), *part.plain.values(), *part.hosts.values()]
        for row in rows:
            row.update(
                {name: row[name] - seconds for name in _TIMES & {*row} if row[name] is not None}
            )
            if "presence" in row:
                row["presence"] = older(row["presence"], seconds)

    def pass_time(self, seconds: float) -> None:
        self._passed += seconds

    def expire(self, key: str, shard: int = 0) -> None:
        """End the lease a second ago, a ttl after its last heartbeat."""
        lease, now = self.memory.parts[key, shard].lease, self._now()
        assert lease
        lease |= {"expires_at": now - 1, "heartbeat_at": now - 1 - lease["ttl"]}

    def stored_items(self) -> int:
        return sum(len(found["items"]) for found in self.memory.lists.values())

    def fence(self, key: str) -> int:
        return int(self.memory.parts[key, 0].marks["fence"])

    def mark(self, key: str, high_water: float | None, last_start: float | None) -> None:
        marks = {"high_water": high_water, "last_start": last_start, "previous_start": last_start}
        self.memory.parts[key, 0].marks |= marks

    def without_lock(self, backend_pid: int | None) -> bool:
        return backend_pid is None

    def close(self) -> None:
        """There is nothing to close."""


_TIMES = {
    *("started_at", "finished_at", "lost_at", "last_start", "previous_start", "expected_since"),
    *("forgotten_at", "acquired_at", "heartbeat_at", "expires_at", "request_acknowledged_at"),
    *("at", "seen_at", "loaded_at", "since", "not_before"),
}
KINDS: dict[str, type[StoreKind]] = {
    "memory": MemoryKind,
    "sqlite": SQLiteKind,
    "postgres": PostgresKind,
    "pooled": PooledPostgresKind,
    "unheld": UnheldPostgresKind,
    "warm": WarmPostgresKind,
    "redis": RedisKind,
}
