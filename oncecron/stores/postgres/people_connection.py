"""The connection of the commands for people to PostgreSQL, with psycopg: it explains every error, with a cure."""

from __future__ import annotations

import contextlib
import os
import resource
import time

import psycopg

from oncecron.core import clock
from oncecron.core.errors import (
    UNREADABLE,
    StoreError,
    StoreRefusesError,
    StoreUnavailable,
    reason_of,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.masking import without
from oncecron.core.model import recordable_values
from oncecron.core.timing import READER_TIMEOUT
from oncecron.stores.address import as_role, masked, where_options
from oncecron.stores.postgres import address, libpq, login_rights, schema
from oncecron.stores.postgres.client import LARGEST_ANSWER, STRANGER, Limit, StatementError, log_in
from oncecron.stores.postgres.people_sql import statements
from oncecron.stores.schema_version import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Self, TypeVar

    from psycopg.abc import PQGen

    Answer = TypeVar("Answer")

_LONGEST_QUERY = 600.0
"""The limit for one statement of a command for people, which may read and sort a long log."""
_MOST_CPU_OF_ANSWER = 5.0
"""And for reading what its server sends, in CPU time: libpq looks a setting up among all that it was sent."""

_UNDEFINED_OBJECT = "42704"
READERS_CURE = "{read}"
OWNERS_CURE = "have {{owner}}, the owner, run `oncecron {words}{{as_owner}}`"
"""A cure once the words of a command are filled in, in which braces are doubled."""
INIT_CURE = (
    OWNERS_CURE + ", or have a DBA run the SQL that `oncecron {words} --print-sql{{here}}` prints"
)


_MOST_GAINED = 5 * LARGEST_ANSWER // 2
"""Bytes of memory during one statement: psycopg keeps a result of 14 bytes in some hundred."""


def _cost() -> tuple[int, float]:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, time.thread_time()


class _Login:
    def __init__(self, conninfo: str) -> None:
        self.pgconn = psycopg.pq.PGconn.connect_start(os.fsencode(conninfo))
        libpq.tell_codes(getattr(self.pgconn, "pgconn_ptr"), psycopg.pq.version())  # noqa: B009 - its types lack it

    @property
    def socket(self) -> int:
        """The descriptor."""
        return self.pgconn.socket

    def poll(self) -> int:
        """Carry it on."""
        return int(self.pgconn.connect_poll())

    def error(self) -> str:
        """Return what libpq says."""
        return self.pgconn.get_error_message("utf-8")

    def finish(self) -> None:
        """Close it."""
        self.pgconn.finish()


class _Connection(psycopg.Connection["tuple[Any, ...]"]):
    def wait(self, gen: PQGen[Answer], *options: Any, **more: Any) -> Answer:
        return super().wait(self._limited(gen), *options, **more)

    def _limited(self, steps: PQGen[Answer]) -> PQGen[Answer]:
        limit = Limit(clock.BOOTTIME, clock.lease_time(clock.BOOTTIME) + _LONGEST_QUERY)
        memory, cpu = _cost()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                limit.count(self.pgconn.socket)
                memory_now, cpu_now = _cost()
                if memory_now - memory > _MOST_GAINED or cpu_now - cpu > _MOST_CPU_OF_ANSWER:
                    raise StoreRefusesError(
                        f"PostgreSQL sent what takes too much memory or CPU; {STRANGER}"
                    )
                wanted = steps.send(ready)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        except StoreError:
            self.close()
            raise


class _Cursor(psycopg.Cursor["tuple[Any, ...]"]):
    """A cursor of which pgpool-II sends all statements to the primary, as it does with what a comment begins."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return super().execute(f"/*NO LOAD BALANCE*/ {query}", params, **options)


class Connection:
    """A connection to one namespace, made at the first call. A cure is a text with the places of `_filled`."""

    def __init__(self, url: str, namespace: str) -> None:
        """Raise `ConfigurationError` for an invalid namespace."""
        self._url = url
        self._namespace = namespace
        self._sql = statements(namespace)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(
        self, section: str, values: Mapping[str, Any], cure: str = READERS_CURE
    ) -> list[tuple[Any, ...]]:
        connection = self._installed(cure)
        with self._explained(cure):
            return connection.execute(self._sql[section], recordable_values(values)).fetchall()

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None:
            libpq.silence_stdio()
            settings: dict[str, str | None] = {}
            try:
                settings = driver_settings(self._url)
                self._connection = connect(self._url, settings)
            except (psycopg.ProgrammingError, UnicodeError) as error:
                raise address.broken(str(error), self._url) from error
            except address.LoginError as error:
                raise address.explain(error.said, self._url, settings) from error
            except psycopg.Error as error:
                raise _unconnected(error, self._url) from error
            if wrong := address.wrong_server(self._connection.info.parameter_status, self._url):
                self.close()
                raise wrong
            own = {"client_backend": self._connection.info.backend_pid}
            with self._explained(READERS_CURE):
                self._connection.execute(self._sql["set_up"], own)
        return self._connection

    def _installed(self, cure: str = READERS_CURE) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is not None:
            return self._connection
        connection = self._connected()
        try:
            with self._explained(cure):
                found = self._recorded(connection, cure)
            if found is None:
                raise schema.absent(self._namespace, self._url, *self._rights(), "read")
            if wrong := schema.misfit(found, self._namespace, self._url, self._rights):
                raise wrong
        except StoreError:
            self.close()
            raise
        return connection

    def _recorded(
        self, connection: psycopg.Connection[tuple[Any, ...]], cure: str
    ) -> Recorded | None:
        answer = connection.execute(
            self._sql["installed"], {"namespace": self._namespace}
        ).fetchone()
        exists, usable, has_tables, readable = answer or (False,) * 4
        if exists and not (usable and (readable or not has_tables)):
            raise StoreRefusesError(
                f"PostgreSQL {masked(self._url)}: role {connection.info.user} has no rights in the schema "
                f"{self._namespace}; {self._filled(cure)}"
            )
        if not has_tables:
            return None
        return Recorded(*(connection.execute(self._sql["version"]).fetchone() or (0,)))

    def _rights(self) -> tuple[str, str]:
        with contextlib.suppress(psycopg.Error, StoreError):
            asked = schema.ROLE_AND_OWNER.format(namespace=self._namespace)
            if row := self._connected().execute(asked).fetchone():
                return row[0], row[1]
        return "ROLE", "OWNER"

    def _filled(self, cure: str) -> str:
        role, owner = self._rights()
        rights = (role, owner, self._url, self._namespace)
        return cure.format(
            owner=owner,
            run=schema.rights_cure(*rights, "run"),
            read=schema.rights_cure(*rights, "read"),
            operate=schema.rights_cure(*rights, "operator"),
            as_owner=where_options(as_role(self._url, owner), self._namespace),
            here=where_options(self._url, self._namespace),
        )

    @contextlib.contextmanager
    def _explained(self, cure: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self._connection is not None and self._connection.broken:
                self.close()
            raise self._explain(error, cure) from error
        except UNREADABLE as error:  # psycopg reads a value by the type that the server gives it
            raise self._unread(error) from error

    def _unread(self, error: Exception) -> StoreError:
        self.close()
        return StoreRefusesError(
            f"PostgreSQL {masked(self._url)}: the server's answer cannot be read ({reason_of(error)}); {STRANGER}"
        )

    def _explain(self, error: psycopg.Error, cure: str) -> StoreError:
        if error.sqlstate is None and isinstance(
            error, psycopg.OperationalError | psycopg.InterfaceError
        ):
            return _unconnected(error, self._url)
        if error.sqlstate is None:
            return self._unread(error)
        told = StatementError(error.sqlstate, error.diag.message_primary or str(error))
        if error.sqlstate == schema.INSUFFICIENT_PRIVILEGE:
            filled = self._filled(cure)
            return StoreRefusesError(f"PostgreSQL, schema {self._namespace}: {told}; {filled}")
        if error.sqlstate in schema.MADE_MEANWHILE:
            return schema.not_ours(self._namespace, self._url)
        if error.sqlstate == _UNDEFINED_OBJECT:
            return StoreRefusesError(
                f"PostgreSQL: {told}; {login_rights.cure_of(str(told)) or 'create it'}"
            )
        return schema.explain(told, self._namespace, None, self._url)


def connect(url: str, settings: Mapping[str, str | None]) -> _Connection:
    """Connect; raises `LoginError`, and psycopg's errors. `settings`: those of `driver_settings`."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    wanted = address.parameters(READER_TIMEOUT, "oncecron", settings)
    unset: dict[str, Any] = {name: value for name, value in wanted.items() if name not in given}
    seconds = address.seconds_for_a_server(wanted, settings)

    def logged_in(**more: str) -> _Connection:
        own = unset | more
        login = log_in(
            lambda place: _Login(psycopg.conninfo.make_conninfo(url, **own | {**place})),
            *(settings, seconds, clock.BOOTTIME),
        )
        login.pgconn.nonblocking = 1
        connection = _Connection(login.pgconn)
        # A pooler may send the next statement to another session, which has prepared nothing.
        connection.autocommit, connection.prepare_threshold = True, None
        connection.cursor_factory = _Cursor
        connection.add_notify_handler(lambda _: None)  # else psycopg would keep them all
        return connection

    try:
        return logged_in()
    except address.LoginError as error:
        if not address.may_be_writable(error, settings):
            raise
        with contextlib.suppress(psycopg.Error, address.LoginError):
            connection = logged_in(**address.ANY_PRIMARY)
            statement = address.WRITABLE.format(connection.info.backend_pid)
            if connection.execute(statement).fetchone():
                return connection
            connection.close()
        raise


def driver_settings(url: str) -> dict[str, str | None]:
    """Return what psycopg's libpq, which may be another one than a firing's, would use for a URL."""
    text = psycopg.conninfo.make_conninfo(url, **address.NO_CONNECTION)
    unconnected = psycopg.pq.PGconn.connect_start(os.fsencode(text))
    found = [(each.keyword.decode(), each.val) for each in unconnected.info]
    unconnected.finish()
    return {name: None if value is None else os.fsdecode(value) for name, value in found}


def _unconnected(error: psycopg.Error, url: str) -> StoreError:
    return StoreUnavailable(
        f"PostgreSQL {masked(url)}: {address.one_line(without(str(error), url))}"
    )
