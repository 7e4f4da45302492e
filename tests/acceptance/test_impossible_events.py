"""A bug of the guard itself, while a job runs: nothing of the job outlives the guard."""

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from servers import Journal, eventually, job
from servers.oncecron import Firing, Oncecron
from servers.process import process_table, spawn

TAKES_WHAT_CANNOT_BE = """
from oncecron.run import firing_states
from oncecron.run.events import Kept
firing_states.Running.take_signal = firing_states.Running.lose_wrapper = lambda running, *_, **__: running.take(Kept())
from oncecron.__main__ import main
main()
"""
STUBBORN = ("--ignore-term", "--beats", "--setsid-grandchild", "--sleep", 60)
WRITTEN = "internal error: ImpossibleEventError: Running cannot take Kept"


@pytest.fixture
def store(public_path: Path) -> str:
    """Give the address of a store that has nothing yet."""
    return f"sqlite://{public_path}/store.db"


@pytest.fixture
def firing(public_path: Path, store: str, journal: Journal) -> Firing:
    """Give a firing whose job and its grandchild, in a session of its own, run and ignore TERM."""
    run = ["run", "--key", "k", "--store", store, "--tick", "one", "--"]
    command = [sys.executable, "-P", "-c", TAKES_WHAT_CANNOT_BE, *run, *job(journal, *STUBBORN)]
    environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(public_path)}
    firing = Firing(spawn(command, env=environment, stdout=PIPE, stderr=PIPE))
    journal.wait_for("start", 2)
    return firing


def living(journal: Journal) -> list[int]:
    """Return the processes of the job that live."""
    written = {line.pid for line in journal.lines()}
    return [process.pid for process in process_table() if process.pid in written]


def test_a_guard_that_fails_without_a_wrapper_takes_its_tree_along(
    firing: Firing, journal: Journal
) -> None:
    """Nobody else would kill it: the lease ends a minute later."""
    os.kill(firing.wrapper.pid, signal.SIGKILL)
    eventually(lambda: not living(journal))
    assert WRITTEN in firing.wait().err


def test_a_guard_that_fails_beside_its_wrapper_is_recorded(
    firing: Firing, journal: Journal, store: str, public_path: Path
) -> None:
    """As a bug, and the job as lost."""
    os.kill(firing.wrapper.pid, signal.SIGTERM)
    end = firing.wait()
    assert end.status == 70
    assert WRITTEN in end.err
    assert living(journal) == []
    host = Oncecron(store, public_path, XDG_STATE_HOME=str(public_path))
    host("flush")
    assert b"the oncecron guard failed" in host("history", "k", "--format", "json").out
