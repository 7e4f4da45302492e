"""Which programs a command starts, seen through launchers (`nice`, `sudo -u USER`, `flock FILE`) and `sh -c STRING`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from oncecron.crontab.derived_key import LAUNCHERS
from oncecron.crontab.simple_commands import SimpleCommand, simple_commands, to_bytes
from oncecron.crontab.words import SHELL_BUILTINS

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "su", "runuser", "flock"))
"""Shells, and programs that call one for `-c STRING`."""
STRING_FOLLOWS = re.compile(r"-[A-Za-z]*c")
"""The option of a shell before the string that it runs."""
_ASSIGNMENT = re.compile(r"\w+=")
_NUMBER = re.compile(r"[0-9.]+[smhd]?")
_STARTING_BUILTINS = frozenset((b"builtin", b"command", b"eval", b"exec", b"time"))
_LAUNCHERS = {
    name: how
    for name, how in LAUNCHERS.items()
    if name not in SHELL_BUILTINS or name in _STARTING_BUILTINS
}
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
    """Return the program of a simple command."""
    options, arguments_left, skip_next = b"", 0, False
    words = simple.words
    if _string_of(words):
        return Program("", "", (), words)
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if skip_next:
            skip_next = False
        elif word.startswith("-") and at:
            if word == "-v" and words[at - 1] == "command":
                break  # it only asks where the program is
            skip_next = len(word) == 2 and to_bytes(word[1:]) in options  # noqa: PLR2004 - a dash and a letter
        elif arguments_left:
            arguments_left -= 1
        elif to_bytes(name) in _LAUNCHERS:
            arguments_left, options = _LAUNCHERS[to_bytes(name)]
        elif not (_ASSIGNMENT.match(word) or (at and _NUMBER.fullmatch(word))):
            return Program(name, word, words[at + 1 :], words[:at])
    return Program("", "", (), words)


def _string_of(words: tuple[str, ...]) -> str:
    """Return the string that a simple command gives to a shell; empty if it gives none."""
    shell = False
    for word, following in pairwise((*words, "")):
        if shell and STRING_FOLLOWS.fullmatch(word):
            return following
        shell = shell or word.rpartition("/")[2] in SHELLS
    return ""
