"""Times as people type them, in a zone with summer time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from oncecron.log.time_span import read_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 25, 13, 0, tzinfo=UTC).timestamp()
"""14:00 in Berlin."""


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this host be there."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def shown(text: str, *, utc: bool = False) -> list[tuple[str, float]]:
    """Return the starts in UTC, and the lengths."""
    found = read_spans(text, NOW, utc=utc)
    return [(datetime.fromtimestamp(s.start, UTC).isoformat()[:16], s.end - s.start) for s in found]


@pytest.mark.parametrize(
    ("text", "start", "length"),
    [
        ("3 hours ago", "2026-11-25T10:00", 0), ("3h", "2026-11-25T10:00", 0), ("1h30m ago", "2026-11-25T11:30", 0),
        ("An hour ago", "2026-11-25T12:00", 0), ("2 weeks ago", "2026-11-11T13:00", 0),
        ("90 min", "2026-11-25T11:30", 0),
        ("13:59", "2026-11-25T12:59", 60), ("14:47", "2026-11-24T13:47", 60), ("9:05:30", "2026-11-25T08:05", 60),
        ("yesterday", "2026-11-23T23:00", 86400), ("today 02:00", "2026-11-25T01:00", 60),
        ("yesterday  at 2:00", "2026-11-24T01:00", 60), ("tomorrow 02:00", "2026-11-26T01:00", 60),
        ("2026-11-20", "2026-11-19T23:00", 86400), ("2026-10-25", "2026-10-24T22:00", 90000),
        ("2026-11-20 02:00", "2026-11-20T01:00", 60), ("2026-11-20T02:00:31", "2026-11-20T01:00", 60),
        ("Tue 02:00", "2026-11-24T01:00", 60), ("Wed", "2026-11-17T23:00", 86400),
        ("12 Nov", "2026-11-11T23:00", 86400),
        ("1 Dec 02:00", "2025-12-01T01:00", 60), ("12 Nov 2024 02:00:07", "2024-11-12T01:00", 60),
        ("25 Oct 02:30 CET", "2026-10-25T01:30", 60), ("25 Oct 02:30 CEST", "2026-10-25T00:30", 60),
        ("2026-11-20T02:00Z", "2026-11-20T02:00", 60), ("2026-11-20T02:00+03:00", "2026-11-19T23:00", 60),
    ],
)  # fmt: skip
def test_a_time_means_what_it_says(text: str, start: str, length: float) -> None:
    """An age is a time, a time of day a minute, a date a day; local, unless it has an offset."""
    assert shown(text) == [(start, length)]


def test_without_an_offset_it_is_utc_where_times_are_shown_so() -> None:
    """As they are copied from there."""
    assert shown("14:47", utc=True) == [("2026-11-24T14:47", 60)]
    assert shown("2026-11-20", utc=True) == [("2026-11-20T00:00", 86400)]


def test_a_time_that_the_clock_shows_twice_is_both() -> None:
    """When summer time ends."""
    assert shown("2026-10-25 02:30") == [("2026-10-25T00:30", 60), ("2026-10-25T01:30", 60)]


@pytest.mark.parametrize(
    "text",
    ["", "25:00", "02:30 CEST", "30 Feb", "Tue 25:00", "14:60", "2pm", "noon", "last tuesday", "3 moons ago", "-3h",
     "yesterday 25:00", "2026-13-01", "2026-11-31", "9999-12-31", "10000-01-01", "x" * 300],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    """With what can be written."""
    with pytest.raises(ValueError, match=r"is not a time; write 14:47, yesterday, .*'3 hours ago'"):
        read_spans(text, NOW)


@pytest.mark.parametrize(
    "text",
    ["999999d", "9999999999999d", "9" * 400 + "d", "9" * 5000 + " weeks ago", "1969-12-30", "0001-01-01",
     "0001-01-01T00:00Z", "9999-12-31T23:59Z", "9999-12-31T23:59-14:00", "9000-01-02", "1 Jan 1900"],
)  # fmt: skip
@pytest.mark.parametrize("utc", [True, False])
def test_what_is_too_far_away_is_refused(text: str, utc: bool) -> None:
    """No clock shows it, and no store keeps it."""
    with pytest.raises(
        ValueError, match=r"is too far away; write a time from 1970 to 8999|is not a time; write"
    ):
        read_spans(text, NOW, utc=utc)


@pytest.mark.parametrize("text", ["1970-01-01", "1970-01-01T00:00+14:00", "8999-12-31", "20000d"])
@pytest.mark.parametrize("utc", [True, False])
def test_what_is_read_can_be_shown(text: str, utc: bool) -> None:
    """In any zone, from the first to the last."""
    for span in read_spans(text, NOW, utc=utc):
        for at in (
            *span,
            *(side + 14 * 3600 for side in span),
            *(side - 14 * 3600 for side in span),
        ):
            assert datetime.fromtimestamp(at).astimezone().isoformat()
