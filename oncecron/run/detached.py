"""Run a function in a process that init adopts: nothing that ends the job, the guard or the wrapper ends it.

It must be started before this process is a child subreaper, and before any thread starts. Its signals stay blocked as
they are at the start. Under systemd, the TERM that follows the end of a unit does not end it.
"""

from __future__ import annotations

import os

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.run.process_tree import close_above_standard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def start_detached(function: Callable[[], object]) -> None:
    """Run a function in a process that is no child of this one. Raises `OSError`."""
    first = os.fork()
    if first == 0:
        try:
            if os.fork() == 0:
                function()
        finally:
            os._exit(0)
    os.waitpid(first, 0)


def detach(needed: Iterable[int], empty: Iterable[int]) -> None:
    """Give up the terminal, the working directory, and each descriptor that is not needed.

    `empty`: those of 0, 1 and 2 that become /dev/null. Who reads the job's output waits for each process that holds it.
    """
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in empty:
        os.dup2(nothing, standard)
    close_above_standard(*needed)
