"""Read a time as people type it: `3 hours ago`, `14:47`, `yesterday`, `yesterday 02:00`, `2026-11-20`, ISO 8601.

A day is a span of time, a time of day is a minute. What has no offset is local time, or UTC where times are shown so.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.units import parse_duration

if TYPE_CHECKING:
    from datetime import tzinfo

EXPECTED = (
    "14:47, yesterday, 'yesterday 02:00', '3 hours ago', 2026-11-20, or 2026-11-20T02:00+01:00"
)
"""What can be written."""

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY_AND_TIME = re.compile(r"(yesterday|today|tomorrow)(?:(?: at)? (\S+))?")
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

    Raises `ValueError` for what is no time.
    """
    words = " ".join(text.lower().split())
    age = _age(words)
    if age is not None:
        return [Span(now - age, now - age, now - age)]
    zone = UTC if utc else None
    today = datetime.fromtimestamp(now, zone)
    try:
        if named := _DAY_AND_TIME.fullmatch(words):
            day = today.date() + timedelta(_DAYS[named[1]])
            return _minutes(day, _time(named[2]), zone) if named[2] else [_day(day, zone)]
        if _TIME.fullmatch(words):
            shown = _time(words)
            day = today.date() - timedelta(shown > today.time())
            return _minutes(day, shown, zone)
        return _written(text.strip(), zone)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{text!r} is not a time; write {EXPECTED}") from error


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
    """Return the minute of a local time; both if the clock shows it twice."""
    local = _local(day, shown, zone)
    starts = [local.timestamp(), local.replace(fold=1).timestamp()]
    return [_minute(each) for each in starts[: 1 + (starts[0] < starts[1])]]


def _local(day: date, shown: time, zone: tzinfo | None) -> datetime:
    return datetime.combine(day, shown, zone)


def _minute(instant: float) -> Span:
    start = instant // 60 * 60
    return Span(start, start + 60, instant)
