"""The wire to Redis by way of sentinels, and in a cluster: it finds the server, and sends a command once."""

import socket
from collections.abc import Callable

import pytest
from redis_wires import COUNT, Wires, at_most, soon
from servers import Certificates, FaultProxy, RedisCluster, RedisServer, Sentinels
from servers.process import free_port
from servers.redis_groups import Sentinel
from servers.scripted import Scripted, says

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.stores.redis.resp import ReplyError

NewRedis = Callable[..., RedisServer]
NewProxy = Callable[..., FaultProxy]
NewScripted = Callable[..., Scripted]
SECRET = "s3cret"


def value(server: RedisServer, key: str, database: int = 0) -> bytes | None:
    """Return what is there."""
    with server.connect(db=database) as client:
        found: bytes | None = client.get(key)
        return found


def counted(server: RedisServer, key: str) -> int:
    """Return how often COUNT was executed."""
    return int(value(server, key) or 0)


# Sentinels


def names(host: str, port: int) -> Callable[[socket.socket, int], None]:
    """Return the behaviour of a sentinel that names this master."""
    return says(
        b"*2\r\n$%d\r\n%s\r\n$%d\r\n%d\r\n" % (len(host), host.encode(), len(str(port)), port)
    )


def through(*sentinels: Scripted, master: str = "jobs", query: str = "") -> str:
    """Return the URL of a store that these sentinels know."""
    hosts = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in sentinels)
    return f"redis+sentinel://{hosts}/{master}{query}"


def test_the_master_is_found_and_found_again(
    new_sentinels: Callable[..., Sentinels], wires: Wires
) -> None:
    """Each new wire asks; the first sentinels are dead or frozen, the later ones know."""
    group = new_sentinels()
    old = group.master
    wire = wires(group.url(2), within=5)
    assert wire.ask("SET", "k", "v", deadline=soon()) == b"OK"
    assert value(old, "k", 2) == b"v"
    group.wait_replicated()
    old.kill()
    with pytest.raises(StoreUnavailable):
        wire.ask("GET", "k", deadline=soon(1))
    new = group.wait_master_is_not(old)
    group.sentinels[0].kill()
    group.sentinels[1].sigstop()
    with at_most(1):
        assert wires.ask(group.url(2), "GET", "k", patience=0.5) == b"v"
    group.sentinels[1].sigcont()
    assert value(new, "k", 2) == b"v"
    unknown = group.url(2).replace("/jobs/", "/nobody/")
    told = wires.complaint(StoreRefusesError, unknown)
    assert "this sentinel does not know the master 'nobody'" in told
    assert "sentinel masters" in told
    group.sentinels[1].kill()
    group.sentinels[2].kill()
    told = wires.complaint(StoreUnavailable, group.url())
    for sentinel in group.sentinels:
        assert f"{sentinel.host}:{sentinel.port}: Connection refused" in told


def test_silent_sentinels_cost_the_patience_each(new_scripted: NewScripted, wires: Wires) -> None:
    """And all of them together no more than the deadline."""
    silent = [new_scripted(says(b"")) for _ in range(3)]
    with at_most(0.6):
        told = wires.complaint(StoreUnavailable, through(*silent), patience=0.2, people=False)
    assert told.count("no answer in time") == 3
    with at_most(0.3):
        wires.complaint(StoreUnavailable, through(*silent), patience=0.2, within=0.3, people=False)


def test_what_one_sentinel_does_not_know_another_may(
    redis_server: RedisServer, new_scripted: NewScripted, wires: Wires
) -> None:
    """Also where the first is none, or does not let us in."""
    knows = new_scripted(names(redis_server.host, redis_server.port))
    for answer in (
        b"*-1\r\n",
        b"-ERR unknown command 'SENTINEL'\r\n",
        b"-NOAUTH x\r\n",
        b"HTTP/1.1 400\r\n",
    ):
        first = new_scripted(says(answer))
        assert wires.ask(through(first, knows)) == b"PONG"
        with_dead = through(first).replace("//", f"//127.0.0.1:{free_port()},")
        assert "Connection refused" in wires.complaint(StoreRefusesError, with_dead, people=False)
    assert "this may not be a sentinel" in wires.complaint(
        StoreRefusesError, redis_server.url().replace("redis://", "redis+sentinel://")[:-1] + "m"
    )


