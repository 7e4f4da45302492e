"""Going on with what was lost: who waits, for how long, who gets it, and when nobody does any more."""

from typing import Any

import pytest
from at_once import at_once
from contract_log import Log
from contract_stores import StoreKind
from hosts import INTERVAL, KEY, TTL, Host, blocked_by, execution_record, minute

from oncecron.core.model import Lease, Refusal, Request, Retention
from oncecron.core.tick import NO_TICK, Tick, named_tick

GOES_ON: dict[str, Any] = {"failover": True, "retries": 2}
STANDBYS = 12
SILENT = 2.5 * INTERVAL
STOP = Request("stop", "ann@a.example", 15, None)


# A tick whose holder was lost


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
def test_a_lost_tick_goes_on(a: Host, b: Host, store: StoreKind, log: Log, tick: Tick) -> None:
    """As its next attempt with a higher token, and known as a takeover."""
    first = a.win(tick, **GOES_ON)
    store.expire(KEY)
    second = b.win(tick, **GOES_ON)
    assert second.attempt == 2
    assert store.fence(KEY) == second.token > first.token
    assert log.outcomes() == ["lost", "running"]
    assert [each.cause for each in log.executions()] == ["takeover", "schedule"]
    assert a.renew(first) is None
    assert b.finish(second)
    assert a.lose(tick, **GOES_ON).reason == "done"


