"""Imports what the commands need, then forks for each request that comes by its standard input, a socket.

A request is a packet: words, environment and directory as JSON, with four files: standard input, output, error, and a
socket on which the process id and at the end the status are told.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
import time
from importlib.util import find_spec

from click import Context

from oncecron.__main__ import main
from oncecron.cli.main import ONCECRON

IMPORTED_LATER = (
    "oncecron.stores.postgres.reader", "oncecron.stores.redis.reader", "oncecron.stores.sqlite.reader",
    "oncecron_crontab.wrap", "oncecron_crontab.lint",
)  # fmt: skip
"""What commands import when they know that they need it."""


def serve() -> None:
    """Fork for each request until there are no more; tell how each ended."""
    requests = socket.socket(fileno=0)
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number != requests.fileno():
                poll.unregister(number)
                tell_the_end(number, *running.pop(number))
                continue
            request, files, _, _ = socket.recv_fds(requests, 1 << 20, 4)
            if not request:
                return
            pid = carry_out(json.loads(request), files)
            asking = socket.socket(fileno=files.pop())
            asking.send(b"%d" % pid)
            watched = os.pidfd_open(pid)
            running[watched] = pid, asking
            poll.register(watched, select.POLLIN)
            for file in files:
                os.close(file)


def carry_out(request: tuple[list[str], dict[str, str], str], files: list[int]) -> int:
    """Start what runs the words as the console script does; return its process id."""
    pid = os.fork()
    if pid == 0:
        become(*request, files[:3])
        sys.exit(main())
    return pid


def tell_the_end(watched: int, pid: int, asking: socket.socket) -> None:
    """Tell whoever asked; it may have given up."""
    os.close(watched)
    _, status = os.waitpid(pid, 0)
    with asking, contextlib.suppress(OSError):
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
    for command, listed in ONCECRON.names.items():
        if listed.is_installed:
            ONCECRON.get_command(Context(ONCECRON), command)
    for name in IMPORTED_LATER:
        if find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve()
