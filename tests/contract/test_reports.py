"""What jobs, accounts and audits ask of a store: traces, timelines, keys."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hosts import COMMAND, KEY, Host, execution_record, minute, skip_record

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Lease
from oncecron.core.text import Clock
from oncecron.core.tick import scheduled_tick
from oncecron.log.account import account
from oncecron.log.jobs import Sources, jobs
from oncecron.log.overlap import Question, audit
from oncecron.log.tick_history import facts_of

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

    from oncecron.log.overlap import Finding


@pytest.fixture
def past(a: Host, b: Host) -> None:
    """Three executions of one key, one of another, two refusals."""
    a.run(minute(1))
    b.run(minute(2), "failed")
    a.lose(minute(2))
    b.lose(minute(1))
    a.run(minute(3))
    b.run(minute(3), key="weekly")


@pytest.mark.usefixtures("past")
def test_a_trace_says_when_it_was_due_and_fired(log: Log) -> None:
    """Beside what history shows."""
    for each in log.people.traced(HistoryQuery(limit=None)):
        assert each.instant is not None
        assert (each.fired_at, each.lost_at) == (each.instant + 1, None)


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


def test_what_has_no_living_lease_is_known_to_run_no_more(
    a: Host, store: StoreKind, log: Log
) -> None:
    """By the store's clock and the token of its lease."""
    a.win(minute(1))
    assert outcomes(log) == ["running"] * 2
    store.expire(KEY)
    assert outcomes(log) == ["no-end"] * 2


def outcomes(log: Log) -> list[str | None]:
    """Return how the only key goes, at a glance and in an account."""
    now = clock.wall()
    facts = facts_of(Sources(log.people, log.people, now), KEY, None)
    [job] = jobs(Sources(log.people, log.people, now))
    return [job.outcome, account(facts, Clock(utc=True)).verdict]


def test_a_tick_is_given_up_when_its_last_attempt_has_failed(a: Host, log: Log) -> None:
    """Not before, and not when that attempt succeeded."""
    for number, outcome in ((1, "failed"), (2, "succeeded")):
        first = a.win(minute(number), retries=1)
        a.keep(first)
        assert not given_up(log, number)
        last = a.retry(first)
        assert isinstance(last, Lease)
        assert not given_up(log, number)
        a.finish(last, outcome)
        assert given_up(log, number) == (outcome == "failed")


def given_up(log: Log, number: int) -> bool:
    """Return whether the account of a tick says that no attempt follows."""
    facts = facts_of(Sources(log.people, log.people, clock.wall()), KEY, minute(number).text)
    headline, *_ = account(facts, Clock(utc=True)).sentences
    return headline.endswith("given up after 2 attempts.")


# The audit, where time has to be moved


def findings(log: Log) -> list[Finding]:
    """Return what an audit finds."""
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


def test_an_execution_that_has_lost_its_lease_runs_no_more(
    a: Host, store: StoreKind, log: Log
) -> None:
    """An expired one is none; one that lives is."""
    a.win(minute(1))
    assert findings(log) == []
    store.expire(KEY)
    [found] = findings(log)
    assert found.finding == "no-end"
    assert "recorded as running, but its lease has ended" in found.reason


def test_two_that_ran_without_the_store_are_found(a: Host, b: Host, log: Log) -> None:
    """Unclaimed executions gave the promise up, and the proof says so."""
    tick = scheduled_tick("* * * * *", "UTC", clock.wall())
    for host in (a, b):
        firing = host.firing(tick)
        host.deliver(execution_record(firing, outcome="unclaimed", command=COMMAND, late=True))
    found = findings(log)
    assert [each.finding for each in found] == ["twice", "overlap"]
    assert "(unclaimed: no lease)" in found[0].reason


def test_a_refusal_that_was_told_late_keeps_its_reason(a: Host, log: Log) -> None:
    """As its detail."""
    firing = a.firing(minute(1))
    record = skip_record(firing, "no-store", clock.wall())
    a.deliver({**record, "detail": "connection refused"})
    [traced] = log.people.traced_skips(HistoryQuery(key=KEY))
    assert traced.skip.reason == "no-store"
    assert traced.skip.detail == "connection refused"
