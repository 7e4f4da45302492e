"""Waiting, taking over and freeing on PostgreSQL: notifications, session locks and sessions."""

import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
from contract_log import Log
from hosts import KEY, Host, blocked_by, minute
from postgres_stores import PostgresKind
from servers import PgBouncer, eventually

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.model import AskAgain, Ending, Lease, Refusal, Request, Retention
from oncecron.stores.postgres.lease_store import PostgresLeaseStore
from oncecron.stores.postgres.reader import PostgresReader

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"])

GOES_ON: dict[str, Any] = {"failover": True, "retries": 2}
STOP = Request("stop", "ann@a.example", 15, None)
FAILED = Ending("failed", 3, None, 1.5)
LOCK = "(select c.oid from pg_class c where c.oid = 'oncecron.job_key'::regclass)::int, key_id"


def stirs(host: Host, within: float = 30.0) -> bool:
    """Return whether what the host watches becomes readable."""
    fd = host.store.watch_fd()
    assert fd is not None
    return bool(select.select([fd], [], [], within)[0])


def listen(host: Host, **parts: Any) -> None:
    """Listen to the key, and hear nothing yet."""
    host.store.listen(host.firing(minute(1), **parts), deadline=host.deadline())
    assert not stirs(host, 0)


def lapse(store: PostgresKind) -> None:
    """Let the lease end while its holder's session still has the lock."""
    store.database.execute(
        "update oncecron.job_key set expires_at = clock_timestamp() - interval '1 s' where owner is not null"
    )


def lock_holders(store: PostgresKind) -> list[int]:
    """Return the sessions that hold a key's lock."""
    rows = store.database.execute(
        "select pid from pg_locks where locktype = 'advisory' and classid = 'oncecron.job_key'::regclass"
    )
    return [pid for (pid,) in rows]


def backend(host: Host) -> int:
    assert isinstance(host.store, PostgresLeaseStore)
    assert host.store._client
    return host.store._client.backend_pid


@pytest.fixture
def superuser(store: PostgresKind) -> Iterator[PostgresReader]:
    people = PostgresReader(store.database.url("postgres"), namespace="oncecron")
    yield people
    people.close()


# Being stirred


def test_who_waits_is_stirred_by_the_end(a: Host, b: Host) -> None:
    """And by nothing more once it has asked again."""
    lease = a.win(minute(1))
    listen(b)
    assert a.finish(lease)
    assert stirs(b)
    b.fire(minute(1))
    assert not stirs(b, 0)


def test_who_waits_is_stirred_by_a_start(a: Host, b: Host) -> None:
    """There is somebody else now to wait for; a further attempt is one too."""
    listen(b)
    lease = a.win(minute(1), retries=1)
    assert stirs(b)
    b.fire(minute(1))
    a.store.keep(lease, FAILED, deadline=a.deadline())
    assert not stirs(b, 0)
    a.store.retry(lease, deadline=a.deadline())
    assert stirs(b)


def test_who_waits_is_stirred_by_a_release(a: Host, b: Host, store: PostgresKind, log: Log) -> None:
    """The key is free."""
    lease = a.win(minute(1))
    store.expire(KEY)
    listen(b)
    log.people.release(KEY, 0, lease.execution_id, author="ann", force=False)
    assert stirs(b)


def test_a_holder_is_stirred_by_a_request(a: Host, log: Log) -> None:
    """Its renewal tells what is asked, and then it is quiet."""
    lease = a.win(minute(1))
    a.store.listen(a.firing(minute(1), owner=lease.owner), deadline=a.deadline())
    assert not stirs(a, 0)
    log.people.request(KEY, 0, lease.execution_id, STOP)
    assert stirs(a)
    renewed = a.renew(lease)
    assert renewed
    assert renewed.request == STOP
    assert not stirs(a, 0)


