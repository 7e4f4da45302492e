"""The five fields of a schedule: what they may be, and the local times at which they match.

Local time is a number line of seconds, as if it were UTC: `tick` knows where clocks change. The fields mean what they
mean to Debian's cron (entry.c and cron.c of 3.0pl1): where neither of the two day fields begins with `*`, a day has to
match one of them, else both. They are stricter than there: what cron reads in a way that surprises is refused.

Every firing with `--schedule` pays for this module: no calendar is imported.
"""

from __future__ import annotations

from time import gmtime

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import LONGEST_SCHEDULE_GAP
from oncecron.core.units import DAY, HOUR, MINUTE

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_SHOWN_RANGES = ("0-59", "0-23", "1-31", "1-12 or jan-dec", "0-7 or sun-sat")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NAMES: tuple[tuple[str, ...], ...] = ((), (), (), _MONTHS, _DAYS)
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_SHOWN = 80
"""Characters of a schedule in a message: an unquoted `*` becomes the names of all files."""
_MONTH_AND_MORE = 32
"""Days from any day of a month to one of the next month's first four."""


class ScheduleFields(NamedTuple):
    """The values that match, in ascending order; day-of-week from 0, which is Sunday, to 6."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool
    """Whether one of the two day fields is enough."""
    fixed: bool
    """Whether neither minute nor hour begins with `*`: then cron handles clock changes in another way."""

    def latest(self, local: int) -> int | None:
        """Return the last local time that matches and is no later than `local`; None if there is none for long."""
        day, second = divmod(local, DAY)
        if self._is_due(day) and (time := self._latest_time(second)) is not None:
            return day * DAY + time
        found = self._day(day - 1, -1)
        return None if found is None else found * DAY + self._time(-1)

    def following(self, local: int) -> int | None:
        """Return the first local time that matches and is later than `local`; None if there is none for long."""
        day, second = divmod(local, DAY)
        if self._is_due(day) and (time := self._following_time(second)) is not None:
            return day * DAY + time
        found = self._day(day + 1, 1)
        return None if found is None else found * DAY + self._time(0)

    def times(self, day: int) -> list[int]:
        """Return the seconds of a day that match, rising; `day`: since the epoch."""
        if not self._is_due(day):
            return []
        return [hour * HOUR + minute * MINUTE for hour in self.hours for minute in self.minutes]

    def _time(self, at: int) -> int:
        return self.hours[at] * HOUR + self.minutes[at] * MINUTE

    def _latest_time(self, second: int) -> int | None:
        """Return the last matching second of a day that is no later than `second`."""
        hour, rest = divmod(second, HOUR)
        if hour in self.hours:
            for minute in reversed(self.minutes):
                if minute * MINUTE <= rest:
                    return hour * HOUR + minute * MINUTE
        for earlier in reversed(self.hours):
            if earlier < hour:
                return earlier * HOUR + self.minutes[-1] * MINUTE
        return None

    def _following_time(self, second: int) -> int | None:
        """Return the first matching second of a day that is later than `second`."""
        hour, rest = divmod(second, HOUR)
        if hour in self.hours:
            for minute in self.minutes:
                if minute * MINUTE > rest:
                    return hour * HOUR + minute * MINUTE
        for later in self.hours:
            if later > hour:
                return later * HOUR + self.minutes[0] * MINUTE
        return None

    def _is_due(self, day: int) -> bool:
        date = gmtime(day * DAY)
        return date.tm_mon in self.months and self._is_day(date.tm_mday, date.tm_wday)

    def _is_day(self, day: int, weekday: int) -> bool:
        """Return whether a day of the month matches; `weekday` counts from Monday, as gmtime does."""
        matches = day in self.days, (weekday + 1) % 7 in self.weekdays
        return any(matches) if self.either_day else all(matches)

    def _day(self, day: int, step: int) -> int | None:
        """Return the first day from `day` on, forward or backward, that matches; in days since the epoch."""
        end = day + step * (LONGEST_SCHEDULE_GAP // DAY)
        while (end - day) * step > 0:
            date = gmtime(day * DAY)
            if date.tm_mon in self.months:
                if self._is_day(date.tm_mday, date.tm_wday):
                    return day
                day += step
            elif step < 0:
                day -= date.tm_mday
            else:
                day += _MONTH_AND_MORE - date.tm_mday
                day -= gmtime(day * DAY).tm_mday - 1
        return None


def read_schedule(schedule: str) -> ScheduleFields:
    """Read five crontab fields, or a nickname such as `@daily`.

    Raises ValueError if Debian's cron would not take them as they look, or if they never match.
    """
    fields = _five_fields(schedule)
    for position, field in enumerate(fields):
        _check_syntax(schedule, position, field)
    values = [_values(schedule, position, field) for position, field in enumerate(fields)]
    minutes, hours, days, months, weekdays = values
    stars = [field.startswith("*") for field in fields]
    either_day = not (stars[2] or stars[4])
    if not either_day and all(days[0] > _DAYS_OF_MONTH[month - 1] for month in months):
        raise ValueError(never(schedule))
    weekdays = tuple(sorted({day % 7 for day in weekdays}))
    fixed = not (stars[0] or stars[1])
    return ScheduleFields(minutes, hours, days, months, weekdays, either_day, fixed)


def never(schedule: str) -> str:
    """Return the message for a schedule without any time."""
    return f"schedule {schedule!r} never fires: no year has such a day"


def _five_fields(schedule: str) -> Sequence[str]:
    text = schedule.strip()
    if text == "@reboot":
        raise ValueError("schedule '@reboot' has no scheduled time; use --no-tick")
    if text.startswith("@") and text not in _NICKNAMES:
        from oncecron.core.suggestion import unknown  # noqa: PLC0415 - for an error message alone

        raise ValueError(unknown("schedule", schedule, _NICKNAMES))
    fields = _NICKNAMES.get(text, text).split()
    if len(fields) != len(_FIELDS):
        use = f"use five ({', '.join(_FIELDS)}) or a nickname such as @daily"
        if len(fields) == 1:  # a shell has split the others off
            use += "; put quotes around all five: '*/5 * * * *'"
        plural = "s" * (len(fields) != 1)
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        raise ValueError(f"schedule {shown!r} has {len(fields)} field{plural}: {use}")
    return fields


def _check_syntax(schedule: str, position: int, field: str) -> None:
    """Refuse what Debian's cron refuses (`L`, `W`, `5/10`), or reads in part: it ignores what follows in `1#2`."""
    for term in field.split(","):
        span, slash, _ = term.partition("/")
        ends = span.split("-")
        names = ("*", *_NAMES[position])
        known = all(end.upper() in names or (end.isascii() and end.isdigit()) for end in ends)
        if not known or (slash and span != "*" and len(ends) == 1):
            raise ValueError(
                f"invalid {_FIELDS[position]} {term!r} in schedule {schedule!r} "
                f"(use {_SHOWN_RANGES[position]}, *, a-b, lists of these, and steps such as */5 or 0-59/5)"
            )


_MOST_DIGITS = 100
"""Of a number that cron reads (MAX_TEMPSTR); Python converts at most 4,300."""


def _values(schedule: str, position: int, field: str) -> tuple[int, ...]:
    """Return the values of a field, or raise ValueError: out of range, a falling range, a step of 0."""
    lowest, highest = _RANGES[position]
    values: set[int] = set()
    for term in field.split(","):
        span, slash, step = term.partition("/")
        first, dash, last = (f"{lowest}-{highest}" if span == "*" else span).partition("-")
        low, high = _value(position, first), _value(position, last if dash else first)
        stride = _value(0, step) if slash else 1
        if not lowest <= low <= high <= highest or stride < 1:
            where = f"{_FIELDS[position]} {field!r} in schedule {schedule!r}"
            use = f"use {_SHOWN_RANGES[position]}, ranges that rise, and steps from 1"
            raise ValueError(f"invalid {where} ({use})")
        values.update(range(low, high + 1, stride))
    return tuple(sorted(values))


def _value(position: int, text: str) -> int:
    names = _NAMES[position]
    if text.upper() in names:
        return names.index(text.upper()) + _RANGES[position][0]
    is_number = text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS
    return int(text) if is_number else -1
