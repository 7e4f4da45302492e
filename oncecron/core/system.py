"""The calls of the system that a firing makes while its processes run, in one object.

A simulation puts another one in its place (`use`): then wrapper, guard and store thread live in other time, and with
other descriptors and processes, than those of this host. What a process does only with itself needs no place here.
"""

from __future__ import annotations

import os
import select
import time

from oncecron.core.light_modules import signal, start_thread
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


class Calls:
    """The calls of Linux, most under their own names."""

    # Time and chance
    wall = staticmethod(time.time)
    clock_gettime = staticmethod(time.clock_gettime)
    urandom = staticmethod(os.urandom)

    # Waiting
    poll = staticmethod(select.poll)
    eventfd = staticmethod(os.eventfd)
    eventfd_read = staticmethod(os.eventfd_read)
    eventfd_write = staticmethod(os.eventfd_write)
    start_thread = staticmethod(start_thread)

    # Descriptors
    pipe = staticmethod(os.pipe)
    open = staticmethod(os.open)
    read = staticmethod(os.read)
    write = staticmethod(os.write)
    close = staticmethod(os.close)
    set_blocking = staticmethod(os.set_blocking)
    isatty = staticmethod(os.isatty)

    # Processes
    getpid = staticmethod(os.getpid)
    waitpid = staticmethod(os.waitpid)
    kill = staticmethod(os.kill)
    pidfd_open = staticmethod(os.pidfd_open)
    pidfd_send_signal = staticmethod(signal.pidfd_send_signal)
    listdir = staticmethod(os.listdir)
    exit = staticmethod(os._exit)

    @staticmethod
    def fork(child: Callable[[], NoReturn]) -> int:
        """Call a function in a process that is forked from this one; return its pid."""
        return os.fork() or child()

    @staticmethod
    def read_file(path: str) -> bytes:
        """Return what a file of /proc has."""
        with open(path, "rb") as file:
            return file.read()


calls = Calls()
"""The calls that count."""


def use(others: Calls) -> None:
    """Let these calls count from now on, in all processes that are forked from this one."""
    global calls  # noqa: PLW0603 - one system lies below all processes of a firing
    calls = others
