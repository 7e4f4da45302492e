"""The command of `oncecron each` that writes what it does for its items. Standard library only, fast to start.

    python3 -S -E letters.py DIRECTORY SECONDS ITEM...

It appends a line of JSON to DIRECTORY/KEY before the work on each item (`begin`) and after it (`end`), and while it
works it holds a lock of each item (flock), which the kernel frees when it is dead. A lock that is taken is another
command that works on the same item: it writes `overlap`. Times are CLOCK_MONOTONIC, the same in all namespaces.
"""

import fcntl
import json
import os
import resource
import select
import sys
import time


def main() -> None:
    """Work."""
    _, room = resource.getrlimit(resource.RLIMIT_FSIZE)  # a full disk is not the ledger's
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    directory, seconds, *items = sys.argv[1:]
    key, tick = os.environ["ONCECRON_KEY"], os.environ["ONCECRON_TICK"]
    ledger = os.open(os.path.join(directory, key), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    firing = int(os.environ["WITNESS_FIRING"])

    def write(event: str, item: str) -> None:
        line = {
            "event": event, "item": item, "tick": tick, "firing": firing, "at": time.monotonic(),
        }  # fmt: skip
        os.write(ledger, (json.dumps(line) + "\n").encode())
        os.fsync(ledger)

    for item in items:
        lock = os.path.join(directory, f"{key}.{tick}.{item}.lock")
        file = os.open(lock, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            write("overlap", item)
        write("begin", item)
    select.select((), (), (), float(seconds))  # sleep(3) fails under a faked clock
    for item in items:
        write("end", item)


if __name__ == "__main__":
    main()
