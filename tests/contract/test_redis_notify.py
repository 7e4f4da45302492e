"""A connection that listens: stirred by what happens to a part, and asked for all else as ever."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

import pytest
from hosts import KEY, Host, execution_record, minute

from oncecron.core.model import Lease, Refusal, Request
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.explain import acl_rule
from oncecron.stores.redis.reader import RedisReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Certificates, FaultProxy, RedisCluster, RedisServer, Sentinels

    from oncecron.core.model import Firing

    Connect = Callable[..., Host]

CHANNEL = f"oncecron:{{oncecron}}:events:{KEY}#0"
STOP = Request("stop", "ann@a.example", 15, None)
LATEST = 30.0
"""Seconds after which a stir that has not come will not come."""


@pytest.fixture(params=["tcp", "tls", "socket", "sentinel", "cluster", "cluster with tls"])
def url(request: pytest.FixtureRequest) -> str:
    """Start what is behind an address of each kind, and give the address."""
    give: Callable[[str], Any] = request.getfixturevalue
    if request.param == "cluster":
        cluster: RedisCluster = give("new_redis_cluster")(aof=True)
        return cluster.url()
    if request.param == "cluster with tls":
        cluster = give("new_redis_cluster")(aof=True, tls=give("certificates"))
        return cluster.tls_url()
    if request.param == "sentinel":
        sentinels: Sentinels = give("new_sentinels")(aof=True)
        return sentinels.url()
    certificates: Certificates | None = give("certificates") if request.param == "tls" else None
    server: RedisServer = give("new_redis")(aof=True, tls=certificates)
    return {"tcp": server.url, "tls": server.tls_url, "socket": server.unix_url}[request.param]()


def listens(host: Host, firing: Firing) -> bool:
    """Have a host listen to the part that it fires for."""
    return host.store.listen(firing, deadline=host.deadline())


def stirred(host: Host, within: float = LATEST) -> bool:
    """Wait until something stirs its connection; return whether it did."""
    fd = host.store.watch_fd()
    assert fd is not None
    return bool(select.select([fd], [], [], within)[0])


def quiet(host: Host) -> bool:
    """Return whether nothing stirs its connection."""
    return not stirred(host, 0)


def test_a_waiting_host_is_stirred_by_what_happens_and_asks_by_the_same_connection(
    url: str, connect: Connect
) -> None:
    """A request to the holder, its end, the next grant: each stirs, and the next question finds out what it was."""
    people = RedisReader(parse(url, {}), namespace="oncecron")
    a, b, c = (connect(url, name) for name in ("a", "bb", "ccc"))
    lease = a.win(minute(1))
    firing = b.firing(minute(1), failover=True)
    answer = b.ask(firing)
    assert isinstance(answer, Refusal)
    assert listens(b, firing)
    fd = b.store.watch_fd()
    assert quiet(b)
    assert people.request(KEY, 0, lease.execution_id, STOP)
    people.close()
    assert stirred(b)
    again = b.ask(firing, awaited=lease.execution_id)
    assert isinstance(again, Refusal)
    assert again.reason == "held"
    assert quiet(b)
    assert a.renew(lease)
    assert quiet(b)
    assert a.finish(lease, "stopped")
    assert stirred(b)
    assert b.ask(firing, awaited=lease.execution_id) == Refusal(
        *("done", a.holder, lease.started_at), detail="stopped"
    )
    assert quiet(b)
    c.win(minute(2))
    assert stirred(b)
    assert b.store.watch_fd() == fd


def test_a_holder_is_stirred_by_a_request_and_told_by_its_renewal(
    url: str, connect: Connect
) -> None:
    """Nobody else's question stirs it; then it keeps, tries again and ends as ever."""
    people = RedisReader(parse(url, {}), namespace="oncecron")
    a, b = connect(url), connect(url, "bb")
    firing = a.firing(minute(1), retries=1)
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    assert listens(a, firing)
    assert b.lose(minute(1)).reason == "held"
    assert quiet(a)
    assert people.request(KEY, 0, lease.execution_id, STOP)
    people.close()
    assert stirred(a)
    renewed = a.renew(lease)
    assert renewed is not None
    assert renewed.request == STOP
    assert quiet(a)
    second = a.retried(lease)
    assert a.renew(second)
    assert quiet(a)
    assert a.finish(second)


def test_a_part_is_told_of_alone(redis_server: RedisServer, connect: Connect) -> None:
    """Whoever waits for another part, or key, sleeps on; whoever listens to two is told of both."""
    a, b = connect(redis_server.url()), connect(redis_server.url(), "bb")
    first, second = (b.firing(minute(1), shard=shard, shards=3) for shard in (0, 1))
    assert listens(b, first)
    a.run(minute(1), shard=1, shards=3)
    a.run(minute(1), key="weekly")
    assert quiet(b)
    assert listens(b, second)
    a.win(minute(2), shard=1, shards=3)
    assert stirred(b)
    assert isinstance(b.ask(first), Lease)  # its own grant may stir it too
    assert b.store.watch_fd() is not None


