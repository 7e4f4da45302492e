"""What a firing costs its store: round trips, and how it behaves in a herd."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from breakable import Breakable, start_breakable
from servers import (
    Database,
    FaultProxy,
    Journal,
    PgBouncer,
    PostgresServer,
    RedisServer,
    assert_exclusive,
    assert_tokens_rise,
    eventually,
    job,
)
from servers.oncecron import Oncecron, installed

HERD = int(os.environ.get("ONCECRON_TEST_HERD", "100"))
HERD_TICKS = int(os.environ.get("ONCECRON_TEST_HERD_TICKS", "3"))
MOST_CASTS = 50
"""How many rows of pg_cast a claim may look up on PostgreSQL: one operator with the wrong types makes 28 more."""


@pytest.fixture(params=["postgres", "redis"])
def store(
    request: pytest.FixtureRequest,
    new_postgres: Callable[..., PostgresServer],
    new_redis: Callable[..., RedisServer],
) -> Breakable:
    kind = str(request.param)
    few = {"max_connections": 40} if kind == "postgres" else {"maxclients": 40}
    return start_breakable(kind, new_postgres, new_redis, **few)


def turns(proxy: FaultProxy) -> int:
    return proxy.connections()[-1].round_trips


@pytest.mark.stores("all")  # each protocol has round trips of its own
def test_a_claim_costs_two_round_trips_and_an_end_one(
    store: Breakable, public_path: Path, new_proxy: Callable[..., FaultProxy]
) -> None:
    """Beside the connection, winning costs the look, the grant and the end; losing the look and the skip."""
    for _ in range(2):  # every script of a winner and of a loser is known then
        Oncecron(store.url(), public_path).run("k", "--tick", "2026-01-01T00:00Z", "--", "true")
    proxy = new_proxy(store.server)
    host = Oncecron(store.url(via=proxy), public_path)
    with_nothing = store.turns_to_connect(proxy)
    host.run("k", "--tick", "2026-01-01T00:01Z", "--", "true")
    assert turns(proxy) == with_nothing + 3
    host.run("k", "--tick", "2026-01-01T00:01Z", "--", "true")
    assert turns(proxy) == with_nothing + 2


def casts_read(database: Database) -> int:
    """Return how many rows of pg_cast all sessions have looked up that have ended; this one counts in the next call."""
    with database.server.superuser_connect(database.name) as session:
        others = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        eventually(lambda: session.execute(others).fetchall() == [])
        count = "select idx_scan from pg_stat_sys_tables where relname = 'pg_cast'"
        [(scans,)] = session.execute(count).fetchall()
    return int(scans)


NOT_BY_CHANCE = """
create or replace function oncecron.prunes(p_prunes boolean) returns boolean language sql volatile as 'select p_prunes'
"""
"""Only ends that know of more old records remove them."""


def test_a_firing_gives_operators_their_own_types(
    new_postgres: Callable[..., PostgresServer], public_path: Path
) -> None:
    """Else a new session looks for casts to those of every operator of the name: 250 rows for all of a firing."""
    server = new_postgres(autovacuum="off")  # an ANALYZE looks up casts too
    database = installed(server.create_database())
    database.execute(NOT_BY_CHANCE)
    hosts = [Oncecron(database.url(), public_path, name) for name in ("host-a", "host-b")]
    with_nothing = -casts_read(database) + casts_read(database)
    minutes = ("2026-01-01T00:00Z", "2026-01-01T00:01Z")
    for key, shards, first, second in (
        ("a", 1, "one", "two"),
        ("b", 1, *minutes),
        ("c", 2, *minutes),
    ):
        firing = ("--shards", shards, "--", "true")
        # A key's first end removes old records, a host's first firing makes its row.
        for host in hosts:
            assert host.run(key, "--tick", first, *firing).status == 0
        for host in hosts:
            before = casts_read(database)
            assert host.run(key, "--tick", second, *firing).status == 0
            read = casts_read(database) - before - with_nothing
            assert 0 < read <= MOST_CASTS * shards, f"{read} for {key}"


@pytest.mark.stores("all")  # each protocol has round trips of its own
def test_a_heartbeat_is_one_round_trip(
    store: Breakable, public_path: Path, new_proxy: Callable[..., FaultProxy], journal: Journal
) -> None:
    """While a job runs, each renewal is one round trip on the same connection, and so is listening, once."""
    first = ("--ttl", 6, "--tick", "zero", "--", *job(journal, "--sleep", 2))
    assert Oncecron(store.url(), public_path).run("k", *first).status == 0  # every script is known
    proxy = new_proxy(store.server)
    claimed = store.turns_to_connect(proxy) + 2
    host = Oncecron(store.url(via=proxy), public_path)
    go = public_path / "go"  # the next heartbeat comes four seconds after the last one that counts
    command = job(journal, "--sleep", 60, "--until", go)
    firing = host.fire("k", "--ttl", 24, "--tick", "one", "--", *command)
    journal.wait_for("start", 2)
    seen = {store.log.heartbeat("k")}
    while len(seen) < 3:
        newest = max(beat for beat in seen if beat is not None)
        seen.add(eventually(lambda newest=newest: _newer(store.log.heartbeat("k"), newest)))
    eventually(lambda: turns(proxy) >= claimed + 1 + 2)  # the last answer may still be on its way
    assert turns(proxy) == claimed + 1 + 2
    go.touch()
    assert firing.wait().status == 0


def _newer(beat: float | None, newest: float) -> float | None:
    return beat if beat is not None and beat > newest else None


@pytest.mark.herd
@pytest.mark.timeout(300 + HERD)
def test_a_herd_in_one_second_runs_once(
    store: Breakable, public_path: Path, journal: Journal
) -> None:
    """A hundred firings and forty connections: one run, 99 quiet skips, no error."""
    hosts = [Oncecron(store.url(), public_path, f"host-{n}") for n in range(HERD)]
    hosts[0].run("warm-up", "--tick", "one", "--", "true")
    firings = [
        host.fire("k", "--tick", "one", "--connect-timeout", f"{HERD}s", "--", *job(journal))
        for host in hosts
    ]
    ended = [firing.wait(HERD) for firing in firings]
    assert {(e.status, e.out, e.err) for e in ended} == {(0, b"", "")}
    assert len(journal.runs()) == 1
    assert len({skip.host for skip in store.log.skips("k")}) == HERD - 1


@pytest.mark.herd
@pytest.mark.parametrize("store_kind", ["pooled", "redis"])
def test_twenty_firings_of_each_tick_run_it_once(
    store_kind: str, request: pytest.FixtureRequest, public_path: Path, journal: Journal
) -> None:
    """Fired on every host at once from the console script; the ticks run one after the other, with rising tokens."""
    hosts = [
        Oncecron(url, public_path, f"host-{n}")
        for n, url in enumerate(_twenty_urls(store_kind, request))
    ]
    for tick in range(HERD_TICKS):
        firings = [
            host.fire("k", "--tick", f"t{tick}", "--", *job(journal, "--sleep", 0.05))
            for host in hosts
        ]
        for firing in firings:
            ended = firing.wait(60)
            assert (ended.status, ended.err) == (0, "")
    assert len(journal.runs()) == HERD_TICKS
    assert_exclusive(journal)
    assert_tokens_rise(journal)


def _twenty_urls(store_kind: str, request: pytest.FixtureRequest) -> list[str]:
    if store_kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return [server.url()] * 20
    ready: Database = request.getfixturevalue("ready")
    pooler: PgBouncer = request.getfixturevalue("pgbouncer")
    return [ready.url(via=pooler if n % 2 else None) for n in range(20)]


def test_behind_a_transaction_pooler_the_lease_row_stands_alone(
    ready: Database, pgbouncer: PgBouncer, public_path: Path, journal: Journal
) -> None:
    """The pooler is found by itself: no session lock is taken, and others are refused all the same."""
    host = Oncecron(ready.url(via=pgbouncer), public_path)
    firing = host.fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
    journal.wait_for("start")
    held = ready.execute("select session_lock from oncecron.job_key")
    locks = ready.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and classid = 'oncecron.job_key'::regclass"
    )
    other = Oncecron(ready.url(), public_path, "host-b")
    assert other.run("k", "--tick", "two", "--", *job(journal)).status == 0
    assert firing.process.poll() is None, "it waited instead of being refused"
    assert (held, locks) == ([(False,)], [(0,)])
    os.kill(firing.process.pid, signal.SIGTERM)
    assert firing.wait().status == 143
    assert len(journal.runs()) == 1