def test_what_came_before_the_listening_stirs_at_once(a: Host, b: Host, log: Log) -> None:
    """The end of what was in the way, and a request that no renewal has told."""
    lease = a.win(minute(1))
    firing = b.firing(minute(1))
    assert isinstance(b.ask(firing), Refusal)
    log.people.request(KEY, 0, lease.execution_id, STOP)
    a.store.listen(a.firing(minute(1), owner=lease.owner), deadline=a.deadline())
    assert stirs(a, 0)
    a.finish(lease)
    b.store.listen(firing, deadline=b.deadline(), awaited=lease.execution_id)
    assert stirs(b, 0)


def test_what_comes_with_an_answer_stirs_all_the_same(
    a: Host, b: Host, store: PostgresKind
) -> None:
    """It has been read from the socket, which tells of it no more."""
    lease = a.win(minute(1))
    listen(b)
    assert isinstance(b.store, PostgresLeaseStore)
    # The server sends it while it still works at what was asked.
    with store.database.connect("owner") as owner:
        owner.execute("select pg_advisory_lock(1, 1)")
        wire = b.store._client
        assert wire
        asked = threading.Thread(
            target=lambda: wire.ask(
                b"select pg_catalog.pg_advisory_lock(1, 1)", (), deadline=b.deadline()
            )
        )
        asked.start()
        eventually(lambda: store.database.execute("select 1 from pg_locks where not granted") != [])
        a.finish(lease)
        owner.execute("select pg_advisory_unlock(1, 1)")
        asked.join()
    assert stirs(b, 0)
    b.fire(minute(1))
    assert not stirs(b, 0)


def test_notifications_do_not_pile_up(a: Host, b: Host, store: PostgresKind) -> None:
    """They are freed with the next call, however many came."""
    lease = a.win(minute(1))
    listen(b)
    store.database.execute(
        "select pg_notify(oncecron.channel_v1(key_id), g::text) from oncecron.job_key, generate_series(1, 1000) g"
    )
    assert stirs(b)
    b.fire(minute(1))
    assert isinstance(b.store, PostgresLeaseStore)
    assert b.store._client
    assert not b.store._client._connection.notified()
    a.finish(lease)


def test_nobody_is_notified_of_what_nobody_waits_for(a: Host, b: Host, store: PostgresKind) -> None:
    """Each such commit waits for all others of the cluster; a holder that listens for requests does not count."""
    heard: list[str] = []
    a.run(minute(1))
    with store.database.connect("postgres") as owner:
        owner.add_notify_handler(lambda notify: heard.append(notify.channel))
        [[channel]] = owner.execute("select oncecron.channel_v1(key_id) from oncecron.job_key")
        owner.execute(f"""listen "{channel.replace('"', '""')}" """)  # type: ignore[arg-type]
        lease = a.win(minute(2))
        a.store.listen(a.firing(minute(2), owner=lease.owner), deadline=a.deadline())
        a.finish(lease)
        owner.execute("select 1")
        assert heard == []
        listen(b)
        a.run(minute(3))
        owner.execute("select 1")
        assert heard == [channel] * 2


def test_behind_a_pooler_nobody_listens(a: Host, store: PostgresKind, pgbouncer: PgBouncer) -> None:
    """The session is somebody else's a moment later."""
    address = store.database.url("runner", via=pgbouncer)
    pooled = Host(store.connect(address), "pooled.example")
    a.run(minute(1))
    listen(pooled)
    lease = pooled.win(minute(2))
    listen(pooled, owner=lease.owner)
    assert pooled.finish(lease)
    assert store.database.execute("select 1 from oncecron.job_key where listened") == []
    with store.database.connect("runner", via=pgbouncer) as next_of_the_pool:
        assert next_of_the_pool.execute("select pg_listening_channels()").fetchall() == []


# Taking over


