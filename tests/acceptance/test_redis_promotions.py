"""What counts as a promotion: whoever may know less than was told makes firings wait, and nobody else does."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from servers import Journal, RedisServer, assert_exclusive, eventually, job
from servers.oncecron import SHORT_TTL, STARTED, Oncecron

pytestmark = pytest.mark.turns(2)

Hosts = Callable[..., Oncecron]
TTL = SHORT_TTL


class Pair(NamedTuple):
    """Two servers that take turns."""

    first: RedisServer
    second: RedisServer


def follow(server: RedisServer, master: Any) -> None:
    """Make a server a replica that has all that its master has; `master` may be a proxy in front of it."""
    server.connect().replicaof(master.host, str(master.port))

    def synchronous() -> bool:
        here = server.connect().info("replication")
        with redis.Redis(master.host, master.port) as client:
            there = client.info("replication")
        same = here["slave_repl_offset"] == there["master_repl_offset"]
        return here["master_link_status"] == "up" and bool(same)

    eventually(synchronous, 15, (redis.ConnectionError, redis.TimeoutError))


def switch(old: RedisServer, new: RedisServer) -> None:
    """Promote the replica; the old master becomes its replica."""
    new.connect().replicaof("NO", "ONE")
    follow(old, new)


@pytest.fixture
def pair(new_redis: Callable[..., RedisServer]) -> Pair:
    # Without a PING into the replication, which only one of the two may have got when they part.
    pair = Pair(*(new_redis(aof=True, repl_ping_replica_period=3600) for _ in range(2)))
    follow(pair.second, pair.first)
    return pair


@pytest.fixture
def host(public_path: Path) -> Hosts:
    """Give a function that makes a host that uses a server."""
    return lambda server, name="host-a", via=None: Oncecron(server.url(via=via), public_path, name)


def waited(host: Oncecron, tick: str) -> float:
    """Fire; return how long it took until the command had run, or 0 if it did not say that it waits for a guard."""
    host.environment["XDG_STATE_HOME"] += f"-{tick}"  # a host says it once a day
    began = time.monotonic()
    ended = host.run("k", "--ttl", TTL, "--tick", tick, "--", "echo", "ran")
    assert (ended.status, ended.out, ended.complaint) == (0, b"ran\n", "")
    return time.monotonic() - began if STARTED in ended.err else 0


@pytest.mark.parametrize("resync", ["partial", "full"])
def test_there_and_back_makes_firings_wait(pair: Pair, host: Hosts, resync: str) -> None:
    """Within seconds, without a claim in between: the record names the same process, and that is not enough."""
    first, second = pair
    assert waited(host(first), "one") == 0
    follow(second, first)  # to the last byte, or they have no common end
    second.connect().replicaof("NO", "ONE")
    if resync == "full":
        first.connect().set("after", "the other's promotion")  # so that they have no common end
    follow(first, second)
    full = second.connect().info("stats")["sync_full"]
    assert full == (1 if resync == "full" else 0)
    switch(second, first)
    assert waited(host(first), "two") > TTL - 1
    assert waited(host(first), "three") == 0


def test_each_promotion_counts(pair: Pair, host: Hosts) -> None:
    """Also the second one of a server whose first one is on record."""
    first, second = pair
    assert waited(host(first), "one") == 0
    switch(first, second)
    assert waited(host(second), "two") > TTL - 1
    switch(second, first)
    switch(first, second)
    assert waited(host(second), "three") > TTL - 1


def test_a_holder_that_two_promotions_lost_overlaps_with_nobody(
    pair: Pair, host: Hosts, journal: Journal, new_proxy: Any
) -> None:
    """Its claim was on neither server in the end; it is cut off, and dead before the next one starts."""
    first, second = pair
    assert waited(host(first), "zero") == 0
    follow(second, first)
    second.connect().replicaof("NO", "ONE")  # a partition: both are masters now
    proxy = new_proxy(first)
    command = job(journal, "--sleep", 60, "--beats", "--ignore-term")
    holder = host(first, "host-b", via=proxy)
    firing = holder.fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    proxy.deaf()
    follow(first, second)  # and forgets what it granted
    switch(second, first)
    ended = host(first, "host-c").run("k", "--ttl", TTL, "--tick", "two", "--", *job(journal))
    assert (ended.status, ended.complaint) == (0, "")
    proxy.passing()  # what the dead holder has said meanwhile is heard now
    assert firing.wait().status == 75
    assert len(journal.runs()) == 2
    assert_exclusive(journal)


def test_a_master_behind_a_partition_renews_nothing_without_its_replica(
    new_redis: Callable[..., RedisServer], host: Hosts, journal: Journal, new_proxy: Any
) -> None:
    """min-replicas-to-write is what keeps its holder from living on while the other side has a master of its own."""
    first = new_redis(aof=True, min_replicas_to_write=1, min_replicas_max_lag=1)
    link = new_proxy(first)
    second = new_redis(aof=True)
    follow(second, link)
    command = job(journal, "--sleep", 60, "--beats", "--ignore-term")
    options = ("--ttl", TTL, "--connect-timeout", "15s", "--tick", "one")
    firing = host(first).fire("k", "-v", *options, "--", *command)
    journal.wait_for("start")
    link.reset()
    eventually(lambda: refuses_writes(first))
    second.connect().replicaof("NO", "ONE")
    # The guard counts from now.
    other = host(second, "host-b").fire("other", "--ttl", TTL, "--", "true")
    give_up = time.monotonic() + 3 * TTL + 25
    while len(journal.runs()) < 2:
        assert time.monotonic() < give_up
        options = ("--ttl", TTL, "--tick", f"two-{time.monotonic()}")
        ended = host(second, "host-b").run("k", *options, "--", *job(journal, "--beats"))
        assert (ended.status, ended.complaint) == (0, "")
    assert_exclusive(journal)
    first.connect().config_set("min-replicas-to-write", 0)  # it may record the end
    ended = firing.wait()
    assert (ended.status, "too few replicas" in ended.err) == (75, True)
    assert other.wait().status == 0
    assert_exclusive(journal)


def refuses_writes(server: RedisServer) -> bool:
    """Return whether a server has too few replicas to take writes."""
    try:
        server.connect().set("written", "x")
    except redis.ResponseError as error:
        return "NOREPLICAS" in str(error)
    return False


def test_what_is_no_promotion_makes_nobody_wait(
    new_redis: Callable[..., RedisServer], host: Hosts
) -> None:
    """A first replica, its loss, its return, `REPLICAOF NO ONE` on a master, and a promotion forgotten."""
    first, second = new_redis(aof=True), new_redis(aof=True)
    assert waited(host(first), "one") == 0
    follow(second, first)
    assert waited(host(first), "two") == 0
    first.connect().replicaof("NO", "ONE")
    first.connect().replicaof("NO", "ONE")
    assert waited(host(first), "three") == 0
    second.connect().replicaof("NO", "ONE")
    assert waited(host(second), "four") > TTL - 1
    second.connect().config_set("repl-backlog-ttl", 1)
    replication = second.connect()
    eventually(lambda: replication.info("replication")["second_repl_offset"] == -1)
    assert waited(host(second), "five") == 0
