"""Findings on the text of a command: secrets, an unescaped `%`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.crontab.lint.secrets import secrets_in_arguments
from oncecron.crontab.lint.variables import HIDE_IT, OF_ONCECRON
from oncecron.crontab.percent_sign import split_command
from oncecron.crontab.prefix import read_prefix
from oncecron.crontab.simple_commands import simple_commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.crontab.lint.linted_entry import Diagnostic, LintedEntry


def check_command(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield secrets in the arguments, and a `%` that ends the command by mistake."""
    what = next(
        (name for simple in line.commands for name, _ in secrets_in_arguments(simple.words)), None
    )
    if what:
        cure = HIDE_IT.format(OF_ONCECRON if line.invocations else "")
        yield line.diagnostic("secret", f"{what} in the command is a secret", cure)
    prefix = read_prefix(line.entry.command)
    before, behind = split_command(
        prefix.command if prefix else line.entry.command, line.cron.percent
    )
    if behind is None:
        return
    if line.cron.percent.mark != ord("%"):
        if simple_commands(
            before.decode("utf-8", "surrogateescape")
        ) is None or not before.endswith((b" ", b"\t")):
            yield line.diagnostic(
                "percent",
                f"{line.cron.title} ends the command at the first #, also within quotes",
                "move the command to a script",
            )
    elif not _is_meant(before.decode("utf-8", "surrogateescape")):
        yield line.diagnostic(
            "percent",
            "cron ends the command at the first % and passes the rest to its standard input",
            r"write \% for a percent sign",
        )


def _is_meant(before: str) -> bool:
    """Return whether a `%` may end the command on purpose: not within quotes, a date format or an address."""
    commands = simple_commands(before)
    if commands is None:
        return False
    word = before.rpartition(" ")[2]
    return not (word.startswith("+") or "://" in word)
