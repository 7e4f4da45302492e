"""The steps of a claim on Redis: a look writes nothing, and nothing is written after a look that is out of date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from hosts import KEY, TTL, Host, minute
from redis_stores import PREFIX
from servers import eventually

from oncecron.core import clock
from oncecron.core.decision import Grant, decide
from oncecron.core.errors import StoreUnavailable
from oncecron.core.facts import state_of
from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.model import AskAgain, Lease, Refusal
from oncecron.core.presence import seen
from oncecron.core.tick import Tick
from oncecron.core.units import DAY
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.reader import RedisReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import FaultProxy, RedisServer

    from oncecron.core.decision import State
    from oncecron.core.model import Firing
    from oncecron.stores.redis.lease_store import RedisLeaseStore

    Connect = Callable[..., "Steps"]
    Change = Callable[[RedisReader, "Steps"], object]

LEASE = f"{PREFIX}lease:{KEY}#0"
NO_TICK = Tick(None, None, "none")
START = Grant(1, "schedule")


class Steps(Host):
    """A host that takes the steps of a claim one by one."""

    store: RedisLeaseStore

    def look(self, firing: Firing, *, awaited: int | None = None) -> State:
        deadline = self.deadline()
        return state_of(self.store.look(firing, awaited=awaited, closely=True, deadline=deadline))

    def grant(self, firing: Firing, state: State, grant: Grant = START) -> Any:
        deadline = self.deadline()
        host = seen(state, firing, won=True)
        return self.store.grant(firing, state, grant, host, alone=False, deadline=deadline)

    def expire(self, firing: Firing, state: State) -> None:
        self.store.expire(firing, state, "a note", deadline=self.deadline())


@pytest.fixture
def connect(connect: Callable[..., Steps]) -> Connect:
    """Give a function that makes a host of a server."""
    return lambda server, name="a", via=None: connect(server.url(via=via), name, Steps)


@pytest.fixture
def people(redis_server: RedisServer) -> Iterator[RedisReader]:
    store = RedisReader(parse(redis_server.url(), {}), namespace="oncecron")
    yield store
    store.close()


def data(server: RedisServer) -> dict[bytes, bytes | None]:
    with server.connect() as client:
        return {name: client.dump(name) for name in client.scan_iter()}


CHANGES: dict[str, Change] = {
    "the key was paused": lambda people, _: people.pause(
        KEY, author="ann", reason=None, seconds=None
    ),
    "all keys were paused": lambda people, _: people.pause(
        ALL_KEYS, author="ann", reason=None, seconds=60
    ),
    "the host was drained": lambda people, _: people.drain("a", author="ann"),
    "another tick was granted": lambda _, b: b.win(minute(1)),
    "another tick ran": lambda _, b: b.run(minute(1)),
    "the tick ran": lambda _, b: b.run(minute(2)),
    "the tick was given back": lambda _, b: b.run(minute(2), "not-started"),
    "another number of shards was granted": lambda _, b: b.win(minute(2), shard=1, shards=2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_granted_after_a_change(
    redis_server: RedisServer, connect: Connect, people: RedisReader, change: str
) -> None:
    """Whatever a claim is decided on: then the firing looks again, and nothing was written."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    b.run(minute(0))
    firing = a.firing(minute(2))
    state = a.look(firing)
    assert decide(state, firing) == START
    CHANGES[change](people, b)
    before = data(redis_server)
    assert a.grant(firing, state) is None
    assert data(redis_server) == before
    assert a.look(firing).version != state.version


def test_what_ends_by_itself_is_a_change_too(redis_server: RedisServer, connect: Connect) -> None:
    """A pause that was in force when the firing looked."""
    a = connect(redis_server)
    firing = a.firing(minute(1))
    without = a.look(firing).version
    with redis_server.connect() as client:
        for seconds, ended in ((60, False), (-60, True)):
            until = clock.wall() + seconds
            pause = f'{{"author": "ann", "at": "1", "until": "{until:.6f}"}}'
            client.hset(PREFIX + "pauses", KEY, pause)
            assert (a.look(firing).version == without) is ended


def test_nothing_else_is_a_change(redis_server: RedisServer, connect: Connect) -> None:
    """Neither time, nor a skip, nor a start of another key."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    b.run(minute(1))
    firing = a.firing(minute(2))
    state = a.look(firing)
    b.lose(minute(1))
    b.win(minute(3), key="another")
    assert isinstance(a.grant(firing, state), Lease)


def test_no_lease_is_granted_beside_another(redis_server: RedisServer, connect: Connect) -> None:
    """Even if the decision were wrong: one lease for a key, and each attempt of a tick once."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    lease = b.win(minute(1))
    firing = a.firing(minute(2))
    assert a.grant(firing, a.look(firing)) is None
    b.finish(lease)
    again = a.firing(minute(1))
    assert a.grant(again, a.look(again)) is None
    assert isinstance(a.grant(again, a.look(again), Grant(2, "manual")), Lease)


def test_a_living_lease_is_not_taken_away(redis_server: RedisServer, connect: Connect) -> None:
    """Even if the decision were wrong."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    lease = b.win(minute(1))
    firing = a.firing(minute(2))
    before = data(redis_server)
    a.expire(firing, a.look(firing))
    assert data(redis_server) == before
    assert b.renew(lease)


def test_a_lease_that_was_renewed_is_not_taken_away(
    redis_server: RedisServer, connect: Connect
) -> None:
    """It had expired when the firing looked."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    lease = b.win(minute(1))
    _end_the_lease(redis_server)
    firing = a.firing(minute(2))
    state = a.look(firing)
    assert state.lease
    assert state.lease.ends_in < 0
    assert b.renew(lease)
    a.expire(firing, state)
    assert b.finish(lease)


