"""A sentinel failover under a running job, with its claim replicated and not replicated."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from log_of import RedisLog
from servers import (
    Journal,
    RedisServer,
    Sentinels,
    assert_exclusive,
    assert_tokens_rise,
    eventually,
    job,
)
from servers.oncecron import Firing, Oncecron
from servers.process import send

pytestmark = pytest.mark.turns(1)

TTL = 6
"""Longer than a failover takes on a busy machine, and shorter than an old master is one beside the new one."""
AWAY = (AssertionError, redis.ConnectionError, redis.TimeoutError)


@pytest.fixture
def group(new_sentinels: Callable[..., Sentinels]) -> Sentinels:
    """Start a master, a replica and three sentinels."""
    return new_sentinels(aof=True)


@pytest.fixture
def host(group: Sentinels, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host; `via` are proxies in front of its sentinels."""

    def make(name: str = "host-a", via: Any = ()) -> Oncecron:
        return Oncecron(group.url(sentinels=via), public_path, name)

    return make


def fire(host: Oncecron, tick: str, *command: object) -> Firing:
    return host.fire("k", "--ttl", TTL, "--connect-timeout", "15s", "--tick", tick, "--", *command)


def stop_replication(group: Sentinels) -> None:
    """Cut the replica off from its master; sentinels and firings still reach both."""
    with group.master.connect() as client:
        client.execute_command("ACL SETUSER default -psync -sync")
        client.client_kill_filter(_type="replica")
        eventually(lambda: client.info("replication")["connected_slaves"] == 0)


def wait_renewed(server: RedisServer) -> None:
    """Wait until the holder has told this server that it lives."""
    before = RedisLog(server).heartbeat("k") or 0
    eventually(lambda: (RedisLog(server).heartbeat("k") or 0) > before, 15, AWAY)


def run_next(host: Oncecron, journal: Journal, deadline: float) -> None:
    """Fire newer ticks one after another, as cron would, until one has run; none fails."""
    give_up = time.monotonic() + deadline
    number = 0
    while host.environment["ONCECRON_HOST"] not in {run.first.host for run in journal.runs()}:
        assert time.monotonic() < give_up, f"no newer tick ran within {deadline} s"
        number += 1
        ended = fire(host, f"next-{number}", *job(journal, "--beats", "--sleep", 0.2)).wait()
        assert (ended.status, ended.complaint) == (0, "")


def outcomes(server: RedisServer) -> list[tuple[str | None, str, int | None]]:
    """Return ticks, outcomes and exit codes, the oldest first."""
    return [(row.tick, row.outcome, row.exit_code) for row in RedisLog(server).executions("k")]


def test_a_replicated_claim_outlives_its_master(
    group: Sentinels, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """The job is undisturbed; a newer tick that fires meanwhile waits, and is refused."""
    old = group.master
    go = public_path / "go"
    command = job(journal, "--sleep", 120, "--until", go, "--beats", "--exit", 3)
    firing = fire(host(), "one", *command)
    journal.wait_for("start")
    group.wait_replicated()
    old.kill()
    during = fire(host("host-b"), "two", *job(journal, "--beats"))
    new = group.wait_master_is_not(old)
    wait_renewed(new)
    ended = during.wait()
    assert (ended.status, ended.complaint) == (0, "")
    go.touch()
    ended = firing.wait()
    assert (ended.status, ended.complaint) == (3, "")
    assert outcomes(new) == [("one", "failed", 3)]
    assert len(journal.runs()) == 1


def test_a_claim_that_was_not_replicated_is_put_back(
    group: Sentinels, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """Nobody can have claimed before: the promoted server makes them wait. The old master comes back as replica."""
    assert fire(host(), "zero", "true").wait().status == 0
    group.wait_replicated()
    old = group.master
    stop_replication(group)
    go = public_path / "go"
    command = job(journal, "--sleep", 120, "--until", go, "--beats", "--exit", 3)
    firing = fire(host(), "one", *command)
    journal.wait_for("start")
    old.kill()
    new = group.wait_master_is_not(old)
    assert [row[0] for row in outcomes(new)][:1] == ["zero"]
    during = fire(host("host-b"), "two", *job(journal, "--beats"))
    wait_renewed(new)
    old.start()
    ended = during.wait()
    assert (ended.status, ended.complaint) == (0, "")
    wait_renewed(new)
    go.touch()
    ended = firing.wait()
    assert (ended.status, ended.complaint) == (3, "")
    group.wait_replicated(deadline=20)
    assert group.master is new
    assert outcomes(new) == [("zero", "succeeded", 0), ("one", "failed", 3)]
    assert "put back" in (RedisLog(new).executions("k")[1].note or "")
    run_next(host("host-b"), journal, deadline=TTL + 25)
    assert_exclusive(journal)
    assert_tokens_rise(journal)


def test_a_holder_that_cannot_put_its_claim_back_is_dead_before_anybody_starts(
    group: Sentinels, host: Callable[..., Oncecron], journal: Journal, new_proxy: Any
) -> None:
    """It is cut off, and the promoted server knows nothing of it: exit 75, no overlap, rising tokens."""
    assert fire(host(), "zero", "true").wait().status == 0
    group.wait_replicated()
    old = group.master
    stop_replication(group)
    proxies = [new_proxy(sentinel) for sentinel in group.sentinels]
    command = job(journal, "--sleep", 60, "--beats", "--ignore-term")
    firing = fire(host(via=proxies), "one", *command)
    journal.wait_for("start")
    for proxy in proxies:
        proxy.reset()
    old.kill()
    new = group.wait_master_is_not(old)
    run_next(host("host-b"), journal, deadline=2 * TTL + 25)
    for proxy in proxies:
        proxy.passing()
    assert firing.wait().status == 75
    assert_exclusive(journal)
    assert_tokens_rise(journal)
    assert dict(row[:2] for row in outcomes(new)) == {
        "zero": "succeeded", "one": "lost", "next-1": "succeeded",
    }  # fmt: skip


def test_a_holder_follows_a_switchover_before_its_old_master_does(
    group: Sentinels, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """The old master is told after ten seconds, and would renew meanwhile what the new one grants to others."""
    old = group.master
    firing = fire(host(), "one", *job(journal, "--sleep", 60, "--beats"))
    journal.wait_for("start")
    group.wait_replicated()
    with group.sentinels[0].connect() as client:
        client.execute_command("SENTINEL FAILOVER", group.name)
    new = group.wait_master_is_not(old)
    began = time.monotonic()
    other = host("host-b").fire("other", "--ttl", TTL, "--", "true")  # the guard counts from now
    number = 0
    while old.connect().role()[0] == b"master" and time.monotonic() < began + 1.5 * TTL:
        number += 1
        ended = fire(host("host-b"), f"two-{number}", *job(journal, "--beats")).wait()
        assert (ended.status, ended.complaint) == (0, "")
    assert len(journal.runs()) == 1
    assert other.wait().status == 0
    assert time.monotonic() - began > TTL, "the old master was told too early to prove anything"
    send([firing.wrapper], signal.SIGTERM)
    assert firing.wait().status == 128 + signal.SIGTERM
    assert_exclusive(journal)
    assert [row[1] for row in outcomes(new)] == ["stopped"]
