"""A small disk is full when it is told so, has space again afterwards, and goes with whoever made it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Disk, eventually

MAKE = "import sys; sys.path[:0] = sys.argv[1:]; from servers import Disk; print(Disk(1).path, flush=True); input()"


def test_it_is_full_until_it_is_free() -> None:
    """No byte more is taken; then there is space as before."""
    disk = Disk(1)
    try:
        file = disk.path / "file"
        file.write_bytes(bytes(1000))
        disk.fill()
        with pytest.raises(OSError, match="No space left") as full:
            (disk.path / "other").write_bytes(bytes(1000))
        assert full.value.errno == errno.ENOSPC
        disk.free()
        (disk.path / "other").write_bytes(bytes(500_000))
    finally:
        disk.remove()
    assert not disk.path.exists()


def test_it_goes_with_a_process_that_is_killed() -> None:
    """Nothing stays mounted, and no directory is left."""
    tests = Path(__file__).parents[1]
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKE, tests], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert maker.stdin is not None
    assert maker.stdout is not None
    path = maker.stdout.readline().decode().strip()
    assert os.path.ismount(path)
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdin.close()
    maker.stdout.close()
    eventually(lambda: not os.path.exists(path))
