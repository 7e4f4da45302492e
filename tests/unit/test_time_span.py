"""Times as people type them, in a zone with summer time."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from oncecron.log.time_span import read_time

NOW = datetime(2026, 11, 25, 13, 0, tzinfo=UTC).timestamp()
"""14:00 in Berlin."""


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("3h", "2026-11-25T10:00"), ("1h30m", "2026-11-25T11:30"), ("90", "2026-11-25T12:58:30"),
        ("13:59", "2026-11-25T12:59"), ("14:47", "2026-11-24T13:47"), ("9:05:30", "2026-11-25T08:05:30"),
        ("Yesterday", "2026-11-23T23:00"), ("today 02:00", "2026-11-25T01:00"), ("yesterday 2:00", "2026-11-24T01:00"),
        ("Tue 02:00", "2026-11-24T01:00"), ("Wed", "2026-11-17T23:00"), ("Thursday", "2026-11-18T23:00"),
        ("2026-11-20", "2026-11-19T23:00"),
        ("2026-11-20 02:00", "2026-11-20T01:00"), ("2026-11-20T02:00:31", "2026-11-20T01:00:31"),
        ("2026-10-25 02:30", "2026-10-25T00:30"),
        ("2026-11-20T02:00Z", "2026-11-20T02:00"), ("2026-11-20T02:00+03:00", "2026-11-19T23:00"),
    ],
)  # fmt: skip
def test_a_time_means_what_it_says(text: str, read: str) -> None:
    """Local, unless it has an offset; of two that the clock shows, the first."""
    assert read_time(text, NOW) == datetime.fromisoformat(f"{read}+00:00").timestamp()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("3h", "2026-11-25T16:00"), ("14:00", "2026-11-25T13:00"), ("13:59", "2026-11-26T12:59"),
        ("today 18:00", "2026-11-25T17:00"), ("Tue 02:00", "2026-12-01T01:00"), ("Wednesday", "2026-12-01T23:00"),
        ("Thu", "2026-11-25T23:00"), ("tomorrow 06:00", "2026-11-26T05:00"), ("2026-11-28 02:00", "2026-11-28T01:00"),
    ],
)  # fmt: skip
def test_of_what_is_to_end_it_is_the_next_one(text: str, read: str) -> None:
    """Not the last one: a pause until 18:00."""
    found = read_time(text, NOW, ahead=True)
    assert found == datetime.fromisoformat(f"{read}+00:00").timestamp()


def test_without_an_offset_it_is_utc_where_times_are_shown_so() -> None:
    """As they are copied from there."""
    for text, read in (("14:47", "2026-11-24T14:47"), ("2026-11-20", "2026-11-20T00:00")):
        found = read_time(text, NOW, utc=True)
        assert found == datetime.fromisoformat(f"{read}+00:00").timestamp()


@pytest.mark.parametrize(
    "text",
    ["", "25:00", "02:30 CEST", "30 Feb", "Tue 25:00", "14:60", "2pm", "noon", "last tuesday", "3 hours ago", "-3h",
     "12 Nov", "tomorrow",
     "yesterday 25:00", "2026-13-01", "2026-11-31", "10000-01-01", "x" * 300],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    """With what can be written."""
    with pytest.raises(ValueError, match="is not a time; write 90m, 14:47, today, "):
        read_time(text, NOW)


@pytest.mark.parametrize(
    "text",
    ["999999d", "9999999999999d", "9" * 400 + "d", "9" * 5000 + " weeks ago", "1969-12-30", "0001-01-01",
     "0001-01-01T00:00Z", "9999-12-31T23:59Z", "9999-12-31T23:59-14:00", "9000-01-03", "1 Jan 1900"],
)  # fmt: skip
@pytest.mark.parametrize("utc", [True, False])
def test_what_is_too_far_away_is_refused(text: str, utc: bool) -> None:
    """No clock shows it, and no store keeps it."""
    with pytest.raises(
        ValueError, match=r"is too far away; write a time from 1970 to 8999|is not a time; write"
    ):
        read_time(text, NOW, utc=utc)


@pytest.mark.parametrize("text", ["1970-01-01", "1970-01-01T00:00+14:00", "8999-12-31", "3653d"])
@pytest.mark.parametrize("utc", [True, False])
def test_what_is_read_can_be_shown(text: str, utc: bool) -> None:
    """In any zone, from the first to the last."""
    found = read_time(text, NOW, utc=utc)
    for hours in (-14, 0, 14):
        assert datetime.fromtimestamp(found + hours * 3600).astimezone().isoformat()
