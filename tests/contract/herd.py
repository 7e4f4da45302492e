"""Processes that begin at the same moment.

Run as a program it is their parent: it imports once what all of them need, and forks.
"""

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn


def run_at_once(program: str, herd: Sequence[Sequence[str]]) -> None:
    """Run a module of this suite once for each list of words, in a process each, and see that all succeed.

    Its `prepare(*words)` gets ready and returns the function that all processes call at the same moment.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    ended = subprocess.run(
        [sys.executable, __file__, program],
        input=json.dumps([list(words) for words in herd]),
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def run_one(program: str, words: Sequence[str], ready: int, start: int) -> NoReturn:
    """Get ready, say so, wait for the others, and run; end this process."""
    failed = True
    try:
        run = importlib.import_module(program).prepare(*words)
        os.write(ready, b"r")
        os.close(ready)
        os.read(start, 1)  # closed when everybody is ready
        run()
        failed = False
    finally:
        if failed:
            traceback.print_exc()
        os._exit(failed)


def main(program: str) -> int:
    """Run the herd; return how many processes failed."""
    herd = json.load(sys.stdin)
    importlib.import_module(program)
    (told, ready), (start, starter) = os.pipe(), os.pipe()
    pids = []
    for words in herd:
        pid = os.fork()
        if pid == 0:
            os.close(starter)
            run_one(program, words, ready, start)
        pids.append(pid)
    os.close(ready)
    for _ in herd:
        if not os.read(told, 1):  # nobody is left who could say so: somebody has failed
            break
    os.close(starter)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
