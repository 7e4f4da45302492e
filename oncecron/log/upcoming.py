"""The coming ticks of a schedule. The ticks before and after a clock change say what the change does to them.

A clock change is the first second at which the zone has another offset from UTC. The last tick before it and the first
tick at or after it are marked, unless they are so far apart that there is another change between them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import tick
from oncecron.core.timing import EARLY
from oncecron.core.units import DAY
from oncecron.host import local_time
from oncecron.log.time_span import LATEST_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_ZONE_CHANGES_WITHIN = 400 * DAY
"""A zone whose offset changes at all changes it twice within this time."""


class Coming(NamedTuple):
    """A coming tick, in the order of its published fields."""

    key: str | None
    schedule: str
    zone: str
    tick: str
    local: str
    """RFC 3339, in the schedule's zone."""
    change: str | None
    """The clock change before or after it, and what happens to local times that are skipped or repeated."""


class _Change(NamedTuple):
    """A clock change: its first second, and how far local time is ahead of UTC before it and from it on."""

    at: int
    before: int
    now: int


def coming_ticks(
    key: str | None,
    schedule: str,
    zone: str | None,
    span: tuple[float, float],
    count: int,
    *,
    changes: bool,
) -> list[Coming]:
    """Return the first `count` ticks of a span (epoch seconds), ascending.

    `changes`: also the ticks before and after the next two clock changes. `zone` None means the host's zone.

    Raises ValueError as `tick.next_ticks` does.
    """
    calendar = _Calendar(schedule, local_time.host_zone() if zone is None else zone)
    since, until = span
    following = list(islice(calendar.ticks(since), count + 1))
    wanted = set(following[:count])
    marks = dict(calendar.marks([int(since) - 1, *following]))
    if changes:
        for change in islice(calendar.changes(int(since), int(since) + _ZONE_CHANGES_WITHIN), 2):
            around = calendar.around(change)
            beside = dict(calendar.marks(around))
            marks |= beside
            wanted |= {instant for instant in beside if instant >= since}
    return [
        Coming(key, schedule, calendar.name, *calendar.texts(instant), marks.get(instant))
        for instant in sorted(wanted)
        if instant < until
    ]


class _Calendar:
    """One schedule in one zone; instants in whole epoch seconds."""

    def __init__(self, schedule: str, zone: str) -> None:
        self._schedule = schedule
        self.name = zone
        self._instants = tick.Schedule(schedule, local_time.offsets(zone))

    def ticks(self, since: float, zone: str | None = None) -> Iterator[int]:
        ticks = local_time.next_ticks(self._schedule, zone or self.name, -(-since // 1) - 1)
        instants = (int(each.instant or 0) for each in ticks)
        return takewhile(lambda instant: instant < LATEST_TIME, instants)

    def around(self, change: _Change) -> list[int]:
        """Return the last tick before a change, and the first tick at or after it."""
        last = local_time.scheduled_tick(self._schedule, self.name, change.at - 1 - EARLY)
        return [int(last.instant or 0), *islice(self.ticks(change.at), 1)]

    def marks(self, ticks: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield the ticks before and after a change, with what it does; none where two changes are between them."""
        for last, first in pairwise(ticks):
            if first - last > _ZONE_CHANGES_WITHIN:
                continue
            found = list(self.changes(last, first))
            if len(found) == 1:
                before, after = self._marks_of(found[0])
                yield last, before
                yield first, after

    def changes(self, start: int, stop: int) -> Iterator[_Change]:
        """Yield the changes later than `start` and no later than `stop`."""
        offset = self._instants.offset
        while (at := self._instants.change(start, stop)) is not None:
            yield _Change(at, offset(at - 1), offset(at))
            start = at

    def texts(self, instant: int) -> tuple[str, str]:
        name = datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%MZ")
        zone = timezone(timedelta(seconds=self._instants.offset(instant)))
        return name, datetime.fromtimestamp(instant, zone).isoformat(timespec="seconds")

    def _marks_of(self, change: _Change) -> tuple[str, str]:
        shown, new = _clock(change.at + change.before), _clock(change.at + change.now)
        before, after = f"before {shown} becomes {new}", f"after {shown} became {new}"
        low, high = sorted((change.at + change.before, change.at + change.now))
        # UTC has no clock changes: its ticks are the local times that the schedule names.
        times = list(takewhile(lambda instant: instant < high, self.ticks(low, "UTC")))
        if not times:
            return before, after
        forward = change.now > change.before
        fixed = self._instants.opening(change.at) == change.at + change.before
        if fixed and not forward:
            return f"{before}: {_listed(times)} not due again", after
        what = "due now" if fixed else "skipped" if forward else "due again"
        return before, f"{after}: {_listed(times)} {what}"


def _clock(local: int) -> str:
    return datetime.fromtimestamp(local, UTC).strftime("%H:%M")


def _listed(times: Sequence[int]) -> str:
    if len(times) == 1:
        return f"{_clock(times[0])} is"
    return f"{_clock(times[0])} {'and' if len(times) == 2 else 'to'} {_clock(times[-1])} are"  # noqa: PLR2004
