"""A shell command divided into its simple commands: what joins them, what they start, and where they write.

Substitutions are not read; the string of `sh -c` is a line of its own (`lines_within`).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.shell_words import (
    BLANK,
    COMMENT,
    OPERATOR,
    REDIRECTION,
    WORD,
    Token,
    UnclosedError,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "su", "runuser", "flock"))
"""Shells, and programs that call one for `-c STRING`."""
STRING_FOLLOWS = re.compile(r"-[A-Za-z]*c")
"""The option of a shell before the string that it runs."""
_DEEPEST = 5
_LAUNCHERS = frozenset(
    (
        *("nice", "ionice", "chrt", "taskset", "cpulimit", "timeout", "time", "env", "nohup", "exec"),
        *("eatmydata", "stdbuf", "unbuffer", "chronic", "cronic", "systemd-cat", "systemd-inhibit"),
        *("sudo", "doas", "su", "runuser", "flock", "lockf", "setlock", "lckdo", "lockrun", "solo"),
        *("run-one", "run-this-one"),
    )
)  # fmt: skip
"""Programs that start another one, which is somewhere among their arguments."""
_ASSIGNMENT = re.compile(r"\w+=")
_RESERVED = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac"),
        *("!", "{", "}", "time"),
    )
)
_JOINING = {"\n": ";", ";;": ";", "|&": "|"}


class SimpleCommand(NamedTuple):
    """A simple command."""

    joined_by: str
    """The operator before it: `&&`, `||`, `;`, `|`, `&`; empty at the beginning."""
    words: tuple[str, ...]
    """With the assignments in front; empty for `}` and the like, which may still have redirections."""
    written: tuple[str, ...]
    """The words as they are written, quotes included."""
    redirections: tuple[tuple[str, str], ...]
    """Operator and target."""
    keywords: tuple[str, ...]
    """The brackets and reserved words in front of it: those that end the commands before it, and its own."""

    @property
    def text(self) -> str:
        """The command as it is written, without its redirections."""
        return " ".join(self.written)


class Program(NamedTuple):
    """The program that a simple command starts."""

    name: str
    """Without its directory; empty where there is none, and for a shell with a string, whose commands count instead."""
    path: str
    """As it is written."""
    arguments: tuple[str, ...]


def program_of(simple: SimpleCommand, is_known: Callable[[str], bool]) -> Program:
    """Return the program of a simple command: its first word, or behind a launcher the first one that is known."""
    words = simple.words
    start = next((at for at, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if start == len(words) or _string_of(words):
        return Program("", "", ())
    at = start
    if program_name(words[start]) in _LAUNCHERS:
        behind = range(start + 1, len(words))
        at = next((each for each in behind if is_known(words[each])), start)
    return Program(program_name(words[at]), words[at], words[at + 1 :])


def program_name(word: str) -> str:
    """Return a path without its directory."""
    return word.rpartition("/")[2]


def lines_within(command: str, depth: int = 0) -> Iterator[str]:
    """Yield a command, and the strings that it gives to shells, innermost last."""
    yield command
    for simple in simple_commands(command) or ():
        string = _string_of(simple.words)
        if string and depth < _DEEPEST:
            yield from lines_within(string, depth + 1)


def _string_of(words: tuple[str, ...]) -> str:
    shell = False
    for word, following in pairwise((*words, "")):
        if shell and STRING_FOLLOWS.fullmatch(word):
            return following
        shell = shell or program_name(word) in SHELLS
    return ""


def simple_commands(command: str) -> list[SimpleCommand] | None:
    """Return the simple commands, None if a quote or a substitution is not closed."""
    try:
        found = tokens(to_bytes(command))
    except UnclosedError:
        return None
    reader = _Reader()
    for token in found:
        if token.kind != COMMENT:
            reader.take(token)
    return reader.end()


def to_bytes(text: str) -> bytes:
    """Return a command as it stands in the crontab, whatever its encoding."""
    return text.encode("utf-8", "surrogateescape")


def to_text(raw: bytes) -> str:
    """Return a command so that `to_bytes` gives it back."""
    return raw.decode("utf-8", "surrogateescape")


class _Reader:
    def __init__(self) -> None:
        self._found: list[SimpleCommand] = []
        self._words: list[str] = []
        self._written: list[str] = []
        self._redirections: list[tuple[str, str]] = []
        self._keywords: list[str] = []
        self._before = ""
        self._redirection: str | None = None
        """The operator of a redirection whose target is next."""

    def take(self, token: Token) -> None:
        """Read the next token."""
        if token.kind == BLANK:
            return
        if self._redirection is not None:
            target = to_text(token.value) if token.kind == WORD else ""
            self._redirections.append((self._redirection, target))
            self._redirection = None
            if token.kind == WORD:
                return
        if token.kind == REDIRECTION:
            self._redirection = to_text(token.value)
        elif token.kind == OPERATOR:
            self._end_command(to_text(token.value))
        else:
            self._add_word(to_text(token.value), to_text(token.text))

    def end(self) -> list[SimpleCommand]:
        """Return the simple commands when there are no more tokens."""
        if self._redirection is not None:
            self._redirections.append((self._redirection, ""))
        self._end_command("")
        return self._found

    def _end_command(self, operator: str) -> None:
        if self._words or self._redirections:
            words = (tuple(self._words), tuple(self._written))
            more = (tuple(self._redirections), tuple(self._keywords))
            self._found.append(SimpleCommand(self._before, *words, *more))
            self._before, self._keywords = "", []
        self._words, self._written, self._redirections = [], [], []
        if operator in ("(", ")"):
            self._keywords.append(operator)
        else:
            self._before = _JOINING.get(operator, operator)

    def _add_word(self, word: str, written: str) -> None:
        if not self._words and written in _RESERVED:
            self._before = self._before or (";" if self._found else "")
            self._keywords.append(word)
        else:
            self._words.append(word)
            self._written.append(written)
