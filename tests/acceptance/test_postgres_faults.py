"""What happens to a running job when PostgreSQL, or the way to it, fails."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Database, Journal, PostgresServer, assert_exclusive, eventually, job
from servers.oncecron import Oncecron, installed
from servers.process import send

TTL = 6


@pytest.fixture
def server(new_postgres: Callable[..., PostgresServer]) -> PostgresServer:
    """Start a server that may be broken."""
    return new_postgres(synchronous_commit="on")


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Database]:
    """Create a database on it."""
    return installed(server.create_database())


@pytest.fixture
def host(database: Database, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host by its name; `via` leads it through a proxy."""

    def make(name: str = "host-a", via: Any = None) -> Oncecron:
        return Oncecron(database.url(via=via), public_path, name)

    return make


def next_ticks(host: Oncecron, key: str, journal: Journal, deadline: float) -> None:
    """Fire newer ticks one after another, as cron would minute by minute, until one has run."""
    end = time.monotonic() + deadline
    number = 0
    while host.environment["ONCECRON_HOST"] not in {run.first.host for run in journal.runs()}:
        assert time.monotonic() < end, f"no newer tick ran within {deadline} s"
        number += 1
        command = job(journal, "--beats", "--sleep", 0.2)
        ended = host.run(key, "--ttl", TTL, "--tick", f"next-{number}", "--", *command)
        assert (ended.status, ended.err) == (0, "")


def backends(database: Database) -> list[int]:
    """Return the backends that hold both lease and session lock."""
    rows = database.execute("select backend_pid from oncecron.leases where state = 'held'")
    return [pid for (pid,) in rows]


