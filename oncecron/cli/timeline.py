"""`oncecron timeline`: keys by time, or the hosts of one key by time; one mark a tick, or the worst of a few."""

from __future__ import annotations

import datetime as dt
import itertools
import statistics
from typing import TYPE_CHECKING, NamedTuple

from oncecron.cli import output
from oncecron.cli.command import (
    ALL,
    FORMAT,
    JSON,
    SINCE,
    STORE_OPTIONS,
    UNTIL,
    UTC,
    TableCommand,
    incomplete,
    output_format,
    span_of,
    store_and_log,
)
from oncecron.cli.output import Writer
from oncecron.cli.sentences import refuse_unknown_keys, valid_key
from oncecron.cli.table import NARROWEST, Kind
from oncecron.cli.terminal import style_for
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.columns import cut, display_width
from oncecron.core.text import short_time, visible
from oncecron.core.tick import minute_tick
from oncecron.core.units import DAY, HOUR, LONGEST_DURATION, MINUTE
from oncecron.host.local_time import zone_name
from oncecron.host.stderr import complain
from oncecron.log.grid import GRID_STEPS, Ticks, columns, gather
from oncecron.log.jobs import jobs, severity
from oncecron.log.sources import Sources, configured_keys
from oncecron.log.state_kinds import kind_of
from oncecron.log.timeline import Span, ticks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncecron.cli.terminal import Style
    from oncecron.log.grid import Line
    from oncecron.log.timeline import KeyTicks

PIPE_WIDTH = 100
"""Columns of the text where no terminal says how wide it is."""
_GAP = "  "
_AROUND = 3
"""Lines around those of the keys: what is shown, the times, and what the marks mean."""
_APART = 7
"""Columns from the beginning of one label to the next one at least."""
_DAYS_BY_NAME = 6
"""In more days, the name of one may mean two."""
_MARKS = {
    "succeeded": ("•", "."), "failed": ("✗", "F"), "timed-out": ("▼", "T"), "lost": ("◆", "L"),
    "no-end": ("◇", "E"), "missed": ("○", "o"), "incomplete": ("◐", "I"), "stopped": ("■", "S"),
    "orphaned": ("◈", "H"), "stale": ("◈", "H"),
    "overrun": ("▲", "V"), "overdue": ("△", "?"), "running": ("▸", ">"), "paused": ("–", "-"),
    "drained": ("–", "-"), "skipped": ("·", ","), "silent": ("□", "_"),
}  # fmt: skip
"""The mark of each outcome, in Unicode and in ASCII."""


class TickRow(NamedTuple):
    """What became of a tick, in the order of its published fields."""

    key: str
    host: str | None
    """Which ran it; of the hosts of one key, which it is about."""
    tick: str | None
    at: float
    """The instant of the tick, or when it was started."""
    outcome: str


TICKS = Kind(TickRow._fields, ("at",))
OPTIONS = (
    SINCE._replace(default="24h"), UNTIL,
    ALL, FORMAT, JSON, UTC, *STORE_OPTIONS,
)  # fmt: skip


