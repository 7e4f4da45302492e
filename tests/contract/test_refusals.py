"""The refusals of steps 1 and 6, and how refusals are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hosts import KEY, Host, minute, skip_record

from oncecron.core import clock
from oncecron.core.model import Lease, Refusal
from oncecron.core.tick import NO_TICK, Tick, named_tick

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

GAP = 30.0


def fired(tick: Tick, second: float) -> dict[str, Any]:
    """Return the parts of a firing of the minute rule, that many seconds into its minute."""
    assert tick.instant is not None
    return {"fired_at": tick.instant + second, "min_gap": GAP}


# recent


def test_a_start_late_in_its_minute_refuses_the_next_minute(a: Host, b: Host) -> None:
    """The other host, a little later, means the same time of the crontab though its minute is the next."""
    a.run(minute(1), **fired(minute(1), 58))
    refusal = b.lose(minute(2), **fired(minute(2), 1))
    assert refusal.reason == "recent"
    assert refusal.since == pytest.approx(clock.wall(), abs=5)


def test_a_start_on_time_refuses_nothing(a: Host, b: Host) -> None:
    """It cannot have been the next minute's."""
    a.run(minute(1), **fired(minute(1), 29))
    assert isinstance(b.fire(minute(2), **fired(minute(2), 1)), Lease)


def test_a_late_start_longer_ago_than_the_gap_refuses_nothing(
    a: Host, b: Host, store: StoreKind
) -> None:
    """The gap is counted by the store's clock."""
    a.run(minute(1), **fired(minute(1), 58))
    store.age(GAP + 1)
    assert isinstance(b.fire(minute(2), **fired(minute(2), 1)), Lease)


def test_a_name_is_never_recent(a: Host, b: Host) -> None:
    """The gap repairs the minute rule alone: a firing with another rule gives none."""
    a.run(named_tick("x"), fired_at=58.0)
    assert isinstance(b.fire(named_tick("y"), fired_at=59.0), Lease)


def test_without_a_tick_the_gap_alone_decides(a: Host, b: Host, store: StoreKind) -> None:
    """At most one start in the gap, however early in its minute the last one came."""
    a.run(NO_TICK, fired_at=1.0, min_gap=600.0)
    assert b.lose(NO_TICK, min_gap=600.0).reason == "recent"
    store.age(601)
    assert isinstance(b.fire(NO_TICK, min_gap=600.0), Lease)


def test_a_last_start_in_the_future_is_now(a: Host, b: Host, store: StoreKind) -> None:
    """The store's clock was set back a little: the gap begins at once, and not in minutes."""
    a.run(NO_TICK)
    store.age(-240)
    assert b.lose(NO_TICK, min_gap=600.0).reason == "recent"
    assert isinstance(b.fire(NO_TICK, min_gap=0.0), Lease)


def test_a_start_that_was_none_is_not_recent(a: Host, b: Host) -> None:
    """Who gave up before starting stands in nobody's way."""
    a.run(NO_TICK, "not-started")
    assert isinstance(b.fire(NO_TICK, min_gap=600.0), Lease)


# late


@pytest.mark.parametrize(("limit", "refused"), [(1800.0, True), (7200.0, False), (None, False)])
def test_a_tick_is_late_beyond_its_deadline(a: Host, limit: float | None, refused: bool) -> None:
    """However late it is, a firing without a deadline starts."""
    answer = a.fire(minute(0), starting_deadline=limit)
    assert isinstance(answer, Refusal if refused else Lease)
    if isinstance(answer, Refusal):
        assert answer.reason == "late"


def test_a_name_is_never_late(a: Host) -> None:
    """It was not due at any time."""
    assert isinstance(a.fire(named_tick("2026-11"), starting_deadline=1.0), Lease)


def test_a_late_tick_is_not_burnt(a: Host, b: Host) -> None:
    """Somebody with more patience may still run it."""
    a.lose(minute(0), starting_deadline=60.0)
    assert isinstance(b.fire(minute(0)), Lease)


# paused, drained


def test_a_pause_comes_before_a_holder(a: Host, b: Host, store: StoreKind) -> None:
    """What runs goes on; the answer for the others is the pause."""
    lease = a.win(minute(1))
    store.people().pause(KEY, author="ann", reason=None, seconds=None)
    assert b.lose(minute(1)).reason == "paused"
    assert a.renew(lease)


# Counting


