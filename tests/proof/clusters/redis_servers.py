"""What the clusters of Redis servers have in common: who logs in, what may befall a server, what is left in it."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import redis
from servers import RedisServer, eventually

from clusters.cluster import StoreFault

USER = "cron"
PASSWORD = "cron-password"
LOGIN = f"{USER}:{PASSWORD}"
# As the README tells.
RIGHTS = (
    "~oncecron:* &oncecron:* +@read +@write +eval +evalsha +info +time +wait +select "
    "+client|setname +subscribe +publish"
)
SETTINGS: dict[str, object] = {
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "auto-aof-rewrite-min-size": "8mb",
    "tcp-keepalive": 5,
    "user": [f"{USER} on >{PASSWORD} {RIGHTS}"],
}
PATIENCE = 4000
"""Milliseconds for the replicas, less than a client waits for the answer."""
AWAY = (redis.RedisError, AssertionError)


def get_up(server: RedisServer) -> None:
    """Thaw it, start it, and wait until it answers, whatever it is doing: it may be dying yet."""

    def answers() -> bool:
        if server.process is None or server.process.poll() is not None:
            server.start()
        else:
            server.wait_ready()
        return True

    server.sigcont()
    eventually(answers, 60, (*AWAY, RuntimeError))


def takes_writes(server: RedisServer, end: Any = None, replicas: int = 0) -> bool:
    """Write once, and say whether so many replicas have it; on demand by way of a proxy."""
    with server.connect(via=end) as client:
        client.set("alive", 1)
        return replicas == 0 or client.wait(replicas, PATIENCE) >= replicas


def leases(server: RedisServer) -> list[str]:
    with server.connect(decode_responses=True) as client:
        names = sorted(client.keys("oncecron:*:lease:*"))
        return [f"lease {name}: {client.hgetall(name)}" for name in names]


def connections(server: RedisServer) -> list[str]:
    with server.connect(decode_responses=True) as client:
        found = [one for one in client.client_list() if one["user"] == USER]
    return [f"connection {one['name']} from {one['addr']}, {one['age']} s old" for one in found]


def revoke_rights(servers: Sequence[RedisServer], well: Callable[[], None]) -> StoreFault:
    """Return a fault that takes a part of the hosts' rights away, on each of the servers."""

    def tell(*rules: str) -> None:
        for server in servers:
            with server.connect() as client:
                client.execute_command("ACL SETUSER", USER, *rules)

    def begin(random: Random) -> str:
        rule = random.choice(["-@all", "-@write", "resetkeys"])
        tell(rule)
        return rule

    def undo() -> None:
        well()
        tell("reset", "on", f">{PASSWORD}", *RIGHTS.split())

    return StoreFault("revoke rights", begin, undo, (2, 8))
