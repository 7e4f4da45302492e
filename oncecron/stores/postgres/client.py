"""A PostgreSQL session in which every statement ends by a deadline.

libpq connects, so lists of hosts, service files and ~/.pgpass work. Statements use its non-blocking calls, because a
driver's execute() waits past every deadline when packets are dropped silently.
"""

from __future__ import annotations

import os
import select
import time

from oncecron.core.errors import StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import recordable
from oncecron.stores.postgres import address, libpq
from oncecron.stores.postgres.libpq import BrokenConninfoError, LibpqError, PgConn, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncecron.stores.postgres.libpq import Result

_HIGHEST_PID = 1 << 22
"""Of Linux; other systems have lower ones."""

Value = str | int | float | bool | None


class StatementError(Exception):
    """The server refused a statement; `sqlstate` says why."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def check(url: str) -> None:
    """Raise `StoreRefusesError` for an address that cannot be read, without connecting."""
    try:
        libpq.check(url)
    except BrokenConninfoError as error:
        raise address.broken(str(error), url) from error


class PostgresClient:
    """One session. It never reconnects: open a new one."""

    def __init__(
        self, url: str, *, clock: int, deadline: float, server_timeout: float, name: str
    ) -> None:
        """Connect. `server_timeout`: seconds that one host may take; `name`: application_name.

        Raises `StoreUnavailable` or, when a retry does not help, `StoreRefusesError`.
        """
        self._clock = clock
        left = deadline - time.clock_gettime(clock)
        check(url)
        settings = libpq.settings(url)
        parameters = address.parameters(min(server_timeout, left), name, settings)
        self.notified_before = False
        """Whether a notification was read with the last answer, so that the socket does not become readable."""
        self._readable: int | None = None
        try:
            self._connection = PgConn(url, parameters)
        except LibpqError as error:
            if not (
                address.may_be_writable(str(error), settings)
                and self._connect_to_primary(url, parameters, deadline)
            ):
                raise address.explain(str(error), url, settings) from error
        if wrong := address.wrong_server(self._connection.parameter, url):
            self._connection.finish()
            raise wrong
        self.backend_pid = self._connection.backend_pid
        """The backend pid that libpq received; behind a transaction pooler another backend answers."""
        self.is_pooled = not 0 < self.backend_pid <= _HIGHEST_PID
        """Whether no process has that pid: PgBouncer and PgCat send 32 random bits, Odyssey 31.

        At least 499 of 500 of them are higher than every pid.
        """

    def _connect_to_primary(self, url: str, parameters: dict[str, str], deadline: float) -> bool:
        """Connect to a primary whose role or database is read-only by default; return whether it is writable now."""
        try:
            self._connection = PgConn(url, parameters | address.ANY_PRIMARY)
        except LibpqError:
            return False
        statement = address.WRITABLE.format(self._connection.backend_pid).encode()
        try:
            done = bool(self.ask(statement, (), deadline=deadline))
        except (StatementError, StoreUnavailable):
            done = False
        if not done:
            self._connection.finish()
        return done

    @property
    def began_on_primary(self) -> bool:
        """Whether the server said at the start that it was no standby; those before 14 do not say."""
        return self._connection.parameter("in_hot_standby") == "off"

    def fileno(self) -> int:
        """Return a descriptor that is readable when a notification waits: the socket, or one always readable."""
        if not self.notified_before:
            return self._connection.socket
        if self._readable is None:
            self._readable = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self._readable

    def ask(self, statement: bytes, values: Sequence[Value], *, deadline: float) -> list[Row]:
        """Send one statement with its values and return the rows: one round trip.

        Raises `StatementError`, or `StoreUnavailable` when there is no answer by the deadline.
        """
        encoded = [_encode(value) for value in values]
        return self._exchange(lambda: self._connection.send(statement, encoded), deadline)

    def script(self, statements: bytes, *, deadline: float) -> None:
        """Send several statements in one round trip; raises like `ask`."""
        self._exchange(lambda: self._connection.send_script(statements), deadline)

    def _exchange(self, send: Callable[[], None], deadline: float) -> list[Row]:
        self.notified_before = False
        try:
            self._connection.consume()
            self._connection.notified()  # this statement sees what earlier notifications were about
            send()
            self._flush(deadline)
            rows: list[Row] = []
            failure: Result | None = None
            while result := self._result(deadline):
                rows = result.rows
                failure = result if result.sqlstate is not None else failure
            self.notified_before = self._connection.notified()
            alive = self._connection.alive
        except LibpqError as error:
            raise _lost(str(error)) from error
        if not alive:
            raise _lost(failure.message if failure else "it was closed")
        if failure:
            raise StatementError(failure.sqlstate or "", _line(failure.message))
        return rows

    def _flush(self, deadline: float) -> None:
        while self._connection.flush():
            if self._wait(select.POLLIN | select.POLLOUT, deadline) & select.POLLIN:
                self._connection.consume()  # otherwise both sides could wait with full buffers

    def _result(self, deadline: float) -> Result | None:
        while self._connection.busy():
            self._wait(select.POLLIN, deadline)
            self._connection.consume()
        return self._connection.result()

    def _wait(self, events: int, deadline: float) -> int:
        poll = select.poll()
        poll.register(self._connection.socket, events)
        left = deadline - time.clock_gettime(self._clock)
        ready = poll.poll(max(0.0, left) * 1000) if left > 0 else []
        if not ready:
            raise StoreUnavailable("PostgreSQL did not answer in time")
        return ready[0][1]

    def close(self) -> None:
        """Close the session without waiting; the server frees its locks."""
        self._connection.finish()
        if self._readable is not None:
            os.close(self._readable)
            self._readable = None


def _lost(why: str) -> StoreUnavailable:
    return StoreUnavailable(f"the connection to PostgreSQL was lost: {_line(why)}")


def _encode(value: Value) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return recordable(str(value)).encode()


def _line(text: str) -> str:
    return " ".join(text.split())
