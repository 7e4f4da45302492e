"""Answers as table, JSON, NDJSON and CSV: what is published, what a terminal gets, what memory it takes."""

import csv
import io
import json
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.cli import history
from oncecron.cli.audit import FINDINGS
from oncecron.cli.command import FORMAT
from oncecron.cli.history import EXECUTIONS, IN_FULL, SKIPS
from oncecron.cli.hosts import HOSTS
from oncecron.cli.jobs import JOBS
from oncecron.cli.locks import LEASES, PAUSES
from oncecron.cli.next import COMING
from oncecron.cli.output import Writer, visible_lines
from oncecron.cli.table import Column, Kind
from oncecron.cli.terminal import Style, style_for
from oncecron.config.settings import Settings
from oncecron.core import text as texts
from oncecron.core.log_rows import Execution, HistoryQuery, JobKey, LeaseView, Skip
from oncecron.core.text import Clock
from oncecron.log.hosts import HostSummary

EXECUTION = Execution(
    execution_id=7, key="billing", shard=0, tick="2026-11-20T02:00Z", attempt=1, outcome="failed", exit_code=3,
    signal=None, host="host-a", pid=42, user="batch", command="./bill.sh 'two words'", started_at=1795140001.25,
    finished_at=1795140003.75, duration=2.5, fencing_token=1795140001250000,
    owner="6b1d2f3a-0000-4000-8000-000000000000", note=None,
)  # fmt: skip
LEASE = LeaseView(
    *("billing", 0, "t", 7, 1, "held", "host-a", 42, "batch"),
    *(1795140001.0, 1795140011.0, 1795140071.0, 99, None, None),
    asked_at=1795140015.0,
)


