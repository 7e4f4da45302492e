"""The stores as operators run them, each with the faults of its own that the chaos suite inflicts."""

from collections.abc import Callable
from pathlib import Path

from servers import Network
from servers.oncecron import CONSOLE_SCRIPT

from clusters.cluster import LOOKOUT, Cluster, StoreFault
from clusters.pooled import PooledCluster
from clusters.postgres import PostgresCluster, UnheldCluster
from clusters.redis import SingleRedis
from clusters.sentinel import SentinelCluster
from clusters.sqlite import SQLiteCluster

__all__ = ["KINDS", "LOOKOUT", "Cluster", "StoreFault", "start"]

KINDS: dict[str, Callable[[Network | None, Path, float, Path], Cluster]] = {
    "pooled": PooledCluster,
    "postgres": PostgresCluster,
    "redis": SingleRedis,
    "sentinel": SentinelCluster,
    "sqlite": SQLiteCluster,
    "unheld": UnheldCluster,
}


def start(
    kind: str, place: Network | None, directory: Path, ttl: float, *, script: Path = CONSOLE_SCRIPT
) -> Cluster:
    """Start a store of this kind, on hosts of its own on a network or (None, for whoever is not root) on loopback.

    `directory` is the run's, which every host reaches; `ttl` that of the firings, in seconds; `script` the `oncecron`
    that fires. Whoever calls it is the thread that calls the cluster's methods, and lives as long as the cluster is to.
    """
    return KINDS[kind](place, directory, ttl, script)