def outcomes(database: Database) -> list[tuple[Any, ...]]:
    """Return what the log says, oldest first."""
    return database.execute(
        "select tick, outcome, exit_code, note from oncecron.executions order by execution_id"
    )


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_a_restart_within_the_ttl_leaves_the_job_undisturbed(
    server: PostgresServer, database: Database, host: Callable[..., Oncecron], journal: Journal, mode: str
) -> None:  # fmt: skip
    """The connection is lost and the job adopted again: one execution, its own exit status."""
    command = job(journal, "--sleep", 9, "--exit", 3, "--beats")
    firing = host().fire("k", "-v", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    if mode == "kill":
        server.kill()
    else:
        server.stop(mode)
    time.sleep(0.5)  # the fault's own length
    server.start()
    ended = firing.wait()
    assert ended.status == 3, ended.err
    assert [row[:3] for row in outcomes(database)] == [("one", "failed", 3)]
    assert_exclusive(journal)


def test_a_server_that_stays_away_ends_the_job_before_its_lease(
    server: PostgresServer, database: Database, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """TERM, then KILL before the lease ends; exit 75; recorded when the server is back."""
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    firing = host().fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    before = time.monotonic()
    server.stop("immediate")
    ended = firing.wait()
    last_sign = journal.runs()[0].last_sign
    assert ended.status == 75
    assert "could not be renewed in time" in ended.err
    assert last_sign - before < TTL
    assert journal.runs()[0].signals == ["TERM"]
    server.start()
    assert host().run("k", "--tick", "two", "--", "true").status == 0
    assert [row[:2] for row in outcomes(database)] == [("one", "lost"), ("two", "succeeded")]


def test_a_terminated_backend_is_nothing_to_the_job(
    database: Database, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """pg_terminate_backend frees the session lock; the lease row keeps others out until re-adoption."""
    command = job(journal, "--sleep", 8, "--beats")
    firing = host().fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    for _ in range(3):
        first = eventually(lambda: backends(database)[0], retry_on=IndexError)
        database.execute("select pg_terminate_backend(%s)", first)
        assert host("host-b").run("k", "--tick", "one", "--", *job(journal)).status == 0
        eventually(lambda first=first: backends(database) not in ([], [first]))
    assert firing.wait().status == 0
    assert outcomes(database) == [("one", "succeeded", 0, None)]
    assert_exclusive(journal)


@pytest.mark.parametrize("fault", ["stopped", "deaf"])
def test_behind_a_deaf_proxy_the_job_dies_in_time_and_the_next_tick_runs(
    database: Database, host: Callable[..., Oncecron], journal: Journal, new_proxy: Any, fault: str
) -> None:
    """The proxy's kernel acknowledges for ever: the holder's own deadline ends the job."""
    proxy = new_proxy(database.server)
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats", "--setsid-grandchild")
    firing = host(via=proxy).fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start", 2)
    if fault == "stopped":
        proxy.sigstop()
    else:
        proxy.deaf()
    next_ticks(host("host-b"), "k", journal, deadline=1.5 * TTL + 5)
    assert firing.wait().status == 75
    assert_exclusive(journal)
    assert [row[1] for row in outcomes(database)] == ["lost", "succeeded"]
    eventually(lambda: database.execute("select count(*) from oncecron.leases")[0][0] == 0, 30)


def test_after_the_death_of_a_whole_host_the_next_tick_runs(
    database: Database, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Everything of the holder is killed at once: a newer tick waits for the lease's end, and runs."""
    firing = host().fire("k", "--ttl", TTL, "--", *job(journal, "--sleep", 60, "--beats"))
    journal.wait_for("start")
    send([firing.job(), firing.guard(), firing.wrapper], signal.SIGKILL)
    next_ticks(host("host-b"), "k", journal, deadline=1.5 * TTL + 5)
    assert_exclusive(journal)


def test_a_lease_that_somebody_took_away_ends_the_job_at_once(
    database: Database, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """A row that is gone is lost for good: KILL without grace, exit 75."""
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    firing = host().fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    database.execute("delete from oncecron.lease")
    ended = firing.wait()
    assert ended.status == 75
    assert "the lease was lost" in ended.err
    assert journal.runs()[0].signals == []
    assert [row[:2] for row in outcomes(database)] == [("one", "lost")]


def test_a_reply_that_was_lost_after_the_claim_is_asked_for_again(
    database: Database, host: Callable[..., Oncecron], journal: Journal, new_proxy: Any
) -> None:
    """The claim was applied and its answer dropped: the same owner gets the same lease, and runs once."""
    host().run("warm-up", "--tick", "one", "--", "true")
    proxy = new_proxy(database.server)
    proxy.drop_next_reply(containing=b"claim_v1")
    ended = host(via=proxy).run("k", "--tick", "one", "--", *job(journal, "--beats"))
    assert proxy.dropped_replies() == 1
    assert (ended.status, ended.err) == (0, "")
    assert len(journal.runs()) == 1
    assert [row[:2] for row in outcomes(database)][1:] == [("one", "succeeded")]


def test_a_reply_that_was_lost_after_the_end_is_recorded_once(
    database: Database, host: Callable[..., Oncecron], new_proxy: Any
) -> None:
    """The end is told again on a new connection and says the same."""
    proxy = new_proxy(database.server)
    proxy.drop_next_reply(containing=b"finish_v1")
    ended = host(via=proxy).run("k", "--tick", "one", "--", "sh", "-c", "exit 5")
    assert proxy.dropped_replies() == 1
    assert (ended.status, ended.err) == (5, "")
    assert outcomes(database) == [("one", "failed", 5, None)]


def test_dropped_packets_end_the_job_in_time_and_free_its_session(
    new_postgres: Callable[..., PostgresServer], network: Any, public_path: Path, journal: Journal
) -> None:
    """A host is cut off silently: its job dies, another host runs, and the dead session goes."""
    stores, first, second = (network.host(name) for name in ("store", "host-a", "host-b"))
    server = new_postgres(host=stores.address, prefix=stores.prefix)
    database = installed(server.create_database(), prefix=second.prefix)
    hosts = [
        Oncecron(database.url(), public_path, h.name, prefix=h.prefix) for h in (first, second)
    ]
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    firing = hosts[0].fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    first.cut()
    next_ticks(hosts[1], "k", journal, deadline=1.5 * TTL + 5)
    assert firing.wait().status == 75
    assert_exclusive(journal)
    eventually(
        lambda: (
            server.execute("select count(*) from pg_locks where locktype = 'advisory'")[0][0] == 0
        ),
        60,
    )
