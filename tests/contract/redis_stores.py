"""Redis as a store that keeps the contract."""

import json
import time
from typing import ClassVar

import pytest
from older import older, older_past

from oncecron.core import clock
from oncecron.stores.api import LeaseStore
from oncecron.stores.reader import Reader
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.lease_store import RedisLeaseStore
from oncecron.stores.redis.reader import RedisReader
from oncecron_each.store import ItemStore

TTL = 60.0
TIMES = ("newest_start", "started_at", "finished_at", "lost_at", "last_start", "previous_start", "acquired_at",
         "heartbeat_at", "expires_at", "request_acknowledged_at", "at", "until",
         "expected_since", "forgotten_at", "seen_at", "loaded_at", "taken_at", "settled_at",
         "changed_at", "not_before")  # fmt: skip
PREFIX = "oncecron:{oncecron}:"


class RedisKind:
    """A server without data."""

    own_clock: ClassVar[bool] = True
    is_shared: ClassVar[bool] = True
    has_connections: ClassVar[bool] = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server = request.getfixturevalue("redis_server")
        self.client = self.server.connect(decode_responses=True)
        self.address = self.server.url()
        self._given: list[LeaseStore | ItemStore | Reader] = []
        self.empty()

    @staticmethod
    def connect(address: str) -> LeaseStore:
        return RedisLeaseStore(parse(address, {}), namespace="oncecron", ttl=TTL)

    def firing(self) -> LeaseStore:
        store = self.connect(self.address)
        self._given.append(store)
        return store

    def items(self) -> ItemStore:
        from oncecron_each.redis_store import RedisItemStore

        store = RedisItemStore(parse(self.address, {}), namespace="oncecron", ttl=TTL)
        self._given.append(store)
        return store

    def people(self) -> Reader:
        store = RedisReader(parse(self.address, {}), namespace="oncecron")
        self._given.append(store)
        return store

    def cut(self) -> None:
        self.client.client_kill_filter(_type="normal", skipme=True)

    def age(self, seconds: float) -> None:
        for name in self.client.keys(f"{PREFIX}*"):
            kind = self.client.type(name)
            if kind == "hash":
                of_hosts = name.startswith(f"{PREFIX}hosts:")
                for field, text in self.client.hgetall(name).items():
                    moved = (
                        _seen_earlier(text, seconds) if of_hosts else _older(field, text, seconds)
                    )
                    self.client.hset(name, field, moved)
            elif kind == "zset" and (
                ":skips:" in name or ":plain:" in name or ":due:" in name or name.endswith(":lists")
            ):
                for member in self.client.zrange(name, 0, -1):
                    self.client.zincrby(name, -seconds, member)

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def expire(self, key: str, shard: int = 0) -> None:
        """End the lease a second ago, a ttl after its last heartbeat."""
        now = clock.wall()
        times = {"expires_at": f"{now - 1:.6f}", "heartbeat_at": f"{now - 1 - TTL:.6f}"}
        self.client.hset(f"{PREFIX}lease:{key}#{shard}", mapping=times)

    def stored_items(self) -> int:
        return sum(self.client.hlen(name) for name in self.client.keys(f"{PREFIX}items:*"))

    def fence(self, key: str) -> int:
        return int(self.client.hget(f"{PREFIX}key:{key}#0", "fence"))

    def mark(self, key: str, high_water: float | None, last_start: float | None) -> None:
        marks = {"high_water": high_water, "last_start": last_start, "previous_start": last_start}
        for name, value in marks.items():
            if value is not None:
                self.client.hset(f"{PREFIX}key:{key}#0", name, f"{value:.6f}")

    def empty(self) -> None:
        """Delete every name of the namespace, but keep no record longer than a test wants."""
        if names := self.client.keys(f"{PREFIX}*"):
            self.client.delete(*names)
        self.client.hset(PREFIX + "namespace", mapping={"least_executions": 0, "least_skips": 0})

    def without_lock(self, backend_pid: int | None) -> bool:
        return backend_pid is None

    def close(self) -> None:
        for store in self._given:
            store.close()
        self.client.close()


def _seen_earlier(text: str, seconds: float) -> str:
    """Return the value of a host, that much earlier."""
    seen_at, _, presence = text.partition(" ")
    return f"{float(seen_at) - seconds:.6f} {older(presence, seconds)}"


def _older(field: str, text: str, seconds: float) -> str:
    if text.startswith("{"):
        row = json.loads(text)
        older = {
            name: _older(name, value, seconds) if isinstance(value, str) else value
            for name, value in row.items()
        }
        return json.dumps(older)
    if field == "past":
        return older_past(text, seconds)
    if field == "hosts_at":
        return str(int(text) - int(seconds // 3600))
    return f"{float(text) - seconds:.6f}" if field in TIMES else text
