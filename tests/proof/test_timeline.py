"""A timeline shows what a person needs, within its width; a summary adds up."""

import re
from itertools import pairwise

import pytest
from checker import check
from history import Firing, Start
from invented import KEY, Invented
from rules.verdict import Violation
from timeline import MOST, WIDTH, draw, summary


@pytest.fixture
def run() -> Invented:
    """Give a run in which h1's tree lives on while h2 runs, beside others."""
    run = Invented()
    run.run(100.0, "h3", "t1")
    lost = run.fire(
        110.0, "h1", "t2", status=75, lasts=20, stderr="oncecron: key billing: the lease was lost\n"
    )
    older = run.start(lost, lasts=15, ended=None, status=None)
    newer = run.run(120.0, "h2", "t3")
    newer.overlaps.append((120.2, older.file))
    older.fenced += [(111.0, True), (121.0, False)]
    older.signals.append((121.5, "TERM"))
    run.fault(112.0, 118.0, "h1", "cut", ((lost, "wrapper", "stopped"),))
    run.fault(119.0, 122.0, "store", "restart").detail = "pg_ctl restart"
    run.skip(run.fire(120.3, "h3", "t3"), "held")
    run.history.log.executions[1]["note"] = "lease ended, declared lost by h2"
    return run  # fmt: skip


def overlap(run: Invented) -> Violation:
    """Return the overlap."""
    return next(found for found in check(run.history).violations if found.rule == "overlap")


def drawn(run: Invented, violation: Violation | None = None) -> list[str]:
    """Return the lines of a timeline."""
    return draw(run.history, violation or overlap(run)).splitlines()


def lane(run: Invented, name: str) -> str:
    """Return all that stands in one lane, without the letters of the trees that live."""
    lines = drawn(run)
    number = next(number for number, line in enumerate(lines) if "store, network, run" in line)
    spans = [found.span() for found in re.finditer("-+", lines[number + 1])]
    (span,) = [(begin, end) for begin, end in spans if lines[number][begin:end].strip() == name]
    rows = [line[slice(*span)] for line in lines[number + 2 : lines.index("", number)]]
    return " ".join(re.sub(r"^([A-H]\| )+", "", row).strip() for row in rows).strip()


def test_it_fits_its_width(run: Invented) -> None:
    """A printed line is never longer."""
    run.history.faults[0].detail = "many words " * 40
    run.history.log.executions[1]["note"] = "many words " * 40
    assert max(map(len, drawn(run))) <= WIDTH


def test_it_begins_with_the_sentence_and_the_run(run: Invented) -> None:
    """What was broken, and how to have it again."""
    text = " ".join(drawn(run)[:4])
    assert text.startswith("VIOLATION (overlap): two trees of billing lived at once")
    assert "seed 7, store postgres" in text


def test_a_hole_is_called_a_hole(run: Invented) -> None:
    """Nobody shall take it for a failure."""
    violation = overlap(run)
    violation.hole = True
    assert drawn(run, violation)[0].startswith("DOCUMENTED HOLE (overlap)")


def test_times_rise_and_count_from_the_beginning(run: Invented) -> None:
    """Sorted, whatever the order in which it was recorded."""
    times = [float(found[1]) for line in drawn(run) if (found := re.match(r"\+([\d.]+) s", line))]
    assert len(times) > 10
    assert all(a <= b for a, b in pairwise(times))
    assert "+20.100 s" in "\n".join(drawn(run))


def test_each_host_has_a_lane_and_the_rest_one(run: Invented) -> None:
    """Hosts in which nothing happened have none."""
    run.history.head["hosts"].append("h4")
    header = next(line for line in drawn(run) if "store, network, run" in line)
    assert header.replace("|", "").split() == ["h1", "h2", "h3", "store,", "network,", "run"]


