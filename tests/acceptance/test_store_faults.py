"""What happens to a running job when the store's server, or the way to it, fails."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from breakable import Breakable, start_breakable
from log_of import between_firings
from servers import Journal, PostgresServer, RedisServer, assert_exclusive, eventually, job
from servers.oncecron import SHORT_TTL, Firing, Oncecron
from servers.process import send

TTL = SHORT_TTL


@pytest.fixture(params=["postgres", "redis", "unheld"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(
    kind: str, new_postgres: Callable[..., PostgresServer], new_redis: Callable[..., RedisServer]
) -> Breakable:
    return start_breakable(kind, new_postgres, new_redis)


@pytest.fixture
def host(store: Breakable, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host by its name; `via` leads it through a proxy."""

    def make(name: str = "host-a", via: Any = None) -> Oncecron:
        return Oncecron(store.url(via=via), public_path, name)

    return make


def next_ticks(
    store: Breakable, host: Oncecron, key: str, journal: Journal, deadline: float
) -> None:
    """Fire newer ticks one after another, as cron would minute by minute, until one has run."""
    give_up = time.monotonic() + deadline
    number = 0
    while host.environment["ONCECRON_HOST"] not in {run.first.host for run in journal.runs()}:
        assert time.monotonic() < give_up, f"no newer tick ran within {deadline} s"
        number += 1
        command = job(journal, "--beats", "--sleep", 0.2)
        end = host.run(key, "--tick", f"next-{number}", "--", *command)
        assert (end.status, end.err) == (0, "")
        between_firings(store.log, key, TTL)


def ended(store: Breakable, key: str = "k") -> list[tuple[str | None, str, int | None]]:
    """Return what the log says, the oldest first."""
    return [(row.tick, row.outcome, row.exit_code) for row in store.log.executions(key)]


@pytest.mark.turns(1)
@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_a_restart_within_the_ttl_leaves_the_job_undisturbed(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal, mode: str
) -> None:  # fmt: skip
    """The connection is lost and the job adopted again: one execution, its own exit status."""
    command = job(journal, "--sleep", 9, "--exit", 3, "--beats")
    firing = host().fire("k", "-v", "--ttl", "12s", "--tick", "one", "--", *command)
    journal.wait_for("start")
    store.stop(mode)
    time.sleep(0.5)  # the fault's own length
    store.server.start()
    end = firing.wait()
    assert end.status == 3, end.err
    assert ended(store) == [("one", "failed", 3)]
    assert_exclusive(journal)


