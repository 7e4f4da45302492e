"""Read a time as people type it, for every option that takes one: an age, a time of day, a day, ISO 8601.

What has no offset is local time, or UTC where times are shown so. A time of day and a weekday are the last ones; for
what is to end `ahead`, they are the next ones, and an age is how long from now.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, time, timedelta

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.units import DAY, parse_duration

if TYPE_CHECKING:
    from datetime import tzinfo

_EARLIEST_TIME, LATEST_TIME = -1.0 * DAY, 221845435200.0
"""What people may name: from the first day of 1970 to the last of 8999, over last in UTC-12. Clocks can show these, and
schedules find their next ticks: Python's calendar ends with 9999."""

EXPECTED = (
    "90m, 14:47, today, 'yesterday 02:00', 'Tue 02:00', 2026-11-20, or 2026-11-20T02:00+01:00"
)
"""What can be written."""
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def read_time(text: str, now: float, *, utc: bool = False, ahead: bool = False) -> float:
    """Return the time that a text means, in seconds since the epoch: a day begins at midnight.

    Raises `ValueError` for what is no time, and for one before 1970 or after 8999.
    """
    try:
        found = _read(text.strip().lower(), now, UTC if utc else None, 1 if ahead else -1)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{text!r} is not a time; write {EXPECTED}") from error
    if not _EARLIEST_TIME <= found < LATEST_TIME:
        raise ValueError(f"{text!r} is too far away; write a time from 1970 to 8999")
    return found


def is_time_of_day(text: str) -> bool:
    """Return whether a word is `02:00`: what stands behind a day, in the same quotes."""
    return bool(text[1:3].count(":")) and text.replace(":", "").isdigit()


def _read(text: str, now: float, zone: tzinfo | None, sign: int) -> float:
    with contextlib.suppress(ValueError):
        return now + sign * parse_duration(text)
    today = datetime.fromtimestamp(now, zone)
    day, _, hour = text.partition(" ")
    days = _days_from(today, day, sign)
    if days is not None:
        return _local(today + timedelta(days), hour or "00:00", zone)
    if is_time_of_day(text):
        found = _local(today, text, zone)
        return found if (found - now) * sign >= 0 else _local(today + timedelta(sign), text, zone)
    moment = datetime.fromisoformat(text.upper())
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def _days_from(today: datetime, day: str, sign: int) -> int | None:
    """Return how far from today a day is; a weekday, also in three letters, is the last or the next one."""
    for number, name in enumerate(_WEEKDAYS):
        if day in (name, name[:3]):
            return sign * (sign * (number - today.weekday()) % 7 or 7)
    return {"today": 0, "tomorrow" if sign > 0 else "yesterday": sign}.get(day)


def _local(day: datetime, hour: str, zone: tzinfo | None) -> float:
    shown = time.fromisoformat(hour if hour[1:2] != ":" else f"0{hour}")
    if shown.tzinfo:
        raise ValueError(hour)
    return datetime.combine(day.date(), shown, zone).timestamp()
