"""Hosts with a wrong clock, by libfaketime."""

import atexit
import functools
import os
from pathlib import Path

from servers.process import MEMORY
from servers.require import not_proven


@functools.cache
def libfaketime() -> str:
    for directory in ("/usr/lib", "/usr/local/lib"):
        found = sorted(Path(directory).glob("**/faketime/libfaketime.so.1"))
        if found:
            return str(found[0])
    return not_proven("libfaketime is not installed (tests/run installs it)")


def skewed(seconds: float, environment: dict[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which the wall clock is off by so many seconds.

    CLOCK_MONOTONIC and CLOCK_BOOTTIME stay real: a wrong wall clock does not move them, and with
    a faked boot time the start times of /proc would come out as 1970. The "fix" must be told to stay away: with glibc
    from 2.30 on it ends each timed wait for a condition of a real clock at once, and the threads of an interpreter then
    take its lock from each other at every instruction. On a busy machine such a process stood still for seconds.
    """
    base = dict(os.environ if environment is None else environment)
    return base | {
        "LD_PRELOAD": libfaketime(),
        "FAKETIME": f"{seconds:+.3f}",
        "FAKETIME_DONT_RESET": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "FAKETIME_NO_CACHE": "1",
    }


class SteppedClock:
    """The wall clock of a host, which can be stepped while its processes run.

    It stands in a file of this directory, which they read at each look at the clock.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self.step(0)
        base = skewed(0, {})
        del base["FAKETIME"]
        self.environment = base | {"FAKETIME_TIMESTAMP_FILE": str(self._file)}

    def step(self, seconds: float) -> None:
        """Set the clock so far ahead of the true time; negative: behind it."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.3f}\n")
        new.rename(self._file)

    @property
    def prefix(self) -> list[str]:
        """The command in front of a program that is to have this clock, behind what changes its user."""
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in self.environment.items())]

    @staticmethod
    def forget(pid: int) -> None:
        """Remove what libfaketime leaves behind when a process ends by _exit or a kill."""
        for name in ("faketime_shm", "sem.faketime_sem"):
            (MEMORY / f"{name}_{pid}").unlink(missing_ok=True)


@atexit.register
def _forget_the_dead() -> None:
    for path in MEMORY.glob("*faketime_s*_*"):
        pid = path.name.rpartition("_")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            SteppedClock.forget(int(pid))
