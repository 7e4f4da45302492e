"""The rule about items: each way in which a promise of `each` can be broken is seen, and nothing else."""

from typing import Any

import pytest
from invented import Invented, broken, holes

from oncecron_drill.history import CALM_TICK, ItemEvent


def played(*events: tuple[str, str, int], retried: bool = False, **states: str) -> Invented:
    """Invent a run with one list of two items, all of them done when all is quiet, and what happened in another tick.

    `events`: what was written, of which item, by which firing; `states`: of item `a` and `b` of that tick.
    """
    run = Invented(items={"letters": 2}, retried=["letters"] if retried else [])
    run.history.items = [
        ItemEvent("letters", event, item, "t1", firing, 100.0 + number)
        for number, (event, item, firing) in enumerate(events)
    ]
    row: dict[str, Any] = {"key": "letters", "tick": "t1"}
    run.history.log.items = [row | {"item": name, "state": state} for name, state in states.items()]
    for item in ("1", "2"):
        for event in ("begin", "end"):
            run.history.items.append(ItemEvent("letters", event, item, CALM_TICK, 9, 210.0))
        calm = {"tick": CALM_TICK, "item": item, "state": "done"}
        run.history.log.items.append(row | calm)
    return run


ONCE = (("begin", "a", 1), ("end", "a", 1))


def test_an_item_that_was_begun_once_is_well() -> None:
    """Done; or in doubt, whether it ended or not."""
    assert broken(played(*ONCE, a="done", b="queued")) == []
    assert broken(played(*ONCE, ("begin", "b", 1), a="lost", b="lost")) == []


def test_an_item_that_was_begun_twice_is_seen() -> None:
    """Unless it was to be retried."""
    assert broken(played(*ONCE, ("begin", "a", 2), a="lost")) == ["repeated"]
    assert broken(played(*ONCE, ("begin", "a", 2), a="lost", retried=True)) == []


@pytest.mark.parametrize(
    ("kind", "at", "excused"),
    [("failover", 100.5, True), ("failover", 110.0, False), ("failover", 90.0, False), ("crash", 100.5, False)],
)  # fmt: skip
def test_a_store_may_lose_a_draw_that_it_had_just_confirmed(
    kind: str, at: float, excused: bool
) -> None:
    """By a fault of a kind after which it may forget, soon after the draw; no other one excuses a repetition."""
    run = played(*ONCE, ("begin", "a", 2), a="lost")
    run.history.head["loses"] = ["failover"]
    run.fault(at, at + 1, kind=kind)
    assert (broken(run), holes(run)) == (([], ["repeated"]) if excused else (["repeated"], []))


def test_two_commands_of_one_item_are_seen() -> None:
    """By the lock of the item that was taken."""
    assert broken(played(*BOTH, a="done", retried=True)) == ["beside"]


BOTH = (
    ("begin", "a", 1), ("overlap", "a", 2), ("begin", "a", 2), ("end", "a", 2), ("end", "a", 1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("since", "until", "whose", "excused"),
    [
        (100.5, 103.5, 1, True),
        (100.5, 103.5, 2, False),  # the first could act
        (80.0, 82.0, 1, False),  # it was over long before
        (120.0, 121.0, 1, False),  # it came long after
        (
            100.5,
            100.8,
            1,
            False,
        ),  # the first lived on for longer than it takes to kill it on waking
    ],
)
def test_who_cannot_be_killed_may_work_beside_another(
    since: float, until: float, whose: int, excused: bool
) -> None:
    """Where wrapper and guard of the first could not act at that moment, and it was dead when they could."""
    run = played(*BOTH, a="done", retried=True)
    run.fault(since, until, "h1", "freeze", ())
    run.history.faults[0].hit = [(whose, "wrapper", "stopped"), (whose, "guard", "stopped")]
    assert (broken(run), holes(run)) == (([], ["beside"]) if excused else (["beside"], []))


def test_a_record_that_is_untrue_is_seen() -> None:
    """Done without an end, and queued after a begin, where no retry was wanted."""
    assert broken(played(("begin", "a", 1), a="done")) == ["untrue"]
    assert broken(played(("begin", "a", 1), a="queued")) == ["untrue"]
    assert broken(played(("begin", "a", 1), a="queued", retried=True)) == []


def test_an_item_that_is_left_out_is_seen() -> None:
    """When all was quiet."""
    run = played(*ONCE, a="done")
    run.history.log.items.pop()
    assert broken(run) == ["left-out"]