def test_a_delivered_end_stirs(redis_server: RedisServer, connect: Connect) -> None:
    """As the end that could not be told at once would have."""
    a, b = connect(redis_server.url()), connect(redis_server.url(), "bb")
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    assert listens(b, firing)
    a.deliver(execution_record(firing, lease))
    assert stirred(b)


def test_listening_is_one_round_trip_and_again_none(
    redis_server: RedisServer, new_proxy: Callable[..., FaultProxy], connect: Connect
) -> None:
    """However often it is said, on the connection that is there."""
    proxy = new_proxy(redis_server)
    a = connect(redis_server.url(via=proxy))
    firing = a.firing(minute(1))
    a.ask(firing)
    before = proxy.round_trips()
    for _ in range(3):
        assert listens(a, firing)
    assert proxy.round_trips() == before + 1
    assert len(proxy.connections()) == 1


def test_what_was_pushed_before_is_skipped_where_an_answer_is_awaited(
    redis_server: RedisServer, connect: Connect
) -> None:
    """However much it is."""
    a = connect(redis_server.url())
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    assert listens(a, firing)
    with redis_server.connect() as client:
        for _ in range(1000):
            client.publish(CHANNEL, "ended")
    assert stirred(a)
    assert a.renew(lease)
    assert a.finish(lease)


def test_a_new_connection_listens_as_the_last_one_did(
    redis_server: RedisServer, connect: Connect
) -> None:
    """The server hung up, which stirs too; the next question connects afresh."""
    a, b = connect(redis_server.url()), connect(redis_server.url(), "bb")
    lease = a.win(minute(1))
    firing = b.firing(minute(1), failover=True)
    assert listens(b, firing)
    with redis_server.connect() as client:
        client.client_kill_filter(_type="pubsub")
    assert stirred(b)
    b.store.close()
    assert isinstance(b.ask(firing), Refusal)
    assert quiet(b)
    a.finish(lease)
    assert stirred(b)


def test_who_is_sent_on_by_a_cluster_listens_there(
    new_redis_cluster: Callable[..., RedisCluster], connect: Connect
) -> None:
    """The first named node may not have the namespace; what it was asked to tell, the right one tells."""
    cluster = new_redis_cluster(aof=True, cluster_require_full_coverage="no")
    home = cluster.slot("oncecron") * len(cluster.servers) // 16384
    wrong = next(server for place, server in enumerate(cluster.servers) if place != home)
    b = connect(cluster.url(nodes=[wrong, cluster.servers[home]]), "bb")
    firing = b.firing(minute(1), failover=True)
    assert listens(b, firing)
    a = connect(cluster.url())
    lease = a.win(minute(1))
    assert stirred(b)
    assert isinstance(b.ask(firing), Refusal)
    wrong.kill()
    assert quiet(b)
    a.finish(lease)
    assert stirred(b)


# Who cannot listen, or tell


def limited(server: RedisServer, without: str) -> str:
    """Return the address of a user with all rights of the printed rule but these."""
    rule = acl_rule("oncecron", "oncecron", login="on >secret")
    left = [word for word in rule[3:] if word not in without.split()]
    assert len(left) == len(rule[3:]) - len(without.split())
    server.connect().execute_command(*rule[:3], *left)
    return server.url(login="oncecron:secret")


@pytest.mark.parametrize("without", ["+subscribe", "&oncecron:*"])
def test_a_user_who_may_not_listen_is_told_nothing(
    new_redis: Callable[..., RedisServer],
    new_proxy: Callable[..., FaultProxy],
    connect: Connect,
    without: str,
) -> None:
    """It is False and no more; steps go on by the same connection, and it is not asked for twice."""
    server = new_redis(aof=True)
    limited(server, without)
    proxy = new_proxy(server)
    a = connect(server.url(via=proxy, login="oncecron:secret"))
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    assert not listens(a, firing)
    before = proxy.round_trips()
    assert not listens(a, firing)
    assert proxy.round_trips() == before
    assert a.renew(lease)
    assert a.finish(lease)
    assert len(proxy.connections()) == 1
    assert isinstance(a.fire(minute(2)), Lease)


@pytest.mark.parametrize("without", ["+publish", "&oncecron:*"])
def test_a_user_who_may_not_tell_does_all_the_rest(
    new_redis: Callable[..., RedisServer], connect: Connect, without: str
) -> None:
    """Nobody is stirred; nothing fails."""
    server = new_redis(aof=True)
    a, b = connect(limited(server, without)), connect(server.url(), "bb")
    assert listens(b, b.firing(minute(1)))
    lease = a.win(minute(1), retries=1)
    second = a.retried(lease)
    assert a.finish(second)
    assert quiet(b)
    people = RedisReader(parse(server.url(login="oncecron:secret"), {}), namespace="oncecron")
    third = a.win(minute(2))
    assert people.request(KEY, 0, third.execution_id, STOP)
    people.close()
