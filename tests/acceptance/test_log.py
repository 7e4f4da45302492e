"""`--log`: leases in one store, and the job-execution log in another as well."""

import os
import signal
from collections.abc import Callable
from getpass import getuser
from pathlib import Path

import pytest
from answers import answer
from log_of import PostgresLog, SQLiteLog, Store
from servers import Database, Journal, PostgresServer, assert_exclusive, eventually, job
from servers.oncecron import SHORT_TTL, Ended, Oncecron
from servers.process import free_port

Hosts = Callable[..., Oncecron]
pytestmark = pytest.mark.own_log

TTL = SHORT_TTL


@pytest.fixture(params=["postgres", "sqlite"])
def log(request: pytest.FixtureRequest, public_path: Path) -> Store:
    if request.param == "sqlite":
        return SQLiteLog(public_path / "log" / "log.db")
    return PostgresLog(request.getfixturevalue("log_database"))


@pytest.fixture
def logging_host(new_host: Hosts, log: Store) -> Hosts:
    """Give a function that makes a host which writes to the log."""
    return lambda name="host-a", **more: new_host(name, ONCECRON_LOG=log.url, **more)


def outcomes(log: Store, key: str) -> list[tuple[str | None, str]]:
    """Return tick and outcome of each execution, the oldest first."""
    return [(record.tick, record.outcome) for record in log.executions(key)]


# What is written


def test_a_run_is_a_row_of_the_log(
    store: Store, log: Store, new_host: Hosts, logging_host: Hosts
) -> None:  # fmt: skip
    """With host, pid, outcome, exit code and times; owner and token are those of the lease's store."""
    new_host().run("k", "--tick", "before", "--", "true")
    host = logging_host()
    firing = host.fire("k", "--tick", "one", "--", "sh", "-c", 'echo "$ONCECRON_EXECUTION_ID"; exit 3')  # fmt: skip
    ended = firing.wait()
    assert (ended.status, ended.out, ended.err) == (3, b"2\n", "")
    [row] = answer(host, "history", "k")
    told = ("execution_id", "tick", "attempt", "outcome", "exit_code", "signal", "note")
    assert [row[name] for name in told] == [1, "one", 1, "failed", 3, None, None]
    assert (row["host"], row["pid"], row["user"]) == ("host-a", firing.process.pid, getuser())
    assert row["started_at"] <= row["finished_at"]
    assert row["duration"] > 0
    both = [
        [(row.owner, row.fencing_token) for row in each.executions("k") if row.tick == "one"]
        for each in (store, log)
    ]
    assert both[0] == both[1] != []
    assert outcomes(store, "k") == [("before", "succeeded"), ("one", "failed")]


@pytest.mark.parametrize(("policy", "status"), [("fail", 69), ("run", 7)])
def test_the_log_is_told_that_the_store_is_away(
    log: Store, public_path: Path, policy: str, status: int
) -> None:
    """A refusal, or a run without a lease."""
    away = f"postgresql://owner@127.0.0.1:{free_port()}/postgres"
    host = Oncecron(away, public_path, ONCECRON_LOG=log.url)
    options = ("--tick", "one", "--connect-timeout", "1s", "--on-store-error", policy)
    assert host.run("k", *options, "--", "sh", "-c", "exit 7").status == status
    if policy == "fail":
        assert log.skips("k") == [("one", "no-store", "host-a", None, 1)]
    else:
        assert [(e.outcome, e.exit_code) for e in log.executions("k")] == [("unclaimed", 7)]


# Who dies


def test_a_killed_wrapper_is_stopped_in_the_log(
    log: Store, logging_host: Hosts, journal: Journal
) -> None:
    """The guard tells it, as it tells the store."""
    firing = logging_host().fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
    journal.wait_for("start")
    os.kill(firing.wrapper.pid, signal.SIGKILL)
    eventually(lambda: outcomes(log, "k") == [("one", "stopped")])


def test_a_host_that_died_is_lost_when_the_next_one_runs(
    store: Store, log: Store, logging_host: Hosts, journal: Journal
) -> None:
    """Nobody tells the log of its end: the next holder's higher token does."""
    firing = logging_host("host-a").fire(
        "k", "--ttl", TTL, "--tick", "one", "--", *job(journal, "--sleep", 60)
    )
    journal.wait_for("start")
    eventually(lambda: outcomes(log, "k") == [("one", "running")])
    both = [firing.guard().pid, firing.wrapper.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: neither sees the other's end
        for pid in both:
            os.kill(pid, number)
    firing.wait()
    b = logging_host("host-b")
    next_one = ("--wait", "30s", "--tick", "two", "--", *job(journal))
    assert b.run("k", *next_one) == Ended(0, b"", "")
    assert outcomes(log, "k") == outcomes(store, "k") == [("one", "lost"), ("two", "succeeded")]
    assert "its end was not recorded" in (log.executions("k")[0].note or "")
    reasons = [each.executions("k")[0].lost_reason for each in (log, store)]
    assert reasons == ["superseded", "expired"]
    assert_exclusive(journal)


def test_hosts_share_the_log(store: Store, log: Store, logging_host: Hosts) -> None:
    """Each writes what it ran and what it was refused."""
    hosts = [logging_host("host-a"), logging_host("host-b")]
    for number in range(4):
        for host in hosts[:: 1 if number % 2 else -1]:
            assert host.run("k", "--tick", f"t{number}", "--", "true") == Ended(0, b"", "")
    assert [(e.tick, e.outcome, e.host) for e in log.executions("k")] == [
        (f"t{number}", "succeeded", "host-a" if number % 2 else "host-b") for number in range(4)
    ]
    assert sorted((s.tick, s.host, s.count) for s in log.skips("k")) == [
        (f"t{number}", "host-b" if number % 2 else "host-a", 1) for number in range(4)
    ]


# People


def test_init_prepares_both_and_gives_rights_where_there_are_roles(
    postgres: PostgresServer, public_path: Path
) -> None:
    """The store is a file: the roles go to the log."""
    with postgres.create_database().until_dropped() as database:
        host = Oncecron(f"sqlite://{public_path}/x.db", public_path, ONCECRON_LOG=database.url())
        kept = "; keeps executions at least 7d, skips at least 36h"
        roles = ("--run-role", "runner", "--read-role", "runner")
        ended = host("init", *roles, "--keep-skips", "36h")
        assert ended == Ended(
            0,
            f"store: made the store {public_path}/x.db with schema version 1{kept}\n"
            f"log: made schema oncecron, version 1; gave rights to runner{kept}\n".encode(),
            "",
        )
        host.environment["ONCECRON_LOG"] = database.url("runner")
        assert host.run("k", "--tick", "one", "--", "true") == Ended(0, b"", "")
        assert outcomes(PostgresLog(database), "k") == [("one", "succeeded")]
        printed = host("init", "--print-sql").out
        assert printed.startswith(b"--") or b"create schema" in printed
        assert b"CREATE TABLE lease" not in printed


def test_prune_removes_from_both(log_database: Database, new_host: Hosts) -> None:
    """What is due in the one and in the other."""
    host = new_host(ONCECRON_LOG=log_database.url("owner"))
    assert host("init", "--keep-executions", "0s", "--keep-skips", "0s").status == 0
    host.run("k", "--tick", "2026-01-01T00:00Z", "--", "true")
    host.run("k", "--tick", "2026-01-01T00:00Z", "--", "true")
    ended = host("prune", "--executions", "0s", "--skips", "0s")
    assert ended == Ended(
        0, b"store: removed 1 execution and 1 skip\nlog: removed 1 execution and 1 skip\n", ""
    )
