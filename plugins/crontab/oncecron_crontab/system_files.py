"""System crontabs: which files in /etc cron reads, and whether the lines of a crontab name a user.

By name, mode and owner a file is judged as by database.c of cron 3.0pl1-162.

Nothing in a file says that its lines name a user before the command, as those of /etc/crontab and /etc/cron.d do, and a
mistake is expensive: in `0 2 * * * munin /usr/bin/munin-cron` wrap would put oncecron before the user. cron then takes
the path of oncecron for the user, and ignores the whole file. A file seems to have users if each line could have one,
and in at least one line the first word is

    a user of this host, and not a program
    neither a user nor a program of this host, and a command begins after it
    both a user and a program, and a program of this host comes after it
"""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.shell_words import SHELL_BUILTINS
from oncecron_crontab.scanner import Entry, scan

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from oncecron_crontab.crons import Cron
    from oncecron_crontab.scanner import Crontab

DIRECTORY_NAME = "cron.d"
"""The name of a directory with system crontabs, also in a repository from which it is deployed."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_-]+")
_USER_NAME = re.compile(rb"[A-Za-z_][\w-]*\$?")
_BEGINS_COMMAND = re.compile(rb"[/({\[.]|\w+=")
_BEGINNINGS = frozenset((b"test", b"if", b"for", b"while", b"case", b"cd"))
_PROGRAMS = frozenset(
    b"""
    aws bash borg certbot composer curl docker drush gcloud java kubectl mysqldump node npm perl pg_dump php podman psql
    python python2 python3 restic rsync ruby wget wp zsh
    """.split()
)
"""No users, though a host on which the file is only edited may lack them."""


def cron_reads(name: str) -> bool:
    """Return whether cron reads a file with this name (`valid_name`)."""
    return _FILE_NAME.fullmatch(name) is not None


def why_not_read(name: str | None, status: os.stat_result | None) -> str | None:
    """Return why cron does not read a file, with the cure; None if it reads it.

    `name`: in a directory; None for /etc/crontab. `status`: of a file in /etc.
    """
    if name is not None and not cron_reads(name):
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


# The user field


class NamedUser(NamedTuple):
    """A word that seems to be a user."""

    number: int
    """Of its line."""
    name: str


def named_user(
    crontab: Crontab, is_user: Callable[[str], bool], is_program: Callable[[str, str], bool]
) -> NamedUser | None:
    """Return the first word that seems to be a user in a crontab that was read without users.

    `is_program` takes a word and the `PATH` of the crontab, which is empty if it has none.
    """
    if not all(_may_name_user(entry, crontab.cron) for entry in crontab.entries()):
        return None
    for entry in crontab.entries():
        name, command = entry.command.split(None, 2)[:2]
        path = crontab.environment(entry).get(b"PATH", b"").decode(errors="replace")

        def runs(word: bytes, path: str = path) -> bool:
            known = word in SHELL_BUILTINS or word in _PROGRAMS
            return known or is_program(word.decode(errors="replace"), path)

        text = name.decode(errors="replace")
        begins = bool(_BEGINS_COMMAND.match(command)) or command in _BEGINNINGS
        if is_user(text):
            seems = not runs(name) or runs(command)
        else:
            seems = (
                bool(_USER_NAME.fullmatch(name)) and not runs(name) and (begins or runs(command))
            )
        if seems:
            return NamedUser(entry.number, text)
    return None


def _may_name_user(entry: Entry, cron: Cron) -> bool:
    [line] = scan(entry.raw, system=True, cron=cron).lines
    return (
        isinstance(line, Entry)
        and line.schedule == entry.schedule
        and line.command[:1] not in (b"", b"-")
    )
