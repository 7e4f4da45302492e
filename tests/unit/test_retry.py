"""Whether another attempt follows, and when."""

import pytest

from oncecron.core.model import Ending
from oncecron.core.retry import Backoff, RetryPolicy

RETRYING = RetryPolicy(2, (5.0, 300.0), frozenset({64}))


@pytest.mark.parametrize(
    ("attempt", "longest"), [(1, 10.0), (2, 20.0), (6, 300.0), (60, 300.0), (5000, 300.0)]
)
def test_a_delay_is_random_between_the_base_and_a_bound_that_doubles(
    attempt: int, longest: float
) -> None:
    """uniform(base, min(cap, base * 2**attempt)): never outside, and all over it."""
    delays = sorted(RETRYING.seconds_after(attempt) for _ in range(2000))
    assert delays[0] >= 5.0
    assert delays[-1] < longest
    assert delays[0] < 5.0 + 0.02 * (longest - 5.0)
    assert delays[-1] > longest - 0.02 * (longest - 5.0)
    middle = (5.0 + longest) / 2
    assert abs(sum(delays) / len(delays) - middle) < 0.05 * (longest - 5.0)


def test_a_backoff_doubles_to_its_cap_and_stays_there_however_many_fail() -> None:
    """A store may be away for days: the number of failures in a row has no bound. A success begins anew."""
    backoff = Backoff(base=1.0, cap=8.0)
    for bound in (2.0, 4.0, 8.0, *[8.0] * 5000):
        assert 0 <= backoff.delay() < bound
    assert max(backoff.delay() for _ in range(100)) > 4
    backoff.reset()
    assert backoff.delay() < 2.0


@pytest.mark.parametrize(
    ("outcome", "wanted"),
    [
        ("failed", True), ("timed-out", True), ("succeeded", False), ("stopped", False), ("lost", False),
    ],
)  # fmt: skip
def test_only_what_failed_is_run_again(outcome: str, wanted: bool) -> None:
    """Not what somebody stopped, nor what was lost: that is failover's."""
    assert RETRYING.wanted(Ending(outcome, 3, None, 1.0), 1) is wanted


def test_the_number_of_the_attempt_counts() -> None:
    """Whoever made those before it."""
    failed = Ending("failed", 3, None, 1.0)
    assert [RETRYING.wanted(failed, attempt) for attempt in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]
