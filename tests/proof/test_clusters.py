"""Each fault of each store begins, bites and is undone, and afterwards hosts fire as if nothing had been."""

import contextlib
import itertools
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import clusters
import psycopg
import pytest
import redis
from clusters.redis_servers import connections
from servers import Network, eventually
from servers.oncecron import Firing, Oncecron
from story_stores import rotated, seed, wanted

TTL, LASTING = 6, 15
"""Seconds. The second one for a job that goes on while a busy machine starts a server, for which Redis waits later."""
_ticks = itertools.count(1)


class Standing(NamedTuple):
    """A cluster, and two hosts that fire: one directly, one by way of proxies."""

    cluster: Any
    hosts: list[Oncecron]

    def fire(self, *command: object, host: int = 0, budget: int = 30, ttl: int = TTL) -> Firing:
        limits = ("--ttl", ttl, "--connect-timeout", f"{budget}s")
        return self.hosts[host].fire("k", *limits, "--tick", f"t{next(_ticks)}", "--", *command)


@contextlib.contextmanager
def standing(kind: str, network: Network | None, state: Path) -> Iterator[Standing]:
    (state / "run").mkdir(mode=0o755)
    cluster = clusters.start(kind, network, state / "run", TTL)
    try:
        hosts = []
        for name, proxied in (("alpha", False), ("beta", True)):
            prefix = network.host(name).prefix if network else ()
            url = cluster.url(name, proxied=proxied)
            hosts.append(Oncecron(url, state, name, prefix=prefix))
        yield Standing(cluster, hosts)
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """Start the cluster that a test names, on a network of its own."""
    network = Network()
    try:
        with standing(request.param, network, tmp_path_factory.mktemp("state")) as store:
            yield store
    finally:
        network.remove()


# How a fault bites


def sessions(store: Standing) -> set[str]:
    """Name the sessions of hosts at the servers."""
    cluster = store.cluster
    if cluster.kind == "sentinel":
        return {line.rpartition(",")[0] for line in connections(cluster.group.master)}
    if cluster.kind == "redis":
        return {line.rpartition(",")[0] for line in connections(cluster.server)}
    lines = cluster.database.sessions()
    return {line.rpartition(":")[0] for line in lines if "of runner" in line}


@contextlib.contextmanager
def breaks(store: Standing) -> Iterator[None]:
    """End the session of a running job, which goes on."""
    firing = store.fire("sleep", 60, ttl=LASTING)
    job = firing.job()
    before = eventually(lambda: sessions(store) or None)
    yield
    assert not before & eventually(lambda: sessions(store) or None, retry_on=Exception)
    assert job.alive()
    stop(firing)


def stop(firing: Firing) -> None:
    """End a running job, which nothing has disturbed."""
    os.kill(firing.wrapper.pid, signal.SIGTERM)
    ended = firing.wait()
    assert (ended.status, ended.complaint) == (128 + signal.SIGTERM, "")


@contextlib.contextmanager
def refuses(store: Standing) -> Iterator[None]:
    """Give a firing no lease within its budget; it says why in a line."""
    yield
    ended = store.fire("true", budget=1, host=1).wait()
    assert ended.status in (69, 78)
    assert ended.err.startswith("oncecron: key k: ")


@contextlib.contextmanager
def refuses_to_grow(store: Standing) -> Iterator[None]:
    """Leave no room for a table, if the server is there at all."""
    yield
    with pytest.raises(psycopg.Error):
        store.cluster.database.ask("create table large as select generate_series(1, 1000000)")


@contextlib.contextmanager
def loses_one(store: Standing) -> Iterator[None]:
    """End one process; hosts fire all the same."""
    cluster = store.cluster
    servers = cluster._all() if cluster.kind == "sentinel" else cluster.servers
    processes = [server.process for server in servers]
    yield
    assert [process.poll() for process in processes].count(None) == len(processes) - 1
    assert store.fire("true").wait().status == 0


