"""What all tests have: marks, their order, and fixtures.

Shared servers with cheap databases, own servers to break, proxies, hosts, journals.

`postgres`, `pgbouncer` and `redis_server` are shared by all tests of one process: never stop or
freeze them. The `new_...` fixtures make expendable ones.
"""

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import story_stores
from missing_plugins import PLUGINS, needed_by, needs_missing
from servers import (
    Certificates,
    Database,
    FaultProxy,
    Journal,
    Network,
    PgBouncer,
    PostgresServer,
    Recorder,
    RedisCluster,
    RedisServer,
    Sentinels,
    SmtpSink,
)
from servers.process import public_directory, remove_directory
from servers.require import NOT_PROVEN, everything_required
from servers.scripted import Scripted

# How long one example takes is the load of the machine, and says nothing of what is tested. Each run draws others.
hypothesis.settings.register_profile(
    "oncecron", deadline=None, max_examples=100 if story_stores.wanted() == "all" else 40
)
hypothesis.settings.load_profile("oncecron")

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    # Ignored under nohup and in the background of a script; every job of every test would ignore it too.
    if signal.getsignal(number) == signal.SIG_IGN:
        by_default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, by_default)

for name in list(os.environ):
    # The settings of whoever runs the tests are not the tests'.
    if name.startswith(("PG", "ONCECRON_")) and not name.startswith(
        ("ONCECRON_TEST_", "ONCECRON_REQUIRE_ALL")
    ):
        del os.environ[name]


gc.disable()  # a quarter of what each process needs to collect twelve thousand tests, of which none is garbage


def pytest_configure() -> None:
    """Choose the seed before processes are started, which inherit it."""
    story_stores.seed()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, and never again among the tests."""
    gc.enable()
    gc.freeze()


def pytest_report_header() -> str:
    """Say how to repeat the choice of stores."""
    return f"ONCECRON_TEST_SEED={story_stores.seed()} ONCECRON_TEST_STORES={story_stores.wanted()}"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests that need a plugin which is not there."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if PLUGINS and is_test and needed_by(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what waits for nothing as quick: units, documents, and the contract of the stores without a server."""
    directory = item.path.parent.name
    waits = "machine_at" in getattr(item, "fixturenames", ())  # the snippets of the documentation
    is_quick = (directory in ("unit", "docs") and not waits) or story_stores.stores_of(item) in (
        ["memory"],
        ["sqlite"],
    )
    if is_quick and directory != "acceptance" and not item.get_closest_marker("slow"):
        item.add_marker("quick")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave each story its store, and mix tests that wait with tests that work, so that no processor does."""
    if PLUGINS:
        items[:] = [item for item in items if not needs_missing(item)]
    chosen = story_stores.choose(items, " ".join([*config.args, config.option.keyword]))
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    sizes = Counter(item.path for item in chosen)
    phases = {path: story_stores.fraction(str(path)) for path in sizes}
    given: Counter[Path] = Counter()
    place: dict[pytest.Item, float] = {}
    for item in chosen:
        place[item] = (given[item.path] + phases[item.path]) / sizes[item.path] * _begins_by(item)
        given[item.path] += 1
    items[:] = sorted(chosen, key=place.__getitem__)


def _begins_by(item: pytest.Item) -> float:
    """Return by which part of the run a test has begun; what comes last is quick, or it would be waited for."""
    if item.get_closest_marker("slow"):
        return 0.4
    return 1.0 if item.get_closest_marker("quick") else 0.9


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let processes draw tests."""
    from distribution import Distribution

    return Distribution(config, log)


def _fail_if_it_must_not_be_skipped(report: Any) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if report.skipped and not hasattr(report, "wasxfail") and NOT_PROVEN in reason:
        report.outcome = "failed"
        report.longrepr = f"ONCECRON_REQUIRE_ALL=1, but: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Turn loud skips of tests into failures where everything must be proved; say how a store was chosen."""
    report = yield
    if story_stores.stores_of(item):
        report.sections.append(("choice of stores", pytest_report_header()))
    if everything_required():
        _fail_if_it_must_not_be_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Turn loud skips of whole modules into failures where everything must be proved."""
    report = yield
    if everything_required():
        _fail_if_it_must_not_be_skipped(report)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what was not proved, whatever options were given."""
    reasons = {
        str(report.longrepr[2])
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and NOT_PROVEN in report.longrepr[2]
    }
    for reason in sorted(reasons):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)