def _show(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    keys = list(dict.fromkeys(map(valid_key, words)))
    stream = output.standard_output()
    style = style_for(stream, output_format(settings), utc=settings["utc"])
    now = clock.wall()
    span = _span(settings, now)
    with store_and_log(settings) as (store, log):
        sources = Sources(store, log, now, configured_keys(settings))
        if keys:
            refuse_unknown_keys(keys, {shard.key for shard in sources.job_keys}, log)
        internal, hosts = settings["all"], len(keys) == 1
        found = ticks_of(sources, span, keys, internal=internal, hosts=hosts)
        if style.format != "table":
            Writer(TICKS, style, stream).write(_rows(found, hosts=hosts))
        elif not found:
            complain("no host has fired a key yet")
        else:
            if style.terminal and not hosts:
                is_long = style.is_too_long(len(found) + _AROUND)
                found = _in_order(sources, keys, found, 1 if is_long else -1)
            lines = _lines_of(found, hosts=hosts)
            output.write_text("\n".join(Drawing(style, span, lines).text()), stream)
    return incomplete(store, log)


def _span(settings: Settings, now: float) -> Span:
    """Return the time that is wanted. Raises `UsageError`."""
    since, until = span_of(settings, now)
    oldest = now - LONGEST_DURATION  # no log is older
    return Span(max(since or oldest, oldest), until, settings.file.retention)


def _in_order(
    sources: Sources, keys: Sequence[str], found: Mapping[str, KeyTicks], sign: int
) -> dict[str, KeyTicks]:
    shown = (job for job in jobs(sources, keys, brief=True) if job.key in found)
    ordered = sorted(shown, key=lambda job: severity(job, sign))
    return {job.key: found[job.key] for job in ordered}


def _rows(found: Mapping[str, KeyTicks], *, hosts: bool) -> Iterator[TickRow]:
    for key, of_key in found.items():
        lines: list[tuple[str | None, Iterable[Ticks]]] = [*of_key.hosts.items()]
        lines.append((None, [each for each in of_key.ticks if not hosts or each.host is None]))
        rows = (
            TickRow(key, host or each.host, each.name or _instant(each, at), at, each.word)
            for host, ticks in lines
            for each in ticks
            for at in each.times
        )
        yield from sorted(rows, key=lambda row: (row.at, row.host or ""))


def _instant(ticks: Ticks, at: float) -> str | None:
    return minute_tick(at).text if ticks.has_tick else None


def _lines_of(found: Mapping[str, KeyTicks], *, hosts: bool) -> list[tuple[str, list[Ticks]]]:
    lines = [(key, of_key.ticks) for key, of_key in found.items()]
    for of_key in found.values() if hosts else ():
        lines += [(f"  {host}", ticks) for host, ticks in of_key.hosts.items()]
    return lines


class Drawing:
    """Lines of marks below an axis, as wide as the terminal."""

    def __init__(
        self, style: Style, span: Span, lines: Sequence[tuple[str, Sequence[Ticks]]]
    ) -> None:
        """`lines`: their names, with the ticks of each."""
        self._style = style
        self._span = span
        self._width = width = max(style.width or PIPE_WIDTH, NARROWEST)
        # The counts do not depend on the columns, but the columns on the room that the counts leave.
        whole = [gather(name, ticks, (span.since,), span.until) for name, ticks in lines]
        self._names = [self._name(line.name, width // 3) for line in whole]
        self._summaries = [_summary(line, width // 3) for line in whole]
        self._name_width = max(map(display_width, self._names))
        room = width - self._name_width - max(map(len, self._summaries)) - 2 * len(_GAP)
        self._starts = columns(span.since, span.until, room, utc=style.clock.utc)
        self._lines = [gather(name, ticks, self._starts, span.until) for name, ticks in lines]

    def _name(self, name: str, width: int) -> str:
        return cut(self._style.encodable(visible(name)), width, self._style.ellipsis)

    def text(self) -> Iterator[str]:
        """Yield the lines of the text."""
        yield self._title()
        yield self._line("", self._axis())
        for name, line, summary in zip(self._names, self._lines, self._summaries, strict=True):
            kind = kind_of(line.counts[0][0] if line.counts else None)
            marks = self._marks([mark.word if mark else None for mark in line.marks])
            yield self._line(name, marks, self._style.paint(summary, kind))
        yield from self._legend()

    def _legend(self) -> Iterator[str]:
        shown = {mark.word for line in self._lines for mark in line.marks if mark}
        room, parts = 0, list[str]()
        for word in (each for each in _MARKS if each in shown):
            needs = len(f"x {_said(word)}{_GAP}")
            if parts and needs > room:
                yield self._line("", *parts)
                parts = []
            room = (room if parts else self._width - self._name_width) - needs
            parts.append(f"{self._marks([word])} {_said(word)}")
        yield self._line("", *parts)

    def _line(self, name: str, *parts: str) -> str:
        room = " " * (self._name_width - display_width(name))
        return _GAP.join([f"{name}{room}", *parts]).rstrip()

    def _marks(self, words: Iterable[str | None]) -> str:
        place = 0 if self._style.unicode else 1
        return "".join(
            self._style.paint("".join(_MARKS[word][place] if word else " " for word in same), kind)
            for kind, same in itertools.groupby(words, key=kind_of)
        )

    def _title(self) -> str:
        shown, span, step = self._style.clock, self._span, self._step()
        since, until = shown.seconds(span.since), shown.seconds(span.until)
        if shown.now is not None:
            since = short_time(span.since, shown.now, shown)
            is_now = span.until >= shown.now - 1
            until = "now" if is_now else short_time(span.until, shown.now, shown)
        units = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s"))
        size, unit = next(each for each in units if step % each[0] == 0)
        title = f"{since} to {until} ({zone_name(shown)}); a column is {int(step / size)}{unit}"
        return cut(title, self._width, self._style.ellipsis)

    def _step(self) -> float:
        """Return how much time a column has: nearly each of them, where a clock changes."""
        ends = itertools.pairwise([*self._starts, self._span.until])
        return statistics.median_high(end - start for start, end in ends)

    def _axis(self) -> str:
        step = self._step()
        fitting = (
            each for each in GRID_STEPS if each >= _APART * step and not (DAY % each or each % step)
        )
        apart = next(fitting, DAY)
        text = ""
        for column, start in enumerate(self._starts):
            label = self._label(start, apart)
            if label and len(text) <= column <= len(self._starts) - len(label):
                text = f"{text:{column}}{label} "
        return text.rstrip()

    def _label(self, start: float, apart: int) -> str:
        there = dt.datetime.fromtimestamp(start, dt.UTC if self._style.clock.utc else None)
        second = there.hour * HOUR + there.minute * MINUTE
        if second:
            return "" if second % apart else f"{there:%H:%M}"
        if self._span.until - self._span.since > _DAYS_BY_NAME * DAY:
            return f"{there.day} {there:%b}"
        return f"{there:%a}"


def _summary(line: Line, width: int) -> str:
    parts = [f"{count} {_said(word)}" for word, count in line.counts]
    while len(parts) > 1 and len(", ".join(parts)) > width:
        parts.pop()
    return ", ".join(parts)


def _said(word: str) -> str:
    return {"succeeded": "ok"}.get(word, word)


COMMAND = TableCommand(
    "timeline", OPTIONS, _show,
    about="Show what became of every tick: one line per key, or only per named key, and one mark per tick. Of a single "
    "KEY, show one line per host too: who ran it, who skipped it, who did not fire. Where there are more ticks than "
    "columns, a mark shows the worst of several.",
    examples=("oncecron timeline", "oncecron timeline billing-nightly --since 7d"),
    words="[KEY...]",
)  # fmt: skip
