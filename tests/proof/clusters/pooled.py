"""PostgreSQL behind PgBouncer in transaction mode, where there is no session lock: the lease row alone decides."""

import contextlib
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from servers import Disk, Network, PgBouncer, PostgresServer, eventually
from servers.postgres import SUPERUSER

from clusters.cluster import Middleboxes, Place, StoreFault, save_log, silent
from clusters.database import AWAY, MEGABYTES, ONCE, SETTINGS, ClusterDatabase, storm_fault

MOST_CLIENTS = 240
"""More than three hosts have at a time, with what they left behind when they were cut off; a storm takes them all."""
DRAINS = 3.0
"""How long the operator waits for the transactions under way when pausing, in seconds."""


class PooledCluster:
    """A server and its pooler."""

    kind = "pooled"

    def __init__(self, place: Network | None, directory: Path, ttl: float, script: Path) -> None:
        self._directory = directory
        here = Place(place)
        self._boxes = Middleboxes()
        self.proxies = self._boxes.of
        self._disk = Disk(MEGABYTES) if here.network is not None else None
        path = self._disk.path if self._disk else None
        self.server = PostgresServer(disk=path, **here.seat("db1").words, **SETTINGS).start()
        disks = {self.server: self._disk} if self._disk else {}
        self.database = ClusterDatabase(self.server, disks, ttl)
        self.database.install(script)
        self.pooler = PgBouncer(
            self.server, "transaction", **here.seat("pool1").words,
            max_client_conn=MOST_CLIENTS, server_login_retry=1, query_wait_timeout=5,  # as the README advises
            tcp_keepidle=5, tcp_keepintvl=2, tcp_keepcnt=3,  # a host that is gone is noticed soon
        ).start()  # fmt: skip
        self.lookout = here.lookout([self.pooler])
        self._pausing: psycopg.Connection[Any] | None = None
        self.faults = [
            *self.database.faults(self.well),
            StoreFault("restart the pooler", silent(self._restart), self.well, ONCE),
            StoreFault("pooler away", silent(self.pooler.kill), self.well, (2, 2 * ttl)),
            StoreFault("freeze the pooler", silent(self.pooler.sigstop), self.well, (3, ttl + 4)),
            StoreFault("pause the pooler", self._pause, self.well, (2, 8)),
            self._storm(),
        ]

    def url(self, host: str, *, proxied: bool) -> str:
        [end] = self._boxes.before(host, [self.pooler]) if proxied else [self.pooler]
        return self.database.present.url("runner", via=end)

    def operator_url(self) -> str:
        return self.database.present.url("operator", via=self.pooler)

    def fenced_write(self) -> list[str]:
        return self.database.fenced_write(self.database.present.url("jobber", via=self.pooler))

    def register(self) -> list[tuple[str, int]]:
        return self.database.register()

    def leftovers(self) -> list[str]:
        """Name leases and locks, and the pooler's clients: its own sessions stay open for the next one."""
        clients = self.pooler.console("show clients")
        return [*self.database.leases()] + [
            f"client of the pooler: {client['user']} from {client['addr']}, {client['state']}"
            for client in clients
            if client["user"] in ("runner", "jobber", "operator")
        ]

    def well(self) -> None:
        """Get both up, and wait until the server answers by way of the pooler."""
        self.database.up()
        if self.pooler.process.poll() is not None:
            self.pooler.start()
        self.pooler.sigcont()
        self._resume()
        eventually(self._answers, 30, AWAY)

    def beat(self) -> None:
        self.database.beat(self.lookout, self.pooler)

    def stop(self) -> None:
        self._resume()
        self._boxes.close()
        self.lookout.close()
        for name, server in (("pool1", self.pooler), ("db1", self.server)):
            save_log(self._directory, name, server)
            server.remove()
        if self._disk is not None:
            self._disk.remove()

    def _answers(self) -> bool:
        with self.pooler.connect("jobber", self.database.name) as connection:
            return connection.execute("select 1").fetchall() == [(1,)]

    # The pooler

    def _restart(self) -> None:
        self.pooler.stop()
        self.pooler.start()

    def _pause(self, _: Random) -> str:
        # The answer comes when the last transaction is over, and without this connection nothing is paused any more.
        try:
            self._pausing = self.pooler.connect(SUPERUSER, "pgbouncer")
        except psycopg.OperationalError as error:  # no place is free, or too many firings want one
            return f"not done: {error}"
        self._pausing.pgconn.send_query(b"PAUSE")
        try:
            eventually(self._paused, DRAINS)
        except AssertionError:
            return "while transactions go on"
        return ""

    def _paused(self) -> bool:
        assert self._pausing is not None
        self._pausing.pgconn.consume_input()
        return not self._pausing.pgconn.is_busy()

    def _resume(self) -> None:
        if self._pausing is not None:
            self._pausing.close()
            self._pausing = None
            with contextlib.suppress(psycopg.Error):  # it has been restarted, or was never paused
                self.pooler.console("resume")

    def _storm(self) -> StoreFault:
        def connect() -> Any:
            return self.pooler.connect("reader", self.database.name)

        return storm_fault(connect, MOST_CLIENTS + 20, (psycopg.OperationalError,), self.well)
