"""What simulations have reached: returns of `decide`, refusals, cells of the table of states, faults beside states."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults import KINDS, STATES

from oncecron.core import decision
from oncecron.core.model import Refusal
from oncecron.run import firing_states

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from world import World

_BY = {
    "held": ("the same tick", "another tick"),
    "done": ("succeeded", "failed", "timed-out", "stopped", "lost", "unclaimed"),
    "exhausted": ("lost",),
    "passed": ("",),
    "recent": ("",),
    "late": ("",),
    "paused": ("",),
    "drained": ("",),
}
"""The refusals of `decide`, and by what."""
_WHY, _BESIDE = "  -- ", " beside "


class Reached:
    """Counts of what can be reached, by a name that a change elsewhere does not change."""

    def __init__(self) -> None:
        self._names = dict(_returns())
        self.counts: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        """The seed that reached it first."""
        refusals = (_refusal(reason, by) for reason, ways in _BY.items() for by in ways)
        self._groups = {
            "returns of decide": [*self._names.values()],
            "refusals": [*refusals],
            "cells of the table of states": [*_cells(firing_states.__doc__ or "")],
        }

    def watch(self, seed: int, world: World) -> None:
        sys.settrace(self._trace)
        try:
            world.run()
        finally:
            sys.settrace(None)
        self.counts.update(world.runner.reached)
        for name in self.counts:
            self.first.setdefault(name, seed)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != decision.__file__:
            return None
        if event == "line" and frame.f_lineno in self._names:
            self.counts[self._names[frame.f_lineno]] += 1
        elif event == "return" and frame.f_code.co_name == "decide" and type(argument) is Refusal:
            by, way = argument.detail or "", argument.blocked_by
            if argument.reason == "held":
                by = "the same tick" if way and way.same_tick else "another tick"
            self.counts[_refusal(argument.reason, by)] += 1
        return self._trace

    def unknown(self) -> list[str]:
        """Return what was reached and has no name here; the clock may always change nothing."""
        known = {f"clock: {state} -> =" for state in (*STATES, "Over")}
        known |= {name for names in self._groups.values() for name in names}
        return sorted(name for name in self.counts if name not in known and _BESIDE not in name)

    def text(self, reasons: dict[str, str]) -> Iterator[str]:
        """Yield the lines of `reached.txt`: each name with its count and first seed, or why it is not reached."""
        for title, names in self._groups.items():
            yield f"# {title}"
            for name in names:
                reason = "" if self.counts[name] else f"{_WHY}{reasons.get(name, 'NO REASON')}"
                yield f"{self.counts[name]:7} {self.first.get(name, '-'):>4} {name}{reason}"
        yield "# faults beside states"
        yield " ".join(f"{word:>10}" for word in STATES)
        for kind in (*KINDS, "ambush"):
            counts = " ".join(f"{self.counts[kind + _BESIDE + state]:10}" for state in STATES)
            yield f"{counts} {kind}"


def read(text: str) -> dict[str, tuple[int, str]]:
    """Return the count and the reason of each name in `reached.txt`."""
    known = {}
    for line in text.splitlines():
        words = line.split(maxsplit=len(STATES))
        if re.match(r" +\d+ +[\d-]+ \w+: |" r" +\d+ +[\d-]+ \w+( by|$|  --)", line):
            name, _, reason = line.split(maxsplit=2)[2].partition(_WHY)
            known[name] = (int(words[0]), reason)
        elif len(words) > len(STATES) and words[0].isdigit():
            pairs = zip(STATES, words, strict=False)
            known |= {f"{words[-1]}{_BESIDE}{state}": (int(count), "") for state, count in pairs}
    return known


def _refusal(reason: str, by: str) -> str:
    return f"{reason} by {by}" if by in _BY[reason] and by else reason


def _returns() -> Iterator[tuple[int, str]]:
    text = Path(decision.__file__).read_text(encoding="utf-8")
    seen: Counter[str] = Counter()
    function = ""
    for number, line in enumerate(text.partition("\nPLAIN_BITS = ")[0].splitlines(), 1):
        if found := re.match(r"def (\w+)\(", line):
            function = found[1]
        if number > text[: text.index("\ndef decide(")].count("\n") and (
            re.match(r"\s+(return|raise)\b", line)
        ):
            name = f"{function}: {line.partition('  #')[0].strip()}"
            seen[name] += 1
            yield number, name if seen[name] == 1 else f"{name} ({seen[name]})"


def _cells(table: str) -> Iterator[str]:
    lines = table.splitlines()
    first = next(n for n, line in enumerate(lines) if line.split()[:2] == [*STATES[:2]])
    places, row = [lines[first].index(state) for state in STATES], ""
    for line in lines[first + 1 :]:
        if line and not line.startswith("    "):
            return
        row = line[:16].strip() or row
        for place, state in zip(places, STATES, strict=True):
            word = line[place - 1 : place + 10].split()
            if word and word[0] not in ("-", "!"):
                yield f"{row}: {state} -> {'=' if word[0] == state else word[0]}"
