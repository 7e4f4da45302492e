"""Tells a run to a person: the timeline of one violation.

A lane is a host; the last one is the store, the network and all else that hosts share. The trees that a violation
names have letters, which stand in their lane for as long as something of them lives:

    +12.104 s    h1                    | h2                    | all
    +12.210 s    A| starts: attempt 1  |                       |
    +14.000 s    A|                    |                       | FAULT 3 cut: all packets dropped
    +19.812 s    A|                    | B| starts: attempt 1  |

Below stand the rows of the log for its key and tick.
"""

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from oncecron_drill.history import Fault, Firing, History, Operation, Start
from oncecron_drill.rules.joined import Joined, Row, alive_until, part_of_row, undone
from oncecron_drill.rules.verdict import Violation

WIDTH = 160
BEFORE = 4.0
"""Seconds that are shown before the first moment of a violation."""

AFTER = 2.0
"""Seconds that are shown after its last."""

MOST = 80
"""Events that are shown; beyond, those that concern the violation least are left out."""

SHARED = "store, network, run"

_TIME = 12
_LETTERS = "ABCDEFGH"


class Event(NamedTuple):
    """One thing that happened in one lane."""

    at: float
    lane: str
    text: str
    concerned: bool = False
    """Of the trees, firings or faults that the violation is about."""


def draw(history: History, violation: Violation) -> str:
    """Return the timeline of a violation."""
    picture = _Picture(history, violation)
    head = history.head
    run = f"run: seed {head.get('seed')}, store {head.get('store')}, ttl {head.get('ttl')} s"
    kind = "DOCUMENTED HOLE" if violation.hole else "VIOLATION"
    return "\n".join(
        [
            *textwrap.wrap(f"{kind} ({violation.rule}): {violation.sentence}", WIDTH),
            *textwrap.wrap(f"{run}; times since the run began", WIDTH),
            "",
            *picture.lines(),
            "",
            *_log(history, violation),
        ]
    )


