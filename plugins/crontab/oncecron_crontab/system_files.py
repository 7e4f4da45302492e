"""System crontabs: which files of a directory cron reads, and whether the lines of a crontab name a user.

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
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.shell_words import SHELL_BUILTINS
from oncecron_crontab.scanner import Entry, scan

if TYPE_CHECKING:
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
    """Return whether cron reads a file with this name (`valid_name` of database.c, cron 3.0pl1-162)."""
    return _FILE_NAME.fullmatch(name) is not None


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
