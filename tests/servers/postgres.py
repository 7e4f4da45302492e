"""PostgreSQL servers of the tests' own: start, stop, kill, freeze, and a hot standby.

Everybody logs in with a password (scram-sha-256), but for the superuser of the tests themselves at the unix socket.
`fsync` is off: the tests kill processes, not machines.
"""

import base64
import contextlib
import fcntl
import functools
import hashlib
import hmac
import itertools
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import psycopg
from psycopg import sql

from servers.process import (
    as_server_user,
    descendants,
    end,
    free_port,
    remove_directory,
    send,
    server_directory,
    spawn,
    wait_gone,
)
from servers.require import postgres_programs, program
from servers.skew import SteppedClock
from servers.waiting import eventually

SUPERUSER = "postgres"
# owner: may create schemas in its databases; the others log in and may do nothing.
ROLES = ("owner", "runner", "reader", "jobber", "operator", "outsider")
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
SETTINGS: dict[str, object] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": 200,
    "shared_buffers": "4MB",
    "max_wal_size": "256MB",
    "dynamic_shared_memory_type": "mmap",  # a killed server leaves it in its directory alone
    "wal_level": "replica",
    "max_wal_senders": 4,
    "password_encryption": "scram-sha-256",
    "log_line_prefix": "%m [%p] %u@%d ",
}
COPIES_IN_TWO_WAYS = 15_00_00
"""The first version of which a database can be had as a copy of files or by the WAL, as it does unasked."""
HBA = """\
local all postgres trust
local all all scram-sha-256
host all all 0.0.0.0/0 scram-sha-256
local replication all scram-sha-256
host replication all 0.0.0.0/0 scram-sha-256
"""

_names = itertools.count(1)


class Endpoint(Protocol):
    """Something a client can connect to in the server's place: a proxy, a pooler."""

    host: str
    port: int


def password_of(role: str) -> str:
    return f"{role}-password"


@functools.cache
def verifier_of(role: str) -> str:
    """Return what a server keeps of a password: a SCRAM secret (RFC 5803) of one round instead of 4,096.

    A login then costs a client 0.7 ms of CPU instead of 3.0, and a run of the tests has some ten thousand.
    """
    salt, rounds = b"the tests' salt!", 1
    salted = hashlib.pbkdf2_hmac("sha256", password_of(role).encode(), salt, rounds)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    as_text = [base64.b64encode(each).decode() for each in (salt, stored, server)]
    return "SCRAM-SHA-256${}:{}${}:{}".format(rounds, *as_text)


