"""How output is written: what the terminal of a person can show, and the marks and colours of states."""

from __future__ import annotations

import locale
import os
from typing import TYPE_CHECKING, NamedTuple, TextIO

from oncecron.core import clock
from oncecron.core.text import Clock
from oncecron.host.local_time import shown_zone
from oncecron.host.stderr import terminal_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.log.state_kinds import StateKind

_UNKNOWN_WIDTH, _UNKNOWN_HEIGHT = 80, 24  # of a serial console, say
_COLOURS: Mapping[StateKind, str] = {
    "well": "32", "bad": "31", "warning": "33", "running": "36", "paused": "2", "nothing": "",
}  # fmt: skip
_MARKS: Mapping[StateKind, str] = {
    "well": "✓", "bad": "✗", "warning": "!", "running": "▸", "paused": "-", "nothing": " ",
}  # fmt: skip
_ASCII_MARKS: Mapping[StateKind, str] = {**_MARKS, "well": "+", "bad": "x", "running": ">"}


class Style(NamedTuple):
    """How output is written."""

    format: str
    clock: Clock
    colour: bool = False
    width: int | None = None
    """Columns of the terminal; None: nothing is cut, folded or left out, as in a pipe."""
    height: int | None = None
    """Lines of the terminal; None: it does not matter how many there are."""
    unicode: bool = False
    """Whether the terminal shows letters beyond ASCII."""
    terminal: bool = False
    """Whether a person reads it now."""
    encoding: str = "utf-8"

    def is_too_long(self, lines: int) -> bool:
        """Return whether so many lines, and the prompt of the shell, are more than the terminal has."""
        return self.height is not None and lines >= self.height

    @property
    def has_marks(self) -> bool:
        """Whether a person reads it, now or later."""
        return self.terminal or self.colour

    @property
    def ellipsis(self) -> str:
        """The mark of what is cut."""
        return "…" if self.unicode else ">"

    def encodable(self, text: str) -> str:
        """Return a text as the stream will write it, which decides how wide it is."""
        if text.isascii():
            return text
        return text.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def mark(self, kind: StateKind) -> str:
        """Return the mark of a state, of one column."""
        return (_MARKS if self.unicode else _ASCII_MARKS)[kind]

    def paint(self, text: str, kind: StateKind) -> str:
        """Return a text in the colour of a state."""
        code = _COLOURS[kind]
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def dim(self, text: str) -> str:
        """Return a text that is less important than what is around it."""
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text


def style_for(
    stream: TextIO, format_: str, *, utc: bool, zone: str | None = None, wide: bool = False
) -> Style:
    """Return how to write to a stream. NO_COLOR wins over FORCE_COLOR, and both over the terminal.

    At a terminal times are short, and tables fit; not so with `wide`.
    """
    terminal = stream.isatty()
    colour = terminal and os.environ.get("TERM") != "dumb"
    if os.environ.get("FORCE_COLOR"):
        colour = True
    if os.environ.get("NO_COLOR"):
        colour = False
    is_short = terminal and not wide and format_ == "table"
    return Style(
        format_,
        Clock(utc, shown_zone(zone), clock.wall()) if is_short else Clock(utc),
        colour,
        *(size_of(stream) if is_short else (None, None)),
        shows_unicode(stream),
        terminal,
        stream.encoding or "utf-8",
    )


def size_of(stream: TextIO) -> tuple[int | None, int | None]:
    """Return how many columns and lines the terminal has to which a stream is written; None: it is no terminal."""
    try:
        found = terminal_size(stream.fileno()) if stream.isatty() else None
    except ValueError:  # it is no file
        found = None
    return (found[0] or _UNKNOWN_WIDTH, found[1] or _UNKNOWN_HEIGHT) if found else (None, None)


def shows_unicode(stream: TextIO) -> bool:
    """Return whether the locale and the stream have letters beyond ASCII. Python itself writes UTF-8 also in C."""
    names = (locale.nl_langinfo(locale.CODESET), stream.encoding or "")
    return all(name.lower().startswith("utf") for name in names)
