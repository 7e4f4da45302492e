"""A session that calls the functions of the schema; it connects at the first call, and at the next after an error."""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.errors import StoreError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import CALL_TIMEOUT, HEARTBEATS_PER_TTL
from oncecron.stores.postgres import schema
from oncecron.stores.postgres.client import PostgresClient, StatementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.stores import Steadiness
    from oncecron.stores.address import Address
    from oncecron.stores.postgres.client import Value
    from oncecron.stores.postgres.libpq import Row

    Values = dict[str, Value]
    """Arguments by the names of their parameters, without `p_`."""
    Answer = dict[str, str]
    """The columns of a row that are not null, by name; true is `t`."""

BACKEND_START = (
    "(select s.backend_start from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) s)"
)
"""When the client's backend started, queried as the client: a function of the schema's owner may not see it."""

KEY_ID = "k.key_id"
"""That of the row which the same statement looks at."""

_SERIALIZATION_FAILURE = "40001"
_READ_COMMITTED = (
    b"select pg_catalog.set_config('default_transaction_isolation', 'read committed', false)"
    b" where pg_catalog.pg_backend_pid() = $1"  # a pooler's session is also others'
)

FULL = 80
"""The percentage of the connections for ordinary roles from which on the server has no room for held ones."""


class PostgresSession:
    """The functions of one schema, each call one statement and one round trip."""

    lease_clock = clock.BOOTTIME
    survives_fork = True
    steadiness: Steadiness | None = None

    def __init__(self, url: str, *, namespace: str, ttl: float) -> None:
        self._url = url
        self._schema = schema.quoted(namespace)
        self._namespace = namespace
        self._server_timeout = min(CALL_TIMEOUT, ttl / HEARTBEATS_PER_TTL)
        self._client: PostgresClient | None = None
        self._locked = False
        """Whether this session has the session lock."""
        self._name = "oncecron"

    def watch_fd(self) -> int | None:
        """Return the session's socket: readable when the server has closed it."""
        return self._client.fileno() if self._client else None

    def readdress(self, address: Address) -> None:
        """Take another address for later connections."""
        self._url = address.target

    def close(self) -> None:
        """Close the session, which frees its lock."""
        client, self._client, self._locked = self._client, None, False
        if client:
            client.close()

    def _connection(self, deadline: float) -> PostgresClient:
        if self._client is None:
            self._client = PostgresClient(
                self._url,
                clock=self.lease_clock,
                deadline=deadline,
                server_timeout=self._server_timeout,
                name=self._name,
            )
        return self._client

    def _door(self, function: str, deadline: float) -> str:
        """Return the function to call: its twin if the session is a pooler's, which is faster there (warm.sql)."""
        return f"warm_{function}" if self._connection(deadline).is_pooled else function

    def _ask(self, statement: bytes, values: Sequence[Value], deadline: float) -> list[Row]:
        client = self._connection(deadline)
        try:
            return client.ask(statement, values, deadline=deadline)
        except StoreError as error:
            error.unanswered = True
            self.close()  # its answer may still come, so this session is never used again
            raise

    def _select(self, sources: str, values: Sequence[Value], deadline: float) -> Answer:
        """Return the row of the functions in a FROM clause.

        A claim's look sets up its session. In any other the role's transactions may be serializable: what fails for
        that alone has been rolled back, and is repeated.
        """
        # FOR UPDATE: to PostgreSQL it says nothing about functions. A pooler that sends reads to standbys takes it for
        # a write.
        statement = f"select * from {sources} for update".encode()
        try:
            return self._row(statement, values, deadline)
        except StatementError as error:
            if error.sqlstate != _SERIALIZATION_FAILURE:
                raise
        self._ask(_READ_COMMITTED, (self._connection(deadline).backend_pid,), deadline)
        return self._row(statement, values, deadline)

    def _row(self, statement: bytes, values: Sequence[Value], deadline: float) -> Answer:
        client = self._connection(deadline)
        [row] = self._ask(statement, values, deadline)
        return {
            name: column.decode("utf-8", "replace")
            for name, column in zip(client.names, row, strict=True)
            if column is not None
        }

    def _function(self, name: str, values: Values, sent: list[Value]) -> str:
        """Return the call of a function with its arguments by name; add them to those that are sent."""
        places = []
        for parameter, value in values.items():
            if value is BACKEND_START or value is KEY_ID:
                places.append(f"p_{parameter}=>{value}")
            else:
                sent.append(value)
                places.append(f"p_{parameter}=>${len(sent)}")
        return f"{self._schema}.{name}({','.join(places)})"

    def _try(self, function: str, values: Values, deadline: float) -> Answer:
        """Call a function. Raises `StatementError` where the session can go on."""
        sent: list[Value] = []
        return self._select(self._function(function, values, sent), sent, deadline)

    def _call(self, function: str, values: Values, deadline: float) -> Answer:
        """Call a function; return the columns that are not null, as text."""
        try:
            return self._try(function, values, deadline)
        except StatementError as error:
            raise self._error_of(error) from error

    def _value(self, function: str, values: Values, deadline: float) -> str | None:
        """Call a function that returns one value."""
        return next(iter(self._call(function, values, deadline).values()), None)

    def _call_installed(self, sources: str, values: Sequence[Value], deadline: float) -> Answer:
        """Return the row of functions in a FROM clause; install the schema first if the database has none."""
        try:
            return self._select(sources, values, deadline)
        except StatementError as error:
            is_there = error.sqlstate not in schema.MISSING
            if is_there or self._ask(schema.EXISTS, (self._schema,), deadline)[0][0] == b"t":
                raise self._error_of(error) from error
        from oncecron.stores.postgres.sql_files import install  # noqa: PLC0415 - for a first firing

        try:
            install(self._connection(deadline), self._namespace, deadline=deadline)
            return self._select(sources, values, deadline)
        except StatementError as error:
            raise self._error_of(error) from error

    def _error_of(self, error: StatementError) -> StoreError:
        client, self._client = self._client, None
        try:
            return schema.explain(error, self._namespace, client, self._url)
        finally:
            if client:
                client.close()
            self._locked = False
