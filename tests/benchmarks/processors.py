"""The CPU time of servers."""

import contextlib
import os
from pathlib import Path

from servers import descendants

_TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of all that descend from it, those that have ended too."""
    total = 0
    for process in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # its parent has its time
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total * _TICK
