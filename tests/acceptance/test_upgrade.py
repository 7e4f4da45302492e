"""An upgrade while a job runs: its guard goes on with what it was started with, until the record of the end."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

import pytest
from log_of import Store
from servers import Database, RedisServer, eventually
from servers.oncecron import Oncecron, script_of

import oncecron
from oncecron.stores.postgres import libpq

TTL = 12
"""So a renewal may fail for some seconds."""

Fault = Callable[[], AbstractContextManager[object]]


@pytest.fixture
def fault(request: pytest.FixtureRequest, store: Store) -> Fault:
    """Give what makes a renewal fail and every step be told to the store anew."""
    if store.url.startswith("sqlite:"):
        return lambda: _locked(store.url.removeprefix("sqlite://"))
    if store.url.startswith("redis:"):
        server: RedisServer = request.getfixturevalue("redis_server")
        return lambda: nullcontext(_cut_off_redis(server))
    database: Database = request.getfixturevalue("ready")
    statement = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    return lambda: nullcontext(database.execute(statement))


@contextmanager
def _locked(path: str) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def _cut_off_redis(server: RedisServer) -> None:
    client = server.connect()
    client.script_flush()
    client.client_kill_filter(_type="normal", skipme=True)


def test_a_job_outlives_the_oncecron_that_started_it(
    store: Store, fault: Fault, new_host: Callable[..., Oncecron], public_path: Path
) -> None:
    """Its files are gone, the connection breaks: the lease is renewed, and the end recorded."""
    library = public_path / "library"
    shutil.copytree(Path(oncecron.__file__).parent, library / "oncecron")
    host = new_host()
    host.script = script_of(library)
    started, enough = public_path / "started", public_path / "enough"
    script = f"touch {started}; until [ -e {enough} ]; do sleep 0.1; done; exit 3"
    firing = host.fire("k", "-v", "--ttl", TTL, "--tick", "one", "--", "sh", "-c", script)
    eventually(lambda: started.exists() and bool(store.executions("k")))
    shutil.rmtree(library)
    assert firing.process.stderr
    assert b"started on" in firing.process.stderr.readline()
    with fault():
        assert b"not renewed yet" in firing.process.stderr.readline()
    before = store.heartbeat("k") or 0
    eventually(lambda: (store.heartbeat("k") or 0) > before)
    enough.touch()
    ended = firing.wait()
    assert (ended.status, [record.outcome for record in store.executions("k")]) == (3, ["failed"])
    assert ended.err == ""


def test_libpq_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects again does it with the library that is loaded, which may be gone from the disk."""
    loaded = libpq._load()
    monkeypatch.setattr(libpq, "_open", lambda: pytest.fail("looked for again"))
    assert libpq._load() is loaded
