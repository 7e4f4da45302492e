"""The PostgreSQL servers and poolers of the tests do what the tests believe of them."""

import contextlib
import signal
from collections.abc import Callable

import psycopg
import pytest
from servers import ROLES, Database, PgBouncer, PostgresServer, eventually

NewServer = Callable[..., PostgresServer]


def test_owner_may_create_schemas_and_others_may_not(database: Database) -> None:
    """Only the role `owner` can make a schema in its database."""
    with database.connect() as owner:
        owner.execute("create schema mine")
    for role in set(ROLES) - {"owner"}:
        with database.connect(role) as other, pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("create schema other")


def test_wrong_password_is_refused(database: Database) -> None:
    """Logging in needs the password, over TCP and through the socket."""
    for host in (database.server.host, str(database.server.directory)):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(database.url(), password="wrong", host=host, connect_timeout=5)


def test_databases_are_empty_or_copies(postgres: PostgresServer, database: Database) -> None:
    """A database is empty, or has what its template has."""
    with database.connect() as owner:
        owner.execute("create schema s")
        owner.execute("create table s.t as select 42 as n")
    with postgres.create_database(template=database).until_dropped() as copy:
        assert copy.execute("select n from s.t") == [(42,)]
    with postgres.create_database().until_dropped() as empty:
        assert empty.execute("select to_regclass('s.t')") == [(None,)]


def test_kill_leaves_no_backend_and_the_data_survive(new_postgres: NewServer) -> None:
    """After kill() every process is gone; a new start recovers what was flushed."""
    server = new_postgres(max_connections=7)
    database = server.create_database()
    with contextlib.closing(database.connect()) as owner:
        owner.execute("create schema s")
        owner.execute("set synchronous_commit = on")
        owner.execute("create table s.t as select 42 as n")
        # Busy, and so deaf to the end of its postmaster.
        owner.pgconn.send_query(b"select count(*) from generate_series(1, 1000000000)")
        everybody = server.processes()
        server.kill()
        assert len(everybody) > 3
        assert not any(process.alive() for process in everybody)
    server.start()
    assert database.execute("select n from s.t") == [(42,)]
    assert server.execute("show max_connections") == [("7",)]


def test_restart_keeps_port_and_configure_reloads(new_postgres: NewServer) -> None:
    """URLs stay valid over a restart; settings made while running stay too."""
    server = new_postgres()
    database = server.create_database()
    url = database.url()
    server.configure(idle_session_timeout="17min")
    server.restart("immediate")
    with psycopg.connect(url) as connection:
        assert connection.execute("show idle_session_timeout").fetchall() == [("17min",)]


def test_stopped_server_is_silent_until_it_goes_on(new_postgres: NewServer) -> None:
    """SIGSTOP reaches every process: nothing is answered, and nothing is refused."""
    server = new_postgres()
    database = server.create_database()
    with database.connect() as connection:
        server.sigstop()
        eventually(lambda: all(process.state == "T" for process in server.processes()))
        connection.pgconn.send_query(b"select 1")
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            database.connect(connect_timeout=2)
        connection.pgconn.consume_input()
        assert connection.pgconn.is_busy()
        server.sigcont()
        assert connection.pgconn.get_result() is not None
        connection.pgconn.get_result()


def test_standby_follows_and_is_promoted(new_postgres: NewServer) -> None:
    """A standby reads, refuses to write, and writes once it is promoted."""
    server = new_postgres(max_connections=120)
    standby = server.make_standby()
    try:
        server.execute("create table t as select 42 as n")
        standby.wait_caught_up()
        assert standby.execute("select n from t") == [(42,)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            standby.execute("insert into t values (43)")
        server.kill()
        standby.promote()
        standby.execute("insert into t values (43)")
    finally:
        standby.remove()


def test_postmaster_that_dies_by_itself_is_noticed(new_postgres: NewServer) -> None:
    """Waiting for a server that has ended fails at once and shows its log."""
    server = new_postgres()
    assert server.process is not None
    server.process.send_signal(signal.SIGQUIT)
    server.process.wait()
    with pytest.raises(RuntimeError, match="received immediate shutdown request"):
        server.wait_ready()


def _backend_of_two_transactions(pooler: PgBouncer, database: Database) -> bool:
    with (
        database.connect(via=pooler, prepare_threshold=None) as first,
        database.connect(via=pooler, prepare_threshold=None) as second,
    ):
        [mine] = first.execute("select pg_backend_pid()").fetchall()
        [other] = second.execute("select pg_backend_pid()").fetchall()
        return bool(mine == other)


def test_transaction_pooling_shares_backends(pgbouncer: PgBouncer, database: Database) -> None:
    """Two clients of the transaction pooler get one backend, one after the other."""
    assert _backend_of_two_transactions(pgbouncer, database)


def test_session_pooling_does_not_share_backends(
    new_pgbouncer: Callable[..., PgBouncer], postgres: PostgresServer, database: Database
) -> None:
    """In session mode each client keeps its own backend."""
    pooler = new_pgbouncer(postgres, "session")
    assert not _backend_of_two_transactions(pooler, database)


def test_pooler_refuses_options(pgbouncer: PgBouncer, database: Database) -> None:
    """A startup parameter that PgBouncer does not know is refused, as in the wild."""
    with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
        database.connect(via=pgbouncer, options="-c geqo=off")
