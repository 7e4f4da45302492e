"""Read the clocks of this host: the wall clock names ticks, the lease clock ends trust. Tell what a wrong one wrote.

How far two clocks may be apart is in `timing` (`MAX_CLOCK_SKEW`); `decision` refuses the tick, `doctor` tells a person.

Wall times are float seconds since the epoch (UTC). Lease times are float seconds of the clock that the store uses:
CLOCK_BOOTTIME, which counts suspend, or CLOCK_MONOTONIC for a store on this machine.
"""

from __future__ import annotations

import os
import time

from oncecron.core import system
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.core.units import DAY

_FALSE_TIME_AGO = 1.0 * DAY
"""Longer than a scheduled firing is usually late, and not longer than the log keeps executions, whose ticks are `done`.
"""
_OLDEST_PROCESS = 3600.0
"""A process older than this did not just start: its start time is wrong, and the present time is used."""

BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
MONOTONIC: int = time.CLOCK_MONOTONIC

_FIRST_TIME, _LAST_TIME = -62_135_510_400, 253_402_214_400
"""A day after the year 1 begins, and a day before the year 9999 ends: every zone can show what is between."""


def is_time(seconds: float) -> bool:
    """Return whether a number is a time that can be shown, or a difference of two; infinity and NaN are neither."""
    return _FIRST_TIME <= seconds <= _LAST_TIME


def is_ahead(time: float, now: float) -> bool:
    """Return whether a recorded time is so far ahead of the present one that a wrong clock has written it."""
    return time > now + MAX_CLOCK_SKEW


def believed(time: float, now: float) -> float:
    """Return a recorded time; one that a wrong clock has written counts as a day ago."""
    return now - _FALSE_TIME_AGO if is_ahead(time, now) else time


def wall() -> float:
    """Return the host's wall clock in seconds since the epoch."""
    return system.calls.wall()


def lease_time(clock: int) -> float:
    """Return the seconds that the given lease clock shows now."""
    return system.calls.clock_gettime(clock)


def process_started() -> float:
    """Return the wall time at which this process started, in seconds since the epoch.

    It comes from the process table (proc(5): field 22 of stat, in clock ticks since boot on CLOCK_BOOTTIME). So a slow
    start of the interpreter cannot move a firing into another minute. Without a process table it is the present time.
    """
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return time.time()
    # One right after the other: what passes between them moves the answer, perhaps into another minute.
    now, age = time.time(), time.clock_gettime(BOOTTIME) - began
    # Another time namespace, or a faked clock, gives a wrong age.
    return now - age if 0 <= age < _OLDEST_PROCESS else now
