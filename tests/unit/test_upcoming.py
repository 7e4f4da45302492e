"""The coming ticks: which are listed, and what those beside a change of the clock say of it."""

import math
from datetime import UTC, datetime

import pytest

from oncecron.log.upcoming import Coming, coming_ticks


def at(text: str) -> float:
    """Return the instant of an ISO text, in UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def of(schedule: str, zone: str, since: str, count: int = 3) -> list[Coming]:
    return coming_ticks(None, schedule, zone, (at(since), math.inf), count, changes=False)


def marked(
    schedule: str, since: str = "2026-11-20", zone: str = "Europe/Berlin"
) -> list[tuple[str, str | None]]:
    """Return local time and mark of the ticks beside the next two changes."""
    found = coming_ticks(None, schedule, zone, (at(since), math.inf), 1, changes=True)
    return [(each.local[:16] + each.local[19:], each.change) for each in found[1:]]


def test_so_many_are_listed() -> None:
    """In UTC and in the zone of the schedule; one that is due at the given time belongs to them."""
    first, second = of("30 2 * * *", "Asia/Kolkata", "2026-11-20T21:00", 2)
    assert first == Coming(
        *(None, "30 2 * * *", "Asia/Kolkata", "2026-11-20T21:00Z"),
        *("2026-11-21T02:30:00+05:30", None),
    )
    assert second.tick == "2026-11-21T21:00Z"
    assert of("30 2 * * *", "Asia/Kolkata", "2026-11-20T21:00:01", 1) == [second]


FORWARD, BACK = "before 02:00 becomes 03:00", "before 03:00 becomes 02:00"
SPRUNG, FALLEN = "after 02:00 became 03:00", "after 03:00 became 02:00"


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("30 2 * * *", [
            ("2027-03-27T02:30+01:00", FORWARD), ("2027-03-28T03:00+02:00", f"{SPRUNG}: 02:30 is due now"),
            ("2027-10-31T02:30+02:00", f"{BACK}: 02:30 is not due again"), ("2027-11-01T02:30+01:00", FALLEN),
        ]),
        ("0,15,45 2,3 * * *", [
            ("2027-03-27T03:45+01:00", FORWARD), ("2027-03-28T03:00+02:00", f"{SPRUNG}: 02:00 to 02:45 are due now"),
            ("2027-10-31T02:45+02:00", f"{BACK}: 02:00 to 02:45 are not due again"), ("2027-10-31T03:00+01:00", FALLEN),
        ]),
        ("*/30 * * * *", [
            ("2027-03-28T01:30+01:00", FORWARD), ("2027-03-28T03:00+02:00", f"{SPRUNG}: 02:00 and 02:30 are skipped"),
            ("2027-10-31T02:30+02:00", BACK), ("2027-10-31T02:00+01:00", f"{FALLEN}: 02:00 and 02:30 are due again"),
        ]),
        ("0 12 1 1 *", []),  # both changes lie between two of them
    ],
)  # fmt: skip
def test_both_changes_are_marked(schedule: str, expected: list[tuple[str, str]]) -> None:
    """The ticks beside them are listed too, and say which times are skipped, repeated, or due all the same."""
    assert marked(schedule) == expected


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_a_zone_without_changes_has_none(zone: str) -> None:
    """Nothing is listed beside what was asked for."""
    assert marked("30 2 * * *", zone=zone) == []


def test_a_change_that_is_near_is_listed_once() -> None:
    """Between the ticks asked for, and before the first of them."""
    found = coming_ticks(
        None, "0 */6 * * *", "Europe/Berlin", (at("2026-10-24T23:00"), math.inf), 4, changes=True
    )
    assert [each.change for each in found[:4]] == [FALLEN, None, None, None]
    assert [each.change for each in found[4:]] == [FORWARD, SPRUNG]
    of_the_night = of("30 2 * * *", "Europe/Berlin", "2027-03-27", 3)
    assert [each.change for each in of_the_night] == [
        FORWARD,
        f"{SPRUNG}: 02:30 is due now",
        None,
    ]


def test_a_correction_of_the_clock_is_told_as_one() -> None:
    """Of a change of three hours or more fixed times follow the clock, as for Debian's cron."""
    found = of("0 12 * * *", "Pacific/Apia", "2011-12-29T21:00", 2)
    assert [(each.local[:10], each.change) for each in found] == [
        ("2011-12-29", "before 00:00 becomes 00:00"),
        ("2011-12-31", "after 00:00 became 00:00: 12:00 is skipped"),
    ]


def test_the_calendar_may_end() -> None:
    """A schedule of few ticks ends with the calendar instead of failing."""
    assert len(of("0 0 29 2 *", "UTC", "8980-01-01", 10_000)) == 5


@pytest.mark.parametrize(("schedule", "zone"), [("0 0 31 2 *", "UTC"), ("@daily", "Nowhere/Town")])
def test_what_tick_refuses_is_refused(schedule: str, zone: str) -> None:
    """In its words."""
    with pytest.raises(ValueError, match=r"never fires|unknown time zone"):
        of(schedule, zone, "2026-11-20")
