"""What is due of a key: shards that stopped at different ticks, skips of several reasons, many ticks."""

import math

import pytest

from oncecron.core.log_rows import Expectation, JobKey, KeyHost, SkipReason
from oncecron.core.units import DAY
from oncecron.log.missed import MISSED_AT_MOST, Due, Known, catch_up_ages, dues

NOW = 7210.0
"""Ten seconds after 02:00Z; what was due before 01:50:10Z is missed."""


def due(
    *started: float,
    skips: tuple[SkipReason, ...] = (),
    now: float = NOW,
    paused: tuple[float, ...] = (),
    runs: bool = False,
    catch_up: tuple[float | None, ...] = (),
) -> Due:
    """Return what is due of a key that runs every minute, whose shards have started these instants."""
    expected = Expectation("* * * * *", "UTC", len(started), None, 0.0)
    shards = [JobKey("k", number, expected, instant) for number, instant in enumerate(started)]
    known = Known(shards, [], *(paused or (None,)), runs=runs)
    rows = [host(f"h{number}", age) for number, age in enumerate(catch_up)]
    return dues({"k": known}, lambda _since: skips, now, rows=lambda: rows)["k"]


def host(name: str, catch_up: float | None, seen_at: float = 3600.0) -> KeyHost:
    """Return a host that fires the key."""
    plan = ("* * * * *", "UTC", "true")
    return KeyHost("k", 0, name, seen_at, "1", 0.0, (), *plan, 1, 1, catch_up=catch_up)


def skipped(minute: int, reason: str, host: str = "h") -> SkipReason:
    """Return a skip of a minute after 01:00Z."""
    return SkipReason("k", f"1970-01-01T01:{minute:02}Z", host, reason)


def test_the_ticks_of_all_shards_are_due() -> None:
    """Whichever shard stopped first; each tick once."""
    for started in ((3600.0, 5400.0), (5400.0, 3600.0)):
        found = due(*started)
        assert (found.missed, found.first_missed) == (50, "1970-01-01T01:01Z")
        assert (found.last_missed, found.overdue) == ("1970-01-01T01:50Z", None)
        assert found.next_at == 7260.0
    assert due(7200.0, 7140.0).overdue == "1970-01-01T02:00Z"
    assert due(7200.0, 7140.0, runs=True).overdue is None


def test_a_tick_that_was_held_back_is_no_overrun() -> None:
    """Although another host found the run before it still running."""
    skips = (
        skipped(1, "held"),
        skipped(2, "held"),
        skipped(2, "paused", "other"),
        skipped(3, "paused"),
    )
    found = due(3600.0, skips=skips)
    assert (found.overruns, found.missed, found.first_missed) == (1, 47, "1970-01-01T01:04Z")


@pytest.mark.parametrize(
    ("until", "next_at"),
    [(7290.0, 7320.0), (7320.0, 7320.0), (7320.4, 7380.0), (math.inf, None), (7200.0, 7260.0)],
    ids=["between", "at a tick", "just after one", "nobody knows", "over already"],
)
def test_the_next_tick_of_a_paused_key_is_one_that_runs(
    until: float, next_at: float | None
) -> None:
    """The first one that the pause does not hold back."""
    assert due(7200.0, paused=(7000.0, until)).next_at == next_at


def test_ticks_are_counted_up_to_a_limit() -> None:
    """The first ones."""
    found = due(0.0, 60.0, now=86400.0 * 7)
    assert (found.missed, found.first_missed) == (MISSED_AT_MOST, "1970-01-01T00:01Z")
    assert found.last_missed == "1970-01-01T16:40Z"


def test_what_the_next_firing_makes_up_is_not_missed_yet() -> None:
    """As old as every host takes it, and above every mark; once that firing is late, all but the newest late one."""
    now = 3600.0 + 11 * 60 + 1  # the first one is late
    for ages in ((7200.0,), (7200.0, 9000.0)):
        found = due(3600.0, now=now, catch_up=ages)
        assert (found.missed, found.first_missed, found.last_missed) == (0, None, None)
        assert (found.catching_up, found.first_caught_up) == (11, "1970-01-01T01:01Z")
    found = due(3600.0, catch_up=(7200.0,))
    assert (found.missed, found.last_missed, found.catching_up) == (49, "1970-01-01T01:49Z", 60)
    found = due(3600.0, catch_up=(7200.0, 1800.0))  # until 02:01Z
    assert (found.missed, found.last_missed) == (49, "1970-01-01T01:49Z")
    assert (found.catching_up, found.first_caught_up) == (29, "1970-01-01T01:32Z")
    assert due(3600.0, catch_up=(7200.0, None)).missed == 50
    found = due(3600.0, catch_up=(0.0, 7200.0))
    assert (found.missed, found.first_caught_up) == (50, "1970-01-01T02:00Z")
    assert due(3600.0).catching_up == 0
    found = due(3600.0, 5400.0, now=5400.0 + 11 * 60 + 1, catch_up=(7200.0,))
    assert (found.missed, found.catching_up) == (30, 11)
    skips = (skipped(1, "paused"), skipped(2, "held"))
    found = due(3600.0, skips=skips, catch_up=(7200.0,))
    assert (found.catching_up, found.overruns) == (58, 1)
    many = due(3600.0, now=3600.0 + 130 * 60, catch_up=(30000.0,))
    assert (many.catching_up, many.missed) == (100, 118)
    found = due(0.0, now=86400.0 * 7, catch_up=(86400.0 * 9,))
    assert (found.missed, found.catching_up) == (MISSED_AT_MOST, 0)  # it knows the oldest alone


def test_a_host_that_has_gone_keeps_nothing_from_being_made_up() -> None:
    """One that fired the key a day before the others."""
    rows = [host("new", 60.0, 3 * DAY), host("old", None, DAY), host("too", 90.0, 3 * DAY - 60)]
    assert catch_up_ages({"k"}, rows) == {"k": 60.0}
    assert catch_up_ages({"k"}, [*rows, host("now", None, 3 * DAY)]) == {}
    assert catch_up_ages({"j"}, rows) == {}
