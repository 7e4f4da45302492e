"""What people ask of Redis: many commands at once, each executed once, by every address, or one line that says why."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis_wires import COUNT, at_most, line_of
from servers import Certificates, FaultProxy, RedisCluster, RedisServer, Sentinels, eventually
from servers.oncecron import Ended, Oncecron
from servers.redis import ADMIN, ADMIN_PASSWORD
from servers.scripted import Scripted, says

from oncecron.core.errors import OncecronError, StoreRefusesError, StoreUnavailable
from oncecron.stores.redis import people_client, scripts
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.people_client import PeopleClient
from oncecron.stores.redis.scripts import Names

Connect = Callable[..., PeopleClient]
NewRedis = Callable[..., RedisServer]
NewProxy = Callable[..., FaultProxy]
NewScripted = Callable[..., Scripted]
SECRET = "s3cret"
PREFIX = "oncecron:{oncecron}:"


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Give a function that makes a pipeline to a URL, for a namespace."""
    made: list[PeopleClient] = []

    def make(url: str, namespace: str = "oncecron") -> PeopleClient:
        made.append(PeopleClient(parse(url), Names(namespace)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Give a function that lets no server take longer than so many seconds from now on."""
    return lambda seconds: monkeypatch.setattr(people_client, "READER_TIMEOUT", seconds)


def complaint(error: type[OncecronError], asked: PeopleClient, *commands: Any) -> str:
    """Return the one line that is told when asking fails."""
    with pytest.raises(error) as caught:
        asked.ask(commands or [("PING",)])
    assert type(caught.value) is error
    return line_of(caught.value)


def calls(server: RedisServer, command: str) -> int:
    """Return how often a command was executed since the statistics were reset."""
    with server.connect() as client:
        stats = client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def counted(server: RedisServer, key: str) -> int:
    with server.connect() as client:
        return int(client.get(key) or 0)


# Many at once


def test_many_commands_take_one_round_trip(
    redis_server: RedisServer, new_proxy: NewProxy, connect: Connect
) -> None:
    """The answers come in their order, of every kind."""
    proxy = new_proxy(redis_server)
    asked = connect(redis_server.url(3, via=proxy))
    answers = asked.ask(
        [
            ("SET", "k", b"\x00\r\n\xff"),
            ("GET", "k"),
            ("GET", "none"),
            ("HSET", "h", "f", 7),
            ("HGETALL", "h"),
        ]
    )
    assert answers == [True, b"\x00\r\n\xff", None, 1, {b"f": b"7"}]
    before = proxy.round_trips()
    assert asked.ask([]) == []
    assert asked.ask([("GET", "k")] * 100) == [b"\x00\r\n\xff"] * 100
    assert proxy.round_trips() == before + 1
    with redis_server.connect(db=3) as client:
        assert client.dbsize() == 2


# Once, and by a deadline


def test_a_lost_answer_is_told_and_nothing_is_sent_again(
    redis_server: RedisServer, new_proxy: NewProxy, connect: Connect
) -> None:
    """Each command was executed once; the next question goes over a new connection."""
    proxy = new_proxy(redis_server)
    asked = connect(redis_server.url(via=proxy))
    assert asked.ask([("PING",)]) == [True]
    proxy.drop_next_reply(containing=b"INCR")
    with at_most(1):
        assert "closed the connection" in complaint(
            StoreUnavailable, asked, ("INCR", "a"), ("INCR", "b")
        )
    proxy.wait_dropped()
    assert (counted(redis_server, "a"), counted(redis_server, "b")) == (1, 1)
    assert asked.ask([("GET", "a")]) == [b"1"]


def test_a_connection_that_was_closed_meanwhile_is_made_anew(
    redis_server: RedisServer, connect: Connect
) -> None:
    """As by the server's `timeout`, while `history --follow` slept: nothing was asked, so nothing is told."""
    asked = connect(redis_server.url())
    asked.ask([("PING",)])
    for _ in range(3):
        with redis_server.connect() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert asked.ask([("PING",)]) == [True]


def test_a_server_that_never_answers(
    new_scripted: NewScripted,
    redis_server: RedisServer,
    new_proxy: NewProxy,
    connect: Connect,
    patience: Callable[[float], None],
) -> None:
    """It accepts, and that is all; or it falls silent later."""
    patience(0.4)
    with at_most(0.4):
        told = complaint(StoreUnavailable, connect(new_scripted(says(b"")).url))
    assert "no answer in time" in told
    patience(2)
    proxy = new_proxy(redis_server)
    asked = connect(redis_server.url(via=proxy))
    asked.ask([("PING",)])
    proxy.deaf()
    with at_most(2):
        assert "no answer in time" in complaint(StoreUnavailable, asked)


# Steps


def test_a_step_is_sent_by_its_hash_and_by_its_text_where_the_server_has_forgotten_it(
    redis_server: RedisServer, connect: Connect
) -> None:
    """The text travels once."""
    asked = connect(redis_server.url())
    with redis_server.connect() as client:
        client.script_flush()
        client.config_resetstat()
    for number in range(3):
        now, _before = asked.step("pause", [], {"key": f"k{number}", "author": "me"})
        assert b'"author":"me"' in now
    assert (calls(redis_server, "eval"), calls(redis_server, "evalsha")) == (1, 3)


def test_a_step_that_no_replica_has_is_told_and_done_once(
    redis_server: RedisServer, new_proxy: NewProxy, connect: Connect
) -> None:
    """WAIT goes over the connection that wrote: on another it would find nothing to wait for, and agree."""
    proxy = new_proxy(redis_server)
    asked = connect(redis_server.url(via=proxy) + "?wait=1")
    with redis_server.connect() as client:
        client.script_load(scripts.text("pause"))
    proxy.drop_next_reply(containing=b"WAIT")
    with pytest.raises(StoreUnavailable, match="closed the connection"):
        asked.confirmed_step("pause", [], {"key": "k", "author": "me"})
    assert len(proxy.connections()) == 1
    with redis_server.connect() as client:
        assert client.hlen(f"{PREFIX}pauses") == 1


# Sentinels, clusters, sockets, TLS


def test_the_master_that_the_sentinels_name(
    new_sentinels: Callable[..., Sentinels], connect: Connect
) -> None:
    """Also after a failover; one sentinel is frozen, one is dead."""
    group = new_sentinels()
    old = group.master
    asked = connect(group.url(2))
    assert asked.ask([("SET", "k", "v")]) == [True]
    with old.connect(db=2) as client:
        assert client.get("k") == b"v"
    group.wait_replicated()
    old.kill()
    complaint(StoreUnavailable, asked)
    new = group.wait_master_is_not(old)
    assert asked.ask([("GET", "k"), ("SET", "k", "w")]) == [b"v", True]
    with new.connect(db=2) as client:
        assert client.get("k") == b"w"


def test_who_may_not_log_in_is_told_the_cure(new_redis: NewRedis, connect: Connect) -> None:
    """The password, the user, the database; nothing is executed as somebody else, or in another place."""
    server = new_redis(
        databases=4, user=[f"cron on >{SECRET} ~* +@all -select", "default on >d ~* +@all"]
    )
    ask = ("INCR", "n")
    for login, database, told in (
        ("", 0, "give username and password in the store's URL"),
        (":wrong", 0, "check username and password in the store's URL"),
        ("nobody:wrong", 0, "check username and password in the store's URL"),
        (f"cron:{SECRET}", 1, "ACL SETUSER cron +select"),
        (":d", 4, "choose another database"),
    ):
        line = complaint(StoreRefusesError, connect(server.url(database, login=login)), ask)
        assert told in line
        assert "wrong" not in line
    with server.connect() as client:
        assert client.dbsize() == 0


def test_a_server_that_is_not_the_right_one(
    new_redis: NewRedis,
    certificates: Certificates,
    new_scripted: NewScripted,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its certificate is checked against `ssl_ca_certs` alone, whatever the system trusts; TLS or none is guessed."""
    server = new_redis(tls=certificates)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates["ca.crt"]))
    url = server.tls_url(login=f"u:{SECRET}", ssl_ca_certs=certificates["other.crt"])
    assert "check ssl_ca_certs" in complaint(StoreRefusesError, connect(url))
    url = server.tls_url().replace("127.0.0.1", "127.1")
    assert "use the host name that the certificate has" in complaint(
        StoreRefusesError, connect(url)
    )
    assert connect(url + "&ssl_check_hostname=false").ask([("PING",)]) == [True]
    url = server.tls_url(ssl_ca_certs="/none.crt")
    assert "ssl_ca_certs /none.crt cannot be used" in complaint(StoreRefusesError, connect(url))
    plain = connect(server.url(via=server.tls_endpoint))
    assert "if it uses TLS, write rediss://" in complaint(StoreUnavailable, plain)
    stranger = connect(new_scripted(says(b"HTTP/1.1 400 Bad Request\r\n")).url)
    assert "check host and port" in complaint(StoreRefusesError, stranger)


def test_a_frozen_server_leaves_time_for_the_next(
    new_sentinels: Callable[..., Sentinels],
    new_redis_cluster: Callable[..., RedisCluster],
    new_scripted: NewScripted,
    connect: Connect,
    patience: Callable[[float], None],
) -> None:
    """Of sentinels, and of the nodes of a cluster."""
    patience(6)
    silent = new_scripted(says(b""))
    group, cluster = new_sentinels(), new_redis_cluster()
    for url in (
        group.url(sentinels=[silent, *group.sentinels]),
        cluster.url(nodes=[silent, *cluster.servers]),
    ):
        assert connect(url).ask([("PING",)]) == [True]


@pytest.fixture
def cluster(new_redis_cluster: Callable[..., RedisCluster]) -> RedisCluster:
    return new_redis_cluster()


def namespace_on(cluster: RedisCluster, server: RedisServer) -> str:
    """Return a namespace whose names are this node's."""
    return cluster.key_on(server, "ns")


def test_a_namespace_on_each_node(cluster: RedisCluster, connect: Connect) -> None:
    """Everything is asked of the node that has it: also TIME, which every node would answer by its own clock."""
    for server in cluster.servers:
        namespace = namespace_on(cluster, server)
        for each in cluster.servers:
            cluster.ask(each, "CONFIG RESETSTAT")
        asked = connect(cluster.url(), namespace)
        name = asked.names.of_namespace("parts")
        assert asked.ask([("TIME",), ("ZADD", name, 1, "k#0"), ("ZCARD", name)])[1:] == [1, 1]
        assert [calls(each, "time") for each in cluster.servers] == [
            int(each is server) for each in cluster.servers
        ]


def test_a_namespace_that_moves_between_two_questions(
    cluster: RedisCluster, connect: Connect
) -> None:
    """ASK for what has gone ahead, then MOVED: each command of a batch is executed once and answered in its place."""
    first, second, _ = cluster.servers
    namespace = namespace_on(cluster, first)
    asked = connect(cluster.url(), namespace)
    stays, goes = (f"{{{namespace}}}:{name}" for name in ("stays", "goes"))

    def count(*keys: str) -> list[Any]:
        return asked.ask([("EVAL", COUNT, 1, key) for key in keys])

    assert count(stays) == [1]
    slot = cluster.slot(stays)
    cluster.move_slot(slot, first, second, "begin")
    assert count(stays, goes, stays, goes) == [2, 1, 3, 2]
    login = ("AUTH2", ADMIN, ADMIN_PASSWORD)
    cluster.ask(first, "MIGRATE", second.host, second.port, stays, 0, 5000, *login)
    cluster.move_slot(slot, first, second, "end")
    assert count(goes, stays, goes) == [3, 4, 4]
    assert (counted(second, stays), counted(second, goes)) == (4, 4)


def test_a_cluster_where_the_user_may_not_look(
    new_redis_cluster: Callable[..., RedisCluster], connect: Connect
) -> None:
    """It is told the rule, and no connection stays open."""
    cluster = new_redis_cluster(user=[f"cron on >{SECRET} ~other:* +@all"])
    asked = connect(cluster.url().replace("//", f"//cron:{SECRET}@"))
    question = ("HGETALL", asked.names.of_namespace("namespace"))
    assert "ACL SETUSER" in complaint(StoreRefusesError, asked, question)
    gc.collect()  # what is left open warns, which fails this test
    for server in cluster.servers:
        with server.connect() as client:
            eventually(lambda c=client: all(each["user"] != "cron" for each in c.client_list()))


def test_sockets_users_and_tls(
    new_redis: NewRedis, certificates: Certificates, connect: Connect
) -> None:
    """One server by three addresses."""
    server = new_redis(tls=certificates, user=[f"cron on >{SECRET} ~oncecron:* +@all"])
    login = f"cron:{SECRET}"
    for url in (
        server.url(2, login=login),
        server.tls_url(2, login=login),
        f"{server.unix_url(2)}&username=cron&password={SECRET}",
    ):
        asked = connect(url)
        assert asked.ask([("INCR", "oncecron:n"), ("ACL", "WHOAMI")])[1] == b"cron"
        assert asked.ask([("CLIENT", "ID")]) == asked.ask([("CLIENT", "ID")])
    with server.connect(db=2) as client:
        assert client.get("oncecron:n") == b"3"


# What is said when it cannot be


@pytest.fixture
def ask(public_path: Path) -> Callable[..., Ended]:
    """Give a function that runs a command of people against a URL."""
    return lambda url, *words: Oncecron(url, public_path)(*words or ("history",))


def said(ended: Ended, status: int) -> str:
    assert (ended.status, ended.out) == (status, b""), ended
    assert ended.err.startswith("oncecron: Redis ")
    assert ended.err.count("\n") == 1, ended.err
    assert SECRET not in ended.err
    return ended.err


def test_a_server_that_is_away(new_redis: NewRedis, ask: Callable[..., Ended]) -> None:
    """Nobody listens: 69."""
    server = new_redis()
    url = server.url(login=f"u:{SECRET}")
    server.stop()
    for command in ("history", "locks", "jobs", "audit", "prune", "init"):
        assert "Connection refused" in said(ask(url, command), 69)


def test_bytes_that_are_no_text(redis_server: RedisServer, public_path: Path) -> None:
    """Whoever put them there: they are shown as what they are not, and nothing else is kept from being shown."""
    host = Oncecron(redis_server.url(), public_path)
    assert host.run("k", "--tick", "t1", "--", "true").status == 0
    assert host("pause", "k").status == 0
    with redis_server.connect() as client:
        client.zadd(f"{PREFIX}parts", {b"\xff\xfe#0": 0})
        [paused] = client.hvals(f"{PREFIX}pauses")
        client.hset(f"{PREFIX}pauses", b"\xff", paused.replace(b"root", b"r\xfft"))
        client.hset(f"{PREFIX}drains", b"\xff", paused)
        [(number, row)] = client.hgetall(f"{PREFIX}executions").items()
        client.hset(f"{PREFIX}executions", number, row.replace(b'"true"', b'"tr\xffue"'))
    for command, expected in (
        ("history", "tr\ufffdue"),
        ("jobs", "k"),
        ("locks", ""),
        ("audit", ""),
        ("prune", ""),
    ):
        ended = host(command)
        assert ended.err.replace("\\", "").count("xffxfe#0") == 1, (command, ended)
        assert expected in ended.out.decode()
    assert host("locks", "--pauses").out.decode().count("\ufffd") >= 2
