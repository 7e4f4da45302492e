"""Read and forget the hosts that fire each shard of each key on Redis."""

from __future__ import annotations

from functools import lru_cache

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import (
    HostTicks,
    KeyHost,
    count_of_last_day,
    host_ticks_of,
    key_host_of,
)
from oncecron.core.units import HOUR
from oncecron.stores.redis.rows import json_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from oncecron.core.readable import Unreadable
    from oncecron.stores.redis.people_client import PeopleClient


_count = lru_cache(4096)(count_of_last_day)
"""Most hosts have the same counts: they fire the same schedules."""


def listed(pipeline: PeopleClient, shards: Sequence[str], unreadable: Unreadable) -> list[KeyHost]:
    """Return the hosts of the shards, by key, shard and host."""
    (now, _), *hashes = pipeline.ask([("TIME",), *_commands(pipeline, shards)])
    found = (
        unreadable.read(f"host {host} of {shard}", _key_host, shard, host, text, int(now))
        for shard, host, text in _entries(shards, hashes)
    )
    return sorted(filter(None, found))


def ticks(pipeline: PeopleClient, shards: Sequence[str], unreadable: Unreadable) -> list[HostTicks]:
    """Return less of the hosts of the shards."""
    found = (
        unreadable.read(f"host {host} of {shard}", _host_ticks, shard, host, text)
        for shard, host, text in _entries(shards, pipeline.ask(_commands(pipeline, shards)))
    )
    return sorted(filter(None, found))


def _commands(pipeline: PeopleClient, shards: Iterable[str]) -> list[tuple[str, str]]:
    return [("HGETALL", pipeline.names.of_shard("hosts", shard)) for shard in shards]


def _entries(shards: Iterable[str], hashes: Iterable[Any]) -> Iterator[tuple[str, str, bytes]]:
    """Yield shard, host and text of each host."""
    for shard, hosts in zip(shards, hashes, strict=True):
        for host, text in hosts.items():
            yield shard, host.decode("utf-8", "replace"), text


def forget(pipeline: PeopleClient, shards: Sequence[str], host: str) -> bool:
    """Remove a host from the shards; return whether it had fired one."""
    names = [pipeline.names.of_shard("hosts", shard) for shard in shards]
    return any(pipeline.ask([("HDEL", name, host) for name in names]))


def _key_host(part: str, host: str, text: bytes, now: int) -> KeyHost:
    key, _, shard = part.rpartition("#")
    row = json_of(text)
    passed = now // HOUR - int(row["hour"])
    return key_host_of(
        *(key, int(shard), host, float(row["seen_at"]), row["version"]),
        *(float(row["clock_ahead"]), row.get("ticks"), row.get("ticks_at")),
        *(row.get("schedule"), row.get("zone"), row.get("command")),
        *(_count(row["wins"], passed), _count(row["skips"], passed), row.get("twice")),
    )


def _host_ticks(part: str, host: str, text: bytes) -> HostTicks:
    key, _, _ = part.rpartition("#")
    row = json_of(text)
    times = float(row["seen_at"]), float(row["clock_ahead"])
    return host_ticks_of(key, host, *times, row.get("ticks"), row.get("ticks_at"), row.get("twice"))
