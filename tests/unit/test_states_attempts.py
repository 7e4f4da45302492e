"""What follows the end of an attempt, where the order of events matters."""

from pathlib import Path

import pytest
from state_parts import FAILED, LEASE, NOW, Bench, FakeJob

from oncecron.config.run_parser import ParsedRun
from oncecron.core.errors import StoreUnavailable
from oncecron.run import firing_states
from oncecron.run.events import Kept, NotRetried, Recorded
from oncecron.run.firing_states import State
from oncecron.run.spec import make_spec


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Give the context of a firing with retries, whose reports are real."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = {"key": "k", "tick": "t", "store": "local", "retries": "2", "retry-delay": "10s"}
    return Bench(make_spec(ParsedRun(given, ["true"]))).really_reporting()


@pytest.fixture
def keeping(bench: Bench) -> State:
    """Give the state in which the end of an attempt that failed is being recorded."""
    job = FakeJob()
    job.ended = FAILED
    return firing_states.Running(bench, job, LEASE).judge(NOW)  # type: ignore[arg-type]


def status(state: State) -> int:
    """Return the exit status with which the guard leaves."""
    assert isinstance(state, firing_states.Over)
    return state.exit_status


def test_what_is_told_while_the_end_is_being_recorded_counts(bench: Bench, keeping: State) -> None:
    """A signal between the end of the attempt and the answer of the store: there is no delay to end yet."""
    recording = keeping.take_signal(15, already_there=False).take(Kept())
    assert bench.orders.given == [("keep", None), ("end", "after SIGTERM to oncecron")]
    assert status(recording.take(Recorded(None))) == 3


def test_a_store_that_does_not_take_the_end_ends_the_retries(bench: Bench, keeping: State) -> None:
    """It is spooled, as any end, and no further attempt is made."""
    over = keeping.judge(NOW + 16)
    assert bench.orders.given == [("keep", None)]
    assert status(over) == 3
    spooled = [record["outcome"] for _, record in bench.spec.spool.pending("k")]
    assert spooled == ["failed"]


def test_an_attempt_that_may_have_begun_is_told_not_to_have(bench: Bench, keeping: State) -> None:
    """The positive word is kept, and the lease released."""
    retrying = keeping.take(Kept()).judge(NOW + 11)
    retrying.take(NotRetried(StoreUnavailable("away"), unanswered=True))
    assert bench.orders.names == ["keep", "retry", "end"]
    [(_, record)] = bench.spec.spool.pending("k")
    assert (record["outcome"], record["attempt"]) == ("not-started", None)
