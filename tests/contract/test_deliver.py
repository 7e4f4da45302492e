"""Spooled records: told late, perhaps twice, perhaps of what the store never saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosts import KEY, Host, execution_record, minute, skip_record

from oncecron import clock
from oncecron.model import Lease
from oncecron.tick import NO_TICK, named_tick

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

    from oncecron.model import Firing
    from oncecron.tick import Tick


def won(host: Host, number: int = 1) -> tuple[Firing, Lease]:
    """Return a firing with its lease."""
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


def test_what_was_lost_can_stay_lost(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Its child was stopped: the record adds how."""
    firing, lease = won(a)
    store.expire(KEY)
    b.win(minute(2))
    a.deliver(execution_record(firing, lease, "lost", signal=15))
    ended = log.people.execution(lease.execution_id)
    assert ended is not None
    assert (ended.outcome, ended.signal) == ("lost", 15)


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


def test_an_end_is_not_overwritten(a: Host, log: Log) -> None:
    """The record was delivered already, or the end had reached the store."""
    firing, lease = won(a)
    a.finish(lease)
    before = log.executions()
    a.deliver(execution_record(firing, lease, "failed"))
    assert log.executions() == before


def test_a_delivered_word_that_it_did_not_start_opens_the_tick(a: Host, b: Host, log: Log) -> None:
    """As if it had been said in time."""
    firing, lease = won(a)
    a.deliver(execution_record(firing, lease, "not-started"))
    a.store.close()
    assert b.win(minute(1)).attempt == 2
    assert log.outcomes() == ["not-started", "running"]


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
    assert (execution.owner, execution.fencing_token) == (firing.owner, None)
    assert execution.started_at == pytest.approx(record["started_at"], abs=0.001)
    assert execution.finished_at == pytest.approx(record["finished_at"], abs=0.001)
    assert log.leases() == []


def test_a_taken_number_becomes_the_next(a: Host, b: Host, log: Log) -> None:
    """Another execution of the tick has it."""
    a.run(minute(1))
    record = execution_record(b.firing(minute(1)), outcome="unclaimed")
    b.deliver(record, record)
    attempts = [(execution.attempt, execution.outcome) for execution in log.executions()]
    assert attempts == [(2, "unclaimed"), (1, "succeeded")]


def test_two_owners_without_a_claim_are_two_attempts(a: Host, b: Host, log: Log) -> None:
    """Both ran, each on its own, and both are in the log, once."""
    first = execution_record(a.firing(minute(1)), outcome="unclaimed")
    second = execution_record(b.firing(minute(1)), outcome="unclaimed")
    a.deliver(first, second, first, second)
    assert sorted(execution.attempt for execution in log.executions()) == [1, 2]


def test_without_a_tick_there_is_no_number_to_take(a: Host, b: Host, log: Log) -> None:
    """Each is the first attempt at nothing."""
    a.deliver(execution_record(a.firing(NO_TICK)), execution_record(b.firing(NO_TICK)))
    assert [execution.attempt for execution in log.executions()] == [1, 1]


def test_what_did_not_start_and_was_never_seen_is_dropped(a: Host, b: Host, log: Log) -> None:
    """It says nothing."""
    a.deliver(execution_record(a.firing(minute(1)), outcome="not-started"))
    assert log.executions() == []
    b.win(minute(1))


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
def test_a_delivered_tick_is_done(a: Host, b: Host, tick: Tick) -> None:
    """It has run, though nobody asked."""
    a.deliver(execution_record(a.firing(tick), outcome="unclaimed"))
    assert b.lose(tick).reason == "done"


def test_a_delivered_tick_moves_the_high_water(a: Host, b: Host, log: Log) -> None:
    """Else retention would open it again."""
    a.deliver(execution_record(a.firing(minute(2)), outcome="unclaimed"))
    assert b.lose(minute(1)).reason == "passed"


# Refusals


def test_a_delivered_refusal_is_counted_once(a: Host, log: Log) -> None:
    """Also when it is delivered again after a newer one."""
    firing = a.firing(minute(1))
    first, second = (skip_record(firing, "no-store", clock.wall() - ago) for ago in (20, 10))
    a.deliver(first, first, second, first)
    assert log.counts() == {"no-store": 2}


def test_a_delivered_refusal_is_a_row_like_others(a: Host, log: Log) -> None:
    """With the time at which it happened."""
    at = clock.wall() - 100
    a.deliver(skip_record(a.firing(minute(1)), "no-store", at))
    [skip] = log.skips()
    assert (skip.key, skip.tick, skip.reason, skip.host) == (
        *(KEY, minute(1).text),
        *("no-store", a.holder.host),
    )
    assert skip.at == pytest.approx(at, abs=0.001)
