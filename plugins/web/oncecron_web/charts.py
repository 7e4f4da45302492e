"""Charts as data: of all marks that look alike one path of SVG, which a template draws. So a page stays small.

What a chart shows is said in words beside it, for who cannot see it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.text import tick_time
from oncecron.core.units import DAY, MINUTE
from oncecron_web.looks import LOOKS, look, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.text import Clock
    from oncecron.log.grid import Grid, Line, Mark, Run

    Counts = Iterable[tuple[str, int]]
    """How many ticks there are of each outcome."""

BARS = 30
"""How many runs of a key have a bar."""
_STEP, _WIDTH, _HEIGHT = 6, 4, 22
"""Of bars, in the units of the picture."""
_LEAST_HEIGHT = 3


class Stroke(NamedTuple):
    """All marks of a chart that look alike."""

    look: str
    """The class of the path: one of `LOOKS` or of `_SHADES`, or `foot`."""
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


# How many went wrong

_SHADES = {"few": 0.01, "some": 0.1, "many": 0.5}
"""How a mark looks of which less than this share went wrong. From a half on it looks as what went wrong does."""


def _judged(counts: Counts) -> tuple[int, int]:
    """Return how many ticks went wrong, and how many of all have an end that is good or bad."""
    of_looks: Counter[str] = Counter()
    for outcome, many in counts:
        of_looks[look(outcome)] += many
    wrong = of_looks["bad"] + of_looks["missed"]
    return wrong, wrong + of_looks["well"]


def share(counts: Counts) -> float:
    """Return the share of ticks that went wrong."""
    wrong, judged = _judged(counts)
    return wrong / judged if judged else 0.0


def rate(counts: Counts) -> str:
    """Return the share of ticks that succeeded: all of them alone are 100 %. Empty: none has ended."""
    wrong, judged = _judged(counts)
    percent = 100 * (1 - wrong / judged) if judged else 100.0
    digits = 100 if percent > _NEARLY_ALL else 10
    return f"{math.floor(percent * digits) / digits:g} %" if judged else ""


_NEARLY_ALL = 99


def rate_said(counts: Counts) -> str:
    """Return the same with the numbers."""
    wrong, judged = _judged(counts)
    return f"{judged - wrong:,} of {judged:,} runs succeeded ({rate(counts)})" if judged else ""


def totals(grid: Grid) -> list[tuple[str, int]]:
    """Return how many ticks of each outcome all lines have, the worst first."""
    counts: Counter[str] = Counter()
    for line in grid.lines:
        counts.update(dict(line.counts))
    return _sorted(counts)


def _shade(how: str, counts: Counts) -> str:
    if how not in ("bad", "missed"):
        return how
    found = share(counts)
    return next((name for name, below in _SHADES.items() if found < below), how)


# The lanes of a grid

_LANES = {
    "bad": (0, 100),
    "missed": (8, 84),
    "many": (8, 84),
    "some": (15, 70),
    "few": (25, 50),
    "warning": (15, 70),
    "running": (20, 60),
    "well": (35, 30),
    "paused": (42, 16),
    "nothing": (46, 8),
}
"""Where the marks in a lane of a hundred begin, and how high they are: what is wrong is taller than what is well."""


def _alike(marks: Iterable[Mark | None]) -> Iterator[tuple[str, int, int]]:
    """Yield how neighbours look that look alike, and from which column to which; None: nothing is there."""
    looks = [_shade(look(mark.word), mark.counts) if mark else "" for mark in marks]
    for how, group in itertools.groupby(enumerate(looks), key=lambda each: each[1]):
        places = [place for place, _ in group]
        if how:
            yield how, places[0], places[-1] + 1


def lane(marks: Iterable[Mark | None]) -> list[Stroke]:
    """Return the marks of a row of columns. Neighbours that look alike are one."""
    found: dict[str, list[str]] = {}
    for how, start, end in _alike(marks):
        top, high = _LANES[how]
        found.setdefault(how, []).append(_box(start, top, end - start, high))
    return _strokes(found)


class Spot(NamedTuple):
    """Where a mark of a lane says what it is: around it, half-way to its neighbours."""

    wide: int
    """In columns."""
    said: str


def spots(line: Line, grid: Grid, clock: Clock) -> Iterator[Spot]:
    """Yield what each mark of a lane says. In a grid of many lines, what is well up to the next mark is one."""
    is_brief = len(grid.lines) > _MANY_LINES
    merged: list[tuple[str, int, int]] = []
    for how, start, end in _alike(line.marks):
        if is_brief and merged and how == "well" == merged[-1][0]:
            merged[-1] = how, merged[-1][1], end
        else:
            merged.append((how, start, end))
    left = 0
    for (_, start, end), after in itertools.zip_longest(merged, merged[1:]):
        right = (end + after[1] + 1) // 2 if after else len(grid.starts)
        yield Spot(right - left, _said(line.marks[start:end], start, end, grid, clock))
        left = right


_MANY_LINES = 100


def _said(marks: Sequence[Mark | None], start: int, end: int, grid: Grid, clock: Clock) -> str:
    found = [mark for mark in marks if mark]
    if len(found) == 1 and found[0].count == 1:
        [mark] = found
        where = f" on {mark.host}" if mark.host else ""
        return f"{_minute(mark.at, clock)}: {word(mark.word)}{where}"
    counts: Counter[str] = Counter()
    for mark in found:
        counts.update(dict(mark.counts))
    until = grid.starts[end] if end < len(grid.starts) else grid.until
    times = f"{_minute(grid.starts[start], clock)} to {_minute(until, clock)}"
    return f"{times}: {counts_said(_sorted(counts))}"


def _minute(time: float, clock: Clock) -> str:
    return tick_time(time // MINUTE * MINUTE, clock.now or time, clock)


def _box(x: float, y: float, wide: float, high: float) -> str:
    return f"M{x:g} {y:g}h{wide:g}v{high:g}h{-wide:g}z"


def _strokes(found: dict[str, list[str]]) -> list[Stroke]:
    """Return a path for each look, the worst last: it is drawn above the others."""
    order = ("foot", "bad", "missed", *reversed(_SHADES), *LOOKS[2:])
    return [
        Stroke(how, "".join(found[how])) for how in sorted(found, key=order.index, reverse=True)
    ]


def counts_said(counts: Counts) -> str:
    """Return how many there are of each outcome."""
    return ", ".join(f"{many:,} {word(outcome)}" for outcome, many in counts) or "nothing"


def runs_said(runs: Sequence[Run]) -> str:
    """Return what bars show."""
    counts = Counter(run.outcome for run in runs[-BARS:])
    return f"Last {sum(counts.values())}: {counts_said(_sorted(counts))}"


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
    """Days in columns of weeks, Monday first, from the first one on record."""

    width: int
    height: int
    labels: list[tuple[int, int, str]]
    cells: list[Cell]
    top: int
    """Where the first row begins."""
    first_row: int
    """Of the first day; 0 is Monday."""
    said: str
    """How many days there are, and how many with what went wrong."""
    counts: list[tuple[str, int]]
    """How many ticks of each outcome there are, the worst first."""


def calendar(days: Grid, clock: Clock) -> Calendar:
    """Return the calendar of all lines of a grid whose columns are days."""
    zone = UTC if clock.utc else None
    columns = _days(days)
    dates = [datetime.fromtimestamp(start, zone).date() for start in days.starts[-len(columns) :]]
    monday = dates[0] - timedelta(dates[0].weekday())
    labels = [
        (0, _TOP + row * _CELL + 16, name)
        for row, name in ((0, "Mon"), (2, "Wed"), (4, "Fri"), (6, "Sun"))
    ]
    cells: list[Cell] = []
    for date, counts in zip(dates, columns, strict=True):
        week, row = divmod((date - monday).days, 7)
        x, y = _LEFT + week * _CELL, _TOP + row * _CELL
        if date.day == 1 or (date == dates[0] and date.day <= _FIRST_LABELLED):
            labels.append((x, 13, f"{date:%b}"))
        cells.append(_cell(x, y, f"{date:%a} {date.day} {date:%b}", _sorted(counts)))
    wide = max(cell.x for cell in cells) + _SIZE
    bad = sum(bool(cell.text) for cell in cells)
    many = f"{len(dates)} days" if len(dates) > 1 else "1 day"
    said = f"Of {many} on record, {bad} had a tick that failed or was missed."
    in_all = _sorted(sum(columns, Counter[str]()))
    row = dates[0].weekday()
    return Calendar(wide, _TOP + 7 * _CELL, labels, cells, _TOP, row, said, in_all)


def _days(days: Grid) -> list[Counter[str]]:
    """Return the counts of each day of all lines, from the first day on record."""
    found: list[Counter[str]] = [Counter() for _ in days.starts]
    for line in days.lines:
        for counts, mark in zip(found, line.marks, strict=True):
            counts.update(dict(mark.counts) if mark else {})
    return [*itertools.dropwhile(lambda counts: not counts, found)] or found[-1:]


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: LOOKS.index(look(each[0])))


_FIRST_LABELLED = 20
"""A month that begins later in its first column has no room for its name beside that of the next one."""


def _cell(x: int, y: int, day: str, counts: Sequence[tuple[str, int]]) -> Cell:
    wrong, judged = _judged(counts)
    text = "" if not wrong else f"{wrong}" if wrong <= _MOST_IN_A_CELL else "1k+"
    how = look(counts[0][0]) if counts else "nothing"
    if how in ("running", "paused") and judged:
        how = "well"
    of = f", {rate(counts)} well" if wrong else ""
    return Cell(x, y, _shade(how, counts), text, f"{day}: {counts_said(counts)}{of}")
