"""Tables at a terminal: which columns there are, how wide they are, and that no line is longer than the terminal."""

import io
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecron.cli.audit import FINDINGS
from oncecron.cli.config import CONFIGURED_VALUES
from oncecron.cli.doctor import DIAGNOSES
from oncecron.cli.history import EXECUTIONS, SKIPS
from oncecron.cli.hosts import HOSTS
from oncecron.cli.jobs import JOBS
from oncecron.cli.locks import LEASES, PAUSES
from oncecron.cli.next import COMING
from oncecron.cli.output import Writer, folded_lines
from oncecron.cli.table import NARROWEST, Column, Kind, layout
from oncecron.cli.terminal import Style
from oncecron.core.columns import display_width
from oncecron.core.text import Clock
from oncecron.log.state_kinds import kind_of
from oncecron_each.cli.items import ITEMS, LISTS

KINDS = (
    *(EXECUTIONS, SKIPS, JOBS, LEASES, PAUSES, HOSTS),
    *(ITEMS, LISTS, FINDINGS, COMING, DIAGNOSES, CONFIGURED_VALUES),
)
LONGEST = {  # what a column that cannot shrink holds at most
    "STATE": "x orphaned", "OUTCOME": "x not-started", "REASON": "! exhausted", "FINDING": "! in-doubt",
    "TIME": "Wed 25 Nov 2026 02:00", "OPTION": "starting-deadline",
}  # fmt: skip


def shown(
    records: list[Any], *columns: Column, width: int | None = 60, wide: bool = False, **style: Any
) -> list[str]:
    """Return the lines of a table on a terminal."""
    stream = io.StringIO()
    clock = Clock(utc=True, now=None if wide else 0.0)
    how = Style("table", clock, width=None if wide else width, terminal=True)._replace(**style)
    Writer(Kind((), columns=columns), how, stream).write(records)
    return stream.getvalue().splitlines()


def column(place: int, title: str, *more: Any, **named: Any) -> Column:
    """Return a column that shows the text of a record at a place."""
    return Column(title, lambda record, _clock: record[place], *more, **named)


# Layout

KEY, STATE = column(0, "KEY", 0, 16), column(1, "STATE", 0)
LAST, NEXT, HOST = column(2, "LAST", 1), column(3, "NEXT", 2), column(4, "HOST", 3, 10)


@pytest.mark.parametrize(
    ("widths", "room", "expected"),
    [
        ((20, 10, 9, 9, 20), 80, {0: 20, 1: 10, 2: 9, 3: 9, 4: 20}),  # all fit
        ((20, 10, 9, 9, 20), 70, {0: 20, 1: 10, 2: 9, 3: 9, 4: 14}),  # what lacks the least gets it first
        ((20, 10, 9, 9, 20), 64, {0: 18, 1: 10, 2: 9, 3: 9, 4: 10}),  # as narrow as they may be
        ((20, 10, 9, 9, 20), 61, {0: 20, 1: 10, 2: 9, 3: 9}),  # the least important is dropped
        ((60, 10, 9, 9, 20), 80, {0: 24, 1: 10, 2: 9, 3: 9, 4: 20}),
        ((60, 10, 0, 9, 8), 80, {0: 47, 1: 10, 3: 9, 4: 8}),  # a column without a text is not there
        ((60, 10, 9, 9, 20), 30, {0: 18, 1: 10}),
        ((60, 10, 9, 9, 20), 20, {0: 16, 1: 10}),  # those are never dropped
    ],
)  # fmt: skip
def test_columns_shrink_and_then_they_are_dropped(
    widths: tuple[int, ...], room: int, expected: dict[int, int]
) -> None:
    """By what they may lose, and by their importance."""
    assert layout((KEY, STATE, LAST, NEXT, HOST), widths, room) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_never_dropped_fits_the_narrowest_terminal(kind: Kind) -> None:
    """And each heading its narrowest column."""
    columns = kind.screen or kind.columns
    least = [each.least or len(LONGEST[each.title]) for each in columns if not each.rank]
    assert sum(least) + 2 * (len(least) - 1) <= NARROWEST
    assert [each.title for each in columns if (each.least or 99) < len(each.title)] == []


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(data=st.data(), width=st.integers(NARROWEST, 200), unicode=st.booleans())
def test_no_line_is_longer_than_the_terminal(
    kind: Kind, data: st.DataObject, width: int, unicode: bool
) -> None:
    """Whatever is recorded."""
    columns = []
    for place, each in enumerate(kind.screen or kind.columns):
        longest = 120 if each.least else len(LONGEST.get(each.title, "Tue 02:00:01")) - 2
        text = data.draw(st.text(max_size=longest).filter(lambda text: "`" not in text))
        if not each.least:
            text = "".join(letter for letter in text if letter.isascii() and letter.isprintable())
        columns.append(each._replace(text=column(place, "", 0).text))
        record = [*(record if place else ()), text]  # noqa: F821 - of the column before
    lines = shown([record] * 2, *columns, width=width, unicode=unicode)
    assert [line for line in lines if display_width(line) > width] == []


