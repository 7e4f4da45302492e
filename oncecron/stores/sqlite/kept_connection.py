"""Keep one connection between calls: open it at the first call, and again after an error or for a new file."""

from __future__ import annotations

import sqlite3

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.sqlite.connection import Connection, connect, explained

if TYPE_CHECKING:
    from types import TracebackType


class Handle:
    """The connection of a store object; one thread uses it at a time."""

    def __init__(
        self, path: str, *, create: bool, statements: tuple[str, ...], begun: bool = False
    ) -> None:
        """Prepare; `begun`: the schema has served the firing already, and is not asked again."""
        self.path = path
        self._create = create
        self._statements = statements
        self._connection: Connection | None = None
        self._begun = begun

    def until(self, deadline: float) -> _Call:
        """Return a context manager for the connection, whose statements wait until `deadline` for locks.

        An error of SQLite inside becomes a StoreError. After any error the connection is closed, which rolls back.
        """
        return _Call(self, deadline)

    def connected(self, deadline: float) -> Connection:
        """Return a connection to the file that the path means now."""
        if self._connection is not None and not self._connection.is_current():
            self.close()
        if self._connection is None:
            self._connection = connect(
                self.path, deadline=deadline, create=self._create, check=not self._begun
            )
            self._begun = True
            for name in self._statements:
                self._connection.load(name)
        self._connection.wait_until(deadline)
        return self._connection

    def close(self) -> None:
        """Close what is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Call:
    __slots__ = ("_deadline", "_handle")

    def __init__(self, handle: Handle, deadline: float) -> None:
        self._handle = handle
        self._deadline = deadline

    def __enter__(self) -> Connection:
        return self._handle.connected(self._deadline)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, GeneratorExit):
            return  # a reader that stops early is not an error
        self._handle.close()
        if isinstance(error, sqlite3.Error):
            raise explained(error, self._handle.path) from error
