"""Waiting, skipping, skewed clocks and processes."""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from servers import eventually, skewed, spawn
from servers.process import end, read_process, wait_gone

TESTS = Path(__file__).parent.parent
CLOCKS = """
import time
print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(),
      open('/proc/self/stat').read().rpartition(')')[2].split()[19])
"""


def test_a_test_says_what_it_proves() -> None:
    """In one sentence."""
    without = [
        f"{path}: {node.name}"
        for path in (*TESTS.rglob("test_*.py"), *TESTS.parent.glob("plugins/*/tests/**/test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not ast.get_docstring(node)
    ]
    assert without == []


@pytest.mark.parametrize("skew", [90.5, -3600])
def test_skew_moves_the_wall_clock_alone(skew: float) -> None:
    """CLOCK_BOOTTIME, CLOCK_MONOTONIC and start times of /proc are real, the wall clock is not."""
    before = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    out = subprocess.check_output([sys.executable, "-P", "-c", CLOCKS], env=skewed(skew))
    wall, boot, monotonic, started = map(float, out.split())
    after = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    assert before[0] + skew <= wall <= after[0] + skew
    assert before[1] <= boot <= after[1]
    assert before[2] <= monotonic <= after[2]
    tick = os.sysconf("SC_CLK_TCK")
    assert before[1] - 1 / tick <= started / tick <= after[1]


def test_servers_die_with_the_tests() -> None:
    """A server's process dies even when the tests are killed and clean up nothing."""
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from servers.process import as_server_user, spawn\n"
        "print(spawn([*as_server_user(), 'sleep', '60']).pid, flush=True); time.sleep(60)"
    )
    tests = spawn([sys.executable, "-P", "-c", script, str(TESTS)], stdout=subprocess.PIPE)
    assert tests.stdout is not None
    server = read_process(int(tests.stdout.readline()))
    assert server is not None
    # The death signal is set once the program that sets it has become the server.
    command = Path(f"/proc/{server.pid}/cmdline")
    eventually(lambda: command.read_bytes().startswith(b"sleep"))
    end(tests, signal.SIGKILL)
    wait_gone([server])


@pytest.mark.turns(1)
@pytest.mark.parametrize(("required", "outcome"), [("1", "1 failed"), ("0", "1 skipped")])
def test_loud_skip_fails_where_all_is_required(tmp_path: Path, required: str, outcome: str) -> None:
    """What was not proved is named; with ONCECRON_REQUIRE_ALL=1 it is a failure."""
    (tmp_path / "conftest.py").write_text(
        f"import sys\n\nsys.path.insert(0, {str(TESTS)!r})\npytest_plugins = ['shared']\n"
    )
    (tmp_path / "test_skip.py").write_text(
        "from servers import not_proven\n\ndef test_it():\n    not_proven('no such thing')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(tmp_path)],
        env=os.environ | {"ONCECRON_REQUIRE_ALL": required},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert outcome in done.stdout
    assert "NOT PROVEN: no such thing" in done.stdout
