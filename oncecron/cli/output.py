"""Output as table, JSON, NDJSON or CSV, written row by row: a million rows need no memory.

Each command declares the `Kind` of what it shows. On a terminal the last column of a table is cut to the width, and
the outcome is coloured. In a pipe nothing is cut or coloured. The machine formats have every field under its published
name, null for an absent value, times to the millisecond and seconds to the microsecond.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from oncecron.core.errors import OutputError
from oncecron.core.light_modules import signal_name
from oncecron.core.text import ABSENT, Clock, cut, display_width, part_of, visible
from oncecron.core.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

_MEASURED_ROWS = 200  # rows whose texts decide how wide the columns of a table are
_GAP = "  "
# OWASP, "CSV Injection".
_BEFORE_A_FORMULA = (*"=+-@\n", *map(chr, (0xFF1D, 0xFF0B, 0xFF0D, 0xFF20)))
_COLOURS = {
    "running": "36",
    **dict.fromkeys(("succeeded", "ok"), "32"),
    **dict.fromkeys(("failed", "timed-out", "lost", "missed", "silent"), "31"),
    **dict.fromkeys(("stopped", "not-started", "unclaimed", "overdue", "overrun", "paused"), "33"),
}
_WELL = ("running", "paused", "ok", ABSENT)


class Column(NamedTuple):
    """A column of a table: its title, and the text of a record in it."""

    title: str
    text: Callable[[Any, Clock], str]
    right: bool = False
    is_state: bool = False
    """Whether a person sees its text marked where it does not begin with a word of `_WELL`."""
    is_optional: bool = False
    """Whether it is left out if none of the first rows has anything in it."""


class Kind(NamedTuple):
    """The published fields of a kind of record, and the columns of its table."""

    fields: tuple[str, ...]
    times: Collection[str] = ()
    columns: tuple[Column, ...] = ()
    """The last one may be cut, and may contain blanks."""


def field(name: str, title: str = "", *, right: bool = False) -> Column:
    """Return the column that shows a field as it is, below its name or another title."""

    def text(record: Any, _clock: Clock) -> str:
        value = getattr(record, name)
        return ABSENT if value in (None, "") else str(value)

    return Column(title or name.upper(), text, right)


def fields(*names: str) -> Iterator[Column]:
    """Yield a column for each of some fields, below its name."""
    return map(field, names)


def number(name: str, title: str = "") -> Column:
    """Return the column of a number."""
    return field(name, title, right=True)


def time(name: str, title: str = "") -> Column:
    """Return the column of a time."""
    return Column(title or name.upper(), lambda record, clock: clock.seconds(getattr(record, name)))


def duration(name: str, title: str = "") -> Column:
    """Return the column of a number of seconds."""

    def text(record: Any, _clock: Clock) -> str:
        value = getattr(record, name)
        return ABSENT if value is None else format_duration(value)

    return Column(title or name.upper(), text, right=True)


def _exit_text(record: Any, _clock: Clock) -> str:
    if record.signal is None:
        return ABSENT if record.exit_code is None else str(record.exit_code)
    return signal_name(record.signal) or f"SIG{record.signal}"


def _items_text(record: Any, _clock: Clock) -> str:
    total = record.items_total
    return ABSENT if total is None else f"{record.items_ended:,}/{total:,}"


EXIT = Column("EXIT", _exit_text, right=True)
SHARD = Column("SHARD", lambda record, _clock: part_of(record.shard, record.shards))
ITEMS = Column("ITEMS", _items_text, right=True, is_optional=True)


class Style(NamedTuple):
    """How output is written."""

    format: str
    clock: Clock
    colour: bool = False
    width: int | None = None
    """Columns of the terminal; None: cut nothing."""


def style_for(stream: TextIO, format_: str, *, utc: bool) -> Style:
    """Return how to write to a stream. NO_COLOR wins over FORCE_COLOR, and both over the terminal."""
    terminal = stream.isatty()
    colour = terminal and os.environ.get("TERM") != "dumb"
    if os.environ.get("FORCE_COLOR"):
        colour = True
    if os.environ.get("NO_COLOR"):
        colour = False
    return Style(format_, Clock(utc), colour, _terminal_width(stream) if terminal else None)


def _terminal_width(stream: TextIO) -> int | None:
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def standard_output() -> TextIO:
    """Return standard output, made to take any text in any locale. Raises `OutputError`."""
    stream: Any = sys.stdout
    if stream is None:
        raise OutputError("standard output is closed")
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream  # type: ignore[no-any-return]


def to_microseconds(value: Any) -> Any:
    """Return seconds to the microsecond, any other value as it is."""
    return round(value, 6) if isinstance(value, float) else value


class Writer:
    """Writes records of one kind to a stream, in one style; the columns of a table keep their widths."""

    def __init__(self, kind: Kind, style: Style, stream: TextIO) -> None:
        self._kind = kind
        self._style = style
        self._stream = stream
        self.is_watched = stream.isatty()
        """Whether a person reads it now."""
        self._widths: list[int] = []
        self._columns: list[int] = []
        """Which columns of the table are shown."""
        self._headed = False

    def write(self, records: Iterable[Any]) -> int:
        """Write records, after a heading the first time; return how many. Raises `BrokenPipeError`."""
        write = {"table": self._rows, "json": self._array, "ndjson": self._lines, "csv": self._csv}[
            self._style.format
        ]
        return self._write_lines(write(records))

    def write_in_full(self, record: Any) -> None:
        """Write one record: one field per line, then the output of the command."""
        if self._style.format == "table":
            self._write_lines(self._fields(record))
        else:
            self.write([record])

    def _write_lines(self, lines: Iterable[tuple[int, str]]) -> int:
        count = 0
        for records, text in lines:
            with _explain_errors():
                self._stream.write(text)
            count += records
        with _explain_errors():
            self._stream.flush()
        return count

    # Machine formats: (how many records, text)

    def _public_fields(self, record: Any) -> dict[str, Any]:
        values = {name: getattr(record, name) for name in self._kind.fields}
        for name in self._kind.times:
            values[name] = self._style.clock.exactly(values[name])
        return {name: to_microseconds(value) for name, value in values.items()}

    def _array(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        before = "[\n"
        for record in records:
            yield 1, before + json_text(self._public_fields(record))
            before = ",\n"
        yield 0, "[]\n" if before == "[\n" else "\n]\n"

    def _lines(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        for record in records:
            yield 1, json_text(self._public_fields(record)) + "\n"

    def _csv(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        line = _TextLine()
        writer = csv.writer(line)
        if not self._headed:
            self._headed = True
            writer.writerow(self._kind.fields)
            yield 0, line.text
        for record in records:
            writer.writerow(map(self._csv_field, self._public_fields(record).values()))
            yield 1, line.text

    def _csv_field(self, value: Any) -> Any:
        """Return a value for a spreadsheet or a terminal: no text is a formula, or has control characters."""
        if not isinstance(value, str):
            return value
        text = visible_lines(value)
        return f"'{text}" if text.startswith(_BEFORE_A_FORMULA) else text

    # Tables

    def _rows(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        columns = self._kind.columns
        clock = self._style.clock
        rows = (
            [self._mark(column, visible(column.text(record, clock))) for column in columns]
            for record in records
        )
        if not self._headed:
            self._headed = True
            first = list(itertools.islice(rows, _MEASURED_ROWS))
            titles = [column.title for column in columns]
            self._columns = [
                number
                for number, column in enumerate(columns)
                if not column.is_optional or any(row[number] != ABSENT for row in first)
            ]
            self._widths = [max(map(display_width, texts)) for texts in zip(titles, *first)]  # noqa: B905
            yield 0, self._row(titles)
            rows = itertools.chain(first, rows)  # type: ignore[assignment]
        for row in rows:
            yield 1, self._row(row)

    def _mark(self, column: Column, text: str) -> str:
        """Return the text of a state with a mark that needs no colour, where a person reads it."""
        if not column.is_state or not (self.is_watched or self._style.colour):
            return text
        return f"{' ' if _first_word(text) in _WELL else '!'} {text}"

    def _row(self, texts: list[str]) -> str:
        shown = []
        columns = [self._kind.columns[number] for number in self._columns]
        for number, column in zip(self._columns, columns, strict=True):
            text = texts[number]
            blanks = " " * (self._widths[number] - display_width(text))
            shown.append(blanks + text if column.right else text + blanks)
        if self._style.width is not None:
            used = sum(display_width(text) + len(_GAP) for text in shown[:-1])
            shown[-1] = cut(
                shown[-1].rstrip(),
                max(self._style.width - used, 10),
                "…" if (self._stream.encoding or "").lower().startswith("utf") else ">",
            )
        for place, (number, column) in enumerate(zip(self._columns, columns, strict=True)):
            if column.is_state or column.title == "OUTCOME":
                shown[place] = self._with_colour(shown[place], texts[number])
        return _GAP.join(shown).rstrip() + "\n"

    def _with_colour(self, shown: str, text: str) -> str:
        colour = _COLOURS.get(_first_word(text))
        if not self._style.colour or colour is None:
            return shown
        return shown.replace(text, f"\x1b[{colour}m{text}\x1b[0m", 1)

    def _fields(self, record: Any) -> Iterator[tuple[int, str]]:
        values = self._public_fields(record)
        output, bytes_cut = values.pop("output", None), values.pop("output_cut", None)
        widest = max(map(len, values))
        for name, value in values.items():
            text = ABSENT if value is None else visible(str(value))
            if name == "duration" and value is not None:
                text = format_duration(value)
            if name == "outcome":
                text = self._with_colour(text, text)
            yield 0, f"{name:{widest}}{_GAP}{text}\n"
        if output is not None:
            yield 0, f"{'output':{widest}}{_GAP}{_how_much(output, bytes_cut)}\n"
            for line in output.removesuffix("\n").split("\n") if output else ():
                yield 0, f"{_GAP}{_GAP}{visible(line.expandtabs())}".rstrip() + "\n"


def _first_word(text: str) -> str:
    """Return the word by which a text is coloured: `failed` of `! failed, missed 2`."""
    return text.lstrip("! ").partition(",")[0].partition(" ")[0]


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, which has neither NaN nor Infinity: a row with one is unreadable.

    `json` escapes everything that a terminal executes, but DEL.
    """
    return json.dumps(value, indent=indent, allow_nan=False).replace("\x7f", "\\u007f")


