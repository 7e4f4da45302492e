"""Spooled records: told late, perhaps twice, perhaps of what the store never saw."""

from typing import Any

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute, skip_record

from oncecron.core import clock
from oncecron.core.model import Firing, Lease, Refusal, Retention, owner_digest
from oncecron.core.tick import NO_TICK, Tick, named_tick


def won(host: Host, number: int = 1) -> tuple[Firing, Lease]:
    firing = host.firing(minute(number))
    lease = host.ask(firing)
    assert isinstance(lease, Lease)
    return firing, lease


# What the store knows


def test_what_ran_is_ended_and_released(a: Host, b: Host, log: Log) -> None:
    """The store was away at the end, and is told now."""
    firing, lease = won(a)
    a.deliver(execution_record(firing, lease, note="store away"))
    execution = log.newest()
    assert (execution.outcome, execution.exit_code, execution.duration) == ("succeeded", 0, 2.0)
    assert "store away" in (execution.note or "")
    a.store.close()
    b.win(minute(2))


def test_what_was_lost_becomes_what_happened(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """With a note, and without a touch to the lease that is not its own."""
    firing, lease = won(a)
    store.expire(KEY)
    taken = b.win(minute(2))
    a.deliver(execution_record(firing, lease))
    ended = log.people.execution(lease.execution_id)
    assert ended is not None
    assert ended.outcome == "succeeded"
    assert ended.note
    assert b.renew(taken)


@pytest.mark.parametrize("state", ["running", "lost", "ended", "unseen"])
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "lost", "not-started", "unclaimed"])
def test_a_record_delivered_twice_is_delivered_once(
    a: Host, b: Host, store: StoreKind, log: Log, state: str, outcome: str
) -> None:
    """Whatever the store knew of it before."""
    firing, lease = won(a)
    if state == "lost":
        store.expire(KEY)
        b.win(minute(2))
    elif state == "ended":
        a.finish(lease)
    elif state == "unseen":
        firing = b.firing(minute(1))
    record = execution_record(firing, None if state == "unseen" else lease, outcome)
    a.deliver(record)
    once, leases = log.executions(), log.leases()
    a.deliver(record, record)
    assert (log.executions(), log.leases()) == (once, leases)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_delivered_word_that_it_did_not_start_opens_the_tick(
    a: Host, b: Host, log: Log, numbered: bool
) -> None:
    """As if it had been said in time; who gave up before an answer never knew the number, and means its newest."""
    firing, lease = won(a)
    record = execution_record(firing, lease, "not-started")
    a.deliver(record if numbered else {**record, "attempt": None})
    a.store.close()
    assert b.win(minute(1)).attempt == 2
    assert log.outcomes() == ["not-started", "running"]


