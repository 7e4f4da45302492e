"""What a certificate that has found nothing says: by how many faults of which classes, and never by a hole."""

import dataclasses
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from invented import Invented

from oncecron_drill.assess import assess
from oncecron_drill.certificate import as_text
from oncecron_drill.faults import BOTH_KILLED, BOTH_STOPPED, LONG_FROZEN, OUTSIDE, HostFaults
from oncecron_drill.history import Control, ItemEvent
from oncecron_drill.strength import FEWEST, TOGETHER, below

KILL, STOP, BOTH = "kill the guard", "stop the guard", "stop wrapper and guard"
CLASSES = {KILL: "a process killed", STOP: "a process stopped", BOTH: BOTH_STOPPED}


def drilled(**faults: int) -> Invented:
    """Invent a drill in which a control was caught, and so many faults of each kind hit a job and broke nothing."""
    run = Invented(
        items={}, retried=[], began_at=0.0, oncecron="0.1.0", python="3.11.2", kinds=CLASSES, hosts=["h1", "h2", "h3"]
    )  # fmt: skip
    run.history.control = Control(together=4, faults=22, starts=31)
    starts = [run.run(100.0 + 5 * number, "h1", f"t{number}") for number in range(6)]
    firing = run.history.firings[0]
    for kind, count in {KILL: faults.get("kill", 0), STOP: faults.get("stop", 0)}.items():
        for _ in range(count):
            # Of the job alone: of a guard the rules would ask what became of it.
            run.fault(
                starts[0].at + 2, starts[0].at + 2, "h1", kind, ((firing, "job", "signalled"),)
            )
    return run


def overlapping(run: Invented, both_out: int) -> None:
    """Let so many jobs lose wrapper and guard for a while, and a second job begin beside the first of them."""
    for number in range(both_out):
        at = 300.0 + 20 * number
        first = run.run(at, "h2", f"both{number}", lasts=12.0, status=75)
        firing = run.history.firings[-1]
        first.last_sign, first.ended, first.status = at + 10, None, None
        run.fault(
            at + 1,
            at + 10,
            "h2",
            BOTH,
            ((firing, "wrapper", "stopped"), (firing, "guard", "stopped")),
        )
        if number == 0:
            run.run(at + 8, "h3", f"after{number}")
    run.history.quiet = run.history.end = 400.0 + 20 * both_out


def test_the_bound_is_the_rule_of_three() -> None:
    """It is 3/n, nearly: a twentieth after the fewest faults."""
    assert 3 / FEWEST == 0.05
    assert below(FEWEST) == pytest.approx(0.0487, abs=0.0001)
    assert below(131) == pytest.approx(0.0226, abs=0.0001)
    assert below(1000) == pytest.approx(3 / 1000, rel=0.01)
    assert below(0) is None


def test_sixty_faults_of_every_class_are_clean() -> None:
    """The label has the strength, in all and by class."""
    found = assess(drilled(kill=40, stop=20).history)
    assert (found.verdict, found.why) == (
        "clean",
        "0 violations in 60 faults that hit: fewer than 4.9 % of such faults break it, at 95 %",
    )
    assert found.below == below(60)
    assert {name: (count.hit, count.below) for name, count in found.classes.items()} == {
        "a process killed": (40, below(40)),
        "a process stopped": (20, below(20)),
    }


@pytest.mark.parametrize("faults", [{"kill": 5, "stop": 4}, {"kill": 40, "stop": 19}, {}])
def test_fewer_have_found_nothing(faults: dict[str, int]) -> None:
    """That is no CLEAN, and the headline says so."""
    found = assess(drilled(**faults).history)
    hit = sum(faults.values())
    assert found.verdict == "nothing found"
    assert found.why.startswith(f"0 violations in {hit} faults that hit; at least 60 must")
    assert as_text(found).startswith("oncecron drill: NOTHING FOUND (too few faults)\n")


def test_a_class_that_was_not_tried_is_named() -> None:
    """However many there are of the others; the kinds that hit nothing stand under what was not tried."""
    found = assess(drilled(kill=100).history)
    assert found.verdict == "nothing found"
    assert "none of them: a process stopped" in found.why
    assert found.classes["a process stopped"].below is None
    assert any("stop the guard" in each for each in found.not_tried)


def test_a_hole_is_apart_and_makes_nothing_clean() -> None:
    """Its faults count for no strength, its findings are no violations, and it has numbers of its own."""
    run = drilled(kill=30, stop=29)
    overlapping(run, 3)
    found = assess(run.history)
    assert [each.rule for each in found.holes] == ["overlap"]
    assert (found.violations, found.verdict) == ([], "nothing found")
    counts = {name: (each.tried, each.overlapped) for name, each in found.outside.items()}
    assert counts == {BOTH_STOPPED: (3, 1)}
    verdict, _, apart = as_text(found).partition("\n\noutside the promise, and in no verdict:\n")
    assert f"{BOTH_STOPPED}: tried 3, overlapped 1" in " ".join(apart.split())
    assert "together" not in verdict
    assert "overlap" not in verdict