class Stream(io.StringIO):
    """A file of text with an encoding, which may be a terminal."""

    encoding = "utf-8"

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__(newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def written(
    records: Iterable[object],
    kind: Kind = EXECUTIONS,
    format_: str = "table",
    *,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Return what a writer writes of some records, with times in UTC."""
    stream = Stream()
    Writer(kind, Style(format_, Clock(utc=True), colour, width), stream).write(records)
    return stream.getvalue()


# Machine formats


@given(command=st.text(), note=st.none() | st.text())
def test_any_text_survives_the_machine_formats(command: str, note: str | None) -> None:
    """Quotes, line ends, commas, control characters, which CSV escapes: spreadsheets and terminals show it."""
    record = EXECUTION._replace(command=command, note=note)
    assert json.loads(written([record], EXECUTIONS, "json"))[0]["command"] == command
    line = written([record], EXECUTIONS, "ndjson")
    assert line.count("\n") == 1
    assert line.isascii()
    assert printable(line)
    assert json.loads(line)["note"] == note
    [_, row] = csv.reader(io.StringIO(written([record], EXECUTIONS, "csv"), newline=""))
    assert row[11].removeprefix("'") == visible_lines(command).removeprefix("'")
    assert row[17].removeprefix("'") == visible_lines(note or "").removeprefix("'")
    assert printable(row[11])


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\n=1", "=cmd|' /C calc'!A0", "\uff1d1", "\uff0b1"]
)
def test_no_text_of_csv_is_a_formula(text: str) -> None:
    """A spreadsheet would run what another host has put into the log. Numbers and JSON stay as they are."""
    record = EXECUTION._replace(command=text, host=text, duration=-1.0)
    [_, row] = csv.reader(io.StringIO(written([record], EXECUTIONS, "csv"), newline=""))
    assert (row[11], row[8], row[14]) == (f"'{text}", f"'{text}", "-1.0")
    assert json.loads(written([record], EXECUTIONS, "json"))[0]["command"] == text


def test_a_list_is_one_field_of_csv() -> None:
    """And a list as JSON: the keys on which a host is silent."""
    host = HostSummary("a", 0.0, "1", 0.0, None, 2, 0, 0, ("k", "l"))
    [_, row] = csv.reader(io.StringIO(written([host], HOSTS, "csv"), newline=""))
    assert row[8] == "k,l"
    assert json.loads(written([host], HOSTS, "json"))[0]["silent_on"] == ["k", "l"]


CONTROLS = "\x07\x1b[2J\x9b31m\u202e\u2028\x7f"


@pytest.mark.parametrize("kind", [EXECUTIONS, SKIPS, JOBS, LEASES, PAUSES, FINDINGS, COMING])
def test_no_table_executes_what_a_host_has_recorded(kind: Kind) -> None:
    """Whatever the column: not even one that is added without a thought of it."""
    stranger = Column("NEW", lambda _record, _clock: CONTROLS)
    loose = Kind(
        (),
        frozenset(),
        (*(each._replace(text=stranger.text) for each in (*kind.columns, *kind.screen)),),
    )
    assert printable(written([object()], loose, "table"))
    assert printable(written([object()], loose, "table", width=80))


@pytest.mark.parametrize("terminal", [True, False])
def test_csv_executes_nothing_either(terminal: bool) -> None:
    """A file is shown by `less` or `cat`; a surrogate, which UTF-8 does not have, is written as all others."""
    record = EXECUTION._replace(command=f"a{CONTROLS}\nb\udc9b")
    stream = Stream(terminal=terminal)
    Writer(EXECUTIONS, Style("csv", Clock(utc=True)), stream).write([record])
    assert printable(stream.getvalue())
    assert "\\x1b[2J" in stream.getvalue()
    assert "b\\udc9b" in stream.getvalue()


def printable(text: str) -> bool:
    """Return whether a text has no control characters but the ends of its lines."""
    return text.replace("\n", "").isprintable()


# Times


def test_times_have_the_offset_of_the_host_s_zone_or_z(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 3339 in winter and in summer; to the second in tables, to the millisecond for machines."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter, summer = 1795140001.25, 1783000000.0
        assert Clock(utc=False).seconds(winter) == "2026-11-20T03:00:01+01:00"
        assert Clock(utc=False).seconds(summer) == "2026-07-02T15:46:40+02:00"
        assert Clock(utc=True).seconds(winter) == "2026-11-20T02:00:01Z"
        assert Clock(utc=False).exactly(winter) == "2026-11-20T03:00:01.250+01:00"
        assert Clock(utc=True).exactly(None) is None
    finally:
        monkeypatch.undo()
        time.tzset()


# Tables


@given(st.text())
def test_no_text_can_talk_to_the_terminal(text: str) -> None:
    """Escape sequences, line ends, C1 controls and changes of direction are escaped, the rest is kept."""
    shown = texts.visible(text)
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("kind", "record", "cell"),
    [
        (EXECUTIONS, EXECUTION._replace(exit_code=None, signal=15), " SIGTERM "),
        (EXECUTIONS, EXECUTION._replace(exit_code=None, signal=200), " SIG200 "),
        (EXECUTIONS, EXECUTION._replace(shard=2, shards=4), " 2/4 "),
        (LEASES, LEASE, " 4s   56s "),  # since the heartbeat, and left, by the store's clock
        (LEASES, LEASE._replace(requested_by="ann@web1"), "by ann@web1, not acknowledged"),
        (
            LEASES,
            LEASE._replace(requested_by="ann@web1", request_acknowledged_at=1795140014.0),
            "by ann@web1, acknowledged 2026-11-20T02:00:14Z",
        ),
    ],
)
def test_what_a_cell_says(kind: Kind, record: object, cell: str) -> None:
    """Where it is not the field as it is."""
    assert cell in written([record], kind)


# Colour


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True),
        (False, {"FORCE_COLOR": "1"}, True), (True, {"TERM": "dumb"}, False),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)  # fmt: skip
def test_when_there_is_colour(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], colour: bool
) -> None:
    """On a terminal, or when forced; never against NO_COLOR."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert style_for(Stream(terminal=terminal), "table", utc=True).colour is colour


# Streaming and trouble


@pytest.mark.parametrize("format_", FORMAT.choices)
def test_a_long_history_takes_no_memory(format_: str) -> None:
    """Four thousand records pass through in the memory of a few hundred."""

    class Sink(Stream):
        def write(self, text: str) -> int:
            return len(text)

    records = (EXECUTION._replace(execution_id=number) for number in range(4_000))
    writer = Writer(EXECUTIONS, Style(format_, Clock(utc=True)), Sink())
    tracemalloc.start()
    try:
        assert writer.write(records) == 4_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_seconds_are_published_to_the_microsecond() -> None:
    """And not with the noise of a float."""
    stream = io.StringIO()
    execution = EXECUTION._replace(duration=3.227506444000028)
    style = Style("ndjson", Clock(utc=True))
    Writer(EXECUTIONS, style, stream).write([execution])
    assert '"duration": 3.227506,' in stream.getvalue()


def in_full(**fields: object) -> str:
    """Return what `history --id` shows of one execution."""
    stream = Stream()
    record = SimpleNamespace(**EXECUTION._asdict(), **fields)
    Writer(IN_FULL, Style("table", Clock(utc=True)), stream).write_in_full(record)
    return stream.getvalue()


def test_what_was_captured_is_below_the_fields() -> None:
    """A line each, indented, without anything that a terminal could obey; said to be cut where it was."""
    text = in_full(output="one\n\ntwo \x1b[31m\nkey  forged", output_cut=0)
    assert text.splitlines()[-5:] == [
        "output         complete", "    one", "", r"    two \x1b[31m", "    key  forged",
    ]  # fmt: skip
    assert "the end only; 12 bytes before it were not recorded" in in_full(
        output="x", output_cut=12
    )
    assert in_full(output="", output_cut=0).endswith("output         empty\n")
    assert "output" not in in_full(output=None, output_cut=None)


class Log:
    """A log of one key in four shards and one key alone."""

    def job_keys(self) -> list[JobKey]:
        return [JobKey("nightly", shard, None, None) for shard in range(4)] + [
            JobKey("hourly", 0, None, None)
        ]

    def skips(self, _query: object) -> list[Skip]:
        rest = ("t1", "held", "host-a", 1, "host-b", 2, 0.0, 4, "detail")
        return [Skip("nightly", 3, *rest), Skip("hourly", 0, *rest)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "no execution on record for key nightly"),
        ({"limit": "3"}, "no execution on record for key nightly"),
        ({"outcome": "lost"}, "no matching execution on record for key nightly"),
        ({"host": "host-b"}, "no matching execution on record for key nightly"),
        ({"since": "2h"}, "no matching execution on record for key nightly"),
        ({"exhausted": "true"}, "no matching execution on record for key nightly"),
        ({"skips": "true"}, "no skip on record for key nightly"),
    ],
)
def test_nothing_found_by_a_filter_is_not_nothing(
    given: dict[str, str], told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """For a key that has other records, and for one that has none."""
    (tmp_path / "empty.toml").touch()
    settings = Settings(history.OPTIONS, {**given, "config": str(tmp_path / "empty.toml")})
    query = history._query(settings, ["nightly"])
    history._note_what_is_missing(settings, query, 0)
    assert capfd.readouterr().err == f"oncecron: {told}\n"


def test_refusals_tell_the_part() -> None:
    """Before what may be cut, and in the form of the other tables."""
    skips = history._with_shards(Log(), HistoryQuery())  # type: ignore[arg-type]
    table = io.StringIO()
    Writer(SKIPS, Style("table", Clock(utc=True)), table).write(skips)
    heading, *rows = (line.split() for line in table.getvalue().splitlines())
    assert heading[-3:] == ["COUNT", "SHARD", "DETAIL"]
    assert [row[-3:] for row in rows] == [["4", "3/4", "detail"], ["4", "-", "detail"]]
