"""--spread: hosts wait before they claim, and it is the same tick all the same."""

import os
import re
import signal
from pathlib import Path

import pytest
from log_of import Store
from servers import Journal, eventually, job
from servers.oncecron import Oncecron

from oncecron.config.run_parser import parse_run
from oncecron.run import firing
from oncecron.run.spec import turn


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_ends_the_wait_is_on_record(
    any_store: Store, host: Oncecron, number: signal.Signals
) -> None:
    """A host that is shut down meanwhile has fired: nobody looks for a cron that did not start the line."""
    firing = host.fire("k", "--tick", "one", "--spread", "1h", "--", "true")
    eventually(lambda: _catches(firing.process.pid, number))
    os.kill(firing.process.pid, number)
    assert firing.wait().status == -number
    assert any_store.skips("k") == [("one", "interrupted", "host-a", None, 1)]
    explained = host("why", "k", "--tick", "one").out.decode()
    note = f"it was ended before it could start the command (after {number.name} to oncecron)"
    assert f"host-a skipped: {note}" in explained


def _catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigBlk:")[1].split()[0], 16) & 1 << (number - 1))


def test_the_tick_is_that_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set before the wait, whatever the clock shows after it."""
    ticks, waited = [], []
    monkeypatch.setattr(
        firing.clock, "process_started", lambda: 1_000_000_010.0 if not waited else 2e9
    )
    monkeypatch.setattr(firing, "_wait_in_turn", lambda spec: waited.append(spec.delay()))
    monkeypatch.setattr(
        firing, "supervise", lambda spec, _: ticks.append(spec.firing.tick.text) or 0
    )
    words = ["--key", "k", "--store", "local", "--schedule", "* * * * *", "--tz", "UTC"]
    parsed = parse_run([*words, "--spread", "90s", "--", "true"])
    assert parsed is not None
    assert firing.run(parsed) == 0
    assert ticks == ["2001-09-09T01:46Z"]
    assert [0 < each < 90 for each in waited] == [True]
