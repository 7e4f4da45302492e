"""A Redis server whose memory is full: no lease is lost, a claim fails closed, renewals and ends go on."""

from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from log_of import RedisLog
from servers import Journal, RedisServer, eventually, job
from servers.oncecron import Oncecron

TTL = 12
"""A heartbeat comes every two seconds."""


def fill(server: RedisServer) -> None:
    """Leave no memory for anything: what may expire is evicted first, where the policy says so."""
    client = server.connect()
    for number in range(100):
        client.set(f"filler-{number}", b"x" * 10_000, ex=3600)
    client.config_set("maxmemory", 100_000)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("filler", b"x")


@pytest.fixture(params=["noeviction", "volatile-lru"])
def server(request: pytest.FixtureRequest, new_redis: Callable[..., RedisServer]) -> RedisServer:
    """Start a server that evicts as managed services do, or not at all."""
    return new_redis(aof=True, maxmemory_policy=request.param)


@pytest.fixture
def host(server: RedisServer, public_path: Path) -> Callable[..., Oncecron]:
    return lambda name="host-a": Oncecron(server.url(), public_path, name)


def test_a_lease_survives_a_full_memory(
    server: RedisServer, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """It has no key that may be evicted; the holder renews and ends, nobody overlaps, the end is recorded."""
    go = public_path / "go"
    command = job(journal, "--sleep", 120, "--until", go, "--beats", "--exit", 3)
    firing = host().fire("k", "--ttl", TTL, "--tick", "one", "--", *command)
    journal.wait_for("start")
    fill(server)
    before = RedisLog(server).heartbeat("k")
    assert before is not None
    eventually(lambda: (RedisLog(server).heartbeat("k") or 0) > before)
    other = host("host-b").run("k", "--tick", "one", "--", *job(journal))
    assert (other.status, other.err) == (0, "")
    go.touch()
    ended = firing.wait()
    assert (ended.status, ended.err) == (3, "")
    [row] = RedisLog(server).executions("k")
    assert (row.outcome, row.exit_code, row.note) == ("failed", 3, None)
    assert len(journal.runs()) == 1
    assert RedisLog(server).heartbeat("k") is None


def test_a_claim_that_cannot_be_written_fails_closed(
    server: RedisServer, host: Callable[..., Oncecron], public_path: Path
) -> None:
    """Nothing is started: exit 69, one line that says what to do."""
    host().run("warm-up", "--tick", "one", "--", "true")
    fill(server)
    ended = host().run("k", "--connect-timeout", "2s", "--", "touch", public_path / "ran")
    assert ended.status == 69
    assert "memory is full" in ended.err
    assert ended.err.count("\n") == 1
    assert not (public_path / "ran").exists()
