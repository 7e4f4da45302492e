"""When the record of a good run cannot be written: the child's exit status, one line, and a later delivery."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import Database, Journal, PostgresServer, eventually, job
from servers.oncecron import Oncecron, installed


def log_of(ready: Database) -> list[tuple[Any, ...]]:
    return ready.execute(
        "select tick, outcome, exit_code, note from oncecron.executions order by execution_id"
    )


BREAK_AND_MEND = {
    "revoked": (
        "revoke execute on function oncecron.finish_v1 from runner",
        "grant execute on function oncecron.finish_v1 to runner",
    ),
    "renamed": (
        "alter table oncecron.job_execution rename to gone",
        "alter table oncecron.gone rename to job_execution",
    ),
    "full": (
        """
        create function public.full_disk() returns trigger language plpgsql as $$ begin
          raise exception using errcode = '53100', message = 'could not extend file';
        end $$;
        create trigger full_disk before update on oncecron.job_execution
          for each row execute function public.full_disk()
        """,
        "drop trigger full_disk on oncecron.job_execution",
    ),
}


@pytest.mark.parametrize("fault", BREAK_AND_MEND)
def test_a_record_that_cannot_be_written_is_spooled_and_delivered_once(
    ready: Database, public_path: Path, journal: Journal, fault: str
) -> None:
    """The job's own status and one line; the next firing of the key delivers the record."""
    host = Oncecron(ready.url(), public_path)
    host.run("warm-up", "--tick", "zero", "--", "true")
    go = public_path / "go"
    command = job(journal, "--sleep", 60, "--until", go, "--exit", 7)
    firing = host.fire("k", "--ttl", 6, "--tick", "one", "--", *command)
    journal.wait_for("start")
    damage, repair = BREAK_AND_MEND[fault]
    ready.execute(damage)
    go.touch()
    ended = firing.wait(60)
    assert ended.status == 7
    assert ended.err.count("\n") == 1
    assert "the record is spooled, and the next firing delivers it" in ended.err
    ready.execute(repair)
    eventually(
        lambda: ready.execute("select 1 from oncecron.job_key where expires_at > now()") == [], 20
    )
    for _ in range(2):
        assert host.run("k", "--tick", "two", "--", "true")[::2] == (0, "")
    rows = [row for row in log_of(ready) if row[0] != "zero"]
    assert [row[:3] for row in rows] == [("one", "failed", 7), ("two", "succeeded", 0)]
    assert "recorded later" in rows[0][3]


def test_a_run_without_a_store_is_recorded_later_as_unclaimed(
    new_postgres: Callable[..., PostgresServer], public_path: Path
) -> None:
    """--on-store-error run: the execution arrives with outcome `unclaimed`, no token, and its exit code."""
    server = new_postgres()
    ready = installed(server.create_database())
    host = Oncecron(ready.url(), public_path)
    host.run("k", "--tick", "zero", "--", "true")
    server.stop()
    away = ("--connect-timeout", "1s", "--on-store-error", "run")
    ended = host.run("k", "--tick", "one", *away, "--", "sh", "-c", "exit 9")
    assert ended.status == 9
    server.start()
    assert host.run("k", "--tick", "two", "--", "true").status == 0
    rows = ready.execute(
        "select tick, outcome, exit_code, fencing_token from oncecron.executions where tick = 'one'"
    )
    assert rows == [("one", "unclaimed", 9, None)]


def test_a_spool_that_cannot_be_used_is_told_and_changes_nothing(
    ready: Database, public_path: Path, journal: Journal
) -> None:
    """A state directory that others may write to: the job's own status, and a line that names the cure."""
    host = Oncecron(ready.url(), public_path)
    host.run("warm-up", "--tick", "zero", "--", "true")
    state = public_path / "host-a" / "oncecron"
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o777)
    go = public_path / "go"
    command = job(journal, "--sleep", 60, "--until", go, "--exit", 7)
    firing = host.fire("k", "--tick", "one", "--", *command)
    journal.wait_for("start")
    ready.execute(BREAK_AND_MEND["revoked"][0])
    go.touch()
    ended = firing.wait(60)
    assert ended.status == 7
    assert "a record is lost" in ended.err
    assert "chmod 700" in ended.err
