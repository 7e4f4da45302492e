"""PgBouncer in front of a PostgreSQL server of the tests."""

import signal
from pathlib import Path

import psycopg

from servers.postgres import ROLES, SUPERUSER, PostgresServer, password_of
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
* = host={host} port={server_port}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {directory}/users
admin_users = postgres
pool_mode = {mode}
default_pool_size = {pool_size}
max_client_conn = 1000
logfile = {directory}/log
pidfile = {directory}/pid
"""


class PgBouncer:
    """A pooler with the roles of the tests; `mode` is `transaction` or `session`.

    Startup parameters that it does not know are refused, as its default is.
    """

    def __init__(
        self, server: PostgresServer, mode: str = "transaction", pool_size: int = 20
    ) -> None:
        self.server = server
        self.mode = mode
        self.host = server.host
        self.port = free_port()
        self.directory = server_directory("pgbouncer")
        self.pool_size = pool_size

    def start(self) -> "PgBouncer":
        """Start it and wait until it answers."""
        users = "".join(f'"{role}" "{password_of(role)}"\n' for role in (*ROLES, SUPERUSER))
        (self.directory / "users").write_text(users)
        self._ini().write_text(
            INI.format(
                host=self.host,
                port=self.port,
                server_port=self.server.port,
                directory=self.directory,
                mode=self.mode,
                pool_size=self.pool_size,
            )
        )
        command = [program("pgbouncer"), "--quiet", str(self._ini())]
        self.process = spawn([*self.server.prefix, *as_server_user(), *command], cwd=self.directory)
        self.wait_ready()
        return self

    def wait_ready(self, deadline: float = 10) -> None:
        """Wait until its console answers (through TCP: it must be reachable from here)."""

        def answers() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"PgBouncer ended instead of starting:\n{self.log()}")
            psycopg.connect(self.console_url(), connect_timeout=5).close()
            return True

        eventually(answers, deadline, retry_on=psycopg.OperationalError)

    def console_url(self) -> str:
        """Return the URL of its administration console."""
        return self.server.url(SUPERUSER, "pgbouncer", via=self)

    def log(self) -> str:
        """Return its log."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """End it at once; its clients' connections break."""
        end(self.process, signal.SIGTERM)

    def remove(self) -> None:
        """End it and remove its files."""
        self.stop()
        remove_directory(self.directory)

    def _ini(self) -> Path:
        return self.directory / "pgbouncer.ini"
