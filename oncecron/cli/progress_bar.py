"""A bar at a terminal for work that takes longer than a second. When the work ends, in whatever way, the bar is gone.

Nothing is shown where standard error is no terminal: in a pipe, and under cron. The cursor stays visible, so a kill
leaves a terminal as it was.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from oncecron.core import stderr
from oncecron.core.columns import terminal_width
from oncecron.core.progress import no_progress
from oncecron.core.timing import BAR_AFTER, BAR_INTERVAL
from oncecron.core.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.progress import Progress

_LONGEST_BAR = 30
_USUAL_COLUMNS = 80
_STEP = 3 / 10
"""How far click moves the mark of a bar without a length at each drawing."""


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Show how far the work of the block is, which calls what this gives; a thread draws it, also if no call comes."""
    if not os.isatty(2):
        yield no_progress
        return
    bar, ended = Bar(label), threading.Event()

    def draw() -> None:
        while not ended.wait(BAR_INTERVAL):
            bar.draw()

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()
    try:
        yield bar.note
    finally:
        ended.set()
        bar.close()


class Bar:
    """click's bar on standard error, from a second after its work has begun."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._progress: tuple[int, int | None, str] = (0, None, "")
        self._drawn = ""
        self._draws = 0
        self._lock = threading.RLock()
        self._is_closed = False
        stderr.before_a_line(self.hide)

    def note(self, done: int = 0, total: int | None = None, what: str = "") -> None:
        """Take how far the work is, for the next time that it is drawn."""
        self._progress = (done, total, what)

    def draw(self) -> None:
        """Draw it anew."""
        with self._lock:
            if self._is_closed or time.monotonic() < self._began + BAR_AFTER:
                return
            self._draws += 1
            line = self._line()[: _columns() - 1]
            stderr.write(f"\r{line.ljust(len(self._drawn))}")
            self._drawn = line

    def hide(self) -> None:
        """Clear its line, for one that is written now."""
        with self._lock:
            if self._drawn:
                stderr.write(f"\r{' ' * (_columns() - 1)}\r")  # ^C may stand behind it
            self._drawn = ""

    def close(self) -> None:
        """Clear its line, and draw it no more."""
        with self._lock:
            self.hide()
            self._is_closed = True
        stderr.before_a_line(None)

    def _line(self) -> str:
        done, total, what = self._progress
        took = format_duration(round(time.monotonic() - self._began))
        words = [what or (f"{done:,}" if done and not total else ""), "" if total else took]
        info = ", ".join(filter(None, words))
        width = _columns() - len(f"{self._label}  []  {info}  ") - len(f"{done}/{total}  100%  ")
        bar = click.progressbar(
            length=total or None,
            iterable=None if total else iter(int, 1),
            label=self._label,
            show_pos=bool(total),
            show_percent=bool(total),
            show_eta=False,
            item_show_func=lambda _: info,
            file=sys.stderr,
            width=max(3, min(_LONGEST_BAR, width)),
        )
        bar.pos = done if total else self._draws
        if not total:
            bar.avg = [_STEP]
        return bar.format_progress_line()


def _columns() -> int:
    return terminal_width(2) or _USUAL_COLUMNS
