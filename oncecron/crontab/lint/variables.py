"""Findings on variables: cron expands nothing in those of a crontab, and does not set those of a login session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.core.secrets import is_secret_name
from oncecron.crontab.crons import CRON_TZ, CRONS
from oncecron.crontab.lint.linted_entry import Diagnostic
from oncecron.crontab.lint.secrets import secret_in_variable
from oncecron.crontab.scanner import Variable
from oncecron.crontab.simple_commands import simple_commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.crontab.crons import Cron
    from oncecron.crontab.lint.linted_entry import LintedCrontab, LintedEntry

HIDE_IT = (
    "put it into a file of mode 600 that the program reads (~/.pgpass, ~/.my.cnf, ~/.netrc{}); cron mails its "
    "variables, and every user can see arguments"
)
OF_ONCECRON = "; for oncecron: store_file in the configuration file"
_EXPANSION = re.compile(r"\$\{?[A-Za-z_]\w*|\$\(|`|(?:^|:)~(?:/|$)")
_ALL_KEPT = re.compile(rb">\s*[^&|;]+2>&1|&>|2>&1\s*\|")
"""A command all of whose output goes to a file or to another command, so that none is left for a mail."""
_SESSION = re.compile(r"\$(?:(USER|DISPLAY|SSH_AUTH_SOCK)\b|\{(USER|DISPLAY|SSH_AUTH_SOCK)\})")
"""A variable of a login session; one with a default, such as `${USER:-root}`, may be empty."""
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_READING = frozenset((".", "source", "eval", "read", "for"))
"""Commands that may set any variable."""
_COMMENT = re.compile(r"\s#")


def check_variables(
    source: LintedCrontab, *, guarded: bool, cron: Cron = CRONS["debian"]
) -> Iterator[Diagnostic]:
    """Yield the variables that do not mean what they say; `guarded`: a line of the file uses oncecron."""
    entries = list(source.crontab.entries())
    last = max((entry.number for entry in entries), default=0)
    mailing = max(
        (each.number for each in entries if not _ALL_KEPT.search(each.command)), default=0
    )
    for line in source.crontab.lines:
        if not isinstance(line, Variable):
            continue
        if line.has_no_value:
            yield _no_value(source, line)
            continue
        used = line.number < (mailing if line.name == b"MAILTO" and not line.value else last)
        for kind, message, cure in _found(line, guarded=guarded, used=used, cron=cron):
            yield Diagnostic(source.name, line.number, kind, message, cure)


def check_session(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield the first variable of a login session that a command uses, although cron does not set it."""
    strings = (string for each in line.invocations for string in each.strings)
    for text in (line.command, *strings):
        used = _SESSION.search(_SINGLE_QUOTED.sub("", text))
        name = (used[1] or used[2]) if used else ""
        if not name or (name == "USER" and line.cron.sets_user):
            continue
        if name in line.environment or re.search(rf"\b{name}=", text) or _may_set(text):
            continue
        cure = "use $LOGNAME" if name == "USER" else "set it in the command"
        yield line.diagnostic("unset", f"${name} is empty: {line.cron.title} does not set it", cure)
        return


def _may_set(text: str) -> bool:
    """Return whether a command may set variables that are not named in it."""
    return any(_READING.intersection(simple.words[:1]) for simple in simple_commands(text) or ())


def _no_value(source: LintedCrontab, line: Variable) -> Diagnostic:
    name = line.name.decode("utf-8", "surrogateescape")
    finding, cure = ("mailto", "MAILTO=root, or ") if name == "MAILTO" else ("invalid", "")
    return Diagnostic(
        *(source.name, line.number, finding),
        f"{name}= has no value: Debian 12's cron rejects the whole file",
        f'write {cure}{name}=""' + (" for no mail" if finding == "mailto" else ""),
    )


def _found(
    line: Variable, *, guarded: bool, used: bool, cron: Cron
) -> Iterator[tuple[str, str, str]]:
    """Yield kind, message and cure; `used`: there are lines below it."""
    name, value = (text.decode("utf-8", "surrogateescape") for text in (line.name, line.value))
    if name == "MAILTO" and not value and used:
        more = "; oncecron prints nothing on success or on a skip" if guarded else ""
        yield (
            "mailto",
            "MAILTO is empty: the output of failed jobs below it is lost",
            f"set MAILTO to an address{more}",
        )
    if secret_in_variable(name, value):
        more = OF_ONCECRON if guarded or name.startswith("ONCECRON_") else ""
        yield "secret", f"{name} contains a secret", HIDE_IT.format(more)
    if not used:
        return
    if line.name == CRON_TZ and CRON_TZ not in cron.zone_variables:
        yield (
            "zone",
            f"{cron.title} ignores CRON_TZ: the lines below it run at the host's time",
            "convert the times of the lines to the host's time zone, or use a cron that reads it",
        )
    commented = _COMMENT.search(value) is not None and not _is_quoted(line)
    if commented:
        yield (
            "comment",
            f"cron has no comments behind a value: the text from # on is a part of {name}",
            "write the comment on a line of its own",
        )
    if _EXPANSION.search(value) and not is_secret_name(name):
        yield (
            "expansion",
            f"cron expands nothing in {name}: variables, commands and ~ stay as they are written",
            "write the value in full, or set the variable in the command",
        )
    elif name == "SHELL" and not commented and (value[:1] != "/" or " " in value):
        yield (
            "shell",
            "cron cannot start this SHELL: it must be the path of a program, without options",
            "write its full path, such as /bin/bash",
        )


def _is_quoted(line: Variable) -> bool:
    """Return whether the value is in quotes: then a # in it is meant."""
    return line.raw.partition(b"=")[2].strip()[:1] in (b"'", b'"')
