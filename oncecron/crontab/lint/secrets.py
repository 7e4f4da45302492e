"""Secrets in variables and arguments: where they are, so that a message names the place and never shows them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from oncecron.crontab.lint.simple_commands import simple_commands

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAMES = r"(?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|private_?key|mysql_pwd|credentials?)"
_VARIABLE = re.compile(rf"(?:^|_){_NAMES}s?$|^pgpassword$", re.IGNORECASE)
_OPTION = re.compile(
    rf"--?(?:[a-z0-9]+[-_])*{_NAMES.replace('_?', '[-_]?')}(?:=(.+))?$", re.IGNORECASE
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_HEADER = re.compile(r"authorization:\s*(?:bearer|basic|token)\s+(\S+)", re.IGNORECASE)
_PROGRAM = re.compile(r"(?:\S*/s?bin/)?(mysql(?:dump|admin|check)?|mariadb(?:-dump)?|curl|find)")
"""Programs whose options are known. `find` is one because `find /var/lib/mysql -print` does not start mysql."""
_BEFORE_A_NAME = frozenset(("-u", "--user", "--name"))  # `sudo -u mysql`, `docker run --name mysql`
_SUBSTITUTED = re.compile(r"\$(?=\()|`")
_NOT_ITSELF = ("$", "`", "/", "./", "~", "<", "@", "-", "{")
_MASK = "***"


def secret_in_variable(name: str, value: str) -> str | None:
    """Return the secret in a variable, None if there is none."""
    return value if _VARIABLE.search(name) and _is_literal(value) else _in_urls(value)


def secrets_in_arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each secret in the words of a command, and of commands within a word."""
    program, before = "", ""
    for word, following in pairwise((*words, "")):
        named = _PROGRAM.fullmatch(word)
        if named and not program and before not in _BEFORE_A_NAME:
            program = named[1]  # whatever starts it: nice, sudo, oncecron
        found = _in_word(word, following, program)
        if found and _is_literal(found[1]):
            yield found
        for simple in simple_commands(_SUBSTITUTED.sub(";", word)) or ():
            if simple.words != (word,):  # such as the string of --shell, or of sh -c
                yield from secrets_in_arguments(simple.words)
        before = word


def _in_word(word: str, following: str, program: str) -> tuple[str, str] | None:
    assignment, option, header = (
        _ASSIGNMENT.fullmatch(word),
        _OPTION.fullmatch(word),
        _HEADER.search(word),
    )
    if assignment and _VARIABLE.search(assignment[1]):
        return assignment[1], assignment[2]
    if option:
        return word.partition("=")[0], option[1] if option[1] is not None else following
    if password := _in_urls(word):
        return "the password in an address", password
    if header:
        return "the Authorization header", header[1]
    return _in_short_option(word, following, program)


def _in_short_option(word: str, following: str, program: str) -> tuple[str, str] | None:
    if program.startswith(("mysql", "mariadb")) and word.startswith("-p"):
        return "-p", word[2:]
    if program == "curl" and word in ("-u", "--user"):
        return word, following.partition(":")[2]
    return None


def masked(command: str) -> str:
    """Return a command without its secrets; only the mask where a secret is written in pieces."""
    commands = simple_commands(command)
    shown = command
    for words in [command.split()] if commands is None else [simple.words for simple in commands]:
        for _, secret in secrets_in_arguments(words):
            if secret not in command:
                return _MASK
            shown = shown.replace(secret, _MASK)
    return shown


def _in_urls(text: str) -> str | None:
    return next(filter(_is_literal, _URL.findall(text)), None)


def _is_literal(value: str) -> bool:
    """Return whether a value is the secret itself, not a variable or a file that contains it."""
    return bool(value) and not value.startswith(_NOT_ITSELF)
