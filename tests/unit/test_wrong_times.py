"""Which keys start some quarters of an hour after their ticks, and which only seem to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncecron.core.log_rows import Expectation, HostTicks, JobKey
from oncecron.core.tick import minute_tick
from oncecron.core.units import DAY, HOUR, MINUTE
from oncecron.log.wrong_times import wrong_zones

NIGHT = 1_799_978_400.0
"""02:00 UTC on a day in January 2027."""
NIGHTS = (NIGHT, NIGHT + DAY, NIGHT + 2 * DAY)


def told(
    *lates: float,
    schedule: str = "0 2 * * *",
    zone: str | None = "UTC",
    instants: tuple[float, ...] = NIGHTS,
    other: tuple[float, ...] = (),
    waited: float = 0.0,
    cause: str = "schedule",
) -> list[str]:
    """Return what is told of a key of which a host fired ticks so late, and another host perhaps others."""
    rows = [
        HostTicks("k", name, NIGHT, 0.0, tuple(
            (str(minute_tick(instant).text), instant + late)
            for instant, late in zip(instants, of_host, strict=False)
        )[::-1])
        for name, of_host in (("a", lates), ("b", other))
    ]  # fmt: skip
    first = {
        str(minute_tick(instant).text): instant + min(of_tick) - waited
        for instant, of_tick in zip(
            instants, zip(lates, other or lates, strict=False), strict=False
        )
    }

    def traced(query: Any) -> list[Any]:
        execution = SimpleNamespace(attempt=1, cause=cause)
        return [SimpleNamespace(execution=execution, fired_at=first[query.tick])]

    key = JobKey("k", 0, Expectation(schedule, zone, 1, None, 0.0))
    log = cast("Any", SimpleNamespace(traced=traced))
    return [each.text for each in wrong_zones(log, [key], rows)]


@pytest.mark.parametrize(
    ("late", "shown"),
    [
        (HOUR, "1h"), (2 * HOUR, "2h"), (30 * MINUTE, "30m"), (5.75 * HOUR, "5h45m"), (23 * HOUR, "23h"),
    ],
)  # fmt: skip
def test_the_same_difference_of_zones_twice_is_told(late: float, shown: str) -> None:
    """With what cron and a connection need: some seconds."""
    assert told(late + 1, late + 9, zone=None) == [
        f"starts {shown} after its ticks: the time zone of the host is probably not that of cron"
    ]
    [text] = told(3.0, late + 1, late + 1.5)
    assert text == f"starts {shown} after its ticks: --tz UTC is probably not that of cron"


@pytest.mark.parametrize(
    "lates",
    [
        (HOUR + 1,),  # it may have been down
        (1.0, HOUR + 1),
        (HOUR + 1, 2 * HOUR + 1),  # a clock change between them
        (HOUR + 40, HOUR + 40),  # a random delay that stays the same
        (1794.0, 1799.0),
        (900.0, 1.0),
        (7 * MINUTE, 7 * MINUTE),
        (1.0, 2.0),
        (-5.0, -4.0),
    ],
)
def test_other_late_starts_are_not(lates: tuple[float, ...]) -> None:
    """Nor those in time, nor early ones."""
    assert told(*lates) == []


def test_the_first_host_that_fires_counts() -> None:
    """Another one may stand by, and fire half an hour later on purpose."""
    assert told(1800.0, 1801.0, other=(1.0, 2.0)) == []
    assert told(1800.0, 1801.0, other=(3600.0, 3601.0)) != []


def test_a_job_that_waits_or_is_started_by_hand_is_in_time() -> None:
    """Its firing counts, not when it got its lease."""
    assert told(HOUR + 1, HOUR + 1, waited=HOUR) == []
    assert told(HOUR + 1, HOUR + 1, cause="manual") == []


def test_what_is_not_scheduled_has_no_lateness() -> None:
    """A tick may be named after the midnight before."""
    midnights = tuple(night - 2 * HOUR for night in NIGHTS)
    assert told(2 * HOUR + 1, 2 * HOUR + 1, instants=midnights) == []
    assert told(HOUR + 1, HOUR + 1, zone="Nowhere/Town") == []
