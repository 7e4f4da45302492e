"""A log that is away never stops, delays or changes a run: what it has not got is spooled, and told later, once."""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from answers import refused
from log_of import PostgresLog, Store
from servers import Database, FaultProxy, Journal, eventually, job
from servers.oncecron import Ended, Oncecron

pytestmark = pytest.mark.own_log

TTL = 6
FAULTS = ["refuse", "deaf", "reset"]
TELL = ("sh", "-c", "echo out; echo err >&2; exit 7")


@pytest.fixture
def log(log_database: Database) -> Store:
    """Give the log as it is read, beside the way that hosts take."""
    return PostgresLog(log_database)


@pytest.fixture
def way(log_database: Database, new_proxy: Callable[..., FaultProxy]) -> FaultProxy:
    return new_proxy(log_database.server)


@pytest.fixture
def host(log_database: Database, way: FaultProxy, new_host: Callable[..., Oncecron]) -> Oncecron:
    """Give a host that reaches the log by this way."""
    return new_host(ONCECRON_LOG=log_database.url(via=way))


def spooled(state: Path) -> list[str]:
    """Return the names of the keys for which this host keeps records."""
    files = (state / "host-a" / "oncecron" / "spool").rglob("[!.]*.json")
    return sorted(path.parent.name for path in files)


def ticks(log: Store, key: str = "k") -> list[tuple[str | None, str, bool]]:
    """Return tick, outcome and whether it was told late, of each execution."""
    return [(e.tick, e.outcome, "recorded later" in (e.note or "")) for e in log.executions(key)]


@pytest.mark.turns(1)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_log_that_is_away_changes_no_run(
    store: Store, log: Store, way: FaultProxy, host: Oncecron, public_path: Path, fault: str
) -> None:
    """Output and status are the job's own; one line until the log is reached; then all is there, once."""
    getattr(way, fault)()
    first = host.run("k", "--tick", "one", "--", *TELL)
    own, said = first.err.splitlines()
    assert (first.status, first.out, own) == (7, b"out\n", "err")
    assert said.startswith("oncecron: key k: log store unreachable")
    assert "owner-password" not in said
    assert "runner-password" not in said
    assert host.run("k", "--tick", "two", "--", *TELL) == Ended(7, b"out\n", "err\n")
    assert spooled(public_path) == ["k", "k"]
    assert log.executions("k") == []
    assert [record.outcome for record in store.executions("k")] == ["failed", "failed"]
    way.passing()
    for tick in ("three", "four"):
        assert host.run("k", "--tick", tick, "--", *TELL) == Ended(7, b"out\n", "err\n")
    assert ticks(log) == [
        *(("one", "failed", True), ("two", "failed", True)),
        *(("three", "failed", False), ("four", "failed", False)),
    ]
    assert spooled(public_path) == []
    way.refuse()
    assert "log store unreachable" in host.run("k", "--tick", "five", "--", "true").err


@pytest.mark.turns(1)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_start_waits_for_no_log(
    store: Store, log: Store, way: FaultProxy, host: Oncecron, journal: Journal, fault: str
) -> None:
    """The job lives while the log has not answered anything yet; it is told as soon as it is back."""
    getattr(way, fault)()
    firing = host.fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
    started = journal.wait_for("start")[0]
    assert log.executions("k") == []
    assert sum(connection.bytes_to_client for connection in way.connections()) == 0
    back = time.monotonic()
    way.passing()
    eventually(lambda: ticks(log) == [("one", "running", False)], 60)
    assert started.time < back
    os.kill(firing.wrapper.pid, signal.SIGTERM)
    ended = firing.wait()
    assert (ended.status, ended.err) == (143, "")
    assert ticks(log) == [("one", "stopped", False)]


def test_what_is_told_late_has_its_causes_and_losses(
    log: Store, way: FaultProxy, host: Oncecron, journal: Journal
) -> None:
    """The first attempt, one that was asked for, a retry; and the word of a wrapper whose guard was killed."""
    way.refuse()
    host.run("k", "--tick", "one", "--", "true")
    host.run("k", "--tick", "one", "--again", "--", "true")
    retried = ("--retries", 1, "--retry-delay", "0s..0s")
    live = " ".join(map(str, job(journal, "--sleep", 60)))
    command = ("sh", "-c", f"test $ONCECRON_ATTEMPT = 2 || exit 3; exec {live}")
    firing = host.fire("k", "--tick", "two", *retried, "--", *command)
    journal.wait_for("start")
    os.kill(firing.guard().pid, signal.SIGKILL)
    assert firing.wait().status == 75
    assert log.executions("k") == []
    way.passing()
    assert host("flush").status == 0
    told = [(e.tick, e.attempt, e.cause, e.outcome, e.lost_reason) for e in log.executions("k")]
    assert sorted(told) == [
        ("one", 1, "schedule", "succeeded", None),
        ("one", 2, "manual", "succeeded", None),
        ("two", 2, "retry", "lost", "guard-killed"),
    ]


