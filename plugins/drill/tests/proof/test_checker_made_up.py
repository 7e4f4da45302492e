"""The checker finds ticks that are begun in a wrong order, and what should have been made up (--catch-up)."""

import pytest
from invented import Invented, broken, holes

from oncecron.core.tick import at
from oncecron_drill.history import Start

WALL = 1_800_000_000
"""Zero of the history's clock: a full minute."""
CATCH_UP = ("--schedule", "* * * * *", "--catch-up", "1h")


@pytest.fixture
def run() -> Invented:
    """Give a history without an event."""
    return Invented(wall=WALL, keys={}, loses=("crash",))


def tick(minute: int) -> str:
    """Return the text of a minute."""
    return at(WALL + 60 * minute, "").text or ""


def begin(
    run: Invented, minute: int, *options: str, later: float = 2.0, of: int | None = None
) -> Start:
    """Fire in a minute, and start its tick (`of`: another one)."""
    firing = run.fire(60 * minute + later, tick=None, options=options)
    return run.start(firing, tick=tick(minute if of is None else of))


def end(run: Invented) -> list[str]:
    """Record each start under its tick; return the rules that are broken."""
    for start, row in zip(run.history.starts, run.history.log.executions, strict=True):
        row["tick"] = start.tick
    return broken(run)


@pytest.mark.parametrize(("options", "found"), [((), ["order"]), (("--again",), [])])
def test_no_tick_is_begun_after_a_newer_one(
    run: Invented, options: tuple[str, ...], found: list[str]
) -> None:
    """Unless a person asks for it."""
    begin(run, 3)
    begin(run, 5)
    begin(run, 6, *options, of=4)
    begin(run, 7)
    assert end(run) == found


def test_a_store_that_forgets_forgets_the_order(run: Invented) -> None:
    """That is a documented hole."""
    begin(run, 5)
    run.fault(305.0, 306.0)
    begin(run, 6, of=4)
    assert end(run) == []
    assert holes(run) == ["order"]


@pytest.mark.parametrize(
    ("at", "target", "step", "hole"),
    [
        (400.0, "store", -301, True),
        (400.0, "store", -300, False),
        (430.0, "store", -301, False),
        (400.0, "h1", -301, False),
    ],
)
def test_a_tick_far_ahead_of_the_store_does_not_count(
    run: Invented, at: float, target: str, step: int, hole: bool
) -> None:
    """Where the store's clock had been set back: more than 5 minutes, and not sooner."""
    begin(run, 7, later=-30.0)
    begin(run, 6, later=60.0)
    run.fault(at, 700.0, target, "step the clock").detail = f"{step} s"
    assert end(run) == ([] if hole else ["order"])
    assert holes(run) == (["order"] if hole else [])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (CATCH_UP, ["not-made-up"] * 2),
        ((*CATCH_UP[:3], "90s"), ["not-made-up"]),
        (CATCH_UP[:2], []),
        ((*CATCH_UP, "--again"), []),
    ],
)
def test_what_was_missed_is_made_up(
    run: Invented, options: tuple[str, ...], found: list[str]
) -> None:
    """As far as the line says."""
    begin(run, 3, *options)
    begin(run, 4, *options)
    begin(run, 7, *options)
    assert end(run) == found


def test_what_is_made_up_is_left_no_more(run: Invented) -> None:
    """In its order, by the firing that comes after it."""
    begin(run, 3, *CATCH_UP)
    late = run.fire(60 * 6 + 2.0, tick=None, options=CATCH_UP)
    for number in (4, 5, 6):
        run.start(late, at=360.0 + number * 2, tick=tick(number))
    assert end(run) == []


@pytest.mark.parametrize("why", ["skip", "pause", "run", "first"])
def test_what_was_kept_is_not_made_up(run: Invented, why: str) -> None:
    """By people, by a run, or because the schedule was not known yet."""
    begin(run, 3, *CATCH_UP, later=90.0 if why == "first" else 2.0)
    if why == "skip":
        run.skip(run.fire(243.0, tick=tick(4)), "paused")
    if why == "pause":
        run.operate(230.0, "pause", "--all")
        run.operate(250.0, "resume", "--all")
    begin(run, 5, *CATCH_UP)
    if why == "run":
        row = run.history.log.executions[0]
        row |= {"started_at": WALL + 182.0, "finished_at": WALL + 239.5}
    assert end(run) == []


@pytest.mark.parametrize(
    ("minute", "found"),
    [(3, ["not-made-up"] * 3), (5, ["not-made-up"]), (6, []), (8, ["not-made-up"] * 3)],
)
def test_what_starts_without_a_lease_passes_older_ticks(
    run: Invented, minute: int, found: list[str]
) -> None:
    """The next firing makes up only what is newer."""
    options = (*CATCH_UP, "--on-store-error", "run")
    for each in (3, 7):
        begin(run, each, *options)
    unclaimed = run.fire(60 * minute + 9.0, tick=None, options=options)
    run.start(unclaimed, tick=tick(minute)).token = None
    run.history.log.executions[-1].update(outcome="unclaimed", fencing_token=None)
    assert end(run) == found
