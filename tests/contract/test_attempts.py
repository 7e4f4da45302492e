"""Attempts under one lease: ended and kept, begun, given up, and what became of those that nobody followed."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, TTL, Host, blocked_by, execution_record, minute

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import AskAgain, Firing, Lease, LostRun, Refusal, owner_digest, trust_after
from oncecron.core.tick import NO_TICK, Tick, named_tick

ANN = "ann@a.example"


def granted(host: Host, tick: Tick, retries: int = 2) -> tuple[Firing, Lease]:
    """Return a firing that may try again, with its lease."""
    firing = host.firing(tick, retries=retries)
    lease = host.ask(firing)
    assert isinstance(lease, Lease)
    return firing, lease


# keep


@pytest.mark.parametrize("outcome", ["failed", "timed-out"])
def test_the_end_of_an_attempt_is_recorded_and_the_lease_is_kept(
    a: Host, b: Host, store: StoreKind, log: Log, outcome: str
) -> None:
    """With how it ended; the lease is a whole ttl long and goes on."""
    lease = a.win(minute(1), retries=2)
    store.age(30)
    assert a.keep(lease, outcome, note="trying again")
    ended = log.newest()
    assert (ended.outcome, ended.duration, ended.note) == (outcome, 1.5, "trying again")
    assert ended.exit_code == (3 if outcome == "failed" else None)
    assert ended.finished_at == pytest.approx(clock.wall(), abs=20)
    [view] = log.leases()
    assert (view.execution_id, view.state, view.fencing_token) == (
        *(lease.execution_id, "held"),
        lease.token,
    )
    assert view.expires_at == pytest.approx(clock.wall() + TTL, abs=20)
    assert b.lose(minute(1)).reason == "held"
    assert b.lose(minute(2)).reason == "held"


def test_an_end_kept_twice_is_kept_once(a: Host, log: Log) -> None:
    """Its answer was lost: the same answer, and what was told first stays."""
    lease = a.win(minute(1), retries=2)
    assert a.keep(lease, note="first")
    before = log.executions()
    assert a.keep(lease, "timed-out", note="second")
    assert log.executions() == before


@pytest.mark.parametrize("kept", [False, True])
def test_the_claim_that_declares_a_run_lost_has_what_its_end_says(
    a: Host, b: Host, store: StoreKind, log: Log, kept: bool
) -> None:
    """As the log has it; once, and also between two attempts."""
    lease = a.win(named_tick("one"), retries=2)
    assert not kept or a.keep(lease)
    store.expire(KEY)
    found: list[tuple[Firing, LostRun]] = []
    b.store.on_lost = a.store.on_lost = lambda *lost: found.append(lost)
    b.run(minute(2))
    a.run(minute(3))
    [(firing, lost)] = found
    assert (firing.holder, lost.owner_digest) == (b.holder, owner_digest(lease.owner))
    [row] = [each for each in log.executions() if each.execution_id == lost.execution_id]
    same = [name for name in LostRun._fields if name not in ("owner_digest", "started_at")]
    assert {name: getattr(lost, name) for name in same} == {
        name: getattr(row, name) for name in same
    }
    assert (lost.outcome, lost.exit_code) == (("failed", 3) if kept else ("lost", None))
    assert (lost.lost_reason, lost.attempt) == ("expired", 1)
    assert lost.started_at == pytest.approx(row.started_at, abs=0.001)


def test_nothing_is_kept_of_a_lost_lease(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Nor is its end recorded by that: the firing tells it as one that came too late."""
    lease = a.win(minute(1), retries=2)
    store.expire(KEY)
    taken = b.win(minute(2))
    assert not a.keep(lease)
    assert not a.keep(lease)
    assert log.outcomes() == ["lost", "running"]
    assert b.renew(taken)
    assert not a.finish(lease, "failed")
    assert log.outcomes() == ["failed", "running"]


def test_an_expired_lease_that_nobody_took_can_be_kept(a: Host, store: StoreKind) -> None:
    """As it can be renewed."""
    lease = a.win(minute(1), retries=2)
    store.expire(KEY)
    assert a.keep(lease)
    assert isinstance(a.retry(lease), Lease)


# retry


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11"), NO_TICK])
def test_the_next_attempt_is_an_execution_of_its_own(
    a: Host, b: Host, store: StoreKind, log: Log, tick: Tick
) -> None:
    """With the next number, a higher token and the same owner; one runs, under the one lease."""
    firing, first = granted(a, tick)
    assert a.keep(first)
    store.age(30)
    before = clock.lease_time(a.store.lease_clock)
    second = a.retry(first)
    after = clock.lease_time(a.store.lease_clock)
    assert isinstance(second, Lease)
    assert second[:5] == (KEY, 0, tick.text, firing.owner, 2)
    assert store.fence(KEY) == second.token > first.token
    assert second.ttl == TTL
    assert second.started_at == pytest.approx(clock.wall(), abs=20)
    assert trust_after(before, TTL) <= second.trusted_until <= trust_after(after, TTL)
    newest, oldest = log.executions()
    assert (newest.execution_id, newest.fencing_token) == (second.execution_id, second.token)
    assert newest[1:7] == (KEY, 0, tick.text, 2, "running", None)
    assert (newest.host, newest.pid, newest.user) == a.holder
    assert (newest.command, newest.note) == (firing.command, None)
    assert newest.owner == owner_digest(firing.owner)
    assert (oldest.execution_id, oldest.outcome) == (first.execution_id, "failed")
    [view] = log.leases()
    assert (view.execution_id, view.attempt, view.fencing_token) == (
        *(second.execution_id, 2),
        second.token,
    )
    assert view.expires_at == pytest.approx(clock.wall() + TTL, abs=20)
    assert b.lose(tick).reason == "held"


