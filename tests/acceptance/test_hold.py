"""Whether a running job holds its connection to PostgreSQL: `?hold=` in the store's URL."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers import Database, FaultProxy, Journal, PostgresServer, assert_exclusive, eventually, job
from servers.oncecron import Ended, Oncecron, installed
from servers.oncecron import Firing as Process

TTL = 15
"""A heartbeat comes every two and a half seconds."""
SESSIONS = "select count(*) from pg_stat_activity where usename = 'runner' and datname = current_database()"
LOCKED = "select session_lock, backend_pid is null from oncecron.job_key where owner is not null and key = %s"
CLIENTS = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
"""One that has left may still be there for a moment."""
MOST = 10
"""The connections of a small server: it is full at eight."""


def url(database: Database, hold: str, via: Any = None) -> str:
    """Return the address of the role that fires."""
    return f"{database.url(via=via)}?hold={hold}"


@contextmanager
def running(host: Oncecron, journal: Journal, *options: object) -> Iterator[Process]:
    """Run a job for as long as the block takes; it has not been disturbed then."""
    firing = host.fire(
        "k", "--ttl", TTL, "--tick", "one", *options, "--", *job(journal, "--sleep", 60, "--beats")
    )
    try:
        journal.wait_for("start")
        yield firing
    finally:
        os.kill(firing.wrapper.pid, signal.SIGTERM)
        firing.wait()
    assert_exclusive(journal)


def connections(database: Database) -> int:
    [(count,)] = database.execute(SESSIONS)
    return int(count)


def locks(host: Oncecron) -> dict[str, Any]:
    """Return the only lease, as `oncecron locks` shows it."""
    [lease] = json.loads(host("locks", "--json").out)
    return dict(lease)


def heartbeats(database: Database) -> int:
    """Return how often the lease of the only key may have been renewed: versions only rise."""
    [(version,)] = database.execute("select version from oncecron.job_key where key = 'k'")
    return int(version)


def renewed(database: Database, times: int) -> None:
    for _ in range(times):
        before = heartbeats(database)
        eventually(lambda before=before: heartbeats(database) > before, 20)


@pytest.mark.parametrize(
    ("hold", "held"), [("yes", True), ("auto", True), ("no", False)], ids=["yes", "auto", "no"]
)
def test_a_running_job_holds_a_connection_or_none(
    ready: Database, public_path: Path, journal: Journal, hold: str, held: bool
) -> None:
    """With the session lock, or the lease row alone; `locks` says which, and other hosts are refused in any case."""
    host = Oncecron(url(ready, hold), public_path)
    with running(host, journal):
        eventually(lambda: connections(ready) == held, 20)
        renewed(ready, 2)
        eventually(lambda: connections(ready) == held, 20)
        assert ready.execute(LOCKED, "k") == [(held, not held)]
        assert (locks(host)["state"], locks(host)["backend_pid"] is not None) == ("held", held)
        other = Oncecron(url(ready, "yes"), public_path, "host-b")
        assert other.run("k", "--tick", "two", "--", *job(journal)) == Ended(0, b"", "")
    assert len(journal.runs()) == 1
    assert ready.execute("select outcome, lost_at from oncecron.executions") == [("stopped", None)]


def test_a_short_job_takes_one_connection(
    ready: Database, public_path: Path, new_proxy: Callable[..., FaultProxy]
) -> None:
    """It is given back after a second."""
    Oncecron(ready.url(), public_path).run("k", "--tick", "zero", "--", "true")
    proxy = new_proxy(ready.server)
    host = Oncecron(url(ready, "no", proxy), public_path)
    assert host.run("k", "--tick", "one", "--", "true").status == 0
    assert len(proxy.connections()) == 1


def test_between_two_attempts_no_connection_is_held(
    ready: Database, public_path: Path, journal: Journal
) -> None:
    """It took a new one to record the first, after more than a second."""
    host = Oncecron(url(ready, "no"), public_path)
    firing = host.fire(
        "k", "--tick", "one", "--retries", 1, "--retry-delay", "6s..6s", "--",
        *job(journal, "--sleep", 1.5, "--exit", 3),
    )  # fmt: skip
    recorded = "select 1 from oncecron.executions where outcome = 'failed'"
    eventually(lambda: ready.execute(recorded) == [(1,)], 20)
    eventually(lambda: connections(ready) == 0, 20)
    assert len(journal.starts()) == 1
    assert firing.wait().status == 3
    assert len(journal.runs()) == 2


# The server is nearly full


@pytest.fixture
def small(new_postgres: Callable[..., PostgresServer]) -> Database:
    return installed(
        new_postgres(max_connections=MOST, superuser_reserved_connections=1).create_database()
    )


@contextmanager
def others(database: Database, count: int) -> Iterator[None]:
    """Take so many connections, of another database too."""
    with ExitStack() as stack:
        for number in range(count):
            connection = (
                database.connect("reader") if number % 2 else database.server.superuser_connect()
            )
            stack.enter_context(connection)
        eventually(lambda: database.server.execute(CLIENTS) == [(count + 1,)])
        yield


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("hold", "used", "held"),
    [("auto", 6, True), ("auto", 7, False), ("yes", 7, True)],
    ids=["room", "full", "forced"],
)
def test_on_a_full_server_a_job_holds_none(
    small: Database, public_path: Path, journal: Journal, hold: str, used: int, held: bool
) -> None:
    """The firing itself is the eighth of ten: from 80 % on, and -v says so."""
    host = Oncecron(url(small, hold), public_path)
    with others(small, used):
        firing = host.fire("k", "-v", "--tick", "one", "--", *job(journal, "--sleep", 60))
        journal.wait_for("start")
        assert small.execute(LOCKED, "k") == [(held, not held)]  # before its first heartbeat
        eventually(lambda: connections(small) == held, 20)
    renewed(small, 1)  # it stays as it was decided
    eventually(lambda: connections(small) == held, 20)
    os.kill(firing.wrapper.pid, signal.SIGTERM)
    said = "no connection to PostgreSQL is held between heartbeats"
    assert (said in firing.wait().err) is not held
    second = host.fire("k", "--ttl", TTL, "--tick", "two", "--", *job(journal, "--sleep", 60))
    journal.wait_for("start", 2)
    assert small.execute(LOCKED, "k") == [(True, False)]
    os.kill(second.wrapper.pid, signal.SIGTERM)
    second.wait()


def test_doctor_says_what_a_running_job_holds(small: Database, public_path: Path) -> None:
    """And suggests it where connections are short."""
    texts = {}
    for hold in ("yes", "no", "auto"):
        rows = json.loads(Oncecron(url(small, hold), public_path)("doctor", "--json").out)
        [texts[hold]] = [row["text"] for row in rows if row["subject"] == "connections"]
    assert "a running job holds one (hold=yes)" in texts["yes"]
    assert "a running job holds none (hold=no)" in texts["no"]
    assert "but none if 80 % are in use" in texts["auto"]
    with others(small, 7):
        rows = json.loads(Oncecron(url(small, "auto"), public_path)("doctor", "--json").out)
    [row] = [row for row in rows if row["subject"] == "connections"]
    assert (row["state"], "?hold=no" in row["cure"]) == ("warn", True)
