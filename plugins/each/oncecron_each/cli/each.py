"""`oncecron each`: run a command once per item of a list, on several hosts."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from oncecron.cli.command import TableCommand
from oncecron.config.run_parser import ParsedRun
from oncecron.core.units import format_duration
from oncecron_each.options import EACH_OPTIONS

if TYPE_CHECKING:
    from oncecron_each.item_model import ItemCounts


def _each(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli.run import observe  # noqa: PLC0415 - not for --help
    from oncecron_each.host_slots import each  # noqa: PLC0415 - likewise

    display = _Display() if os.isatty(2) else None
    try:
        return each(ParsedRun(given, words), display, observe)
    finally:
        if display:
            display.close()


class _Display:
    def __init__(self) -> None:
        from oncecron.cli.progress_bar import Bar  # noqa: PLC0415 - at a terminal alone

        self._bar = Bar("items")
        self._began: tuple[float, int] | None = None

    def show_load(self, items: int) -> None:
        """Draw how many items of the list have been loaded: how many it has is not known before its end."""
        self._bar.show(what=f"{items:,} loaded")

    def show(self, counts: ItemCounts) -> None:
        """Draw how many items have ended, perhaps some of them in an earlier firing."""
        self._began = self._began or (time.monotonic(), counts.ended)
        self._bar.show(counts.ended, counts.total, self._speed(counts))

    def _speed(self, counts: ItemCounts) -> str:
        since, before = self._began or (0.0, 0)
        seconds = time.monotonic() - since
        if counts.ended == before or not seconds:
            return ""
        rate = (counts.ended - before) / seconds
        left = (counts.total - counts.ended) / rate
        return f"{rate:,.0f}/s, {format_duration(round(left))} left"

    def close(self) -> None:
        """Clear the bar."""
        self._bar.close()


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