@pytest.fixture(params=["usual", "unusual"])
def _formats(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions write times and numbers in another way, as settings of a role may."""
    if request.param == "unusual":
        monkeypatch.setenv("PGDATESTYLE", "SQL, DMY")
        monkeypatch.setenv("PGTZ", "Asia/Kolkata")
        monkeypatch.setenv("PGOPTIONS", "-c intervalstyle=sql_standard -c extra_float_digits=-3")


@pytest.mark.usefixtures("_formats")
def test_a_silent_holder_that_was_watched_is_not_watched_again(
    a: Host, b: Host, store: PostgresKind
) -> None:
    """Its session has the lock still: who saw it silent goes on at once, and ends that session when it renews."""
    lease = a.win(minute(1), **GOES_ON)
    firing = b.firing(minute(1), **GOES_ON)
    told = blocked_by(b.ask(firing))
    lapse(store)
    stale = b.ask(firing)
    assert isinstance(stale, AskAgain)
    assert (stale.why, stale.watched) == ("stale", told.heartbeat)
    taken = b.store.claim(
        firing, deadline=b.deadline(), watched=told.heartbeat, awaited=told.execution_id
    )
    assert isinstance(taken, Lease)
    assert (taken.attempt, lock_holders(store)) == (2, [backend(a)])
    assert b.renew(taken)
    eventually(lambda: b.renew(taken) and lock_holders(store) == [backend(b)])
    with pytest.raises(StoreUnavailable):
        a.renew(lease)
    assert a.renew(lease) is None


def test_a_holder_that_renewed_is_not_taken_for_silent(
    a: Host, b: Host, store: PostgresKind
) -> None:
    """The store's clock had stepped, or it was slow: its heartbeat is another one."""
    lease = a.win(minute(1), **GOES_ON)
    firing = b.firing(minute(1), **GOES_ON)
    told = blocked_by(b.ask(firing))
    a.renew(lease)
    lapse(store)
    stale = b.store.claim(firing, deadline=b.deadline(), watched=told.heartbeat)
    assert isinstance(stale, AskAgain)
    assert stale.watched != told.heartbeat
    a.renew(lease)
    answer = b.store.claim(firing, deadline=b.deadline(), watched=stale.watched)
    assert getattr(answer, "reason", answer) == "held"


@pytest.mark.parametrize(("works", "why"), [(True, "contended"), (False, "stale")])
def test_who_works_on_the_key_is_no_silent_holder(
    a: Host, b: Host, store: PostgresKind, works: bool, why: str
) -> None:
    """Another that claims has the lock for a moment; a third of the ttl is for sessions that say nothing."""
    a.win(minute(1), **GOES_ON)
    store.expire(KEY)
    with store.database.connect("owner", autocommit=not works) as other:
        its_session = other.info.backend_pid
        other.execute(f"select pg_advisory_lock({LOCK}) from oncecron.job_key")  # type: ignore[arg-type]
        answer = b.store.claim(b.firing(minute(1), **GOES_ON), deadline=b.deadline())
        assert isinstance(answer, AskAgain)
        assert answer.why == why
    eventually(lambda: its_session not in lock_holders(store))
    assert b.win(minute(1), **GOES_ON).attempt == 2


def test_parts_are_granted_one_after_another(a: Host, b: Host, store: PostgresKind) -> None:
    """What one claim divides by is committed before the next one looks, whatever part it asks for."""
    for part in (0, 1):
        a.run(minute(1), shard=part, shards=2)
    eventually(lambda: lock_holders(store) == [])
    with store.database.connect(autocommit=False) as other:
        other.execute("select from oncecron.job_key where shard = 0 for update")
        for host, part in ((a, 0), (b, 1)):
            answer = host.store.claim(
                host.firing(minute(2), shard=part, shards=2), deadline=host.deadline()
            )
            assert isinstance(answer, AskAgain)
            assert answer.why == "fenced"
    a.win(minute(2), shard=0, shards=2)
    b.win(minute(2), shard=1, shards=2)


# Attempts


def test_an_attempt_waits_for_the_transaction_of_the_last(a: Host, store: PostgresKind) -> None:
    """It is told whose it is, and keeps its session: the lock is not given back meanwhile."""
    lease = a.win(minute(1), retries=1)
    with store.database.connect("owner", autocommit=False) as job:
        job.execute("select oncecron.assert_fence(%s, %s)", (KEY, lease.token))
        assert a.store.keep(lease, FAILED, deadline=a.deadline())
        session = backend(a)
        with pytest.raises(StoreUnavailable, match=f"backend {job.info.backend_pid} "):
            a.store.retry(lease, deadline=a.deadline())
        assert (backend(a), lock_holders(store)) == (session, [session])
        job.commit()
    assert isinstance(a.store.retry(lease, deadline=a.deadline()), Lease)


def test_a_lost_session_goes_on_with_its_attempts(a: Host, b: Host, store: PostgresKind) -> None:
    """The next attempt takes the lock again."""
    lease = a.win(minute(1), retries=1)
    a.store.keep(lease, FAILED, deadline=a.deadline())
    a.store.close()
    eventually(lambda: lock_holders(store) == [])
    assert isinstance(a.store.retry(lease, deadline=a.deadline()), Lease)
    assert lock_holders(store) == [backend(a)]
    assert b.lose(minute(1)).reason == "held"


def test_what_still_has_its_lease_is_not_removed(
    a: Host, b: Host, store: PostgresKind, log: Log
) -> None:
    """However old it is; nor does it keep anything else from being removed."""
    b.run(minute(1), key="weekly")
    lease = a.win(minute(1), retries=1)
    a.store.keep(lease, FAILED, deadline=a.deadline())
    store.age(1000)
    a.renew(lease)
    b.finish(b.win(minute(2), key="weekly"), retention=Retention(executions=500))
    assert [each.key for each in log.executions()] == ["weekly", KEY]
    assert a.store.retry(lease, deadline=a.deadline())


# Freeing


@pytest.mark.usefixtures("_formats")
def test_a_session_that_has_the_lock_is_ended_by_force(
    a: Host, store: PostgresKind, log: Log, superuser: PostgresReader
) -> None:
    """Where that is allowed; who may not is told whose session it is and what to do."""
    lease = a.win(minute(1))
    lapse(store)
    told = log.people.release(KEY, 0, lease.execution_id, author="ann", force=False)
    assert (told.answer, told.backend_pid) == ("locked", backend(a))
    with pytest.raises(StoreRefusesError, match=rf"pg_terminate_backend\({backend(a)}\)"):
        log.people.release(KEY, 0, lease.execution_id, author="ann", force=True)
    assert lock_holders(store) == [backend(a)]
    assert superuser.release(KEY, 0, lease.execution_id, author="ann", force=True).answer == "free"
    assert lock_holders(store) == []
    assert log.outcomes() == ["lost"]
    with pytest.raises(StoreUnavailable):
        a.renew(lease)


def test_a_session_of_the_same_role_may_be_ended(a: Host, store: PostgresKind) -> None:
    """The least of rights: neither a superuser's nor the schema's owner's."""
    lease = a.win(minute(1))
    lapse(store)
    [[started]] = store.database.execute("select backend_start from oncecron.job_key")
    store.database.execute("grant execute on function oncecron.release_v1 to runner")
    store.database.execute("grant select on oncecron.meta to runner")
    people = PostgresReader(store.database.url("runner"), namespace="oncecron")
    assert started
    assert people.release(KEY, 0, lease.execution_id, author="ann", force=True).answer == "free"
    people.close()


def test_a_living_holders_session_is_left_alone(
    a: Host, store: PostgresKind, superuser: PostgresReader
) -> None:
    """Whatever the force: its job runs."""
    lease = a.win(minute(1))
    answer = superuser.release(KEY, 0, lease.execution_id, author="ann", force=True)
    assert (answer.answer, answer.backend_pid) == ("alive", backend(a))
    assert a.renew(lease)
    assert lock_holders(store) == [backend(a)]


def test_all_transactions_of_a_job_are_ended_by_force(
    a: Host, store: PostgresKind, log: Log, superuser: PostgresReader
) -> None:
    """They have checked the fence and have not ended: until then, or by force, nobody else may begin."""
    lease = a.win(minute(1))
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(closing(store.database.connect(autocommit=False))) for _ in range(3)
        ]
        for job in jobs:
            job.execute("select oncecron.assert_fence(%s, %s)", (KEY, lease.token))
        store.expire(KEY)
        told = log.people.release(KEY, 0, lease.execution_id, author="ann", force=False)
        assert told.answer == "locked"
        assert told.backend_pid in {job.info.backend_pid for job in jobs}
        assert log.outcomes() == ["running"]
        assert (
            superuser.release(KEY, 0, lease.execution_id, author="ann", force=True).answer == "free"
        )
        for job in jobs:
            with pytest.raises(psycopg.OperationalError):
                job.execute("select 1")
    assert log.outcomes() == ["lost"]


