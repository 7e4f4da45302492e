"""Dead letters: the last attempts of what might have been tried again and was given up."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, minute

from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Lease
from oncecron.core.tick import NO_TICK


def test_dead_letters_are_the_last_of_what_was_tried_again(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Not what succeeded in the end, nor what goes on, nor what was to be tried once."""
    a.finish(a.retried(a.win(minute(1), retries=1)))
    a.run(minute(2), "failed")
    last = a.retried(a.win(minute(3), retries=1))
    assert log.exhausted() == []
    a.finish(last, "failed")
    kept = a.win(minute(4), retries=1)
    a.keep(kept)
    assert [each.execution_id for each in log.exhausted()] == [last.execution_id]
    second = a.retry(kept)
    assert isinstance(second, Lease)
    assert [each.execution_id for each in log.exhausted()] == [last.execution_id]
    store.expire(KEY)
    b.run(minute(5))
    assert [each.execution_id for each in log.exhausted()] == [
        *(second.execution_id,),
        last.execution_id,
    ]


@pytest.mark.parametrize("outcome", ["failed", "timed-out", "lost"])
def test_each_way_to_give_up_is_a_dead_letter(
    a: Host, b: Host, store: StoreKind, log: Log, outcome: str
) -> None:
    """Failed, out of time, or with the host."""
    lease = a.retried(a.win(minute(1), retries=1))
    if outcome == "lost":
        store.expire(KEY)
        b.lose(minute(1))
    else:
        a.finish(lease, outcome)
    [letter] = log.exhausted()
    assert (letter.execution_id, letter.outcome) == (lease.execution_id, outcome)
    assert [each.execution for each in log.people.traced(HistoryQuery(exhausted=True))] == [letter]


@pytest.mark.parametrize("outcome", ["succeeded", "stopped", "not-started"])
def test_other_ends_are_no_dead_letters(a: Host, log: Log, outcome: str) -> None:
    """Done, ended by somebody, or never begun."""
    a.run(minute(1), outcome, retries=1)
    assert log.exhausted() == []


def test_a_dead_letter_that_is_tried_once_more_is_none(a: Host, log: Log) -> None:
    """By hand, as soon as that has started; what did not start changes nothing."""
    lease = a.run(minute(1), "failed", retries=1)
    a.run(minute(1), "not-started", again=True)
    assert [each.execution_id for each in log.exhausted()] == [lease.execution_id]
    a.run(minute(1), again=True)
    assert log.exhausted() == []


def test_dead_letters_without_a_tick_are_counted_by_owner(a: Host, log: Log) -> None:
    """Each firing stands for itself."""
    first = a.retried(a.win(NO_TICK, retries=1))
    a.finish(first, "failed")
    second = a.run(NO_TICK, "failed", retries=1)
    a.run(NO_TICK, retries=1)
    assert [each.execution_id for each in log.exhausted()] == [
        *(second.execution_id,),
        first.execution_id,
    ]


def test_dead_letters_are_filtered(a: Host, b: Host, log: Log) -> None:
    """As history is; after an id the oldest comes first."""
    a.run(minute(1), "failed", retries=1)
    b.run(minute(2), "timed-out", retries=1)
    b.run(minute(3), "failed", retries=1, key="weekly")
    for query, ticks in (
        (HistoryQuery(), [3, 2, 1]),
        (HistoryQuery(limit=1), [3]),
        (HistoryQuery(key=KEY), [2, 1]),
        (HistoryQuery(key=KEY, tick=minute(1).text), [1]),
        (HistoryQuery(tick=minute(2).text), [2]),
        (HistoryQuery(host="a.example"), [1]),
        (HistoryQuery(outcomes=["timed-out"]), [2]),
        (HistoryQuery(outcomes=["succeeded"]), []),
        (HistoryQuery(since=log.newest().started_at + 60), []),
        (HistoryQuery(after_id=log.executions()[-1].execution_id), [2, 3]),
    ):
        found = log.executions(query._replace(exhausted=True))
        assert [each.tick for each in found] == [minute(number).text for number in ticks], query
