"""The launcher of the drill: a wrong wall clock, a right lease clock, and a disk that takes nothing."""

import subprocess
import sys
import time
from pathlib import Path

from oncecron_drill.firing_hosts import LAUNCHER

SHOWS = "import time; print(time.time(), time.time_ns(), time.clock_gettime(time.CLOCK_REALTIME), time.monotonic())"


def launched(clock: str, disk: str, script: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script by way of the launcher."""
    command = [sys.executable, str(LAUNCHER), clock, disk, str(script), "word"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_wall_clock_is_wrong_and_the_lease_clock_is_right(tmp_path: Path) -> None:
    """By what the file says."""
    script, clock = tmp_path / "script", tmp_path / "clock"
    script.write_text(SHOWS)
    clock.write_text("-90.000\n")
    before = time.time(), time.monotonic()
    *walls, monotonic = map(float, launched(str(clock), "-", script).stdout.split())
    after = time.time(), time.monotonic()
    walls[1] /= 1e9
    assert all(before[0] - 90.1 <= wall <= after[0] - 89.9 for wall in walls)
    assert before[1] <= monotonic <= after[1]


def test_a_full_disk_takes_a_file_and_no_word(tmp_path: Path) -> None:
    """And the script is started as if by itself."""
    script, target = tmp_path / "script", tmp_path / "target"
    script.write_text(
        f"import sys; print(sys.argv[1:]); open({str(target)!r}, 'wb', buffering=0).write(b'x')"
    )
    done = launched("-", "full", script)
    assert done.stdout == "['word']\n"
    assert "File too large" in done.stderr
    assert target.read_bytes() == b""
    assert launched("-", "-", script).returncode == 0
    assert target.read_bytes() == b"x"
