"""Answers as table, JSON, NDJSON or CSV, written as they come: a million rows need no memory.

A table on a terminal is aligned, its last column cut to the width, the outcome coloured; piped, nothing is
cut or coloured, no column but the last holds a blank unless its text does, and columns keep their
places. The machine formats carry every field under its published name, null for what is absent.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import sys
import unicodedata
from datetime import UTC, datetime
from signal import Signals
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from oncecron.duration import format_duration
from oncecron.errors import OutputError
from oncecron.model import Execution, LeaseView, Pause, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MEASURED_ROWS = 200  # rows whose texts decide how wide the columns of a table are
_GAP = "  "
_ABSENT = "-"
_COLOURS = {
    "running": "36",
    "succeeded": "32",
    **dict.fromkeys(("failed", "timed-out", "lost"), "31"),
    **dict.fromkeys(("stopped", "not-started", "unclaimed"), "33"),
}


class Column(NamedTuple):
    """A column of a table: its title, and the text of a record in it."""

    title: str
    text: Callable[[Any, Clock], str]
    right: bool = False


class Kind(NamedTuple):
    """What is published of a kind of record, and how its table looks."""

    fields: tuple[str, ...]
    times: frozenset[str]
    columns: tuple[Column, ...]
    """The last one may be cut, and holds blanks."""


class Clock(NamedTuple):
    """How times are shown: in UTC, or in the zone of this host."""

    utc: bool

    def seconds(self, time: float | None) -> str:
        """Return RFC 3339 to the second, or the sign for absent."""
        return _ABSENT if time is None else self._text(time, "seconds")

    def exactly(self, time: float | None) -> str | None:
        """Return RFC 3339 to the millisecond, or None."""
        return None if time is None else self._text(time, "milliseconds")

    def _text(self, time: float, precision: str) -> str:
        if self.utc:
            text = datetime.fromtimestamp(time, UTC).isoformat(timespec=precision)
            return text.removesuffix("+00:00") + "Z"
        return datetime.fromtimestamp(time).astimezone().isoformat(timespec=precision)


class Style(NamedTuple):
    """How an answer is written."""

    format: str
    clock: Clock
    colour: bool = False
    width: int | None = None
    """Columns of the terminal; None where nothing is cut."""


def style_for(stream: TextIO, format_: str, *, utc: bool) -> Style:
    """Return how to write to a stream: NO_COLOR and FORCE_COLOR are heeded, in this order."""
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


class Writer:
    """Writes records of one kind to a stream, in one style; a table's columns keep their widths."""

    def __init__(self, kind: Kind, style: Style, stream: TextIO) -> None:
        self._kind = kind
        self._style = style
        self._stream = stream
        self._widths: list[int] = []
        self._headed = False

    def write(self, records: Iterable[Any]) -> int:
        """Write records, after a heading the first time; return how many. Raises `BrokenPipeError`."""
        write = {
            "table": self._rows,
            "json": self._array,
            "ndjson": self._lines,
            "csv": self._csv,
        }[self._style.format]
        return self._written(write(records))

    def write_in_full(self, record: Any) -> None:
        """Write one record: a field a line instead of a table."""
        if self._style.format == "table":
            self._written(self._fields(record))
        else:
            self.write([record])

    def _written(self, lines: Iterable[tuple[int, str]]) -> int:
        count = 0
        for records, text in lines:
            with _told():
                self._stream.write(text)
            count += records
        with _told():
            self._stream.flush()
        return count

    # Machine formats: (how many records, text)

    def _published(self, record: Any) -> dict[str, Any]:
        values = {name: getattr(record, name) for name in self._kind.fields}
        for name in self._kind.times:
            values[name] = self._style.clock.exactly(values[name])
        return values

    def _array(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        before = "[\n"
        for record in records:
            yield 1, before + json.dumps(self._published(record))
            before = ",\n"
        yield 0, "[]\n" if before == "[\n" else "\n]\n"

    def _lines(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        for record in records:
            yield 1, json.dumps(self._published(record)) + "\n"

    def _csv(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        line = _Line()
        writer = csv.writer(line)
        if not self._headed:
            self._headed = True
            writer.writerow(self._kind.fields)
            yield 0, line.text
        for record in records:
            writer.writerow(self._published(record).values())
            yield 1, line.text

    # Tables

    def _rows(self, records: Iterable[Any]) -> Iterator[tuple[int, str]]:
        columns = self._kind.columns
        clock = self._style.clock
        rows = ([column.text(record, clock) for column in columns] for record in records)
        if not self._headed:
            self._headed = True
            first = list(itertools.islice(rows, _MEASURED_ROWS))
            titles = [column.title for column in columns]
            self._widths = [max(map(display_width, texts)) for texts in zip(titles, *first)]  # noqa: B905
            yield 0, self._row(titles)
            rows = itertools.chain(first, rows)  # type: ignore[assignment]
        for row in rows:
            yield 1, self._row(row)

    def _row(self, texts: list[str]) -> str:
        shown = []
        for text, width, column in zip(texts, self._widths, self._kind.columns, strict=True):
            blanks = " " * (width - display_width(text))
            shown.append(blanks + text if column.right else text + blanks)
        if self._style.width is not None:
            used = sum(display_width(text) + len(_GAP) for text in shown[:-1])
            shown[-1] = cut(shown[-1].rstrip(), self._style.width - used, self._stream.encoding)
        for number, column in enumerate(self._kind.columns):
            if column.title == "OUTCOME":
                shown[number] = self._coloured(shown[number], texts[number])
        return _GAP.join(shown).rstrip() + "\n"

    def _coloured(self, shown: str, outcome: str) -> str:
        colour = _COLOURS.get(outcome)
        if not self._style.colour or colour is None:
            return shown
        return shown.replace(outcome, f"\x1b[{colour}m{outcome}\x1b[0m", 1)

    def _fields(self, record: Any) -> Iterator[tuple[int, str]]:
        values = self._published(record)
        widest = max(map(len, values))
        for name, value in values.items():
            text = _ABSENT if value is None else visible(str(value))
            if name == "duration" and value is not None:
                text = format_duration(value)
            if name == "outcome":
                text = self._coloured(text, text)
            yield 0, f"{name:{widest}}{_GAP}{text}\n"


class _Line:
    """The file that the csv module writes to: holds the last line, ended as others end theirs.

    Told to end lines so itself, the module would leave a carriage return within a field unquoted.
    """

    text = ""

    def write(self, text: str) -> None:
        self.text = text.removesuffix("\r\n") + "\n"


def say(text: str, stream: TextIO) -> None:
    """Write a sentence, or a script, as it is. Raises `BrokenPipeError`, `OutputError`."""
    with _told():
        stream.write(text.rstrip("\n") + "\n")
        stream.flush()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say what is wrong with the output, unless its reader has gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error


# Texts


def visible(text: str) -> str:
    """Return a text without anything that a terminal could obey: control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int, encoding: str | None) -> str:
    """Return a text of at most `width` columns, or of ten where that is no place at all."""
    width = max(width, 10)
    if display_width(text) <= width:
        return text
    mark = "…" if (encoding or "").lower().startswith("utf") else ">"
    kept = ""
    for letter in text:
        width -= _letter_width(letter)
        if width < 1:
            break
        kept += letter
    return kept + mark


def _plain(name: str) -> Callable[[Any, Clock], str]:
    def text(record: Any, _clock: Clock) -> str:
        value = getattr(record, name)
        return _ABSENT if value in (None, "") else visible(str(value))

    return text


def _time(name: str) -> Callable[[Any, Clock], str]:
    return lambda record, clock: clock.seconds(getattr(record, name))


def _exit(record: Execution, _clock: Clock) -> str:
    if record.signal is None:
        return _ABSENT if record.exit_code is None else str(record.exit_code)
    try:
        return Signals(record.signal).name
    except ValueError:
        return f"SIG{record.signal}"


def _duration(record: Execution, _clock: Clock) -> str:
    return _ABSENT if record.duration is None else format_duration(record.duration)


def _holder(record: Skip, _clock: Clock) -> str:
    if record.holder_host is None:
        return _ABSENT
    return visible(f"{record.holder_host}/{record.holder_pid}")


def _since_heartbeat(record: LeaseView, _clock: Clock) -> str:
    return _difference(record.asked_at, record.heartbeat_at)


def _time_left(record: LeaseView, _clock: Clock) -> str:
    return _difference(record.expires_at, record.asked_at)


def _difference(later: float | None, earlier: float | None) -> str:
    if later is None or earlier is None:
        return _ABSENT
    return format_duration(round(later - earlier, 1))


EXECUTIONS = Kind(
    Execution._fields,
    frozenset({"started_at", "finished_at"}),
    (
        Column("ID", _plain("execution_id"), right=True),
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("OUTCOME", _plain("outcome")),
        Column("EXIT", _exit, right=True),
        Column("STARTED", _time("started_at")),
        Column("DURATION", _duration, right=True),
        Column("HOST", _plain("host")),
        Column("ATTEMPT", _plain("attempt"), right=True),
        Column("COMMAND", _plain("command")),
    ),
)
SKIPS = Kind(
    Skip._fields,
    frozenset({"at"}),
    (
        Column("AT", _time("at")),
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("REASON", _plain("reason")),
        Column("HOST", _plain("host")),
        Column("HOLDER", _holder),
        Column("COUNT", _plain("count"), right=True),
        Column("DETAIL", _plain("detail")),
    ),
)
LEASES = Kind(
    tuple(name for name in LeaseView._fields if name != "asked_at"),
    frozenset({"acquired_at", "heartbeat_at", "expires_at"}),
    (
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("STATE", _plain("state")),
        Column("HOST", _plain("host")),
        Column("PID", _plain("pid"), right=True),
        Column("USER", _plain("user")),
        Column("SINCE", _time("acquired_at")),
        Column("HEARTBEAT", _since_heartbeat, right=True),
        Column("LEFT", _time_left, right=True),
        Column("TOKEN", _plain("fencing_token"), right=True),
        Column("BACKEND", _plain("backend_pid"), right=True),
        Column("CLIENT", _plain("client_address")),
    ),
)
PAUSES = Kind(
    Pause._fields,
    frozenset({"since", "until"}),
    (
        *(Column(name.upper(), _plain(name)) for name in ("key", "host")),
        *(Column(name.upper(), _time(name)) for name in ("since", "until")),
        *(Column(name.upper(), _plain(name)) for name in ("author", "reason")),
    ),
)