def test_sentinels_have_passwords_of_their_own(
    new_redis: NewRedis, wires: Wires, certificates: Certificates
) -> None:
    """And talk TLS where the master does: the same certificates."""
    server = new_redis(tls=certificates, requirepass=SECRET)
    sentinel = Sentinel(tls=certificates, tls_replication="yes", requirepass="theirs")
    to = server.tls_endpoint
    sentinel.settings["sentinel"] = [
        f"monitor jobs {to.host} {to.port} 1",
        f"auth-pass jobs {SECRET}",
    ]
    try:
        sentinel.start()
        asked = sentinel.tls_endpoint
        url = (
            f"rediss+sentinel://:{SECRET}@{asked.host}:{asked.port}/jobs/1"
            f"?ssl_ca_certs={certificates['ca.crt']}"
        )
        assert wires.ask(url + "&sentinel_password=theirs", "SET", "k", "v") == b"OK"
        assert value(server, "k", 1) == b"v"
        for wrong in ("", "&sentinel_password=wrong"):
            told = wires.complaint(StoreRefusesError, url + wrong)
            assert "sentinel_username and sentinel_password" in told
            assert SECRET not in told
        assert "WRONGPASS" in wires.complaint(
            StoreRefusesError, url.replace(SECRET, "x") + "&sentinel_password=theirs"
        )
    finally:
        sentinel.remove()


# A cluster


@pytest.fixture
def cluster(new_redis_cluster: Callable[..., RedisCluster]) -> RedisCluster:
    """Start a cluster of three."""
    return new_redis_cluster()


def test_a_key_on_each_node(cluster: RedisCluster, wires: Wires) -> None:
    """One wire goes where it is sent, and stays there; each command is executed once."""
    wire = wires(cluster.url())
    for server in (*cluster.servers, cluster.servers[0]):
        key = cluster.key_on(server)
        before = counted(server, key)
        assert wire.ask("EVAL", COUNT, 1, key, deadline=soon()) == before + 1
        assert counted(server, key) == before + 1
        stayed = wire.fileno()
        assert wire.ask("GET", key, deadline=soon()) == str(before + 1).encode()
        assert wire.fileno() == stayed
        for other in cluster.servers:
            with other.connect() as client:
                named = [each for each in client.client_list() if each["name"]]
                assert len(named) == (1 if other is server else 0)
    with pytest.raises(ReplyError) as caught:
        wire.ask("MGET", *map(cluster.key_on, cluster.servers), deadline=soon())
    assert caught.value.code == "CROSSSLOT"


def test_seeds_that_are_away(
    cluster: RedisCluster, wires: Wires, new_scripted: NewScripted
) -> None:
    """Dead, frozen, loading: the next one is asked; all of them: each is named."""
    first, second, third = cluster.servers
    loading = new_scripted(says(b"-LOADING x\r\n"))
    key = cluster.key_on(third)
    assert wires.ask(cluster.url(nodes=[loading, third]), "EVAL", COUNT, 1, key) == 1
    first.kill()
    second.sigstop()
    with at_most(0.5):
        url = cluster.url(nodes=[first, second, third])
        wires(url, patience=0.5)
    told = wires.complaint(
        StoreUnavailable, cluster.url(nodes=[first, second]), patience=0.3, people=False
    )
    assert (
        f":{first.port}: Connection refused (check that the server runs, and bind and port in redis.conf); "
        in told
    )
    assert f":{second.port}: no answer in time" in told
    second.sigcont()


def test_redirections_end(new_scripted: NewScripted, wires: Wires) -> None:
    """After five; without a host it is the same host; without a name it is told."""

    def back(connection: socket.socket, number: int) -> None:
        says(b"-MOVED 1 :%d\r\n" % loop.port)(connection, number)

    loop = new_scripted(back)
    url = loop.url.replace("redis:", "redis+cluster:")
    told = wires.complaint(StoreUnavailable, url, name="", people=False)
    assert "redirect to each other" in told
    assert loop.accepted == 6
    nameless = new_scripted(says(b"-MOVED 1 ?:6379\r\n"))
    told = wires.complaint(
        StoreRefusesError, nameless.url.replace("redis:", "redis+cluster:"), name="", people=False
    )
    assert "cluster-announce-hostname" in told


def test_a_redirected_answer_that_is_lost(
    cluster: RedisCluster, new_proxy: NewProxy, new_scripted: NewScripted, wires: Wires
) -> None:
    """The command was executed once."""
    first = cluster.servers[0]
    key = cluster.key_on(first)
    proxy = new_proxy(first)
    points = new_scripted(says(b"-MOVED 1 127.0.0.1:%d\r\n" % proxy.port))
    wire = wires(points.url.replace("redis:", "redis+cluster:"), name="")
    proxy.drop_next_reply(containing=b"INCR")
    with pytest.raises(StoreUnavailable):
        wire.ask("EVAL", COUNT, 1, key, deadline=soon(2))
    assert wire.fileno() == -1
    assert counted(first, key) == 1
