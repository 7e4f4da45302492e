"""The time zone of this host, and the ticks of a schedule there or in another zone.

A firing imports this module only with a schedule.
"""

# ruff: noqa: PLC0415 - zoneinfo and datetime are imported where a zone is not UTC

from __future__ import annotations

import os
from itertools import islice
from time import localtime, time, tzset

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.tick import Schedule, Tick, at
from oncecron.core.timing import EARLY, QUARTER_YEAR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import tzinfo
    from typing import Self

    from oncecron.core.text import Clock

_DATABASE = "/usr/share/zoneinfo"
_MAGIC = b"TZif"
_LOCALTIME = "/etc/localtime"
_TIMEZONE = "/etc/timezone"
_LONGEST_NAME = 1024

_NAMES_OF_UTC = frozenset(
    ("UTC", "Etc/UTC", "UCT", "Etc/UCT", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu")
)
"""One zone, by the links of the tz database."""

_LEAP_SECONDS = "right/"
"""The zones of the tz database in which a clock would have to count leap seconds."""

_OF_THIS_HOST = frozenset(("localtime", "posixrules", "Factory"))
"""Files of the tz database whose zone the host's administrator or distribution chooses."""

_CURE = "name the zone with --tz, such as --tz Europe/Berlin"


def host_zone(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of the host's time zone as the C library sees it.

    That is `$TZ`, else the target of the link /etc/localtime. Where /etc/localtime is a copy, it is the name in
    /etc/timezone if the two agree. Without any of these it is UTC (tzset(3)).

    A `TZ=` line *inside* a crontab changes the `$TZ` of the job, but not when Debian's cron fires (crontab(5)). An
    entry below such a line needs `--tz`.

    Raises ValueError, which mentions `--tz`, when the zone has no name.
    """
    setting = environment.get("TZ")
    if setting is not None:
        return _zone_of_setting(setting)
    if not os.path.lexists(_LOCALTIME):
        return "UTC"
    name = _zone_of_link(_LOCALTIME)
    if name is None:
        return _zone_of_copy()
    _refuse_misleading(name)
    return name


def _zone_of_setting(setting: str) -> str:
    text = setting.removeprefix(":") or "UTC"
    name = (_zone_of_link(text) or "") if text.startswith("/") else text
    _refuse_misleading(name)
    try:
        find_zone(name)
    except ValueError:
        raise ValueError(f"TZ={setting!r} is not in the tz database; {_CURE}") from None
    return name


def _zone_of_link(path: str) -> str | None:
    # The first link has the name that the administrator chose; the end of the chain may be an alias of it.
    steps = [path, os.readlink(path) if os.path.islink(path) else "", os.path.realpath(path)]
    for step in steps:
        _, found, name = step.rpartition("/zoneinfo/")
        if found:
            return name.removeprefix("posix/")
    return None


def _zone_of_copy() -> str:
    """Return the zone in /etc/timezone, if /etc/localtime has the same offsets this year."""
    try:
        with open(_TIMEZONE, encoding="utf-8", errors="replace") as file:
            name = file.read(_LONGEST_NAME).strip()
    except OSError:
        raise ValueError(f"{_LOCALTIME} is a copy, not a link to a named zone; {_CURE}") from None
    zone = find_zone(name)
    instants = [int(time()) + quarter * QUARTER_YEAR for quarter in range(4)]
    if any(localtime(instant).tm_gmtoff != offset(zone, instant) for instant in instants):
        raise ValueError(f"{_LOCALTIME} differs from the zone {name!r} in {_TIMEZONE}; {_CURE}")
    return name


def zone_name(clock: Clock) -> str:
    """Return the name of the zone in which times are shown, for the one place that says it."""
    if clock.zone is not None or clock.utc:
        return str(clock.zone or "UTC")
    try:
        return host_zone()
    except ValueError:  # it has no name
        return localtime().tm_zone or "local time"


def find_zone(name: str) -> tzinfo | None:
    """Return the zone with this name, or None for UTC, which needs no tz database. Raises ValueError."""
    if name in _NAMES_OF_UTC:
        return None
    _refuse_misleading(name)
    from zoneinfo import ZoneInfo, available_timezones

    from oncecron.core.errors import UnknownZoneError

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such file, one outside the database, a directory
        cure = "give a name such as Europe/Berlin"
        if not available_timezones():
            cure = "this host has no tz database: install tzdata"
        raise UnknownZoneError(f"unknown time zone {name!r}; {cure}") from None


def shown_zone(name: str | None) -> tzinfo | None:
    """Return the zone of a `Clock`; None for its own. Raises ValueError."""
    from datetime import UTC

    return None if name is None else find_zone(name) or UTC


def _is_misleading(name: str) -> bool:
    """Return whether the tz database has the name, and its times are not those of one place.

    The C library subtracts the leap seconds of a `right/` zone from a clock that does not count them, and such a file
    has no rules for the time after its last change.
    """
    return name.startswith(_LEAP_SECONDS) or name in _OF_THIS_HOST


def _refuse_misleading(name: str) -> None:
    if not _is_misleading(name):
        return
    from oncecron.core.errors import UnknownZoneError

    usual = name.removeprefix(_LEAP_SECONDS).lstrip("/")
    if usual != name:
        raise UnknownZoneError(
            f"the time zone {name!r} counts leap seconds, and this host's clock does not; use {usual}"
        )
    raise UnknownZoneError(
        f"the time zone {name!r} is not the same on every host; use a name such as Europe/Berlin"
    )


def canonical(name: str) -> str:
    """Return one name for all names of UTC, to compare zones."""
    return "UTC" if name in _NAMES_OF_UTC else name


class BorrowedZone:
    """A zone as the C library reads it, while this context lasts: the process has no other zone then.

    It is for a firing, because `zoneinfo` with `datetime` costs 5 ms. Both read the same files. A zone that is not in
    the usual place, such as one of the package `tzdata`, is left to `zoneinfo`.
    """

    __slots__ = ("_before", "_file", "_zone")

    def __init__(self, name: str) -> None:
        """Find the zone. Raises `UnknownZoneError`."""
        self._file = None if name in _NAMES_OF_UTC else _database_file(name)
        self._zone = find_zone(name) if self._file is None else None
        self._before = os.environ.get("TZ")

    def __enter__(self) -> Self:
        """Make the zone that of the process."""
        if self._file:
            os.environ["TZ"] = f":{self._file}"
            tzset()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the process its own zone again."""
        if self._file is None:
            return
        if self._before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = self._before
        tzset()

    def offset(self, instant: int) -> int:
        """Return how far local time is ahead of UTC at an instant, in seconds."""
        return localtime(instant).tm_gmtoff if self._file else offset(self._zone, instant)


def _database_file(name: str) -> str | None:
    """Return the file of a zone in the tz database of the system, if the C library reads it as `zoneinfo` does."""
    if _is_misleading(name) or "PYTHONTZPATH" in os.environ:
        return None
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        return None
    path = f"{_DATABASE}/{name}"
    try:
        with open(path, "rb") as file:
            # For any other file, the C library would take UTC without a word.
            return path if file.read(len(_MAGIC)) == _MAGIC else None
    except (OSError, ValueError):
        return None


def offsets(name: str | None) -> Callable[[int], int]:
    """Return a function from an instant to how far local time is ahead of UTC, in seconds; None is the host's zone.

    Raises ValueError as `host_zone` and `find_zone` do.
    """
    zone = find_zone(host_zone() if name is None else name)
    return lambda instant: offset(zone, instant)


def offset(zone: tzinfo | None, instant: int) -> int:
    """Return how far a zone's local time is ahead of UTC at an instant, in seconds."""
    if zone is None:
        return 0
    from datetime import datetime, timedelta

    ahead = datetime.fromtimestamp(instant, zone).utcoffset()
    return (ahead or timedelta()) // timedelta(seconds=1)


def scheduled_tick(schedule: str, zone: str | None, fired_at: float) -> Tick:
    """Return the latest scheduled time, as `scheduled` does."""
    return scheduled(schedule, zone, fired_at)[0]


def scheduled(schedule: str, zone: str | None, fired_at: float) -> tuple[Tick, int]:
    """Return the latest scheduled time that is no later than `fired_at` + `EARLY`, however long ago it was.

    And by how many seconds local time is ahead of UTC then: other hosts may have another tz database.

    `schedule` is five crontab fields or a nickname such as `@daily`; `zone` is a name of the tz database, None for
    the host's; `fired_at` is in epoch seconds by the host's clock.

    Raises ValueError if Debian's cron would not accept the schedule, if it never fires, or if the zone is unknown.
    """
    with BorrowedZone(host_zone() if zone is None else zone) as borrowed:
        latest = Schedule(schedule, borrowed.offset).latest(int((fired_at + EARLY) // 1))
        return at(latest, "schedule"), borrowed.offset(latest)


def ticks_before(
    schedule: str, zone: str | None, before: float, after: float, at_most: int
) -> list[int]:
    """Return the newest instants earlier than `before` and later than `after`, rising: at most so many.

    For a firing, while it has one thread. Raises ValueError as `scheduled` does.
    """
    with BorrowedZone(host_zone() if zone is None else zone) as borrowed:
        return newest_before(Schedule(schedule, borrowed.offset), before, after, at_most)


def newest_before(schedule: Schedule, before: float, after: float, at_most: int) -> list[int]:
    """Return the newest instants of a schedule, as `ticks_before`."""
    found: list[int] = []
    while len(found) < at_most and (each := schedule.latest(int(before) - 1)) > after:
        found.append(each)
        before = each
    return found[::-1]


def next_ticks(schedule: str, zone: str | None, after: float) -> Iterator[Tick]:
    """Return an endless iterator over the ticks later than `after` (epoch seconds), in ascending order.

    Raises ValueError as `scheduled_tick` does, immediately and not at the first step.
    """
    return _ascending(Schedule(schedule, offsets(zone)), int(after // 1))


def _ascending(schedule: Schedule, after: int) -> Iterator[Tick]:
    while True:
        after = schedule.following(after)
        yield at(after, "schedule")


def instants_between(
    schedule: str, zone: str | None, after: float, until: float, at_most: int | None = None
) -> list[int]:
    """Return the instants of the ticks later than `after` and no later than `until`, rising: those of `next_ticks`.

    `at_most`: only so many, the first ones. Raises ValueError as `scheduled_tick` does.
    """
    found = Schedule(schedule, offsets(zone)).between(int(after // 1), int(until // 1))
    return list(islice(found, at_most))