def test_what_is_killed_does_not_wake() -> None:
    """The job of a dead wrapper and guard meets another one long after the two were killed together."""
    run = drilled(kill=40, stop=20)
    overlapping(run, 1)
    [both] = [fault for fault in run.history.faults if fault.kind == BOTH]
    both.hit, both.healed = [(firing, role, "killed") for firing, role, _ in both.hit], both.at
    found = assess(run.history)
    assert [each.rule for each in found.holes] == ["overlap"]
    assert {name: each.overlapped for name, each in found.outside.items()} == {BOTH_STOPPED: 1}


def test_an_overlap_of_several_faults_is_told_too() -> None:
    """Each of them is within the promise, and both together are not: nothing that is excused is left untold."""
    run = drilled(kill=40, stop=20)
    overlapping(run, 1)
    [both] = [fault for fault in run.history.faults if fault.kind == BOTH]
    wrapper, guard = both.hit
    both.kind, both.hit = "stop the wrapper", [wrapper]
    run.history.faults.append(dataclasses.replace(both, kind=STOP, hit=[guard]))
    found = assess(run.history)
    assert [each.rule for each in found.holes] == ["overlap"]
    assert found.outside[TOGETHER].overlapped == 1
    assert f"{TOGETHER}: overlapped 1" in " ".join(as_text(found).split())


def test_items_that_were_worked_on_at_once_are_counted_too() -> None:
    """Though the log has no firing of theirs."""
    run = drilled(kill=40, stop=20)
    run.history.head["items"] = {"letters": 0}
    for number, (event, at) in enumerate(
        [("begin", 300.0), ("overlap", 308.0), ("begin", 308.0), ("end", 311.0)]
    ):
        firing = 900 if event == "begin" and number == 0 else 901
        run.history.items.append(ItemEvent("letters", event, "1", "t", firing, at))
    run.fault(301.0, 310.0, "h2", BOTH).hit = [
        (900, "wrapper", "stopped"),
        (900, "guard", "stopped"),
    ]
    run.history.head["retried"] = ["letters"]
    run.history.quiet = run.history.end = 400.0
    found = assess(run.history)
    assert [each.rule for each in found.holes] == ["beside"]
    assert {name: each.overlapped for name, each in found.outside.items()} == {BOTH_STOPPED: 1}


def test_a_drill_without_holes_says_so() -> None:
    """There is no section of them."""
    run = drilled(kill=40, stop=20)
    run.history.head["kinds"] = {KILL: CLASSES[KILL], STOP: CLASSES[STOP]}
    found = assess(run.history)
    assert (found.verdict, found.outside) == ("clean", {})
    assert "what the promise leaves out (--no-holes)" in found.not_tried
    assert "outside the promise" not in as_text(found)


def test_a_control_that_was_not_caught_judges_nothing() -> None:
    """Whatever the faults: a detector that does not detect. What it has found is still found."""
    run = drilled(kill=40, stop=20)
    run.history.control = Control(together=0, faults=22, starts=31, said="plain lock: refused")
    found = assess(run.history)
    assert found.verdict == "not judged"
    assert "the control was not caught" in found.why
    assert "plain lock: refused" in found.why
    run.start(run.fire(140.0, "h2", "t1"))
    assert assess(run.history).verdict == "violated"


def test_each_kind_of_fault_has_a_class() -> None:
    """Those outside the promise are the ones that leave nobody who could end a job; --no-holes leaves out no other."""

    def kinds(**how: bool) -> dict[str, str]:
        host: Any = SimpleNamespace(
            has_clock=True, is_foreign=False, freeze=None, thaw=None, power_off=None
        )
        proxies: Any = [None]
        found = HostFaults(host, proxies, Random(1), list, **how).kinds()
        return {kind.name: kind.of for kind in found}

    every = kinds()
    assert all(every.values())
    outside = {name: of for name, of in every.items() if of in OUTSIDE}
    assert outside == {
        "kill wrapper and guard": BOTH_KILLED,
        "stop wrapper and guard": BOTH_STOPPED,
        "stop wrapper and guard of a new job": BOTH_STOPPED,
        "freeze the host for long": LONG_FROZEN,
    }
    assert kinds(outside=False) == {name: of for name, of in every.items() if name not in outside}


def test_a_certificate_without_a_control_is_none() -> None:
    """A history that has none says nothing, however clean it is."""
    run = drilled(kill=40, stop=20)
    assert assess(run.history).verdict == "clean"
    bare = dataclasses.replace(run.history, control=Control())
    assert assess(bare).verdict == "not judged"
