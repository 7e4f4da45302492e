"""What is spooled leaves this host's disk only when the store has it for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from log_of import PostgresLog
from servers.oncecron import Oncecron, installed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from servers import Database, FaultProxy, PostgresServer

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
