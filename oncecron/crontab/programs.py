"""Which programs a command starts, seen through launchers (`nice`, `sudo -u USER`, `flock FILE`) and `sh -c STRING`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.launchers import LINE, entry_of, follow_console, without_arguments
from oncecron.crontab.simple_commands import SimpleCommand, simple_commands, to_bytes, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "su", "runuser", "flock"))
"""Shells, and programs that call one for `-c STRING`."""
STRING_FOLLOWS = re.compile(r"-[A-Za-z]*c")
"""The option of a shell before the string that it runs."""
_DEEPEST = 5


class Program(NamedTuple):
    """The program that a simple command starts."""

    name: str
    """Without its directory; empty where there is none, and for a shell with a string, whose commands count instead."""
    path: str
    """As it is written."""
    arguments: tuple[str, ...]
    launchers: tuple[str, ...]
    """The words before it."""


def lines_within(command: str, depth: int = 0) -> Iterator[str]:
    """Yield a command, and the strings that it gives to shells, innermost last."""
    yield command
    for simple in simple_commands(command) or ():
        string = _string_of(simple.words)
        if string and depth < _DEEPEST:
            yield from lines_within(string, depth + 1)


def program_of(simple: SimpleCommand) -> Program:
    """Return the program of a simple command; one that starts another in a container is the program itself."""
    words = simple.words
    rest, entry = list(map(to_bytes, words)), LINE
    while not _string_of(words):
        rest, is_string = without_arguments(entry, rest)
        if is_string or not rest:
            break
        at = len(words) - len(rest)
        word, *rest = rest
        name = word.rpartition(b"/")[2]
        inner = entry_of(name)
        if inner and inner.is_console:
            _, inner, rest = follow_console(name, inner, rest)
        if inner is None or inner.is_elsewhere:
            return Program(to_text(name), words[at], words[at + 1 :], words[:at])
        entry = inner
    return Program("", "", (), words)


def _string_of(words: tuple[str, ...]) -> str:
    """Return the string that a simple command gives to a shell; empty if it gives none."""
    shell = False
    for word, following in pairwise((*words, "")):
        if shell and STRING_FOLLOWS.fullmatch(word):
            return following
        shell = shell or word.rpartition("/")[2] in SHELLS
    return ""