def test_a_lock_without_a_lease_is_freed_by_force(
    a: Host, store: PostgresKind, log: Log, superuser: PostgresReader
) -> None:
    """Nobody is recorded as its holder."""
    a.run(minute(1))
    before = store.database.execute("select fence from oncecron.job_key")
    eventually(lambda: lock_holders(store) == [])
    with closing(store.database.connect("owner")) as other:
        other.execute(f"select pg_advisory_lock({LOCK}) from oncecron.job_key")  # type: ignore[arg-type]
        told = log.people.release(KEY, 0, None, author="ann", force=False)
        assert (told.answer, told.backend_pid) == ("locked", other.info.backend_pid)
        assert superuser.release(KEY, 0, None, author="ann", force=True).answer == "free"
    assert store.database.execute("select fence from oncecron.job_key") > before
    assert lock_holders(store) == []


@pytest.mark.usefixtures("sessions_end")
def test_a_session_that_is_just_ending_is_waited_for(
    a: Host, store: PostgresKind, log: Log
) -> None:
    """The holder has given back its lease; the server frees the lock a moment later."""
    lease = a.win(minute(1))
    assert a.store.finish(lease, FAILED, Retention(), deadline=a.deadline())
    assert lock_holders(store) == [backend(a)]
    closing = threading.Timer(0.3, a.store.close)
    closing.start()
    told = log.people.release(KEY, 0, lease.execution_id, author="ann", force=False)
    closing.join()
    assert told.answer == "free"


