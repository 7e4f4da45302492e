"""Output as table, JSON, NDJSON or CSV, written row by row: a million rows need no memory.

In a pipe nothing is cut or coloured. The machine formats have every field under its published name, null for an absent
value, times to the millisecond and seconds to the microsecond.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

from oncecron.cli.table import Table
from oncecron.cli.terminal import size_of
from oncecron.core.columns import display_width, fold
from oncecron.core.errors import OutputError
from oncecron.core.text import ABSENT, visible
from oncecron.core.units import format_duration
from oncecron.host.local_time import zone_name
from oncecron.log.state_kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncecron.cli.table import Kind
    from oncecron.cli.terminal import Style

_AROUND = 3
"""Lines around a table: its heading, the zone, and what it counts."""
# OWASP, "CSV Injection".
_BEFORE_A_FORMULA = (*"=+-@\n", *map(chr, (0xFF1D, 0xFF0B, 0xFF0D, 0xFF20)))


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
        self._table = Table(kind, style)
        self._headed = False
        self.is_endless = False
        """Whether rows follow as long as a person looks on."""

    def write(self, records: Iterable[Any]) -> int:
        """Write records, after a heading the first time; return how many. Raises `BrokenPipeError`."""
        write = {"table": self._rows, "json": self._array, "ndjson": self._lines, "csv": self._csv}[
            self._style.format
        ]
        return self._write_lines(write(records))

    def is_too_long(self, rows: int) -> bool:
        """Return whether a table of so many rows is higher than the terminal, with what is around it."""
        return self._style.is_too_long(rows + _AROUND)

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
        if isinstance(value, tuple):
            value = ",".join(value)
        if not isinstance(value, str):
            return value
        text = visible_lines(value)
        return f"'{text}" if text.startswith(_BEFORE_A_FORMULA) else text

    # Tables

    def _rows(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        count = 0
        for shown, text in self._table.lines(records):
            if self.is_endless and not self._headed:
                yield from self._zone()
            self._headed = True
            yield shown, text
            count += shown
        if count and not self.is_endless:
            yield from self._zone()

    def _zone(self) -> Iterator[tuple[int, str]]:
        if self._style.clock.now is not None and self._table.has_times:
            yield 0, self._style.dim(f"times in {zone_name(self._style.clock)}") + "\n"

    def _fields(self, record: Any) -> Iterator[tuple[int, str]]:
        values = self._public_fields(record)
        output, bytes_cut = values.pop("output", None), values.pop("output_cut", None)
        widest = max(map(len, values))
        for name, value in values.items():
            text = ABSENT if value is None else visible(str(value))
            if name == "duration" and value is not None:
                text = format_duration(value)
            if name == "outcome":
                text = self._style.paint(text, kind_of(text))
            yield 0, f"{name:{widest}}  {text}\n"
        if output is not None:
            yield 0, f"{'output':{widest}}  {_how_much(output, bytes_cut)}\n"
            for line in output.removesuffix("\n").split("\n") if output else ():
                yield 0, f"    {visible(line.expandtabs())}".rstrip() + "\n"


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


def say(text: str, stream: TextIO, paint: Callable[[str], str] = str) -> None:
    """Write a text for people, without control characters; its lines fit a terminal, and are painted then.

    Raises `BrokenPipeError`, `OutputError`.
    """
    width = size_of(stream)[0]
    lines = visible_lines(text).split("\n")
    shown = lines if width is None else folded_lines(lines, width)
    write_text("\n".join(map(paint, shown)), stream)


def folded_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines that are no longer than a terminal is wide, what is folded further indented than its line."""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        parts = (
            fold(line.lstrip(), width - indent, 2)
            if display_width(line) > width
            else [line.lstrip()]
        )
        yield from (" " * indent + part for part in parts)


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
