"""What is due of a key: shards that stopped at different ticks, skips of several reasons, many ticks."""

import math

import pytest

from oncecron.core.log_rows import Expectation, JobKey, SkipReason
from oncecron.log.missed import MISSED_AT_MOST, Due, Known, dues

NOW = 7210.0
"""Ten seconds after 02:00Z; what was due before 01:50:10Z is missed."""


def due(
    *started: float,
    skips: tuple[SkipReason, ...] = (),
    now: float = NOW,
    paused: tuple[float, ...] = (),
    runs: bool = False,
) -> Due:
    """Return what is due of a key that runs every minute, whose shards have started these instants."""
    expected = Expectation("* * * * *", "UTC", len(started), None, 0.0)
    shards = [JobKey("k", number, expected, instant) for number, instant in enumerate(started)]
    known = Known(shards, [], *(paused or (None,)), runs=runs)
    return dues({"k": known}, lambda _since: skips, now)["k"]


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