def test_the_log_is_not_connected_to_before_the_start(
    new_host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Not even for a while: the first connection comes after the job's process, by the kernel's clock."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql://u@127.0.0.1:{server.getsockname()[1]}/d?sslmode=disable"
        host = new_host(ONCECRON_LOG=url)
        firing = host.fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
        server.settimeout(20)
        server.accept()[0].close()
        connected = time.clock_gettime(time.CLOCK_BOOTTIME)
        forked = firing.job().started / os.sysconf("SC_CLK_TCK")
        os.kill(firing.wrapper.pid, signal.SIGTERM)
        assert firing.wait().status == 143
    assert forked <= connected


def test_nobody_waits_for_the_log_on_the_way_to_a_kill(
    way: FaultProxy, host: Oncecron, journal: Journal
) -> None:
    """A request that is not answered takes five seconds; the job was to be dead long before."""
    way.deaf()
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    ended = host.run("k", "--tick", "one", "--timeout", "1.5s", "--grace", "0.2s", "--", *command)
    assert ended.status == 124
    [run] = journal.runs()
    assert run.last_sign - run.started < 5


@pytest.mark.turns(1)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_log_that_goes_away_meanwhile_is_told_the_end_later(
    log: Store, way: FaultProxy, host: Oncecron, journal: Journal, fault: str
) -> None:
    """The row that says `running` gets its end."""
    firing = host.fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
    eventually(lambda: ticks(log) == [("one", "running", False)])
    getattr(way, fault)()
    if fault == "refuse":
        way.sever()
    os.kill(firing.wrapper.pid, signal.SIGTERM)
    ended = firing.wait()
    assert (ended.status, ended.out) == (143, b"TERM\n")
    assert ended.err.count("\n") == 1
    assert ticks(log) == [("one", "running", False)]
    way.sever()  # with what it held back: the process that said it is gone
    way.passing()
    assert host("flush") == Ended(0, b"delivered k one stopped to the log\n", "")
    assert ticks(log) == [("one", "stopped", True)]
    assert host("flush") == Ended(0, b"", "")


def test_leases_are_kept_while_the_log_is_deaf(
    store: Store, way: FaultProxy, host: Oncecron, journal: Journal, new_host: Callable[..., Oncecron]
) -> None:  # fmt: skip
    """The heartbeats never wait for it: beyond the ttl the job lives, and nobody else gets the key."""
    way.deaf()
    firing = host.fire(
        "k", "--ttl", TTL, "--tick", "one", "--", *job(journal, "--sleep", 1.5 * TTL)
    )
    journal.wait_for("start")
    rival = new_host("host-b")
    while not any(line.kind == "end" for line in journal.lines()):
        rival.run("k", "--no-tick", "--", *job(journal))
        time.sleep(0.2)  # a firing costs half as much of a processor, and a lapse would last longer
    assert firing.wait().status == 0
    first, *others = journal.runs()
    assert first.first.host == "host-a"
    assert first.end is not None
    assert all(run.started > first.end.time for run in others)


@pytest.mark.turns(1)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_guard_that_is_killed_while_the_log_is_away(
    log: Store, way: FaultProxy, host: Oncecron, journal: Journal, public_path: Path,
    fault: str,
) -> None:  # fmt: skip
    """The wrapper keeps the record for store and log; the log never saw the start."""
    getattr(way, fault)()
    firing = host.fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
    journal.wait_for("start")
    os.kill(firing.guard().pid, signal.SIGKILL)
    assert firing.wait().status == 75
    assert spooled(public_path) == ["k", "k"]
    way.passing()
    flushed = host("flush")
    assert flushed.out == b"delivered k one lost\ndelivered k one lost to the log\n"
    assert ticks(log) == [("one", "lost", True)]


def test_a_host_that_is_cut_off_from_the_log_tells_it_after_another(
    log: Store, way: FaultProxy, host: Oncecron, log_database: Database,
    new_host: Callable[..., Oncecron],
) -> None:  # fmt: skip
    """Tokens tell who came first, whoever is heard first."""
    b = new_host("host-b", ONCECRON_LOG=log_database.url())
    way.refuse()
    host.run("k", "--tick", "one", "--", "true")
    b.run("k", "--tick", "two", "--", "true")
    way.passing()
    host.run("k", "--tick", "three", "--", "true")
    told = sorted(log.executions("k"), key=lambda row: row.fencing_token or 0)
    rows = [(row.tick, row.outcome, row.host) for row in told]
    assert rows == [
        ("one", "succeeded", "host-a"),
        ("two", "succeeded", "host-b"),
        ("three", "succeeded", "host-a"),
    ]


def test_a_log_that_grants_no_rights_is_named_with_its_cure(
    any_store: Store, log: Store, log_database: Database, new_host: Callable[..., Oncecron]
) -> None:
    """The run is the job's own all the same; once the right is there all is delivered."""
    host = new_host(ONCECRON_LOG=log_database.url("jobber"))
    ended = host.run("k", "--tick", "one", "--", *TELL)
    own, said = ended.err.splitlines()
    assert (ended.status, ended.out, own) == (7, b"out\n", "err")
    assert "log store unreachable" in said
    assert "--run-role" in said
    refused(host("flush"), 78, "--run-role", "1 record stays in ")
    Oncecron(any_store.url, Path("/nonexistent"), ONCECRON_LOG=log_database.url("owner"))(
        "init", "--run-role", "jobber"
    )
    assert host("flush").out == b"delivered k one failed to the log\n"
    assert ticks(log) == [("one", "failed", True)]


def test_a_long_job_keeps_no_connection_to_the_log(
    log: Store, host: Oncecron, log_database: Database, journal: Journal
) -> None:
    """It is given back after a while, and made again for the end."""
    firing = host.fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
    eventually(lambda: ticks(log) == [("one", "running", False)])
    sessions = (
        "select 1 from pg_stat_activity where datname = current_database() and usename = 'runner'"
    )
    assert len(log_database.execute(sessions)) == 1
    eventually(lambda: log_database.execute(sessions) == [])
    os.kill(firing.wrapper.pid, signal.SIGTERM)
    assert firing.wait().err == ""
    assert ticks(log) == [("one", "stopped", False)]
