"""SQLite: one file on one machine, so its hosts are process trees of that machine."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from servers import Disk, FaultProxy, Network, eventually
from servers.process import public_directory, remove_directory

from clusters.cluster import StoreFault, silent
from clusters.file_register import FileRegister

MEGABYTES = 16


class SQLiteCluster(FileRegister):
    kind = "sqlite"

    def __init__(self, place: Network | None, directory: Path, *_: object) -> None:
        self._disk = Disk(MEGABYTES) if place is not None else None
        if self._disk is not None:
            os.chown(self._disk.path, 0, 0)  # hosts trust no directory of another user
        self._directory = self._disk.path if self._disk else public_directory("sqlite")
        self.path = self._directory / "oncecron" / "oncecron.db"
        self.path.parent.mkdir(0o700, exist_ok=True)
        super().__init__(directory)
        self._lock: sqlite3.Connection | None = None
        self.proxies: dict[str, list[FaultProxy]] = {}
        self.faults = [StoreFault("hold the write lock", self._hold, self._let_go, (1, 4))]
        if self._disk is not None:
            self.faults.append(StoreFault("disk full", silent(self._disk.fill), self._free, (3, 8)))

    def url(self, host: str, *, proxied: bool) -> str:
        """Name the file: there is nothing between it and the hosts."""
        del host, proxied
        return f"sqlite://{self.path}"

    def operator_url(self) -> str:
        """Name the file: who may write it may do all."""
        return f"sqlite://{self.path}"

    def leftovers(self) -> list[str]:
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(self.path, timeout=10)) as file:
            cursor = file.execute("select * from lease")
            names = [column[0] for column in cursor.description]
            return [f"lease {dict(zip(names, row, strict=True))}" for row in cursor]

    def well(self) -> None:
        self._let_go()
        self._free()
        eventually(self._writes, 30, sqlite3.Error)

    def beat(self) -> None:
        self._writes()

    def stop(self) -> None:
        self._let_go()
        remove_directory(self._directory)
        if self._disk is not None:
            self._disk.remove()

    def _writes(self) -> bool:
        if self.path.exists():
            with closing(self._connect()) as file:
                file.execute("begin immediate")
                file.rollback()
        return True

    def _connect(self) -> Any:
        return sqlite3.connect(self.path, timeout=10, isolation_level=None)

    # What befalls it

    def _hold(self, _: Random) -> str:
        if not self.path.exists():
            return "not done: nobody has made the file yet"
        self._let_go()
        self._lock = self._connect()
        self._lock.execute("begin immediate")
        return ""

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _free(self) -> None:
        if self._disk is not None:
            self._disk.free()
