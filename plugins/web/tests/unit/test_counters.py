"""What the counters of `metrics` make of a log whose rows come late, go, or are another's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oncecron.core.log_rows import Execution, Skip
from oncecron_web import counters
from oncecron_web.counters import Counts, count, counts_in, line_in, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.log_rows import HistoryQuery


class FakeLog:
    """A log in memory."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}
        self.refusals: list[float] = []

    def history(self, query: HistoryQuery) -> Iterator[Execution]:
        """Yield the newest one, or those after an id."""
        after = query.after_id
        numbers = sorted(self.rows, reverse=after is None)
        wanted = [each for each in numbers if after is None or each > after]
        return iter([self._row(each) for each in wanted[: query.limit]])

    def execution(self, number: int) -> Execution | None:
        """Return one."""
        return self._row(number) if number in self.rows else None

    def _row(self, number: int) -> Execution:
        row: list[Any] = [number, "k", 0, None, 1, self.rows[number], *(None,) * 12]
        return Execution(*row)

    def leases(self) -> list[Any]:
        """Return none."""
        return []

    def skips_since(self, since: float) -> Iterator[Skip]:
        """Yield refusals."""
        for at in self.refusals:
            if at >= since:
                yield Skip("k", 0, None, "held", None, None, "h", None, at, 1, None)


@pytest.fixture
def log() -> Any:
    """Give an empty log."""
    return FakeLog()


def runs(counts: Counts) -> dict[str, int]:
    """Return what was counted of the key."""
    return dict(counts.runs.get("k", {}))


def test_a_run_that_becomes_visible_late_is_counted(log: Any) -> None:
    """Its id is lower than one that is counted already."""
    counts = count(Counts("log"), log, 0.0)
    log.rows[7] = "succeeded"
    counts = count(counts, log, 0.0)
    log.rows[5] = "failed"
    counts = count(count(counts, log, 0.0), log, 0.0)
    assert runs(counts) == {"succeeded": 1, "failed": 1}


def test_a_run_that_lasts_is_counted_when_it_ends(log: Any) -> None:
    """However many others end meanwhile; one that retention has removed is no longer waited for."""
    counts = count(Counts("log"), log, 0.0)
    log.rows |= {1: "running", 2: "running"}
    counts = count(counts, log, 0.0)
    log.rows |= dict.fromkeys(range(3, 1003), "succeeded")
    counts = count(counts, log, 0.0)
    assert (counts.until, counts.open, len(counts.counted)) == (802, [1, 2], 200)
    log.rows[1] = "lost"
    del log.rows[2]
    counts = count(counts, log, 0.0)
    log.rows[1] = "succeeded"  # its host had only been cut off
    counts = count(counts, log, 0.0)
    assert runs(counts) == {"succeeded": 1000, "lost": 1}
    assert counts.open == []


def test_a_long_pause_is_caught_up_in_steps(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look has a bound."""
    monkeypatch.setattr(counters, "_MOST", 500)
    counts = count(Counts("log"), log, 0.0)
    log.rows = dict.fromkeys(range(1, 1001), "succeeded")
    found = []
    for _ in range(4):
        counts = count(counts, log, 0.0)
        found.append(runs(counts)["succeeded"])
    assert found == [500, 800, 1000, 1000]


def test_a_log_that_was_replaced_is_counted_from_its_end(log: Any) -> None:
    """And the sums stay."""
    counts = count(Counts("log"), log, 0.0)
    log.rows = dict.fromkeys(range(1, 1001), "succeeded")
    counts = count(counts, log, 0.0)
    log.rows = {1: "failed"}
    counts = count(counts, log, 0.0)
    assert runs(counts) == {"succeeded": 1000}
    log.rows[2] = "failed"
    assert runs(count(counts, log, 0.0)) == {"succeeded": 1000, "failed": 1}


def test_a_skip_counts_once_and_a_little_later(log: Any) -> None:
    """Another look begins where the last one ended."""
    counts = count(Counts("log"), log, 1000.0)
    log.refusals = [900.0, 969.0, 970.0, 1001.0]
    found = []
    for now in (1000.0, 1020.0, 1032.0, 1100.0):
        counts = count(counts, log, now)
        found.append(sum(counts.skips.get("k", {}).values()))
    assert found == [0, 1, 2, 2]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda line: b"",
        lambda line: line[:40],
        lambda line: line.replace(b'"log"', b'"other"'),
        lambda line: line.replace(b"[7]", b'["7"]'),
        lambda line: line.replace(b'{"k": {"failed": 1}}', b"[]"),
    ],
)
def test_a_line_that_cannot_be_read_begins_anew(log: Any, spoil: Any) -> None:
    """A counter that begins with 0 again does no harm."""
    log.rows = {1: "succeeded"}
    counts = count(Counts("log"), log, 0.0)._replace(counted=[7], runs={"k": {"failed": 1}})
    text = b"# HELP x y\nx 1\n" + line_of(counts)
    assert line_in(text) == line_of(counts)
    assert counts_in(line_in(text), "log")._replace(skips={}) == counts._replace(open=[], skips={})
    assert counts_in(spoil(line_of(counts)), "log") == Counts("log")
