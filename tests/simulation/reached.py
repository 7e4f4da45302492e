"""What simulations have reached: the returns of `decide`, and the cells of the table of states."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncecron.core import decision
from oncecron.run import firing_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SELDOM = 5
"""What is reached less often may be missed by the next change of anything."""
_STATES = (
    *("Claiming", "Renewing", "Leaving", "Running", "Unclaimed", "Keeping", "Recording"),
    *("Waiting", "Retrying"),
)


class Reached:
    """Counts of what can be reached, by a name that a change elsewhere does not change."""

    def __init__(self) -> None:
        self._names = dict(_returns())
        self.wanted = [*self._names.values(), *_cells(firing_states.__doc__ or "")]
        self.counts: Counter[str] = Counter()

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function; it notes the lines that it reaches. It must not wait."""

        def traced(*args: Any, **named: Any) -> Any:
            sys.settrace(self._trace)
            try:
                return function(*args, **named)
            finally:
                sys.settrace(None)

        return traced

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != decision.__file__:
            return None
        if event == "line" and frame.f_lineno in self._names:
            self.counts[self._names[frame.f_lineno]] += 1
        return self._trace

    def unknown(self) -> list[str]:
        """Return the transitions that happened and are not in the table; the clock may always change nothing."""
        nothing = {f"clock: {state} -> =" for state in (*_STATES, "Over")}
        return sorted(set(self.counts) - set(self.wanted) - nothing)

    def report(self) -> Iterator[str]:
        """Yield the lines of `reached.txt`."""
        for title, most, least in (
            ("reached", sys.maxsize, SELDOM), ("seldom", SELDOM - 1, 1), ("never", 0, 0)
        ):  # fmt: skip
            yield f"# {title}"
            yield from (name for name in self.wanted if least <= self.counts[name] <= most)


def _returns() -> Iterator[tuple[int, str]]:
    """Yield the line of each return of `decide`, and its name."""
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
    """Yield the cells of the table of states: event, state, and what may follow."""
    lines = table.splitlines()
    first = next(n for n, line in enumerate(lines) if line.split()[:2] == ["Claiming", "Renewing"])
    places, row = [lines[first].index(state) for state in _STATES], ""
    for line in lines[first + 1 :]:
        if line and not line.startswith("    "):
            return
        row = line[:16].strip() or row
        for place, state in zip(places, _STATES, strict=True):
            word = line[place - 1 : place + 10].split()
            if word and word[0] not in ("-", "!"):
                yield f"{row}: {state} -> {'=' if word[0] == state else word[0]}"
