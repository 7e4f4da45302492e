"""How a divided tick is reported: numbers as ranges, the worst shard, and which were not started."""

import pytest

from oncecron.log.tick_history import Division, listed


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([0, 1, 2, 5, 7, 8], "0-2, 5, 7-8"),
    ],
)
def test_runs_of_numbers_are_drawn_together(numbers: list[int], text: str) -> None:
    """Each run by its ends."""
    assert listed(numbers) == text


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ({0: "succeeded", 1: "succeeded"}, "succeeded"),
        ({0: "succeeded", 1: "failed"}, "failed"),
        ({0: "lost", 1: "failed"}, "lost"),
        ({0: "stopped", 1: "timed-out"}, "timed-out"),
        ({0: "unclaimed", 1: "succeeded"}, "unclaimed"),
        ({1: "failed"}, "incomplete"),
        ({1: "running"}, "running"),
        ({0: "failed", 1: "running"}, "running"),
    ],
)
def test_a_tick_is_as_good_as_its_worst_shard(outcomes: dict[int, str], verdict: str) -> None:
    """Once nothing runs, and all have been started."""
    assert Division(2, outcomes).verdict() == verdict


def test_a_division_is_described_the_good_shards_first() -> None:
    """With how many there are of each, and which."""
    division = Division(6, {0: "succeeded", 1: "succeeded", 2: "lost", 4: "running"})
    assert (
        division.described() == "2 succeeded (0-1), 1 lost (2), 1 running (4), 2 not started (3, 5)"
    )
