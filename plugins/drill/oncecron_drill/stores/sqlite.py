"""The file of a drill, which stands beside the configured one."""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import READER_TIMEOUT
from oncecron.stores.sqlite.connection import explained, file_of
from oncecron_drill.stores import Sight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.stores.address import Address
    from oncecron_drill.stores import Write


_LOCK = ".lock"


class SQLiteDrill:
    """See `DrilledStore`."""

    servers: Sequence[tuple[str, int]] = ()
    unproxied = "a file has no connections to cut"

    def __init__(self, address: Address, namespace: str) -> None:
        self._address = address
        self._path = file_of(address.target, namespace)

    def role(self) -> str | None:
        return None

    def address_through(self, ports: Sequence[int]) -> tuple[str, dict[str, str]]:
        del ports
        return f"sqlite://{self._address.target}", {}

    def prepare(self) -> None:
        """Do nothing."""

    def remove(self) -> None:
        locks = glob.glob(f"{glob.escape(self._path)}-*{_LOCK}")
        for path in (*(self._path + suffix for suffix in ("", "-wal", "-shm", "-journal")), *locks):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def look(self) -> Sight:
        with self._open() as file:
            file.execute("select 1 from sqlite_master").fetchone()
        number = os.stat(self._path).st_ino
        return Sight(
            f"SQLite {sqlite3.sqlite_version}", self._path, str(number), "one file", time.time()
        )

    def writer(self, ports: Sequence[int]) -> Write:
        del ports

        def write(number: int) -> None:
            del number
            with self._open() as file:
                file.execute("begin immediate")
                file.rollback()

        return write

    @contextlib.contextmanager
    def plain_lock(self, key: str) -> Iterator[bool]:
        """Of a file with a pid, which counts no more when that process is dead; its job may live on."""
        path = Path(f"{self._path}-{key}{_LOCK}")
        try:
            with path.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            if not (pid := path.read_text()) or Path("/proc", pid).exists():
                yield False
                return
            path.write_text(str(os.getpid()))
        yield True
        path.unlink(missing_ok=True)

    def close(self) -> None:
        """Hold nothing."""

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(self._path, timeout=READER_TIMEOUT, isolation_level=None)
            ) as file:
                yield file
        except sqlite3.Error as error:
            raise explained(error, self._path) from error


def open_drilled(address: Address, namespace: str) -> SQLiteDrill:
    """Return the store of a drill."""
    return SQLiteDrill(address, namespace)
