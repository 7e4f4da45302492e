"""A PostgreSQL session in which every login and every statement ends by a deadline.

libpq logs in, so lists of hosts, service files and ~/.pgpass work. Only its non-blocking calls are used: by the others,
and by a driver's execute(), it waits past every deadline when packets are dropped silently, or when the server sends
notices without end. People's commands log in by `log_in`, too, and `Limit` bounds what psycopg reads.
"""

from __future__ import annotations

import os
import select
import sys
import time
from fcntl import ioctl
from termios import FIONREAD

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.light_modules import light_module
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import recordable
from oncecron.stores.postgres import address, libpq
from oncecron.stores.postgres.address import LoginError
from oncecron.stores.postgres.libpq import BrokenConninfoError, LibpqError, PgConn, Row

if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol, TypeVar

    from oncecron.stores.postgres.libpq import Result

    class Login(Protocol):
        """A PGconn that is logging in."""

        @property
        def socket(self) -> int:
            """Return the descriptor; another one after each `poll`."""

        def poll(self) -> int:
            """Carry it on (PQconnectPoll)."""

        def error(self) -> str:
            """Return what libpq says."""

        def finish(self) -> None:
            """Close it."""

    AnyLogin = TypeVar("AnyLogin", bound=Login)
else:
    _socket = light_module("_socket", "socket", "SOCK_STREAM", "getaddrinfo")

_HIGHEST_PID = 1 << 22
"""Of Linux; other systems have lower ones."""

LARGEST_ANSWER = 64 << 20
"""In bytes; an answer to a firing has some hundred, and rows of people come in pages."""
LARGEST_LOGIN = 1 << 20
"""All that a server has to say to one; what it sends beside is kept until it ends."""

STRANGER = "check host and port, and what is between this host and the server"

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


class Limit:
    """How long a server may take for one answer, and how much it may send. Nothing that it sends prolongs either."""

    def __init__(self, clock: int, deadline: float, most: int = LARGEST_ANSWER) -> None:
        self._clock, self._deadline = clock, deadline
        self._most = self._left = most

    def wait(self, descriptor: int, events: int) -> int:
        """Wait for a socket and return what it is ready for; raises as `count` does."""
        poll = select.poll()
        poll.register(descriptor, events)
        ready = poll.poll(max(0.0, self._deadline - time.clock_gettime(self._clock)) * 1000)
        self.count(descriptor)
        return ready[0][1] if ready else 0

    def count(self, descriptor: int) -> None:
        """Count what can be read. Raises `StoreUnavailable` when time is up, `StoreRefusesError` if it is too much."""
        if time.clock_gettime(self._clock) >= self._deadline:
            raise StoreUnavailable("PostgreSQL did not answer in time")
        self._left -= int.from_bytes(ioctl(descriptor, FIONREAD, bytes(4)), sys.byteorder)
        if self._left < 0:
            raise StoreRefusesError(
                f"PostgreSQL sent more than {self._most >> 20} MB for one answer; {STRANGER}"
            )


def log_in(
    start: Callable[[Mapping[str, str]], AnyLogin],
    settings: Mapping[str, str | None],
    seconds: float,
    clock: int,
) -> AnyLogin:
    """Return the first login that succeeds, of all servers in the settings and all their addresses.

    `start` begins one with parameters that take precedence over the settings; each may take so many seconds. Raises
    `LoginError` with what libpq said of each, and `StoreRefusesError`.
    """
    said = []
    for host, at, port in address.places(settings):
        try:
            found = [at] if at or host[:1] in address.SOCKET else _addresses(host)
        except OSError as error:
            said.append(
                (
                    f"{host}:{port}",
                    f'could not translate host name "{host}" to address: {error.strerror}',
                )
            )
            continue
        for each in found:
            place = {"host": host, "hostaddr": each, "port": port}
            login = start({name: value for name, value in place.items() if value})
            limit = Limit(clock, time.clock_gettime(clock) + seconds, LARGEST_LOGIN)
            failure = _failure_of(login, limit)
            if failure is None:
                return login
            where = f'at "{host}" ({each}), port {port}' if each else f'at "{host}"'
            said.append(
                (
                    f"{host}:{port}",
                    failure or f"connection to server {where} failed: timeout expired",
                )
            )
    raise LoginError(said)


