"""Carry out `--only-if TEST`: whether this host may run the job. It is imported only where that option is given.

The test runs before anything is claimed, once for each firing, with the environment and the directory of the job. Its
standard input is empty, and its standard output goes nowhere: both belong to the job. Its answer is its exit status:

    0          the firing goes on
    1 to 127   the firing is skipped on this host (`unmet`); the tick stays open for other hosts. 127 is the answer of
               dash's `command -v` for a program that is not there; for a misspelled test the shell adds a line
    else       a test that a signal ended, or that runs longer than `ONLY_IF_TIMEOUT`, gave no answer: nothing is
               claimed, the skip is `broken`, and a line says so

A signal that is to end this process ends the test first, so that nothing keeps cron's pipe open.
"""

from __future__ import annotations

import os
import time

from oncecron.core.errors import EX_NOT_EXECUTABLE, EX_NOT_FOUND, CommandError
from oncecron.core.light_modules import signal_name
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Refusal
from oncecron.core.timing import KILL_TIMEOUT, ONLY_IF_TIMEOUT
from oncecron.core.units import format_duration
from oncecron.run import process_tree

if TYPE_CHECKING:
    from oncecron.run.spec import RunSpec


def refusal_of(spec: RunSpec, shell: str) -> Refusal | None:
    """Run the test with a shell; return why this host skips, None if it does not.

    Raises `CommandError` if the test gives no answer, `OSError` if it cannot be started, and `Interrupted`.
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
    words = [shell, "-c", spec.only_if or ""]
    signals = process_tree.Signals()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    tree = process_tree.Tree()
    tree.set_apart()
    process_tree.become_subreaper()
    try:
        streams, mask = [(0, null), (1, null)], signals.mask_before
        pid = process_tree.start(shell, words, spec.job_environment(None), None, mask, streams)
        tree.expect(pid)
        return _wait(pid, tree, signals)
    finally:
        process_tree.become_subreaper(adopts=False)  # init adopts what the job's output needs
        os.close(null)
        signals.close()


def _wait(pid: int, tree: process_tree.Tree, signals: process_tree.Signals) -> int | None:
    """Wait for the test. Kill its tree and return None if it has not ended in time, also before `Interrupted`."""
    deadline = time.monotonic() + ONLY_IF_TIMEOUT
    try:
        while (remaining := deadline - time.monotonic()) > 0:
            signals.wait(remaining)
            tree.reap()
            if pid in tree.statuses:
                return tree.statuses[pid]
    finally:
        if pid not in tree.statuses:
            tree.kill_all(KILL_TIMEOUT)  # what cannot be killed is left
    return None