class PostgresServer:
    """One server with its own data directory and port.

    `prefix` is a command in front of the server's, such as `host.prefix` of a network namespace,
    `host` the address it listens on, `disk` a directory in which its data is to be, `clock` what it
    takes for the time; other keywords are settings of postgresql.conf.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", prefix: Sequence[str] = (), disk: Path | None = None,
        clock: SteppedClock | None = None, **settings: object,
    ) -> None:  # fmt: skip
        self.host = host
        self.clock = clock
        self.port = free_port()
        self.directory = server_directory("postgres")
        self.data = (disk or self.directory) / "data"
        self.settings = SETTINGS | settings
        self.prefix = list(prefix)
        self.programs = postgres_programs()
        self.process: subprocess.Popen[bytes] | None = None

    # Life

    def start(self) -> "PostgresServer":
        """Start the server, at the first time with a new data directory, and wait for it."""
        new = not self.data.exists()
        if new:
            self._initialise()
        self._launch()
        self.wait_ready()
        if new:
            self._create_roles()
        return self

    def wait_ready(self, deadline: float = 30) -> None:
        """Wait until the server answers; fail at once, with its log, when it has ended."""

        def answers() -> bool:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended instead of starting:\n{self.log()[-3000:]}")
            self.superuser_connect(connect_timeout=5).close()
            return True

        eventually(answers, deadline, retry_on=psycopg.OperationalError)

    def stop(self, mode: str = "fast") -> None:
        """Shut down as `pg_ctl stop -m mode` does."""
        if self.process is not None:
            self.sigcont()
            end(self.process, STOP_SIGNALS[mode])
            self.process = None

    def kill(self) -> None:
        """End postmaster and backends with SIGKILL and wait until none is left."""
        if self.process is None:
            return
        everybody = self.processes()
        send(everybody, signal.SIGSTOP)  # a backend that sees its postmaster gone would exit nicely
        everybody = self.processes()
        send(everybody, signal.SIGKILL)
        end(self.process, signal.SIGKILL)
        wait_gone(everybody)
        self.process = None

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """End the server and remove its files, and the shared memory that a kill left behind."""
        self.stop("immediate")
        pid_file = self.data / "postmaster.pid"
        if pid_file.exists():  # its seventh line: key and id of the segment
            segment = pid_file.read_text().splitlines()[6:7]
            if segment:
                command = [program("ipcrm"), "--shmem-id", segment[0].split()[1]]
                subprocess.run(command, check=False, capture_output=True)
        remove_directory(self.directory)

    def processes(self) -> list[Any]:
        return [] if self.process is None else descendants(self.process.pid)

    def sigstop(self) -> None:
        """Freeze every process of the server; the kernel still acknowledges for them."""
        send(self.processes(), signal.SIGSTOP)
        send(self.processes(), signal.SIGSTOP)  # the children born in between

    def sigcont(self) -> None:
        send(self.processes(), signal.SIGCONT)

    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    # Clients

    def url(self, user: str, database: str = "postgres", *, via: Endpoint | None = None) -> str:
        """Return a libpq URL over TCP, on demand by way of a proxy or pooler."""
        to = via or self
        return f"postgresql://{quote(user)}:{password_of(user)}@{to.host}:{to.port}/{database}"

    def superuser_connect(
        self, database: str = "postgres", **options: Any
    ) -> "psycopg.Connection[Any]":
        """Connect as superuser through the unix socket, in autocommit mode."""
        return psycopg.connect(
            host=str(self.directory), port=self.port, user=SUPERUSER, dbname=database, autocommit=True,
            **options,
        )  # fmt: skip

    def execute(self, statement: str, *values: object, database: str = "postgres") -> list[Any]:
        """Run one statement as superuser and return its rows."""
        with self.superuser_connect(database) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def configure(self, **settings: object) -> None:
        """Change settings for good and reload them; new sessions see them on return."""
        for name, value in settings.items():
            self.execute(f"alter system set {name} = '{value}'")
        # A new session inherits the load time from the postmaster, which reloads when it likes.
        [[before]] = self.execute("select pg_conf_load_time() from pg_reload_conf()")
        eventually(lambda: self.execute("select 1 where pg_conf_load_time() > %s", before) != [])

    def create_database(self, template: "Database | str | None" = None) -> "Database":
        """Create a database that belongs to `owner`, empty or as a copy of another.

        The template must have no sessions while it is copied.
        """
        name = f"test_{os.getpid()}_{next(_names)}"
        source = template.name if isinstance(template, Database) else template or "template0"
        with self.superuser_connect() as connection:
            # By the WAL it takes twice as long.
            two_ways = connection.info.server_version >= COPIES_IN_TWO_WAYS
            copy = "strategy file_copy" if two_ways else ""
            connection.execute(f"create database {name} owner owner template {source} {copy}")
        return Database(self, name)

    # Standby

    def make_standby(self, *, through: Endpoint | None = None, **options: Any) -> "Standby":
        """Make and start a hot standby; `through` is a proxy that its WAL comes by.

        It listens where its primary does, unless told otherwise.
        """
        return Standby(self, through, **options).start()

    def copy_from(self, primary: "PostgresServer", through: Endpoint | None = None) -> None:
        """Replace the data of this server, which is down, by a copy of another's, to follow it from the next start.

        Without `through` it reaches the other one by the unix socket.
        """
        shutil.rmtree(self.data, ignore_errors=True)
        host = through.host if through else str(primary.directory)
        self._run(
            "pg_basebackup", "-D", self.data, "-h", host, "-U", SUPERUSER,
            "-p", (through or primary).port, "-R", "-X", "stream", "-c", "fast", "--no-sync",
        )  # fmt: skip
        self._configure_files()

    def promote(self) -> None:
        """Make a standby a primary and wait until it writes."""
        self.execute("select pg_promote(true, 30)")
        eventually(lambda: self.execute("select 1 where not pg_is_in_recovery()") != [])

    # Within

    def _initialise(self) -> None:
        # With owner and modes; it costs a twentieth of initdb.
        subprocess.run(["cp", "-a", _initialised(self.programs), self.data], check=True)
        self._configure_files()

    def _configure_files(self) -> None:
        values = self.settings | {
            "port": self.port,
            "listen_addresses": self.host,
            "unix_socket_directories": self.directory,
        }
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in values.items())
        (self.data / "pg_hba.conf").write_text(HBA)

    def _create_roles(self) -> None:
        with self.superuser_connect() as connection:
            create = sql.SQL("create role {} login password {}")
            for role in ROLES:
                named = (sql.Identifier(role), sql.Literal(verifier_of(role)))
                connection.execute(create.format(*named))

    def _launch(self) -> None:
        # PDEATHSIG is QUIT: an immediate shutdown, which also frees the shared memory.
        with (self.directory / "log").open("ab") as log:
            self.process = spawn(
                [*self.prefix, *as_server_user("QUIT"), *(self.clock.prefix if self.clock else ()),
                 str(self.programs / "postgres"), "-D", str(self.data)],
                stdout=log, stderr=log, cwd=self.directory,
            )  # fmt: skip

    def _run(self, name: str, *arguments: object) -> None:
        _run(
            [*self.prefix, *as_server_user(), str(self.programs / name)], arguments, self.directory
        )


@functools.cache
def _initialised(programs: Path) -> Path:
    """Return a data directory that no server has ever run in, for all servers to copy.

    It is kept in the test environment: whoever comes first makes it, for all processes and the runs to come.
    """
    made_by = programs / "initdb"
    kept = Path(sys.prefix) / f"initdb-{zlib.crc32(bytes(made_by)):x}-{made_by.stat().st_mtime_ns}"
    with (Path(sys.prefix) / "initdb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            new = kept.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            subprocess.run(["cp", "-a", _initdb(programs), new], check=True)
            new.rename(kept)
    return kept


def _initdb(programs: Path) -> Path:
    directory = server_directory("initdb")
    secret = directory / "superuser-password"
    secret.write_text(password_of(SUPERUSER))
    _run(
        [*as_server_user(), str(programs / "initdb")],
        ["-D", directory / "data", "-U", SUPERUSER, "-E", "UTF8", "--locale=C.UTF-8",
         "--no-sync", "--auth=scram-sha-256", f"--pwfile={secret}"],
        directory,
    )  # fmt: skip
    return directory / "data"


def _run(program: Sequence[str], arguments: Iterable[object], directory: Path) -> None:
    environment = os.environ | {"PGPASSWORD": password_of(SUPERUSER), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*program, *map(str, arguments)],
        env=environment, cwd=directory, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{program[-1]} failed:\n{done.stderr.decode(errors='replace')}")


class Standby(PostgresServer):
    """A hot standby of another server, until it is promoted."""

    def __init__(self, primary: PostgresServer, through: Endpoint | None, **options: Any) -> None:
        here: dict[str, Any] = {"host": primary.host, "prefix": primary.prefix}
        super().__init__(**(here | primary.settings | options))
        self.primary = primary
        self.through = through

    def start(self) -> "Standby":
        """Copy the primary the first time, start, and wait until reads are answered."""
        super().start()
        return self

    def _initialise(self) -> None:
        self.copy_from(self.primary, self.through)

    def _create_roles(self) -> None:
        """Do nothing: they came with the copy."""


@dataclass(frozen=True)
class Database:
    """One database of a server, with the roles of the tests."""

    server: PostgresServer
    name: str
    run_as: str = "owner"

    def url(self, user: str | None = None, *, via: Endpoint | None = None) -> str:
        """Return the URL for one of ROLES (or the superuser); by default the one that fires."""
        return self.server.url(user or self.run_as, self.name, via=via)

    def url_by_socket(self, directory: Path, port: int) -> str:
        """Return the URL for the role that fires, at the unix socket of the server or of a pooler."""
        user = f"{quote(self.run_as)}:{password_of(self.run_as)}"
        return f"postgresql://{user}@/{self.name}?host={directory}&port={port}"

    def connect(
        self, user: str = "owner", *, via: Endpoint | None = None, **options: Any
    ) -> "psycopg.Connection[Any]":
        """Connect over TCP, in autocommit mode unless told otherwise."""
        options.setdefault("autocommit", True)
        options.setdefault("connect_timeout", 10)
        return psycopg.connect(self.url(user, via=via), **options)

    def execute(self, statement: str, *values: object) -> list[Any]:
        return self.server.execute(statement, *values, database=self.name)

    def drop(self) -> None:
        """Remove it, with the sessions that a test left."""
        self.server.execute(f"drop database if exists {self.name} with (force)")

    @contextlib.contextmanager
    def until_dropped(self) -> Iterator["Database"]:
        try:
            yield self
        finally:
            self.drop()
