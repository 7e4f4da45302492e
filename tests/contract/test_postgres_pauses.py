"""A pause and the claims that are under way at that moment, on PostgreSQL: the other stores decide one at a time."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest
from contract_log import Log
from hosts import KEY, Host, minute
from postgres_stores import PostgresKind
from servers import eventually

from oncecron.core.errors import StoreUnavailable
from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.model import AskAgain, Lease, Refusal
from oncecron.stores.postgres.lease_store import PostgresLeaseStore

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"])
Answer = TypeVar("Answer")


def stop(log: Log, what: str) -> None:
    """Pause a key or all keys, or drain the host."""
    if what == "a host":
        log.people.drain("a.example", author="ann@web1")
    else:
        log.people.pause(what, author="ann@web1", reason=None, seconds=None)


def somebody_waits(store: PostgresKind) -> bool:
    """Return whether a session waits for a lock."""
    return store.database.execute("select 1 from pg_locks where not granted") != []


def decided(ask: Callable[[], Answer]) -> Answer:
    """Return the answer; the store lets nobody wait for a lock for longer than half a second, so it is asked again."""
    while True:
        with suppress(StoreUnavailable):
            answer = ask()
            if not isinstance(answer, AskAgain):
                return answer


@pytest.mark.parametrize("what", [KEY, ALL_KEYS, "a host"])
def test_a_claim_that_waits_for_a_fence_is_refused_later(
    a: Host, store: PostgresKind, log: Log, what: str
) -> None:
    """A pause waits until that claim has given up for now: it does not start anything any more."""
    a.run(minute(1))
    stopped = threading.Event()
    answers: list[Lease | Refusal | AskAgain] = []

    def claim() -> None:
        """Ask again and again: one claim waits for half a second, in which a busy machine may not look."""
        while not stopped.is_set():
            answers.append(a.fire(minute(2)))

    with store.database.connect("owner") as job:
        job.execute("begin")
        job.execute("select from oncecron.job_key for share")
        claims = threading.Thread(target=claim)
        claims.start()
        eventually(lambda: somebody_waits(store))
        stop(log, what)
        stopped.set()
        claims.join()
        job.execute("commit")
    why = [getattr(answer, "why", None) or getattr(answer, "reason", None) for answer in answers]
    assert why[0] == "fenced"
    assert {*why} <= {"fenced", "drained" if what == "a host" else "paused"}
    assert a.lose(minute(2)).reason == ("drained" if what == "a host" else "paused")
    assert log.outcomes() == ["succeeded"]
    assert store.database.execute("select 1 from pg_locks where locktype = 'advisory'") == []


@pytest.mark.parametrize("fired", [True, False])
@pytest.mark.parametrize("what", [KEY, ALL_KEYS, "a host"])
def test_a_claim_that_waited_for_a_pause_sees_it(
    a: Host, store: PostgresKind, what: str, fired: bool
) -> None:
    """It had looked before; its grant takes the lock on the table before its snapshot. So does a key's first claim."""
    if fired:
        a.run(minute(1))
    answers: list[Lease | Refusal | AskAgain] = []
    with store.database.connect("owner") as people:
        people.execute("begin")
        if what == "a host":
            people.execute("select oncecron.drain_v1('a.example', 'ann@web1', null, null)")
        else:
            people.execute("select oncecron.pause_v1(%s, 'ann@web1', null, null)", (what,))
        claim = threading.Thread(target=lambda: answers.append(decided(lambda: a.fire(minute(2)))))
        claim.start()
        eventually(lambda: somebody_waits(store))
        people.execute("commit")
    claim.join()
    [answer] = answers
    assert isinstance(answer, Refusal)
    assert answer.reason == ("drained" if what == "a host" else "paused")
    assert store.database.execute("select 1 from pg_locks where locktype = 'advisory'") == []


def test_heartbeats_pass_by_a_pause_that_waits(a: Host, store: PostgresKind, log: Log) -> None:
    """It waits for a long write, in short tries: a job must not lose its lease by a pause."""
    a.run(minute(1), key="other")
    lease = a.win(minute(1))
    with store.database.connect("owner") as writer:
        writer.execute("begin")
        writer.execute("update oncecron.job_key set zone = zone where key = 'other'")
        pause = threading.Thread(target=lambda: stop(log, KEY))
        pause.start()
        eventually(lambda: somebody_waits(store))
        assert a.renew(lease) is not None
        assert pause.is_alive()
        writer.execute("commit")
    pause.join()
    assert a.lose(minute(2)).reason == "paused"


def test_an_attempt_that_waited_for_a_pause_sees_it(a: Host, store: PostgresKind, log: Log) -> None:
    """It is a start like any other."""
    lease = a.win(minute(1), retries=1)
    assert a.keep(lease, "failed")
    answers: list[object] = []
    with store.database.connect("owner") as people:
        people.execute("begin")
        people.execute("select oncecron.pause_v1(%s, 'ann@web1', null, null)", (KEY,))
        retry = threading.Thread(target=lambda: answers.append(decided(lambda: a.retry(lease))))
        retry.start()
        eventually(lambda: somebody_waits(store))
        people.execute("commit")
    retry.join()
    [answer] = answers
    assert isinstance(answer, Refusal)
    assert answer.reason == "paused"
    assert log.outcomes() == ["failed"]


def test_a_pause_waits_for_a_claim_that_is_being_granted(
    a: Host, store: PostgresKind, log: Log
) -> None:
    """When it returns whatever still starts is there to be seen."""
    a.run(minute(1))
    assert isinstance(a.store, PostgresLeaseStore)
    session = a.store._connection(a.deadline())
    session.ask(b"begin", (), deadline=a.deadline())
    a.win(minute(2))
    pause = threading.Thread(target=lambda: stop(log, KEY))
    pause.start()
    eventually(lambda: somebody_waits(store))
    assert store.people().pauses() == []
    session.ask(b"commit", (), deadline=a.deadline())
    pause.join()
    assert [each.key for each in store.people().pauses()] == [KEY]
    assert log.outcomes() == ["succeeded", "running"]


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
