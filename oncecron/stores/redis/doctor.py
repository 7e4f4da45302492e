"""What a Redis server says about itself, for `oncecron doctor`."""

from __future__ import annotations

from oncecron.core.diagnosis import FIRINGS, Diagnosis, of_encryption
from oncecron.core.errors import StoreRefusesError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.text import Clock, count
from oncecron.core.timing import ASSUMED_TTL
from oncecron.core.units import format_duration
from oncecron.stores.redis.scripts import EVICTING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from oncecron.stores.redis.address import Target

_STRANGERS = ("dragonfly_version", "garnet_version", "kvrocks_version", "keydb_version")
"""Servers that speak the protocol of Redis and were never tried with oncecron."""


def examine(
    target: Target, info: Mapping[str, Any], recorded: Mapping[bytes, bytes], now: float
) -> Iterator[Diagnosis]:
    """Yield what is known of the server; `info`: its INFO, `recorded`: what a claim has recorded of it."""
    for name in _STRANGERS:
        if name in info:
            raise StoreRefusesError(
                f"{target.shown}: this server is {name.removesuffix('_version')}, with which oncecron was never tried; "
                "use Redis 6.2 or newer, or Valkey"
            )
    left = 0.0 if target.kind == "cluster" else _recovering_for(info, recorded, now)
    if left > 0:  # nodes of a cluster start one by one
        yield _of_waits(now + left, left)
    kind = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version")
    yield Diagnosis("ok", "server", f"{kind} {version}, {_role(info)}")
    yield _of_eviction(info.get("maxmemory_policy", ""), int(info.get("maxmemory", 0)))
    yield _of_persistence(info)
    yield _of_connection(target)


def _recovering_for(info: Mapping[str, Any], recorded: Mapping[bytes, bytes], now: float) -> float:
    """Return for how many seconds the server grants nothing, as fitness.lua decides it for the next claim."""
    known = {name.decode(): text.decode() for name, text in recorded.items()}
    promotion = ""
    if int(info.get("second_repl_offset", -1)) >= 0:
        promotion = f"{info.get('master_replid2')}:{info['second_repl_offset']}"
    if known.get("run_id") == info.get("run_id") and promotion in ("", known.get("promotion")):
        since = float(known.get("guard_from") or 0)
    elif promotion:
        since = now
    elif "run_id" in known or info.get("aof_enabled") != 1:
        since = now - int(info.get("uptime_in_seconds", 0)) + 1
    else:
        since = 0.0
    return since + max(float(known.get("largest_ttl") or 0), ASSUMED_TTL) - now


def _of_waits(end: float, left: float) -> Diagnosis:
    until = f"{Clock(utc=False).seconds(end)} (in {format_duration(max(1, round(left)))})"
    text = (
        f"all firings wait until {until}: the server has started, or was promoted, and may have forgotten a lease; "
        "each that it may have granted has expired by then"
    )
    return Diagnosis(
        "warn", FIRINGS, text, "wait; with `appendonly yes` a new Redis is used at once"
    )


def _role(info: Mapping[str, Any]) -> str:
    replicas = int(info.get("connected_slaves", 0))
    return f"a master with {count(replicas, 'replica')}"


def _of_eviction(policy: str, most: int) -> Diagnosis:
    text = f"maxmemory-policy is {policy}"
    cure = (
        "`redis-cli config set maxmemory-policy noeviction`, and the same in its configuration file"
    )
    if policy.startswith(EVICTING):
        return Diagnosis(
            "fail", "eviction", f"{text}: it can evict a lease, so every claim is refused", cure
        )
    return Diagnosis("ok", "eviction", text if most else f"{text}, without a memory limit")


def _of_persistence(info: Mapping[str, Any]) -> Diagnosis:
    if info.get("aof_enabled") == 1:
        return Diagnosis("ok", "persistence", "appendonly is on")
    text = "appendonly is off: a crash of the server loses the last minutes of the log and of the leases"
    cure = (
        "`redis-cli config set appendonly yes`, and then the same in its configuration file: "
        "a restart that finds it there first begins empty"
    )
    return Diagnosis("warn", "persistence", text, cure)


def _of_connection(target: Target) -> Diagnosis:
    host, tls = "" if target.kind == "socket" else str(target.hosts[0][0]), target.tls
    verified = tls is not None and tls.verify and tls.check_hostname
    cure = (
        "write rediss:// in the store's URL, without ssl_cert_reqs=none or ssl_check_hostname=false"
    )
    return of_encryption(host, tls is not None, verified, cure)
