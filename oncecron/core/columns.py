"""How many columns of a terminal a text takes, and how it is cut and folded to fit."""

from __future__ import annotations

import re
import unicodedata

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = r"""`(?:'[^']*'|"'"|[^`'])*`|`[^`]*`"""
"""A command in backquotes, which may have backquotes of its own in what is quoted for the shell."""
_WORDS = re.compile(rf"(?:{COMMAND}|\S)+")


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int, mark: str, *, keeps_end: bool = False) -> str:
    """Return a text of at most `width` columns, of which `mark` is one where something is left out.

    That is at the end, or with `keeps_end` in the middle: many names differ at their ends.
    """
    if display_width(text) <= width:
        return text
    room = max(0, width - 1)
    end = beginning(text[::-1], room // 3)[::-1] if keeps_end else ""
    while end and not _letter_width(end[0]):
        end = end[1:]  # its letter is left out
    return f"{beginning(text, room - display_width(end))}{mark}{end}" if width > 0 else ""


def beginning(text: str, width: int) -> str:
    """Return as many letters as fit."""
    kept = 0
    for letter in text:
        width -= _letter_width(letter)
        if width < 0:
            break
        kept += 1
    return text[:kept]


def fold(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the lines of a text, ended at blanks, of at most `width` columns; those after the first are indented.

    A command in backquotes stays on one line, however long it is, so that it can be pasted.
    """
    lines: list[str] = []
    for word in _WORDS.findall(text):
        if lines and display_width(lines[-1]) + 1 + display_width(word) <= width:
            lines[-1] += f" {word}"
            continue
        for part in [word] if "`" in word else _pieces(word, width - indent):
            blanks = min(indent, width - display_width(part)) if lines else 0
            lines.append(" " * blanks + part)
    return lines or [""]


def _pieces(word: str, width: int) -> Iterator[str]:
    while word:
        piece = beginning(word, width) or word[0]
        yield piece
        word = word[len(piece) :]
