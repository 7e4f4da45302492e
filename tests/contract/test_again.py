"""Further attempts at a tick, by `again`: exclusive, counted, and none of them opens what has had its start."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute

from oncecron.core.model import Lease, Retention
from oncecron.core.tick import NO_TICK, Tick, named_tick


def test_again_runs_a_tick_that_has_passed(a: Host, b: Host) -> None:
    """And does not open what lies between."""
    a.run(minute(3))
    assert b.run(minute(1), again=True).attempt == 1
    assert b.lose(minute(2)).reason == "passed"


def test_a_person_is_never_late(a: Host, b: Host) -> None:
    """The deadline keeps a schedule from a start hours later; who asks for the tick knows what time it is."""
    assert a.lose(minute(1), starting_deadline=1.0).reason == "late"
    assert b.run(minute(1), starting_deadline=1.0, again=True).attempt == 1


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "lost"])
@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
def test_a_further_attempt_that_did_not_start_opens_nothing(
    a: Host, b: Host, tick: Tick, outcome: str
) -> None:
    """The tick has had its start: it is `done`, by whoever made that."""
    a.run(tick, outcome)
    for _ in range(2):
        b.run(tick, "not-started", again=True)
        refusal = b.lose(tick)
        assert (refusal.reason, refusal.holder, refusal.detail) == ("done", a.holder, outcome)


def test_a_further_attempt_that_did_not_start_has_its_number(a: Host, b: Host, log: Log) -> None:
    """Attempts are counted whatever became of them, and no two of a tick are the same."""
    for outcome in ("not-started", "succeeded", "not-started", "not-started", "failed"):
        a.run(minute(1), outcome, again=True)
    b.lose(minute(1))
    assert [each.attempt for each in reversed(log.executions())] == [1, 2, 3, 4, 5]


def test_a_tick_is_open_when_the_word_comes_late_that_none_started(
    a: Host, b: Host, store: StoreKind
) -> None:
    """It had been taken for lost, and was tried again in vain: what opens a tick is that no attempt started."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    store.expire(KEY)
    b.run(minute(1), "not-started", again=True)
    assert b.lose(minute(1)).reason == "done"
    a.deliver(execution_record(firing, lease, "not-started"))
    assert b.win(minute(1)).attempt == 3


def test_a_forgotten_start_stays_one(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Retention removes the attempt that ran before a further one that did not start."""
    a.run(minute(1))
    store.age(2000)
    lease = b.win(minute(1), again=True)
    b.finish(lease, "not-started", retention=Retention(executions=1000))
    assert log.outcomes() == ["not-started"]
    assert b.lose(minute(1)).reason == "passed"


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
def test_attempts_are_counted_from_those_that_retention_leaves(
    a: Host, b: Host, log: Log, tick: Tick
) -> None:
    """An older one that still runs has its number, when a record that was delivered beside it is gone."""
    lease = a.win(tick)
    b.deliver(execution_record(b.firing(tick), fencing_token=7))
    newest = b.firing(named_tick("newest"))
    b.deliver(execution_record(newest, fencing_token=8, started_at=lease.started_at + 1))
    assert log.people.prune(Retention(executions=0.0), names_kept=1) == (1, 0)
    assert a.finish(lease)
    assert b.lose(tick).reason == "done"
    assert b.win(tick, again=True).attempt == 2


def test_again_without_a_tick_asks_for_no_end(a: Host, b: Host) -> None:
    """Also where it would wait for a run that has ended meanwhile: whoever says so wants another start."""
    lease = a.run(NO_TICK)
    assert isinstance(b.fire(NO_TICK, awaited=lease.execution_id, again=True, failover=True), Lease)
