"""Several Redis servers together: sentinels that watch a master and its replicas, and a cluster."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis

from servers.certificates import Certificates
from servers.process import PORTS, free_port, is_free
from servers.redis import RedisServer, major_version
from servers.waiting import eventually

AWAY = (redis.ConnectionError, redis.TimeoutError)
_random = random.SystemRandom()
SLOTS = 16384
CHOOSES_BUS, BUS = 7, 10000
"""The first version that takes a cluster-port, and what it is above the port before."""


class Sentinel(RedisServer):
    """One sentinel; `settings` are lines of its sentinel.conf."""

    mode = ("--sentinel",)

    def __init__(self, **settings: object) -> None:
        self.id = f"{_random.getrandbits(160):040x}"
        super().__init__(**settings)

    def _defaults(self, aof: bool) -> dict[str, Any]:
        wanted = ("bind", "port", "unixsocket", "dir", "logfile", "protected-mode")
        return {name: value for name, value in super()._defaults(aof).items() if name in wanted}


class Sentinels:
    """Three sentinels, a master and its replicas; `url` names the sentinels.

    They know each other from the beginning: to find each other would take them seconds. They take
    a master that is silent for `down_after` seconds for down. `places` are `host` and `prefix` of the
    servers, and of the sentinels, in their order. Other keywords are settings of the servers.
    """

    name = "jobs"

    def __init__(
        self, *, replicas: int = 1, down_after: float = 0.5,
        places: Sequence[Mapping[str, Any]] = ({}, {}, {}), **settings: Any,
    ) -> None:  # fmt: skip
        self.down_after = down_after
        self.settings = settings
        first = RedisServer(**places[0], **settings)
        self.servers = [first]
        following = f"{first.host} {first.port}"
        self.servers += [
            RedisServer(**place, **settings, replicaof=following)
            for place in places[1 : replicas + 1]
        ]
        self.sentinels = [Sentinel(**place) for place in places]

    def start(self) -> "Sentinels":
        """Start all and wait until a failover would succeed."""
        for server in self.servers:
            server.start()
        self.wait_replicated()
        first = self.servers[0]
        for sentinel in self.sentinels:
            others = [each for each in self.sentinels if each is not sentinel]
            sentinel.settings["sentinel"] = [
                f"myid {sentinel.id}",
                f"monitor {self.name} {first.host} {first.port} 2",
                f"down-after-milliseconds {self.name} {int(self.down_after * 1000)}",
                f"failover-timeout {self.name} 3000",
                *(f"known-sentinel {self.name} {other.host} {other.port} {other.id}" for other in others),
                *(f"known-replica {self.name} {each.host} {each.port}" for each in self.servers[1:]),
            ]  # fmt: skip
            sentinel.start()
        self.wait_ready()
        return self

    def url(self, database: int = 0, *, sentinels: Iterable[Any] = (), **options: object) -> str:
        """Return the URL of a store; `sentinels` (or proxies in front of them) in their order."""
        hosts = ",".join(f"{s.host}:{s.port}" for s in sentinels or self.sentinels)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis+sentinel://{hosts}/{self.name}/{database}" + (f"?{query}" if query else "")

    @property
    def master(self) -> RedisServer:
        """The server that the living sentinels take for the master; they must agree."""
        named = {self._named_by(s) for s in self.sentinels if s.process is not None}
        assert len(named) == 1, f"the sentinels name {named}"
        port = named.pop()
        return next(server for server in self.servers if server.port == port)

    def wait_ready(self, deadline: float = 15) -> None:
        """Wait until every sentinel sees the others and every replica alive."""

        def ready() -> bool:
            return all(self._sees_all(sentinel) for sentinel in self.sentinels)

        eventually(ready, deadline)

    def wait_master_is_not(self, old: RedisServer, deadline: float = 30) -> RedisServer:
        """Wait until all living sentinels name another master, and it takes writes; return it."""

        def other() -> RedisServer:
            new = self.master
            assert new is not old
            with new.connect() as client:
                assert client.role()[0] == b"master"
            return new

        return eventually(other, deadline, retry_on=(AssertionError, *AWAY))

    def wait_replicated(self, deadline: float = 10) -> None:
        """Wait until every living replica is connected and has all that its master wrote."""

        def done() -> bool:
            living = [server for server in self.servers if server.process is not None]
            looks = [(server, _replication(server)) for server in living]
            masters = [(server, look) for server, look in looks if look["role"] == "master"]
            assert len(masters) == 1, f"{len(masters)} masters"
            [(first, master)] = masters
            assert int(master["connected_slaves"]) == len(living) - 1
            # Looked at after their master, which may go on writing.
            replicas = [_replication(server) for server in living if server is not first]
            assert {look["master_link_status"] for look in replicas} <= {"up"}
            written = int(master["master_repl_offset"])
            assert all(int(look["slave_repl_offset"]) >= written for look in replicas)
            return True

        eventually(done, deadline, retry_on=(AssertionError, *AWAY))

    def remove(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.remove()

    def _named_by(self, sentinel: Sentinel) -> int:
        with sentinel.connect() as client:
            _, port = client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.name)
        return int(port)

    def _sees_all(self, sentinel: Sentinel) -> bool:
        with sentinel.connect() as client:
            master = client.sentinel_master(self.name)
            replicas = client.sentinel_slaves(self.name)
            others = client.sentinel_sentinels(self.name)
        alive = [state for state in (*replicas, *others) if not state["is_disconnected"]]
        others_wanted = len(self.servers) - 1 + len(self.sentinels) - 1
        return master["flags"] == "master" and len(alive) == others_wanted


def _bus() -> int:
    """Return a port for the bus of a node, whose own is `BUS` below: neither is a port that others take."""
    while True:
        bus = free_port()
        if bus - BUS not in PORTS and is_free(bus - BUS):
            return bus


class RedisCluster:
    """A Redis Cluster of masters only, a third of the slots each; keywords are settings of all.

    With `tls` the nodes talk TLS to each other too, and send TLS's clients to each other's TLS ports.
    """

    def __init__(
        self, *, masters: int = 3, tls: Certificates | None = None, **settings: Any
    ) -> None:
        if tls is not None:
            settings |= {"tls": tls, "tls_cluster": "yes"}
        settings |= {"cluster_enabled": "yes", "cluster_node_timeout": 2000}
        if major_version() < CHOOSES_BUS:
            self.servers = [RedisServer(**settings) for _ in range(masters)]
            self.buses = [_bus() for _ in self.servers]
            for server, bus in zip(self.servers, self.buses, strict=True):
                server.port = server.settings["port"] = bus - BUS
        else:
            self.buses = [free_port() for _ in range(masters)]
            self.servers = [RedisServer(cluster_port=bus, **settings) for bus in self.buses]

    def start(self) -> "RedisCluster":
        """Start all, share the slots out and wait until every node takes writes."""
        for server in self.servers:
            server.start()
        first = self.servers[0]
        for number, server in enumerate(self.servers):
            low, high = (SLOTS * n // len(self.servers) for n in (number, number + 1))
            self.ask(server, "CLUSTER SET-CONFIG-EPOCH", number + 1)
            self.ask(server, "CLUSTER ADDSLOTS", *range(low, high))
        for server, bus in zip(self.servers[1:], self.buses[1:], strict=True):
            port = server.port if server.certificates is None else server.tls_endpoint.port
            self.ask(first, "CLUSTER MEET", server.host, port, bus)
        self.wait_ready()
        return self

    def wait_ready(self, deadline: float = 20) -> None:
        """Wait until each living node knows the others and the cluster is up."""

        def ready() -> bool:
            for server in self.servers:
                state = self.ask(server, "CLUSTER INFO")
                assert state["cluster_state"] == "ok", state
                assert int(state["cluster_known_nodes"]) == len(self.servers), state
            return True

        eventually(ready, deadline, retry_on=(AssertionError, *AWAY))

    def url(self, *, nodes: Iterable[Any] = (), **options: object) -> str:
        """Return the URL of a store; `nodes` (or proxies in front of them) in their order."""
        hosts = ",".join(f"{node.host}:{node.port}" for node in nodes or self.servers)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis+cluster://{hosts}" + (f"?{query}" if query else "")

    def tls_url(self, **options: object) -> str:
        """Return the URL of the same store over TLS, trusting the nodes' authority."""
        certificates = self.servers[0].certificates
        assert certificates is not None
        options.setdefault("ssl_ca_certs", certificates["ca.crt"])
        return "rediss" + self.url(
            nodes=[s.tls_endpoint for s in self.servers], **options
        ).removeprefix("redis")

    def key_on(self, server: RedisServer, prefix: str = "key") -> str:
        number = self.servers.index(server)
        low, high = (SLOTS * n // len(self.servers) for n in (number, number + 1))
        keys = (f"{prefix}{n}" for n in range(10_000))
        return next(key for key in keys if low <= self.slot(key) < high)

    def slot(self, key: str) -> int:
        return int(self.ask(self.servers[0], "CLUSTER KEYSLOT", key))

    def move_slot(self, slot: int, source: RedisServer, target: RedisServer, step: str) -> None:
        """Move a slot: `begin` makes the source answer ASK for keys it has not, `end` MOVED."""
        source_id, target_id = (self.node_id(server) for server in (source, target))
        if step == "begin":
            self.ask(target, "CLUSTER SETSLOT", slot, "IMPORTING", source_id)
            self.ask(source, "CLUSTER SETSLOT", slot, "MIGRATING", target_id)
            return
        for server in (target, source, *self.servers):
            self.ask(server, "CLUSTER SETSLOT", slot, "NODE", target_id)

    def node_id(self, server: RedisServer) -> str:
        told = self.ask(server, "CLUSTER MYID")
        return told.decode() if isinstance(told, bytes) else str(told)

    @staticmethod
    def ask(server: RedisServer, *words: Any) -> Any:
        with server.connect() as client:
            return client.execute_command(*words)

    def remove(self) -> None:
        for server in self.servers:
            server.remove()


def _replication(server: RedisServer) -> dict[str, Any]:
    with server.connect() as client:
        told: dict[str, Any] = client.info("replication")
        return told
