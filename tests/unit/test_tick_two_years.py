"""The ticks of two years in five zones are the minutes in which Debian's cron starts the line.

The ticks are those of the --schedule and --tz that `crontab wrap` writes before the line's command. The days of both
changes are compared whole, and of the others every ONCECRON_TEST_TICK_DAYS-th (1: all of them).
"""

import functools
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import takewhile
from zoneinfo import ZoneInfo

import debian_cron
import pytest
import story_stores

from oncecron.host.local_time import next_ticks, scheduled_tick
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import scan
from oncecron_crontab.wrap import WrapSettings, wrap

EVERY = int(os.environ.get("ONCECRON_TEST_TICK_DAYS", "146"))
DAY = 86400
BEGIN, DAYS = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()), 731  # one 29 February

# Changes at 02:00, at midnight, by half an hour, around a month that moves through the year, and none.
ZONES = {
    "Europe/Berlin": 4, "America/Havana": 4, "Australia/Lord_Howe": 4, "Africa/Casablanca": 4,
    "Asia/Kolkata": 0,
}  # fmt: skip
"""With the number of their changes in two years."""

SCHEDULES = (
    *("* * * * *", "*/5 * * * *", "*/7 0-6,12 * * *", "0-59/9 * * * *", "3-59/13 1-3 * * *"),
    *("0 * * * *", "@hourly", "15,45 * * * *", "10 */2 * * *", "*/20 2 * * *", "*/40 1-2 * * *"),
    *("0 0 * * *", "@daily", "@midnight", "30 0 * * *", "59 23 * * *", "0 1 * * *", "30 1 * * *"),
    *("0 2 * * *", "1 2 * * *", "15 2 * * *", "30 2 * * *", "59 2 * * *", "0 3 * * *"),
    *("0,30 2,3 * * *", "45 1-3 * * *", "5,50 0,23 * * *", "0-59/25 1-2 25,29 * 7", "29 1,2 * * *"),
    *("0 2 * * 0", "0 2 * * 7", "15 2 * * sun", "0 4 * * mon-fri", "0 4 1 * *", "0 4 1,15 * 5"),
    *("0 4 13 * fri", "0 4 */13 * fri", "0 4 * * */2", "0 4 31 * *", "0 4 29 2 *", "0 4 28-31 * 1"),
    *(
        "@weekly",
        "@monthly",
        "@yearly",
        "0 0 1 jan,jul *",
        "30 2 * mar,oct,NOV sun",
        "0 2 25-31 3 7",
    ),
    # What wrap has to write otherwise than it stands in the line.
    *("*/100 * * * *", "5#2 3 * * *", "0 2,22-3 * * *", "007 2 * * *"),
    *("30 2 * * 5#2", "0 4 1-7,*x * mon", "*/30+x 2,3 * * *", "0 0 * * sat-7"),
)


def changes(zone: str) -> list[int]:
    """Return the UTC days, as seconds, on which the offset changes."""
    rules = ZoneInfo(zone)
    offsets = [
        datetime.fromtimestamp(BEGIN + number * DAY, rules).utcoffset()
        for number in range(DAYS + 1)
    ]
    return [BEGIN + n * DAY for n in range(DAYS) if offsets[n] != offsets[n + 1]]


def stretches(zone: str) -> Iterator[tuple[int, int]]:
    """Yield when to look: from a day before each change to a day after it, and single days between."""
    if EVERY == 1:
        yield BEGIN, BEGIN + DAYS * DAY
        return
    whole = [(day - DAY, day + 2 * DAY) for day in changes(zone)]
    yield from whole
    for number in range(0, DAYS, EVERY):
        day = BEGIN + number * DAY
        if not any(start <= day < stop for start, stop in whole):
            yield day, day + DAY


def zones() -> list[str]:
    """Return all zones in the long form; else the two of which it is the seed's turn."""
    if EVERY == 1:
        return list(ZONES)
    return story_stores.rotated(ZONES, 2 * story_stores.seed(), 2)


@functools.cache
def written(line: str, zone: str) -> tuple[str, str]:
    """Return the schedule and the zone that wrap writes."""
    wrapped = wrap(scan(f"{line} /bin/bill\n".encode()), WrapSettings("/bin/oncecron", zone))
    assert (wrapped.changed, wrapped.errors) == (1, [])
    (job,) = scan(wrapped.data).entries()
    guard = read_prefix(job.command)
    assert guard is not None
    return guard.options["schedule"], guard.options["tz"]


def ticks(schedule: str, zone: str, start: int, stop: int) -> list[int]:
    """Return the ticks from `start` on, before `stop`."""
    instants = (int(each.instant or 0) for each in next_ticks(schedule, zone, start - 1))
    return list(takewhile(lambda instant: instant < stop, instants))


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERY == 1 else 300)
@pytest.mark.parametrize("zone", zones())
def test_two_years_of_ticks_are_the_starts_of_debian_cron(zone: str) -> None:
    """Exactly, forward by `next_ticks`, and by `scheduled_tick` for a firing a second after each."""
    assert len(changes(zone)) == ZONES[zone]
    for start, stop in stretches(zone):
        starts: list[list[int]] = [[] for _ in SCHEDULES]
        for now, found in debian_cron.starts(SCHEDULES, zone, start, stop):
            for number in found:
                starts[number].append(now)
        for line, started in zip(SCHEDULES, starts, strict=True):
            schedule, tz = written(line, zone)
            when = datetime.fromtimestamp(start, UTC)
            assert ticks(schedule, tz, start, stop) == started, (line, when)
            for now in started[:: len(started) // 12 + 1]:
                assert scheduled_tick(schedule, tz, now + 1.2).instant == now, (line, when)
