"""Processes that begin at the same moment."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_at_once(programs: Sequence[Sequence[str]]) -> None:
    """Run Python with each list of arguments, all from one start, and see that all succeed.

    A program prints `ready` and waits for a line on stdin; it can import what this suite imports.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    herd = [
        subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        for arguments in programs
    ]
    for process in herd:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in herd:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    said = [process.communicate()[1].decode() for process in herd]
    failed = [words for words, process in zip(said, herd, strict=True) if process.returncode]
    assert not failed, "\n".join(failed)
