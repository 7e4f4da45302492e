"""Tables: each command declares the columns of what it shows, and one function lays them out.

In a pipe a table has all columns of its kind, each as wide as its widest text. At a terminal it fits: a column without
any text is left out; columns are narrowed to the least that they need, then the least important ones are dropped, and
what is left of the line goes first to those that lack the least.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.core.columns import cut, display_width, fold
from oncecron.core.light_modules import signal_name
from oncecron.core.text import ABSENT, Clock, part_of, visible
from oncecron.core.units import format_duration
from oncecron.log.state_kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from oncecron.cli.terminal import Style
    from oncecron.log.state_kinds import StateKind

_MEASURED_ROWS = 200  # rows whose texts decide how wide the columns of a table are
_GAP = "  "
NARROWEST = 60
"""Columns of the narrowest terminal on which every table fits."""


class Column(NamedTuple):
    """A column of a table: its title, the text of a record in it, and how important it is."""

    title: str
    text: Callable[[Any, Clock], str]
    rank: int = 9
    """0: it is always shown. Else the column with the highest rank is dropped first."""
    least: int | None = None
    """How narrow it may become; None: as wide as its widest text."""
    right: bool = False
    keeps_end: bool = False
    """Whether the middle of a text is cut, as of a name, and not the end."""
    folds: bool = False
    """Whether a text that is too wide goes on below, instead of being cut."""
    kind: Callable[[str], StateKind] | None = None
    """The kind of a state by the first word of its text, of which a person sees a mark and a colour."""
    is_time: bool = False
    is_optional: bool = False
    """Whether it is left out of a pipe too, if none of the first rows has anything in it."""


class Kind(NamedTuple):
    """The published fields of a kind of record, and the columns of its table."""

    fields: tuple[str, ...]
    times: Collection[str] = ()
    columns: tuple[Column, ...] = ()
    screen: tuple[Column, ...] = ()
    """The columns at a terminal, where they are others."""


def field(
    name: str, title: str = "", rank: int = 9, least: int | None = None, **more: Any
) -> Column:
    """Return the column that shows a field as it is, below its name or another title."""

    def text(record: Any, _clock: Clock) -> str:
        value = getattr(record, name)
        return ABSENT if value in (None, "") else str(value)

    return Column(title or name.upper(), text, rank, least, **more)


def key(least: int = 16) -> Column:
    """Return the column of the key, which is always shown."""
    return field("key", "KEY", 0, least, keeps_end=True)


def state(name: str, title: str = "", *, kind: Callable[[str], StateKind] = kind_of) -> Column:
    """Return the column of a state, which is always shown."""
    return field(name, title, 0, kind=kind)


def number(name: str, title: str = "", rank: int = 9, **more: Any) -> Column:
    """Return the column of a number."""
    return field(name, title, rank, right=True, **more)


def tick(rank: int = 9, name: str = "tick", title: str = "") -> Column:
    """Return the column of a tick, whose name may be long."""

    def text(record: Any, clock: Clock) -> str:
        return clock.tick(getattr(record, name))

    return Column(title or name.upper(), text, rank, least=12, keeps_end=True, is_time=True)


def time(name: str, title: str = "", rank: int = 9) -> Column:
    """Return the column of a time near to now."""
    return Column(
        title or name.upper(),
        lambda record, clock: clock.near(getattr(record, name)),
        rank,
        is_time=True,
    )


def logged(name: str, title: str = "", rank: int = 9) -> Column:
    """Return the column of a time that is compared with those of other lines."""
    return Column(
        title or name.upper(),
        lambda record, clock: clock.logged(getattr(record, name)),
        rank,
        is_time=True,
    )


def duration(name: str, title: str = "", rank: int = 9) -> Column:
    """Return the column of a number of seconds."""

    def text(record: Any, _clock: Clock) -> str:
        value = getattr(record, name)
        return ABSENT if value is None else format_duration(value)

    return Column(title or name.upper(), text, rank, right=True)


def _exit_text(record: Any, _clock: Clock) -> str:
    if record.signal is None:
        return ABSENT if record.exit_code is None else str(record.exit_code)
    return signal_name(record.signal) or f"SIG{record.signal}"


def _progress_text(record: Any, _clock: Clock) -> str:
    return record.progress or ABSENT


def _shard_text(record: Any, _clock: Clock) -> str:
    return part_of(record.shard, record.shards)


def exit_status(rank: int) -> Column:
    """Return the column of an exit status, or of the signal that ended a command."""
    return Column("EXIT", _exit_text, rank, right=True)


def shard(rank: int) -> Column:
    """Return the column of a part of a key."""
    return Column("SHARD", _shard_text, rank)


def progress(rank: int) -> Column:
    """Return the column of how far divided work is."""
    return Column("PROGRESS", _progress_text, rank, right=True, is_optional=True)


def layout(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    """Return the numbers of the columns that are shown in so much room, each with its width.

    `widths`: those of the widest texts, with their titles; 0: there is no text in it.
    """
    least = [
        width if column.least is None else min(width, column.least)
        for column, width in zip(columns, widths, strict=True)
    ]
    shown = [number for number, width in enumerate(widths) if width]

    def spare() -> int:
        return room - sum(least[number] for number in shown) - len(_GAP) * (len(shown) - 1)

    by_rank = sorted(shown, key=lambda number: columns[number].rank)
    while spare() < 0 and by_rank and columns[by_rank[-1]].rank:
        shown.remove(by_rank.pop())
    for number in sorted(shown, key=lambda number: widths[number] - least[number]):
        least[number] += max(0, min(widths[number] - least[number], spare()))
    return {number: least[number] for number in shown}


class Cell(NamedTuple):
    """What a table shows of one record in one column."""

    text: str
    kind: StateKind = "nothing"


class Table:
    """Makes the lines of a table. The first rows decide which columns there are, and how wide."""

    def __init__(self, kind: Kind, style: Style) -> None:
        """At a terminal whose width is known to the style, the table fits."""
        self._style = style
        self._room = style.width
        self._columns = kind.columns if self._room is None else kind.screen or kind.columns
        self._widths: dict[int, int] | None = None
        """Of the columns that are shown, by number."""

    def lines(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        """Yield how many records a text shows, and the text: at first the heading, and then each record."""
        rows = ([self._cell(column, record) for column in self._columns] for record in records)
        if self._widths is None:
            first = list(itertools.islice(rows, _MEASURED_ROWS))
            self._widths = self._layout(first)
            yield 0, self._row([Cell(column.title) for column in self._columns])
            rows = itertools.chain(first, rows)  # type: ignore[assignment]
        for row in rows:
            yield 1, self._row(row)

    @property
    def has_times(self) -> bool:
        """Whether a column with times is shown."""
        return any(self._columns[number].is_time for number in self._widths or ())

    def _cell(self, column: Column, record: Any) -> Cell:
        text = self._style.encodable(visible(column.text(record, self._style.clock)))
        if column.kind is None:
            return Cell(text)
        kind = column.kind(text.partition(",")[0].partition(" ")[0])
        return Cell(f"{self._style.mark(kind)} {text}" if self._style.has_marks else text, kind)

    def _layout(self, rows: Sequence[Sequence[Cell]]) -> dict[int, int]:
        widths = []
        for number, column in enumerate(self._columns):
            texts = [row[number].text for row in rows]
            is_empty = all(text.strip() == ABSENT for text in texts)
            if is_empty and (column.is_optional or (rows and self._room is not None)):
                widths.append(0)
            else:
                widths.append(max(map(display_width, (column.title, *texts))))
        if self._room is not None:
            return layout(self._columns, widths, self._room)
        return {number: width for number, width in enumerate(widths) if width}

    def _row(self, row: Sequence[Cell]) -> str:
        widths = self._widths or {}
        if self._room is None:
            return self._whole_line(row, widths) + "\n"
        shown = [self._parts(number, row[number].text, width) for number, width in widths.items()]
        kinds = [row[number].kind for number in widths]
        lines = itertools.zip_longest(*shown, fillvalue="")
        return "".join(self._line(parts, kinds, self._room) + "\n" for parts in lines)

    def _whole_line(self, row: Sequence[Cell], widths: dict[int, int]) -> str:
        """Return one line with whole texts, however many it may be of: a log may have a million."""
        shown = []
        for number, width in widths.items():
            text, kind = row[number]
            blanks = " " * (width - display_width(text))
            painted = self._style.paint(text, kind)
            shown.append(blanks + painted if self._columns[number].right else painted + blanks)
        return _GAP.join(shown).rstrip()

    def _parts(self, number: int, text: str, width: int) -> list[str]:
        column = self._columns[number]
        if display_width(text) <= width or (column.least is None and not column.folds):
            return [text]
        if not column.folds:
            return [cut(text, width, self._style.ellipsis, keeps_end=column.keeps_end)]
        parts = fold(text, width)
        return parts if display_width(parts[0]) <= width else ["", *parts]

    def _line(self, parts: Sequence[str], kinds: Sequence[StateKind], room: int) -> str:
        line, used, start = "", 0, 0
        for text, kind, (number, width) in zip(
            parts, kinds, (self._widths or {}).items(), strict=True
        ):
            if text:
                column = self._columns[number]
                begin = start + _indent(column, width - display_width(text), start)
                begin = max(begin, used + (len(_GAP) if used else 0))
                shown = text if column.folds else cut(text, room - begin, self._style.ellipsis)
                line += " " * (begin - used) + self._style.paint(shown, kind)
                used = begin + display_width(shown)
            start += width + len(_GAP)
        return line.rstrip()


def _indent(column: Column, blanks: int, start: int) -> int:
    if column.right:
        return max(0, blanks)
    return -min(start, -blanks) if column.folds and blanks < 0 else 0
