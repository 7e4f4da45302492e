"""Read and forget the hosts that fire each shard of each key on Redis."""

from __future__ import annotations

from functools import lru_cache

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import KeyHost, count_of_last_day, key_host_of
from oncecron.core.units import HOUR
from oncecron.stores.redis.resp import pairs
from oncecron.stores.redis.rows import json_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.readable import Unreadable
    from oncecron.stores.redis.pipeline import Pipeline


_count = lru_cache(4096)(count_of_last_day)
"""Most hosts have the same counts: they fire the same schedules."""


def listed(pipeline: Pipeline, shards: Sequence[str], unreadable: Unreadable) -> list[KeyHost]:
    """Return the hosts of the shards, by key, shard and host."""
    names = [pipeline.names.of_shard("hosts", shard) for shard in shards]
    (now, _), *hashes = pipeline.ask([("TIME",), *(("HGETALL", name) for name in names)])
    found = (
        unreadable.read(
            f"host {host.decode('utf-8', 'replace')} of {shard}",
            _key_host,
            *(shard, host, text, int(now)),
        )
        for shard, hosts in zip(shards, hashes, strict=True)
        for host, text in pairs(hosts)
    )
    return sorted(filter(None, found))


def forget(pipeline: Pipeline, shards: Sequence[str], host: str) -> bool:
    """Remove a host from the shards; return whether it had fired one."""
    names = [pipeline.names.of_shard("hosts", shard) for shard in shards]
    return any(pipeline.ask([("HDEL", name, host) for name in names]))


def _key_host(part: str, host: bytes, text: bytes, now: int) -> KeyHost:
    key, _, shard = part.rpartition("#")
    row = json_of(text)
    passed = now // HOUR - int(row["hour"])
    return key_host_of(
        *(key, int(shard), host.decode("utf-8", "replace"), float(row["seen_at"]), row["version"]),
        *(float(row["clock_ahead"]), row.get("ticks"), row.get("ticks_at")),
        *(row.get("schedule"), row.get("zone"), row.get("command")),
        *(_count(row["wins"], passed), _count(row["skips"], passed)),
    )
