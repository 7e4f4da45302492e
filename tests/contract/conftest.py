"""Fixtures of the contract suite: each test runs once for every kind of store, with its hosts."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from contract_stores import KINDS, StoreKind
from hosts import TTL, Host
from postgres_stores import installed
from servers import Database, PostgresServer, eventually

from oncecron.core.log_rows import Execution, HistoryQuery, LeaseView, Skip
from oncecron.core.model import Retention
from oncecron.stores.reader import Reader
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.lease_store import RedisLeaseStore


class Log:
    """What people read."""

    def __init__(self, people: Reader) -> None:
        self.people = people
        self._prune = people.prune
        people.prune = self._prune_as_said  # type: ignore[method-assign]

    def _prune_as_said(self, retention: Retention, *, names_kept: int = 1000) -> tuple[int, int]:
        """Prune, and check that a dry run said so before, twice: it has removed nothing."""
        said = [self._prune(retention, names_kept=names_kept, dry_run=True) for _ in range(2)]
        removed = self._prune(retention, names_kept=names_kept)
        assert said == [removed, removed]
        return removed

    def executions(self, query: HistoryQuery | None = None) -> list[Execution]:
        return list(self.people.history(query or HistoryQuery()))

    def exhausted(self) -> list[Execution]:
        return self.executions(HistoryQuery(exhausted=True))

    def notes(self) -> list[str]:
        """Return the notes, the oldest execution first; empty where there is none."""
        return [execution.note or "" for execution in reversed(self.executions())]

    def newest(self) -> Execution:
        return self.executions()[0]

    def outcomes(self) -> list[str]:
        return [execution.outcome for execution in reversed(self.executions())]

    def skips(self) -> list[Skip]:
        return list(self.people.skips(HistoryQuery()))

    def leases(self) -> list[LeaseView]:
        """Return all leases, without the time at which they were asked for."""
        return [lease._replace(asked_at=0.0) for lease in self.people.leases()]

    def none_held(self) -> bool:
        """Return whether no lease is left, nor the lock of a session of PostgreSQL, which takes a moment to end."""
        return eventually(lambda: not self.leases())

    def counts(self) -> dict[str, int]:
        return {skip.reason: skip.count for skip in self.skips()}


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
