"""Fixtures of the acceptance tests: a store for each kind, hosts that share it, journals, wires to Redis."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from breakable import Breakable, start_breakable
from log_of import LoggedRedis, PostgresLog, RedisLog, SQLiteLog, Store
from redis_wires import Wires
from servers import Database, Journal, PostgresServer, RedisServer
from servers.oncecron import Oncecron, installed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has no sense where the log is beside the store."""
    senseless = [
        item
        for item in items
        if item.get_closest_marker("own_log")
        and getattr(item, "callspec", None)
        and item.callspec.params.get("store") == "logged"  # type: ignore[attr-defined]
    ]
    config.hook.pytest_deselected(items=senseless)
    items[:] = [item for item in items if item not in senseless]


@pytest.fixture(params=["postgres", "redis"])
def breakable(
    request: pytest.FixtureRequest,
    new_postgres: Callable[..., PostgresServer],
    new_redis: Callable[..., RedisServer],
) -> Breakable:
    """Give a store whose server a test may stop and start."""
    return start_breakable(str(request.param), new_postgres, new_redis)


@pytest.fixture(params=["logged", "postgres", "redis", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    """Give an empty store of each kind; `logged` is Redis whose log is a database."""
    if request.param == "sqlite":
        return _sqlite(request)
    if request.param == "redis":
        return RedisLog(request.getfixturevalue("redis_server"))
    if request.param == "logged":
        server: RedisServer = request.getfixturevalue("redis_server")
        return LoggedRedis(server, request.getfixturevalue("ready"))
    return PostgresLog(request.getfixturevalue("ready"))


@pytest.fixture(scope="session")
def schema(postgres: PostgresServer) -> Iterator[Database]:
    """Install the schema of PostgreSQL, for all tests of this process to copy: `init` costs five times a copy."""
    with postgres.create_database().until_dropped() as database:
        yield installed(database)


@contextmanager
def _copy(schema: Database) -> Iterator[Database]:
    with schema.server.create_database(schema).until_dropped() as database:
        yield replace(database, run_as=schema.run_as)


@pytest.fixture
def ready(schema: Database) -> Iterator[Database]:
    """Give a database with the schema, in which firings have the least of rights."""
    with _copy(schema) as database:
        yield database


@pytest.fixture
def any_store(request: pytest.FixtureRequest) -> Store:
    """Give the cheapest store: for promises in which the store has no part."""
    return _sqlite(request)


@pytest.fixture
def granted(database: Database, public_path: Path) -> Database:
    """Install the schema as its owner and grant the four kinds of rights."""
    owner = Oncecron(database.url(), public_path)
    roles = ("--run-role", "runner", "--read-role", "reader", "--job-role", "jobber")
    ended = owner("init", *roles, "--operator-role", "operator")
    assert ended.status == 0, ended.err
    return database


@pytest.fixture
def log_database(schema: Database) -> Iterator[Database]:
    """Give a database for the log of another store, where hosts may fire and read."""
    with _copy(schema) as database:
        yield database


def _sqlite(request: pytest.FixtureRequest) -> SQLiteLog:
    return SQLiteLog(request.getfixturevalue("public_path") / "store" / "oncecron.db")


@pytest.fixture
def new_host(request: pytest.FixtureRequest, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host by its name; it takes more environment."""
    name = "store" if "store" in request.fixturenames else "any_store"
    store: Store = request.getfixturevalue(name)
    (public_path / "store").mkdir(mode=0o700, exist_ok=True)

    def make(host: str = "host-a", **environment: str) -> Oncecron:
        return Oncecron(store.url, public_path, host, **{**store.environment, **environment})

    return make


@pytest.fixture
def host(new_host: Callable[..., Oncecron]) -> Oncecron:
    return new_host()


@pytest.fixture
def new_journal(public_path: Path) -> Callable[[str], Journal]:
    """Give a function that makes a journal by its name."""
    return lambda name: Journal(public_path / f"journal-{name}")


@pytest.fixture
def past(store: Store, new_host: Callable[..., Oncecron]) -> Oncecron:
    """Give a host of a cluster in which a little has happened."""
    a, b = new_host("host-a"), new_host("host-b")
    a.run("billing", "--tick", "t1", "--", "true")
    b.run("billing", "--tick", "t1", "--", "true")
    b.run("billing", "--tick", "t2", "--", "sh", "-c", "exit 3", "two words")
    a.run("report", "--tick", "t2", "--", "sh", "-c", "kill -9 $$")
    return a


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Give what connects to Redis as a firing does."""
    wires = Wires()
    yield wires
    wires.close()


@pytest.fixture
def operator(store: Store, new_host: Callable[..., Oncecron]) -> Oncecron:
    """Give a host whose user may pause and drain, and do nothing else."""
    return new_host(ONCECRON_STORE=store.operator_url)
