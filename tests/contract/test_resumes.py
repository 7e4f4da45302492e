"""A firing of `each` resumes what was lost or stopped of its tick, however old, and nothing that has ended."""

import pytest
from hosts import Host, minute

from oncecron.core.tick import named_tick


@pytest.mark.parametrize("outcome", ["lost", "stopped"])
def test_what_may_have_left_something_is_resumed(a: Host, b: Host, outcome: str) -> None:
    """As often as it takes, each time with a higher token, and never beside the holder."""
    first = a.run(minute(1), outcome, resumes=True)
    for attempt in (2, 3, 4):
        lease = b.win(minute(1), resumes=True)
        assert (lease.attempt, lease.cause) == (attempt, "takeover")
        assert lease.token > first.token
        assert a.lose(minute(1), resumes=True).reason == "held"
        b.finish(lease, outcome)


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "timed-out"])
def test_what_has_ended_is_not_resumed(a: Host, b: Host, outcome: str) -> None:
    """Whatever the exit status: nothing was left for it."""
    a.run(minute(1), outcome, resumes=True)
    assert b.lose(minute(1), resumes=True).reason == "done"


def test_an_older_tick_is_resumed_if_it_was_begun(a: Host, b: Host) -> None:
    """Its items are not those of the newer tick; a tick that has no execution is over."""
    a.run(minute(1), "stopped", resumes=True)
    a.run(minute(3), resumes=True)
    assert b.run(minute(1), resumes=True).attempt == 2
    assert b.lose(minute(2), resumes=True).reason == "passed"


def test_an_ordinary_firing_resumes_nothing(a: Host, b: Host) -> None:
    """What a person has stopped is done for `run`."""
    a.run(named_tick("one"), "stopped")
    assert b.lose(named_tick("one")).reason == "done"
