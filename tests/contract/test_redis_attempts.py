"""What a Redis server that has lost a keep or a retry, or has no memory left, does with attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from hosts import Host, minute
from servers import RedisServer, eventually

from oncecron.core.errors import StoreUnavailable
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Lease, Output
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.reader import RedisReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.log_rows import Execution

    Connect = Callable[..., Host]

OUTPUTS = "oncecron:{oncecron}:outputs"
HELLO = Output("hello\n", 0)


@pytest.fixture
def server(new_redis: Callable[..., RedisServer]) -> RedisServer:
    return new_redis(aof=True)


@pytest.fixture
def connect(server: RedisServer, connect: Connect) -> Connect:
    """Give a function that makes a host of this server by its name."""
    return lambda name="a", **options: connect(server.url(**options), name)


def log(server: RedisServer) -> list[Execution]:
    people = RedisReader(parse(server.url(), {}), namespace="oncecron")
    found = list(people.history(HistoryQuery()))[::-1]
    people.close()
    return found


def outcomes(server: RedisServer) -> list[tuple[int, str]]:
    return [(execution.attempt, execution.outcome) for execution in log(server)]


def snapshot(server: RedisServer) -> dict[bytes, bytes]:
    with server.connect() as client:
        return {name: client.dump(name) for name in client.keys("*")}


def forget_since(server: RedisServer, known: dict[bytes, bytes]) -> None:
    """Make a server know no more than that, as a replica does that has not got the rest."""
    with server.connect() as client:
        client.flushall()
        for name, value in known.items():
            client.restore(name, 0, value)


# What was lost


def test_a_lost_keep_is_told_again(server: RedisServer, connect: Connect) -> None:
    """Its end is recorded, and the next attempt begins."""
    a = connect()
    lease = a.win(minute(1), retries=1)
    known = snapshot(server)
    assert a.keep(lease)
    forget_since(server, known)
    assert a.keep(lease)
    assert outcomes(server) == [(1, "failed")]
    assert isinstance(a.retry(lease), Lease)


def test_the_next_attempt_tells_the_end_that_was_lost(
    server: RedisServer, connect: Connect
) -> None:
    """Nobody has to tell it again; it is what it was."""
    a, b = connect(), connect("bb")
    lease = a.win(minute(1), retries=1)
    known = snapshot(server)
    assert a.keep(lease, note="trying again", output=HELLO)
    forget_since(server, known)
    second = a.retry(lease)
    assert isinstance(second, Lease)
    assert (second.attempt, second.token > lease.token) == (2, True)
    first, newest = log(server)
    assert (first.outcome, first.exit_code, first.note) == ("failed", 3, "trying again")
    assert (newest.outcome, newest.fencing_token) == ("running", second.token)
    assert server.connect().hgetall(OUTPUTS) == {b"1": b"0:hello\n"}
    assert b.lose(minute(1)).reason == "held"
    assert a.finish(second)


def test_an_end_that_nobody_remembers_is_lost(server: RedisServer, connect: Connect) -> None:
    """Of attempts that go on, none stays `running` behind the next."""
    a = connect()
    lease = a.win(minute(1), retries=1)
    other = connect()
    assert isinstance(other.retry(lease), Lease)
    assert outcomes(server) == [(1, "lost"), (2, "running")]
    assert log(server)[0].lost_reason == "superseded"


def test_an_end_without_a_lease_says_so(server: RedisServer, connect: Connect) -> None:
    """Somebody removed the hash behind its holder's back, and no claim has found that yet."""
    a = connect()
    lease = a.win(minute(1))
    client = server.connect()
    client.delete(*client.keys("*:lease:*"))
    assert not a.finish(lease)
    [ended] = log(server)
    assert (ended.outcome, ended.lost_reason) == ("succeeded", "revoked")


@pytest.mark.parametrize("first", ["keep", "retry"])
def test_a_claim_that_was_lost_with_its_end_is_put_back(
    server: RedisServer, connect: Connect, first: str
) -> None:
    """With its old token; the next attempt has a higher one."""
    a, b = connect(), connect("bb")
    b.run(minute(1))
    known = snapshot(server)
    lease = a.win(minute(2), retries=1)
    assert a.keep(lease)
    forget_since(server, known)
    if first == "keep":
        assert a.keep(lease)
        assert b.lose(minute(2)).reason == "held"
    second = a.retry(lease)
    assert isinstance(second, Lease)
    assert second.token > lease.token
    assert outcomes(server) == [(1, "succeeded"), (1, "failed"), (2, "running")]
    assert log(server)[1].fencing_token == lease.token
    assert a.finish(second)
    assert b.lose(minute(2)).reason == "done"


