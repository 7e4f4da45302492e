"""The schema of a drill in PostgreSQL, and what the server says of itself."""

from __future__ import annotations

import contextlib
from urllib.parse import quote, urlencode

import psycopg

from oncecron.core.errors import StoreError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.postgres.people_connection import Connection, driver_settings
from oncecron.stores.postgres.schema import quoted
from oncecron_drill.stores import Sight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from oncecron.stores.address import Address
    from oncecron_drill.stores import Write

_PORT = 5432
_TRIES, _LOCK_TIMEOUT = 5, "2s"
# The first eight digits of a WAL file are the timeline; a standby may not ask for it.
_SEEN = """
select pg_catalog.current_setting('server_version'),
  coalesce(pg_catalog.host(pg_catalog.inet_server_addr()), '') || ':' || pg_catalog.current_setting('port'),
  pg_catalog.pg_postmaster_start_time()::text,
  case when pg_catalog.pg_is_in_recovery() then 'standby'
    else pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) end,
  extract(epoch from pg_catalog.clock_timestamp())::float8
"""
_GONE = "select pg_catalog.to_regnamespace('{ns}') is null"
# Of a session whose host was killed: the server may notice that hours later.
_IN_THE_WAY = """
select pg_catalog.pg_terminate_backend(l.pid) from pg_catalog.pg_locks l
  join pg_catalog.pg_class c on c.oid = l.relation
  where c.relnamespace = pg_catalog.to_regnamespace('{ns}') and l.pid <> pg_catalog.pg_backend_pid()
"""


class PostgresDrill(Connection):
    """See `DrilledStore`; its own connection is the session of `look`."""

    def __init__(self, address: Address, namespace: str) -> None:
        super().__init__(address.target, namespace)
        self._address, self._ns = address, quoted(namespace)
        self._counts = False
        self._is_lost = False

    @property
    def servers(self) -> Sequence[tuple[str, int]]:
        settings = driver_settings(self._url)
        hosts = (settings["hostaddr"] or settings["host"] or "").split(",")
        ports = (settings["port"] or "").split(",")
        ports *= len(hosts) if len(ports) == 1 else 1
        if any(host[:1] in ("", "/", "@") for host in hosts):
            return ()
        return [(host, int(port or _PORT)) for host, port in zip(hosts, ports, strict=True)]

    @property
    def unproxied(self) -> str:
        return "" if self.servers else "a Unix socket has no proxy"

    def role(self) -> str | None:
        return self._connected().info.user

    def address_through(self, ports: Sequence[int]) -> tuple[str, dict[str, str]]:
        hold = self._address.hold
        url = self._through(ports, **({"hold": hold} if hold != "auto" else {}))
        password = self._connected().info.password
        return url, {"PGPASSWORD": password} if password else {}

    def _through(self, ports: Sequence[int], **more: str) -> str:
        if ports:
            # Names stay what they are, for TLS; ~/.pgpass may know the port, so that the password is given.
            more["hostaddr"] = ",".join(["127.0.0.1"] * len(ports))
            more["port"] = ",".join(map(str, ports))
        join = "&" if "?" in self._url else "?"
        return self._url + (join + urlencode(more, safe=",", quote_via=quote) if more else "")

    def prepare(self) -> None:
        """Make a table for the beats, if this role may: in a namespace that a DBA has prepared it may only fire."""
        with contextlib.suppress(StoreError), self._explained("{owner}"):
            connection = self._connected()
            connection.execute(f"create table {self._ns}.drill_beat (number bigint)")
            connection.execute(f"insert into {self._ns}.drill_beat values (0)")
            self._counts = True

    def remove(self) -> None:
        for number in range(_TRIES):
            with self._explained("have {owner} do it"):
                connection = self._connected()
                connection.execute(f"set lock_timeout = '{_LOCK_TIMEOUT}'")
                try:
                    connection.execute(f"drop schema if exists {self._ns} cascade")
                except psycopg.errors.LockNotAvailable:
                    if number == _TRIES - 1:
                        raise
                    connection.execute(_IN_THE_WAY.format(ns=self._ns))
                else:
                    return

    def look(self) -> Sight:
        """Ask; a session that was lost is an error once, and is replaced at the next call."""
        with self._explained("{owner}"):
            row: Any = self._connected().execute(_SEEN).fetchone()
        version, place, started, timeline, clock = row
        role = "standby" if timeline == "standby" else f"primary, timeline {int(timeline, 16)}"
        return Sight(
            f"PostgreSQL {version}", place, f"{started} {timeline}", f"{role}, up since {started[:19]}", clock,
        )  # fmt: skip

    def writer(self, ports: Sequence[int]) -> Write:
        password = self._connected().info.password
        url = self._through(ports, **({"password": password} if password else {}))

        def write(number: int) -> int | None:
            other = PostgresDrill(self._address._replace(target=url), self._namespace)
            try:
                with other._explained("{owner}"):
                    return self._write(other._connected(), number)
            finally:
                other.close()

        return write

    def _write(self, connection: psycopg.Connection, number: int) -> int | None:
        if not self._counts:
            return self._find_it(connection)
        statement = (
            f"with old as (select number from {self._ns}.drill_beat for update) "
            f"update {self._ns}.drill_beat b set number = greatest(b.number, %s) from old returning old.number"
        )
        try:
            row: Any = connection.execute(statement, (number,)).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            self._counts, self._is_lost, row = False, True, None  # which is told once
        return int(row[0]) if row else -1

    @contextlib.contextmanager
    def plain_lock(self, key: str) -> Iterator[bool]:
        """Of a transaction, which a pooler keeps together; no guard ends the job when the session is lost."""
        with self._explained("{owner}"), self._connected().transaction():
            asked = "select pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%s))"
            [is_ours] = self._connected().execute(asked, (f"{self._ns} {key}",)).fetchone() or [
                False
            ]
            yield is_ours

    def _find_it(self, connection: psycopg.Connection) -> int | None:
        """Look for the schema of a drill that has no table in it; say once that it is gone."""
        row: Any = connection.execute(_GONE.format(ns=self._ns)).fetchone()
        if self._is_lost or not row[0]:
            return None
        self._is_lost = True
        return -1


def open_drilled(address: Address, namespace: str) -> PostgresDrill:
    """Return the store of a drill."""
    return PostgresDrill(address, namespace)