def test_an_attempt_asked_for_twice_is_begun_once(a: Host, log: Log) -> None:
    """Its answer was lost: the same execution and token."""
    first = a.win(minute(1), retries=2)
    second = a.retried(first)
    again = a.retry(first)
    assert isinstance(again, Lease)
    assert again._replace(trusted_until=second.trusted_until) == second
    assert log.outcomes() == ["failed", "running"]


def test_attempts_are_counted_and_tokens_rise(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Across hosts: who goes on counts from where the tick was, and tries again under its own lease."""
    first = a.win(minute(1), failover=True, retries=5)
    second = a.retried(first)
    store.expire(KEY)
    third = b.win(minute(1), failover=True, retries=5)
    fourth = b.retried(third)
    assert b.finish(fourth)
    leases = [first, second, third, fourth]
    assert [lease.attempt for lease in leases] == [1, 2, 3, 4]
    assert sorted({lease.token for lease in leases}) == [lease.token for lease in leases]
    assert log.outcomes() == ["failed", "lost", "failed", "succeeded"]
    assert log.none_held()
    assert a.lose(minute(1), failover=True, retries=5).reason == "done"


def test_a_lease_moves_on_with_its_attempt(a: Host, log: Log) -> None:
    """Nobody renews or keeps under the number of the one before."""
    first = a.win(minute(1), retries=2)
    second = a.retried(first)
    assert a.renew(first) is None
    renewed = a.renew(second)
    assert renewed is not None
    assert renewed.execution_id == second.execution_id
    assert a.finish(second)
    assert log.outcomes() == ["failed", "succeeded"]


def test_a_claim_sent_again_gets_the_newest_attempt(a: Host) -> None:
    """One owner has one lease."""
    firing, first = granted(a, minute(1))
    second = a.retried(first)
    again = a.ask(firing)
    assert isinstance(again, Lease)
    assert (again.execution_id, again.attempt) == (second.execution_id, 2)


@pytest.mark.parametrize("how", ["paused", "drained"])
def test_a_pause_refuses_the_next_attempt(a: Host, b: Host, log: Log, how: str) -> None:
    """The lease stays until the firing has given up; what was recorded stays too, with a word more."""
    lease = a.win(minute(1), retries=2)
    a.keep(lease)
    if how == "paused":
        log.people.pause(KEY, author=ANN, reason="moving", seconds=None)
    else:
        log.people.drain(a.holder.host, author=ANN)
    refusal = a.retry(lease)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == how
    assert ANN in (refusal.detail or "")
    [skip] = log.skips()
    assert (skip.reason, skip.tick, skip.host, skip.detail) == (
        *(how, minute(1).text, a.holder.host),
        refusal.detail,
    )
    assert a.renew(lease)
    assert a.finish(lease, "stopped", note="given up")
    [execution] = log.executions()
    assert (execution.outcome, execution.exit_code, execution.note) == ("failed", 3, "given up")
    assert log.none_held()
    log.people.resume(KEY)
    assert b.lose(minute(1)).reason == "done"


def test_an_attempt_that_was_begun_before_a_pause_is_told_again(a: Host, log: Log) -> None:
    """Its answer was lost, and it had been granted."""
    lease = a.win(minute(1), retries=2)
    second = a.retried(lease)
    log.people.pause(KEY, author=ANN, reason=None, seconds=None)
    again = a.retry(lease)
    assert isinstance(again, Lease)
    assert again.execution_id == second.execution_id


# Given up


def test_what_is_given_up_is_final(a: Host, b: Host, log: Log) -> None:
    """The end stays, the note is added, the key is free; told again, it is the same."""
    lease = a.win(minute(1), failover=True, retries=2)
    a.keep(lease, note="first")
    assert a.finish(lease, "stopped", note="no time left")
    once = log.executions()
    assert (once[0].outcome, once[0].exit_code) == ("failed", 3)
    assert once[0].note == "first; no time left"
    assert log.none_held()
    assert a.finish(lease, "stopped", note="no time left")
    assert log.executions() == once
    refusal = b.lose(minute(1), failover=True, retries=2)
    assert (refusal.reason, refusal.detail) == ("done", "failed")
    b.win(minute(2))


def test_a_lease_that_is_lost_between_attempts_is_lost_for_good(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """No attempt is begun under it, also when the key is free again; giving up leaves the next holder alone."""
    lease = a.win(minute(1), retries=2)
    a.keep(lease)
    store.expire(KEY)
    taken = b.win(minute(2))
    assert a.retry(lease) is None
    for _ in range(2):
        assert not a.finish(lease, "stopped")
    assert log.outcomes() == ["failed", "running"]
    assert b.renew(taken)
    b.finish(taken)
    assert a.retry(lease) is None
    assert log.outcomes() == ["failed", "succeeded"]


def test_an_attempt_that_nobody_heard_of_did_not_start(a: Host, b: Host, log: Log) -> None:
    """The answer was lost and the firing gave up: no lease stays behind for what it never knew."""
    lease = a.win(minute(1), retries=2)
    a.retried(lease)
    assert a.finish(lease, "stopped")
    assert log.outcomes() == ["failed", "not-started"]
    assert log.none_held()
    refusal = b.lose(minute(1), failover=True, retries=2)
    assert (refusal.reason, refusal.detail) == ("done", "failed")


def test_what_is_given_up_can_be_told_late(a: Host, b: Host, log: Log) -> None:
    """The store was away when the firing gave up: the lease goes with the record."""
    firing, lease = granted(a, minute(1))
    a.keep(lease, note="first")
    record = execution_record(firing, lease, "failed", note="given up", late=True)
    a.deliver(record, record)
    a.store.close()
    [execution] = log.executions()
    assert (execution.outcome, execution.exit_code) == ("failed", 3)
    assert "given up" in (execution.note or "")
    assert log.none_held()
    assert b.lose(minute(1), failover=True, retries=2).reason == "done"


@pytest.mark.parametrize("spooled", [False, True])
def test_what_is_given_up_without_the_lease_is_final(
    a: Host, b: Host, store: StoreKind, log: Log, spooled: bool
) -> None:
    """Its owner wants no further attempt, and nobody had gone on: another name had the key meanwhile."""
    firing, lease = granted(a, named_tick("one"))
    a.keep(lease)
    store.expire(KEY)
    b.run(named_tick("two"))
    if spooled:
        a.deliver(execution_record(firing, lease, "failed", note="stopped", late=True))
    else:
        assert not a.finish(lease, "failed", note="stopped")
        assert not a.finish(lease, "failed", note="stopped")
    refusal = b.lose(named_tick("one"), failover=True, retries=2)
    assert (refusal.reason, refusal.detail) == ("done", "failed")
    assert "stopped" in log.notes()[0]


def test_who_has_gone_on_goes_on(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """The word that no attempt follows came too late; the takeover is taken over like any other."""
    _, lease = granted(a, minute(1))
    a.keep(lease)
    store.expire(KEY)
    second = b.win(minute(1), failover=True, retries=2)
    assert not a.finish(lease, "failed")
    assert b.renew(second)
    store.expire(KEY)
    assert a.win(minute(1), failover=True, retries=2).attempt == 3
    assert log.outcomes() == ["failed", "lost", "running"]


def test_an_unheard_attempt_and_the_end_told_late_are_final(a: Host, b: Host, log: Log) -> None:
    """Both were spooled while the store was away; the lease was never lost."""
    firing, lease = granted(a, minute(1))
    a.retried(lease)
    a.deliver(
        execution_record(firing, None, "not-started", attempt=None, late=True),
        execution_record(firing, lease, "failed", note="stopped", late=True),
    )
    a.store.close()
    assert log.outcomes() == ["failed", "not-started"]
    assert [each.lost_at for each in log.people.traced(HistoryQuery())] == [None, None]
    assert log.none_held()
    refusal = b.lose(minute(1), failover=True, retries=2)
    assert (refusal.reason, refusal.detail) == ("done", "failed")


# A host that dies between two attempts


def test_a_tick_goes_on_that_was_to_be_followed(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Its host died in the delay: a failover firing makes the attempt, for all others the tick is done."""
    first = a.win(minute(1), failover=True, retries=2)
    a.keep(first)
    assert blocked_by(b.fire(minute(1), failover=True, retries=2)).execution_id == (
        first.execution_id
    )
    store.expire(KEY)
    refusal = b.lose(minute(1), retries=2)
    assert (refusal.reason, refusal.detail) == ("done", "failed")
    second = b.win(minute(1), failover=True, retries=2)
    assert (second.attempt, log.outcomes()) == (2, ["failed", "running"])
    assert second.token > first.token
    assert log.newest().cause == "takeover"
    lost = list(log.people.traced(HistoryQuery()))[-1]
    assert lost.lost_at == pytest.approx(clock.wall(), abs=20)
    assert lost.execution.lost_reason == "expired"
    assert b.holder.host in (lost.execution.note or "")
    assert b.finish(second)
    assert a.lose(minute(1), failover=True, retries=2).reason == "done"


def test_a_newer_tick_waits_between_attempts(a: Host, b: Host, store: StoreKind) -> None:
    """A silent holder may be dead there too; when its lease has ended, the newer tick goes first."""
    a.keep(a.win(minute(1), failover=True, retries=2))
    store.age(30)
    answer = b.fire(minute(2))
    assert isinstance(answer, AskAgain)
    assert answer.why == "orphaned"
    store.expire(KEY)
    b.run(minute(2))
    assert a.lose(minute(1), failover=True, retries=2).reason == "passed"