def _failure_of(login: Login, limit: Limit) -> str | None:
    """Carry a login on to its end; return None when it has succeeded, nothing when time is up, else what libpq says."""
    failure: str | None = ""
    try:
        while (status := login.poll()) not in (libpq.POLLING_FAILED, libpq.POLLING_OK):
            reads = status == libpq.POLLING_READING
            limit.wait(login.socket, select.POLLIN if reads else select.POLLOUT)
        failure = None if status == libpq.POLLING_OK else login.error()
    except StoreUnavailable:
        pass
    finally:
        if failure is not None:
            login.finish()
    return failure


def _addresses(host: str) -> list[str]:
    """Return the addresses of a name. Raises `OSError`."""
    # Bytes, because text would import the IDNA codec.
    found = _socket.getaddrinfo(os.fsencode(host), None, _socket.AF_UNSPEC, _socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


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
        self.names: tuple[str, ...] = ()
        """Of the columns of the last rows."""
        self.notified_before = False
        """Whether a notification was read with the last answer, so that the socket does not become readable."""
        self._readable: int | None = None
        try:
            self._connection = self._logged_in(url, parameters, settings)
        except LoginError as error:
            if not (
                address.may_be_writable(error, settings)
                and self._connect_to_primary(url, parameters, settings, deadline)
            ):
                raise address.explain(error.said, url, settings) from error
        if wrong := address.wrong_server(self._connection.parameter, url):
            self._connection.finish()
            raise wrong
        self.backend_pid = self._connection.backend_pid
        """The backend pid that libpq received; behind a transaction pooler another backend answers."""
        self.is_pooled = not 0 < self.backend_pid <= _HIGHEST_PID
        """Whether no process has that pid: PgBouncer and PgCat send 32 random bits, Odyssey 31.

        At least 499 of 500 of them are higher than every pid.
        """

    def _logged_in(
        self, url: str, parameters: dict[str, str], settings: dict[str, str | None]
    ) -> PgConn:
        seconds = address.seconds_for_a_server(parameters, settings)
        return log_in(lambda place: PgConn(url, parameters, place), settings, seconds, self._clock)

    def _connect_to_primary(
        self, url: str, parameters: dict[str, str], settings: dict[str, str | None], deadline: float
    ) -> bool:
        """Connect to a primary whose role or database is read-only by default; return whether it is writable now."""
        try:
            self._connection = self._logged_in(url, parameters | address.ANY_PRIMARY, settings)
        except LoginError:
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
        limit = Limit(self._clock, deadline)
        try:
            self._connection.consume()
            self._connection.notified()  # this statement sees what earlier notifications were about
            send()
            self._flush(limit)
            rows: list[Row] = []
            failure: Result | None = None
            while result := self._result(limit):
                rows, self.names = result.rows, result.names
                failure = result if result.sqlstate is not None else failure
                if result.sqlstate == "":  # of COPY there would be no end of results
                    break
            self.notified_before |= self._connection.notified()
            alive = self._connection.alive
        except LibpqError as error:
            raise _lost(str(error)) from error
        if not alive:
            raise _lost(failure.message if failure else "it was closed")
        if failure and not failure.sqlstate:
            raise StoreRefusesError(
                f"PostgreSQL answered with what is no row and no error; {STRANGER}"
            )
        if failure:
            raise StatementError(failure.sqlstate or "", _line(failure.message))
        return rows

    def _flush(self, limit: Limit) -> None:
        while self._connection.flush():
            if limit.wait(self._connection.socket, select.POLLIN | select.POLLOUT) & select.POLLIN:
                self._connection.consume()  # otherwise both sides could wait with full buffers

    def _result(self, limit: Limit) -> Result | None:
        while self._connection.busy():
            limit.wait(self._connection.socket, select.POLLIN)
            self._connection.consume()
            self.notified_before |= self._connection.notified()  # libpq keeps them until then
        return self._connection.result()

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
