"""Charts as data: of all marks that look alike one path of SVG, which a template draws. So a page stays small.

What a chart shows is said in words beside it, for who cannot see it.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.units import DAY
from oncecron_web.looks import LOOKS, look, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.text import Clock
    from oncecron.log.grid import Grid, Mark, Run

BARS = 30
"""How many runs of a key have a bar."""
_STEP, _WIDTH, _HEIGHT = 6, 4, 22
"""Of bars, in the units of the picture."""
_LEAST_HEIGHT = 3


class Stroke(NamedTuple):
    """All marks of a chart that look alike."""

    look: str
    """The class of the path: one of `LOOKS`, or `foot`."""
    path: str
    """What the attribute `d` says."""


def bars(runs: Sequence[Run]) -> list[Stroke]:
    """Return the bars of the newest runs, the newest at the right: as high as long they took, by the square root.

    What went wrong is underlined, so that it is found without its colour.
    """
    shown = runs[-BARS:]
    longest = max((run.duration or 0.0 for run in shown), default=0.0)
    found: dict[str, list[str]] = {}
    for place, run in enumerate(shown, BARS - len(shown)):
        x, how = place * _STEP, look(run.outcome)
        height = _bar_height(run.duration, longest)
        mark = f"M{x + _WIDTH // 2} {_HEIGHT}v-{height}"  # a line as wide as a bar: most of a page are bars
        if how == "missed":
            mark = _box(x + 0.6, 0.6, _WIDTH - 1.2, _HEIGHT - 1.2)
        found.setdefault(how, []).append(mark)
        if how in ("bad", "missed"):
            found.setdefault("foot", []).append(f"M{x} {_HEIGHT + 3}h{_WIDTH}")
    return _strokes(found)


def _bar_height(duration: float | None, longest: float) -> int:
    if duration is None:
        return _HEIGHT
    share = math.sqrt(max(0.0, duration) / longest) if longest else 0.0
    return max(_LEAST_HEIGHT, round(share * _HEIGHT))


_LANES = {
    "bad": (0, 100),
    "missed": (8, 84),
    "warning": (15, 70),
    "running": (20, 60),
    "well": (35, 30),
    "paused": (42, 16),
    "nothing": (46, 8),
}
"""Where the marks in a lane of a hundred begin, and how high they are: what is wrong is taller than what is well."""


def lane(marks: Iterable[Mark | None]) -> list[Stroke]:
    """Return the marks of a row of columns; None: nothing is there. Neighbours that look alike are one."""
    looks = [look(mark.word) if mark else "" for mark in marks]
    found: dict[str, list[str]] = {}
    start, before = 0, ""
    for place, how in enumerate([*looks, ""]):
        if how == before:
            continue
        if before:
            top, high = _LANES[before]
            found.setdefault(before, []).append(_box(start, top, place - start, high))
        start, before = place, how
    return _strokes(found)


def _box(x: float, y: float, wide: float, high: float) -> str:
    return f"M{x:g} {y:g}h{wide:g}v{high:g}h{-wide:g}z"


def _strokes(found: dict[str, list[str]]) -> list[Stroke]:
    """Return a path for each look, the worst last: it is drawn above the others."""
    order = ("foot", *LOOKS)
    return [
        Stroke(how, "".join(found[how])) for how in sorted(found, key=order.index, reverse=True)
    ]


def counts_said(counts: Iterable[tuple[str, int]]) -> str:
    """Return how many there are of each outcome."""
    return ", ".join(f"{many:,} {word(outcome)}" for outcome, many in counts) or "nothing"


def runs_said(runs: Sequence[Run]) -> str:
    """Return what bars show."""
    counts = Counter(run.outcome for run in runs[-BARS:])
    ordered = sorted(counts.items(), key=lambda each: LOOKS.index(look(each[0])))
    return f"Last {sum(counts.values())}: {counts_said(ordered)}"


# The axis of a grid

_LABELS = 7
_STEPS = (1, 2, 3, 6, 12, 24, 48, 120, 168, 336, 720, 2160, 8760)
"""Hours between the labels of an axis."""


def axis(grid: Grid, clock: Clock) -> Iterator[tuple[float, str]]:
    """Yield the labels of the time: how far from the left, in percent, and the text."""
    begin, until = grid.starts[0], grid.until
    long = until - begin
    step = next((each for each in _STEPS if long / (each * 3600) <= _LABELS), _STEPS[-1])
    zone = UTC if clock.utc else None
    at = datetime.fromtimestamp(begin, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    while (time := at.timestamp()) < until:
        percent = (time - begin) / long * 100
        if 0 <= percent < _LAST_LABEL:
            text = f"{at.day} {at:%b}" if step * 3600 >= DAY or not at.hour else f"{at:%H:%M}"
            yield round(percent, 2), text
        at += timedelta(hours=step)


_LAST_LABEL = 94
"""Further to the right a label would be cut."""


# The calendar

_CELL, _SIZE = 28, 24
_LEFT, _TOP = 34, 20
_MOST_IN_A_CELL = 999


class Cell(NamedTuple):
    """A day of the calendar."""

    x: int
    y: int
    look: str
    text: str
    """How many ticks went wrong."""
    said: str


class Calendar(NamedTuple):
    """Days in columns of weeks, Monday first."""

    width: int
    height: int
    labels: list[tuple[int, int, str]]
    cells: list[Cell]
    said: str
    """How many days there are, and how many with what went wrong."""


def calendar(days: Grid, clock: Clock) -> Calendar:
    """Return the calendar of a line whose columns are days."""
    zone, [line] = UTC if clock.utc else None, days.lines
    dates = [datetime.fromtimestamp(start, zone).date() for start in days.starts]
    monday = dates[0] - timedelta(dates[0].weekday())
    labels = [
        (0, _TOP + row * _CELL + 16, name)
        for row, name in ((0, "Mon"), (2, "Wed"), (4, "Fri"), (6, "Sun"))
    ]
    cells: list[Cell] = []
    for date, mark in zip(dates, line.marks, strict=True):
        week, row = divmod((date - monday).days, 7)
        x, y = _LEFT + week * _CELL, _TOP + row * _CELL
        if date.day == 1 or (date == dates[0] and date.day <= _FIRST_LABELLED):
            labels.append((x, 13, f"{date:%b}"))
        cells.append(_cell(x, y, f"{date:%a} {date.day} {date:%b}", mark))
    wide = max(cell.x for cell in cells) + _SIZE
    bad = sum(cell.look in ("bad", "missed") for cell in cells)
    said = f"Of {len(dates)} days, {bad} had a tick that failed or was missed."
    return Calendar(wide, _TOP + 7 * _CELL, labels, cells, said)


_FIRST_LABELLED = 20
"""A month that begins later in its first column has no room for its name beside that of the next one."""


def _cell(x: int, y: int, day: str, mark: Mark | None) -> Cell:
    counts = mark.counts if mark else ()
    looks: Counter[str] = Counter()
    for outcome, many in counts:
        looks[look(outcome)] += many
    how = next((each for each in LOOKS if looks[each]), "nothing")
    wrong = looks["bad"] + looks["missed"]
    text = "" if not wrong else f"{wrong}" if wrong <= _MOST_IN_A_CELL else "1k+"
    how = "well" if how in ("running", "paused") and looks["well"] else how
    return Cell(x, y, how, text, f"{day}: {counts_said(counts)}")
