"""Redis servers on which a claim could not be kept, and users with too few rights: nothing runs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from servers import RedisServer, eventually
from servers.oncecron import Ended, Oncecron

SHORT = ("--connect-timeout", "20s")


@pytest.fixture
def fire(public_path: Path) -> Callable[..., Ended]:
    """Give a function that fires once against a URL."""

    def run(url: str, *options: object) -> Ended:
        return Oncecron(url, public_path).run(
            "k", *SHORT, *options, "--", "touch", public_path / "ran"
        )

    return run


def refused(ended: Ended, public_path: Path, status: int = 78) -> str:
    """Return the one line that was said; nothing ran."""
    assert (ended.status, ended.out) == (status, b"")
    assert ended.err.startswith("oncecron: ")
    assert ended.err.count("\n") == 1, ended.err
    assert not (public_path / "ran").exists()
    return ended.err


def test_a_replica_is_refused(
    new_redis: Callable[..., RedisServer], fire: Callable[..., Ended], public_path: Path
) -> None:
    """What it answers may be old, also where it would only refuse."""
    master = new_redis(aof=True)
    assert fire(master.url(), "--tick", "one").status == 0
    (public_path / "ran").unlink()
    replica = new_redis(aof=True, replicaof=f"{master.host} {master.port}")
    eventually(lambda: replica.connect().exists("oncecron:{oncecron}:executions"))
    assert "redis+sentinel://" in refused(fire(replica.url(), "--tick", "one"), public_path)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_server_that_may_evict_leases_is_refused(
    new_redis: Callable[..., RedisServer],
    fire: Callable[..., Ended],
    public_path: Path,
    policy: str,
) -> None:
    """The line names the policy and the cure."""
    server = new_redis(aof=True, maxmemory_policy=policy)
    said = refused(fire(server.url()), public_path)
    assert policy in said
    assert "noeviction" in said


def test_names_that_another_program_uses_are_refused(
    new_redis: Callable[..., RedisServer], fire: Callable[..., Ended], public_path: Path
) -> None:
    """A namespace of its own is the cure."""
    server = new_redis(aof=True)
    server.connect().set("oncecron:{oncecron}:key:k#0", "mine")
    assert "--namespace" in refused(fire(server.url()), public_path)
