"""What the log alone shows of the protocol, where its times are not in the order of what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oncecron.core.log_rows import Execution, Traced
from oncecron.core.text import Clock
from oncecron.log.protocol import Known, ShardRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.model import Outcome


def attempt(number: int, at: float, owner: str, cause: str = "schedule") -> Traced:
    """Return an attempt of one tick that failed within a second; the store gave ids and tokens in this order."""
    execution = Execution(
        *(number, "billing", 0, "2026-11-29T02:00Z", number, "failed", 1, None, "a", 1, "root", "bill"),
        *(at, at + 1, 1.0, number, owner, None),
        cause=cause,
    )  # fmt: skip
    return Traced(execution, 100.0, at, None)


def findings(attempts: Sequence[Traced]) -> list[str]:
    """Return what is found; all attempts are in the log."""
    known = Known(Clock(utc=True), attempts=lambda _execution: attempts)
    rules = ShardRules(known)
    in_order = sorted(attempts, key=lambda each: each.execution.started_at)
    return [found.finding for each in in_order for found in rules.see(each)]


@pytest.mark.parametrize("second", [200.0, 400.0])
def test_a_store_whose_clock_was_set_back_is_no_finding(second: float) -> None:
    """Attempt 3 may have an earlier time than attempt 2, without which nothing would explain it."""
    first = attempt(1, 100.0, "one")
    taken_over = attempt(2, second, "two", "takeover")
    assert findings([first, taken_over, attempt(3, 300.0, "two", "retry")]) == []


@pytest.mark.parametrize("second", [200.0, 400.0])
def test_an_attempt_without_a_reason_is_found_in_any_order(second: float) -> None:
    """Once its predecessor is there."""
    first = attempt(1, 100.0, "one")
    taken_over = attempt(2, second, "two", "takeover")
    assert findings([first, taken_over, attempt(3, 300.0, "three", "retry")]) == ["twice"]


def run(number: int, start: float) -> Traced:
    """Return a run of five seconds of a tick of its own; the store gave ids and tokens in this order."""
    execution = Execution(
        *(number, "billing", 0, f"tick-{number}", 1, "succeeded", 0, None, "a", 1, "root", "bill"),
        *(start, start + 5, 5.0, number, f"owner-{number}", None),
    )  # fmt: skip
    return Traced(execution, 100.0, start, None)


def test_two_at_a_time_are_found_unless_the_clock_was_set_back_between_them() -> None:
    """The later one has the higher token: with the earlier time, the times prove nothing."""
    assert findings([run(1, 200.0), run(2, 203.0)]) == ["overlap"]
    assert findings([run(1, 203.0), run(2, 200.0)]) == []


def test_a_clock_that_had_read_a_later_time_before_the_start_is_no_overlap() -> None:
    """A token is at least the time of the store's clock: here one that is later than the end of the run before."""
    first, second = run(200_000_000, 200.0), run(300_000_001, 203.0)
    assert findings([first, second]) == []
    assert findings([first, run(203_000_000, 203.0)]) == ["overlap"]
    assert findings([run(300_000_000, 200.0), second]) == ["overlap"]  # the token was ahead before


def ended(traced: Traced, outcome: Outcome, lost_at: float | None = None) -> Traced:
    code = 0 if outcome == "succeeded" else None
    return traced._replace(
        execution=traced.execution._replace(outcome=outcome, exit_code=code), lost_at=lost_at
    )


@pytest.mark.parametrize(
    ("cause", "lost_at", "found"),
    [("manual", 250.0, []), ("manual", None, ["twice"]), ("takeover", 250.0, ["twice"])],
)
def test_a_takeover_of_what_was_lost_before_its_job_began(
    cause: str, lost_at: float | None, found: list[str]
) -> None:
    """A person may start a success again; who took over from that follows the loss, though no job ran."""
    first = ended(attempt(1, 100.0, "one"), "succeeded")
    again = ended(attempt(2, 200.0, "two", cause), "not-started", lost_at)
    assert findings([first, again, attempt(3, 300.0, "three", "takeover")]) == found
