"""A job's own transaction that has checked its fence, and who writes the same row, on PostgreSQL."""

import threading
from contextlib import ExitStack

import psycopg
import pytest
from hosts import KEY, Host, minute
from postgres_stores import PostgresKind
from servers import eventually

from oncecron.core.model import AskAgain
from oncecron.stores.postgres.lease_store import PostgresLeaseStore

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"])


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_heartbeat_passes_by_a_fence_that_is_held(
    a: Host, b: Host, store: PostgresKind, jobs: int
) -> None:
    """It writes the row that the jobs' transactions have locked, and their locks go with it."""
    lease = a.win(minute(1))
    with ExitStack() as stack:
        pids = set()
        for _ in range(jobs):
            a.renew(lease)
            job = stack.enter_context(store.database.connect(autocommit=False))
            job.execute("select oncecron.assert_fence(%s, %s)", (KEY, lease.token))
            pids.add(job.info.backend_pid)
        assert [bool(a.renew(lease)) for _ in range(5)] == [True] * 5
        store.expire(KEY)
        answer = b.fire(minute(2))
        assert isinstance(answer, AskAgain)
        assert (answer.why, answer.backend_pid in pids) == ("fenced", True)
        assert answer.refusal.detail == f"by PostgreSQL backend {answer.backend_pid}"
    assert b.win(minute(2)).token > lease.token


def test_a_fence_that_is_checked_waits_for_a_takeover(
    a: Host, b: Host, store: PostgresKind
) -> None:
    """Either the job's transaction is first, or its token is stale."""
    lease = a.win(minute(1))
    store.expire(KEY)
    assert isinstance(b.store, PostgresLeaseStore)
    session = b.store._connection(b.deadline())
    session.ask(b"begin", (), deadline=b.deadline())
    b.win(minute(2))
    with store.database.connect(autocommit=False) as job:
        errors: list[BaseException] = []

        def check() -> None:
            try:
                job.execute("select oncecron.assert_fence(%s, %s)", (KEY, lease.token))
            except psycopg.Error as error:
                errors.append(error)

        checks = threading.Thread(target=check)
        checks.start()
        eventually(lambda: store.database.execute("select 1 from pg_locks where not granted") != [])
        session.ask(b"commit", (), deadline=b.deadline())
        checks.join()
    assert ["stale fencing token" in str(error) for error in errors] == [True]
