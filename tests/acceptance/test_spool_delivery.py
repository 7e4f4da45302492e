"""What is spooled leaves this host's disk only when the store has it for good."""

import os
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from log_of import PostgresLog, RedisLog, SQLiteLog, Store
from servers import Database, FaultProxy, PostgresServer
from servers.oncecron import Oncecron, installed

from oncecron.core.model import Ending, Firing, Holder
from oncecron.core.tick import named_tick
from oncecron.run.spool import Spool, execution_record
from oncecron.stores.address import masked, parse_address

REFUSES = """
create function public.refuse() returns trigger language plpgsql as $$ begin
  raise exception using errcode = '53100', message = 'could not extend file: No space left on device';
end $$;
create trigger refuse before insert or update on oncecron.skip
  for each row execute function public.refuse()
"""


@pytest.fixture
def spooled(
    new_postgres: Callable[..., PostgresServer],
    new_proxy: Callable[..., FaultProxy],
    public_path: Path,
) -> tuple[Database, Oncecron]:
    """Give a host that has a refusal in its spool, and the database that can be reached again.

    What does not wait for the disk is written ten seconds later.
    """
    server = new_postgres(synchronous_commit="on", wal_writer_delay="10s")
    database = installed(server.create_database())
    proxy = new_proxy(server)
    host = Oncecron(database.url(via=proxy), public_path)
    proxy.refuse()
    ended = host.run("k", "--connect-timeout", "1s", "--tick", "one", "--", "true")
    assert ended.status == 69
    proxy.passing()
    return database, host


def test_a_refusal_that_the_store_cannot_take_stays_in_the_spool(
    spooled: tuple[Database, Oncecron],
) -> None:
    """A disk that is full over there loses nothing here."""
    database, host = spooled
    database.execute(REFUSES)
    ended = host("flush")
    assert ended.status == 69
    assert "No space left" in ended.err
    database.execute("drop trigger refuse on oncecron.skip")
    assert host("flush").status == 0
    assert [skip.reason for skip in PostgresLog(database).skips("k")] == ["no-store"]


def test_a_full_store_refuses_all_the_same(spooled: tuple[Database, Oncecron]) -> None:
    """A loser's skip that cannot be written never changes its answer."""
    database, host = spooled
    assert host("flush").status == 0
    assert host.run("k", "--tick", "two", "--", "true").status == 0
    database.execute(REFUSES)
    assert host.run("k", "--tick", "two", "--", "echo", "ran") == (0, b"", "")


def test_a_delivered_refusal_survives_a_crash_of_the_server(
    spooled: tuple[Database, Oncecron],
) -> None:
    """Its delivery waits for the disk, as a loser's own skip does not."""
    database, host = spooled
    assert host("flush").status == 0
    database.server.kill()
    database.server.start()
    assert [skip.reason for skip in PostgresLog(database).skips("k")] == ["no-store"]


# Records that the store refuses


def refuse_bad(store: Store) -> None:
    """Make the store refuse what host `bad` recorded of the tick `bad`, and nothing else."""
    if isinstance(store, PostgresLog):
        store._database.execute(
            "alter table oncecron.job_execution add constraint no_bad check (host <> 'bad')"
        )
    elif isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database:
            database.execute(
                "create trigger no_bad before insert on job_execution when new.host = 'bad'"
                " begin select raise(abort, 'no_bad'); end"
            )
    else:
        assert isinstance(store, RedisLog)
        store._client.hset("oncecron:{oncecron}:ticks:k#0", "bad", "99999")
        store._client.hset("oncecron:{oncecron}:executions", "99999", "no JSON")


def ticks(store: Store) -> list[str | None]:
    """Return the ticks on record in the store itself, not in a log beside it."""
    rows = RedisLog.executions(store, "k") if isinstance(store, RedisLog) else store.executions("k")
    return [row.tick for row in rows]


def spool_three(store: Store, public_path: Path) -> Spool:
    """Spool a record that the store takes, one that it refuses, and one more of the same key."""
    target = parse_address(store.url)
    shown = target.target if target.kind == "sqlite" else masked(target.target)
    spool = Spool(str(public_path / "host-a" / "oncecron"), shown, "oncecron")
    for number, name in enumerate(("one", "bad", "three")):
        firing = Firing(
            *("k", 0, named_tick(name), str(uuid.uuid4()), Holder(name, 1, "u"), "true"),
            *(time.time(), 60.0, None, None, False, None, None),
        )
        spool.add(execution_record(firing, None, Ending("unclaimed", 0, None, 1.0)))
        [path] = [path for path, taken in spool.pending() if taken["tick"] == name]
        os.utime(path, (number, number))
    return spool


def test_a_refused_record_does_not_hold_back_the_others(
    store: Store, host: Oncecron, public_path: Path
) -> None:
    """It is set aside with the reason; `flush` lists it until it is removed, or delivers it once the cause is gone."""
    assert host.run("k", "--tick", "zero", "--", "true").status == 0
    spool = spool_three(store, public_path)
    refuse_bad(store)
    ended = host("flush")
    assert ended.status == 65
    assert ended.out == b"delivered k one unclaimed\ndelivered k three unclaimed\n"
    [(path, why)] = spool.set_aside()
    assert why
    assert ended.err == (
        f"oncecron: refused record set aside: {path}: {why}; delete it, or rename it to end in .json\n"
    )
    assert host("flush") == (65, b"", ended.err)
    assert ticks(store) == ["zero", "one", "three"]
    Path(path).rename(path.removesuffix(".refused"))
    assert host("flush").status == 65
    Path(path).unlink()
    assert host("flush") == (0, b"", "")


def test_a_firing_sets_a_refused_record_aside(
    store: Store, host: Oncecron, public_path: Path
) -> None:
    """It says so in one line, once, which cron mails; the job runs."""
    assert host.run("k", "--tick", "zero", "--", "true").status == 0
    spool = spool_three(store, public_path)
    refuse_bad(store)
    status, out, err = host.run("k", "--tick", "four", "--", "echo", "ran")
    assert (status, out) == (0, b"ran\n")
    [(path, why)] = spool.set_aside()
    assert err == f"oncecron: spooled record set aside: {path}: {why}\n"
    assert ticks(store) == ["zero", "one", "three", "four"]
    assert host.run("k", "--tick", "five", "--", "echo", "ran") == (0, b"ran\n", "")


def test_a_log_that_refuses_a_record_gets_the_next_one(host: Oncecron, public_path: Path) -> None:
    """The end of a run that had a refused start is in the log; the job is not disturbed."""
    log = SQLiteLog(public_path / "log.db")
    assert host.run("k", "--log", log.url, "--tick", "zero", "--", "true").status == 0
    with closing(sqlite3.connect(log._path)) as database:
        database.execute(
            "create trigger no_start before insert on job_execution when new.outcome = 'running'"
            " begin select raise(abort, 'no start'); end"
        )
    aside = public_path / "host-a" / "oncecron" / "spool" / "*" / "k" / "*.refused"
    script = f"until ls {aside}; do sleep 0.1; done >/dev/null 2>&1"  # it ends after its start was refused
    status, _, err = host.run("k", "--log", log.url, "--tick", "one", "--", "sh", "-c", script)
    assert status == 0
    assert err.count("\n") == 1
    assert "spooled record set aside: " in err
    assert "no start" in err
    assert [row.outcome for row in log.executions("k")] == ["succeeded", "succeeded"]
    refused = host("flush", "--log", log.url)
    assert (refused.status, "no start" in refused.err) == (65, True)
