"""Fixtures of the contract suite: each test runs once for every kind of store, with its hosts."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from contract_log import Log
from contract_stores import KINDS, StoreKind
from hosts import TTL, Host
from postgres_stores import installed
from servers import Database, PostgresServer

from oncecron.stores.redis.address import parse
from oncecron.stores.redis.lease_store import RedisLeaseStore


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a skip take its time: a firing does without its record after a second, which a busy machine needs."""
    for module in ("claim_loop", "redis.lease_store"):
        monkeypatch.setattr(f"oncecron.stores.{module}.SKIP_TIMEOUT", 60.0)


@pytest.fixture
def sessions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `release` wait longer for a session that ends: on a busy machine it may keep its lock for over a second."""
    monkeypatch.setattr("oncecron.stores.postgres.reader._SESSION_LOCK_FREED_AFTER", 30.0)


@pytest.fixture(params=sorted(KINDS))
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def schema(postgres: PostgresServer) -> Iterator[Database]:
    with installed(postgres) as database:
        yield database


@pytest.fixture
def new_database(schema: Database) -> Iterator[Callable[[], Database]]:
    """Give a function that makes a database with the schema: a test may ask PostgreSQL in several ways."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(schema.server.create_database(schema).until_dropped())


@pytest.fixture
def store(request: pytest.FixtureRequest, store_kind: str) -> Iterator[StoreKind]:
    kind = KINDS[store_kind](request)
    yield kind
    kind.close()


@pytest.fixture
def a(store: StoreKind) -> Host:
    return Host(store.firing(), "a.example")


@pytest.fixture
def b(store: StoreKind) -> Host:
    return Host(store.firing(), "bb.example")


@pytest.fixture
def log(store: StoreKind) -> Log:
    """Open the job-execution log as people read it."""
    return Log(store.people())


@pytest.fixture
def connect() -> Iterator[Callable[..., Host]]:
    """Give a function that makes a host of the URL of a Redis server: (URL, name, class of the host)."""
    with ExitStack() as stack:

        def make(url: str, name: str = "a", kind: type[Host] = Host) -> Host:
            store = RedisLeaseStore(parse(url, {}), namespace="oncecron", ttl=TTL)
            stack.callback(store.close)
            return kind(store, name)

        yield make