def test_only_who_was_told_to_goes_on(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """For any other firing it is done, whoever had it; that does not close it for those that go on."""
    a.win(minute(1), **GOES_ON)
    store.expire(KEY)
    refusal = b.lose(minute(1), retries=2)
    assert (refusal.reason, refusal.detail) == ("done", "lost")
    assert log.outcomes() == ["lost"]
    assert b.win(minute(1), **GOES_ON).attempt == 2


def test_a_takeover_that_did_not_start_leaves_the_tick_open(
    a: Host, b: Host, store: StoreKind
) -> None:
    """What counts is the newest attempt that started."""
    a.win(minute(1), **GOES_ON)
    store.expire(KEY)
    b.run(minute(1), "not-started", **GOES_ON)
    assert b.lose(minute(1)).reason == "done"
    assert a.run(minute(1), **GOES_ON).attempt == 3
    assert b.lose(minute(1), **GOES_ON).reason == "done"


def test_a_forgotten_attempt_closes_no_lost_tick(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Retention removes the first attempt: the tick goes on after the second, and counts on."""
    a.win(minute(1), **GOES_ON)
    store.age(2000)
    store.expire(KEY)
    b.win(minute(1), **GOES_ON)
    assert log.people.prune(Retention(executions=1000)) == (1, 0)
    store.expire(KEY)
    assert a.win(minute(1), **GOES_ON).attempt == 3


def test_attempts_of_a_tick_are_exhausted(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """A job that kills its host does not go round the cluster for ever: the count is the tick's."""
    for _ in range(2):
        a.win(minute(1), failover=True, retries=1)
        store.expire(KEY)
    refusal = b.lose(minute(1), failover=True, retries=1)
    assert (refusal.reason, refusal.holder, refusal.detail) == ("exhausted", a.holder, "lost")
    assert log.outcomes() == ["lost", "lost"]
    assert log.none_held()
    assert log.counts() == {"exhausted": 1}
    assert b.lose(minute(1)).reason == "done"
    b.win(minute(2))


def test_the_truth_told_late_ends_what_was_lost(a: Host, b: Host, store: StoreKind) -> None:
    """The record of its end arrives before anybody went on: it is done."""
    firing = a.firing(minute(1), **GOES_ON)
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    store.expire(KEY)
    assert b.lose(minute(1)).detail == "lost"
    a.deliver(execution_record(firing, lease, "failed"))
    refusal = b.lose(minute(1), **GOES_ON)
    assert (refusal.reason, refusal.detail) == ("done", "failed")


def test_one_of_many_goes_on(a: Host, store: StoreKind, log: Log) -> None:
    """All find the lost tick at the same moment: one gets it, the others are to wait for that one."""
    a.win(minute(1), **GOES_ON)
    store.expire(KEY)
    answers = at_once(store, STANDBYS, lambda host, _: host.fire(minute(1), **GOES_ON))
    [winner] = [answer for answer in answers if isinstance(answer, Lease)]
    assert winner.attempt == 2
    losers = [answer for answer in answers if answer is not winner]
    assert {blocked_by(answer).execution_id for answer in losers} == {winner.execution_id}
    assert sorted(log.outcomes()) == ["lost", "running"]


# Waiting for a living lease


@pytest.mark.parametrize("tick", [minute(1), NO_TICK])
@pytest.mark.parametrize("kept", [False, True])
def test_a_heartbeat_is_the_same_while_its_holder_is_silent(
    a: Host, b: Host, tick: Tick, kept: bool
) -> None:
    """And another as soon as the lease was renewed; also between two attempts."""
    lease = a.win(tick, **GOES_ON)
    if kept:
        a.keep(lease)
    firing = b.firing(tick, **GOES_ON)
    first, second = (blocked_by(b.ask(firing)).heartbeat for _ in range(2))
    assert first == second
    assert a.renew(lease)
    assert blocked_by(b.ask(firing)).heartbeat != first


@pytest.mark.parametrize("tick", [minute(1), NO_TICK])
def test_who_is_held_learns_what_is_in_the_way(
    a: Host, b: Host, store: StoreKind, tick: Tick
) -> None:
    """Which execution, and how long its lease still lasts, so that whoever waits wakes at its end."""
    lease = a.win(tick, **GOES_ON)
    for passed in (0.0, SILENT):
        store.age(passed)
        told = blocked_by(b.fire(tick, **GOES_ON))
        assert (told.execution_id, told.same_tick) == (lease.execution_id, True)
        assert told.ends_in == pytest.approx(TTL - passed, abs=20)


def test_waiting_is_one_refusal(a: Host, b: Host, log: Log) -> None:
    """Who was told `held` before is not counted each time that it asks; another firing is."""
    lease = a.win(minute(1), **GOES_ON)
    firing = b.firing(minute(1), **GOES_ON)
    b.ask(firing)
    for _ in range(3):
        b.ask(firing, awaited=lease.execution_id)
    assert log.counts() == {"held": 1}
    b.lose(minute(1), **GOES_ON)
    assert log.counts() == {"held": 2}


def test_what_ended_the_waiting_is_counted(a: Host, b: Host, log: Log) -> None:
    """It is the last word of that firing."""
    lease = a.run(minute(1), **GOES_ON)
    assert b.lose(minute(1), awaited=lease.execution_id, **GOES_ON).reason == "done"
    assert log.counts() == {"done": 1}


def test_who_waited_goes_on(a: Host, b: Host, store: StoreKind) -> None:
    """With the owner that it had when it was refused."""
    lease = a.win(minute(1), **GOES_ON)
    firing = b.firing(minute(1), **GOES_ON)
    blocked_by(b.ask(firing))
    store.expire(KEY)
    answer = b.ask(firing, awaited=lease.execution_id)
    assert isinstance(answer, Lease)
    assert answer.attempt == 2


# Without a tick: a leader and its standbys


def led(a: Host, b: Host, store: StoreKind, outcome: str, silent: float = 0.0) -> tuple[Any, Lease]:
    """Return what a standby gets once the leader has ended so, and the leader's lease.

    `silent`: for how long the leader has not renewed when the standby comes.
    """
    lease = a.win(NO_TICK, **GOES_ON)
    store.age(silent)
    firing = b.firing(NO_TICK, **GOES_ON)
    told = b.ask(firing)
    assert isinstance(told, Refusal), f"only `held` tells a firing whom it awaits, not {told}"
    assert blocked_by(told).execution_id == lease.execution_id
    if outcome == "lost":
        store.expire(KEY)
    else:
        assert a.finish(lease, outcome)
    return b.ask(firing, awaited=lease.execution_id), lease


@pytest.mark.parametrize("silent", [0.0, SILENT])
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "timed-out"])
def test_standbys_leave_when_the_leader_ended(
    a: Host, b: Host, store: StoreKind, outcome: str, silent: float
) -> None:
    """It was to end, also if it seemed dead when they came."""
    answer, _ = led(a, b, store, outcome, silent)
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.holder, answer.detail) == ("done", a.holder, outcome)


@pytest.mark.parametrize("silent", [0.0, SILENT])
@pytest.mark.parametrize("outcome", ["lost", "not-started", "stopped"])
def test_a_standby_follows_a_leader_that_went_away(
    a: Host, b: Host, store: StoreKind, log: Log, outcome: str, silent: float
) -> None:
    """Its host vanished or shuts down. A loss is recorded as such on what follows."""
    answer, lease = led(a, b, store, outcome, silent)
    assert isinstance(answer, Lease)
    assert answer.attempt == 1
    assert answer.token > lease.token
    assert log.newest().cause == ("takeover" if outcome == "lost" else "schedule")


