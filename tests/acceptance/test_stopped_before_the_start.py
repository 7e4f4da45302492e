"""A guard that is stopped after its last look at the clock and before its job has begun, or fails by a bug of ours."""

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE

from servers import Journal, eventually, job
from servers.oncecron import Firing
from servers.process import read_process, send, spawn

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


def test_a_guard_stopped_between_its_last_look_and_the_start_is_fenced(
    public_path: Path, journal: Journal
) -> None:
    """The wrapper ends it before its trust does, so that it cannot start a job without a lease later."""
    options = ["--store", f"sqlite://{public_path}/store.db", "--ttl", str(TTL), "--tick", "one"]
    firing = _fire(STOPS_BEFORE_THE_START, public_path, options, *job(journal))
    guard = firing.guard()
    eventually(lambda: (now := read_process(guard.pid)) is not None and now.state == "T")
    try:
        end = firing.wait(TTL + 24)
    finally:
        send([guard], signal.SIGCONT)
    assert end.status == 75
    assert "the oncecron guard did not stop the command in time" in end.err
    assert journal.runs() == []


def _fire(program: str, path: Path, options: list[str], *command: str) -> Firing:
    words = [sys.executable, "-P", "-c", program, "run", "--key", "k", *options, "--", *command]
    environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(path)}
    return Firing(spawn(words, env=environment, cwd=path, stdout=PIPE, stderr=PIPE))
