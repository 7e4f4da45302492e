"""A shell command taken apart as far as lint needs it: its simple commands, what joins them, where they write.

Words are as the shell hands them on where they are plain or quoted, and as written where the shell would put
something else in (`$RANDOM`, `$(date)`). What is in a substitution is not looked into.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPERATORS = ("&&", "||", ";;", "|&", "\n", ";", "|", "&", "(", ")")
_REDIRECT = re.compile(r"(\d*)(&>>|&>|<<<|<<-|<<|<>|>>|>\||>&|<&|>|<)")
_RESERVED = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac"),
        *("!", "{", "}", "time"),
    )
)
_BLANKS = " \t"


class Part(NamedTuple):
    """A simple command."""

    before: str
    """What joins it to the one before it: `&&`, `||`, `;`, `|`, `&`; empty at the beginning."""
    words: tuple[str, ...]
    """With the assignments in front; empty for `}` and the like, which may still have redirections."""
    written: tuple[str, ...]
    """The words as they are written, quotes included."""
    redirects: tuple[tuple[str, str], ...]
    """Operator and target."""
    keywords: tuple[str, ...]
    """The brackets and reserved words in front of it: those that end what is before it, and its own."""

    @property
    def text(self) -> str:
        """The command as it is written, without its redirections."""
        return " ".join(self.written)


def parts(command: str) -> list[Part] | None:
    """Return the simple commands, None if a quote or a substitution is not closed, or they nest too deeply."""
    try:
        return _Reader(command).parts()
    except (_OpenError, RecursionError):
        return None


class _OpenError(Exception):
    """A quote or a substitution is not closed."""


class _Reader:
    """Reads one command from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._parts: list[Part] = []
        self._words: list[str] = []
        self._written: list[str] = []
        self._redirects: list[tuple[str, str]] = []
        self._keywords: list[str] = []
        self._before = ""

    def parts(self) -> list[Part]:
        text = self._text
        while self._at < len(text):
            letter = text[self._at]
            redirect = _REDIRECT.match(text, self._at)
            if letter in _BLANKS:
                self._at += 1
            elif letter == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif redirect:
                self._at = redirect.end()
                self._redirects.append((redirect[2], self._target()))
            elif operator := next((o for o in _OPERATORS if text.startswith(o, self._at)), None):
                self._at += len(operator)
                self._end_part("|" if operator == "|&" else operator)
            else:
                self._add_word()
        self._end_part("")
        return self._parts

    def _end_part(self, operator: str) -> None:
        if self._words or self._redirects:
            words = (tuple(self._words), tuple(self._written))
            more = (tuple(self._redirects), tuple(self._keywords))
            self._parts.append(Part(self._before, *words, *more))
            self._before, self._keywords = "", []
        self._words, self._written, self._redirects = [], [], []
        if operator in ("(", ")"):
            self._keywords.append(operator)
        else:
            self._before = {"\n": ";", ";;": ";"}.get(operator, operator)

    def _add_word(self) -> None:
        start = self._at
        word = self._word()
        if not self._words and word in _RESERVED:
            self._before = self._before or (";" if self._parts else "")
            self._keywords.append(word)
        else:
            self._words.append(word)
            self._written.append(self._text[start : self._at])

    def _target(self) -> str:
        while self._text[self._at : self._at + 1] in tuple(_BLANKS):
            self._at += 1
        return self._word()

    def _word(self) -> str:
        """Read to the end of a word."""
        found = []
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in " \t\n;&|()<>":
                break
            found.append(self._piece(letter))
        return "".join(found)

    def _piece(self, letter: str) -> str:
        """Read what begins with this letter: a quoted text, a substitution, an escaped letter, or itself."""
        start = self._at
        if letter == "'":
            self._at = self._after("'", start + 1)
            return self._text[start + 1 : self._at - 1]
        if letter == '"':
            self._quoted()
            return self._text[start + 1 : self._at - 1].replace('\\"', '"')
        if letter == "\\":
            self._at += 2
            return self._text[start + 1 : start + 2]
        if self._substitution():
            return self._text[start : self._at]
        self._at += 1
        return letter

    def _after(self, sign: str, start: int) -> int:
        end = self._text.find(sign, start)
        if end < 0:
            raise _OpenError
        return end + len(sign)

    def _quoted(self) -> None:
        """Go behind a text in double quotes."""
        self._at += 1
        while self._text[self._at : self._at + 1] != '"':
            if self._at >= len(self._text):
                raise _OpenError
            if self._text[self._at] == "\\":
                self._at += 2
            elif not self._substitution():
                self._at += 1
        self._at += 1

    def _substitution(self) -> bool:
        """Go behind a substitution, if one begins here."""
        if self._text[self._at] == "`":
            self._at = self._after("`", self._at + 1)
            return True
        opening = self._text[self._at : self._at + 2]
        if opening not in ("$(", "${"):
            return False
        self._at += 2
        self._inside(")" if opening == "$(" else "}")
        return True

    def _inside(self, closing: str) -> None:
        """Go behind the bracket that closes."""
        while self._text[self._at : self._at + 1] != closing:
            if self._at >= len(self._text):
                raise _OpenError
            if closing == ")" and self._text[self._at] == "(":
                self._at += 1
                self._inside(")")
            else:
                self._piece(self._text[self._at])
        self._at += 1
