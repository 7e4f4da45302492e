"""A Redis Cluster of three nodes: everything works, wherever the slot of a namespace is and goes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from servers import Journal, RedisCluster, RedisServer, assert_exclusive, eventually, job
from servers.oncecron import CONSOLE_SCRIPT, SHORT_TTL, Oncecron

pytestmark = pytest.mark.turns(1)

RUN = ("--connect-timeout", "10s")


@pytest.fixture
def cluster(new_redis_cluster: Callable[..., RedisCluster]) -> RedisCluster:
    """Start three nodes that stay up when one of them is down."""
    return new_redis_cluster(aof=True, cluster_require_full_coverage="no")


@pytest.fixture
def host(cluster: RedisCluster, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host; `nodes` are those that its URL names."""

    def make(name: str = "host-a", nodes: Any = (), **environment: str) -> Oncecron:
        return Oncecron(cluster.url(nodes=nodes), public_path, name, **environment)

    return make


def namespaces(cluster: RedisCluster) -> dict[str, RedisServer]:
    found: dict[str, RedisServer] = {}
    for server in cluster.servers:
        key = cluster.key_on(server, "space")
        found[key] = server
    return found


def owner(cluster: RedisCluster, namespace: str = "oncecron") -> RedisServer:
    slot = cluster.slot(namespace)
    return cluster.servers[slot * len(cluster.servers) // 16384]


def others(cluster: RedisCluster) -> list[RedisServer]:
    """Return the nodes that have nothing to do with the default namespace."""
    return [server for server in cluster.servers if server is not owner(cluster)]


def calls(server: RedisServer) -> tuple[int, int]:
    """Return how many steps a node has carried out, and how many it refused (MOVED)."""
    stats = server.connect().info("commandstats")
    both = [stats.get(f"cmdstat_{name}", {}) for name in ("eval", "evalsha")]
    return sum(s.get("calls", 0) for s in both), sum(s.get("rejected_calls", 0) for s in both)


def migrate(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    """Move the keys of a slot that is on its way."""
    while names := cluster.ask(source, "CLUSTER GETKEYSINSLOT", slot, 100):
        to = (target.host, target.port, "", 0, 5000, "KEYS", *names)
        cluster.ask(source, "MIGRATE", *to)


def ran(host: Oncecron, *where: str) -> list[tuple[str, str]]:
    """Return ticks and outcomes as `history` has them, the newest first."""
    ended = host("history", "--json", *where)
    assert (ended.status, ended.err) == (0, "")
    return [(row["tick"], row["outcome"]) for row in json.loads(ended.out)]


def test_namespaces_live_on_different_nodes_and_all_commands_find_them(
    cluster: RedisCluster, host: Callable[..., Oncecron]
) -> None:
    """Each with its own runs, refusals and locks; every key of a namespace is on one node."""
    for namespace, server in namespaces(cluster).items():
        where = ("--namespace", namespace)
        assert host()("init", *where).status == 0
        locks = (CONSOLE_SCRIPT, "locks", "--json", *where)
        ended = host().run("k", *RUN, *where, "--pass-store", "--tick", "one", "--", *locks)
        assert (ended.status, ended.err) == (0, "")
        assert [lock["state"] for lock in json.loads(ended.out)] == ["held"]
        again = host("host-b").run("k", *RUN, *where, "--tick", "one", "--", "echo", "twice")
        assert (again.status, again.out, again.err) == (0, b"", "")
        assert ran(host(), *where) == [("one", "succeeded")]
        skips = host()("history", "--skips", "--json", *where)
        assert [skip["reason"] for skip in json.loads(skips.out)] == ["done"]
        pruned = host()("prune", *where)
        assert (pruned.status, pruned.err) == (0, "")
        names = {s: s.connect().keys(f"{namespace}:*") for s in cluster.servers}
        assert [s for s, found in names.items() if found] == [server]


def test_a_node_sends_a_firing_on_by_moved_and_is_asked_once(
    cluster: RedisCluster, host: Callable[..., Oncecron]
) -> None:
    """One request goes to the wrong node; the look, the grant and the end are carried out by the right one."""
    wrong, unasked = others(cluster)
    firing = host(nodes=[wrong, owner(cluster)])
    firing.run("k", *RUN, "--tick", "warm-up", "--", "true")
    before = {server: calls(server) for server in cluster.servers}
    ended = firing.run("k", *RUN, "--tick", "one", "--", "true")
    assert (ended.status, ended.err) == (0, "")
    done = {
        server: tuple(now - then for now, then in zip(calls(server), before[server], strict=True))
        for server in cluster.servers
    }
    assert done == {wrong: (0, 1), unasked: (0, 0), owner(cluster): (3, 0)}


def test_a_slot_that_moves_takes_a_running_job_along(
    cluster: RedisCluster, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """While it is on its way nobody is answered, which is shorter than the ttl; then all goes on where it is."""
    source, target = owner(cluster), others(cluster)[0]
    slot = cluster.slot("oncecron")
    run = ("k", "--ttl", 6, *RUN)  # a node waits for the longest ttl of what moves to it
    go = public_path / "go"
    command = job(journal, "--sleep", 120, "--until", go, "--beats", "--exit", 3)
    firing = host().fire(*run, "--tick", "one", "--", *command)
    journal.wait_for("start")
    cluster.move_slot(slot, source, target, "begin")
    asking = host("host-b").fire(*run, "--tick", "two", "--", *job(journal, "--beats"))
    refused = calls(source)[1]
    eventually(lambda: calls(source)[1] > refused)
    migrate(cluster, slot, source, target)
    refused = calls(target)[1]
    # TRYAGAIN: it has not all names that a step may touch.
    eventually(lambda: calls(target)[1] > refused)
    cluster.move_slot(slot, source, target, "end")
    ended = asking.wait()
    assert (ended.status, ended.err) == (0, "")
    go.touch()
    ended = firing.wait()
    assert (ended.status, ended.err) == (3, "")
    assert source.connect().keys("oncecron:*") == []
    assert ran(host()) == [("one", "failed")]
    assert host("host-b").run(*run, "--tick", "three", "--", *job(journal)).status == 0
    assert [run.first.tick for run in journal.runs()] == ["one", "three"]
    assert_exclusive(journal)


def test_a_node_that_is_down_matters_to_its_own_namespaces_only(
    cluster: RedisCluster, host: Callable[..., Oncecron], public_path: Path
) -> None:
    """Another named node is asked in its place; without the owner itself nothing runs: 69 and a line."""
    home, (down, other) = owner(cluster), others(cluster)
    down.kill()
    ended = host(nodes=[down, other]).run("k", *RUN, "--tick", "one", "--", "echo", "ran")
    assert (ended.status, ended.out, ended.err) == (0, b"ran\n", "")
    home.kill()
    ran = public_path / "ran"
    short = ("--ttl", SHORT_TTL, "--connect-timeout", "2s", "--tick", "two", "--", "touch", ran)
    ended = host(nodes=[other]).run("k", *short)
    assert ended.status == 69
    assert ended.err.count("\n") == 1, ended.err
    assert "Connection refused" in ended.err or "the cluster is down" in ended.err
    eventually(lambda: cluster_is_down(other), 20)
    ended = host("host-b", nodes=[other]).run("k", *short)
    assert (ended.status, "the cluster is down" in ended.err) == (69, True), ended.err
    people = host(nodes=[other])("history")
    assert (people.status, people.err.count("\n")) == (69, 1), people.err
    assert not ran.exists()


def cluster_is_down(server: RedisServer) -> bool:
    """Return whether a node knows that the default namespace's is gone."""
    try:
        server.connect().exists("oncecron:{oncecron}:parts")
    except redis.exceptions.ClusterDownError:
        return True
    except redis.ResponseError:  # MOVED
        return False
    return False