def test_a_refusal_is_recorded_with_who_lost_and_to_whom(a: Host, b: Host, log: Log) -> None:
    """Every start is recorded, and every refusal too."""
    a.win(minute(1))
    b.lose(minute(1))
    [skip] = log.skips()
    assert skip[:4] == (KEY, 0, minute(1).text, "held")
    assert (skip.holder_host, skip.holder_pid) == (a.holder.host, a.holder.pid)
    assert (skip.host, skip.pid, skip.count) == (b.holder.host, b.holder.pid, 1)
    assert skip.at == pytest.approx(clock.wall(), abs=5)


def test_equal_refusals_are_one_row_with_a_count(a: Host, b: Host, log: Log) -> None:
    """One row per key, tick, shard, host and reason."""
    a.win(minute(1))
    for tick in (minute(1), minute(1), minute(2)):
        b.lose(tick)
    a.lose(minute(1))
    rows = {(skip.host, skip.tick): skip.count for skip in log.skips()}
    assert rows == {
        (b.holder.host, minute(1).text): 2,
        (b.holder.host, minute(2).text): 1,
        (a.holder.host, minute(1).text): 1,
    }


def test_refusals_without_a_tick_are_counted(a: Host, b: Host, log: Log) -> None:
    """Where there is no tick the row says so, and it is still one."""
    a.win(NO_TICK)
    b.lose(NO_TICK)
    b.lose(NO_TICK)
    [skip] = log.skips()
    assert (skip.tick, skip.count) == (None, 2)


def test_a_refusal_that_the_store_did_not_decide_is_recorded(a: Host, log: Log) -> None:
    """A host that could not start the command claims nothing, but it is seen."""
    firing = a.firing(minute(1))
    a.store.skip(firing, Refusal("broken", detail="not found"), deadline=a.deadline())
    [skip] = log.skips()
    assert (skip.reason, skip.count, skip.detail) == ("broken", 1, "not found")
    a.win(minute(1))


def test_a_refusal_keeps_the_newest_detail(a: Host, log: Log) -> None:
    """Whether it was told at once or late."""
    firing = a.firing(minute(1))
    for detail in ("not found", "no interpreter"):
        a.store.skip(firing, Refusal("broken", detail=detail), deadline=a.deadline())
    assert [skip.detail for skip in log.skips()] == ["no interpreter"]
    a.deliver({**skip_record(firing, "broken", clock.wall()), "detail": "a directory"})
    assert [skip.detail for skip in log.skips()] == ["a directory"]


def test_a_refusal_starts_nothing(a: Host, b: Host, log: Log) -> None:
    """No execution, and the holder's lease is as it was."""
    lease = a.win(minute(1))
    b.lose(minute(1))
    b.lose(minute(2))
    assert log.outcomes() == ["running"]
    assert a.finish(lease)


# What a refusal tells, and what it leaves alone


@pytest.mark.parametrize(
    ("tick", "reason", "parts"),
    [
        (minute(1), "passed", {}),
        (minute(3), "recent", fired(minute(3), 1)),
        (minute(3), "late", {"starting_deadline": 1.0}),
    ],
)
def test_a_refused_firing_takes_no_expired_lease_away(
    a: Host, b: Host, store: StoreKind, log: Log, tick: Tick, reason: str, parts: dict[str, Any]
) -> None:
    """It starts nothing, so the late holder may still go on."""
    lease = a.win(minute(2), **fired(minute(2), 58))
    store.expire(KEY)
    assert b.lose(tick, **parts).reason == reason
    assert log.outcomes() == ["running"]
    assert a.renew(lease)
    assert a.finish(lease)


def test_a_dead_holders_own_tick_is_done_and_not_recent(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """The loss is found and told, however close the start was."""
    a.win(minute(1), **fired(minute(1), 58))
    store.expire(KEY)
    refusal = b.lose(minute(1), **fired(minute(1), 58))
    assert (refusal.reason, refusal.detail) == ("done", "lost")
    assert log.outcomes() == ["lost"]


def test_a_recent_start_names_its_host(a: Host, b: Host, log: Log) -> None:
    """Whose start it was that is too close; the recorded skip names it too."""
    a.run(NO_TICK)
    assert b.lose(NO_TICK, min_gap=GAP).holder == a.holder
    [skip] = log.skips()
    assert (skip.holder_host, skip.holder_pid) == a.holder[:2]


def test_a_late_refusal_tells_its_instant(a: Host) -> None:
    """Since then it was due."""
    refusal = a.lose(minute(1), starting_deadline=1.0)
    assert (refusal.reason, refusal.since) == ("late", minute(1).instant)


def test_a_passed_refusal_names_the_newer_tick(a: Host, b: Host, log: Log) -> None:
    """Also in the recorded skip."""
    a.run(minute(2))
    assert b.lose(minute(1)).detail == f"by tick {minute(2).text}"
    assert [skip.detail for skip in log.skips()] == [f"by tick {minute(2).text}"]
