"""The stores as operators run them, each with the faults of its own that the chaos suite inflicts."""

from pathlib import Path

from servers import Network
from servers.oncecron import CONSOLE_SCRIPT

from clusters.cluster import Cluster, StoreFault

__all__ = ["KINDS", "Cluster", "StoreFault", "start"]

KINDS = ("pooled", "postgres", "redis", "sentinel", "sqlite", "unheld")


def start(
    kind: str, place: Network | None, directory: Path, ttl: float, *, script: Path = CONSOLE_SCRIPT
) -> Cluster:
    """Start a store of this kind, on hosts of its own on a network or (None, for whoever is not root) on loopback.

    `directory` is the run's, which every host reaches; `ttl` that of the firings, in seconds; `script` the `oncecron`
    that fires. Whoever calls it is the thread that calls the cluster's methods, and lives as long as the cluster is to.
    """
    match kind:
        case "pooled":
            from clusters.pooled import PooledCluster

            return PooledCluster(place, directory, ttl, script)
        case "postgres":
            from clusters.postgres import PostgresCluster

            return PostgresCluster(place, directory, ttl, script)
        case "unheld":
            from clusters.postgres import UnheldCluster

            return UnheldCluster(place, directory, ttl, script)
        case "redis":
            from clusters.redis import SingleRedis

            return SingleRedis(place, directory, ttl)
        case "sentinel":
            from clusters.sentinel import SentinelCluster

            return SentinelCluster(place, directory, ttl)
        case "sqlite":
            from clusters.sqlite import SQLiteCluster

            return SQLiteCluster(place, directory)
    raise ValueError(f"no store {kind!r}; known are {', '.join(KINDS)}")
