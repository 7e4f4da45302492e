"""A process is told by its environment from the moment on at which whoever started it goes on."""

import os
import subprocess

from oncecron_drill.processes import environment_of

STARTS = 100
"""Without the wait, some of so many are seen without an environment on an idle machine, and a third on a busy one."""
MARK = b"XDG_STATE_HOME=/nowhere"


def test_a_process_whose_program_is_being_loaded_has_its_environment() -> None:
    """A nemesis that overlooks one would not know whom it has hit, and a keeper would leave it."""
    for _ in range(STARTS):
        process = subprocess.Popen(["sleep", "60"], env=dict([os.fsdecode(MARK).split("=")]))
        try:
            assert environment_of(process.pid) == [MARK, b""]
        finally:
            process.kill()
            process.wait()


def test_who_has_none_is_not_waited_for() -> None:
    """Neither one that was started without, nor one that only waits to be reaped."""
    process = subprocess.Popen(["sh", "-c", "read word"], env={}, stdin=subprocess.PIPE)
    assert environment_of(process.pid) == [b""]
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not any(environment_of(process.pid))
    process.communicate()
    assert environment_of(process.pid) == []
