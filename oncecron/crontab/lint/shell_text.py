"""Findings on the text of a command: redirections in the wrong order, quotes, line ends, what is not a command."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from oncecron.core.shell_words import (
    BLANK,
    OPERATOR,
    REDIRECTION,
    WORD,
    UnclosedError,
    is_bourne_shell,
    tokens,
)
from oncecron.crontab.lint.linted_entry import shown
from oncecron.crontab.simple_commands import to_bytes, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.core.shell_words import Token
    from oncecron.crontab.lint.linted_entry import Diagnostic, LintedEntry

_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_LETTERS = {
    **dict.fromkeys("\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb", "a quote of a word processor"),
    "\u00a0": "a blank of a word processor",
}
_DASHES = ("\u2013", "\u2014", "\u2212")
_USERS = frozenset(("root", "www-data", "nobody", "apache", "nginx", "postgres", "mysql"))
_TO_FILE = frozenset((">", ">>", ">|"))


def check_text(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield what makes a command another one than its author meant."""
    yield from _check_command(line)
    if not is_bourne_shell(os.fsencode(line.environment.get("SHELL", "/bin/sh"))):
        return
    yield from _check_letters(line)
    try:
        read = [token for token in tokens(to_bytes(line.command)) if token.kind != BLANK]
    except UnclosedError:
        if line.behind is None:  # else the % is the mistake
            yield line.diagnostic(
                "quote",
                f"a quote or a bracket in {shown(line.command)} is not closed",
                "close it; for one quote as a letter, write \\' or use double quotes around it",
            )
        return
    for part in _parts(read):
        yield from _check_redirections(line, part)


def _check_command(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield commands that run nothing, or that cron reads as another one."""
    text = line.command.strip()
    if text.startswith("#"):
        yield line.diagnostic(
            "comment",
            "the command is a comment: cron starts a shell that does nothing",
            "comment out the whole line",
        )
    if text.endswith("\\") and not text.endswith("\\\\"):
        yield line.diagnostic(
            "continued",
            "cron does not join lines: the backslash at the end of the line has no effect",
            "write the command on one line, or move it to a script",
        )
    first, _, rest = text.partition(" ")
    if line.entry.user is None and first in _USERS and rest.lstrip().startswith("/"):
        yield line.diagnostic(
            "user",
            f"cron runs {first} as the command: the lines of a user's crontab name no user",
            "remove it; for another user, use the crontab of that user, or a file in /etc/cron.d",
        )


def _check_letters(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield letters outside quotes that a word processor has put in the place of quotes, dashes and blanks."""
    bare = _QUOTED.sub("", line.command)
    found = next((f"{letter!r}, {_LETTERS[letter]}" for letter in bare if letter in _LETTERS), None)
    dash = next((word[0] for word in bare.split() if word.startswith(_DASHES) and word[1:]), None)
    if dash:
        found = found or f"{dash!r}, a dash of a word processor"
    if found:
        yield line.diagnostic(
            "quote",
            f"{shown(line.command)} has {found}: the shell passes it on as a letter",
            "write ' or \", -, and plain blanks",
        )


def _parts(read: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each simple command, with the operator that ends it."""
    part: list[Token] = []
    for token in read:
        part.append(token)
        if token.kind == OPERATOR:
            yield part
            part = []
    if part:
        yield part


def _check_redirections(line: LintedEntry, part: list[Token]) -> Iterator[Diagnostic]:
    """Yield redirections of one command that have no target, another target, or the wrong order."""
    errors_follow = False
    piped = part[-1].text in (b"|", b"|&")
    for token, target in zip(part, [*part[1:], None], strict=True):
        if token.kind != REDIRECTION:
            continue
        sign, text = to_text(token.value), to_text(token.text)
        name = to_text(target.text) if target and target.kind == WORD else ""
        if sign in ("&>", ">") and name in ("1", "2"):
            yield line.diagnostic(
                "redirection",
                f"{text}{name} writes to a file with the name {name}",
                f"write 2>&{name}",
            )
        elif target is not None and target.text == b"&":
            yield line.diagnostic(
                "redirection",
                f"`{text} &` has no target: the shell reports an error",
                "write 2>&1 without a blank",
            )
        elif errors_follow and not piped and sign in _TO_FILE and text in (sign, f"1{sign}"):
            yield line.diagnostic(
                "redirection",
                f"`2>&1 {text}{name}` sends only the output there: errors go where the output went before",
                f"write {sign}{name} 2>&1",
            )
        errors_follow = errors_follow or (text == "2>&" and name == "1")
