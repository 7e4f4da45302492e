"""Format times for people, and texts without control characters.

For a person who looks now, times are short: relative within the hour (`3m ago`, `in 2m`), else as on a clock and a
calendar (`02:00`, `Tue 02:00`, `12 Nov`). They are in one zone, which what shows them names once.
"""

from __future__ import annotations

from datetime import UTC, datetime

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.masking import visible as visible  # noqa: PLC0414 - one of the formats
from oncecron.core.tick import instant_of
from oncecron.core.units import DAY, HOUR, MINUTE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from oncecron.core.log_rows import Pause

ABSENT = "-"
_SAME_WEEK = 6  # days within which the name of a day means one date
_SAME_YEAR = 300  # days within which a day and a month do


class Clock(NamedTuple):
    """How times are shown: in UTC, in the zone of this host, or in another zone."""

    utc: bool
    zone: tzinfo | None = None
    """The other zone."""
    now: float | None = None
    """When a person looks, for whom times are short; None: they are exact."""

    def near(self, time: float | None) -> str:
        """Return for a person how far away it is within the hour, or `short_time`; else RFC 3339; or `ABSENT`."""
        if time is None or self.now is None:
            return self.seconds(time)
        is_near = abs(time - self.now) < HOUR
        return relative_time(time, self.now) if is_near else short_time(time, self.now, self)

    def logged(self, time: float | None) -> str:
        """Return a time as a log has it for a person: `Tue 02:00:01`, else RFC 3339; or `ABSENT`."""
        if time is None or self.now is None:
            return self.seconds(time)
        return _shown(time, self.now, self, "%H:%M:%S")

    def seconds(self, time: float | None) -> str:
        """Return RFC 3339 to the second, or `ABSENT`."""
        return ABSENT if time is None else self._text(time, "seconds")

    def exactly(self, time: float | None) -> str | None:
        """Return RFC 3339 to the millisecond, or None."""
        return None if time is None else self._text(time, "milliseconds")

    def tick(self, text: str | None) -> str:
        """Return a tick: its text; for a person, and in another zone, its time if it has one."""
        is_text = text is None or (self.zone is None and self.now is None)
        instant = None if is_text else instant_of(text)
        if instant is None:
            return text or ABSENT
        return self.seconds(instant) if self.now is None else tick_time(instant, self.now, self)

    def said_tick(self, text: str | None) -> str:
        """Return a tick in a sentence: in the zone of its other times, and as `--tick` takes it."""
        shown, instant = self.tick(text), instant_of(text)
        if shown != text or instant is None or self.utc:
            return shown
        there = datetime.fromtimestamp(instant).astimezone()
        return there.isoformat(timespec="minutes") if there.utcoffset() else shown

    def _text(self, time: float, precision: str) -> str:
        if self.zone is not None:
            return f"{datetime.fromtimestamp(time, self.zone):%Y-%m-%d %H:%M:%S %Z}"
        if self.utc:
            text = datetime.fromtimestamp(time, UTC).isoformat(timespec=precision)
            return text.removesuffix("+00:00") + "Z"
        return datetime.fromtimestamp(time).astimezone().isoformat(timespec=precision)


def relative_time(time: float, now: float) -> str:
    """Return how far away a time is, in one unit: `now`, `12s ago`, `3m ago`, `in 2m`, `5h ago`, `in 3d`."""
    seconds = int(abs(time - now))
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s")):
        if count := seconds // size:
            return f"in {count}{unit}" if time > now else f"{count}{unit} ago"
    return "now"


def short_time(time: float, now: float, clock: Clock) -> str:
    """Return a time on the clock and calendar: `02:00`, `Tue 02:00`, `12 Nov`, `12 Nov 2025`."""
    return _shown(time, now, clock, "%H:%M", is_brief=True)


def tick_time(time: float, now: float, clock: Clock) -> str:
    """Return a time to the minute: `02:00`, `Tue 02:00`, `12 Nov 02:00`, `12 Nov 2025 02:00`."""
    return _shown(time, now, clock, "%H:%M:%S" if int(time) % 60 else "%H:%M")


def _shown(time: float, now: float, clock: Clock, form: str, *, is_brief: bool = False) -> str:
    """Return a time with its day, as far as it is another one; brief: and of a far day without the time."""
    zone = clock.zone or (UTC if clock.utc else None)
    there, today = (datetime.fromtimestamp(each, zone) for each in (time, now))
    days = abs((there.date() - today.date()).days)
    if not days:
        return _time_of_day(there, form)
    day = f"{there:%a}" if days <= _SAME_WEEK else f"{there.day} {there:%b}"
    year = f" {there.year}" if days > _SAME_YEAR else ""
    at = "" if is_brief and days > _SAME_WEEK else f" {_time_of_day(there, form)}"
    return f"{day}{year}{at}"


def _time_of_day(there: datetime, form: str) -> str:
    shown = there.strftime(form)
    if there.timestamp() == there.replace(fold=1 - there.fold).timestamp():
        return shown
    # The clock shows this time twice, in autumn: the name of the offset tells which.
    return f"{shown} {(there if there.tzinfo else there.astimezone()).tzname()}"


def count(many: int, what: str, at_most: int | None = None) -> str:
    """Return a number of things: `1 skip`, `2 skips`; `100+ runs` where no more than 100 are counted."""
    more = "+" if at_most is not None and many >= at_most else ""
    return f"{many}{more} {what}{'s' * (many != 1)}"


def listed(names: Sequence[str], at_most: int = 5) -> str:
    """Return the first of some names, and how many more there are: `a, b and 3 more`."""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")


def held_by(pause: Pause, clock: Clock) -> str:
    """Return who paused or drained, when, how long and why."""
    until = f" until {clock.logged(pause.until)}" if pause.until else ""
    reason = f": {pause.reason}" if pause.reason else ""
    return visible(f"by {pause.author} since {clock.logged(pause.since)}{until}{reason}")


def part_of(shard: int, shards: int) -> str:
    """Return SHARD/SHARDS, or `ABSENT` for a key with one shard."""
    return ABSENT if shards == 1 else f"{shard}/{shards}"
