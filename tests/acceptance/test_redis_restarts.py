"""A Redis server that may know less than it told makes firings wait: restarted, promoted, young."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from log_of import RedisLog
from servers import Journal, RedisServer, assert_exclusive, eventually, job
from servers.oncecron import SHORT_TTL, Oncecron

pytestmark = pytest.mark.turns(3)

TTL = SHORT_TTL
LONGER = 6
"""The ttl of whoever has to start, or to live on, while the server has just started."""


@pytest.fixture
def host(public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host that uses a server."""
    return lambda server, name="host-a": Oncecron(server.url(), public_path, name)


def fire_and_wait(host: Oncecron, journal: Journal, tick: str) -> None:
    """Fire a tick that has to wait longer than it may try to connect, and runs in the end."""
    options = ("--ttl", LONGER, "--connect-timeout", "4s", "--tick", tick)
    ended = host.run("k", *options, "--", *job(journal))
    assert (ended.status, ended.complaint) == (0, "")
    assert tick in {run.first.tick for run in journal.runs()}


def test_a_fresh_server_with_a_log_of_its_own_serves_at_once(
    new_redis: Callable[..., RedisServer], host: Callable[..., Oncecron]
) -> None:
    """With an append-only file an unknown namespace is simply new: nothing can have been lost."""
    server = new_redis(aof=True)
    ended = host(server).run("k", "--ttl", 600, "--tick", "one", "--", "echo", "ran", deadline=20)
    assert (ended.status, ended.out, ended.err) == (0, b"ran\n", "")


def test_a_young_server_without_a_log_of_its_own_makes_firings_wait(
    new_redis: Callable[..., RedisServer], host: Callable[..., Oncecron], journal: Journal
) -> None:
    """It may have been restarted empty: nobody starts before it is older than a ttl."""
    server = new_redis()
    fire_and_wait(host(server), journal, "one")
    assert server.connect().info("server")["uptime_in_seconds"] >= LONGER - 1
    host(server, "host-b").run("k", "--ttl", LONGER, "--tick", "two", "--", *job(journal))
    assert len(journal.runs()) == 2


@pytest.mark.parametrize("kept", ["with its data", "without its data"])
def test_a_restarted_server_makes_firings_wait(
    new_redis: Callable[..., RedisServer],
    host: Callable[..., Oncecron],
    journal: Journal,
    kept: str,
) -> None:
    """Whoever ran before may have been told more than is left: they wait for a ttl, longer than --connect-timeout."""
    server = new_redis(aof=kept == "with its data")
    fire_and_wait(host(server), journal, "one")
    server.restart()
    started = server.connect().time()
    fire_and_wait(host(server, "host-b"), journal, "two")
    ended = server.connect().time()
    assert ended[0] - started[0] >= LONGER - 2
    assert [run.first.host for run in journal.runs()] == ["host-a", "host-b"]


def test_a_restart_under_a_running_job_overlaps_with_nobody(
    new_redis: Callable[..., RedisServer],
    host: Callable[..., Oncecron],
    journal: Journal,
    public_path: Path,
) -> None:
    """All data are lost; the holder puts its lease back while a newer tick waits, which is then refused."""
    server = new_redis()
    go = public_path / "go"
    command = job(journal, "--sleep", 120, "--until", go, "--beats")
    holder = host(server).fire("k", "--ttl", LONGER, "--tick", "one", "--", *command)
    journal.wait_for("start", deadline=30)
    server.kill()
    server.start()
    next_one = host(server, "host-b").run(
        "k", "--ttl", LONGER, "--tick", "two", "--", *job(journal), deadline=60
    )
    assert (next_one.status, next_one.complaint) == (0, "")
    go.touch()
    ended = holder.wait(60)
    assert (ended.status, ended.complaint) == (0, "")
    assert_exclusive(journal)
    [first] = [row for row in RedisLog(server).executions("k") if row.tick == "one"]
    assert (first.outcome, "put back" in (first.note or "")) == ("succeeded", True)


def test_a_promoted_replica_makes_firings_wait(
    new_redis: Callable[..., RedisServer], host: Callable[..., Oncecron], journal: Journal
) -> None:
    """A replica that never saw the key may not have seen its holder either."""
    master = new_redis(aof=True)
    replica = new_redis(aof=True, replicaof=f"{master.host} {master.port}")
    eventually(lambda: replica.connect().info("replication")["master_link_status"] == "up")
    master.kill()
    replica.connect().replicaof("NO", "ONE")
    began = replica.connect().time()[0]
    fire_and_wait(host(replica), journal, "one")
    assert replica.connect().time()[0] - began >= LONGER - 1


def test_a_tick_that_ran_is_refused_while_firings_wait(
    new_redis: Callable[..., RedisServer], host: Callable[..., Oncecron]
) -> None:
    """What the server does know, it answers at once."""
    server = new_redis(aof=True)
    host(server).run("k", "--tick", "one", "--", "true")
    server.restart()
    ended = host(server, "host-b").run("k", "--tick", "one", "--", "echo", "twice", deadline=20)
    assert (ended.status, ended.out) == (0, b"")


def test_a_server_that_restarts_again_and_again_is_given_up(
    new_redis: Callable[..., RedisServer], host: Callable[..., Oncecron], public_path: Path
) -> None:
    """The wait has an end: exit 69 with a line, and nothing was started."""
    server = new_redis(aof=True)
    host(server).run("k", "--ttl", TTL, "--tick", "one", "--", "true")
    server.restart()
    firing = host(server, "host-b").fire(
        "k", "--ttl", TTL, "--connect-timeout", "2s", "--tick", "two", "--", "touch", public_path / "ran"
    )  # fmt: skip
    while firing.process.poll() is None:
        uptime = eventually(
            lambda: server.connect().info("server")["uptime_in_seconds"],
            retry_on=redis.ConnectionError,
        )
        if uptime >= TTL // 2:
            server.restart()
        time.sleep(0.1)  # between two looks
    ended = firing.wait()
    assert ended.status == 69
    assert "the store keeps restarting" in ended.err
    assert not (public_path / "ran").exists()
