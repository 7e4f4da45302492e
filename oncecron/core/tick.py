"""Decide which tick a firing belongs to: one pure function for each rule.

The host's own clock names the tick, because each host's cron fires when *its* clock shows the time. So two firings of
one scheduled time have the same tick, whatever the skew.

`schedule_fields` finds a schedule's days, hours and minutes. This module maps them to instants as Debian's cron does
when local time moves forward by less than three hours, or back by at most three (cron(8), and the virtual clock of its
main loop):

- A schedule whose minute or hour field starts with `*` (also `@hourly`) is due whenever the local clock shows a
  matching minute: never in a minute that the clock skips, twice in a minute that it repeats.
- Any other schedule has fixed times. Each is due once, at the first instant at which the clock shows it *or has jumped
  past it*: at the jump if the time is skipped, the first time only if it is repeated.
- A larger change is a correction of the clock. Fixed times then follow the clock like the others.

Between two changes local time is a plain number line, and each such stretch is searched by itself.

`host.local_time` has the ticks of a schedule in a zone. Every firing imports this module, so a function that needs a
heavy module imports it.
"""

# ruff: noqa: PLC0415 - see the last sentence above

from __future__ import annotations

from time import gmtime

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CRON_CORRECTION = 3 * 3600
"""Debian's cron takes a jump forward by this much, or back by more, for a corrected clock, not for summer time."""

