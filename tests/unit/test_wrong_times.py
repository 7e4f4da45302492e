"""Which keys start some quarters of an hour after their ticks, and which only seem to."""

from datetime import UTC, datetime
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncecron.core.log_rows import Expectation, JobKey, KeyHost
from oncecron.core.tick import Tick, minute_tick
from oncecron.core.units import DAY, HOUR, MINUTE
from oncecron.host.local_time import next_ticks
from oncecron.watch.wrong_times import differing_zones, wrong_zones

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
        KeyHost("k", 0, name, NIGHT, "1", 0.0, tuple(
            (str(minute_tick(instant).text), instant + late)
            for instant, late in zip(instants, of_host, strict=False)
        )[::-1], None, None, None, 1, 0)
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
    return [each.reason.partition(";")[0] for each in wrong_zones(log, [key], rows)]


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


# Hosts that take one zone for two


def host(
    name: str,
    utc_offset: float | None,
    *instants: str,
    schedule: str = "0 3 * * *",
    zone: str | None = "Asia/Almaty",
) -> KeyHost:
    """Return a host whose zone was so many hours ahead of UTC; its ticks of January 2027, the newest first."""
    ticks = tuple((f"2027-01-{each}Z", NIGHT) for each in instants)
    crontab = (schedule, zone, "true", 1, 0)
    offset = None if utc_offset is None else round(utc_offset * HOUR)
    return KeyHost("k", 0, name, NIGHT, "1", 0.0, ticks, *crontab, 1, offset)


OLD = host("old", 6, "05T21:00", "04T21:00")
NEW = host("new", 5, "05T22:00", "04T22:00")


def test_hosts_that_take_one_local_time_for_two_ticks_are_told() -> None:
    """With what each takes the zone for, and the ticks that they fired for it."""
    [found] = differing_zones([OLD, NEW, NEW._replace(host="new2")])
    assert found.key == "k"
    text, _, cure = found.reason.partition("; ")
    assert text == (
        "has two ticks for one local time, because its hosts disagree about the zone: --tz Asia/Almaty is +05:00 on "
        "new, new2, +06:00 on old (last ticks 2027-01-05T21:00Z and 2027-01-05T22:00Z)"
    )
    assert "tzdata" in cure


def test_hosts_in_zones_of_their_own_are_told_to_name_one() -> None:
    """Without --tz, a schedule is in the zone of each host."""
    rows = (host("a", 1, "05T02:00", zone=None), host("b", -3.5, "05T06:30", zone=None))
    [found] = differing_zones(rows)
    assert "the zone of the host is -03:30 on b, +01:00 on a" in found.reason
    assert found.reason.endswith("; give --tz, the same zone on each host")


@pytest.mark.parametrize(
    "rows",
    [
        (OLD, OLD._replace(host="old2")),
        (OLD, host("new", 5, "04T22:00", "03T22:00")._replace(schedule="0 4 * * *")),  # another schedule
        (OLD, NEW._replace(zone="Asia/Tashkent")),  # `doctor` compares these
        (OLD, host("new", 5, "08T22:00", "07T22:00", "06T22:00")),  # it was brought up to date since, or is gone
        (host("old", 6, "05T21:00", schedule="0 * * * *"), host("new", 5, "05T22:00", schedule="0 * * * *")),
        (OLD, host("new", None, "05T22:00")),
        (OLD, host("new", 5)),
        (OLD, NEW._replace(schedule="wrong"), OLD._replace(schedule="wrong", host="old2")),
    ],
)  # fmt: skip
def test_an_offset_that_makes_no_second_tick_is_not_told(rows: tuple[KeyHost, ...]) -> None:
    """Only a local time that two hosts have fired at two instants is proof."""
    assert list(differing_zones(rows)) == []


@pytest.mark.parametrize("schedule", ["0 2,3 * * *", "30 2 * * *", "30 */2 * * *", "*/30 2 * * *"])
def test_a_change_of_the_clock_is_no_difference_of_zones(schedule: str) -> None:
    """A host that is gone since before the change, and one that fires on: 31 October 2027 in Berlin."""
    before = [each.text for each in _ticks(schedule, "2027-10-28", "2027-10-31T01:00")][-3:]
    for count in range(1, 6):
        after = [each.text for each in _ticks(schedule, "2027-10-31T01:00", "2027-11-04")][:count]
        gone, on = (
            host("h", hours, schedule=schedule, zone="Europe/Berlin")._replace(
                host=f"h{hours}", ticks=tuple((str(text), NIGHT) for text in texts[:-4:-1])
            )
            for hours, texts in ((2, before), (1, [*before, *after]))
        )
        assert list(differing_zones([gone, on])) == []


def _ticks(schedule: str, after: str, until: str) -> list[Tick]:
    first, last = (
        datetime.fromisoformat(each).replace(tzinfo=UTC).timestamp() for each in (after, until)
    )
    coming = next_ticks(schedule, "Europe/Berlin", first)
    return list(takewhile(lambda each: (each.instant or 0.0) < last, coming))
