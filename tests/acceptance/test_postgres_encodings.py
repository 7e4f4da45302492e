"""A database whose encoding is not UTF8: refused before anything runs, and no record is lost in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from answers import refused
from log_of import PostgresLog
from servers import Database, RedisServer, eventually
from servers.oncecron import Oncecron

CURE = "create database NAME encoding 'UTF8' locale 'C' template template0"
ENCODINGS = ["SQL_ASCII", "LATIN1"]


@contextmanager
def other_database(database: Database, name: str, encoding: str) -> Iterator[None]:
    """Have a database with this name and encoding on the same server."""
    server = database.server
    server.execute(
        f"create database {name} owner owner encoding {encoding} template template0 locale 'C'"
    )
    try:
        yield
    finally:
        server.execute(f"drop database {name} with (force)")


@contextmanager
def replaced(database: Database, encoding: str) -> Iterator[None]:
    """Have another database in the place of this one, empty and with another encoding."""
    server, name = database.server, database.name
    closed = (
        f"alter database {name} allow_connections false",
        f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'",
    )
    for statement in closed:
        server.execute(statement)
    rename = f"alter database {name} rename to {name}_away"
    eventually(lambda: server.execute(rename) or True, retry_on=psycopg.errors.ObjectInUse)
    try:
        with other_database(database, name, encoding):
            yield
    finally:
        server.execute(f"alter database {name}_away allow_connections true")
        server.execute(f"alter database {name}_away rename to {name}")


@pytest.mark.turns(1)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_database_of_another_encoding_is_refused(
    ready: Database, public_path: Path, encoding: str
) -> None:
    """By every command, with the cure; nothing is run, and nothing is left there."""
    name = f"{ready.name}_other"
    with other_database(ready, name, encoding):
        host = Oncecron(ready.server.url("owner", name), public_path)
        for words in (["init"], ["history"], ["why", "k"], ["pause", "k"], ["locks"]):
            refused(host(*words), 78, f"is {encoding}, and oncecron needs UTF8", CURE)
        ended = host.run("k", "--tick", "ä", "--", "touch", public_path / "größer")
        refused(ended, 78, f"is {encoding}, and oncecron needs UTF8", CURE)
        assert not (public_path / "größer").exists()
        made = "select count(*) from pg_namespace where nspname = 'oncecron'"
        assert ready.server.execute(made, database=name) == [(0,)]


def test_the_cure_makes_a_database_that_is_right(ready: Database, public_path: Path) -> None:
    """As it is printed."""
    name = f"{ready.name}_cured"
    server = ready.server
    server.execute(CURE.replace("NAME", name) + " owner owner")
    try:
        host = Oncecron(server.url("owner", name), public_path)
        ended = host.run("k", "--tick", "ä", "--", "echo", "größer, 大きい")
        assert ended == (0, "größer, 大きい\n".encode(), "")
        assert "größer, 大きい".encode() in host("history", "--format", "csv").out
    finally:
        server.execute(f"drop database {name} with (force)")


@pytest.mark.turns(1)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_record_survives_a_database_of_another_encoding(
    ready: Database, public_path: Path, encoding: str
) -> None:
    """One that comes into the place of the right one while a job runs: its end is spooled, and delivered."""
    host, log = Oncecron(ready.url(), public_path), PostgresLog(ready)
    go = public_path / "go"
    wait = f"until test -e {go}; do sleep 0.05; done; echo 大きい; exit 3"
    firing = host.fire("k", "--tick", "one", "--capture", "1k", "--", "sh", "-c", wait)
    eventually(lambda: log.executions("k")[0].outcome == "running", retry_on=IndexError)
    with replaced(ready, encoding):
        go.touch()
        ended = firing.wait()
        assert (ended.status, ended.out) == (3, "大きい\n".encode())
        assert f"is {encoding}, and oncecron needs UTF8" in ended.err
        assert "the record is spooled" in ended.err
    assert host("flush").status == 0
    [record] = log.executions("k")
    assert (record.outcome, record.exit_code) == ("failed", 3)


@pytest.mark.turns(1)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_log_of_another_encoding_loses_no_record(
    redis_server: RedisServer, ready: Database, public_path: Path, encoding: str
) -> None:
    """The job runs, its record waits in the spool until the log is right."""
    host = Oncecron(redis_server.url(), public_path, ONCECRON_LOG=ready.url())
    with replaced(ready, encoding):
        ended = host.run("k", "--tick", "one", "--", "echo", "大きい")
        assert (ended.status, ended.out) == (0, "大きい\n".encode())
        assert "and oncecron needs UTF8" in ended.err
    assert host("flush").status == 0
    assert [one.outcome for one in PostgresLog(ready).executions("k")] == ["succeeded"]