def made(make: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Give a function that makes and starts one of these, with what it is given; each is removed at the end."""
    with ExitStack() as stack:

        def start(*arguments: Any, **options: Any) -> Any:
            one = make(*arguments, **options)
            stack.callback(one.remove)
            return one.start()

        yield start


# PostgreSQL


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Start the PostgreSQL server that all tests share."""
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    """Create an empty database of the shared server, owned by the role `owner`."""
    with postgres.create_database().until_dropped() as database:
        yield database


@pytest.fixture
def new_postgres() -> Iterator[Callable[..., PostgresServer]]:
    """Give a function that starts a PostgreSQL server of the test's own; it takes settings."""
    yield from made(PostgresServer)


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """Start a PgBouncer in transaction mode in front of the shared server."""
    pooler = PgBouncer(postgres, "transaction")
    try:
        yield pooler.start()
    finally:
        pooler.remove()


@pytest.fixture
def new_pgbouncer() -> Iterator[Callable[..., PgBouncer]]:
    """Give a function that starts a PgBouncer of the test's own: (server, mode, pool_size)."""
    yield from made(PgBouncer)


# Redis


@pytest.fixture(scope="session")
def _shared_redis() -> Iterator[RedisServer]:
    # With an append-only file: a young server without one makes every firing wait.
    server = RedisServer(aof=True, appendfsync="no")
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """Give the Redis server that all tests share, emptied."""
    _shared_redis.flush()
    return _shared_redis


@pytest.fixture
def new_redis() -> Iterator[Callable[..., RedisServer]]:
    """Give a function that starts a Redis server of the test's own; it takes `aof`, `tls` and settings."""
    yield from made(RedisServer)


@pytest.fixture(scope="session")
def certificates() -> Iterator[Certificates]:
    """Make certificates for servers on loopback and their clients."""
    certificates = Certificates()
    yield certificates
    certificates.remove()


@pytest.fixture
def new_recorder() -> Iterator[Callable[..., Recorder]]:
    """Give a function that starts an HTTP server that records: (behave, certificate)."""
    with ExitStack() as stack:
        yield lambda *given, **how: stack.enter_context(closing(Recorder(*given, **how)))


@pytest.fixture
def smtp_sink() -> Iterator[SmtpSink]:
    """Start an SMTP server that keeps the mails."""
    sink = SmtpSink()
    yield sink
    sink.close()


@pytest.fixture
def new_sentinels() -> Iterator[Callable[..., Sentinels]]:
    """Give a function that starts a master, its replicas and three sentinels; it takes settings of the servers."""
    yield from made(Sentinels)


@pytest.fixture
def new_redis_cluster() -> Iterator[Callable[..., RedisCluster]]:
    """Give a function that starts a Redis Cluster of three masters; it takes settings of the servers."""
    yield from made(RedisCluster)


# Faults and hosts


@pytest.fixture
def new_proxy() -> Iterator[Callable[..., FaultProxy]]:
    """Give a function that starts a FaultProxy in front of a server (anything with host and port)."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(closing(FaultProxy(server.port, to=server.host)))


@pytest.fixture
def new_scripted() -> Iterator[Callable[..., Scripted]]:
    """Give a function that starts a server that does what the test says: (behave)."""
    with ExitStack() as stack:
        yield lambda behave: stack.enter_context(closing(Scripted(behave)))


@pytest.fixture
def network() -> Iterator[Network]:
    """Make a network of its own for hosts that can be cut off; needs root."""
    network = Network()
    try:
        yield network
    finally:
        network.remove()


@pytest.fixture
def public_path() -> Iterator[Path]:
    """Make a directory that jobs of other users and in other namespaces can enter and write to."""
    path = public_directory("test")
    path.chmod(0o1777)
    yield path
    remove_directory(path)


@pytest.fixture
def journal(public_path: Path) -> Iterator[Journal]:
    """Make an empty journal for the jobs of this test; those that still live at its end die."""
    journal = Journal(public_path / "journal")
    yield journal
    journal.kill_jobs()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start the browser that all tests of this process share, those of plugins too."""
    from browser import chromium

    with chromium() as found:
        yield found
