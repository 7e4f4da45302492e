"""A pooler that sends reads to a standby decides nothing: the primary answers all that firings and people ask."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Database
from servers.oncecron import Oncecron
from servers.pgpool import Pgpool

from oncecron.core import clock
from oncecron.core.errors import StoreRefusesError
from oncecron.core.model import Firing, Holder
from oncecron.core.tick import named_tick
from oncecron.stores.postgres.lease_store import PostgresLeaseStore

pytestmark = pytest.mark.turns(1, "systems")
SHOWN = ("history", "jobs", "timeline", "history --skips", "why k", "check")
"""Each shows the key that has just run: by a query alone, by a function, row by row."""
FIRING = Firing(
    key="k", shard=0, tick=named_tick("one"), owner="0b8f4a52-8d0e-4c57-8d8f-6a4b0c1d2e3f",
    holder=Holder("a.example", 1, "batch"), command="true", fired_at=clock.wall(), ttl=60, min_gap=None,
    starting_deadline=None, again=False, schedule=None, zone=None, retries=1,
)  # fmt: skip


@pytest.fixture
def pgpool(ready: Database) -> Iterator[Pgpool]:
    """Start one whose standby has stopped to follow, so that each answer of it shows."""
    standby = ready.server.make_standby()
    pooler = Pgpool(ready.server, standby)
    try:
        pooler.start()
        standby.execute("select pg_wal_replay_pause()")
        yield pooler
    finally:
        pooler.remove()
        standby.remove()


def test_each_tick_runs_once(ready: Database, pgpool: Pgpool, public_path: Path) -> None:
    """Also the first one, of a dry run's too; and people see it at once."""
    hosts = [Oncecron(ready.url(via=pgpool), public_path, name) for name in ("web1", "web2")]
    rehearsed = hosts[0].run("k", "--tick", "0", "--dry-run", "--", "true")
    assert rehearsed.status == 0, rehearsed
    for tick in range(3):
        fired = [host.run("k", "--tick", str(tick), "--", "echo", "ran") for host in hosts]
        assert [(each.status, each.out, each.err) for each in fired] == [
            (0, b"ran\n", ""),
            (0, b"", ""),
        ]
    for words in SHOWN:
        shown = hosts[0](*words.split())
        assert (shown.status, shown.err) == (0, ""), words
        assert b"k" in shown.out.partition(b"\n")[2] or b"1 of 1 key ok" in shown.out, words


def test_doctor_names_it(ready: Database, pgpool: Pgpool, public_path: Path) -> None:
    """Not as an error: nothing is wrong."""
    said = Oncecron(ready.url(via=pgpool), public_path)("doctor").out.decode()
    assert "ok     pooler         pgpool-II; the primary answers all that oncecron asks" in said


def test_a_claim_that_went_to_a_standby_is_refused(ready: Database, pgpool: Pgpool) -> None:
    """By a pooler that takes no notice of how oncecron marks its statements; the message says whose doing it is."""

    class Unmarked(PostgresLeaseStore):
        def _ask(self, statement: bytes, *rest: Any) -> Any:
            return super()._ask(statement.removesuffix(b" for update"), *rest)

    store = Unmarked(ready.url(via=pgpool), namespace="oncecron", ttl=60.0)
    with (
        contextlib.closing(store),
        pytest.raises(StoreRefusesError, match="a pooler has sent the claim to a hot standby"),
    ):
        store.claim(FIRING, deadline=clock.lease_time(clock.BOOTTIME) + 30)
