"""Hosts that wait for the one that runs a tick, and take over when it is lost.

Overlaps are told by what the jobs wrote; the time of a takeover counts from the loss to the next job's first line.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from breakable import Breakable
from log_of import PostgresLog, SQLiteLog, Store
from servers import (
    Database,
    FaultProxy,
    Journal,
    PgBouncer,
    assert_exclusive,
    assert_tokens_rise,
    eventually,
    job,
)
from servers.oncecron import SHORT_TTL, Ended, Firing, Oncecron
from servers.process import kill_tree
from test_transparency import plant

NewProxy = Callable[..., FaultProxy]
TTL = SHORT_TTL
WITHIN = TTL + 2 + 10  # the promise, and what two busy cores take to start three processes
TAKEOVERS = int(os.environ.get("ONCECRON_TEST_TAKEOVERS", "1"))
FAILOVER = ("--ttl", TTL, "--failover")
DAEMON = (*FAILOVER, "--no-tick")
SHORT = ("--beats", "--sleep", 0.3)
LONG = ("--beats", "--sleep", 60)


@pytest.fixture(params=["pooled", "postgres", "redis", "sqlite", "unheld"])
def store(request: pytest.FixtureRequest, public_path: Any) -> Store:
    """Give an empty store of each kind; `pooled` and `unheld` are PostgreSQL behind a pooler, and with `?hold=no`."""
    if request.param == "sqlite":
        return SQLiteLog(public_path / "store" / "oncecron.db")
    if request.param == "redis":
        from log_of import RedisLog

        return RedisLog(request.getfixturevalue("redis_server"))
    database: Database = request.getfixturevalue("ready")
    log = PostgresLog(database)
    if request.param == "pooled":
        pooler: PgBouncer = request.getfixturevalue("pgbouncer")
        log.url = database.url(via=pooler)
    if request.param == "unheld":
        log.url += "?hold=no"
    return log


@pytest.fixture
def three(new_host: Callable[..., Oncecron]) -> tuple[Oncecron, Oncecron, Oncecron]:
    return new_host("host-a"), new_host("host-b"), new_host("host-c")


def wait_until_held(store: Store, key: str, *hosts: Oncecron) -> None:
    """Wait until these hosts have been told that another one runs."""
    names = {host.environment["ONCECRON_HOST"] for host in hosts}
    eventually(
        lambda: names <= {skip.host for skip in store.skips(key) if skip.reason == "held"}, 30
    )


def power_off(firing: Firing) -> float:
    """Kill all processes of a host's firing at once; return when."""
    kill_tree(firing.process.pid)
    at = time.monotonic()
    firing.wait()
    return at


def taken_over(store: Store, key: str, journal: Journal, lost_at: float) -> None:
    """Fail unless one other host has run the tick once more, in time, and all of it is recorded."""
    first, second = [line for line in journal.starts() if line.key == key]
    assert second.host != first.host
    assert second.time - lost_at < WITHIN
    rows = store.executions(key)
    assert [(row.attempt, row.cause, row.outcome, row.host) for row in rows] == [
        (1, "schedule", "lost", first.host),
        (2, "takeover", "succeeded", second.host),
    ]
    assert int(first.token) < int(second.token)


@pytest.mark.quick
def test_one_of_those_that_wait_takes_over(
    store: Store, three: tuple[Oncecron, Oncecron, Oncecron], journal: Journal
) -> None:
    """The holder's host vanishes: within ttl + 2 s one runs attempt 2, the other leaves, nobody says a word."""
    a, b, c = three
    for number in range(TAKEOVERS):
        key = f"k{number}"
        holder = a.fire(key, "--tick", "one", *FAILOVER, "--", *job(journal, *LONG))
        journal.wait_for("start", where=lambda line, key=key: line.key == key)
        waiting = [
            host.fire(key, "--tick", "one", "--failover", "--", *job(journal, *SHORT))
            for host in (b, c)
        ]
        wait_until_held(store, key, b, c)
        lost_at = power_off(holder)
        assert [firing.wait(40) for firing in waiting] == [Ended(0, b"", "")] * 2
        taken_over(store, key, journal, lost_at)
    assert_exclusive(journal, attempts=True)
    assert_tokens_rise(journal)


def test_a_host_that_waits_can_be_told_to_leave(
    store: Store, three: tuple[Oncecron, Oncecron, Oncecron], journal: Journal
) -> None:
    """TERM ends the waiting, and nothing else: the holder runs on."""
    a, b, _ = three
    holder = a.fire("k", "--tick", "one", "--failover", "--", *job(journal, *LONG))
    journal.wait_for("start")
    waiting = b.fire("k", "--tick", "one", "--failover", "--", *job(journal, *LONG))
    wait_until_held(store, "k", b)
    os.kill(waiting.process.pid, signal.SIGTERM)
    assert waiting.wait().status == 143
    assert [line.kind for line in journal.lines() if line.kind != "beat"] == ["start"]
    os.kill(holder.process.pid, signal.SIGTERM)
    assert holder.wait().status == 143
    assert [row.outcome for row in store.executions("k")] == ["stopped"]


