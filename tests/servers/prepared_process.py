"""Imports what the commands need, then forks for each request that comes by its standard input, a socket.

A request is a packet: words, environment and directory as JSON, with four files: standard input, output, error, and a
socket on which the process id and at the end the status are told.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import time

from click import Context

from oncecron.__main__ import main
from oncecron.cli.main import ONCECRON

IMPORTED_LATER = (
    "oncecron.stores.postgres.reader", "oncecron.stores.redis.reader", "oncecron.stores.sqlite.reader",
    "oncecron.crontab.wrap", "oncecron.crontab.lint",
)  # fmt: skip
"""What commands import when they know that they need it."""


def serve() -> None:
    """Fork for each request until there are no more."""
    requests = socket.socket(fileno=0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        request, files, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not request:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            carry_out(json.loads(request), files)
            os._exit(0)
        for number in files:
            os.close(number)


def carry_out(request: tuple[list[str], dict[str, str], str], files: list[int]) -> None:
    """Run the words as the console script does, and tell how they ended."""
    *standard, told = files
    pid = os.fork()
    if pid == 0:
        become(*request, standard)
        main()
    with socket.socket(fileno=told) as asking:
        asking.send(b"%d" % pid)
        for number in standard:
            os.close(number)
        _, status = os.waitpid(pid, 0)
        asking.send(b"%d" % os.waitstatus_to_exitcode(status))


def become(
    words: list[str], environment: dict[str, str], directory: str, standard: list[int]
) -> None:
    """Take on what a process is given when it starts."""
    os.setsid()
    for number, file in enumerate(standard):
        os.dup2(file, number)
    os.closerange(3, 100)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(directory)
    sys.argv[:] = words
    sys.orig_argv[:] = [sys.executable, *words]


if __name__ == "__main__":
    for command in ONCECRON.names:
        ONCECRON.get_command(Context(ONCECRON), command)
    for name in IMPORTED_LATER:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve()
