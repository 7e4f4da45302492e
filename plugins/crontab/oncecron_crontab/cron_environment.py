"""The environment in which cron starts a line, for a person who runs it by hand.

In the order in which each takes the place of those before it:

    PAM's pam_env    the files that the service `cron` or `crond` names: /etc/environment, /etc/default/locale
    cron             SHELL=/bin/sh, PATH=/usr/bin:/bin, HOME
    the crontab      the variables above the line
    cron             LOGNAME and, but for Debian's, USER: no crontab can set them

(`build_env` of do_command.c and `load_entry` of entry.c, cron 3.0pl1-162 and cronie 1.7.2.) What a daemon passes on
of its own environment, as those of busybox and supercronic do, and what other PAM modules add, nobody can know here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.cli.doctor import CRON_PATH
from oncecron.config.options import BOURNE_SHELL
from oncecron_crontab.crons import CRONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncecron_crontab.crons import Cron

UMASK = 0o022
"""Of a daemon, which no login has changed."""
_SERVICES = ("cron", "crond")
_ENVIRONMENT = "/etc/environment"
_DEEPEST = 5


def cron_environment(
    variables: Mapping[str, str], user: str, home: str, cron: Cron, *, root: str = "/"
) -> dict[str, str]:
    """Return the environment of a line below `variables` of a crontab; `root`: below it are the files of PAM."""
    named = {"LOGNAME": user} if cron == CRONS["debian"] else {"LOGNAME": user, "USER": user}
    own = {"SHELL": BOURNE_SHELL, "PATH": CRON_PATH, "HOME": home}
    return {**_of_pam(root), **own, **variables, **named}


def _of_pam(root: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for service in _SERVICES:
        for path in _files_of(service, root):
            found |= _assignments(_lines(path, root))
    return found


def _files_of(service: str, root: str, depth: int = 0) -> Iterator[str]:
    """Yield the files that pam_env reads for a service, also by the services that it includes."""
    for line in _lines(f"/etc/pam.d/{service}", root):
        words = line.partition("#")[0].split()
        included = [*words, "", "", ""]
        if included[0] == "@include" or included[1] in ("include", "substack"):
            other = included[1 if included[0] == "@include" else 2]
            yield from _files_of(other, root, depth + 1) if depth < _DEEPEST else ()
        elif any(word.rpartition("/")[2] == "pam_env.so" for word in words):
            named = [word.partition("=")[2] for word in words if word.startswith("envfile=")]
            yield named[0] if named else _ENVIRONMENT


def _assignments(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a file, as pam_env reads it (`_assemble_line` and `_parse_env_file`, Linux-PAM 1.5.2).

    A `#` begins a comment, also within quotes; blanks at the end belong to the value.
    """
    begun = ""
    for line in lines:
        text, comment, _ = line.partition("#")
        text = begun + (text if begun else text.lstrip())
        begun = "" if comment or not text.endswith("\\") else text[:-1]
        name, equals, value = text.removeprefix("export ").partition("=")
        if not begun and equals and name.isidentifier():
            yield name, re.sub(r"^['\"](.*?)['\"]?$", r"\1", value)


def _lines(path: str, root: str) -> list[str]:
    try:
        with open(root + path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []
