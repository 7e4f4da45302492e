"""PostgreSQL with a synchronous standby, whose operator promotes it when the primary is gone.

The operator keeps one rule: the standby is named as synchronous only while it follows, and is promoted only
while it is so named. So no answer that a client got is lost, there are never two servers that take writes, and
the primary waits for a standby that is away no longer than the operator takes to notice.
"""

import time
from pathlib import Path
from random import Random
from typing import Any

from servers import Disk, Network, PostgresServer, eventually
from servers.postgres import password_of

from clusters.cluster import Middleboxes, Place, StoreFault, save_log
from clusters.database import AWAY, MEGABYTES, SETTINGS, ClusterDatabase

NOTICES = (0.0, 2.0)
"""How long the operator takes to see that a server is away, in seconds; nothing commits meanwhile."""


class PostgresCluster:
    """Two servers, and one database."""

    kind = "postgres"

    def __init__(self, place: Network | None, directory: Path, ttl: float, script: Path) -> None:
        self._directory = directory
        here = Place(place)
        self._boxes = Middleboxes()
        self.proxies = self._boxes.of
        self._disks = [Disk(MEGABYTES) for _ in range(2)] if here.network is not None else []
        primary, following = (
            {**here.seat(name).words, "disk": disk.path if disk else None}
            for name, disk in zip(("db1", "db2"), self._disks or (None, None), strict=True)
        )
        self.primary = PostgresServer(**primary, **SETTINGS).start()
        self.database = ClusterDatabase(self.primary, {}, ttl)
        self.database.install(script)
        # By way of TCP, as between two machines.
        self.standby: PostgresServer = self.primary.make_standby(through=self.primary, **following)
        self.servers = (self.primary, self.standby)
        self.lookout = here.lookout(self.servers)
        self.database.disks.update(zip(self.servers, self._disks, strict=False))
        self._diverged = False
        self._follow()
        self.faults = [
            *self.database.faults(self.well),
            self.database.storm(self.well),
            StoreFault("promote the standby", self._promote, self.well, (1, 4)),
            StoreFault("standby away", self._lose_standby, self.well, (2, 8)),
            StoreFault("freeze the standby", self._freeze_standby, self.well, (1, 5)),
        ]

    def url(self, host: str, *, proxied: bool) -> str:
        return self._url(
            "runner", self._boxes.before(host, self.servers) if proxied else self.servers
        )

    def operator_url(self) -> str:
        return self._url("operator", self.servers)

    def fenced_write(self) -> list[str]:
        url = self._url("jobber", self.servers)
        return self.database.fenced_write(f"{url}?target_session_attrs=read-write")

    def register(self) -> list[tuple[str, int]]:
        return self.database.register()

    def leftovers(self) -> list[str]:
        return [*self.database.leases(), *self.database.sessions()]

    def beat(self) -> None:
        self.database.beat(self.lookout)

    def stop(self) -> None:
        self._boxes.close()
        self.lookout.close()
        for number, server in enumerate(self.servers, 1):
            save_log(self._directory, f"db{number}", server)
            server.remove()
        for disk in self._disks:
            disk.remove()

    def _url(self, role: str, ends: Any) -> str:
        hosts = ",".join(f"{end.host}:{end.port}" for end in ends)
        return f"postgresql://{role}:{password_of(role)}@{hosts}/{self.database.name}"

    # The standby

    def _promote(self, random: Random) -> str:
        if self._state() != "sync":
            return "not done: the standby does not follow"
        how = random.choice(["crash", "switchover"])
        old, new = self.primary, self.standby
        self._diverged = True
        if how == "crash":
            old.kill()
        else:
            old.stop("fast")
        notices = random.uniform(*NOTICES)
        time.sleep(notices)
        new.configure(synchronous_standby_names="")
        new.execute("select pg_promote(true, 30)")
        self.primary, self.standby = new, old
        self.database.server = new
        eventually(self.database.writes, 30, AWAY)
        return f"{how}, db{self.servers.index(new) + 1} takes over after {notices:.1f} s"

    def _lose_standby(self, random: Random) -> str:
        self.standby.kill()
        notices = random.uniform(*NOTICES)
        time.sleep(notices)  # it is this long that commits hang
        self.primary.configure(synchronous_standby_names="")
        return f"noticed after {notices:.1f} s"

    def _freeze_standby(self, _: Random) -> str:
        self.standby.sigstop()
        return ""

    def well(self) -> None:
        """Get the primary up, and the standby behind it; one that was a primary begins as a copy."""
        self.standby.sigcont()
        self.database.up()
        if not _runs(self.standby):
            if self._diverged:
                self.standby.copy_from(self.primary, self.primary)
                self._diverged = False
            self.standby.start()
        self._follow()

    def _follow(self) -> None:
        """Make commits wait for the standby, from when it follows."""
        if eventually(self._state, 30, AWAY) != "sync":
            self.primary.configure(synchronous_standby_names="*")
            eventually(lambda: self._state() == "sync", 30, AWAY)

    def _state(self) -> str | None:
        rows = self.database.ask(
            "select sync_state from pg_stat_replication where state = 'streaming'"
        )
        return rows[0][0] if rows else None


class UnheldCluster(PostgresCluster):
    """The same, and no job holds a connection."""

    kind = "unheld"

    def url(self, host: str, *, proxied: bool) -> str:
        return f"{super().url(host, proxied=proxied)}?hold=no"


def _runs(server: PostgresServer) -> bool:
    return server.process is not None and server.process.poll() is None