def test_a_server_that_stays_away_ends_the_job_before_its_lease(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """TERM, then KILL before the lease ends; exit 75; recorded when the server is back, and why in both places."""
    ttl = 12  # a sixth of it lies between the two, in which the job has to write what it got
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    firing = host().fire("k", "--ttl", ttl, "--tick", "one", "--", *command)
    journal.wait_for("start")
    store.stop("kill")
    away = time.monotonic()  # nothing is renewed from now on
    end = firing.wait()
    last_sign = journal.runs()[0].last_sign
    assert end.status == 75
    said = re.search("stopping the command: (the lease could not be renewed in time: .+)", end.err)
    assert said, end.err
    assert last_sign - away < ttl
    assert journal.runs()[0].signals == ["TERM"]
    store.server.start()
    # For so long at least a Redis waits that has started.
    assert host().run("k", "--ttl", 6, "--tick", "two", "--", "true").status == 0
    assert [row[:2] for row in ended(store)] == [("one", "lost"), ("two", "succeeded")]
    lost = store.log.executions("k")[0]
    assert (lost.lost_reason, lost.note) == ("not-renewed", f"{said[1]}; recorded later")


@pytest.mark.parametrize("kind", ["postgres", "redis"], indirect=True)  # where there is a session
def test_a_terminated_backend_is_nothing_to_the_job(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """pg_terminate_backend frees the session lock; the lease row keeps others out until re-adoption."""
    go = public_path / "go"
    command = job(journal, "--sleep", 120, "--until", go, "--beats")
    firing = host().fire("k", "--ttl", 12, "--tick", "one", "--", *command)
    journal.wait_for("start")
    for _ in range(3):
        first = eventually(lambda: store.sessions()[0], retry_on=IndexError)
        store.end_session(first)
        assert host("host-b").run("k", "--tick", "one", "--", *job(journal)).status == 0
        eventually(lambda first=first: store.sessions() not in ([], [first]))
    go.touch()
    assert firing.wait().status == 0
    assert ended(store) == [("one", "succeeded", 0)]
    assert_exclusive(journal)


@pytest.mark.turns(1)
@pytest.mark.parametrize("fault", ["stopped", "deaf"])
def test_behind_a_deaf_proxy_the_job_dies_in_time_and_the_next_tick_runs(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal, new_proxy: Any, fault: str
) -> None:
    """The proxy's kernel acknowledges for ever: the holder's own deadline ends the job."""
    proxy = new_proxy(store.server)
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats", "--setsid-grandchild")
    firing = host(via=proxy).fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start", 2)
    if fault == "stopped":
        proxy.sigstop()
    else:
        proxy.deaf()
    next_ticks(store, host("host-b"), "k", journal, deadline=1.5 * TTL + 25)
    assert firing.wait().status == 75
    assert_exclusive(journal)
    assert [row[1] for row in ended(store)] == ["lost", "succeeded"]
    eventually(lambda: store.leases() == 0, 30)


def test_after_the_death_of_a_whole_host_the_next_tick_runs(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Everything of the holder is killed at once: a newer tick waits for the lease's end, and runs."""
    firing = host().fire("k", "--ttl", TTL, "--", *job(journal, "--sleep", 60, "--beats"))
    journal.wait_for("start")
    send([firing.job(), firing.guard(), firing.wrapper], signal.SIGKILL)
    next_ticks(store, host("host-b"), "k", journal, deadline=1.5 * TTL + 25)
    assert_exclusive(journal)


def test_a_lease_that_somebody_took_away_ends_the_job_at_once(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """A row that is gone is lost for good: KILL without grace, exit 75."""
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    firing = host().fire("k", "--ttl", 12, "--tick", "one", "--", *command)
    journal.wait_for("start")
    store.take_leases_away()
    end = firing.wait()
    assert end.status == 75
    assert "the lease was lost" in end.err
    assert journal.runs()[0].signals == []
    assert [row[:2] for row in ended(store)] == [("one", "lost")]
    assert store.log.executions("k")[0].lost_reason == "revoked"


@pytest.mark.turns(3, "answers")
def test_a_reply_that_was_lost_after_the_claim_is_asked_for_again(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal, new_proxy: Any
) -> None:
    """The claim was applied and its answer dropped: the same owner gets the same lease, and runs once."""
    host().run("warm-up", "--tick", "one", "--", "true")
    proxy = new_proxy(store.server)
    proxy.drop_next_reply(containing=store.claim)
    end = host(via=proxy).run("k", "--tick", "one", "--", *job(journal, "--beats"))
    assert proxy.dropped_replies() == 1
    assert (end.status, end.err) == (0, "")
    assert len(journal.runs()) == 1
    assert [row[:2] for row in ended(store)] == [("one", "succeeded")]


def without_an_answer(
    store: Breakable, host: Callable[..., Oncecron], proxy: Any, *options: object
) -> Firing:
    """Fire tick one by way of a proxy that loses the answer to the claim, and lets nobody in from then on."""
    host().run("warm-up", "--tick", "one", "--", "true")
    proxy.drop_next_reply(containing=store.claim, then_refuse=True)
    firing = host(via=proxy).fire("k", "--ttl", TTL, "--tick", "one", *options, "--", "false")
    proxy.wait_dropped()
    assert ended(store) == [("one", "running", None)]
    return firing


def flushed(host: Oncecron, proxy: Any) -> list[bytes]:
    """Let the host reach the store again; return what it delivers."""
    proxy.passing()
    end = host("flush")
    assert (end.status, end.err) == (0, "")
    return sorted(end.out.splitlines())


@pytest.mark.turns(3, "answers")
def test_a_claim_that_was_never_answered_did_not_start(
    store: Breakable, host: Callable[..., Oncecron], journal: Journal, new_proxy: Any
) -> None:
    """The store stays away for good: that it did not start is kept, and opens the tick to the others."""
    proxy = new_proxy(store.server)
    end = without_an_answer(store, host, proxy, "--connect-timeout", "3s").wait()
    assert (end.status, end.err.count("\n")) == (69, 1)
    words = [b"delivered k one no-store", b"delivered k one not-started"]
    assert flushed(host(via=proxy), proxy) == words
    assert ended(store) == [("one", "not-started", None)]
    assert host("host-b").run("k", "--tick", "one", "--", *job(journal)) == (0, b"", "")
    assert [run.first.host for run in journal.runs()] == ["host-b"]


@pytest.mark.turns(3, "answers")
def test_a_reply_that_was_lost_after_the_end_is_recorded_once(
    store: Breakable, host: Callable[..., Oncecron], new_proxy: Any
) -> None:
    """The end is told again on a new connection and says the same."""
    proxy = new_proxy(store.server)
    proxy.drop_next_reply(containing=store.finish)
    end = host(via=proxy).run("k", "--tick", "one", "--", "sh", "-c", "exit 5")
    assert proxy.dropped_replies() == 1
    assert (end.status, end.err) == (5, "")
    assert ended(store) == [("one", "failed", 5)]


def test_dropped_packets_end_the_job_in_time_and_free_its_session(
    kind: str,
    new_postgres: Callable[..., PostgresServer],
    new_redis: Callable[..., RedisServer],
    network: Any,
    public_path: Path,
    journal: Journal,
) -> None:
    """A host is cut off silently: its job dies, another host runs, and the dead session goes."""
    stores, first, second = (network.host(name) for name in ("store", "host-a", "host-b"))
    store = start_breakable(
        kind, new_postgres, new_redis, host=stores.address, prefix=stores.prefix
    )
    hosts = [Oncecron(store.url(), public_path, h.name, prefix=h.prefix) for h in (first, second)]
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    firing = hosts[0].fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    first.cut()
    next_ticks(store, hosts[1], "k", journal, deadline=1.5 * TTL + 25)
    assert firing.wait().status == 75
    assert_exclusive(journal)
    eventually(lambda: store.leases() == 0, 60)