def forgotten_attempt(server: RedisServer, host: Host, *, kept: bool) -> Lease:
    """Begin a second attempt that the server forgets; `kept`: it remembers the end of the first."""
    lease = host.win(minute(1), retries=1)
    before_the_end = snapshot(server)
    assert host.keep(lease)
    known = snapshot(server) if kept else before_the_end
    second = host.retry(lease)
    assert isinstance(second, Lease)
    forget_since(server, known)
    return second


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_attempt_is_put_back_by_its_heartbeat(
    server: RedisServer, connect: Connect, kept: bool
) -> None:
    """Under the lease that the server knows, with its token; the one before does not stay `running`."""
    a, b = connect(), connect("bb")
    second = forgotten_attempt(server, a, kept=kept)
    renewed = a.renew(second)
    assert renewed is not None
    assert (renewed.token, renewed.attempt) == (second.token, 2)
    assert outcomes(server) == [(1, "failed" if kept else "lost"), (2, "running")]
    assert b.lose(minute(1)).reason == "held"
    assert a.renew(second), "the answer was lost"
    assert a.finish(renewed)
    assert outcomes(server)[1] == (2, "succeeded")
    assert isinstance(b.fire(minute(2)), Lease)


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_attempt_that_has_ended_is_put_in(
    server: RedisServer, connect: Connect, kept: bool
) -> None:
    """Nobody has renewed it since: its end is in the log, and the lease of the one before is gone."""
    a, b = connect(), connect("bb")
    second = forgotten_attempt(server, a, kept=kept)
    assert not a.finish(second)
    assert outcomes(server) == [(1, "failed" if kept else "lost"), (2, "succeeded")]
    assert isinstance(b.fire(minute(2)), Lease)


@pytest.mark.parametrize("what", ["keep", "retry", "renew", "finish"])
def test_it_is_not_put_back_where_somebody_has_claimed_since(
    server: RedisServer, connect: Connect, what: str
) -> None:
    """Lost for good; the other one's lease is left alone."""
    a, b, c = connect(), connect("bb"), connect("ccc")
    c.run(minute(1))
    known = snapshot(server)
    lease = a.win(minute(2), retries=2)
    second = a.retried(lease)
    forget_since(server, known)
    taken = b.win(minute(3))
    if what == "keep":
        assert not a.keep(second)
    elif what == "retry":
        assert a.retry(second) is None
    elif what == "renew":
        assert a.renew(second) is None
    else:
        assert not a.finish(second)
    assert b.renew(taken)
    assert b.finish(taken)


def test_a_promoted_replica_that_lost_the_end_and_the_next_attempt(
    server: RedisServer, new_redis: Callable[..., RedisServer], connect: Connect
) -> None:
    """The real thing: the old master took what the new one never got. Its holder goes on there."""
    replica = new_redis(aof=True, replicaof=f"{server.host} {server.port}")
    a = connect()
    lease = a.win(minute(1), retries=1)
    eventually(lambda: outcomes(replica) == [(1, "running")])
    replica.connect().replicaof("NO", "ONE")
    assert a.keep(lease)
    second = a.retry(lease)
    assert isinstance(second, Lease)
    a.store.close()
    a.store._target = parse(replica.url(), {})  # type: ignore[attr-defined]  # as its sentinels would tell it
    assert a.renew(second)
    assert outcomes(replica) == [(1, "lost"), (2, "running")]
    assert a.finish(second)
    assert outcomes(replica)[1] == (2, "succeeded")


# What no replica has


def test_what_no_replica_has_does_not_count(
    server: RedisServer, new_redis: Callable[..., RedisServer], connect: Connect
) -> None:
    """With `?wait=1` an end that is kept, and a start, are asked again until one has them; there is one of each."""
    replica = new_redis(aof=True, replicaof=f"{server.host} {server.port}")

    def follows() -> bool:
        return bool(server.connect().wait(1, 1000) == 1)

    eventually(follows)
    a = connect(wait=1)
    lease = a.win(minute(1), retries=1)
    replica.sigstop()
    with pytest.raises(StoreUnavailable, match="only 0 of 1 replicas"):
        a.keep(lease)
    replica.sigcont()
    eventually(follows)
    assert a.keep(lease)
    replica.sigstop()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="only 0 of 1 replicas"):
            a.retry(lease)
    replica.sigcont()
    eventually(follows)
    second = a.retry(lease)
    assert isinstance(second, Lease)
    assert outcomes(server) == outcomes(replica) == [(1, "failed"), (2, "running")]


# A full memory


def fill(server: RedisServer) -> None:
    """Leave no memory for anything."""
    client = server.connect()
    client.set("filler", b"x" * 1_000_000)
    client.config_set("maxmemory", 100_000)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("more", b"x")


def test_in_a_full_memory_what_was_granted_goes_on_and_nothing_new_starts(
    server: RedisServer, connect: Connect
) -> None:
    """The end of an attempt is kept with its output, the heartbeat goes on; the next attempt waits for memory."""
    a, b = connect(), connect("bb")
    lease = a.win(minute(1), retries=1)
    fill(server)
    assert a.keep(lease, output=HELLO)
    assert a.renew(lease)
    with pytest.raises(StoreUnavailable, match="memory is full"):
        a.retry(lease)
    assert outcomes(server) == [(1, "failed")]
    assert b.lose(minute(1)).reason == "held"
    server.connect().config_set("maxmemory", 0)
    second = a.retry(lease)
    assert isinstance(second, Lease)
    fill(server)
    assert a.finish(second, output=Output("bye\n", 7))
    assert server.connect().hgetall(OUTPUTS) == {b"1": b"0:hello\n", b"2": b"7:bye\n"}
    assert server.connect().exists("oncecron:{oncecron}:lease:nightly#0") == 0
