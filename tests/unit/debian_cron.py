"""When Debian's cron starts a line, minute by minute: an oracle that shares nothing with the product.

By the sources of cron 3.0pl1-162: `entry` reads fields as entry.c does (`get_list`, `get_range`, `get_number`:
what follows a number is skipped, a falling range is empty), `starts` is the main loop of cron.c, woken each
minute, with its virtual clock and its `find_jobs`.
"""

import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
NAMES = (
    *((), (), ()),
    ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
)
NICKNAMES = {
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@hourly": "0 * * * *",
}
MANY_MINUTES = 180


class Entry(NamedTuple):
    """A line's schedule as cron has read it."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both: bool
    """DOM_STAR or DOW_STAR: both fields of the day have to match, not one of them."""
    wild: bool
    """MIN_STAR or HR_STAR: a wildcard job, which follows the clock."""

    def matches(self, clock: time.struct_time) -> bool:
        """Return whether find_jobs takes it at this local time."""
        by_day, by_weekday = (
            clock.tm_mday in self.days,
            (clock.tm_wday + 1) % 7 in self.weekdays,
        )
        return (
            clock.tm_min in self.minutes
            and clock.tm_hour in self.hours
            and clock.tm_mon in self.months
            and ((by_day and by_weekday) if self.both else (by_day or by_weekday))
        )


def entry(schedule: str) -> Entry:
    """Return five fields, or a nickname, as entry.c reads them. Raises ValueError where it refuses them."""
    fields = NICKNAMES.get(schedule, schedule).split()
    minutes, hours, days, months, weekdays = (
        _field(field, number) for number, field in enumerate(fields)
    )
    star = [field.startswith("*") for field in fields]
    return Entry(
        *(minutes, hours, days, months, frozenset(day % 7 for day in weekdays)),
        both=star[2] or star[4],
        wild=star[0] or star[1],
    )


def _field(field: str, number: int) -> frozenset[int]:
    low, high = RANGES[number]
    values: set[int] = set()
    rest = f",{field}"
    while rest.startswith(","):
        found = re.match(
            r"(?:(\*)|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9A-Za-z]+))?", rest[1:], re.ASCII
        )
        if found is None:
            raise ValueError(rest)
        star, first, last, step = found.groups()
        start = low if star else _number(first, number)
        stop = high if star else start if last is None else _number(last, number)
        tail = rest[1 + found.end() :]
        dangling = tail.startswith("/") or (tail.startswith("-") and not (star or last))
        if dangling or (step is not None and (not int(step) or not (star or last))):
            raise ValueError(rest)
        if not (low <= start <= high and low <= stop <= high):
            raise ValueError(rest)
        values.update(range(start, stop + 1, int(step or 1)))
        rest = tail
    return frozenset(values)


def _number(text: str, number: int) -> int:
    names = NAMES[number]
    return names.index(text.lower()) if text.lower() in names else int(text)


def starts(
    schedules: Sequence[str], zone: str, start: int, stop: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield the minutes (epoch seconds) between the two, each with the numbers of what is started in it.

    The daemon is started at the first minute, which it has slept through.
    """
    entries = [entry(schedule) for schedule in schedules]
    rules = ZoneInfo(zone)
    virtual = None
    for now in range(start, stop, 60):
        offset = datetime.fromtimestamp(now, rules).utcoffset()
        assert offset is not None
        running = (now + int(offset.total_seconds())) // 60
        late = 1 if virtual is None else running - virtual
        passed = range(running - late + 1, running + 1)
        if late > MANY_MINUTES or late <= -MANY_MINUTES:  # a corrected clock
            virtual, wild, fixed = running, [running], [running]
        elif late > 5:  # forward: wildcards once, fixed times of every minute passed
            virtual, wild, fixed = running, [running], list(passed)
        elif late > 0:
            virtual, wild, fixed = running, list(passed), list(passed)
        else:  # backward: wildcards alone, until the virtual clock is caught up
            wild, fixed = [running], []
        yield now, _found(entries, wild, fixed)


def _found(entries: Sequence[Entry], wild: list[int], fixed: list[int]) -> list[int]:
    clocks = {minute: time.gmtime(minute * 60) for minute in {*wild, *fixed}}
    return [
        number
        for number, each in enumerate(entries)
        if any(each.matches(clocks[minute]) for minute in (wild if each.wild else fixed))
    ]


def started(schedule: str, zone: str, start: int, stop: int) -> list[int]:
    return [now for now, found in starts([schedule], zone, start, stop) if found]
