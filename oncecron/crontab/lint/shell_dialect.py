"""Findings on commands that use what only bash has, on a line that sh runs: Debian's sh is dash."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.core.shell_words import BLANK, OPERATOR, REDIRECTION, WORD, UnclosedError, tokens
from oncecron.crontab.simple_commands import simple_commands, to_bytes, to_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from oncecron.core.shell_words import Token
    from oncecron.crontab.lint.linted_entry import Diagnostic, LintedEntry

_SH = frozenset(("sh", "dash"))
_COMMANDS = frozenset(
    ("[[", "source", "function", "let", "declare", "shopt", "pushd", "popd", "mapfile", "readarray")
)
_REDIRECTIONS = {"&>": "& and >", "&>>": "& and >>"}
_VARIABLE = re.compile(
    r"\$\{?(RANDOM|HOSTNAME|SECONDS|EUID|UID|BASHPID|OSTYPE)\b|\$\(\(.*\b(RANDOM)\b"
)
_EXPANSION = re.compile(r"\$\{\w+(?:/|\^|,,|:\d)")
_BRACES = re.compile(r"(?<!\$)\{[^{}\s'\"$]*(?:,|\.\.)[^{}\s]*\}")
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_CURE = "set SHELL=/bin/bash above the line, or {}"
_SCRIPT = "write it for sh"


def check_dialect(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield the first thing on a line that only bash understands, if sh runs the line."""
    if line.environment.get("SHELL", "/bin/sh").rpartition("/")[2] not in _SH:
        return
    strings = (string for each in line.invocations for string in each.strings)
    for text in (line.command, *strings):
        found = next(_found(text, line.environment.keys()), None)
        if found:
            what, effect, instead = found
            yield line.diagnostic(
                "bashism",
                f"`{what}` is of bash, but sh runs this line: {effect}",
                _CURE.format(instead),
            )
            return


def _found(text: str, known: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield what is of bash, what dash does with it, and what to write instead; `known`: variables of the crontab."""
    try:
        read = tokens(to_bytes(text))
    except UnclosedError:
        return
    yield from _signs(read)
    for simple in simple_commands(text) or ():
        first = next((word for word in simple.written if "=" not in word), "")
        if first in _COMMANDS:
            instead = {"[[": "use [ ]", "source": "use the dot command"}.get(first, _SCRIPT)
            yield first, "dash has no such command", instead
        if first in ("[", "test") and "==" in simple.written:
            yield "==", "dash reports an unexpected operator", "use ="
    for token in read:
        if token.kind == WORD:
            yield from _within_word(to_text(token.text), text, known)


def _signs(read: list[Token]) -> Iterator[tuple[str, str, str]]:
    for at, token in enumerate(read):
        sign, following = to_text(token.value), read[at + 1 : at + 2]
        opens = bool(following) and following[0].text == b"("
        if token.kind == REDIRECTION and sign in _REDIRECTIONS:
            effect = f"dash reads {_REDIRECTIONS[sign]}: the job runs in the background, without this redirection"
            yield sign, effect, "use >FILE 2>&1"
        elif token.kind == REDIRECTION and sign == "<<<":
            yield sign, "dash reports a syntax error", "use a pipe"
        elif token.kind == REDIRECTION and sign in ("<", ">") and opens:
            yield f"{sign}(", "dash reports a syntax error", "use a pipe or a file"
        elif token.kind == REDIRECTION and token.text == b">&" and _is_file(read[at + 1 :]):
            yield sign, "dash reports a bad descriptor", "use >FILE 2>&1"
        elif token.kind == OPERATOR and sign == "|&":
            yield sign, "dash reports a syntax error", "use 2>&1 |"
        elif token.kind == WORD and sign.endswith("=") and opens:
            yield "=(", "dash has no arrays", _SCRIPT


def _is_file(following: list[Token]) -> bool:
    """Return whether the target of `>&` is a file, not a descriptor."""
    words = [token for token in following if token.kind != BLANK][:1]
    return bool(words) and words[0].kind == WORD and words[0].text.strip(b"0123456789-") != b""


def _within_word(word: str, line: str, known: Collection[str]) -> Iterator[tuple[str, str, str]]:
    expanded = _SINGLE_QUOTED.sub("", word)
    variable = _VARIABLE.search(expanded)
    if variable:
        name = variable[1] or variable[2]
        if f"{name}=" not in line and name not in known:
            yield f"${name}", "it is empty in dash", _SCRIPT
    if _EXPANSION.search(expanded):
        yield "${...}", "dash reports a bad substitution", _SCRIPT
    bare = _QUOTED.sub("", word)
    if _BRACES.search(bare) and "://" not in bare:
        yield "{...}", "dash does not expand the braces", "write all words"
