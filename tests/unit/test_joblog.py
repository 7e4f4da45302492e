"""The mailbox of the log's thread, and a host that has no thread left."""

import threading
from pathlib import Path
from typing import Any

import pytest

from oncecron.firing import make_plan
from oncecron.joblog import JobLog
from oncecron.options import ParsedRun
from oncecron.plan import Plan


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Give the plan of a firing with a log that no thread will ever write to."""

    def no_thread_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(threading.Thread, "start", no_thread_left)
    given = {"key": "k", "tick": "t", "store": "local", "log": f"sqlite://{tmp_path}/log.db"}
    return make_plan(ParsedRun(given, ["true"]))


def record(outcome: str, attempt: int = 1) -> dict[str, Any]:
    """Return what the log and its spool look at."""
    fields = {"kind": "execution", "key": "k", "shard": 0, "tick": "t", "tick_instant": None}
    fields |= {"host": "h", "pid": 7, "fired_at": 1.0, "owner": "o"}
    return {**fields, "outcome": outcome, "attempt": attempt, "fencing_token": None, "note": None}


def kept(plan: Plan) -> list[tuple[int, str]]:
    """Return attempt and outcome of what is in the log's spool."""
    assert plan.log is not None
    return sorted((taken["attempt"], taken["outcome"]) for _, taken in plan.log.spool.pending("k"))


def test_without_a_thread_the_records_are_spooled(
    plan: Plan, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the reason, and without a wait; the run is not told."""
    log = JobLog(plan)
    log.tell(record("succeeded"))
    log.close()
    assert kept(plan) == [(1, "succeeded")]
    assert "can't start new thread" in capfd.readouterr().err


def test_an_end_takes_the_place_of_its_start(plan: Plan) -> None:
    """Of its own attempt alone."""
    log = JobLog(plan)
    for told in (record("running"), record("failed"), record("running", 2)):
        log.tell(told)
    assert [(each["attempt"], each["outcome"]) for each in log._waiting] == [
        *((1, "failed"), (2, "running")),
    ]
    log.close()
    assert kept(plan) == [(1, "failed"), (2, "running")]


def test_without_a_log_nothing_is_kept(plan: Plan, tmp_path: Path) -> None:
    """Nor is there a thread."""
    log = JobLog(plan._replace(log=None))
    log.tell(record("succeeded"))
    log.close()
    assert not (tmp_path / "state").exists()
