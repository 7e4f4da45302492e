"""The fencing token, checked by the job's own transaction."""

import os
import signal
from pathlib import Path

import psycopg
import pytest
from servers import Database, Journal, eventually, job
from servers.oncecron import SHORT_TTL, Firing, Oncecron

TTL = SHORT_TTL


SHOW = ("sh", "-c", 'printf %s "$ONCECRON_FENCING_TOKEN"')


def token_of_a_run(ready: Database, state: Path, tick: str, host: str = "host-a") -> int:
    ended = Oncecron(ready.url(), state, host).run("k", "--tick", tick, "--", *SHOW)
    assert ended.status == 0, ended.err
    return int(ended.out)


def token_of_the_lease(ready: Database) -> int:
    def token() -> int:
        leases = "select fencing_token from oncecron.leases where execution_id is not null"
        return int(ready.execute(leases)[0][0])

    return eventually(token, retry_on=(IndexError, psycopg.Error))


def kill_everything_of(firing: Firing) -> None:
    """Do what the death of its host does: only a transaction that was opened elsewhere lives on."""
    job, guard = firing.job(), firing.guard()
    os.kill(guard.pid, signal.SIGSTOP)  # it does not record the end of the job
    for process in (job, guard, firing.wrapper):
        _kill(process.pid)


def test_the_present_token_passes_and_a_stale_one_fails(ready: Database, public_path: Path) -> None:
    """A later start raises the token; a transaction with the old one is refused with OC001."""
    old = token_of_a_run(ready, public_path, "one")
    with ready.connect("jobber") as connection:
        connection.execute("select oncecron.assert_fence('k', %s)", (old,))
    new = token_of_a_run(ready, public_path, "two")
    assert new > old
    with ready.connect("jobber") as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("select oncecron.assert_fence('k', %s)", (old,))
    assert refused.value.sqlstate == "OC001"
    assert str(new) not in str(refused.value)  # with it, the stale job could go on


@pytest.mark.parametrize("token", [None, 0, "of a run"])
def test_an_unknown_key_fails(ready: Database, public_path: Path, token: int | str | None) -> None:
    """A misspelt key is no licence, nor is the variable of a token that is not set."""
    of_a_run = token_of_a_run(ready, public_path, "one")
    given = of_a_run if token == "of a run" else token
    with ready.connect("jobber") as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("select oncecron.assert_fence('other', %s)", (given,))
    assert refused.value.sqlstate == "OC001"


@pytest.mark.parametrize("token", [None, 0])
def test_a_key_without_a_start_has_no_token(ready: Database, token: int | None) -> None:
    """A firing that was only skipped has registered it."""
    ready.execute("select oncecron.register_v1('k', 0)")
    with ready.connect("jobber") as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("select oncecron.assert_fence('k', %s)", (token,))
    assert refused.value.sqlstate == "OC001"


def test_a_takeover_waits_for_the_open_transaction_of_the_job(
    ready: Database, public_path: Path, journal: Journal
) -> None:
    """The lease has expired, but the job's fenced transaction is open: nobody starts before it ends."""
    first = Oncecron(ready.url(), public_path)
    show = [*SHOW[:2], f"{SHOW[2]}; exec sleep 60"]
    firing = first.fire("k", "--ttl", TTL, "--tick", "one", "--", *show)
    token = token_of_the_lease(ready)
    with ready.connect("jobber", autocommit=False) as transaction:
        transaction.execute("select oncecron.assert_fence('k', %s)", (token,))
        # The whole host dies: only its transaction, held here in its place, lives on in the store.
        kill_everything_of(firing)
        second = Oncecron(ready.url(), public_path, "host-b")
        later = second.fire("k", "--tick", "two", "--", *job(journal, "--beats"))
        eventually(lambda: _waits_for_the_fence(ready), deadline=TTL + 10)
        assert journal.runs() == []
        transaction.commit()
    ended = later.wait()
    assert (ended.status, ended.err) == (0, "")
    assert [run.first.host for run in journal.runs()] == ["host-b"]


def _waits_for_the_fence(ready: Database) -> bool:
    rows = ready.execute(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%expire_v1%%'"
    )
    return bool(rows[0][0])


def _kill(pid: int) -> None:
    import contextlib
    import os
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
