"""A guard that is stopped after its last look at the clock and before its job has begun, or fails by a bug of ours."""

from __future__ import annotations

import os
import signal
import sys
from subprocess import PIPE
from typing import TYPE_CHECKING

from log_of import SQLiteLog
from servers import Journal, eventually, job
from servers.oncecron import Firing
from servers.process import read_process, send, spawn

if TYPE_CHECKING:
    from pathlib import Path

TTL = 6
STOPS_BEFORE_THE_START = """
import os, signal
from oncecron.run import firing_states
start = firing_states._start
def stopped(guard, lease):
    os.kill(os.getpid(), signal.SIGSTOP)
    return start(guard, lease)
firing_states._start = stopped
from oncecron.__main__ import main
main()
"""

FAILS_WHILE_THE_JOB_RUNS = """
import os
from oncecron.run.firing_states import Running
judge = Running.judge
def failing(state, now):
    if os.path.exists("fail"):
        raise ValueError("planted")
    return judge(state, now)
Running.judge = failing
from oncecron.__main__ import main
main()
"""


def test_a_guard_stopped_between_its_last_look_and_the_start_is_fenced(
    public_path: Path, journal: Journal
) -> None:
    """The wrapper ends it before its trust does, so that it cannot start a job without a lease later."""
    options = ["--store", f"sqlite://{public_path}/store.db", "--ttl", str(TTL), "--tick", "one"]
    firing = _fire(STOPS_BEFORE_THE_START, public_path, options, *job(journal))
    guard = firing.guard()
    eventually(lambda: (now := read_process(guard.pid)) is not None and now.state == "T")
    try:
        end = firing.wait(TTL + 4)
    finally:
        send([guard], signal.SIGCONT)
    assert end.status == 75
    assert "the oncecron guard did not stop the command in time" in end.err
    assert journal.runs() == []


def test_a_guard_that_fails_by_a_bug_leaves_nothing(public_path: Path, journal: Journal) -> None:
    """The wrapper ends what it left, and the record says why."""
    store = SQLiteLog(public_path / "store.db")
    options = ["--store", store.url, "--ttl", str(TTL), "--tick", "one"]
    firing = _fire(FAILS_WHILE_THE_JOB_RUNS, public_path, options, *job(journal, "--sleep", 60))
    journal.wait_for("start")
    (public_path / "fail").touch()
    end = firing.wait(10)
    assert end.status == 70
    assert "internal error: ValueError: planted" in end.err
    assert "the oncecron guard failed; the command was killed" in end.err
    (public_path / "fail").unlink()
    again = _fire("from oncecron.__main__ import main; main()", public_path, options, "true")
    assert again.wait(10).status == 0
    [record] = store.executions("k")
    assert (record.outcome, record.signal) == ("lost", signal.SIGKILL)
    assert record.lost_reason == "guard-failed"


def _fire(program: str, path: Path, options: list[str], *command: str) -> Firing:
    words = [sys.executable, "-P", "-c", program, "run", "--key", "k", *options, "--", *command]
    environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(path)}
    return Firing(spawn(words, env=environment, cwd=path, stdout=PIPE, stderr=PIPE))
