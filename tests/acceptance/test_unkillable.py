"""A process that nobody can kill: one in uninterruptible sleep, or of another user."""

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE

from servers import Journal, job
from servers.oncecron import Firing, Oncecron
from servers.process import send, spawn

KILLS_NOBODY = """
from oncecron.run import process_tree, wrapper
wrapper.KILL_TIMEOUT = 0.2
process_tree.Tree.kill = lambda tree: True
from oncecron.__main__ import main
main()
"""


def test_while_something_lives_its_lease_is_not_given_away(
    public_path: Path, journal: Journal
) -> None:
    """The guard is gone and the job cannot be killed: the next firing of the same host is refused."""
    store = f"sqlite://{public_path}/store.db"
    run = ["run", "--key", "k", "--store", store, "--tick"]
    command = [
        sys.executable,
        "-P",
        "-c",
        KILLS_NOBODY,
        *run,
        "one",
        "--",
        *job(journal, "--sleep", 30),
    ]
    environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(public_path / "state")}
    firing = Firing(spawn(command, env=environment, stdout=PIPE, stderr=PIPE))
    journal.wait_for("start")
    send([firing.guard()], signal.SIGKILL)
    firing.process.wait(30)
    journal.kill_jobs()  # they hold the output
    end = firing.wait()
    assert end.status == 75
    assert "cannot be killed" in end.err
    host = Oncecron(store, public_path, XDG_STATE_HOME=str(public_path / "state"))
    assert host.run("k", "--tick", "two", "-v", "--", "echo", "ran").out == b""
    assert b"held" in host("locks").out
