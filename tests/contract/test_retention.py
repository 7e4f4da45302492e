"""What retention and prune remove, and that no tick comes back by it."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, blocked_by, execution_record, minute, skip_record

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Lease, Retention
from oncecron.core.tick import NO_TICK, Tick, named_tick

NOTHING = Retention(executions=0.0, skips=0.0)
EVERY = HistoryQuery(limit=None)


def test_prune_removes_what_is_older(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """And says how many executions and refusals went."""
    a.run(minute(1))
    b.lose(minute(1))
    store.age(1000)
    a.run(minute(2))
    b.lose(minute(2))
    assert log.people.prune(Retention(executions=500, skips=500)) == (1, 1)
    assert [execution.tick for execution in log.executions()] == [minute(2).text]
    assert [skip.tick for skip in log.skips()] == [minute(2).text]


def test_prune_removes_more_than_one_step(a: Host, log: Log) -> None:
    """All that is due goes."""
    for number in range(700):
        a.deliver(execution_record(a.firing(NO_TICK), started_at=1e9 + number))
    assert log.people.prune(Retention(executions=1000)) == (700, 0)


@pytest.mark.parametrize("most", [2, 1000])
def test_a_dry_run_counts_step_by_step(
    a: Host, b: Host, store: StoreKind, log: Log, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """What prune then removes (`conftest.Log`), past what is kept: names, what runs, and what is young."""
    for batch in ("redis.reader._BATCH", "postgres.reader._BATCH", "sqlite.reader._ROWS_PER_STEP"):
        monkeypatch.setattr(f"oncecron.stores.{batch}", most)
    for number in range(5):
        a.run(named_tick(f"n{number}"))
        a.run(minute(number), key="other")
        b.lose(minute(number), key="other")
        b.lose(named_tick(f"n{number}"))
    lease = a.win(minute(9), key="runs")
    store.age(1000)
    a.run(minute(10), key="other")
    b.lose(minute(10), key="other")
    executions, skips = log.people.prune(Retention(executions=500, skips=500), names_kept=2)
    assert (executions, skips) == (8, 10)
    assert len(log.executions(EVERY)) == 4
    assert a.finish(lease)


def test_prune_never_removes_what_runs(a: Host, store: StoreKind, log: Log) -> None:
    """However old it is."""
    lease = a.win(minute(1))
    store.age(30)
    assert log.people.prune(NOTHING) == (0, 0)
    assert a.finish(lease)


def test_prune_opens_no_instant(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """The log is gone; the key's row remembers how far it came."""
    a.run(minute(1))
    a.run(minute(2))
    store.age(10)
    assert log.people.prune(NOTHING) == (2, 0)
    assert [b.lose(minute(number)).reason for number in (1, 2)] == ["passed", "passed"]
    b.win(minute(3))


def test_prune_keeps_the_newest_names_of_each_key(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Names are unique in the log alone."""
    for number in range(5):
        a.run(named_tick(f"n{number}"))
    a.run(named_tick("n0"), key="weekly")
    store.age(10)
    assert log.people.prune(NOTHING, names_kept=2) == (3, 0)
    assert [b.lose(named_tick(f"n{number}")).reason for number in (3, 4)] == ["done", "done"]
    assert b.lose(named_tick("n0"), key="weekly").reason == "done"


def test_prune_keeps_names_with_all_their_attempts(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """It counts names, not executions. An attempt that was delivered and started before the first one stays too."""
    for number in range(5):
        a.run(named_tick(f"n{number}"), "failed")
        a.run(named_tick(f"n{number}"), again=True)
    late = a.firing(named_tick("n4"))
    a.deliver(execution_record(late, fencing_token=7, started_at=clock.wall() - 1000))
    store.age(10)
    assert log.people.prune(NOTHING, names_kept=2) == (6, 0)
    assert b.lose(named_tick("n3")).reason == "done"
    assert b.win(named_tick("n4"), again=True).attempt == 4


def test_prune_keeps_names_that_are_not_old(a: Host, log: Log) -> None:
    """Beyond the newest they are kept for their time."""
    for number in range(3):
        a.run(named_tick(f"n{number}"))
    assert log.people.prune(Retention(), names_kept=1) == (0, 0)


@pytest.mark.parametrize("tick", [minute(50), NO_TICK, named_tick("x")])
def test_an_end_removes_at_most_a_hundred_rows(a: Host, log: Log, tick: Tick) -> None:
    """A little at every end, so that no end takes long."""
    for number in range(150):
        a.deliver(execution_record(a.firing(NO_TICK), started_at=1e9 + number))
    lease = a.win(tick)
    a.finish(lease, retention=Retention(executions=1000))
    assert len(log.executions(EVERY)) == 51
    a.finish(a.win(NO_TICK), retention=Retention(executions=1000))
    assert len(log.executions(EVERY)) == 2


def test_an_end_removes_the_skips_of_a_tick_of_many_hosts(a: Host, log: Log) -> None:
    """As many as a tick adds, however many hosts there are: else the log would grow for ever."""
    firing = a.firing(minute(1))
    hosts = [firing.holder._replace(host=f"h{number}") for number in range(300)]
    a.deliver(*(skip_record(firing._replace(holder=each), "late", 1e9) for each in hosts))
    a.finish(a.win(minute(2)), retention=Retention(skips=1000))
    assert log.skips() == []


def test_ends_of_other_keys_remove_what_a_key_without_ends_has(
    a: Host, store: StoreKind, log: Log
) -> None:
    """It has been retired, or every host of it is gone."""
    retired = a.firing(NO_TICK, key="retired")
    a.deliver(skip_record(retired, "late", 1e9), execution_record(retired, started_at=1e9))
    for number in range(200):
        store.age(11)  # on PostgreSQL, not every end removes
        a.finish(a.win(named_tick(f"n{number}")), retention=Retention(executions=1000, skips=1000))
        if {each.key for each in (*log.skips(), *log.executions(EVERY))} == {KEY}:
            return
    raise AssertionError("they are still there after 200 ends")


def test_an_end_removes_old_refusals(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """They have a retention of their own."""
    a.run(minute(1))
    b.lose(minute(1))
    store.age(1000)
    a.finish(a.win(minute(2)), retention=Retention(skips=2000))
    assert log.counts() == {"done": 1}
    store.age(10)
    a.finish(a.win(minute(3)), retention=Retention(skips=500))
    assert log.counts() == {}


def test_an_end_opens_no_tick(a: Host, b: Host, store: StoreKind) -> None:
    """Neither an instant nor a name comes back, even where nothing is to be kept."""
    for tick in (minute(1), named_tick("x")):
        lease = a.win(tick)
        store.age(1)
        a.finish(lease, retention=NOTHING)
    store.age(10)
    a.finish(a.win(minute(2)), retention=NOTHING)
    assert b.lose(minute(1)).reason == "passed"
    assert b.lose(named_tick("x")).reason == "done"


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11"), NO_TICK])
def test_retention_leaves_what_is_to_be_followed(
    a: Host, b: Host, store: StoreKind, log: Log, tick: Tick
) -> None:
    """It has ended, however long ago, and its lease has not."""
    lease = a.win(tick, retries=2)
    a.keep(lease)
    store.age(30)
    b.finish(b.win(tick, key="weekly"), retention=NOTHING)
    store.age(5)
    log.people.prune(NOTHING, names_kept=1)
    assert lease.execution_id in [each.execution_id for each in log.executions()]
    assert blocked_by(b.fire(tick)).execution_id == lease.execution_id
    second = a.retry(lease)
    assert isinstance(second, Lease)
    assert second.attempt == 2
