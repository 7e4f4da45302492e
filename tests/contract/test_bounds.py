"""Records with values that no host can have, or that a wrong clock has made: no key is blocked by them."""

import uuid
from typing import Any

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute, skip_record

from oncecron.core import clock
from oncecron.core.decision import Grant
from oncecron.core.errors import RecordRefusedError
from oncecron.core.facts import state_of
from oncecron.core.log_rows import Unblocked
from oncecron.core.model import Lease
from oncecron.core.presence import seen
from oncecron.core.tick import NO_TICK, minute_tick
from oncecron.core.units import DAY

FOR_EVER = 9e9
"""Seconds since the epoch: the year 2255."""
IMPOSSIBLE = [
    ("tick_instant", 1e300),
    ("tick_instant", float("inf")),
    ("started_at", float("inf")),
    ("started_at", float("nan")),
    ("started_at", 2.54e11),
    ("started_at", -1e11),
    ("fired_at", float("-inf")),
    ("finished_at", 1e12),
    ("duration", -1.0),
    ("duration", float("nan")),
    ("duration", float("inf")),
    ("fencing_token", 9 * 10**18),
    ("fencing_token", 1 << 70),
    ("fencing_token", -1),
    ("attempt", 0),
    ("attempt", 2147483647),
    ("shards", 0),
    ("shards", 100000),
    ("shard", -1),
    ("shard", 1000),
    ("retries", -1),
    ("retries", 10**6),
    ("exit_code", 4711),
    ("signal", 9999),
    ("pid", -1),
    ("pid", 1 << 40),
    ("tick", "x" * 801),
    ("tick", "a\n3 b"),
    ("host", "h" * 1021),
    ("user", "u" * 4001),
    ("command", "c" * ((1 << 16) + 1)),
    ("output", "o" * ((8 << 20) + 1)),
    ("output_cut", -1),
    ("requested_by", "r" * 4001),
]
IMPOSSIBLE_OF_A_SKIP = [
    *[("at", value) for value in (float("inf"), float("nan"), 1e12, -1e11)],
    ("count", -1),
    ("count", 9 * 10**18),
    ("holder_pid", -1),
    ("reason", "r" * 1021),
    ("holder_host", "h" * 1021),
    ("fired_at", 1e300),
    ("tick", "a b"),
]


def _named(case: tuple[str, Any]) -> str:
    name, value = case
    return f"{name}={value!r:.20}"


@pytest.mark.parametrize("case", IMPOSSIBLE, ids=_named)
def test_an_impossible_value_of_an_execution_is_refused(
    a: Host, b: Host, log: Log, case: tuple[str, Any]
) -> None:
    """Nothing is written, and the store goes on with the next call."""
    others = {"output": "o", "output_cut": 0, "request": "stop", "requested_by": "ann@web1"}
    values = {"fencing_token": 5, **others, **dict([case])}
    record = execution_record(a.firing(minute(1)), **values)
    with pytest.raises(RecordRefusedError):
        a.deliver(record)
    assert log.executions() == []
    b.win(minute(1))


@pytest.mark.parametrize("case", IMPOSSIBLE_OF_A_SKIP, ids=_named)
def test_an_impossible_value_of_a_skip_is_refused(
    a: Host, b: Host, log: Log, case: tuple[str, Any]
) -> None:
    """Nothing is counted."""
    record = {**skip_record(a.firing(minute(1)), "no-store", clock.wall()), **dict([case])}
    with pytest.raises(RecordRefusedError):
        a.deliver(record)
    assert log.skips() == []
    b.win(minute(1))


