"""TLS, users, sentinels and clusters of the tests do what the tests believe of them."""

from collections.abc import Callable

import pytest
import redis
from servers import Certificates, RedisCluster, RedisServer, Sentinels

NewRedis = Callable[..., RedisServer]


def test_tls_needs_the_right_authority(new_redis: NewRedis, certificates: Certificates) -> None:
    """The server's certificate is `ca`'s; who trusts another does not get in."""
    server = new_redis(tls=certificates)
    with redis.Redis.from_url(server.tls_url()) as client:
        assert client.ping()
    other = server.tls_url(ssl_ca_certs=certificates["other.crt"])
    with redis.Redis.from_url(other) as client, pytest.raises(redis.ConnectionError):
        client.ping()


def test_users_may_what_they_are_given(new_redis: NewRedis) -> None:
    """And the tests' own way in stays open."""
    server = new_redis(user=["default off", "cron on >secret ~oncecron:* +@all"])
    with redis.Redis.from_url(server.url(login="cron:secret")) as client:
        assert client.set("oncecron:a", "b")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.set("other", "b")
    with (
        redis.Redis.from_url(server.url()) as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()
    with server.connect() as client:
        assert client.get("oncecron:a") == b"b"


def test_a_failover_finds_the_replica(new_sentinels: Callable[..., Sentinels]) -> None:
    """It has what was replicated, takes writes, and the old master comes back as its replica."""
    group = new_sentinels()
    old = group.master
    assert old is group.servers[0]
    with old.connect() as client:
        client.set("a", "b")
        assert client.wait(1, 5000) == 1
    old.kill()
    new = group.wait_master_is_not(old)
    with new.connect() as client:
        assert client.get("a") == b"b"
        assert client.set("a", "c")
    old.start()
    group.wait_replicated(deadline=30)
    assert group.master is new


def test_a_cluster_has_a_key_for_each_node(
    new_redis_cluster: Callable[..., RedisCluster],
) -> None:
    """Whoever is asked for another's key answers MOVED; while a slot moves, ASK."""
    cluster = new_redis_cluster()
    first, second, _ = cluster.servers
    for server in cluster.servers:
        assert cluster.ask(server, "SET", cluster.key_on(server), "x")
    key = cluster.key_on(first, "moving")
    with pytest.raises(redis.exceptions.MovedError):
        cluster.ask(second, "GET", key)
    cluster.move_slot(cluster.slot(key), first, second, "begin")
    with pytest.raises(redis.exceptions.AskError):
        cluster.ask(first, "GET", key)
    cluster.move_slot(cluster.slot(key), first, second, "end")
    with pytest.raises(redis.exceptions.MovedError):
        cluster.ask(first, "GET", key)
    assert cluster.ask(second, "GET", key) is None
