"""A Redis master with two replicas, each beside a sentinel; a claim counts when a replica has it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import redis
from servers import FaultProxy, Network, RedisServer, Sentinels, eventually

from clusters.cluster import Place, StoreFault, save_log
from clusters.database import ONCE
from clusters.file_register import FileRegister
from clusters.redis_servers import (
    AWAY,
    PASSWORD,
    SETTINGS,
    USER,
    connections,
    get_up,
    leases,
    revoke_rights,
    takes_writes,
)

DOWN_AFTER = 3.0
# Seconds in which a switchover has come about, or Sentinel has given it up for a replica that did not answer in time.
GIVEN_UP = 10.0
# A master that has heard of no replica for so long refuses writes, as the README advises.
ALONE = {"min-replicas-to-write": 1, "min-replicas-max-lag": 2}
# All of them must have what counts: Sentinel may promote any.
REPLICAS = 2
# How often sentinels look, in ms: an old master that comes back is told so at once, instead of after 18 s.
LOOKS = ("info-period", 1000, "publish-period", 500)


class SentinelCluster(FileRegister):
    """Three hosts, a server and a sentinel on each."""

    kind = "sentinel"

    def __init__(self, place: Network | None, directory: Path, ttl: float, _: Path) -> None:
        self._directory = directory
        here = Place(place)
        seats = [here.seat(f"redis{number}") for number in (1, 2, 3)]
        self.group = Sentinels(
            replicas=REPLICAS, down_after=DOWN_AFTER, places=[seat.words for seat in seats],
            aof=True, **SETTINGS, **ALONE,
        ).start()  # fmt: skip
        self._look_often()
        self.lookout = here.lookout()
        super().__init__(directory)
        self.proxies: dict[str, list[FaultProxy]] = {}
        self.faults = [
            StoreFault("switchover", self._switch, self.well, ONCE),
            StoreFault("master away", self._kill_master, self.well, (4, 2 * ttl)),
            StoreFault(
                "freeze the master", self._freeze, self.well, (DOWN_AFTER + 3, DOWN_AFTER + 7)
            ),
            StoreFault("replica away", self._kill_replica, self.well, (3, 10)),
            StoreFault("sentinel away", self._kill_sentinel, self.well, (3, 10)),
            StoreFault("restart all", self._restart, self.well, ONCE),
            StoreFault("end the sessions", self._end_sessions, self.well, ONCE),
            revoke_rights(self.group.servers, self.well),
        ]

    def url(self, host: str, *, proxied: bool) -> str:
        """Name the sentinels; they name the real address of the master, so nobody is in between."""
        del host, proxied
        return self.group.url(wait=REPLICAS, username=USER, password=PASSWORD)

    def operator_url(self) -> str:
        return self.group.url(wait=REPLICAS, username=USER, password=PASSWORD)

    def leftovers(self) -> list[str]:
        left = leases(self.group.master)
        return left + [line for server in self.group.servers for line in connections(server)]

    def well(self) -> None:
        for server in self._all():
            get_up(server)
        self._look_often()
        self.group.wait_replicated(60)
        self.group.wait_ready(60)
        eventually(lambda: takes_writes(self.group.master), 30, AWAY)

    def beat(self) -> None:
        with self.lookout.to(self.group.master) as end:
            assert takes_writes(self.group.master, end, REPLICAS), "too few replicas have it"

    def stop(self) -> None:
        for number, (server, sentinel) in enumerate(
            zip(self.group.servers, self.group.sentinels, strict=True), 1
        ):
            save_log(self._directory, f"redis{number}", server)
            save_log(self._directory, f"sentinel{number}", sentinel)
        self.group.remove()

    def _all(self) -> Iterator[RedisServer]:
        yield from self.group.servers
        yield from self.group.sentinels

    def _look_often(self) -> None:
        for sentinel in self.group.sentinels:
            with sentinel.connect() as client, contextlib.suppress(redis.ResponseError):
                client.execute_command("SENTINEL DEBUG", *LOOKS)  # from Redis 7 on

    def _name(self, server: RedisServer) -> str:
        return f"redis{self.group.servers.index(server) + 1}"

    def _replica(self, random: Random) -> RedisServer:
        master = self.group.master
        return random.choice([server for server in self.group.servers if server is not master])

    # What befalls it

    def _switch(self, random: Random) -> str:
        old = self.group.master
        sentinel = random.choice(self.group.sentinels)

        def switched() -> str:
            with sentinel.connect() as client, contextlib.suppress(redis.ResponseError):
                client.execute_command("SENTINEL FAILOVER", self.group.name)
            return self._name(self.group.wait_master_is_not(old, GIVEN_UP))

        return f"{eventually(switched, 60, (AssertionError, *AWAY))} after {self._name(old)}"

    def _kill_master(self, _: Random) -> str:
        master = self.group.master
        master.kill()
        return self._name(master)

    def _freeze(self, _: Random) -> str:
        master = self.group.master
        master.sigstop()
        return self._name(master)

    def _kill_replica(self, random: Random) -> str:
        replica = self._replica(random)
        replica.kill()
        return self._name(replica)

    def _kill_sentinel(self, random: Random) -> str:
        sentinel = random.choice(self.group.sentinels)
        sentinel.kill()
        return f"sentinel{self.group.sentinels.index(sentinel) + 1}"

    def _restart(self, random: Random) -> str:
        how = random.choice(["stop", "kill"])
        for server in self._all():
            if how == "stop":
                server.stop()
            else:
                server.kill()
        for server in self._all():
            server.start()
        return how

    def _end_sessions(self, _: Random) -> str:
        with self.group.master.connect() as client:
            return f"{client.execute_command('CLIENT KILL', 'USER', USER)} sessions"