# What the store has lost


def test_an_end_without_a_lease_says_so(a: Host, store: PostgresKind, log: Log) -> None:
    """Somebody removed the row behind its holder's back, and no claim has found that yet."""
    lease = a.win(minute(1))
    store.database.execute("select oncecron.settle_v1(key_id, true) from oncecron.job_key")
    assert not a.finish(lease)
    assert (log.newest().outcome, log.newest().lost_reason) == ("succeeded", "revoked")


def test_what_was_lost_is_put_back_with_its_cause(a: Host, store: PostgresKind, log: Log) -> None:
    """What ran without a lease meanwhile is superseded."""
    first = a.run(minute(1))
    lease = a.win(minute(1), again=True)
    store.database.execute(
        "select oncecron.settle_v1(key_id, true) from oncecron.job_key; "
        f"delete from oncecron.job_execution where execution_id = {lease.execution_id}; "
        "update oncecron.job_execution set outcome = 'running', finished_at = null, duration = null; "
        f"update oncecron.job_key set fence = {first.token}"
    )
    assert a.renew(lease)
    found = [(each.outcome, each.cause, each.lost_reason) for each in log.executions()]
    assert found == [("running", "manual", None), ("lost", "schedule", "superseded")]


# A grant that fails


def test_a_grant_that_meets_another_attempt_leaves_nothing(
    a: Host, b: Host, store: PostgresKind, log: Log
) -> None:
    """The row knew nothing of it, the log did: the claim looks again, and the session lock is free meanwhile."""
    lease = a.run(minute(1))
    store.database.execute(
        "update oncecron.job_execution set tick = %s, tick_at = null where execution_id = %s",
        *(minute(2).text, lease.execution_id),
    )
    assert b.lose(minute(2)).reason == "done"
    assert lock_holders(store) == []
    assert log.outcomes() == ["succeeded"]