class _Picture:
    def __init__(self, history: History, violation: Violation) -> None:
        self._joined = Joined(history)
        self._violation = violation
        self._starts = {
            start.file: letter for start, letter in zip(violation.starts, _LETTERS, strict=False)
        }
        of_starts = [self._joined.firing_of(start) for start in violation.starts]
        self._firings = {firing.id for firing in (*violation.firings, *of_starts) if firing}
        moments = violation.moments or [history.end]
        self._since, self._until = min(moments) - BEFORE, max(moments) + AFTER  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the table, a line each."""
        events, left_out = self._events()
        lanes = [
            lane
            for lane in sorted(self._joined.hosts)
            if any(event.lane == lane for event in events)
        ]
        lanes.append(SHARED)
        width = (WIDTH - _TIME) // len(lanes) - 3
        yield _row("", [lane.center(width) for lane in lanes], width)
        yield _row("", ["-" * width for _ in lanes], width)
        for event in events:
            marks = [self._alive(lane, event.at) for lane in lanes]
            cells = [
                textwrap.wrap(event.text, width - len(mark)) if lane == event.lane else []
                for lane, mark in zip(lanes, marks, strict=True)
            ]
            for number in range(max(map(len, cells))):
                texts = [
                    mark + (cell[number] if number < len(cell) else "")
                    for mark, cell in zip(marks, cells, strict=True)
                ]
                yield _row(self._clock(event.at) if number == 0 else "", texts, width)  # fmt: skip
        if left_out:
            yield f"({left_out} events of other firings of {self._violation.key} are left out)"

    def _clock(self, at: float) -> str:
        return f"+{at - self._joined.begin:.3f} s"

    def _alive(self, lane: str, at: float) -> str:
        return "".join(
            f"{self._starts[start.file]}| "
            for start in self._violation.starts
            if start.file in self._starts and start.host == lane and start.at <= at <= alive_until(start)
        )  # fmt: skip

    # Events

    def _events(self) -> tuple[list[Event], int]:
        history, key = self._joined.history, self._violation.key
        found = [
            *(event for firing in history.firings if firing.key == key for event in self._of_firing(firing)),
            *(event for start in history.starts if start.key == key for event in self._of_start(start)),
            *(event for fault in history.faults for event in self._of_fault(fault)),
            *(event for operation in history.operations for event in self._of_operation(operation)),
            Event(history.quiet, SHARED, "the last fault is undone"),
            Event(history.end, SHARED, "the run is over"),
        ]  # fmt: skip
        shown = [
            event for event in found if event.concerned or self._since <= event.at <= self._until
        ]
        shown.sort(key=lambda event: (not event.concerned, self._distance(event)))
        return sorted(shown[:MOST], key=lambda event: event.at), len(shown[MOST:])

    def _distance(self, event: Event) -> float:
        return min((abs(event.at - at) for at in self._violation.moments), default=0.0)

    def _of_firing(self, firing: Firing) -> Iterator[Event]:
        concerned = firing.id in self._firings
        tick = f" tick {firing.tick}" if firing.tick else ""
        yield Event(
            firing.at, firing.host, f"firing {firing.id}{tick} (pid {firing.pid})", concerned
        )
        if firing.ended is not None:
            words = firing.stderr.strip().splitlines()
            said = f": {words[-1].strip()}" if words else ""
            left = f"firing {firing.id} leaves with {firing.status}{said}"
            yield Event(firing.ended, firing.host, left, concerned)

    def _of_start(self, start: Start) -> Iterator[Event]:
        letter = self._starts.get(start.file)
        name = letter or f"job {start.pid}"
        words = f"{name} STARTS tick {start.tick or '-'} attempt {start.attempt} (pid {start.pid}, token {start.token})"
        yield Event(start.at, start.host, words, letter is not None)
        happened = [(at, f"{name} finds alive: {self._name(file)}") for at, file in start.overlaps]
        happened += [(at, f"{name} gets {signal}") for at, signal in start.signals]
        happened += [
            (at, f"{name} writes fenced: {'accepted' if yes else 'refused'}")
            for at, yes in start.fenced
        ]
        if start.ended is not None:
            happened.append((start.ended, f"{name} ENDS with {start.status}"))
        if start.ended is None or start.last_sign > start.ended:
            happened.append((start.last_sign, f"{name}: last sign of life"))
        for at, text in happened:
            yield Event(at, start.host, text, letter is not None)  # fmt: skip

    def _name(self, file: str) -> str:
        return self._starts.get(file, file)

    def _of_operation(self, operation: Operation) -> Iterator[Event]:
        words = f"`{' '.join(operation.words)}`"
        concerned = operation.subject in (self._violation.key, "--all")
        if concerned or operation.subject in self._joined.hosts:
            yield Event(operation.at, operation.host, f"somebody types {words}")
        if operation.ended is not None and concerned:
            yield Event(operation.ended, operation.host, f"{words} leaves with {operation.status}")

    def _of_fault(self, fault: Fault) -> Iterator[Event]:
        lane = SHARED if self._joined.is_shared(fault) else fault.target
        concerned = any(firing in self._firings for firing, _, _ in fault.hit)
        hit = ", ".join(
            f"{role} of firing {firing} {state}"
            for firing, role, state in fault.hit
            if firing in self._firings
        )
        words = ": ".join(filter(None, (f"FAULT {fault.id} {fault.kind}", fault.detail, hit)))
        yield Event(fault.at, lane, words, concerned)
        if fault.healed is not None and fault.healed > fault.at:
            yield Event(undone(fault), lane, f"fault {fault.id} {fault.kind} undone", concerned)


def _row(time: str, texts: list[str], width: int) -> str:
    cells = " | ".join(text[:width].ljust(width) for text in texts)
    return f"{time:<{_TIME}}{cells}".rstrip()


# The log


def _log(history: History, violation: Violation) -> Iterator[str]:
    if violation.key is None:
        return
    ticks = {violation.tick, *(start.tick for start in violation.starts)}
    ticks |= {firing.tick for firing in violation.firings}
    who = {(firing.host, firing.pid) for firing in violation.firings}
    rows = [
        row
        for row in history.log.executions
        if row["key"] == violation.key and (row["tick"] in ticks - {None} or (row["host"], row["pid"]) in who)
    ]  # fmt: skip
    skips = [
        row for row in history.log.skips if row["key"] == violation.key and row["tick"] in ticks
    ]
    yield f"In the log of {violation.key}:"
    yield from _table([_execution(row) for row in rows], [row["note"] for row in rows])
    yield from _table([_skip(row) for row in skips], [None] * len(skips))
    if not rows and not skips:
        yield "  nothing"


def _execution(row: Row) -> list[str]:
    code = row["exit_code"] if row["signal"] is None else f"signal {row['signal']}"
    return [
        f"execution {row['execution_id']}", f"tick {_shown(row['tick'])}", f"shard {part_of_row(row)[1]}",
        f"attempt {row['attempt']}", row["outcome"], f"exit {_shown(code)}", f"{row['host']} pid {row['pid']}",
        f"token {_shown(row['fencing_token'])}", _hour(row["started_at"]), f"to {_hour(row['finished_at'])}",
    ]  # fmt: skip


def _skip(row: Row) -> list[str]:
    by = f"by {row['holder_host']} pid {row['holder_pid']}" if row["holder_host"] else ""
    who = f"last {row['host']} pid {row['pid']}"
    return [
        "skip", f"tick {_shown(row['tick'])}", row["reason"], f"x {row['count']}", who, _hour(row["at"]), by,
    ]  # fmt: skip


def _hour(text: str | None) -> str:
    return "-" if text is None else text.partition("T")[2] or text


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _table(rows: list[list[str]], notes: list[str | None]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, note in zip(rows, notes, strict=True):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield from textwrap.wrap(
            line, WIDTH, initial_indent="  ", subsequent_indent="      ", drop_whitespace=False
        )
        if note:
            yield from textwrap.wrap(note, WIDTH, initial_indent="      ", subsequent_indent="      ")  # fmt: skip
