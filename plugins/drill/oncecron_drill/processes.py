"""The processes of this machine: found by pid, told from later ones with the same pid, stopped, killed, waited for."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

DEADLINE = 10.0
"""Seconds that are waited for what must happen."""
TURN = 0.01
"""Seconds between two looks."""
_MEMORY, _END_OF_ENVIRONMENT = 20, 48
"""The places of vsize and env_end in a line of proc(5), stat, behind the name."""


class Process(NamedTuple):
    """One process of this machine; the start time tells it from a later one with its pid."""

    pid: int
    started: int
    parent: int
    state: str

    def alive(self) -> bool:
        """Say whether it still runs; one that only waits to be reaped does not."""
        now = read_process(self.pid)
        return now is not None and now.started == self.started and now.state not in "ZX"


def read_process(pid: int) -> Process | None:
    """Read one entry of the process table, or None when there is none (proc(5), stat)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(pid, int(fields[19]), int(fields[1]), fields[0].decode())


def process_table() -> list[Process]:
    """Return all processes of this machine."""
    entries = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [entry for entry in entries if entry is not None]


def command_line(pid: int) -> list[bytes]:
    """Return the words of a process's command line; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def environment_of(pid: int) -> list[bytes]:
    """Return the environment that a process was started with; none when it is gone, or another user's.

    While a program is being loaded its process has none yet, for up to 30 ms on a busy machine: that is waited for.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        file = Path(f"/proc/{pid}/environ")
        text, end = file.read_bytes(), time.monotonic() + DEADLINE
        while not text and time.monotonic() < end:
            is_loading = _is_loading(pid)  # asked first: it may have its environment at once
            text = file.read_bytes()
            if text or not is_loading:
                break
            time.sleep(TURN)
        return text.split(b"\0")
    return []


def _is_loading(pid: int) -> bool:
    """Return whether a process has memory, which the kernel and the dead have not, and no environment in it."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return fields[_MEMORY] != b"0" and fields[_END_OF_ENVIRONMENT] == b"0"


def descendants(pid: int, table: Sequence[Process] | None = None) -> list[Process]:
    """Return the process and all that descend from it, parents first; `table` spares reading all anew."""
    table = process_table() if table is None else table
    found = [entry for entry in table if entry.pid == pid]
    for parent in found:  # grows while it is walked
        found += [entry for entry in table if entry.parent == parent.pid]
    return found


def send(processes: Iterable[Process], number: int) -> None:
    """Send a signal to those that still live."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            if process.alive():
                os.kill(process.pid, number)


def wait_gone(processes: Iterable[Process], deadline: float = DEADLINE) -> None:
    """Wait until none of them lives; raises TimeoutError."""
    waiting = list(processes)
    wait_until(lambda: not any(process.alive() for process in waiting), deadline)


def wait_until(holds: Callable[[], bool], deadline: float = DEADLINE) -> None:
    """Look until something holds, for so many seconds; raises TimeoutError."""
    end = time.monotonic() + deadline
    while not holds():
        if time.monotonic() >= end:
            raise TimeoutError(f"not within {deadline:g} s")
        time.sleep(TURN)
