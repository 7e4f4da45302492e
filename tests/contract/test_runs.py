"""What a timeline reads: the executions of a log, most of them packed, and what became of each tick on each host."""

from collections import Counter

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute

from oncecron.core import clock
from oncecron.core.log_rows import PACKED_OUTCOMES, EndedRuns, Traced
from oncecron.core.tick import NO_TICK, named_tick
from oncecron.log.grid import columns, gather
from oncecron.log.sources import Sources
from oncecron.log.timeline import KeyTicks, Span, last_runs, ticks_of

HOSTILE = 'we"b\\1\x1b[31m é'


@pytest.fixture
def past(a: Host, b: Host, store: StoreKind) -> None:
    """Give four keys a past in which everything can be met."""
    strange = Host(store.firing(), HOSTILE)
    for number, outcome in enumerate(PACKED_OUTCOMES, 1):
        a.run(minute(number), outcome)
        strange.run(minute(number), outcome, key="strange")
    b.run(minute(6), "not-started")
    lease = b.win(minute(7), retries=1)
    assert b.finish(b.retried(lease))
    a.run(minute(8))
    a.run(minute(8), "failed", again=True)
    record = execution_record(a.firing(minute(9)), outcome="unclaimed")
    b.deliver({**record, "exit_code": 3}, execution_record(a.firing(minute(10)), outcome="failed"))
    for shard in (0, 1):
        a.run(minute(3), "succeeded" if shard else "failed", key="divided", shard=shard, shards=2)
    for tick in (named_tick("campaign"), NO_TICK):
        a.run(tick, key="named")
    a.win(minute(11))


def packed(traced: Traced) -> tuple[tuple[str, str, str, bool], int] | None:
    """Return what is packed of an execution; None if all of it is read."""
    run = traced.execution
    named = run.tick is not None and traced.instant is None
    if run.attempt > 1 or run.shards > 1 or named or run.outcome not in PACKED_OUTCOMES:
        return None
    at = run.started_at if traced.instant is None else traced.instant
    return (run.key, run.host, run.outcome, run.tick is not None), int(at // 60 * 60)


@pytest.mark.parametrize("keys", [None, [KEY], ["divided", "named", "strange"], ["never"]], ids=str)
@pytest.mark.usefixtures("past")
def test_runs_are_the_executions_of_the_log(log: Log, keys: list[str] | None) -> None:
    """Each of them once: packed by key, host and outcome, or as it is."""
    found: Counter[object] = Counter()
    for row in log.people.runs(0.0, keys):
        if isinstance(row, EndedRuns):
            assert [*row.times] == sorted(row.times)
            found.update((row[:4], at) for at in row.times)
        else:
            found[row.execution.execution_id] += 1
            assert packed(row) is None or row.execution.host == HOSTILE  # it is read as it is
    rows = [*log.people.timeline(None, keys)]
    assert found == Counter(
        (
            None
            if row.execution.host == HOSTILE and row.execution.execution_id in found
            else packed(row)
        )
        or row.execution.execution_id
        for row in rows
    )
    assert bool(rows) == (keys != ["never"])


@pytest.mark.usefixtures("past")
def test_runs_since(store: StoreKind, log: Log) -> None:
    """What is older by more than a day never comes."""
    store.age(3 * 86400)
    assert [*log.people.runs(clock.wall() - 86400)] == []


@pytest.mark.usefixtures("past")
def test_what_became_of_each_tick(log: Log) -> None:
    """The last attempt counts, and the worst shard; what was given back was not started."""
    found = every_tick(log)
    assert words(found[KEY]) == {
        **{minute(number).text: word for number, word in enumerate(PACKED_OUTCOMES, 1)},
        **dict.fromkeys((minute(8).text, minute(9).text, minute(10).text), "failed"),
        minute(7).text: "succeeded",
        minute(11).text: "running",
    }
    assert words(found["divided"]) == {minute(3).text: "failed"}
    assert sorted(words(found["named"]).items(), key=str) == [
        ("campaign", "succeeded"),
        (None, "succeeded"),
    ]
    assert [*found["strange"].hosts] == [HOSTILE]


def every_tick(log: Log, now: float | None = None) -> dict[str, KeyTicks]:
    now = now or clock.wall() + 1
    return ticks_of(Sources(log.people, log.people, now), Span(now - 86400, now), hosts=True)


def words(found: KeyTicks, host: str | None = None) -> dict[str | None, str]:
    """Return what became of each tick, on one host or at all."""
    ticks = found.ticks if host is None else found.hosts[host]
    return {
        each.name or (minute_text(at) if each.has_tick else None): each.word
        for each in ticks
        for at in each.times
    }


def minute_text(at: float) -> str | None:
    return minute(round((at - (minute(0).instant or 0.0)) / 60)).text


def test_each_host_ran_skipped_or_did_not_fire(a: Host, b: Host, log: Log) -> None:
    """Also a named tick. One that lost its run to another host shows that, and the other one how it went on."""
    a.run(minute(1))
    b.lose(minute(1))
    b.run(minute(2))
    a.run(named_tick("9campaign"))
    b.lose(named_tick("9campaign"))
    lease = a.win(minute(4))
    assert log.people.drain("bb.example", author="ops@x")
    b.lose(minute(5))
    assert a.finish(lease, "lost")
    found = every_tick(log, clock.wall() + 3600)[KEY]
    one, two, four, five = (minute(number).text for number in (1, 2, 4, 5))
    assert words(found, "a.example") == {
        one: "succeeded", two: "silent", "9campaign": "succeeded", four: "lost",
    }  # fmt: skip
    assert words(found, "bb.example") == {
        one: "skipped", two: "succeeded", "9campaign": "skipped", four: "silent", five: "drained",
    }  # fmt: skip


def test_a_tick_that_is_to_be_tried_again_runs(a: Host, log: Log) -> None:
    """Between two attempts, as `jobs` says."""
    lease = a.win(minute(1), retries=2)
    assert a.keep(lease)
    assert words(every_tick(log)[KEY]) == {minute(1).text: "running"}
    again = a.retry(lease)
    assert words(every_tick(log)[KEY]) == {minute(1).text: "running"}
    assert a.finish(again)  # type: ignore[arg-type]
    assert words(every_tick(log)[KEY]) == {minute(1).text: "succeeded"}


@pytest.mark.usefixtures("past")
def test_grids_of_keys_and_of_hosts(log: Log) -> None:
    """A line each, by name; the last runs of each key are its newest executions."""
    now = clock.wall() + 1
    sources = Sources(log.people, log.people, now)
    starts = columns(now - 86400, now, 10)  # minutes are numbered when a run of all tests begins
    span = Span(starts[0], now)
    assert [*ticks_of(sources, span)] == ["divided", "named", KEY, "strange"]
    [(key, of_key)] = ticks_of(sources, span, [KEY]).items()
    assert gather(key, of_key.ticks, starts, now).counts == (
        ("lost", 1), ("failed", 4), ("timed-out", 1), ("stopped", 1), ("running", 1), ("succeeded", 2),
    )  # fmt: skip
    assert [*ticks_of(sources, span, [KEY], hosts=True)[KEY].hosts] == ["a.example", "bb.example"]
    runs = last_runs(sources, 2)
    assert [run.outcome for run in runs[KEY]] == ["failed", "running"]