def test_nothing_is_taken_away_after_a_change(
    redis_server: RedisServer, connect: Connect, people: RedisReader
) -> None:
    """A firing that is refused leaves a late holder alone."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    lease = b.win(minute(1))
    _end_the_lease(redis_server)
    firing = a.firing(minute(2))
    state = a.look(firing)
    people.pause(KEY, author="ann", reason=None, seconds=None)
    a.expire(firing, state)
    assert b.renew(lease)


def test_nothing_is_taken_away_by_a_server_that_may_have_forgotten(
    new_redis: Callable[..., RedisServer], connect: Connect
) -> None:
    """After a restart a lease that seems to have expired may have been renewed: its holder still has it."""
    server = new_redis(aof=True)
    a, b = connect(server), connect(server, "bb")
    lease = b.win(minute(1))
    with server.connect() as client:
        _end_the_lease(server)
        client.hset(PREFIX + "namespace", "run_id", "that of a process before")
        for _ in range(2):  # the first claim records it, the second reads it
            answer = a.fire(minute(2))
            assert isinstance(answer, AskAgain)
            assert answer.why == "recovering"
            assert TTL / 2 < answer.after <= TTL + 1
    assert b.renew(lease)


def test_a_restart_under_a_wrong_clock_is_guarded_for_one_ttl(
    new_redis: Callable[..., RedisServer], connect: Connect
) -> None:
    """The guard began in the future, by a clock that is right again: it does not last until then."""
    server = new_redis(aof=True)
    a = connect(server)
    a.run(minute(1))
    with server.connect() as client:
        client.hset(PREFIX + "namespace", "guard_from", clock.wall() + 40 * DAY)
        for _ in range(2):
            answer = a.fire(minute(2))
            assert isinstance(answer, AskAgain)
            assert answer.why == "recovering"
            assert 0 < answer.after <= TTL + 1
        assert float(client.hget(PREFIX + "namespace", "guard_from")) <= clock.wall() + 2


def test_a_look_writes_nothing(redis_server: RedisServer, connect: Connect) -> None:
    """Of a new namespace, of a key, of one that is held, and of an ended pause: people may do without memory."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    a.look(a.firing(minute(1)))
    assert data(redis_server) == {}
    b.run(minute(1))
    b.win(minute(2))
    with redis_server.connect() as client:
        client.hset(PREFIX + "pauses", KEY, '{"author": "ann", "at": "1", "until": "2"}')
        before = data(redis_server)
        try:
            client.config_set("maxmemory", 1)
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                client.set("filler", b"x")
            for tick in (minute(1), minute(2), minute(3), NO_TICK):
                assert a.look(a.firing(tick)).lease is not None
            assert a.lose(minute(2)).reason == "held"
        finally:
            client.config_set("maxmemory", 0)
    assert data(redis_server) == before


def test_a_frozen_server_grants_nothing_to_whoever_has_given_up(
    new_redis: Callable[..., RedisServer], connect: Connect
) -> None:
    """It reads the grant when it thaws; it would keep everybody out for a ttl, and the tick would be lost."""
    server = new_redis(aof=True)
    a, b = connect(server), connect(server, "bb")
    a.run(minute(1))
    firing = a.firing(minute(2))
    state = a.look(firing)
    server.sigstop()
    try:
        host = seen(state, firing, won=True)
        deadline = clock.lease_time(clock.BOOTTIME) + 2
        with pytest.raises(StoreUnavailable) as caught:
            a.store.grant(firing, state, START, host, alone=False, deadline=deadline)
        # the firing knows the server's clock no better than a round trip takes
        eventually(lambda: clock.lease_time(clock.BOOTTIME) > deadline + 0.5)
    finally:
        server.sigcont()
    assert caught.value.unanswered
    with server.connect() as client:
        eventually(lambda: not [c for c in client.client_list() if "/1001:" in c["name"]])
    assert b.win(minute(2)).attempt == 1


def test_a_herd_that_has_looked_gets_one_lease(redis_server: RedisServer, connect: Connect) -> None:
    """All of them have seen that nothing is in the way."""
    hosts = [connect(redis_server, f"host-{n}") for n in range(20)]
    firings = [host.firing(minute(1)) for host in hosts]
    states = [host.look(firing) for host, firing in zip(hosts, firings, strict=True)]
    answers = [host.grant(f, s) for host, f, s in zip(hosts, firings, states, strict=True)]
    assert [isinstance(answer, Lease) for answer in answers] == [True] + 19 * [False]
    assert [host.ask(f).__class__ for host, f in zip(hosts[1:], firings[1:], strict=True)] == (
        19 * [Refusal]
    )


def test_each_outcome_of_a_claim_has_its_turns(
    redis_server: RedisServer, connect: Connect, new_proxy: Callable[..., FaultProxy]
) -> None:
    """A look and a grant; a look and a skip; a takeover expires the lease and looks again between them."""
    a, b = connect(redis_server), connect(redis_server, "bb")
    b.run(minute(1))
    b.lose(minute(1))
    b.win(minute(2))
    _end_the_lease(redis_server)
    a.run(minute(4))  # now the server knows every script
    proxy = new_proxy(redis_server)
    host = connect(redis_server, "ccc", via=proxy)
    turns = []
    for fire, tick in ((host.win, 5), (host.lose, 5), (host.win, 6)):
        before = proxy.round_trips()
        fire(minute(tick))
        turns.append(proxy.round_trips() - before)
        if fire == host.lose:
            _end_the_lease(redis_server)
    assert turns == [2, 2, 4]


def _end_the_lease(server: RedisServer) -> None:
    with server.connect() as client:
        client.hset(LEASE, "expires_at", f"{clock.wall() - 1:.6f}")
