"""What people read: filters and order of executions and refusals."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute

from oncecron.core import clock
from oncecron.core.log_rows import INTERNAL, HistoryQuery
from oncecron.core.tick import NO_TICK
from oncecron.log.jobs import jobs
from oncecron.log.sources import Sources


@pytest.fixture
def past(a: Host, b: Host, store: StoreKind) -> None:
    """Four executions, the first of them an hour ago."""
    a.run(minute(1))
    store.age(3600)
    a.run(minute(2), "failed")
    b.run(minute(3))
    b.run(minute(3), key="weekly")


@pytest.mark.parametrize(
    ("query", "ticks"),
    [
        (HistoryQuery(), [3, 3, 2, 1]),
        (HistoryQuery(limit=2), [3, 3]),
        (HistoryQuery(limit=None), [3, 3, 2, 1]),
        (HistoryQuery(key=KEY), [3, 2, 1]),
        (HistoryQuery(key=KEY, limit=1), [3]),
        (HistoryQuery(key="monthly"), []),
        (HistoryQuery(host="a.example"), [2, 1]),
        (HistoryQuery(outcomes=["failed"]), [2]),
        (HistoryQuery(key=KEY, outcomes=["succeeded"], host="a.example"), [1]),
        (HistoryQuery(tick=minute(3).text), [3, 3]),
        (HistoryQuery(tick=minute(3).text, key=KEY), [3]),
    ],
)
@pytest.mark.usefixtures("past")
def test_history_is_filtered_and_newest_first(
    log: Log, query: HistoryQuery, ticks: list[int]
) -> None:
    """Filters are joined by `and`; None means any."""
    assert [execution.tick for execution in log.executions(query)] == [
        minute(number).text for number in ticks
    ]


def test_a_tick_is_found_behind_what_was_recorded_late(a: Host, log: Log) -> None:
    """What was inserted late started before what was inserted earlier."""
    a.run(minute(1))
    a.deliver(execution_record(a.firing(NO_TICK), started_at=1e9))
    assert len(log.executions(HistoryQuery(key=KEY, tick=minute(1).text))) == 1


def test_history_of_what_failed(a: Host, log: Log) -> None:
    """Every end but a success; also of a run without a lease, by its exit status. The limit counts what is shown."""
    ends = ("failed", "timed-out", "stopped", "lost", "not-started", "succeeded")
    for number, outcome in enumerate(ends, 1):
        a.run(minute(number), outcome)
    for number, exit_code in ((7, 3), (8, 0)):
        record = execution_record(a.firing(minute(number)), outcome="unclaimed")
        a.deliver({**record, "exit_code": exit_code})
    a.win(minute(9))
    for query, numbers in (
        (HistoryQuery(failed=True), [7, 5, 4, 3, 2, 1]),
        (HistoryQuery(failed=True, limit=2), [7, 5]),
        (HistoryQuery(outcomes=["unclaimed", "lost", "running"]), [9, 8, 7, 4]),
        (HistoryQuery(outcomes=["failed", "lost"], key=KEY, limit=1), [4]),
    ):
        found = [each.tick for each in log.executions(query)]
        assert found == [minute(number).text for number in numbers], query


def test_what_oncecron_runs_for_itself_takes_no_room(a: Host, b: Host, log: Log) -> None:
    """Neither among executions nor among skips, packed or not: the limit counts the others."""
    for key in ("oncecronic", "oncecron", "z"):
        a.run(minute(1), key=key)
        b.lose(minute(1), key=key)
    for number in (2, 3):
        a.run(minute(number), key="oncecron/notify")
        b.lose(minute(number), key="oncecron/notify")
    b.lose(minute(1), key="oncecron/notify")  # passed, with its details
    query = HistoryQuery(without=INTERNAL, limit=3)
    for found in (log.executions(query), [*log.people.skips(query)]):
        assert sorted(each.key for each in found) == ["oncecron", "oncecronic", "z"]
    assert len([*log.people.skips(query._replace(without=None, limit=None))]) == 6
    sources = Sources(log.people, log.people, clock.wall())
    assert len([*jobs(sources)]) == 4
    assert [job.key for job in jobs(sources, internal=False)] == ["oncecron", "oncecronic", "z"]


@pytest.mark.usefixtures("past")
def test_history_since(log: Log) -> None:
    """Counted by the start."""
    newest = log.newest().started_at
    assert len(log.executions(HistoryQuery(since=newest - 1800))) == 3
    assert len(log.executions(HistoryQuery(since=newest - 7200))) == 4
    before = log.executions(HistoryQuery(until=newest - 1800, limit=1))
    assert [each.started_at < newest - 1800 for each in before] == [True]
    assert not log.executions(HistoryQuery(since=newest - 1800, until=newest - 1800))


@pytest.mark.usefixtures("past")
def test_history_after_an_id_is_oldest_first(log: Log) -> None:
    """For following the log: what came since, as it came."""
    ids = sorted(execution.execution_id for execution in log.executions())
    after = log.executions(HistoryQuery(after_id=ids[0]))
    assert [execution.execution_id for execution in after] == ids[1:]
    ours = log.executions(HistoryQuery(after_id=ids[0], key=KEY, limit=1))
    assert [execution.execution_id for execution in ours] == ids[1:2]
    assert log.executions(HistoryQuery(after_id=ids[-1])) == []


@pytest.mark.usefixtures("past")
def test_one_execution_is_found_by_its_id(log: Log) -> None:
    """The same row as in the list, or none."""
    newest = log.newest()
    assert log.people.execution(newest.execution_id) == newest
    assert log.people.execution(newest.execution_id + 1) is None


def test_reading_does_not_have_to_come_to_an_end(a: Host, log: Log) -> None:
    """Who has seen enough may ask something else."""
    a.run(minute(1))
    a.run(minute(2))
    reader = log.people.history(HistoryQuery())
    first = next(reader)
    assert log.people.execution(first.execution_id) == first
    other = log.people.history(HistoryQuery())
    assert next(other) == first
    del reader
    assert len(list(other)) == 1


@pytest.mark.parametrize(
    ("query", "reasons"),
    [
        (HistoryQuery(), ["passed", "done"]),
        (HistoryQuery(limit=1), ["passed"]),
        (HistoryQuery(outcomes=["done"]), ["done"]),
        (HistoryQuery(outcomes=["done", "passed"]), ["passed", "done"]),
        (HistoryQuery(tick=minute(1).text), ["passed"]),
        (HistoryQuery(host="bb.example"), ["passed", "done"]),
        (HistoryQuery(host="a.example"), []),
        (HistoryQuery(key="weekly"), []),
    ],
)
def test_refusals_are_filtered_and_newest_first(
    a: Host, b: Host, log: Log, query: HistoryQuery, reasons: list[str]
) -> None:
    """By the same filters; `outcomes` means the reasons."""
    a.run(minute(2))
    b.lose(minute(2))
    b.lose(minute(1))
    assert [skip.reason for skip in log.people.skips(query)] == reasons


def test_refusals_since(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Counted by the newest of each row."""
    a.run(minute(2))
    b.lose(minute(2))
    store.age(3600)
    b.lose(minute(1))
    at = log.skips()[0].at
    assert [skip.reason for skip in log.people.skips(HistoryQuery(since=at - 60))] == ["passed"]
    before = [skip.reason for skip in log.people.skips(HistoryQuery(until=at - 60))]
    assert before
    assert "passed" not in before
