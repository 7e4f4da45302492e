"""A pause and the claims that are under way at that moment, on PostgreSQL: the other stores decide one at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hosts import KEY, Host, minute
from servers import eventually

from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.model import Lease

if TYPE_CHECKING:
    from conftest import Log
    from postgres_stores import PostgresKind

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"])


@pytest.mark.parametrize("what", [KEY, ALL_KEYS, "a host"])
def test_a_claim_that_was_waiting_is_refused(
    a: Host, store: PostgresKind, log: Log, what: str
) -> None:
    """It had passed the gate, and a job's own transaction kept it from the key's row."""
    a.run(minute(1))
    answers = []
    with store.database.connect("owner") as job:
        job.execute("begin")
        job.execute("select from oncecron.job_key for share")
        claim = threading.Thread(target=lambda: answers.append(a.fire(minute(2))))
        claim.start()
        eventually(lambda: store.database.execute("select 1 from pg_locks where not granted") != [])
        if what == "a host":
            log.people.drain(a.holder.host, author="ann@web1")
        else:
            log.people.pause(what, author="ann@web1", reason=None, seconds=None)
        job.execute("commit")
    claim.join()
    assert [answer.reason for answer in answers] == ["drained" if what == "a host" else "paused"]
    assert log.outcomes() == ["succeeded"]
    assert store.database.execute("select 1 from pg_locks where locktype = 'advisory'") == []


def test_a_pause_waits_for_a_claim_that_is_being_granted(
    a: Host, store: PostgresKind, log: Log
) -> None:
    """When it returns whatever still starts is there to be seen."""
    a.run(minute(1))
    with store.database.connect("owner") as claim:
        claim.execute("begin")
        claim.execute("select from oncecron.job_key for update")
        pause = threading.Thread(target=lambda: log.people.pause(
            KEY, author="ann@web1", reason=None, seconds=None))  # fmt: skip
        pause.start()
        eventually(lambda: store.database.execute("select 1 from pg_locks where not granted") != [])
        assert store.people().pauses() == []
        claim.execute("commit")
    pause.join()
    assert [each.key for each in store.people().pauses()] == [KEY]


def test_a_pause_leaves_a_job_that_checks_its_fence_alone(
    a: Host, store: PostgresKind, log: Log
) -> None:
    """Neither waits for the other, and the job's transaction commits."""
    lease = a.win(minute(1))
    assert isinstance(lease, Lease)
    with store.database.connect("owner") as job:
        job.execute("begin")
        job.execute("select oncecron.assert_fence(%s, %s)", (KEY, lease.token))
        log.people.pause(ALL_KEYS, author="ann@web1", reason=None, seconds=None)
        job.execute("select oncecron.assert_fence(%s, %s)", (KEY, lease.token))
        job.execute("commit")
    assert a.finish(lease)