_LONGEST_NAME = 200
_CANONICAL = "2026-11-20T02:00Z"
_SHAPE = str.maketrans("123456789", "000000000")
_DAYS = ("today", "yesterday", "tomorrow", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIMES_OF_DAY = ("0:00", "00:00", "0:00:00", "00:00:00")


class Tick(NamedTuple):
    """The tick that a firing belongs to: each (key, tick) starts at most once."""

    text: str | None
    """The canonical text, `2026-11-20T02:00Z` or a name; None without a tick."""
    instant: float | None
    """Epoch seconds (UTC), a whole minute; None for a name that is no such instant, and without a tick."""
    rule: str
    """The rule that derived it: `schedule`, `name`, `minute` or `none`; `catch-up`: a scheduled one that was missed."""


NO_TICK = Tick(None, None, "none")
"""The firing belongs to no tick: it only excludes overlapping runs."""


def minute_tick(fired_at: float) -> Tick:
    """Return the host's minute, from `fired_at` in epoch seconds by the host's clock."""
    return at(fired_at // 60 * 60, "minute")


def named_tick(name: str) -> Tick:
    """Return the tick with this name: 1-200 printable characters without spaces.

    A name that is written as a day, a time and a zone means that instant, however it is written (ISO 8601, RFC 3339, or
    with a blank for the `T`). A whole minute is the tick that a schedule has then.

    Raises ValueError when it is empty, too long, or contains a space or an unprintable character, and when it looks
    like a time and is no instant: two hosts, or two programs, may mean two times by it.
    """
    if not name:
        raise ValueError(
            'the tick is empty (an unset variable?); give it a name, such as --tick "$(date +%F)"'
        )
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"the tick {name[:20]!r}... has {len(name)} characters: use at most 200")
    text = _utc_name(name) if _looks_like_a_time(name) else name
    for character in text:
        if character.isspace() or not character.isprintable():
            raise ValueError(
                f"the tick {name!r} contains {character!r}; use printable characters without spaces"
            )
    return Tick(text, instant_of(text), "name")


def _looks_like_a_time(name: str) -> bool:
    if not name[0].isdigit():
        return name.lower() in _DAYS
    if name[-1] in "smhd" and name[:-1].isdigit():  # an age
        return True
    text = name.upper().replace(" ", "T", 1)
    day, _, time = text.translate(_SHAPE).partition("T")
    if day.removesuffix("Z") in _TIMES_OF_DAY:
        return True
    digits = day.replace("-", "").replace("/", "")
    is_day = not digits.strip("0") and len("202615") <= len(digits) <= len("20261120")
    return is_day and time.startswith(("0:0", "00:0", "0000", "00Z"))


def _utc_name(name: str) -> str:
    """Return the one text of an instant: to the minute if it is one, else with what it has more. Raises ValueError."""
    from datetime import UTC, datetime

    text = name.upper().replace(" ", "T", 1).replace(" ", "", 1)  # `date +'%F %T %z'`
    try:
        moment = datetime.fromisoformat(text.replace("UTC", "Z"))
        there = moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        there = None
    if there is None:
        raise ValueError(
            f"the tick {name!r} looks like a time, and is no instant; write day, time and zone, such as "
            "2026-11-20T02:00Z or 2026-11-20T03:00+01:00"
        )
    is_minute = not (there.second or there.microsecond)
    return f"{there.replace(tzinfo=None).isoformat(timespec='minutes' if is_minute else 'auto')}Z"


def instant_of(name: str | None) -> float | None:
    """Return the instant that a recorded tick means, a whole minute; None for no tick, and for any other text."""
    if name is None or len(name) != len(_CANONICAL) or not name.endswith("Z"):
        return None
    from datetime import datetime

    try:
        instant = datetime.fromisoformat(name).timestamp()
    except ValueError:
        return None
    # ISO 8601 has more ways to write an instant, but only the canonical text is recorded.
    return instant if _utc_text(instant) == name else None


def at(instant: float, rule: str) -> Tick:
    """Return the tick of an instant."""
    return Tick(_utc_text(instant), float(instant), rule)


def _utc_text(instant: float) -> str:
    utc = gmtime(instant)
    return f"{utc[0]:04d}-{utc[1]:02d}-{utc[2]:02d}T{utc[3]:02d}:{utc[4]:02d}Z"


class Schedule:
    """The instants of one schedule in one zone, in whole epoch seconds.

    Local times are epoch seconds too, as if they were UTC. A change is the first second with another offset.
    """

    __slots__ = ("_fields", "_schedule", "offset")

    def __init__(self, schedule: str, offset: Callable[[int], int]) -> None:
        from oncecron.core.schedule_fields import read_schedule

        self._schedule = schedule
        self._fields = read_schedule(schedule)
        self.offset = offset
        """How far local time is ahead of UTC at an instant, in seconds."""

    def latest(self, at: int) -> int:
        """Return the latest tick that is no later than `at`."""
        while True:
            offset = self.offset(at)
            local = self._found(self._fields.latest(at + offset))
            change = self.change(at, local - offset - _CRON_CORRECTION)
            if change is None:
                return local - offset
            if local >= self.opening(change):
                return max(change, local - offset)
            at = change - 1

    def following(self, after: int) -> int:
        """Return the earliest tick that is later than `after`."""
        start, passed = after, after + self.offset(after)
        change = self.change(after, after - _CRON_CORRECTION)
        if change is not None:
            passed = max(passed, self.opening(change) - 1)
        while True:
            instant = max(start, self._found(self._fields.following(passed)) - self.offset(start))
            change = self.change(start, instant)
            if change is None:
                return instant
            start, passed = change, self.opening(change) - 1

    def between(self, after: int, until: int) -> Iterator[int]:
        """Yield the ticks later than `after` and no later than `until`, day by day where no clock changes."""
        while after < until:
            offset = self.offset(after + 1)
            day = (after + 1 + offset) // DAY
            midnight = day * DAY - offset
            if all(self.offset(midnight + each) == offset for each in (-DAY, 0, DAY)):
                due = (midnight + time for time in self._fields.times(day))
                yield from (instant for instant in due if after < instant <= until)
                after = midnight + DAY - 1
            elif (after := self.following(after)) <= until:
                yield after

    def opening(self, change: int) -> int:
        """Return the first local time that can be due after a change."""
        before, now = self.offset(change - 1), self.offset(change)
        corrected = now - before >= _CRON_CORRECTION or before - now > _CRON_CORRECTION
        return change + (before if self._fields.fixed and not corrected else now)

    def change(self, start: int, stop: int) -> int | None:
        """Return the first second of the change of offset that is nearest to `start`, or None.

        It searches in steps of a day, because no zone changes twice within a day.
        """
        offset = self.offset(start)
        while start != stop:
            probe = min(start + DAY, stop) if start < stop else max(start - DAY, stop)
            if self.offset(probe) != offset:
                return self._first_second(min(start, probe), max(start, probe))
            start = probe
        return None

    def _first_second(self, before: int, after: int) -> int:
        offset = self.offset(before)
        while after - before > 1:
            middle = (before + after) // 2
            same = self.offset(middle) == offset
            before, after = (middle, after) if same else (before, middle)
        return after

    def _found(self, local: int | None) -> int:
        if local is None:
            from oncecron.core.schedule_fields import never

            raise ValueError(never(self._schedule))
        return local