def _how_much(output: str, bytes_cut: int) -> str:
    if bytes_cut:
        return f"the end only; {bytes_cut} bytes before it were not recorded"
    return "complete" if output else "empty"


class _TextLine:
    """The file that the csv module writes to: holds the last line, ended by a newline alone.

    With that as its own line end the module would leave a carriage return in a field unquoted.
    """

    text = ""

    def write(self, text: str) -> None:
        self.text = text.removesuffix("\r\n") + "\n"


def visible_lines(text: str) -> str:
    """Return a text of several lines with its other control characters escaped."""
    return "\n".join(map(visible, text.split("\n")))


def say(text: str, stream: TextIO) -> None:
    """Write a text for people, without control characters. Raises `BrokenPipeError`, `OutputError`."""
    write_text(visible_lines(text), stream)


def write_text(text: str, stream: TextIO) -> None:
    """Write a text for a program as it is: JSON, SQL, a script. Raises `BrokenPipeError`, `OutputError`."""
    with _explain_errors():
        stream.write(text.rstrip("\n") + "\n")
        stream.flush()


def give(data: bytes) -> None:
    """Write bytes to standard output. Raises `BrokenPipeError`, `OutputError`."""
    stream = standard_output()
    with _explain_errors():
        stream.buffer.write(data)
        stream.buffer.flush()


@contextlib.contextmanager
def _explain_errors() -> Iterator[None]:
    """Turn an error of writing into `OutputError`, except a broken pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error
