"""One Redis server with an append-only file, written through at each command."""

import contextlib
from pathlib import Path
from random import Random

import redis
from servers import Disk, Network, RedisServer, eventually

from clusters.cluster import Middleboxes, Place, StoreFault, save_log, silent
from clusters.database import ONCE, storm_fault
from clusters.file_register import FileRegister
from clusters.redis_servers import (
    AWAY,
    LOGIN,
    SETTINGS,
    USER,
    connections,
    get_up,
    leases,
    revoke_rights,
    takes_writes,
)

MEGABYTES = 128
MOST_CLIENTS = 60


class SingleRedis(FileRegister):
    kind = "redis"

    def __init__(self, place: Network | None, directory: Path, ttl: float, _: Path) -> None:
        self._directory = directory
        here = Place(place)
        self._boxes = Middleboxes()
        self.proxies = self._boxes.of
        super().__init__(directory)
        self._disk = Disk(MEGABYTES) if here.network is not None else None
        data = {"dir": self._disk.path} if self._disk else {}
        self.server = RedisServer(
            aof=True, maxclients=MOST_CLIENTS, **here.seat("redis1").words, **SETTINGS, **data
        )
        self.server.start()
        self.lookout = here.lookout([self.server])
        self.faults = self._faults(ttl)

    def url(self, host: str, *, proxied: bool) -> str:
        [end] = self._boxes.before(host, [self.server]) if proxied else [self.server]
        return self.server.url(via=end, login=LOGIN)

    def operator_url(self) -> str:
        return self.server.url(via=self.server, login=LOGIN)

    def leftovers(self) -> list[str]:
        return leases(self.server) + connections(self.server)

    def well(self) -> None:
        """Get it up, whatever it is doing, and wait until it takes writes."""
        if self._disk is not None:
            self._disk.free()
        get_up(self.server)
        with self.server.connect() as client:
            client.config_set("maxmemory", 0)
        eventually(lambda: takes_writes(self.server), 30, AWAY)

    def beat(self) -> None:
        with self.lookout.to(self.server) as end:
            takes_writes(self.server, end)

    def stop(self) -> None:
        self._boxes.close()
        self.lookout.close()
        save_log(self._directory, "redis1", self.server)
        self.server.remove()
        if self._disk is not None:
            self._disk.remove()

    # What befalls it

    def _faults(self, ttl: float) -> list[StoreFault]:
        faults = [
            StoreFault("restart the server", self._restart, self.well, ONCE),
            StoreFault("kill the server", silent(self._kill), self.well, ONCE),
            StoreFault("server away", self._away, self.well, (4, 2 * ttl)),
            StoreFault("freeze the server", silent(self.server.sigstop), self.well, (3, ttl + 4)),
            StoreFault("memory full", self._little_memory, self.well, (2, 8)),
            revoke_rights([self.server], self.well),
            StoreFault("end the sessions", self._end_sessions, self.well, ONCE),
            storm_fault(self._connection, MOST_CLIENTS + 20, (redis.RedisError,), self.well),
        ]
        if self._disk is not None:
            faults.append(StoreFault("disk full", silent(self._fill), self.well, (3, 8)))
        return faults

    def _restart(self, random: Random) -> str:
        how = random.choice(["SHUTDOWN SAVE", "SHUTDOWN NOSAVE", "TERM"])
        if how != "TERM":
            with self.server.connect() as client, contextlib.suppress(redis.ConnectionError):
                client.execute_command(how)
        self.server.restart()
        return how

    def _kill(self) -> None:
        self.server.kill()
        self.server.start()

    def _away(self, random: Random) -> str:
        how = random.choice(["stop", "kill"])
        if how == "stop":
            self.server.stop()
        else:
            self.server.kill()
        return how

    def _fill(self) -> None:
        assert self._disk is not None
        self._disk.fill()
        # What is written next may fit into a page that the file has already; so somebody writes more than that.
        with self.server.connect() as client, contextlib.suppress(redis.RedisError):
            client.set("large", bytes(1 << 14))

    def _little_memory(self, _: Random) -> str:
        with self.server.connect() as client:
            most = int(client.info("memory")["used_memory"]) // 2
            client.config_set("maxmemory", most)
        return f"{most} bytes"

    def _connection(self) -> "redis.Redis":
        client = self.server.connect(single_connection_client=True)
        client.ping()
        return client

    def _end_sessions(self, _: Random) -> str:
        with self.server.connect() as client:
            return f"{client.execute_command('CLIENT KILL', 'USER', USER)} sessions"