def test_a_token_far_ahead_is_not_the_fence(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """The record keeps it. Later starts of the key are newer than it, if only by a day."""
    now = clock.wall()
    token = int(FOR_EVER * 1e6)
    a.deliver(execution_record(a.firing(minute(1)), fencing_token=token))
    assert log.newest().fencing_token == token
    assert store.fence(KEY) <= (clock.wall() + DAY) * 1e6
    lease = b.win(minute(2))
    assert now * 1e6 < lease.token < (clock.wall() + 2 * DAY) * 1e6
    assert b.finish(lease)


def test_a_token_of_a_server_whose_clock_is_ahead_is_the_fence(
    a: Host, b: Host, store: StoreKind
) -> None:
    """By an hour: the next token is higher."""
    token = int((clock.wall() + 3600) * 1e6)
    a.deliver(execution_record(a.firing(minute(1)), fencing_token=token))
    assert store.fence(KEY) == token
    assert b.win(minute(2)).token == token + 1


def test_a_skip_of_the_future_counts_as_now(a: Host, log: Log) -> None:
    """The clock of its host was wrong: else retention would keep it until then."""
    a.deliver(skip_record(a.firing(minute(1)), "no-store", FOR_EVER))
    [skip] = log.skips()
    assert skip.at <= clock.wall() + 1


def test_a_full_count_stays_full(a: Host, log: Log) -> None:
    """One more does not overflow it."""
    full = {**skip_record(a.firing(minute(1)), "no-store", clock.wall()), "count": (1 << 53) - 1}
    a.deliver(full)
    a.deliver({**full, "owner": str(uuid.uuid4()), "count": 7})
    assert log.counts() == {"no-store": (1 << 53) - 1}


@pytest.mark.parametrize("delivered", [True, False])
def test_an_instant_far_ahead_does_not_pass_the_ticks_before_it(
    a: Host, b: Host, delivered: bool
) -> None:
    """Neither from a record, nor from a grant that skipped the decision of the claim."""
    firing = a.firing(minute_tick(FOR_EVER), fired_at=clock.wall())
    if delivered:
        a.deliver(execution_record(firing))
    else:
        steps: Any = a.store
        facts = steps.look(firing, awaited=None, closely=True, deadline=a.deadline())
        state = state_of(facts)
        start, host = Grant(1, "schedule"), seen(state, firing, won=True)
        lease = steps.grant(firing, state, start, host, alone=False, deadline=a.deadline())
        assert isinstance(lease, Lease)
        assert a.finish(lease)
    b.win(minute(1))


def test_a_note_has_an_end(a: Host, log: Log) -> None:
    """Else, joined with another, it could not be recorded any more."""
    lease = a.win(NO_TICK)
    assert a.finish(lease, note="n" * 50_000)
    assert log.notes() == ["n" * 10_000]


# What a wrong clock of the server has left


def test_a_key_that_a_wrong_clock_has_blocked_is_unblocked(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Its next tick and its next gap begin now; the token goes on."""
    token = a.run(minute(1)).token
    store.mark(KEY, FOR_EVER, FOR_EVER)
    assert log.people.unblock(KEY, None) == [Unblocked(0, FOR_EVER, FOR_EVER)]
    assert b.lose(minute(2)).reason == "passed"  # by now
    later = minute_tick(clock.wall() + 60)
    assert b.win(later).token > token
    assert log.people.unblock(KEY, None) == []


def test_marks_of_a_wrong_clock_do_not_count_for_a_claim(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Neither for a tick nor for a gap; the next start replaces them, and what has run is done all the same."""
    a.run(minute(58))
    store.mark(KEY, FOR_EVER, FOR_EVER)
    assert b.lose(minute(58)).reason == "done"
    old = b.lose(minute_tick(clock.wall() - 2 * DAY))
    assert (old.reason, old.detail) == ("passed", f"by tick {minute_tick(FOR_EVER).text}")
    a.run(minute(59), schedule="* * * * *")
    assert b.lose(minute(57)).reason == "passed"
    store.mark(KEY, minute(59).instant, FOR_EVER)
    a.run(NO_TICK, min_gap=3600.0)
    assert b.lose(NO_TICK, min_gap=3600.0).reason == "recent"
    [known] = log.people.job_keys()
    assert known.high_water == minute(59).instant
    assert abs((known.last_start or 0.0) - clock.wall()) < 60


def test_a_record_replaces_the_marks_of_a_wrong_clock(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """It ran after what a clock that was ahead has told."""
    a.run(minute(1))
    store.mark(KEY, FOR_EVER, FOR_EVER)
    a.deliver(execution_record(a.firing(minute(58)), started_at=clock.wall() - 60))
    [known] = log.people.job_keys()
    assert known.high_water == minute(58).instant
    assert (known.last_start or FOR_EVER) < clock.wall()
    assert b.lose(minute(57)).reason == "passed"


def test_a_schedule_is_expected_from_now_if_a_wrong_clock_has_written_since_when(
    a: Host, store: StoreKind, log: Log
) -> None:
    """Else no tick would be missed until then."""
    a.run(minute(1), schedule="* * * * *", zone="UTC")
    store.age(-40 * DAY)
    [known] = log.people.job_keys()
    assert known.expected
    assert known.expected.since > clock.wall() + 39 * DAY
    a.run(minute(2), schedule="* * * * *", zone="UTC")
    [known] = log.people.job_keys()
    assert known.expected
    assert known.expected.since <= clock.wall() + 1


@pytest.mark.parametrize("ahead", [120.0, -5000.0, None])
def test_marks_that_a_claim_may_write_stay(
    a: Host, b: Host, store: StoreKind, log: Log, ahead: float | None
) -> None:
    """A host whose clock is a little fast leads, and the ticks that it overtook are passed."""
    a.run(minute(1))
    mark = None if ahead is None else minute_tick(clock.wall() + ahead).instant
    store.mark(KEY, mark, None)
    assert log.people.unblock(KEY, None) == []
    refusal = b.fire(minute_tick(clock.wall() + 60))
    assert isinstance(refusal, Lease) == (ahead is None or ahead < 60)


def test_only_the_shard_that_is_named_is_unblocked(a: Host, store: StoreKind, log: Log) -> None:
    """And of an unknown key none."""
    a.run(minute(1))
    store.mark(KEY, FOR_EVER, None)
    assert log.people.unblock(KEY, 1) == []
    assert log.people.unblock("other", None) == []
    assert log.people.unblock(KEY, 0) == [Unblocked(0, FOR_EVER, None)]
