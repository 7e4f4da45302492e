"""The refusals of steps 1 and 6, and how refusals are counted."""

from typing import Any

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, minute, skip_record

from oncecron.core import clock
from oncecron.core.model import Lease, Refusal
from oncecron.core.tick import NO_TICK, Tick

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
    assert refusal.since == pytest.approx(clock.wall(), abs=20)


def test_without_a_tick_the_gap_alone_decides(a: Host, b: Host, store: StoreKind) -> None:
    """At most one start in the gap, however early in its minute the last one came."""
    a.run(NO_TICK, fired_at=1.0, min_gap=600.0)
    assert b.lose(NO_TICK, min_gap=600.0).reason == "recent"
    store.age(601)
    assert isinstance(b.fire(NO_TICK, min_gap=600.0), Lease)


# paused, drained


# Counting


def test_a_refusal_is_recorded_with_who_lost_and_to_whom(a: Host, b: Host, log: Log) -> None:
    """Every start is recorded, and every refusal too."""
    a.win(minute(1))
    b.lose(minute(1))
    [skip] = log.skips()
    assert skip[:4] == (KEY, 0, minute(1).text, "held")
    assert (skip.holder_host, skip.holder_pid) == (a.holder.host, a.holder.pid)
    assert (skip.host, skip.pid, skip.count) == (b.holder.host, b.holder.pid, 1)
    assert skip.at == pytest.approx(clock.wall(), abs=20)


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
