"""Why an execution was started, why it was lost, and who asked for its end: the same words on every store."""

import sqlite3
from typing import Any

import psycopg
import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import EVERYTHING, KEY, Host, ending, execution_record, minute
from postgres_stores import PostgresKind

from oncecron.core.log_rows import Execution, HistoryQuery
from oncecron.core.model import CAUSES, LOST_BY_HOLDER, Lease, Request

GOES_ON: dict[str, Any] = {"failover": True, "retries": 2}
STOP = Request("stop", "ann@a.example", 15, None)
RELEASE = Request("release", "bob@b.example", 15, None)


def causes(log: Log) -> list[str]:
    return [execution.cause for execution in reversed(log.executions())]


def asked(execution: Execution) -> tuple[str | None, str | None]:
    """Return what was asked of its holder, and by whom."""
    return execution.request, execution.requested_by


def ask(log: Log, lease: Lease, request: Request = STOP) -> None:
    """Ask the holder of a lease for something."""
    assert log.people.request(lease.key, lease.shard, lease.execution_id, request)


# Why it was started


def test_what_a_person_asks_for_again_is_manual(a: Host, b: Host, log: Log) -> None:
    """Its first attempt too, and instead of a takeover."""
    assert a.run(minute(1), again=True).cause == "manual"
    assert b.run(minute(1), again=True, **GOES_ON).cause == "manual"
    assert causes(log) == ["manual", "manual"]


@pytest.mark.parametrize("again", [False, True])
def test_a_further_attempt_of_the_same_firing_is_a_retry(a: Host, log: Log, again: bool) -> None:
    """However the first one came about; also when the answer was lost."""
    first = a.win(minute(1), again=again, retries=2)
    second = a.retried(first)
    assert second.cause == "retry"
    told_again = a.retry(first)
    assert isinstance(told_again, Lease)
    assert told_again.cause == "retry"
    assert a.retried(second).cause == "retry"
    assert causes(log) == ["manual" if again else "schedule", "retry", "retry"]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_delivered_execution_has_its_own_cause(a: Host, log: Log, cause: str) -> None:
    """A start, and an end of which the store knows nothing; what it knows is not changed."""
    end = execution_record(a.firing(minute(1)), fencing_token=11, cause=cause)
    a.deliver({**end, "outcome": "running", "finished_at": None, "duration": None})
    assert causes(log) == [cause]
    a.deliver({**end, "cause": "schedule"})
    assert causes(log) == [cause]
    a.deliver(execution_record(a.firing(minute(2)), outcome="unclaimed", cause=cause))
    assert causes(log) == [cause, cause]


def test_every_question_tells_it(a: Host, b: Host, log: Log) -> None:
    """History, one execution, what is traced, the timeline."""
    a.run(minute(1))
    lease = b.win(minute(1), again=True)
    ask(log, lease)
    b.finish(lease, "lost")
    people, query = log.people, HistoryQuery()
    one = people.execution(lease.execution_id)
    assert one is not None
    for each in (
        one,
        next(iter(people.history(query))),
        next(iter(people.traced(query))).execution,
        list(people.timeline(None))[-1].execution,
    ):
        assert (each.cause, each.lost_reason) == ("manual", "not-renewed")
        assert (each.request, each.requested_by) == ("stop", "ann@a.example")


# Why it was lost


