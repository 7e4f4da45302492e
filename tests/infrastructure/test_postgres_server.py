"""The PostgreSQL servers and poolers of the tests do what the tests believe of them."""

import contextlib
from collections.abc import Callable

from servers import Database, PgBouncer, PostgresServer

NewServer = Callable[..., PostgresServer]


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
