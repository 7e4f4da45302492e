"""A screen that is drawn again every two seconds, until Ctrl-C.

It is the alternate screen of the terminal, so that the terminal is as it was afterwards, however the command ends. A
store that is away is named above what it answered last, and asked again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING, TextIO

from oncecron.cli.terminal import Style, style_for
from oncecron.config.options import Option
from oncecron.core import clock
from oncecron.core.columns import fold
from oncecron.core.errors import StoreError, StoreUnavailable, UsageError
from oncecron.core.stderr import visible
from oncecron.core.timing import WATCH_POLL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

WATCH = Option(
    "watch", "flag", f"Show the table again every {WATCH_POLL:g} seconds, until Ctrl-C. Needs a terminal.",
    group="Output",
)  # fmt: skip
_ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_UNKNOWN_HEIGHT = 24
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
"""Signals that end or stop this process without a word; Ctrl-C raises an exception."""


def refuse_where_nobody_looks(stream: TextIO, format_: str) -> None:
    """Raise `UsageError` where a screen cannot be drawn."""
    if not stream.isatty() or os.environ.get("TERM") in (None, "", "dumb"):
        raise UsageError("--watch needs a terminal; leave it out")
    if format_ != "table":
        raise UsageError(f"--watch shows a table; leave out --watch or --format {format_}")


def watch(
    draw: Callable[[Style], list[str]], stream: TextIO, *, title: str, utc: bool, wide: bool
) -> None:
    """Show the lines that `draw` returns, until Ctrl-C. What it raises ends it, except of a store that is away."""
    screen = stream.fileno()
    lines: list[str] = []
    away_since: float | None = None
    with _alternate(screen):
        while True:
            style = style_for(stream, "table", utc=utc, wide=wide)
            trouble = ""
            try:
                lines = draw(style)
                away_since = None
            except StoreError as error:
                if not lines and not isinstance(error, StoreUnavailable):
                    raise  # it has never answered, and will not
                away_since = away_since or clock.wall()
                since = style.clock.logged(away_since)
                trouble = f"{style.mark('bad')} since {since}: {visible(str(error))}; trying again"
            now = style.clock.logged(clock.wall())
            heading = [f"{title} every {WATCH_POLL:g}s until Ctrl-C, at {now}"]
            width = style.width or len(trouble)
            heading += [style.paint(line, "bad") for line in fold(trouble, width, 2) if line]
            _put(screen, _frame([*heading, "", *lines], _height(screen)))
            select.select((), (), (), WATCH_POLL)  # not time.sleep: libfaketime


def _frame(lines: list[str], height: int) -> str:
    """Return what draws as many of the lines as the screen has; one is left for the cursor."""
    room = height - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"and {len(lines) - room + 1} more lines"]
    return _HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW


def _height(screen: int) -> int:
    return os.get_terminal_size(screen).lines or _UNKNOWN_HEIGHT


def _put(screen: int, text: str) -> None:
    """Write at once: a signal may come in between, which a buffer would not bear."""
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(screen, data) :]


@contextlib.contextmanager
def _alternate(screen: int) -> Iterator[None]:
    """Use the alternate screen of a terminal meanwhile; also leave it before a signal ends or stops the process."""

    def leave(number: int, _frame: FrameType | None) -> None:
        _put(screen, _LEAVE)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, leave)  # Ctrl-Z, and then `fg`
        _put(screen, _ENTER)

    for number in _ENDS:
        signal.signal(number, leave)
    _put(screen, _ENTER)
    try:
        yield
    finally:
        _put(screen, _LEAVE)