@pytest.mark.parametrize("late", [False, True])
def test_standbys_leave_when_the_leader_was_asked_to_stop(
    a: Host, b: Host, log: Log, late: bool
) -> None:
    """Somebody wants it to be over; also where its end was told late."""
    firing = a.firing(NO_TICK, **GOES_ON)
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    assert log.people.request(KEY, 0, lease.execution_id, STOP)
    if late:
        a.deliver(execution_record(firing, lease, "stopped"))
        a.store.close()
    else:
        a.finish(lease, "stopped")
    answer = b.fire(NO_TICK, awaited=lease.execution_id, **GOES_ON)
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.detail) == ("done", "stopped")


@pytest.mark.parametrize("kept", [False, True])
def test_the_gap_does_not_hold_up_a_standby(a: Host, b: Host, store: StoreKind, kept: bool) -> None:
    """Else nothing ran any more. Who awaited nothing keeps the gap, and one takeover is enough."""
    lease = a.win(NO_TICK, **GOES_ON)
    if kept:
        a.keep(lease)
    store.expire(KEY)
    gap: dict[str, Any] = {"min_gap": 300.0, **GOES_ON}
    assert b.lose(NO_TICK, **gap).reason == "recent"
    late = b.firing(NO_TICK, **gap)
    b.run(NO_TICK, awaited=lease.execution_id, **gap)
    assert getattr(b.ask(late, awaited=lease.execution_id), "reason", "") == "done"


def test_a_standby_goes_by_the_newest_start(a: Host, b: Host, store: StoreKind) -> None:
    """What was taken over and ended by itself was to end; what was started anew, and lost, is to go on."""
    lost = a.win(NO_TICK, **GOES_ON)
    store.expire(KEY)
    b.run(NO_TICK, awaited=lost.execution_id, **GOES_ON)
    assert a.lose(NO_TICK, awaited=lost.execution_id, **GOES_ON).reason == "done"
    a.win(NO_TICK)
    store.expire(KEY)
    assert isinstance(b.fire(NO_TICK, awaited=lost.execution_id, **GOES_ON), Lease)


def test_a_request_stays_known_after_a_loss(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """The leader stopped as it was asked, but its lease was taken for lost meanwhile."""
    lease = a.win(NO_TICK, **GOES_ON)
    log.people.request(KEY, 0, lease.execution_id, STOP)
    store.expire(KEY)
    b.run(NO_TICK)
    assert not a.finish(lease, "stopped")
    answer = b.fire(NO_TICK, awaited=lease.execution_id, **GOES_ON)
    assert getattr(answer, "reason", answer) == "done"


def test_standbys_wait_for_all_attempts_of_the_leader(a: Host, b: Host) -> None:
    """What they awaited was followed by another while nobody looked: that one's end counts."""
    first = a.win(NO_TICK, **GOES_ON)
    second = a.retried(first)
    told = blocked_by(b.fire(NO_TICK, awaited=first.execution_id, **GOES_ON))
    assert told.execution_id == second.execution_id
    a.finish(second)
    answer = b.fire(NO_TICK, awaited=first.execution_id, **GOES_ON)
    assert (getattr(answer, "reason", answer), getattr(answer, "detail", "")) == (
        *("done",),
        "succeeded",
    )


def test_standbys_leave_when_the_leader_gave_up(a: Host, b: Host, log: Log) -> None:
    """Of the attempt that it began, and never heard of, nothing started: the end before it counts."""
    lease = a.win(NO_TICK, **GOES_ON)
    a.retried(lease)
    assert a.finish(lease, "failed")
    assert log.outcomes() == ["failed", "not-started"]
    answer = b.fire(NO_TICK, awaited=lease.execution_id, **GOES_ON)
    assert (getattr(answer, "reason", answer), getattr(answer, "detail", "")) == ("done", "failed")
    assert [each.execution_id for each in log.exhausted()] == [lease.execution_id]


def test_a_leader_that_dies_between_attempts_is_followed(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """It had failed and was to try again."""
    lease = a.win(NO_TICK, **GOES_ON)
    a.keep(lease)
    store.expire(KEY)
    answer = b.fire(NO_TICK, awaited=lease.execution_id, **GOES_ON)
    assert isinstance(answer, Lease)
    assert log.newest().cause == "takeover"