def test_a_later_row_that_is_wider_than_the_first_ones_fits_too() -> None:
    """The first 200 decide."""
    records = [("k", "ok", "1", "2", "h")] * 200 + [("k" * 99, "o" * 30, "1" * 30, "2", "h")]
    lines = shown(records, KEY, STATE, LAST, NEXT, HOST)
    assert lines[201] == f"kk>  {'o' * 30}  {'1' * 22}>"


# What is shown


def test_a_column_without_texts_is_shown_in_a_pipe_alone() -> None:
    """Programs count columns. With --wide a person sees what a program sees."""
    record = ("billing", "ok", "-", "-", "-")
    columns = (KEY, STATE, LAST, NEXT, HOST)
    assert shown([record], *columns) == ["KEY      STATE", "billing  ok"]
    all_columns = ["KEY      STATE  LAST  NEXT  HOST", "billing  ok     -     -     -"]
    assert shown([record], *columns, wide=True) == all_columns
    assert shown([record], *columns, wide=True, terminal=False) == all_columns
    assert shown([], *columns) == ["KEY  STATE  LAST  NEXT  HOST"]


def test_heading_and_cells_are_aligned_whatever_the_letters() -> None:
    """By the columns that a terminal needs, on both sides."""
    texts = ("東京", "e\u0301te\u0301", "🚀", "plain")
    lines = shown(
        [(each, "7") for each in texts], KEY, column(1, "COUNT", right=True), column(0, "AGAIN")
    )
    again = [display_width(line[: len(line) - len(line.split()[-1])]) for line in lines]
    assert again == [14] * 5


@pytest.mark.parametrize(
    ("style", "cells"),
    [
        ({"unicode": True}, ["✗ missed 2, late", "! overdue", "✓ ok", "▸ running", "- paused", "  -"]),
        ({}, ["x missed 2, late", "! overdue", "+ ok", "> running", "- paused", "  -"]),
        ({"terminal": False}, ["missed 2, late", "overdue", "ok", "running", "paused", "-"]),
        (
            {"colour": True},
            [
                "\x1b[31mx missed 2, late\x1b[0m", "\x1b[33m! overdue\x1b[0m", "\x1b[32m+ ok\x1b[0m",
                "\x1b[36m> running\x1b[0m", "\x1b[2m- paused\x1b[0m", "  -",
            ],
        ),
    ],
)  # fmt: skip
def test_a_state_has_a_colour_and_a_mark(style: dict[str, bool], cells: list[str]) -> None:
    """For a person, never a colour alone; a program reads the bare words."""
    states = [(text,) for text in ("missed 2, late", "overdue", "ok", "running", "paused", "-")]
    assert shown(states, column(0, "STATE", 0, kind=kind_of), **style)[1:] == cells


def test_the_zone_of_short_times_is_said_once() -> None:
    """Below the table; above one that goes on as long as somebody looks."""
    stream = io.StringIO()
    kind = Kind((), columns=(column(0, "STARTED", is_time=True),))
    style = Style("table", Clock(utc=True, zone=ZoneInfo("Europe/Berlin"), now=0.0), width=60)
    for is_endless in (False, True):
        writer = Writer(kind, style, stream)
        writer.is_endless = is_endless
        writer.write([("02:00",)])
        writer.write([])
    heading, row, zone = "STARTED", "02:00", "times in Europe/Berlin"
    assert stream.getvalue().splitlines() == [heading, row, zone, zone, heading, row]


def test_a_sentence_goes_on_in_its_column_and_a_command_stays_whole() -> None:
    """Further to the left, where it is wider than the column."""
    finding = column(1, "FINDING", 0, 20, folds=True)
    text = "stale; run `oncecron --store local release billing-nightly`, and see why it was"
    assert shown([("warn", text), ("ok", "fine")], column(0, "STATE", 0), finding, width=60) == [
        "STATE  FINDING",
        "warn   stale; run",
        "       `oncecron --store local release billing-nightly`, and",
        "       see why it was",
        "ok     fine",
    ]
    assert shown([("warn", text)], column(0, "STATE", 0), finding, width=50)[2:] == [
        " `oncecron --store local release billing-nightly`,",
        "       and see why it was",
    ]


def test_lines_beside_a_table_fit_too() -> None:
    """What is folded stands further to the right than its line."""
    lines = ["  02:00 web1 skipped: web2 had run it", "short   as it is"]
    assert list(folded_lines(lines, 24)) == [
        "  02:00 web1 skipped:", "    web2 had run it", "short   as it is",
    ]  # fmt: skip
