"""Findings on the text of a line or a variable: secrets, an unescaped `%`, an empty MAILTO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.crontab.lint.linted_entry import Diagnostic
from oncecron.crontab.lint.secrets import secret_in_variable, secrets_in_arguments
from oncecron.crontab.percent_sign import split_command
from oncecron.crontab.prefix import read_prefix
from oncecron.crontab.scanner import InvalidLine, Variable
from oncecron.crontab.simple_commands import simple_commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.crontab.lint.linted_entry import LintedCrontab, LintedEntry

_CURE = (
    "put it into a file of mode 600 that the program reads (~/.pgpass, ~/.my.cnf, ~/.netrc; for oncecron: store_file "
    "in the configuration file); cron mails its variables, and every user can see arguments"
)


def check_variables(source: LintedCrontab) -> Iterator[Diagnostic]:
    """Yield the variables that contain a secret, and an empty MAILTO."""
    last = max((entry.number for entry in source.crontab.entries()), default=0)
    for line in source.crontab.lines:
        if (
            isinstance(line, InvalidLine)
            and line.raw.strip().partition(b"=")[0].strip() == b"MAILTO"
        ):
            yield Diagnostic(
                *(source.name, line.number, "mailto"),
                "MAILTO= has no value: Debian's cron rejects the whole file",
                'write MAILTO=root, or MAILTO="" for no mail',
            )
        if not isinstance(line, Variable):
            continue
        name, value = (text.decode("utf-8", "surrogateescape") for text in (line.name, line.value))
        if name == "MAILTO" and not value and line.number < last:
            yield Diagnostic(
                *(source.name, line.number, "mailto"),
                "MAILTO is empty: the output of failed jobs below it is lost",
                "set MAILTO to an address; oncecron prints nothing on success or on a skip",
            )
        if secret_in_variable(name, value):
            yield Diagnostic(
                *(source.name, line.number, "secret"), f"{name} contains a secret", _CURE
            )


def check_command(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield secrets in the arguments, and a `%` that ends the command by mistake."""
    what = next(
        (name for simple in line.commands for name, _ in secrets_in_arguments(simple.words)), None
    )
    if what:
        yield line.diagnostic("secret", f"{what} in the command is a secret", _CURE)
    prefix = read_prefix(line.entry.command)
    before, behind = split_command(prefix.command if prefix else line.entry.command)
    if behind is not None and not _is_meant(before.decode("utf-8", "surrogateescape")):
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
