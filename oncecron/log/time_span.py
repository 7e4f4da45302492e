"""Read a time as people type it: `3 hours ago`, `14:47`, `yesterday`, `yesterday 02:00`, `2026-11-20`, ISO 8601.

Or as tables show it at a terminal: `Tue 02:00`, `12 Nov 02:00`, `12 Nov 2025`, `02:30 CEST`.

A day is a span of time, a time of day is a minute. What has no offset is local time, or UTC where times are shown so.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import EARLIEST_TIME, LATEST_TIME
from oncecron.core.units import parse_duration

if TYPE_CHECKING:
    from datetime import tzinfo

EXPECTED = (
    "14:47, yesterday, 'yesterday 02:00', 2h, '3 hours ago', 2026-11-20, or 2026-11-20T02:00+01:00"
)
"""What can be written."""

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY_AND_TIME = re.compile(r"(yesterday|today|tomorrow)(?:(?: at)? (\S+))?")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = re.compile(rf"({'|'.join(_WEEKDAYS)})(?: (\S+))?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(rf"(\d{{1,2}}) ({'|'.join(_MONTHS)})(?: (\d{{4}}))?(?: (\S+))?")
_IN_A_ZONE = re.compile(r"(.*\d) ([a-z]{2,5})")
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_AGE = re.compile(
    r"(\d+(?:\.\d+)?|an?) ?"
    r"(?:(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hrs?|hours?)|(d|days?)|(w|weeks?))"
)
_UNITS = ("1s", "1m", "1h", "1d", "7d")
"""The units of the groups of `_AGE`."""


class Span(NamedTuple):
    """From when until before when, in seconds since the epoch; an age has no length."""

    start: float
    end: float
    exactly: float
    """The time that was typed: a minute may have seconds, a day begins at midnight."""


def read_spans(text: str, now: float, *, utc: bool = False) -> list[Span]:
    """Return what a text means: one span, or two for a time that the local clock shows twice.

    Raises `ValueError` for what is no time, and for one before 1970 or after 8999.
    """
    spans = _spans(text, now, utc=utc)
    if not all(EARLIEST_TIME <= each.start <= each.end <= LATEST_TIME for each in spans):
        raise ValueError(f"{text!r} is too far away; write a time from 1970 to 8999")
    return spans


def _spans(text: str, now: float, *, utc: bool) -> list[Span]:
    words = " ".join(text.lower().split())
    age = _age(words)
    if age is not None:
        return [Span(now - age, now - age, now - age)]
    zone = UTC if utc else None
    today = datetime.fromtimestamp(now, zone)
    try:
        if named := _DAY_AND_TIME.fullmatch(words):
            day = today.date() + timedelta(_DAYS[named[1]])
            return _of_day(day, named[2], zone)
        if _TIME.fullmatch(words):
            shown = _time(words)
            day = today.date() - timedelta(shown > today.time())
            return _minutes(day, shown, zone)
        if day_and_time := _date(words, today.date()):
            return _of_day(*day_and_time, zone)
        if named := _IN_A_ZONE.fullmatch(words):
            return _called(read_spans(named[1], now, utc=utc), named[2], zone)
        return _written(text.strip(), zone)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{text!r} is not a time; write {EXPECTED}") from error


def _date(words: str, today: date) -> tuple[date, str | None] | None:
    if named := _WEEKDAY.fullmatch(words):
        back = (today.weekday() - _WEEKDAYS.index(named[1])) % 7 or 7
        return today - timedelta(back), named[2]
    if named := _DATE.fullmatch(words):
        day = date(int(named[3] or today.year), _MONTHS.index(named[2]) + 1, int(named[1]))
        is_ahead = day > today and not named[3]
        return day.replace(year=day.year - is_ahead), named[4]
    return None


def _of_day(day: date, shown: str | None, zone: tzinfo | None) -> list[Span]:
    return _minutes(day, _time(shown), zone) if shown else [_day(day, zone)]


def _called(spans: list[Span], name: str, zone: tzinfo | None) -> list[Span]:
    """Return those spans at whose start the zone is called so. Raises ValueError if there is none."""
    found = [
        span
        for span in spans
        if (datetime.fromtimestamp(span.start, zone or UTC).astimezone(zone).tzname() or "").lower()
        == name
    ]
    if not found:
        raise ValueError(name)
    return found


def _age(words: str) -> float | None:
    words = words.removesuffix(" ago")
    if found := _AGE.fullmatch(words):
        unit = next(place for place, each in enumerate(found.groups()[1:]) if each)
        number = 1.0 if found[1] in ("a", "an") else float(found[1])
        return number * parse_duration(_UNITS[unit])
    try:
        return parse_duration(words)
    except ValueError:
        return None


def _time(text: str) -> time:
    if not _TIME.fullmatch(text):
        raise ValueError(text)
    return time.fromisoformat(text.zfill(len("02:00:00" if text.count(":") > 1 else "02:00")))


def _written(text: str, zone: tzinfo | None) -> list[Span]:
    try:
        return [_day(date.fromisoformat(text), zone)]
    except ValueError:
        moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        return _minutes(moment.date(), moment.time(), zone)
    return [_minute(moment.timestamp())]


def _day(day: date, zone: tzinfo | None) -> Span:
    start, end = (_local(each, time(), zone).timestamp() for each in (day, day + timedelta(1)))
    return Span(start, end, start)


def _minutes(day: date, shown: time, zone: tzinfo | None) -> list[Span]:
    local = _local(day, shown, zone)
    starts = [local.timestamp(), local.replace(fold=1).timestamp()]
    return [_minute(each) for each in starts[: 1 + (starts[0] < starts[1])]]


def _local(day: date, shown: time, zone: tzinfo | None) -> datetime:
    return datetime.combine(day, shown, zone)


def _minute(instant: float) -> Span:
    start = instant // 60 * 60
    return Span(start, start + 60, instant)
