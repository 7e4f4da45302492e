"""What is the SQLite store's own in leases and grants: its lease clock, its constraints, its cost."""

import sqlite3

import pytest
from contract_log import Log
from contract_stores import SQLiteKind
from hosts import KEY, TTL, Host, minute

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Firing, Lease
from oncecron.core.tick import Tick, minute_tick, named_tick
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.stores.sqlite.connection import statements


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


# The lease clock


def test_a_lease_of_another_boot_is_over(store: SQLiteKind, a: Host, b: Host, log: Log) -> None:
    """However long it would have lasted: its holder went with the machine."""
    a.win(minute(1))
    store.run("UPDATE lease SET boot = 'the one before', expires_on_lease_clock = 1e12")
    assert [view.state for view in log.people.leases()] == ["stale"]
    b.win(minute(2))
    assert log.outcomes() == ["lost", "running"]


@pytest.mark.parametrize("step", [86400.0, -86400.0])
def test_a_step_of_the_wall_clock_ends_no_lease(
    a: Host, b: Host, log: Log, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """Nor makes it longer: leases live by the time since boot."""
    lease = a.win(named_tick("x"))
    wall = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() + step)
    assert b.lose(named_tick("x")).reason == "held"
    assert b.lose(named_tick("y")).reason == "held"
    assert [view.state for view in log.people.leases()] == ["held"]
    assert a.renew(lease)
    assert a.finish(lease)


def test_a_lease_ends_by_the_time_since_boot(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ttl after its last heartbeat, and not before."""
    a.win(minute(1))
    lease_time = clock.lease_time
    for later, expected in ((TTL - 1, "AskAgain"), (TTL + 1, "Lease")):
        monkeypatch.setattr(clock, "lease_time", lambda number, by=later: lease_time(number) + by)
        assert type(b.fire(minute(2))).__name__ == expected


# Grants


def test_a_tick_far_ahead_of_the_clock_is_refused(a: Host, log: Log) -> None:
    """The clock was wrong when the tick was derived: it would burn all ticks up to it."""
    a.fire(minute_tick(clock.wall() + MAX_CLOCK_SKEW - 120))
    with pytest.raises(ConfigurationError) as error:
        a.fire(minute_tick(clock.wall() + MAX_CLOCK_SKEW + 120))
    assert error.value.exit_status == 78
    assert len(log.executions()) == 1


def test_tokens_rise_though_the_clock_was_set_back(store: SQLiteKind, a: Host) -> None:
    """By one, from where they were."""
    lease = a.run(minute(1))
    store.run("UPDATE job_key SET fence = :fence", fence=lease.token + 10**12)
    assert a.win(minute(2)).token == lease.token + 10**12 + 1


@pytest.mark.parametrize("kept", [False, True])
def test_the_fence_rises_when_a_lease_is_taken_away(
    store: SQLiteKind, a: Host, b: Host, kept: bool
) -> None:
    """Also where nobody gets a new one: a job of the lost execution is refused by who checks."""
    lease = a.win(minute(1))
    if kept:
        a.keep(lease)
    store.expire(KEY)
    b.lose(minute(1))
    assert store.fence(KEY) > lease.token


def test_a_start_taken_back_uncovers_the_one_before(a: Host, b: Host) -> None:
    """The gap counts from the last start that was one."""
    firing: Firing = a.firing(minute(1), fired_at=(minute(1).instant or 0) + 58)
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    a.finish(lease)
    a.run(minute(2), "not-started")
    assert b.lose(minute(2), min_gap=30.0).reason == "recent"


def test_a_schedule_needs_no_gap(a: Host, b: Host) -> None:
    """Its ticks are right however late a start comes: the gap is for the minute rule and for no tick."""
    scheduled = Tick(minute(2).text, minute(2).instant, "schedule")
    a.run(minute(1), fired_at=(minute(1).instant or 0) + 58)
    assert isinstance(b.fire(scheduled, min_gap=30.0), Lease)


def test_what_runs_without_a_lease_is_lost(store: SQLiteKind, a: Host, b: Host, log: Log) -> None:
    """Somebody deleted the row by hand: the key is not stuck for ever."""
    a.win(minute(1))
    store.run("DELETE FROM lease")
    assert b.lose(minute(1)).reason == "done"
    b.win(minute(2))
    assert log.outcomes() == ["lost", "running"]


@pytest.mark.parametrize(
    "statement",
    [
        (
            "INSERT INTO lease (key, shard, execution_id, owner, ttl, boot, heartbeat_on_lease_clock,"
            " expires_on_lease_clock, acquired_at, heartbeat_at, expires_at)"
            " SELECT key, shard, execution_id + 1, owner, ttl, boot, 0, 0, 0, 0, 0 FROM lease"
        ),
        "UPDATE job_execution SET outcome = 'running' WHERE outcome = 'succeeded'",
        "UPDATE job_execution SET tick = 'x', tick_instant = 0, attempt = 1",
        "UPDATE job_execution SET owner = 'x', owner_attempt = 1",
    ],
)
def test_the_promises_are_constraints(store: SQLiteKind, a: Host, statement: str) -> None:
    """One lease a key, one running execution, one attempt of a tick, one row of an owner."""
    a.run(minute(1))
    a.win(minute(2))
    with pytest.raises(sqlite3.IntegrityError):
        store.run(statement)


# Waiting


def test_there_is_nothing_to_listen_to(a: Host, b: Host) -> None:
    """No server could tell: who waits asks now and then."""
    a.win(minute(1))
    firing = b.firing(minute(1), failover=True)
    b.ask(firing)
    b.store.listen(firing, deadline=b.deadline())
    assert b.store.watch_fd() is None


def test_dead_letters_are_found_by_an_index(store: SQLiteKind, a: Host) -> None:
    """They are few among many, and nobody waits for a look at all executions."""
    a.run(minute(1), "failed", retries=1)
    values = HistoryQuery(key=KEY)._asdict()
    plan = store.run("EXPLAIN QUERY PLAN " + statements("reader")["dead_letters"], **values)
    assert any("INDEX execution_failed" in str(row[3]) for row in plan), plan
    assert not any(str(row[3]).startswith("SCAN e") and "INDEX" not in str(row[3]) for row in plan)
