"""The Redis servers of the tests do what the tests believe of them."""

from collections.abc import Callable

import pytest
import redis
from servers import RedisServer

NewRedis = Callable[..., RedisServer]


def test_each_test_gets_it_empty(redis_server: RedisServer) -> None:
    """No key is there, and a key can be written over TCP."""
    with redis_server.connect() as client:
        assert client.dbsize() == 0
    with redis.Redis.from_url(redis_server.url()) as client:
        assert client.set("a", "b")


@pytest.mark.parametrize("aof", [True, False])
def test_kill_keeps_data_only_with_aof(new_redis: NewRedis, aof: bool) -> None:
    """After SIGKILL and a start a server has its data if and only if it has an AOF."""
    server = new_redis(aof=aof)
    with server.connect() as client:
        client.set("a", "b")
    server.kill()
    with pytest.raises(redis.ConnectionError), server.connect() as client:
        client.ping()
    server.start()
    with server.connect() as client:
        assert client.get("a") == (b"b" if aof else None)


def test_settings_are_taken(new_redis: NewRedis) -> None:
    """Keywords are settings, so that a replica or a small memory can be had."""
    primary = new_redis(maxmemory="5mb", maxmemory_policy="volatile-lru")
    replica = new_redis(replicaof=f"{primary.host} {primary.port}")
    with primary.connect() as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "volatile-lru"}
    with replica.connect() as client:
        assert client.info("replication")["role"] == "slave"


def test_stopped_server_is_silent_until_it_goes_on(new_redis: NewRedis) -> None:
    """SIGSTOP: connecting succeeds, an answer does not come."""
    server = new_redis()
    server.sigstop()
    with (
        redis.Redis.from_url(server.url(), socket_timeout=0.3, retry=None) as client,
        pytest.raises(redis.TimeoutError),
    ):
        client.ping()
    server.sigcont()
    server.wait_ready()
