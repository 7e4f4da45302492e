"""The cron that is installed on this host, by its files. Starts nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron_crontab.crons import CRONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron_crontab.crons import Cron

_DIRECTORIES = ("usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin", "sbin", "bin")
_DAEMONS = ("cron", "crond")
_MARKS = {b"this crontab file will be ignored": "debian", b"cronie": "cronie"}
"""Texts in the program files of daemons with one name."""
_GENERATORS = ("usr/lib", "lib")
_GENERATOR = "systemd/system-generators/systemd-crontab-generator"
_LARGEST = 4 << 20


def installed_cron(root: str = "/") -> Cron | None:
    """Return the cron of the host whose files are below `root`; None if it has none, or several."""
    found = set(_names(root))
    return CRONS[found.pop()] if len(found) == 1 else None


def _names(root: str) -> Iterator[str]:
    for directory in _DIRECTORIES:
        for daemon in _DAEMONS:
            yield from _daemon(os.path.join(root, directory, daemon))
        if os.path.exists(os.path.join(root, directory, "supercronic")):
            yield "supercronic"
    for directory in _GENERATORS:
        # 2.4 is the first that passes the text after a % to the command.
        if b"StandardInputData=" in _content(os.path.join(root, directory, _GENERATOR)):
            yield "systemd-cron"


def _daemon(path: str) -> Iterator[str]:
    if os.path.islink(path) and os.path.basename(os.readlink(path)).startswith("busybox"):
        yield "busybox"
        return
    content = _content(path)
    yield from (name for mark, name in _MARKS.items() if mark in content)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except OSError:
        return b""
