"""Start oncecron on a host whose wall clock is wrong, or whose disk is full. Standard library only.

    python3 launcher.py CLOCK DISK SCRIPT ARGUMENT...
    python3 launcher.py CLOCK DISK -m MODULE ARGUMENT...

The file CLOCK has the seconds by which the clock is off; it is read at each look at the clock, so that a running
process sees a step. `-` is a right clock. The lease clock is the kernel's and is always right, as on a real host.
DISK is `full` or `-`. On a full disk a file can be created, and every write to it fails (EFBIG instead of ENOSPC): the
limit of a file's size is 0. A job of the drill takes that limit off for its ledger.
"""

import os
import resource
import sys
import time


def shift(path: str) -> None:
    """Let the wall clock of this process, and of what it forks, be off by what a file says."""
    true_time, true_time_ns, true_clock = time.time, time.time_ns, time.clock_gettime

    def offset() -> float:
        try:
            with open(path, encoding="ascii") as file:
                return float(file.read() or 0)
        except OSError:  # this process is short of something
            return 0.0

    time.time = lambda: true_time() + offset()
    time.time_ns = lambda: true_time_ns() + int(offset() * 1e9)
    time.clock_gettime = lambda clock: (
        true_clock(clock) + (offset() if clock == time.CLOCK_REALTIME else 0.0)
    )


def fill_disk() -> None:
    """Let every write to a file fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))


def main() -> None:
    """Become oncecron."""
    clock, disk, *words = sys.argv[1:]
    if clock != "-":
        shift(clock)
    if disk == "full":
        fill_disk()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    if words[0] == "-m":
        import runpy  # noqa: PLC0415 - the usual way is a script

        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    with open(words[0], encoding="utf-8") as file:
        code = compile(file.read(), words[0], "exec")
    exec(code, {"__name__": "__main__", "__file__": words[0]})  # noqa: S102 - as the interpreter does it


if __name__ == "__main__":
    main()
