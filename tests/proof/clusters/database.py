"""The database of a cluster: a PostgreSQL server on a small disk, and what befalls it."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from servers import Database, Disk, PostgresServer, eventually
from servers.oncecron import installed
from servers.postgres import password_of

from clusters.cluster import Lookout, StoreFault, silent
from clusters.storm import Storm

SETTINGS: dict[str, object] = {
    "synchronous_commit": "on",
    "max_connections": 60,
    "min_wal_size": "32MB",
    "max_wal_size": "64MB",
    "wal_keep_size": "32MB",
    "wal_recycle": "off",  # so that a full disk is met by the next segment
    "wal_retrieve_retry_interval": "500ms",
}
MEGABYTES = 256
AWAY = (psycopg.Error, AssertionError)
ONCE = (0.0, 0.0)
# Whoever may not write the table may not write at all; `alive` is for the operator alone.
REGISTER = """
create schema work;
create table work.register (id bigserial, key text not null, token bigint not null);
create table work.alive (at timestamptz);
insert into work.alive values (now());
grant usage on schema work to jobber;
grant insert on work.register to jobber;
grant usage on sequence work.register_id_seq to jobber;
"""
# One simple query, so that no client can be stopped half-way. The numbers of `id` are in the order of the commits, as
# far as a key's tokens differ: assert_fence shares the row of the fence until the commit, and the claim that raises the
# fence updates that row. So each transaction that passed with the old token has drawn its number and has committed
# before the claim commits, and with the new token nobody passes, to draw a number, before that.
FENCED = """
exec "$0" -qXAt -v ON_ERROR_STOP=1 "$1" -c "
begin; select oncecron.assert_fence('$2', $3); insert into work.register (key, token) values ('$2', $3); commit"
"""
PATIENCE = "connect_timeout=3&tcp_user_timeout=5000&keepalives_idle=2&keepalives_interval=1&keepalives_count=3"


class ClusterDatabase:
    """The database; `server` is whoever takes its writes now, `disks` are the servers' where there are any."""

    def __init__(
        self, server: PostgresServer, disks: dict[PostgresServer, Disk], ttl: float
    ) -> None:
        self.server = server
        self._ttl = ttl
        self.disks = disks
        self.name = ""
        self._rights: list[str] = []

    def install(self, script: Path) -> None:
        """Make the database, its schema and its roles, with the `oncecron` that is to fire."""
        database = self.server.create_database()
        installed(database, prefix=self.server.prefix, script=script)
        self.name = database.name
        self.ask(REGISTER)
        rows = self.ask(
            "select oid::regprocedure::text from pg_proc where pronamespace = 'oncecron'::regnamespace"
            " and has_function_privilege('runner', oid, 'execute') order by 1"
        )
        self._rights = [f"execute on function {function}" for (function,) in rows]

    @property
    def present(self) -> Database:
        """The database on the server that takes its writes now."""
        return Database(self.server, self.name, "runner")

    def ask(self, statement: str, *values: object) -> list[Any]:
        """Run one statement as superuser, who does not wait for ever: nor for a standby, which no timeout ends."""
        with self.server.superuser_connect(
            self.name,
            connect_timeout=5,
            options="-c statement_timeout=10s -c synchronous_commit=local",
        ) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    # What it says afterwards

    def fenced_write(self, url: str) -> list[str]:
        """Return the command for a job whose role has this URL."""
        psql = self.server.programs / "psql"
        url += ("&" if "?" in url else "?") + PATIENCE
        return ["/bin/sh", "-c", FENCED, str(psql), url]

    def register(self) -> list[tuple[str, int]]:
        return [tuple(row) for row in self.ask("select key, token from work.register order by id")]

    def leases(self) -> list[str]:
        rows = self.ask(
            "select format('lease of %s, execution %s by %s/%s, is %s: row %s, lock %s', key, execution_id, host,"
            " pid, state, case when expires_at is null then 'missing' else 'until ' || expires_at end,"
            " coalesce('of backend ' || backend_pid, 'missing')) from oncecron.leases"
        )
        locks = self.ask(
            "select format('advisory lock %s/%s of backend %s', classid, objid, pid) from pg_locks"
            " where locktype = 'advisory' and database ="
            " (select oid from pg_database where datname = current_database())"
        )
        return [sentence for (sentence,) in rows + locks]

    def sessions(self) -> list[str]:
        rows = self.ask(
            "select format('session %s of %s, %s, since %s: %s', pid, usename, application_name, backend_start,"
            " state) from pg_stat_activity where usename in ('runner', 'jobber', 'operator')"
        )
        return [sentence for (sentence,) in rows]

    # Its life

    def writes(self) -> bool:
        return self.ask("update work.alive set at = now() returning 1") == [(1,)]

    def beat(self, lookout: Lookout, through: Any = None) -> None:
        """Write, and wait for the standby too; `through` is a pooler in between."""
        with (
            lookout.to(through or self.server) as end,
            self.present.connect("postgres", via=end, connect_timeout=5) as connection,
        ):
            connection.execute("update work.alive set at = now()")

    def up(self) -> None:
        """Get the server up, whatever it is doing, and wait until it takes writes."""
        self.server.sigcont()
        if self.server in self.disks:
            self.disks[self.server].free()
        eventually(self._started, 60, (*AWAY, RuntimeError))
        eventually(self.writes, 30, AWAY)

    def _started(self) -> bool:
        if self.server.process is None or self.server.process.poll() is not None:
            self.server.start()
        else:
            self.server.wait_ready()  # it may be dying yet
        return True

    # What befalls it

    def faults(self, well: Callable[[], None]) -> list[StoreFault]:
        """Return what befalls any server; `well` gets up whatever is down, here and around it."""

        def grant() -> None:
            well()
            self._grant()

        def freeze(_: Random) -> str:
            self.server.sigstop()  # whichever it is then
            return ""

        faults = [
            StoreFault("restart the server", self._restart, well, ONCE),
            StoreFault("kill the server", silent(self._kill), well, ONCE),
            StoreFault("server away", self._away, well, (4, 2 * self._ttl)),
            StoreFault("freeze the server", freeze, well, (3, self._ttl + 4)),
            StoreFault("revoke rights", self._revoke, grant, (2, 8)),
            StoreFault("end the sessions", self._terminate, well, ONCE),
        ]
        if self.disks:
            faults.append(StoreFault("disk full", self._fill, well, (3, 8)))
        return faults

    def storm(self, well: Callable[[], None]) -> StoreFault:
        """Return a storm that takes the connections of the server itself."""

        def connect() -> Any:
            return psycopg.connect(
                host=str(self.server.directory), port=self.server.port, dbname=self.name,
                user="reader", password=password_of("reader"), connect_timeout=5,
            )  # fmt: skip

        return storm_fault(connect, 80, (psycopg.OperationalError,), well)

    def _restart(self, random: Random) -> str:
        mode = random.choice(["fast", "immediate"])
        self.server.stop(mode)
        self.up()
        return mode

    def _kill(self) -> None:
        self.server.kill()
        self.up()

    def _away(self, random: Random) -> str:
        mode = random.choice(["fast", "kill"])
        if mode == "kill":
            self.server.kill()
        else:
            self.server.stop(mode)
        return mode

    def _fill(self, random: Random) -> str:
        self.disks[self.server].fill()
        if random.random() < 0.5:
            return ""
        try:
            self.ask("select pg_switch_wal()")
            self.ask("update work.alive set at = now()")
        except psycopg.Error as error:
            return f"and the WAL wants a segment: {error}".splitlines()[0]
        return "and the WAL wanted a segment"

    def _terminate(self, _: Random) -> str:
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'runner'"
        return f"{len(self.ask(ended))} sessions"

    def _revoke(self, random: Random) -> str:
        if random.random() < 0.5:
            self.ask("revoke usage on schema oncecron from runner")
            return "usage of the schema"
        self.ask("; ".join(f"revoke {right} from runner" for right in self._rights))
        return "execute"

    def _grant(self) -> None:
        self.ask("grant usage on schema oncecron to runner")
        self.ask("; ".join(f"grant {right} to runner" for right in self._rights))


def storm_fault(
    connect: Callable[[], Any], most: int, refusals: tuple[type[Exception], ...], well: Callable[[], None],
) -> StoreFault:  # fmt: skip
    blowing: list[Storm] = []

    def begin(_: Random) -> str:
        blowing.append(Storm(connect, most, refusals))
        return blowing[-1].begin()

    def undo() -> None:
        while blowing:
            blowing.pop().end()
        well()

    return StoreFault("connection storm", begin, undo, (3, 8))
