"""Which files Debian's cron reads in /etc/cron.d, by name, mode and owner; follows database.c of cron 3.0pl1-162."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

NAME = "cron.d"
"""The name of such a directory, also in a repository from which it is deployed."""
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def cron_reads(name: str) -> bool:
    """Return whether cron reads a file with this name (`valid_name`)."""
    return _NAME.fullmatch(name) is not None


def why_not_read(name: str, status: os.stat_result | None) -> str | None:
    """Return why cron does not read a file, with the cure; None if it reads it. `status`: of a file in /etc."""
    if not cron_reads(name):
        return f"Debian's cron does not read a file with the name {name!r}; use only letters, digits, - and _ in it"
    if status is None:
        return None
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"cron refuses the file: others can write to it (mode {stat.S_IMODE(status.st_mode):o}); run `chmod 644`"
    if status.st_uid != 0:
        return f"cron refuses the file: it belongs to user {status.st_uid}, not to root; run `chown root`"
    if status.st_nlink > 1:
        return f"cron refuses the file: it has {status.st_nlink} hard links; remove the others"
    return None
