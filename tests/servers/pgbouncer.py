"""PgBouncer in front of a PostgreSQL server of the tests."""

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import ClientCursor
from psycopg.rows import dict_row

from servers.postgres import ROLES, SUPERUSER, PostgresServer, password_of, verifier_of
from servers.process import (
    as_server_user,
    end,
    free_port,
    remove_directory,
    server_directory,
    spawn,
)
from servers.require import program
from servers.waiting import eventually

INI = """\
[databases]
* = host={server_host} port={server_port}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir = {directory}
auth_type = scram-sha-256
auth_file = {directory}/users
admin_users = postgres
pool_mode = {mode}
default_pool_size = {pool_size}
logfile = {directory}/log
pidfile = {directory}/pid
{settings}
"""


class PgBouncer:
    """A pooler with the roles of the tests; `mode` is `transaction` or `session`.

    Startup parameters that it does not know are refused, as its default is. It stands beside its
    server, unless `host` and `prefix` tell otherwise; other keywords are settings of pgbouncer.ini.
    """

    def __init__(
        self, server: PostgresServer, mode: str = "transaction", pool_size: int = 20, *,
        host: str | None = None, prefix: Sequence[str] | None = None, **settings: object,
    ) -> None:  # fmt: skip
        self.server = server
        self.mode = mode
        self.host = server.host if host is None else host
        self.prefix = server.prefix if prefix is None else list(prefix)
        self.settings = {"max_client_conn": 1000} | settings
        self.port = free_port()
        self.directory = server_directory("pgbouncer")
        self.pool_size = pool_size

    def start(self) -> "PgBouncer":
        # With the server's own secrets it can log in there by what its client has shown.
        users = "".join(f'"{role}" "{verifier_of(role)}"\n' for role in ROLES)
        users += f'"{SUPERUSER}" "{password_of(SUPERUSER)}"\n'
        (self.directory / "users").write_text(users)
        self._ini().write_text(
            INI.format(
                server_host=self.server.host, server_port=self.server.port, **vars(self)
                | {"settings": "\n".join(f"{name} = {value}" for name, value in self.settings.items())},
            )
        )  # fmt: skip
        command = [program("pgbouncer"), "--quiet", str(self._ini())]
        self.process = spawn([*self.prefix, *as_server_user(), *command], cwd=self.directory)
        self.wait_ready()
        return self

    def wait_ready(self, deadline: float = 10) -> None:
        def answers() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"PgBouncer ended instead of starting:\n{self.log()}")
            self.console("show version")
            return True

        eventually(answers, deadline, retry_on=psycopg.OperationalError)

    def connect(self, user: str, database: str, **options: Any) -> "psycopg.Connection[Any]":
        """Connect through the unix socket."""
        return psycopg.connect(
            host=str(self.directory), port=self.port, dbname=database, user=user,
            password=password_of(user), autocommit=True, connect_timeout=5, **options,
        )  # fmt: skip

    def console(self, command: str) -> list[dict[str, Any]]:
        """Say something to its administration console and return the rows of the answer."""
        with contextlib.closing(
            self.connect(SUPERUSER, "pgbouncer", row_factory=dict_row, cursor_factory=ClientCursor)
        ) as connection:
            cursor = connection.execute(command)
            return cursor.fetchall() if cursor.description else []

    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """End it at once; its clients' connections break."""
        end(self.process, signal.SIGTERM)

    def kill(self) -> None:
        end(self.process, signal.SIGKILL)

    def sigstop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        self.stop()
        remove_directory(self.directory)

    def _ini(self) -> Path:
        return self.directory / "pgbouncer.ini"
