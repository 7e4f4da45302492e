"""Several attempts of one firing, each with its own output: the guard's use of the pipes, without a store."""

import json
import subprocess
import sys
from typing import Any

import pytest

ATTEMPTS = """
import json, os, select, signal, sys
from oncecron.run import process_tree as child
from oncecron.run.capture.capture import Capture
from oncecron.run.capture.forwarder import FINISH
from oncecron.core.model import Ending

def attempt(script, outcome="failed"):
    outputs = capture.begin()
    pid = child.start("/bin/sh", ["sh", "-c", script], {"PATH": "/usr/bin:/bin"}, None, (), outputs)
    os.waitpid(pid, 0)
    ending = capture.with_output(Ending(outcome, 1, None, 0.0, "a note"))
    told.append([*(ending.output or (None, None)), ending.note])

def kill_forwarder():
    capture._tell(FINISH)
    assert capture._wait_for(FINISH, 30), "what was written before is not passed on"
    capture._tell(FINISH)  # the answer is late: nobody waits for it
    select.select([capture._replies], (), (), 30)
    pipe = os.readlink(f"/proc/self/fd/{capture._outputs[0][1]}")
    for name in filter(str.isdigit, os.listdir("/proc")):
        if pipe in held(name) and int(name) != os.getpid():
            os.kill(int(name), signal.SIGKILL)
            wait_gone()

def held(pid):  # a descriptor may be closed meanwhile, and so may the process
    found = []
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
            except OSError:
                pass
    except OSError:
        pass
    return found

def wait_gone():  # its last thread: with it the other end of this pipe is closed
    poll = select.poll()
    poll.register(capture._replies, 0)
    poll.poll()

capture = Capture(int(sys.argv[1]), "")
told = []
exec(sys.argv[2])
print(json.dumps(told), file=sys.stderr)
"""


def told(size: int, script: str) -> tuple[bytes, list[Any]]:
    """Carry out the attempts of a script; return what arrived, and of each its output, cut and note."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", ATTEMPTS, str(size), script],
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout, json.loads(done.stderr)


def test_what_was_not_started_has_no_output() -> None:
    """Nobody is told of the pipes that it would have had."""
    assert told(8, "attempt('echo x', 'not-started')")[1] == [[None, None, "a note"]]


def test_without_the_forwarder_a_later_attempt_writes_directly() -> None:
    """It was killed between two attempts: the job runs on without it, and no output is recorded."""
    arrived, endings = told(8, "attempt('echo x'); kill_forwarder(); attempt('echo y')")
    assert arrived == b"x\ny\n"
    assert endings[0] == ["x\n", 0, "a note"]
    assert endings[1] == [None, None, "a note"]


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_any_size_will_do(size: int) -> None:
    """From one byte to the most that there is."""
    [[text, cut, _]] = told(size, "attempt('seq 300000')")[1]
    everything = "".join(f"{n}\n" for n in range(1, 300001))
    assert (text, cut) == (everything[-size:], len(everything) - size)
