"""Commands that people type, without the start of an interpreter for each: a process that has imported all forks.

Most of what `oncecron history` costs is Python's imports, and the tests ask such things two thousand times. What is
forked is a process of its own, with its own environment, directory and output, and begins where the console script
does. A firing always is the console script itself.
"""

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from servers.process import kill_tree, spawn

SCRIPT = Path(__file__).with_name("prepared_process.py")
_HEEDED_AT_THE_START = ("PYTHON", "LC_", "LANG", "LD_")
"""What the names of variables begin with that an interpreter, or its loader, reads once."""


def can_carry_out(words: list[str], environment: dict[str, str]) -> bool:
    """Return whether the console script's words do the same here as when an interpreter is started for them."""
    return words[1:2] != ["run"] and not any(map(_is_heeded_at_the_start, environment))


def carry_out(
    words: list[str], environment: dict[str, str], directory: str, deadline: float
) -> tuple[int, bytes, bytes]:
    """Run the console script's words to the end; return the status, minus a signal's number, and both outputs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (
        ours, theirs, open(os.devnull) as nothing,
        tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err,
    ):  # fmt: skip
        request = json.dumps([words, environment, directory]).encode()
        socket.send_fds(_prepared(), [request], [f.fileno() for f in (nothing, out, err, theirs)])
        theirs.close()
        pid = int(ours.recv(100))
        ours.settimeout(deadline)
        try:
            status = int(ours.recv(100))
        except TimeoutError as error:
            kill_tree(pid)
            raise AssertionError(f"still running after {deadline} s: {words[1:]}") from error
        return status, _written(out), _written(err)


def _is_heeded_at_the_start(name: str) -> bool:
    return name.startswith(_HEEDED_AT_THE_START)


def _written(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


@functools.cache
def _prepared() -> socket.socket:
    """Start the process that forks, in the small environment that cron gives.

    It ends when this end of the socket is closed. A death signal would come from the thread that asked first.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", str(SCRIPT)]
    spawn(command, stdin=theirs, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.DEVNULL)
    theirs.close()
    return ours
