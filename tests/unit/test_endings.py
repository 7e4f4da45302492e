"""What follows the end of an attempt, where the order of events matters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncecron.config.run_parser import ParsedRun
from oncecron.core.model import Ending, Lease, Refusal
from oncecron.run.endings import Endings
from oncecron.run.events import NotRetried
from oncecron.run.job import JobEnd
from oncecron.run.reporter import Reporter
from oncecron.run.spec import make_spec

FAILED = JobEnd(Ending("failed", 3, None, 1.0), 3)
LEASE = Lease("k", 0, "t", "o", 1, 42, 9, 60.0, 0.0, 0.0)


class Orders:
    """The heartbeat thread's mailbox."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str | None]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Note the order, and the note of its ending."""
        return lambda ending=None: self.given.append((name, ending.note if ending else None))


@pytest.fixture
def orders() -> Orders:
    """Give what notes the orders."""
    return Orders()


@pytest.fixture
def endings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orders: Any) -> Endings:
    """Give the endings of a firing with retries."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = {"key": "k", "tick": "t", "store": "local", "retries": "2", "retry-delay": "10s"}
    spec = make_spec(ParsedRun(given, ["true"]))
    return Endings(spec, orders, Reporter(spec), idle=lambda: None)


def test_an_attempt_is_followed_by_another_after_the_delay(
    endings: Endings, orders: Orders
) -> None:
    """Recorded and kept, then retried when the delay is over, not before."""
    endings.record(LEASE, FAILED, 100.0)
    endings.wait_to_retry(101.0)
    endings.judge(110.9)
    assert orders.given == [("keep", None)]
    endings.judge(111.0)
    assert orders.given == [("keep", None), ("retry", None)]


def test_what_is_told_while_the_end_is_being_recorded_counts(
    endings: Endings, orders: Orders
) -> None:
    """A signal between the end of the attempt and the answer of the store: there is no delay to end yet."""
    endings.record(LEASE, FAILED, 100.0)
    endings.enough = "after SIGTERM to oncecron"
    endings.wait_to_retry(101.0)
    assert orders.given == [("keep", None), ("end", "after SIGTERM to oncecron")]
    endings.recorded(None)
    assert (endings.left, endings.exit_status) == (True, 3)


def test_a_store_that_does_not_take_the_end_ends_the_retries(
    endings: Endings, orders: Orders
) -> None:
    """It is spooled, as any end, and no further attempt is made."""
    endings.record(LEASE, FAILED, 100.0)
    endings.judge(116.0)
    assert orders.given == [("keep", None)]
    assert (endings.left, endings.exit_status) == (True, 3)
    spooled = [record["outcome"] for _, record in endings._spec.spool.pending("k")]
    assert spooled == ["failed"]


def test_an_attempt_that_may_have_begun_is_told_not_to_have(
    endings: Endings, orders: Orders
) -> None:
    """The positive word is kept, and the lease released."""
    endings.record(LEASE, FAILED, 100.0)
    endings.wait_to_retry(101.0)
    endings.judge(111.0)
    endings.not_retried(NotRetried(OSError("away"), unanswered=True), 112.0)
    assert [name for name, _ in orders.given] == ["keep", "retry", "end"]
    [(_, record)] = endings._spec.spool.pending("k")
    assert (record["outcome"], record["attempt"]) == ("not-started", None)


@pytest.mark.parametrize("text", ["the lease was lost", "key k: it", "key k, tick t: it"])
def test_a_line_names_the_key_once(
    endings: Endings, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    """The error of a store may have named it, with the tick."""
    endings._telling.say(text)
    assert capfd.readouterr().err.count("key k") == 1


def test_a_refusal_of_the_next_attempt_is_noted(endings: Endings, orders: Orders) -> None:
    """With who it was."""
    endings.record(LEASE, FAILED, 100.0)
    endings.wait_to_retry(101.0)
    endings.not_retried(NotRetried(Refusal("paused", detail="by eve@desk")), 112.0)
    assert orders.given[-1] == ("end", "no further attempt: paused (by eve@desk)")
