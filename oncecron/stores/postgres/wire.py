"""A connection to PostgreSQL whose every call ends by a deadline.

psycopg connects (several hosts, name resolution outside of the interpreter's lock, service files and
~/.pgpass are libpq's); the statements go through libpq's non-blocking calls, because `execute()` waits
past any deadline of ours when packets are dropped silently.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq

from oncecron.errors import StoreUnavailable
from oncecron.stores.postgres.address import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Value = str | int | float | bool | None
Row = tuple[bytes | None, ...]


class StatementError(Exception):
    """The server refused a statement; `sqlstate` says why."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Wire:
    """One session. Not connected again by itself: open a new one."""

    def __init__(
        self, url: str, *, clock: int, deadline: float, patience: float, name: str
    ) -> None:
        """Connect. `patience`: seconds that one host may take; `name`: application_name.

        Raises `StoreUnavailable` or, when asking again does not help, `StoreRefusesError`.
        """
        self._clock = clock
        left = deadline - time.clock_gettime(clock)
        try:
            self._connection = psycopg.connect(
                url, autocommit=True, **connection_parameters(url, min(patience, left), name)
            )
        except (psycopg.Error, UnicodeError) as error:
            raise explain(error, url) from error
        self._pgconn = self._connection.pgconn
        self.backend_pid = self._pgconn.backend_pid
        """The backend that libpq was told of; behind a transaction pooler not the one that answers."""

    def fileno(self) -> int:
        """Return the socket."""
        return self._pgconn.socket

    def ask(self, statement: bytes, values: Sequence[Value], *, deadline: float) -> list[Row]:
        """Send one statement with its values and return the rows: one round trip.

        Raises `StatementError`, or `StoreUnavailable` when there is no answer by the deadline.
        """
        encoded = [_encode(value) for value in values]
        return self._exchange(lambda: self._pgconn.send_query_params(statement, encoded), deadline)

    def script(self, statements: bytes, *, deadline: float) -> None:
        """Send several statements in one round trip; raises like `ask`."""
        self._exchange(lambda: self._pgconn.send_query(statements), deadline)

    def _exchange(self, send: Callable[[], None], deadline: float) -> list[Row]:
        try:
            send()
            self._flush(deadline)
            return self._rows(deadline)
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"the connection to PostgreSQL was lost: {_line(str(error))}"
            ) from error

    def _flush(self, deadline: float) -> None:
        while self._pgconn.flush():
            if self._wait(select.POLLIN | select.POLLOUT, deadline) & select.POLLIN:
                self._pgconn.consume_input()  # or both sides wait with full buffers

    def _rows(self, deadline: float) -> list[Row]:
        rows: list[Row] = []
        failure: StatementError | None = None
        while True:
            while self._pgconn.is_busy():
                self._wait(select.POLLIN, deadline)
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is None:
                break
            if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                rows = [
                    tuple(result.get_value(row, column) for column in range(result.nfields))
                    for row in range(result.ntuples)
                ]
            else:
                failure = self._failure(result)
        if self._pgconn.status != pq.ConnStatus.OK:
            raise StoreUnavailable(
                f"the connection to PostgreSQL was lost: {failure or 'it was closed'}"
            )
        if failure:
            raise failure
        return rows

    def _failure(self, result: Any) -> StatementError:
        sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode(
            "ascii", "replace"
        )
        primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
        return StatementError(sqlstate, _line(primary.decode("utf-8", "replace")))

    def _wait(self, events: int, deadline: float) -> int:
        poll = select.poll()
        poll.register(self._pgconn.socket, events)
        left = deadline - time.clock_gettime(self._clock)
        ready = poll.poll(max(0.0, left) * 1000) if left > 0 else []
        if not ready:
            raise StoreUnavailable("PostgreSQL did not answer in time")
        return ready[0][1]

    def close(self) -> None:
        """Close the session without waiting; the server frees its locks."""
        self._connection.close()


def connection_parameters(url: str, patience: float, name: str) -> dict[str, Any]:
    """Return the connection parameters that oncecron sets where the user has not."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    seconds = max(2, int(patience))  # libpq's smallest connect_timeout
    wanted: dict[str, Any] = {
        "connect_timeout": seconds,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": seconds * 1000,
        "target_session_attrs": "read-write",
        "prepare_threshold": None,
    }
    if "PGTARGETSESSIONATTRS" in os.environ:
        del wanted["target_session_attrs"]
    unset = {key: value for key, value in wanted.items() if key not in given}
    return {**unset, "client_encoding": "utf8", "application_name": name[:63]}


def _encode(value: Value) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return str(value).replace("\0", "\\0").encode("utf-8", "backslashreplace")


def _line(text: str) -> str:
    return " ".join(text.split())
