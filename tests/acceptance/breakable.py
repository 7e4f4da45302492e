"""Servers that a test may break, behind one set of words."""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import redis
from log_of import PostgresLog, RedisLog, Store
from servers import Database, FaultProxy, PostgresServer, RedisServer
from servers.oncecron import installed


class Breakable(Protocol):
    """A store on a server of the test's own."""

    server: Any
    """Has `host`, `port`, `start()` and `kill()`."""
    log: Store
    claim: bytes
    """What a claim that grants has in its request, and nothing else has."""
    finish: bytes
    """The same of an end."""

    def url(self, via: Any = None) -> str:
        """Return the store's URL, on demand by way of a proxy."""

    def stop(self, mode: str) -> None:
        """End the server: `fast`, `immediate` or `kill`."""

    def turns_to_connect(self, proxy: FaultProxy) -> int:
        """Return the round trips that it takes to connect and to log in."""

    def sessions(self) -> list[int]:
        """Return the connections that hold a lease."""

    def end_session(self, session: int) -> None:
        """Close a connection from the server's side."""

    def take_leases_away(self) -> None:
        """Remove every lease behind its holder's back."""

    def leases(self) -> int:
        """Return how many leases and session locks there are."""


class BreakablePostgres:
    """A database on a server of its own."""

    claim = b"grant_v1"
    finish = b"finish_v1"

    def __init__(
        self, server: PostgresServer, *, prefix: list[str] | None = None, parameters: str = ""
    ) -> None:
        self.server = server
        self._parameters = parameters
        self._database: Database = installed(server.create_database(), prefix=prefix or [])
        self.log = PostgresLog(self._database)

    def url(self, via: Any = None) -> str:
        return self._database.url(via=via) + self._parameters

    def stop(self, mode: str) -> None:
        if mode == "kill":
            self.server.kill()
        else:
            self.server.stop(mode)

    def turns_to_connect(self, proxy: FaultProxy) -> int:
        self._database.connect("owner", via=proxy).close()
        return proxy.connections()[-1].round_trips

    def sessions(self) -> list[int]:
        """Return the backends that hold both lease and session lock."""
        rows = self._database.execute(
            "select backend_pid from oncecron.leases where state = 'held'"
        )
        return [pid for (pid,) in rows]

    def end_session(self, session: int) -> None:
        self._database.execute("select pg_terminate_backend(%s)", session)

    def take_leases_away(self) -> None:
        self._database.execute("select oncecron.settle_v1(key_id, true) from oncecron.job_key")

    def leases(self) -> int:
        count: int = self._database.execute("select count(*) from oncecron.leases")[0][0]
        return count


class BreakableRedis:
    """A server of its own, with an append-only file."""

    claim = b"if_version"
    finish = b"keep_executions"

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.log = RedisLog(server)
        self._client = server.connect(decode_responses=True)

    def url(self, via: Any = None) -> str:
        return self.server.url(via=via)

    def stop(self, mode: str) -> None:
        """Shut down in order (`fast`), let it lose what it has (`immediate`), or kill it."""
        if mode == "immediate":
            with contextlib.suppress(redis.ConnectionError):
                self._client.flushall()
        if mode == "fast":
            self.server.stop()
        else:
            self.server.kill()

    def turns_to_connect(self, proxy: FaultProxy) -> int:
        """Return none: who we are goes ahead of the first command."""
        del proxy
        return 0

    def sessions(self) -> list[int]:
        """Return the connections of firings while there is a lease."""
        clients = self._client.client_list() if self.leases() else []
        return [int(c["id"]) for c in clients if c["name"].startswith("oncecron:")]

    def end_session(self, session: int) -> None:
        self._client.client_kill_filter(_id=str(session))

    def take_leases_away(self) -> None:
        self._client.delete(*self._client.keys("*:lease:*"))

    def leases(self) -> int:
        return len(self._client.keys("*:lease:*"))


def start_breakable(
    kind: str,
    new_postgres: Callable[..., PostgresServer],
    new_redis: Callable[..., RedisServer],
    **settings: Any,
) -> Breakable:
    """Start a server of this kind; `settings` are its own, and host and prefix of another place.

    `unheld` is PostgreSQL with `?hold=no`.
    """
    if kind == "redis":
        return BreakableRedis(new_redis(aof=True, **settings))
    return BreakablePostgres(
        new_postgres(synchronous_commit="on", **settings),
        prefix=settings.get("prefix"),
        parameters="?hold=no" if kind == "unheld" else "",
    )
