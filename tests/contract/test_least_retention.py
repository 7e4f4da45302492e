"""The least retention is the owner's: no caller has a younger record removed, and only a real end removes any."""

import uuid
from collections.abc import Callable

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import Host, execution_record, minute, skip_record

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery, LeastRetention, Roles
from oncecron.core.model import Retention
from oncecron.core.tick import NO_TICK, Tick, named_tick

NOTHING = Retention(executions=0.0, skips=0.0)
EVERY = HistoryQuery(limit=None)
FAR = named_tick("far")
AGES = (2000, 500)
"""Seconds since each execution and each skip of `old` happened."""


def keep(log: Log, **seconds: float) -> None:
    """Set the least retention, as `init` does."""
    log.people.initialise(Roles(), LeastRetention(**seconds))


def counts(log: Log) -> tuple[int, int]:
    """Return how many executions and how many skips of `old` there are."""
    return [each.tick for each in log.executions(EVERY)].count(None), len(log.skips())


@pytest.fixture
def old(a: Host, log: Log) -> Log:
    """Give a log with executions and skips of two ages, without a tick, so that no rule but their age keeps them."""
    now = clock.wall()
    for number, age in enumerate(AGES):
        a.deliver(
            execution_record(a.firing(NO_TICK), started_at=now - age),
            skip_record(a.firing(minute(number)), "held", now - age),
        )
    return log


def by_an_end(host: Host, wanted: Retention) -> None:
    host.finish(host.win(FAR), retention=wanted)


def by_the_last_word(host: Host, wanted: Retention) -> None:
    """Say that no retry follows the attempt that was kept."""
    lease = host.win(FAR, retries=1)
    assert host.keep(lease)
    host.finish(lease, retention=wanted)


def by_a_record(host: Host, wanted: Retention) -> None:
    """Deliver the end of an execution that the store never saw."""
    deliver(host, execution_record(host.firing(FAR)), wanted)


def by_a_late_record(host: Host, wanted: Retention) -> None:
    """Deliver the end of an execution that the store knows."""
    firing = host.firing(FAR)
    end = execution_record(firing, fencing_token=1)
    start = {"outcome": "running", "exit_code": None, "finished_at": None, "duration": None}
    host.deliver(end | start)
    deliver(host, end, wanted)


def deliver(host: Host, record: dict[str, object], wanted: Retention) -> None:
    """Deliver a record as the log mirror does."""
    host.store.deliver(record, deadline=host.deadline(), retention=wanted)


ENDS = [by_an_end, by_the_last_word, by_a_record, by_a_late_record]


@pytest.mark.parametrize("end", ENDS)
def test_an_end_removes_nothing_younger(a: Host, old: Log, end: Callable[..., None]) -> None:
    """Whatever the retention of its host; what is older goes by that retention."""
    keep(old, executions=1000.0, skips=1000.0)
    end(a, NOTHING)
    assert counts(old) == (1, 1)


@pytest.mark.parametrize("end", ENDS)
def test_the_longer_of_both_counts(a: Host, old: Log, end: Callable[..., None]) -> None:
    """Nothing goes that its host keeps, however short the least retention is."""
    keep(old, executions=1.0, skips=1.0)
    end(a, Retention(executions=1000.0, skips=1000.0))
    assert counts(old) == (1, 1)


@pytest.mark.parametrize("tick", [NO_TICK, named_tick("x")])
def test_prune_obeys_too(a: Host, store: StoreKind, log: Log, tick: Tick) -> None:
    """Its owner lowers the least retention first, for executions and skips alone; no other change touches it."""
    a.run(tick)
    a.run(named_tick("newest"))
    store.age(500)
    a.deliver(skip_record(a.firing(minute(1)), "held", clock.wall() - 500))
    keep(log, executions=1000.0, skips=1000.0)
    assert log.people.prune(NOTHING, names_kept=1) == (0, 0)
    keep(log, skips=0.0)
    assert log.people.least_retention() == Retention(1000.0, 0.0)
    assert log.people.prune(NOTHING, names_kept=1) == (0, 1)
    keep(log)
    keep(log, executions=250.5)
    assert log.people.least_retention() == Retention(250.5, 0.0)
    assert log.people.prune(NOTHING, names_kept=1) == (1, 0)


def test_an_end_that_is_none_removes_nothing(a: Host, b: Host, old: Log) -> None:
    """An execution that nobody knows, another owner's, or one that has ended already."""
    theirs, mine = b.win(minute(1)), a.win(minute(2), key="weekly")
    for lease in (
        theirs._replace(owner=str(uuid.uuid4())),
        theirs._replace(execution_id=10**9),
        mine._replace(execution_id=10**9, owner=str(uuid.uuid4())),
    ):
        a.finish(lease, retention=NOTHING)
        assert counts(old) == (2, 2)
    assert a.finish(mine)
    a.finish(mine, retention=NOTHING)
    assert counts(old) == (2, 2)
    assert b.finish(theirs)


def test_a_record_that_says_nothing_new_removes_nothing(a: Host, old: Log) -> None:
    """It was delivered before; it is a start; or nothing was ever granted."""
    firing = a.firing(FAR)
    record = execution_record(firing)
    a.deliver(record)
    unknown = execution_record(a.firing(FAR), outcome="not-started")
    start = {"outcome": "running", "exit_code": None, "finished_at": None, "duration": None}
    running = execution_record(a.firing(minute(1)), fencing_token=1) | start
    for said in (record, record | {"outcome": "failed"}, unknown, running):
        deliver(a, said, NOTHING)
    assert counts(old) == (2, 2)


def test_a_tick_of_which_an_attempt_was_removed_stays_closed(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """The attempt may have started, as far as every store knows."""
    keep(log, executions=0.0, skips=0.0)
    a.run(minute(5), "not-started")
    store.age(3000)
    a.run(minute(5), "not-started", again=True)
    assert log.people.prune(Retention(2000.0, 2000.0)) == (1, 0)
    assert b.lose(minute(5)).reason == "passed"