def test_both_trees_are_marked_while_they_live(run: Invented) -> None:
    """A row in which two lanes have their letter is the overlap."""
    lines = drawn(run)
    starts = next(line for line in lines if "B STARTS" in line)
    assert re.search(r"A\| .*B\| B STARTS", starts)
    assert not any("B|" in line for line in lines[: lines.index(starts)])
    assert not any("A|" in line for line in lines if "firing 2 leaves" in line)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("h1", ["firing 2 tick t2 (pid 1002)", "A STARTS tick t2 attempt 1 (pid 11002, token 1002)", "A gets TERM"]),
        ("h1", ["A writes fenced: refused", "A: last sign of life", "firing 2 leaves with 75: oncecron: key billing"]),
        ("h1", ["FAULT 1 cut: wrapper of firing 2 stopped", "fault 1 cut undone"]),
        ("h2", ["firing 3 tick t3", "B STARTS tick t3", "B finds alive: A", "B ENDS with 0", "firing 3 leaves with 0"]),
        ("h3", ["firing 4 tick t3 (pid 1004)", "firing 4 leaves with 0"]),
        ("store, network, run", ["FAULT 2 restart: pg_ctl restart", "fault 2 restart undone"]),
    ],
)  # fmt: skip
def test_each_thing_stands_in_its_lane(run: Invented, name: str, told: list[str]) -> None:
    """Firings, starts, signs of life, faults and who was hit, in their order."""
    text = re.sub(r"\s+", " ", lane(run, name))
    for words in told:
        assert words in text


def test_what_is_far_away_is_left_out(run: Invented) -> None:
    """Another tick long before, and another key, would only distract."""
    run.start(run.fire(120.0, "h3", "t9", key="backup"))
    text = "\n".join(drawn(run))
    assert "t1" not in text
    assert "t9" not in text


def test_too_much_is_cut_and_said_so(run: Invented) -> None:
    """What concerns the violation stays."""
    for number in range(MOST):
        run.skip(run.fire(119.0 + number / 100, "h3", "t3"), "held")
    text = "\n".join(drawn(run))
    assert re.search(r"\(\d+ events of other firings of billing are left out\)", text)
    assert "A STARTS" in text
    assert "B ENDS" in text


def test_the_log_follows(run: Invented) -> None:
    """The rows of the ticks concerned, with their notes, and the skips."""
    text = "\n".join(drawn(run)).partition(f"In the log of {KEY}:")[2]
    assert re.search(r"execution 2 +tick t2 .* lost .* h1 pid 1002 +token 1002", text)
    assert "declared lost by h2" in text
    assert re.search(r"skip +tick t3 +held +x 1 +last h3", text)
    assert "tick t1" not in text


def test_every_violation_can_be_drawn() -> None:
    """Also one without a key, a moment, or a start."""
    run = Invented()
    run.run()
    assert drawn(run, Violation("left", "a lease is left"))
    stray = Start("x/1", 100.0, "h9", 1, 2, "x", None, None, 1, None, None, 101.0)
    run.history.starts.append(stray)
    firing = Firing(9, 105.0, "h1", KEY, None, [], 1)
    assert drawn(run, Violation("stray", "who?", "x", None, [100.0], [stray], [firing]))


def test_a_summary_adds_up(run: Invented) -> None:
    """Counts, kinds, holes, the first violation."""
    text = summary(check(run.history), run.history)
    assert "seed 7, store postgres, 1 minutes, ttl 6.0 s, 3 hosts, 1 keys" in text
    assert re.search(r"^  firings +4$", text, re.MULTILINE)
    assert re.search(r"^  faults +2   2 kinds; cut: 1, restart: 1$", text, re.MULTILINE)
    assert re.search(r"^  violations +1   overlap: 1$", text, re.MULTILINE)
    assert "The first: two trees of billing lived at once" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_clean_run_says_so() -> None:
    """In one sentence at the end."""
    run = Invented()
    run.run()
    text = summary(check(run.history), run.history)
    assert text.endswith("No violation outside the documented holes.")
    assert re.search(r"^  violations +0$", text, re.MULTILINE)