MOST_FAULTS = int(os.environ.get("ONCECRON_TEST_FAULTS", "2"))
"""Of each store; tests/chaos goes through all of them too."""
Bite = Callable[[Standing], contextlib.AbstractContextManager[None]]
REDIS: dict[str, Bite] = {
    "restart the server": breaks, "kill the server": breaks, "server away": refuses,
    "freeze the server": refuses, "revoke rights": refuses, "end the sessions": breaks, "disk full": refuses,
    "connection storm": refuses,
}  # fmt: skip
SERVER = REDIS | {"disk full": refuses_to_grow}
FAULTS: dict[str, dict[str, Bite]] = {
    "postgres": SERVER
    | {"promote the standby": breaks, "standby away": loses_one, "freeze the standby": refuses},
    "pooled": SERVER
    | {"restart the pooler": breaks}
    | dict.fromkeys(("pooler away", "freeze the pooler", "pause the pooler"), refuses),
    "redis": REDIS | {"memory full": refuses},
    "sentinel": {
        **dict.fromkeys(("switchover", "restart all", "end the sessions"), breaks),
        **dict.fromkeys(("master away", "freeze the master", "revoke rights"), refuses),
        "replica away": refuses,
        "sentinel away": loses_one,
    },
    "sqlite": {"hold the write lock": refuses, "disk full": refuses},
}
KINDS = [*FAULTS] if wanted() == "all" else rotated(FAULTS, 2 * seed(), 2)


@pytest.mark.slow
@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_each_fault_bites_and_passes(store: Standing) -> None:
    """It is felt, it is undone, twice if need be, and then hosts fire."""
    assert store.fire("true").wait().status == 0  # SQLite's file is made by the first one
    bites = FAULTS[store.cluster.kind]
    assert {fault.kind for fault in store.cluster.faults} == set(bites), "a fault has no case"
    for fault in rotated(store.cluster.faults, MOST_FAULTS * seed(), MOST_FAULTS):
        try:
            suffer(store, fault, bites[fault.kind])
        except BaseException as error:
            error.add_note(f"the fault was: {fault.kind}")
            raise


def suffer(store: Standing, fault: clusters.StoreFault, bite: Bite) -> None:
    assert fault.seconds[0] <= fault.seconds[1]
    try:
        with bite(store):
            detail = fault.begin(Random())
            assert not detail.startswith("not done")
    finally:
        fault.undo()
    fault.undo()
    store.cluster.well()
    for host in (0, 1):
        ended = store.fire("true", host=host).wait()
        assert (ended.status, ended.complaint) == (0, ""), detail
    eventually(lambda: store.cluster.leftovers() == [])


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_the_register_takes_the_present_token_only(store: Standing) -> None:
    """A job writes under its token, a later one under a higher, and with the first one's nobody writes any more."""
    write = shlex.join(store.cluster.fenced_write())
    job = f'{write} "$ONCECRON_KEY" "$ONCECRON_FENCING_TOKEN" && echo "$ONCECRON_FENCING_TOKEN"'
    tokens = []
    for host in (0, 1):
        ended = store.fire("sh", "-c", job, host=host).wait()
        assert (ended.status, ended.complaint) == (0, "")
        tokens.append(int(ended.out))
    assert store.fire("sh", "-c", f"{write} k {tokens[0]} 2>&1").wait().status != 0
    assert store.cluster.register()[-2:] == [("k", token) for token in tokens]


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_what_is_left_is_named(store: Standing) -> None:
    """The lease of a running job is, and nothing when it has ended."""
    firing = store.fire("sleep", 60, ttl=LASTING)
    firing.job()
    assert any("lease" in line for line in store.cluster.leftovers())
    stop(firing)
    eventually(lambda: store.cluster.leftovers() == [])


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_a_beat_comes_from_a_host_like_a_heartbeat(store: Standing) -> None:
    """One that never got through would excuse a whole run, and one by a shorter way no slowness of the longer one."""
    own = os.stat("/proc/thread-self/ns/net").st_ino
    store.cluster.beat()
    if store.cluster.kind != "sqlite":  # whose file is everywhere
        host = store.cluster.lookout.host
        host.cut(silent=False)
        with pytest.raises((psycopg.OperationalError, redis.ConnectionError)):
            store.cluster.beat()
        host.heal()
        store.cluster.beat()
    assert os.stat("/proc/thread-self/ns/net").st_ino == own


def test_who_gives_up_waiting_at_the_pooler_leaves_its_place(tmp_path: Path) -> None:
    """Soon, by `query_wait_timeout`, as the README advises: PgBouncer reads nothing from who waits for a server."""
    with standing("pooled", None, tmp_path) as store:
        database, pooler, server = (
            store.cluster.database,
            store.cluster.pooler,
            store.cluster.server,
        )
        database.present.connect("jobber", via=pooler).close()

        def waiting() -> int:
            return [client["user"] for client in pooler.console("show clients")].count("jobber")

        server.sigstop()
        try:
            for _ in range(60):
                client = database.present.connect("jobber", via=pooler)
                client.pgconn.send_query(b"select 1")
                client.close()
            assert waiting()
            eventually(lambda: waiting() == 0, 60)
        finally:
            server.sigcont()
