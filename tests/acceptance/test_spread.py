"""--spread: hosts wait before they claim, and it is the same tick all the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from servers import job

from oncecron.config.run_parser import parse_run
from oncecron.run import firing
from oncecron.run.firing import turn

if TYPE_CHECKING:
    from log_of import Store
    from servers import Journal
    from servers.oncecron import Oncecron


def test_each_host_waits_for_its_turn(any_store: Store, host: Oncecron, journal: Journal) -> None:
    """The host whose turn comes last says for how long it waits, and skips."""
    for tick in ("a", "b"):
        for _ in range(2):
            line = ("k", "--tick", tick, "--spread", "1s", "-v", "--", *job(journal))
            ended = host.fire(*line).wait(20)
            assert ended.status == 0
            found = re.search(
                r"^oncecron: key k: waiting ([0-9.]+)(m?s) [(]--spread[)]$", ended.err, re.MULTILINE
            )
            assert found, ended.err
            waited = float(found[1]) / (1000 if found[2] == "ms" else 1)
            assert waited == pytest.approx(
                turn("k", tick, host.environment["ONCECRON_HOST"]), abs=0.06
            )
    assert [run.first.tick for run in journal.runs()] == ["a", "b"]
    assert [each.tick for each in any_store.executions("k")] == ["a", "b"]


def test_the_tick_is_that_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set before the wait, whatever the clock shows after it."""
    ticks, waited = [], []
    monkeypatch.setattr(
        firing.clock, "process_started", lambda: 1_000_000_010.0 if not waited else 2e9
    )
    monkeypatch.setattr(firing.time, "sleep", waited.append)
    monkeypatch.setattr(
        firing, "supervise", lambda spec, _: ticks.append(spec.firing.tick.text) or 0
    )
    words = ["--key", "k", "--store", "local", "--schedule", "* * * * *", "--tz", "UTC"]
    parsed = parse_run([*words, "--spread", "90s", "--", "true"])
    assert parsed is not None
    assert firing.run(parsed) == 0
    assert ticks == ["2001-09-09T01:46Z"]
    assert [0 < each < 90 for each in waited] == [True]
