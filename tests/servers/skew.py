"""Hosts with a wrong clock, by libfaketime."""

import functools
import os
from pathlib import Path

from servers.require import not_proven


@functools.cache
def libfaketime() -> str:
    """Return the path of the library."""
    for directory in ("/usr/lib", "/usr/local/lib"):
        found = sorted(Path(directory).glob("**/faketime/libfaketime.so.1"))
        if found:
            return str(found[0])
    return not_proven("libfaketime is not installed (tests/run installs it)")


def skewed(seconds: float, environment: dict[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which the wall clock is off by so many seconds.

    CLOCK_MONOTONIC and CLOCK_BOOTTIME stay real: a wrong wall clock does not move them, and with
    a faked boot time the start times of /proc would come out as 1970.
    """
    base = dict(os.environ if environment is None else environment)
    return base | {
        "LD_PRELOAD": libfaketime(),
        "FAKETIME": f"{seconds:+.3f}",
        "FAKETIME_DONT_RESET": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
    }