def test_an_expired_lease_is_found_by_the_next_claim(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Also when the job has its end by now, and another attempt was to follow."""
    a.win(minute(1))
    store.expire(KEY)
    a.keep(b.win(minute(2), retries=1))
    store.expire(KEY)
    a.win(minute(3))
    found = [(each.outcome, each.lost_reason) for each in reversed(log.executions())]
    assert found == [("lost", "expired"), ("failed", "expired"), ("running", None)]


@pytest.mark.parametrize("kept", [False, True])
def test_what_is_freed_by_hand_was_released(
    a: Host, store: StoreKind, log: Log, kept: bool
) -> None:
    """Running, or between two attempts."""
    lease = a.win(minute(1), retries=1)
    if kept:
        a.keep(lease)
    store.expire(KEY)
    released = log.people.release(KEY, 0, lease.execution_id, author="bob@b.example", force=False)
    assert released.answer == "free"
    assert (log.newest().outcome, log.newest().lost_reason) == (
        "failed" if kept else "lost",
        "released",
    )


@pytest.mark.parametrize("newer_first", [False, True])
def test_a_later_start_supersedes_what_has_no_end(
    a: Host, b: Host, log: Log, newer_first: bool
) -> None:
    """Whichever of the two is delivered first; the end, told later, replaces `lost` and not the reason."""
    records = [
        execution_record(host.firing(minute(number)), fencing_token=10 + number)
        for number, host in ((1, a), (2, b))
    ]
    starts = [
        {**each, "outcome": "running", "finished_at": None, "duration": None} for each in records
    ]
    a.deliver(*(starts[::-1] if newer_first else starts))
    told = {each.tick: (each.outcome, each.lost_reason) for each in log.executions()}
    assert told == {minute(1).text: ("lost", "superseded"), minute(2).text: ("running", None)}
    a.deliver(records[0])
    told = {each.tick: (each.outcome, each.lost_reason) for each in log.executions()}
    assert told[minute(1).text] == ("succeeded", "superseded")


@pytest.mark.parametrize("reason", LOST_BY_HOLDER)
@pytest.mark.parametrize("how", ["in time", "late", "delivered", "never seen"])
def test_the_holder_says_why_it_was_lost(
    a: Host, b: Host, store: StoreKind, log: Log, reason: str, how: str
) -> None:
    """Its word counts, also when the store has taken the lease away before, or knows nothing of it."""
    firing = a.firing(minute(1))
    lease = None
    if how != "never seen":
        answer = a.ask(firing)
        assert isinstance(answer, Lease)
        lease = answer
    if how in ("late", "delivered"):
        store.expire(KEY)
        b.run(minute(2))
    told = ending("lost")._replace(lost_reason=reason)
    if how in ("delivered", "never seen"):
        a.deliver(execution_record(firing, lease, "lost", lost_reason=reason))
    else:
        in_time = a.store.finish(lease, told, EVERYTHING, deadline=a.deadline())
        assert in_time is (how == "in time")
    [lost] = log.executions(HistoryQuery(tick=minute(1).text, key=KEY))
    assert (lost.outcome, lost.lost_reason) == ("lost", reason)


@pytest.mark.parametrize("delivered", [False, True])
def test_the_reason_stays_when_the_end_is_told_later(
    a: Host, b: Host, store: StoreKind, log: Log, delivered: bool
) -> None:
    """It ran to its end; that its lease had been lost is known all the same."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    store.expire(KEY)
    b.run(minute(2))
    if delivered:
        a.deliver(execution_record(firing, lease, "failed"))
    else:
        assert not a.finish(lease, "failed")
    [ended] = log.executions(HistoryQuery(tick=minute(1).text, key=KEY))
    assert (ended.outcome, ended.lost_reason) == ("failed", "expired")


# Who asked for its end


def test_what_is_asked_stays_with_the_execution(a: Host, b: Host, log: Log) -> None:
    """From when it is asked, and after the end; the last one counts, and the next execution has none."""
    lease = a.win(minute(1))
    assert asked(log.newest()) == (None, None)
    ask(log, lease)
    assert asked(log.newest()) == ("stop", "ann@a.example")
    ask(log, lease, RELEASE)
    assert asked(log.newest()) == ("release", "bob@b.example")
    a.finish(lease, "stopped")
    assert asked(log.newest()) == ("release", "bob@b.example")
    b.run(minute(2))
    assert asked(log.newest()) == (None, None)


def test_a_request_that_a_renewal_told_ends_with_its_attempt(a: Host, log: Log) -> None:
    """The next attempt's lease has none, though the lease it follows had."""
    lease = a.win(minute(1), retries=2)
    ask(log, lease)
    told = a.renew(lease)
    assert told
    assert told.request == STOP
    assert a.retried(told).request is None


def test_the_holder_tells_what_it_was_asked(a: Host, log: Log) -> None:
    """A log beside the store has not been asked itself."""
    lease = a.win(minute(1))
    told = ending("stopped")._replace(request=STOP)
    assert a.store.finish(lease, told, EVERYTHING, deadline=a.deadline())
    assert asked(log.newest()) == ("stop", "ann@a.example")
    told_late = {"request": "release", "requested_by": "bob@b.example"}
    a.deliver(execution_record(a.firing(minute(2)), outcome="stopped", **told_late))
    assert asked(log.newest()) == ("release", "bob@b.example")
    start = execution_record(a.firing(minute(3)), outcome="running", fencing_token=2**52)
    a.deliver({**start, "finished_at": None, "duration": None})
    a.deliver({**start, **told_late, "outcome": "stopped"})
    assert asked(log.newest()) == ("release", "bob@b.example")


# What no program may write


@pytest.mark.parametrize("store_kind", ["postgres", "sqlite"])
@pytest.mark.parametrize(
    "wrong",
    [
        "cause = 'cron'",
        "cause = NULL",
        "lost_reason = 'unknown'",
        "outcome = 'lost'",
        "lost_at = started_at",
        "request = 'pause', requested_by = 'ann@a.example'",
        "request = 'stop'",
        "requested_by = 'ann@a.example'",
    ],
)
def test_a_database_takes_no_other_word(a: Host, store: Any, wrong: str) -> None:
    """Nor a loss without a reason, nor a request of nobody."""
    a.run(minute(1))
    if isinstance(store, PostgresKind):
        with pytest.raises(psycopg.errors.IntegrityError):
            store.database.execute(f"update oncecron.job_execution set {wrong}")
    else:
        with pytest.raises(sqlite3.IntegrityError):
            store.run(f"UPDATE job_execution SET {wrong}")
