"""A timeline can be drawn of any violation, and a summary adds up."""

import pytest
from invented import KEY, Invented

from oncecron_drill.checker import check
from oncecron_drill.history import Firing, Start
from oncecron_drill.narration import draw
from oncecron_drill.rules.verdict import Violation


@pytest.fixture
def run() -> Invented:
    """Give a run in which h1's tree lives on while h2 runs, beside others."""
    run = Invented()
    run.run(100.0, "h3", "t1")
    lost = run.fire(
        110.0, "h1", "t2", status=75, lasts=20, stderr="oncecron: key billing: the lease was lost\n"
    )
    older = run.start(lost, lasts=15, ended=None, status=None)
    newer = run.run(120.0, "h2", "t3")
    newer.overlaps.append((120.2, older.file))
    older.fenced += [(111.0, True), (121.0, False)]
    older.signals.append((121.5, "TERM"))
    run.fault(112.0, 118.0, "h1", "cut", ((lost, "wrapper", "stopped"),))
    run.fault(119.0, 122.0, "store", "restart").detail = "pg_ctl restart"
    run.skip(run.fire(120.3, "h3", "t3"), "held")
    run.history.log.executions[1]["note"] = "lease ended, declared lost by h2"
    return run  # fmt: skip


def test_every_violation_can_be_drawn(run: Invented) -> None:
    """Also one without a key, a moment, or a start."""
    [overlap] = check(run.history).violations
    stray = Start("x/1", 100.0, "h9", 1, 2, "x", None, None, 1, None, None, 101.0)
    run.history.starts.append(stray)
    firing = Firing(9, 105.0, "h1", KEY, None, [], 1)
    for violation in (
        overlap,
        Violation("left", "a lease is left"),
        Violation("stray", "who?", "x", None, [100.0], [stray], [firing]),
    ):
        assert draw(run.history, violation)
