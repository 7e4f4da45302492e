"""click's progress bar for work at a terminal that takes longer than a second. When the work ends, the bar is gone.

click itself hides the cursor, which a kill would leave hidden, and ends its bar with a line of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from oncecron.core.progress import no_progress
from oncecron.host import stderr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.progress import Progress

_BAR_AFTER = 1.0
"""Long work shows a bar at a terminal after this long: what is done before needs none, and would flicker."""

_USUAL_COLUMNS = 80
_WIDTH = 24


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Give what shows how far the work of the block is; nothing is shown where standard error is no terminal."""
    if not os.isatty(2):
        yield no_progress
        return
    bar = Bar(label)
    try:
        yield bar.show
    finally:
        bar.close()


class Bar:
    """click's bar on standard error, from a second after its work has begun."""

    def __init__(self, label: str) -> None:
        self._began = time.monotonic()
        self._is_drawn = False
        self._bar = click.progressbar(
            length=1, label=label, show_eta=False, file=sys.stderr, item_show_func=str, width=_WIDTH
        )
        stderr.before_a_line(self.hide)

    def show(self, done: int = 0, total: int | None = None, what: str = "") -> None:
        """Draw how far the work is."""
        if time.monotonic() < self._began + _BAR_AFTER:
            return
        bar = self._bar
        bar.length, bar.pos, bar.show_pos = total, done, bool(done or total)
        bar.current_item = what
        self.hide()
        columns = stderr.terminal_size(2)[0] or _USUAL_COLUMNS
        stderr.write(bar.format_progress_line()[: columns - 1])
        self._is_drawn = True

    def hide(self) -> None:
        """Clear its line, for one that is written now."""
        if self._is_drawn:
            stderr.write(f"\r{' ' * ((stderr.terminal_size(2)[0] or _USUAL_COLUMNS) - 1)}\r")
        self._is_drawn = False

    def close(self) -> None:
        """Clear its line, and draw it no more."""
        self.hide()
        stderr.before_a_line(None)
