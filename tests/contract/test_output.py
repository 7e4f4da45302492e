"""What a job wrote: kept with its execution, and no longer than that."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import EVERYTHING, KEY, Host, execution_record, minute

from oncecron.core.model import Lease, Output, Retention

WORDS = Output('first "line"\n\tné 移動 \\xff %s {ns} \U0001f40d\n', 0)
NOTHING = Retention(executions=0.0, skips=0.0)


@pytest.mark.parametrize(
    "output",
    [WORDS, Output("the end of it", 4096), Output("", 0), Output("1234567\n" * 2**15, 2**40)],
    ids=["words", "cut", "empty", "long"],
)
def test_what_was_captured_is_kept(a: Host, log: Log, output: Output) -> None:
    """As it is, with how much came before; also that it was nothing."""
    lease = a.win(minute(1))
    assert a.finish(lease, "failed", output=output)
    assert log.people.output(lease.execution_id) == output
    assert log.newest().outcome == "failed"


def test_what_was_not_captured_is_not_there(a: Host, log: Log) -> None:
    """Neither while it runs, nor after, nor of what there never was."""
    lease = a.win(minute(1))
    assert log.people.output(lease.execution_id) is None
    a.finish(lease)
    assert log.people.output(lease.execution_id) is None
    assert log.people.output(lease.execution_id + 1) is None


def test_each_attempt_has_its_own(a: Host, log: Log) -> None:
    """What the first wrote stays when it is kept, and when it is told again."""
    first = a.win(minute(1), retries=2)
    a.keep(first, output=WORDS)
    a.keep(first, output=Output("other", 1))
    second = a.retry(first)
    assert isinstance(second, Lease)
    a.finish(second, output=Output("second", 2))
    a.finish(second, output=Output("third", 3))
    assert log.people.output(first.execution_id) == WORDS
    assert log.people.output(second.execution_id) == Output("second", 2)


def test_what_ended_late_has_its_output(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """The truth that replaces `lost`."""
    lease = a.win(minute(1))
    store.expire(KEY)
    b.win(minute(2))
    assert not a.finish(lease, output=WORDS)
    assert log.people.output(lease.execution_id) == WORDS


@pytest.mark.parametrize("known", [True, False])
def test_delivered_output_is_kept(a: Host, log: Log, known: bool) -> None:
    """Of an execution that the store knows, and of one that it never saw."""
    firing = a.firing(minute(1))
    lease = a.ask(firing) if known else None
    assert known == isinstance(lease, Lease)
    told = {"output": WORDS.text, "output_cut": 7}
    outcome = "succeeded" if known else "unclaimed"
    record = execution_record(firing, lease, outcome, **told)  # type: ignore[arg-type]
    a.deliver(record, {**record, "output": "later"})
    assert log.people.output(log.newest().execution_id) == Output(WORDS.text, 7)


def test_a_delivered_start_gets_the_output_of_its_end(a: Host, log: Log) -> None:
    """In a log beside another store."""
    firing = a.firing(minute(1))
    end = execution_record(firing, fencing_token=11, output="words", output_cut=0)
    nothing = {"exit_code": None, "finished_at": None, "duration": None, "output": None}
    a.deliver({**end, **nothing, "outcome": "running", "output_cut": None})
    execution_id = log.newest().execution_id
    assert log.people.output(execution_id) is None
    a.deliver(end)
    assert log.people.output(execution_id) == Output("words", 0)


def test_output_is_pruned_with_its_execution(a: Host, store: StoreKind, log: Log) -> None:
    """Nothing of it stays."""
    lease = a.win(minute(1))
    a.finish(lease, output=WORDS)
    store.age(10)
    assert log.people.prune(NOTHING) == (1, 0)
    assert log.people.output(lease.execution_id) is None


def test_output_goes_with_its_retention(a: Host, store: StoreKind, log: Log) -> None:
    """The end of another execution takes it along."""
    lease = a.win(minute(1))
    a.finish(lease, output=WORDS)
    store.age(1000)
    a.finish(a.win(minute(2)), retention=EVERYTHING)
    assert log.people.output(lease.execution_id) == WORDS
    store.age(10)
    a.finish(a.win(minute(3)), retention=Retention(executions=500))
    assert log.people.output(lease.execution_id) is None
