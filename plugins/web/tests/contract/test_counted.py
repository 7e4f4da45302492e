"""The counters of `metrics`: they begin with 0, agree with the history, and never fall, whatever retention removes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hosts import KEY, Host, minute

from oncecron.core import clock
from oncecron.core.model import Retention
from oncecron.core.tick import NO_TICK, named_tick
from oncecron_web.counters import Counts, count, counts_in, line_of

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

LATER = 60.0
"""Skips are counted a little after their time."""


def again(counts: Counts, log: Log) -> Counts:
    """Look once more, as the next process does, which reads the line of the file."""
    read = counts_in(line_of(counts), counts.log)
    return count(read, log.people, clock.wall() + LATER)


def test_what_is_new_is_counted_once_and_stays_counted(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """By outcome and reason; a run when it ends, also if it began before the first look."""
    a.run(minute(0))
    b.lose(minute(0))
    store.age(120)
    running = a.win(named_tick("long"))
    counts = count(Counts("log"), log.people, clock.wall())
    assert (counts.runs, counts.skips) == ({}, {})
    known = {each.execution_id for each in log.executions()} - {running.execution_id}
    b.lose(minute(1))
    assert a.finish(running, "failed")
    a.run(minute(2))
    b.lose(minute(2))
    b.fire(minute(2))
    a.run(NO_TICK, "timed-out")
    for number in range(3, 6):
        a.run(minute(number))
    started = a.win(minute(6))
    for _ in range(2):
        counts = again(counts, log)
        new = [each for each in log.executions() if each.execution_id not in known]
        ended = Counter(each.outcome for each in new if each.outcome != "running")
        assert counts.runs == {KEY: ended} == {KEY: {"failed": 1, "succeeded": 4, "timed-out": 1}}
        assert counts.skips == {KEY: {"held": 1, "done": 1}}
    store.age(1000)
    assert min(log.people.prune(Retention(executions=500, skips=500))) > 0
    after = again(counts, log)
    assert (after.runs, after.skips) == (counts.runs, counts.skips)
    assert a.finish(started)
    assert again(after, log).runs == {KEY: {"failed": 1, "succeeded": 5, "timed-out": 1}}
