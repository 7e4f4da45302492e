"""The connection of the commands for people to PostgreSQL, with psycopg: it explains every error, with a cure."""

from __future__ import annotations

import contextlib
import os

import psycopg

from oncecron.core.errors import StoreError, StoreRefusesError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import recordable_values
from oncecron.core.timing import READER_TIMEOUT
from oncecron.stores.address import as_role, masked, where_options
from oncecron.stores.postgres import address, libpq, login_rights, schema
from oncecron.stores.postgres.client import StatementError
from oncecron.stores.postgres.installation import statements
from oncecron.stores.schema_version import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Self

_UNDEFINED_OBJECT = "42704"
READERS_CURE = "{read}"
OWNERS_CURE = "have {{owner}}, the owner, run `oncecron {words}{{as_owner}}`"
"""A cure once the words of a command are filled in, in which braces are doubled."""
INIT_CURE = (
    OWNERS_CURE + ", or have a DBA run the SQL that `oncecron {words} --print-sql{{here}}` prints"
)


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
            except psycopg.Error as error:
                raise _unconnected(error, self._url, settings) from error
            if wrong := address.wrong_server(self._connection.info.parameter_status, self._url):
                self.close()
                raise wrong
            own = {"client_backend": self._connection.info.backend_pid}
            with self._explained(READERS_CURE):
                self._connection.execute(self._sql["set_up"], own)
        return self._connection

    def _installed(self, cure: str = READERS_CURE) -> psycopg.Connection[tuple[Any, ...]]:
        """Return the connection after checking that the schema exists and serves this program."""
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
        """Return what the schema says about itself, or None if there is no schema."""
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
        """Return this role and the schema's owner, as far as the server still answers."""
        with contextlib.suppress(psycopg.Error, StoreError):
            asked = schema.ROLE_AND_OWNER.format(namespace=self._namespace)
            if row := self._connected().execute(asked).fetchone():
                return row[0], row[1]
        return "ROLE", "OWNER"

    def _filled(self, cure: str) -> str:
        """Return a cure with the commands, and with the roles that are meant."""
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
        """Turn an error of psycopg into a one-line error with a cure."""
        try:
            yield
        except psycopg.Error as error:
            if self._connection is not None and self._connection.broken:
                self.close()
            raise self._explain(error, cure) from error

    def _explain(self, error: psycopg.Error, cure: str) -> StoreError:
        if error.sqlstate is None:
            return _unconnected(error, self._url)
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


def connect(url: str, settings: Mapping[str, str | None]) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect; raises psycopg's errors. `settings`: those of `driver_settings`."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    wanted = address.parameters(READER_TIMEOUT, "oncecron", settings)
    unset: dict[str, Any] = {name: value for name, value in wanted.items() if name not in given}
    try:
        return psycopg.connect(
            url, autocommit=True, prepare_threshold=None, cursor_factory=_Cursor, **unset
        )
    except psycopg.OperationalError as error:
        if not address.may_be_writable(str(error), settings):
            raise
        with contextlib.suppress(psycopg.Error):
            unset |= address.ANY_PRIMARY
            connection = psycopg.connect(
                url, autocommit=True, prepare_threshold=None, cursor_factory=_Cursor, **unset
            )
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


def _unconnected(
    error: psycopg.Error, url: str, settings: Mapping[str, str | None] | None = None
) -> StoreError:
    """Return the oncecron error for a failed connection, without psycopg's prefixes."""
    text = str(error).removeprefix("connection failed: ").removeprefix("connection is bad: ")
    return address.explain(text, url, settings)
