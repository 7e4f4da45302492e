"""Read a time as people type it, for every option that takes one: an age, a time of day, a day, ISO 8601.

What has no offset is local time, or UTC where times are shown so.
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
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def read_time(text: str, now: float, *, utc: bool = False) -> float:
    """Return the time that a text means, in seconds since the epoch: a day begins at midnight.

    Raises `ValueError` for what is no time, and for one before 1970 or after 8999.
    """
    try:
        found = _read(text.strip().lower(), now, UTC if utc else None)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{text!r} is not a time; write {EXPECTED}") from error
    if not _EARLIEST_TIME <= found < LATEST_TIME:
        raise ValueError(f"{text!r} is too far away; write a time from 1970 to 8999")
    return found


def _read(text: str, now: float, zone: tzinfo | None) -> float:
    with contextlib.suppress(ValueError):
        return now - parse_duration(text)
    today = datetime.fromtimestamp(now, zone)
    day, _, hour = text.partition(" ")
    back = _days_back(day, today)
    if back is not None:
        return _local(today - timedelta(back), hour or "00:00", zone)
    if day[1:3].count(":") and not hour:
        found = _local(today, day, zone)
        return found if found <= now else _local(today - timedelta(1), day, zone)
    moment = datetime.fromisoformat(text.upper())
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def _days_back(day: str, today: datetime) -> int | None:
    """Return how long ago a day is; a weekday is the last one."""
    if day in _WEEKDAYS:
        return (today.weekday() - _WEEKDAYS.index(day)) % 7 or 7
    return {"today": 0, "yesterday": 1}.get(day)


def _local(day: datetime, hour: str, zone: tzinfo | None) -> float:
    shown = time.fromisoformat(hour if hour[1:2] != ":" else f"0{hour}")
    if shown.tzinfo:
        raise ValueError(hour)
    return datetime.combine(day.date(), shown, zone).timestamp()
