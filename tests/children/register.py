"""A storage that checks fencing tokens: a line a write in one file, and no lock.

    /usr/bin/python3 -S -E register.py FILE KEY TOKEN

Exit status 0: accepted; 1: a higher token of the key had been there. The place of the line in the
file decides, which the kernel gives to one write after the other. Whoever is stopped between two
instructions holds up nobody, as the holder of a lock would, and its write counts from where it stands.
"""

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator


def accepted(lines: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Return key, token and name of the writes that met no higher token of their key before them."""
    highest: dict[str, int] = {}
    for line in lines:
        key, token, name = line.split()
        if int(token) >= highest.get(key, 0):
            highest[key] = int(token)
            yield key, int(token), name


def main() -> int:
    """Write, and look where it came to stand."""
    path, key, token = sys.argv[1:]
    name = f"{os.getpid()}:{time.monotonic_ns()}"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, f"{key} {token} {name}\n".encode())
    with open(path, encoding="utf-8") as lines:
        before = itertools.takewhile(lambda line: not line.endswith(f" {name}\n"), lines)
        return 0 if (key, int(token), name) in accepted([*before, f"{key} {token} {name}"]) else 1


if __name__ == "__main__":
    sys.exit(main())