def test_who_gave_up_before_an_answer_was_not_lost(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Its lease was taken away meanwhile: it learns that it had it, without a skip, and the tick is open again."""
    firing, lease = won(a)
    store.expire(KEY)
    assert b.lose(minute(1)).detail == "lost"
    answer = a.ask(firing)
    assert isinstance(answer, Refusal)
    assert (answer.own, answer.reason, answer.holder) == (True, "done", a.holder)
    assert [skip.host for skip in log.skips()] == [b.holder.host]
    a.deliver({**execution_record(firing, lease, "not-started"), "attempt": None})
    assert log.outcomes() == ["not-started"]
    assert b.win(minute(1)).attempt == 2


def test_another_owners_record_ends_nothing(a: Host, b: Host, log: Log) -> None:
    """What runs goes on, under its lease."""
    _, lease = won(a)
    b.deliver(execution_record(b.firing(minute(1)), lease))
    assert a.renew(lease)
    assert sorted(log.outcomes()) == ["running", "succeeded"]


# What it never saw


def test_what_the_store_never_saw_is_put_in(a: Host, log: Log) -> None:
    """With all its fields, and no token where there was no lease."""
    firing = a.firing(minute(1))
    record = execution_record(firing, outcome="unclaimed")
    a.deliver(record)
    [execution] = log.executions()
    assert execution[1:6] == (KEY, 0, minute(1).text, 1, "unclaimed")
    assert (execution.host, execution.pid, execution.user) == a.holder
    assert (execution.owner, execution.fencing_token) == (owner_digest(firing.owner), None)
    assert execution.started_at == pytest.approx(record["started_at"], abs=0.001)
    assert execution.finished_at == pytest.approx(record["finished_at"], abs=0.001)
    assert log.none_held()


@pytest.mark.parametrize("how", ["told", "spooled"])
def test_a_loss_that_was_told_is_final(a: Host, b: Host, log: Log, how: str) -> None:
    """Its guard saw the end of it: a later word that it did not start opens nothing."""
    firing, lease = won(a)
    if how == "told":
        a.finish(lease, "lost")
    else:
        a.deliver(execution_record(firing, lease, "lost"))
        a.store.close()
    before = log.executions()
    a.deliver(execution_record(firing, None, "not-started", attempt=None, late=True))
    a.finish(lease, "not-started")
    assert log.executions() == before
    refusal = b.lose(minute(1))
    assert (refusal.reason, refusal.detail) == ("done", "lost")
    assert b.lose(NO_TICK, min_gap=300.0).reason == "recent"


def test_a_taken_number_becomes_the_next(a: Host, b: Host, log: Log) -> None:
    """Another execution of the tick has it."""
    a.run(minute(1))
    record = execution_record(b.firing(minute(1)), outcome="unclaimed")
    b.deliver(record, record)
    attempts = [(execution.attempt, execution.outcome) for execution in log.executions()]
    assert attempts == [(2, "unclaimed"), (1, "succeeded")]


def test_what_did_not_start_and_was_never_seen_is_dropped(a: Host, b: Host, log: Log) -> None:
    """It says nothing."""
    a.deliver(execution_record(a.firing(minute(1)), outcome="not-started"))
    assert log.executions() == []
    b.win(minute(1))


def test_a_start_in_the_future_counts_as_now(a: Host, b: Host, log: Log) -> None:
    """The clock of its host was wrong; the gap after it is the usual one. The record keeps what the host said."""
    ahead = clock.wall() + 300 * 86400
    a.deliver(execution_record(a.firing(NO_TICK), outcome="succeeded", started_at=ahead))
    assert log.newest().started_at == pytest.approx(ahead, abs=0.001)
    refusal = b.lose(NO_TICK, min_gap=30.0)
    assert refusal.reason == "recent"
    assert refusal.since is not None
    assert refusal.since <= clock.wall()


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
def test_a_delivered_tick_is_done(a: Host, b: Host, tick: Tick) -> None:
    """It has run, though nobody asked."""
    a.deliver(execution_record(a.firing(tick), outcome="unclaimed"))
    assert b.lose(tick).reason == "done"


def test_a_delivered_tick_moves_the_high_water(a: Host, b: Host) -> None:
    """Else retention would open it again."""
    a.deliver(execution_record(a.firing(minute(2)), outcome="unclaimed"))
    assert b.lose(minute(1)).reason == "passed"


# The log beside another store: what runs is told too, and no lease is here


def run_of(host: Host, number: int, token: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the records of the start and the end of a run under a lease of another store."""
    end = execution_record(host.firing(minute(number)), fencing_token=token)
    start = {**end, "outcome": "running", "exit_code": None, "finished_at": None, "duration": None}
    return start, end


def by_tick(log: Log) -> dict[str | None, str]:
    return {execution.tick: execution.outcome for execution in log.executions()}


def test_a_delivered_start_runs_until_its_end(a: Host, log: Log) -> None:
    """With its token, and without an end; the row stays the same one."""
    start, end = run_of(a, 1, 11)
    a.deliver(start, start)
    running = log.newest()
    assert (running.outcome, running.fencing_token, running.note) == ("running", 11, None)
    assert (running.finished_at, running.duration) == (None, None)
    a.deliver(end, start)
    [ended] = log.executions()
    assert (ended.execution_id, ended.outcome, ended.exit_code) == (
        *(running.execution_id, "succeeded"),
        0,
    )
    assert ended.finished_at == pytest.approx(end["finished_at"], abs=0.001)
    assert log.none_held()


def test_a_higher_token_ends_what_ran_unheard(a: Host, b: Host, log: Log) -> None:
    """The lease's store has given the key to a newer holder: one runs, the other is lost, with a word."""
    (first, _), (second, _) = run_of(a, 1, 11), run_of(b, 2, 12)
    a.deliver(first)
    b.deliver(second)
    assert by_tick(log) == {minute(1).text: "lost", minute(2).text: "running"}
    assert log.executions()[1].note


def test_a_start_that_comes_after_a_higher_token_is_lost(a: Host, b: Host, log: Log) -> None:
    """What runs with the higher token runs on."""
    (first, _), (second, _) = run_of(a, 1, 11), run_of(b, 2, 12)
    b.deliver(second)
    a.deliver(first, first)
    assert by_tick(log) == {minute(1).text: "lost", minute(2).text: "running"}
    assert log.newest().note


@pytest.mark.parametrize("newer_first", [False, True])
def test_an_end_replaces_what_was_taken_for_lost(
    a: Host, b: Host, log: Log, newer_first: bool
) -> None:
    """The truth, told late: a lost start has its end, and what ran later is not touched."""
    (first, ended), (second, _) = run_of(a, 1, 11), run_of(b, 2, 12)
    for host, record in [(b, second), (a, first)] if newer_first else [(a, first), (b, second)]:
        host.deliver(record)
    a.deliver(ended)
    assert by_tick(log) == {minute(1).text: "succeeded", minute(2).text: "running"}


def test_a_higher_token_does_not_touch_what_has_ended(a: Host, b: Host, log: Log) -> None:
    """Nor what ran without a lease."""
    _, ended = run_of(a, 1, 11)
    unclaimed = execution_record(a.firing(minute(2)), outcome="unclaimed")
    a.deliver(ended, unclaimed)
    b.deliver(run_of(b, 3, 12)[0])
    assert by_tick(log) == {
        minute(1).text: "succeeded",
        minute(2).text: "unclaimed",
        minute(3).text: "running",
    }


def test_a_delivered_start_leaves_a_lease_of_this_store_alone(a: Host, b: Host, log: Log) -> None:
    """Whoever has a lease here lives: the start of an unknown holder is lost, not that one."""
    _, lease = won(a)
    b.deliver(run_of(b, 2, lease.token + 1)[0])
    assert a.renew(lease)
    assert by_tick(log) == {minute(1).text: "running", minute(2).text: "lost"}


def test_a_delivered_start_is_lost_beside_a_kept_lease(a: Host, b: Host, log: Log) -> None:
    """Nothing is recorded as running between two attempts; the next one must be free to start."""
    _, lease = won(a)
    assert a.keep(lease, "failed")
    b.deliver(run_of(b, 2, lease.token + 1)[0])
    assert by_tick(log) == {minute(1).text: "failed", minute(2).text: "lost"}
    assert a.retried(lease).attempt == 2


def test_what_was_granted_and_not_started_is_put_in(a: Host, b: Host, log: Log) -> None:
    """It has a token, so somebody was granted it; its tick stays open."""
    a.deliver({**run_of(a, 1, 11)[1], "outcome": "not-started", "exit_code": None})
    assert log.outcomes() == ["not-started"]
    assert b.win(minute(1)).attempt == 2


def test_a_log_keeps_to_its_retention(a: Host, log: Log) -> None:
    """The end of an execution removes what is expired, a start does not."""
    old = execution_record(a.firing(NO_TICK), started_at=1e9)
    start, end = run_of(a, 1, 11)
    for record, left in ((start, 2), (end, 1)):
        a.deliver(old)
        a.store.deliver(record, deadline=a.deadline(), retention=Retention())
        assert len(log.executions()) == left


# Refusals


def no_store(host: Host, *, at: float) -> dict[str, Any]:
    """Return what a firing of the tick keeps while the store is away."""
    return skip_record(host.firing(minute(1)), "no-store", at)


def test_a_refusal_is_counted_whatever_its_hosts_clock_showed(a: Host, log: Log) -> None:
    """The clock was set back meanwhile: each firing is one more, and the row is as old as its newest."""
    now = clock.wall()
    records = [no_store(a, at=now - ago) for ago in (10, 20, 20, 5, 30)]
    for record in records:
        a.deliver(record, record)
    [skip] = log.skips()
    assert skip.count == len(records)
    assert skip.at == pytest.approx(now - 5, abs=0.001)


def test_a_refusal_told_again_between_those_of_another_user_is_counted_once(
    a: Host, log: Log
) -> None:
    """Two users of a host share the row, and each delivers a spool of its own."""
    mine, others = ([no_store(a, at=clock.wall() - ago) for ago in (20, 10)] for _ in range(2))
    a.deliver(mine[0], others[0], mine[0], mine[1], others[0], others[1], mine[1])
    assert log.counts() == {"no-store": 4}


def test_a_refusal_that_the_store_counted_itself_is_another(a: Host, b: Host, log: Log) -> None:
    """What is delivered and what is refused by the store are counted in one row, each once."""
    record = skip_record(a.firing(minute(1)), "held", clock.wall())
    a.deliver(record)
    b.win(minute(1))
    a.lose(minute(1))
    a.deliver(record)
    assert log.counts() == {"held": 2}


def test_an_attempt_never_seen_leaves_the_lease_of_another(a: Host) -> None:
    """Only an execution's own lease goes with its end."""
    firing, lease = won(a)
    a.deliver(execution_record(firing, lease, attempt=2, fencing_token=None, late=True))
    assert a.renew(lease)
