"""A schedule's five fields: the same times as cronsim, an independent reader of crontab fields."""

from datetime import UTC, datetime
from itertools import islice

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.schedule_fields import read_schedule
from oncecron.core.units import DAY

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
NAMES = ("jan", "feb", "MAR", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "MON", "tue", "wed", "thu", "fri", "sat")
INSTANTS = st.integers(-5 * 365 * DAY, 150 * 365 * DAY)


@st.composite
def terms(draw: st.DrawFn, position: int) -> str:
    """Draw a number, a name, a range or a star, with a step where one may follow."""
    low, high = RANGES[position]
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    kinds = ["number", "*", "*"] + (["range"] if first < last else [])
    kind = draw(st.sampled_from(kinds + (["name"] if position in (3, 4) else [])))
    if kind == "name":
        return draw(st.sampled_from(NAMES if position == 3 else WEEKDAYS))
    if kind == "number":
        return str(first)
    step = draw(st.sampled_from(["", "", "/1", f"/{draw(st.integers(1, high + 2))}"]))
    return ("*" if kind == "*" else f"{first}-{last}") + step


@st.composite
def schedules(draw: st.DrawFn) -> str:
    """Draw five fields, each of up to three terms."""
    fields = [draw(st.lists(terms(position), min_size=1, max_size=3)) for position in range(5)]
    return " ".join(",".join(field) for field in fields)


def by_cronsim(schedule: str, local: int, *, reverse: bool) -> list[int]:
    """Return the next three times after a local one, or the last three before it."""
    times = CronSim(schedule, datetime.fromtimestamp(local, UTC), reverse=reverse)
    return [int(time.timestamp()) for time in islice(times, 3)]


@given(schedules(), INSTANTS)
def test_the_times_are_those_of_cronsim(schedule: str, local: int) -> None:
    """Forward and backward, three in a row."""
    try:
        expected = [by_cronsim(schedule, local, reverse=reverse) for reverse in (False, True)]
    except CronSimError:
        with pytest.raises(ValueError, match="never fires"):
            read_schedule(schedule)
        return
    fields = read_schedule(schedule)
    forward, backward, found = [], [], local
    for _ in expected[0]:
        found = fields.following(found) or 0
        forward.append(found)
    found = local
    for _ in expected[1]:
        found = fields.latest(found - 1) or 0
        backward.append(found)
    assert [forward, backward] == expected


@given(schedules(), INSTANTS)
def test_a_time_that_matches_is_its_own_latest(schedule: str, local: int) -> None:
    """The latest one may be now; the following one never is."""
    try:
        fields = read_schedule(schedule)
    except ValueError:
        return
    found = fields.following(local)
    assert found is not None
    assert found > local
    assert fields.latest(found) == found
    assert fields.latest(found + 59) == found


@pytest.mark.parametrize(
    ("schedule", "start", "expected"),
    [
        ("0 0 29 2 *", "2097-01-01", "2104-02-29"),  # 2100 is no leap year
        # Sundays: `*/7` begins with a star, so both days have to match.
        ("0 0 29 2 */7", "2088-03-01", "2128-02-29"),
        ("0 0 30 2 1", "2026-02-01", "2026-02-02"),  # Mondays of February: either day is enough
    ],
)
def test_rare_days_are_found(schedule: str, start: str, expected: str) -> None:
    """Also many years away."""
    after = int(datetime.fromisoformat(f"{start}T00:00Z").timestamp())
    found = read_schedule(schedule).following(after)
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).date().isoformat() == expected


def test_no_time_at_all_is_none() -> None:
    """In fifty years there is none: no year of them has such a day."""
    fields = read_schedule("0 0 29 2 *")._replace(days=(30,))
    assert fields.following(0) is None
    assert fields.latest(0) is None