def test_what_comes_after_a_kill_is_no_time_of_the_job(
    any_store: Store, new_host: Callable[..., Oncecron], public_path: Path, journal: Journal
) -> None:
    """A slow host reads what the killed job has left while another one starts: the log tells of no overlap."""
    slow, other = new_host("host-a"), new_host("host-b")
    reads = "        place = self._place_left()\n"
    plant(slow, public_path, "run/wrapper.py", reads, "__import__('time').sleep(4)")
    ttl = 24  # a busy machine has a twentieth of it for the kill
    words = ("k", "--ttl", ttl, "--tick", "one", "--failover", "--", *job(journal, *LONG[:1]))
    holder = slow.fire(*words, *LONG[1:])
    journal.wait_for("start")
    waiting = other.fire(*words)
    wait_until_held(any_store, "k", other)
    os.kill(holder.guard().pid, signal.SIGSTOP)
    assert (holder.wait().status, waiting.wait().status) == (75, 0)
    assert slow("flush").out == b"delivered k one lost\n"
    assert other("audit").status == 0


# A daemon, one of which is to run


def test_a_daemon_has_hosts_that_stand_by(
    store: Store, three: tuple[Oncecron, Oncecron, Oncecron], journal: Journal
) -> None:
    """Its host vanishes, then the next one is told to end (it shuts down): another one runs it each time."""
    hosts = {host.environment["ONCECRON_HOST"]: host for host in three}
    firings = {
        name: host.fire("k", *DAEMON, "--", *job(journal, *LONG)) for name, host in hosts.items()
    }
    first = journal.wait_for("start", 1, 20)[0]
    wait_until_held(store, "k", *(host for name, host in hosts.items() if name != first.host))
    lost_at = power_off(firings.pop(first.host))
    second = journal.wait_for("start", 2, 30)[1]
    assert second.time - lost_at < WITHIN
    os.kill(firings[second.host].process.pid, signal.SIGTERM)
    stopped_at = time.monotonic()
    assert firings.pop(second.host).wait().status == 143
    third = journal.wait_for("start", 3, 30)[2]
    assert third.time - stopped_at < WITHIN
    assert len({first.host, second.host, third.host}) == 3
    os.kill(firings[third.host].process.pid, signal.SIGTERM)
    firings[third.host].wait()
    assert_exclusive(journal)
    assert_tokens_rise(journal)
    outcomes = [row.outcome for row in store.executions("k")]
    assert outcomes == ["lost", "stopped", "stopped"]


# The network of the holder fails


def test_a_holder_that_is_cut_off_is_followed(
    breakable: Breakable, public_path: Any, new_proxy: NewProxy, journal: Journal
) -> None:
    """Its packets go nowhere: it ends its job before another host starts its own, within ttl + 2 s."""
    way = new_proxy(breakable.server)
    cut_off = Oncecron(breakable.url(via=way), public_path, "host-a")
    others = [Oncecron(breakable.url(), public_path, name) for name in ("host-b", "host-c")]
    holder = cut_off.fire("k", "--tick", "one", *FAILOVER, "--", *job(journal, *LONG))
    journal.wait_for("start")
    waiting = [
        host.fire("k", "--tick", "one", "--failover", "--ttl", 6, "--", *job(journal, *SHORT))
        for host in others
    ]
    wait_until_held(breakable.log, "k", *others)
    way.deaf()
    lost_at = time.monotonic()
    assert [firing.wait(40) for firing in waiting] == [Ended(0, b"", "")] * 2
    assert holder.wait(40).status == 75
    taken_over(breakable.log, "k", journal, lost_at)
    assert_exclusive(journal, attempts=True)


@pytest.mark.herd
@pytest.mark.slow
@pytest.mark.parametrize("count", [20])
def test_many_that_wait_are_no_stampede(
    breakable: Breakable, public_path: Any, new_proxy: NewProxy, journal: Journal, count: int
) -> None:
    """Of twenty one takes over; each has one connection at a time, and asks now and then."""
    way = new_proxy(breakable.server)
    first = Oncecron(breakable.url(), public_path, "host-0")
    herd = [Oncecron(breakable.url(via=way), public_path, f"host-{n}") for n in range(1, count + 1)]
    ttl = 6
    slow = ("--ttl", ttl, "--failover", "--tick", "one", "--connect-timeout", "60s")
    holder = first.fire("k", *slow, "--", *job(journal, *LONG))
    journal.wait_for("start")
    waiting = [host.fire("k", *slow, "--", *job(journal, *SHORT)) for host in herd]
    wait_until_held(breakable.log, "k", *herd)
    lost_at = power_off(holder)
    ends = [firing.wait(120) for firing in waiting]
    assert ends == [Ended(0, b"", "")] * count
    _, second_start = journal.starts()
    assert second_start.time - lost_at < ttl + 30  # twenty interpreters wake
    assert_exclusive(journal, attempts=True)
    assert len(way.connections()) <= 2 * count + 5
    # To connect, to claim, to listen, to claim again; then every sixth to third of the ttl, and when something happens.
    took = time.monotonic() - lost_at
    assert way.round_trips() <= count * (15 + 2 * (took + ttl) / (ttl / 6))
