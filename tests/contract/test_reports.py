"""What jobs, accounts and audits ask of a store: traces, timelines, keys."""

import time
from typing import Any

from contract_log import Log
from contract_stores import StoreKind
from hosts import COMMAND, KEY, Host, execution_record, minute

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Lease
from oncecron.core.text import Clock
from oncecron.host.local_time import scheduled_tick
from oncecron.log.audit import Question, audit
from oncecron.log.protocol import Breach


def test_what_was_lost_says_when(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Also after it has told how it ended."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    store.expire(KEY)
    b.run(minute(2))
    [_, lost] = log.people.traced(HistoryQuery())
    assert lost.lost_at is not None
    assert lost.execution.outcome == "lost"
    a.deliver(execution_record(firing, lease))  # type: ignore[arg-type]
    [_, told] = log.people.traced(HistoryQuery())
    assert (told.lost_at, told.execution.outcome) == (lost.lost_at, "succeeded")


def test_what_was_lost_was_so_before_the_next_start(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """By the one clock of the claim that declared it lost."""
    a.ask(a.firing(minute(1)))
    store.expire(KEY)
    taken = b.ask(b.firing(minute(2)))
    [lost] = [each for each in log.people.traced(HistoryQuery()) if each.lost_at]
    assert isinstance(taken, Lease)
    assert lost.lost_at <= taken.started_at


def test_the_timeline_is_in_the_order_of_starts_part_by_part(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """What was put in late has its place there, and other questions may be asked meanwhile."""
    a.run(minute(1))
    b.run(minute(1), key="weekly")
    store.age(3600)
    a.run(minute(3))
    late = b.firing(minute(2))
    b.deliver(execution_record(late, outcome="unclaimed", started_at=clock.wall() - 1800, late=True))  # fmt: skip
    seen = []
    for each in log.people.timeline(None):
        seen.append((each.execution.key, each.execution.tick))
        assert log.people.execution(each.execution.execution_id) == each.execution
        assert list(log.people.skips(HistoryQuery(limit=None))) == []
    ticks = [(KEY, minute(number).text) for number in (1, 2, 3)]
    assert seen == [*ticks, ("weekly", minute(1).text)]
    recent = [each.execution.tick for each in log.people.timeline(clock.wall() - 2700)]
    assert recent == [minute(2).text, minute(3).text]
    [weekly] = log.people.timeline(None, ["weekly", "never"])
    assert weekly.execution.key == "weekly"


# The audit, where time has to be moved


def findings(log: Log) -> list[Breach]:
    question = Question(
        log.people, log.people, None, 86400.0, clock.wall(), Clock(utc=True), _no_wait
    )
    return list(audit(question))


def _no_wait() -> None:
    return


def test_a_lost_tick_is_no_gap_and_a_late_word_no_overlap(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """The dead host tells in the end; its clock was fast."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    store.expire(KEY)
    b.run(minute(2))
    assert [found.finding for found in findings(log)] == ["no-end"]
    told = execution_record(firing, lease, duration=0.001, finished_at=time.time() + 200)  # type: ignore[arg-type]
    a.deliver({**told, "late": True})
    assert findings(log) == []


def test_two_that_ran_without_the_store_are_found(a: Host, b: Host, log: Log) -> None:
    """Unclaimed executions gave the promise up, and the proof says so."""
    tick = scheduled_tick("* * * * *", "UTC", clock.wall())
    told: dict[str, Any] = {"outcome": "unclaimed", "command": COMMAND, "late": True}
    told |= {"started_at": clock.wall() - 2, "finished_at": clock.wall()}
    for host in (a, b):
        host.deliver(execution_record(host.firing(tick), **told))
    found = findings(log)
    assert [each.finding for each in found] == ["twice", "overlap"]
    assert "(unclaimed: no lease)" in found[0].reason
