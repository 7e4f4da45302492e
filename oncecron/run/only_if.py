"""Carry out `--only-if TEST`: whether this host may run the job. It is imported only where that option is given.

The test runs before anything is claimed, once for each firing, with the environment and the directory of the job. Its
standard input is empty, and its standard output goes nowhere: both belong to the job. Its answer is its exit status:

    0          the firing goes on
    1 to 127   the firing is skipped on this host (`unmet`); the tick stays open for other hosts. 127 is the answer of
               dash's `command -v` for a program that is not there; for a misspelled test the shell adds a line
    else       a test that a signal ended, or that runs longer than `ONLY_IF_TIMEOUT`, gave no answer: nothing is
               claimed, the skip is `broken`, and a line says so

A signal that ends this process ends the test first, so that nothing keeps cron's pipe open.
"""

from __future__ import annotations

import os
import select
import time

from oncecron.core.errors import EX_NOT_EXECUTABLE, EX_NOT_FOUND, CommandError
from oncecron.core.light_modules import signal, signal_name
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Refusal
from oncecron.core.timing import KILL_TIMEOUT, LONGEST_SLEEP, ONLY_IF_TIMEOUT
from oncecron.core.units import format_duration
from oncecron.run import process_tree

if TYPE_CHECKING:
    from oncecron.run.spec import RunSpec


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def refusal_of(spec: RunSpec, shell: str) -> Refusal | None:
    """Run the test with a shell; return why this host skips, None if it does not.

    Raises `CommandError` if the test gives no answer, and `OSError` if it cannot be started.
    """
    status = _status(spec, shell)
    if status is None:
        raise _no_answer(f"still running after {format_duration(ONLY_IF_TIMEOUT)}")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        raise _no_answer(f"signal {(signal_name(number) or str(number)).removeprefix('SIG')}")
    code = os.WEXITSTATUS(status)
    if code > EX_NOT_FOUND:
        raise _no_answer(f"exit status {code}")
    return Refusal("unmet", detail=f"exit status {code}") if code else None


def _no_answer(why: str) -> CommandError:
    return CommandError(
        f"--only-if: the test gave no answer ({why}); nothing was started", EX_NOT_EXECUTABLE
    )


def _status(spec: RunSpec, shell: str) -> int | None:
    """Return the wait status of the test; None if it had to be killed."""
    words = [shell, "-c", spec.only_if or ""]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        streams = [(0, null), (1, null)]
        pid = process_tree.start(shell, words, spec.job_environment(None), None, mask, streams)
    finally:
        os.close(null)
    status = None
    handled = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = [signal.signal(number, _raise) for number in handled]
    try:
        status = _wait(pid, ONLY_IF_TIMEOUT)
    except _EndedError as ended:
        _kill(pid)
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
    if status is None:
        _kill(pid)
    return status


class _EndedError(BaseException):
    """A signal is to end this process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise(number: int, _frame: object) -> None:
    raise _EndedError(number)


def _kill(pid: int) -> None:
    """Kill the test and all that it has started; a process that cannot be killed is left."""
    os.killpg(pid, signal.SIGKILL)
    _wait(pid, KILL_TIMEOUT)


def _wait(pid: int, timeout: float) -> int | None:
    """Wait for a child; return its wait status, None if it has not ended in time."""
    deadline = time.monotonic() + timeout
    descriptor = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    try:
        while (remaining := deadline - time.monotonic()) > 0:
            if poller.poll(1000 * min(remaining, LONGEST_SLEEP)):
                return os.waitpid(pid, 0)[1]
    finally:
        os.close(descriptor)
    return None
