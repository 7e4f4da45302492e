"""`oncecron each`: run a command once per item of a list, on several hosts."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from oncecron.cli.command import TableCommand
from oncecron.config.each_options import EACH_OPTIONS
from oncecron.config.run_parser import ParsedRun
from oncecron.core.units import format_duration

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from oncecron.each.values import ItemCounts


def _each(given: dict[str, str], words: list[str]) -> int:
    from oncecron.alerts.pinger import start  # noqa: PLC0415 - not for --help
    from oncecron.each.host import each  # noqa: PLC0415 - likewise

    bar = _Bar() if os.isatty(2) else None
    try:
        return each(ParsedRun(given, words), bar, start)
    finally:
        if bar:
            bar.close()


class _Bar:
    """The progress of the tick, of all hosts, at a terminal."""

    def __init__(self) -> None:
        self._bar: ProgressBar[int] | None = None
        self._began = (0.0, 0)
        self._counts: ItemCounts | None = None

    def show(self, counts: ItemCounts) -> None:
        """Draw the bar. It begins when the list has been loaded, perhaps with items that an earlier firing did."""
        self._counts = counts
        if self._bar is None:
            self._began = (time.monotonic(), counts.ended)
            self._bar = click.progressbar(
                length=counts.total,
                label="items",
                show_pos=True,
                show_eta=False,
                show_percent=True,
                item_show_func=lambda _: self._speed(),
                file=sys.stderr,
            )
        self._bar.length = counts.total
        self._bar.update(counts.ended - self._bar.pos)
        self._bar.render_progress()

    def _speed(self) -> str:
        since, before = self._began
        seconds = time.monotonic() - since
        if self._counts is None or self._counts.ended == before or not seconds:
            return ""
        rate = (self._counts.ended - before) / seconds
        left = (self._counts.total - self._counts.ended) / rate
        return f"{rate:,.0f}/s, {format_duration(round(left))} left"

    def close(self) -> None:
        """Leave the line of the bar."""
        if self._bar:
            self._bar.render_finish()
            self._bar = None


COMMAND = TableCommand(
    "each", EACH_OPTIONS, _each,
    about="Run a command once per item of a list, or per batch of items. The list belongs to a tick, is loaded once, "
    "and its items are drawn by up to --slots commands on all hosts together. An item whose command ended is never "
    "run again in that tick, also after a crash. Items follow COMMAND as arguments, or take the place of {}. Without "
    "--schedule and --tick the tick is the host's current minute.",
    examples=(
        "oncecron each --key digest --schedule '0 2 * * *' --items ./list-users --batch 20 --slots 8 -- ./send {}",
        "find . -name '*.raw' -print0 | oncecron each --key convert --tick 2026-11 -0 -- ./convert",
    ),
    words="COMMAND [ARGUMENT]...",
    greedy=True,
)  # fmt: skip
