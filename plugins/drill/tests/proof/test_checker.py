"""The checker finds what is planted about trees, ticks and tokens, and nothing in a clean history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented import KEY, Invented, broken, holes

from oncecron_drill.checker import check
from oncecron_drill.history import Start


@pytest.fixture
def run() -> Invented:
    """Give a clean history: one host runs a tick, another is refused."""
    run = Invented()
    run.run()
    run.skip(run.fire(100.2, "h2"), "done")
    return run


def taken_over(run: Invented, *, at: float = 110.0, until: float = 110.2) -> tuple[Start, Start]:
    """Add a start of h1 that is lost at `until`, and one of h2 at `at`."""
    older = run.start(
        run.fire(101.0, "h1", "t2", status=75, lasts=10),
        lasts=until - 101.1,
        ended=None,
        status=None,
    )
    newer = run.start(run.fire(at - 0.1, "h2", "t3"))
    return older, newer  # fmt: skip


def test_a_clean_history_breaks_nothing(run: Invented) -> None:
    """Nothing is found, and all is counted."""
    run.fault(150.0, 160.0)
    verdict = check(run.history)
    assert (verdict.violations, verdict.holes) == ([], [])
    assert verdict.counts["executions"] == {"succeeded": 1}
    assert verdict.counts["skips"] == {"done": 1}


# Overlaps


def lost_while(
    run: Invented, *roles: str, until: float | None = 110.0, how: str = "stopped"
) -> None:
    """Let h1's lost job live while h2's runs, with processes of its firing hit at 102."""
    older, _ = taken_over(run)
    firing = run.history.firings[older.wrapper - 1001]
    run.stop(firing, *roles, at=102.0, until=until, how=how)


FOUND, EXCUSED = (["overlap"], []), ([], ["overlap"])


@pytest.mark.parametrize(
    ("roles", "until", "rules"),
    [
        (("wrapper",), 110.0, FOUND), (("guard", "job"), 110.0, FOUND), (("wrapper", "job"), 110.0, FOUND),
        (("wrapper", "guard", "job"), 110.0, EXCUSED),  # nobody could kill the tree, and it died when they woke
        (("wrapper", "guard"), 105.0, FOUND),  # they had woken long before the second tree began
    ],
)  # fmt: skip
def test_trees_that_cross_are_an_overlap(
    run: Invented, roles: tuple[str, ...], until: float, rules: object
) -> None:
    """What both wrote of their lives is proof enough; a hole, where wrapper and guard were stopped together."""
    lost_while(run, *roles, until=until)
    assert (broken(run), holes(run)) == rules


def test_a_locked_file_is_an_overlap(run: Invented) -> None:
    """What the kernel's lock says counts, though the first wrote nothing any more."""
    newer = run.run(105.0, "h2", "t2")
    newer.overlaps.append((105.2, run.history.starts[0].file))
    (found,) = check(run.history).violations
    assert found.rule == "overlap"
    assert [start.host for start in found.starts] == ["h1", "h2"]


def test_a_locked_file_without_a_line_is_an_overlap(run: Invented) -> None:
    """Something lived that died before its first line was whole."""
    run.history.starts[0].overlaps.append((100.2, f"{KEY}/none"))
    assert broken(run) == ["overlap"]


def test_two_proofs_are_one_overlap(run: Invented) -> None:
    """Lock and lives of the same two trees are told once."""
    older, newer = taken_over(run)
    newer.overlaps.append((newer.at, older.file))
    run.fault(102.0, 103.0)
    assert broken(run) == ["overlap"]


def test_what_a_success_left_behind_is_no_overlap(run: Invented) -> None:
    """It is no longer part of the run."""
    run.history.starts[0].last_sign = 150.0
    run.run(110.0, "h2", "t2")
    assert broken(run) == []


def test_wrapper_and_guard_killed_together_are_a_hole(run: Invented) -> None:
    """Nobody is left who could kill what the job had started."""
    lost_while(run, "wrapper", "guard", how="killed", until=102.0)
    run.history.firings[-2].status = -9
    assert (broken(run), holes(run)) == ([], ["overlap"])


@pytest.mark.parametrize(
    ("wakes", "rules"), [(108.5, (["overlap"], [])), (109.5, ([], ["overlap"]))]
)
def test_both_stopped_but_not_at_once_is_no_hole(
    run: Invented, wakes: float, rules: object
) -> None:
    """There was no moment at which neither could act, if the wrapper woke before the guard was stopped."""
    older, _ = taken_over(run)
    firing = run.history.firings[older.wrapper - 1001]
    run.stop(firing, "wrapper", at=102.0, until=wakes)
    run.stop(firing, "guard", at=109.0, until=112.0)
    assert (broken(run), holes(run)) == rules


def test_both_stopped_when_it_had_begun_is_no_hole(run: Invented) -> None:
    """They could have acted when the second tree began."""
    older, _ = taken_over(run, at=105.0, until=110.2)
    firing = run.history.firings[older.wrapper - 1001]
    run.stop(firing, "wrapper", "guard", at=107.0, until=110.0)
    assert (broken(run), holes(run)) == (["overlap"], [])


def test_a_tree_that_lives_long_after_they_woke_is_no_hole(run: Invented) -> None:
    """Whoever wakes beyond the lease has to kill at once."""
    older, _ = taken_over(run, until=118.0)
    firing = run.history.firings[older.wrapper - 1001]
    firing.ended = 119.0
    run.stop(firing, "wrapper", "guard", at=102.0, until=110.0)
    assert (broken(run), holes(run)) == (["overlap"], [])


@pytest.mark.parametrize(("again", "rules"), [(111.0, EXCUSED), (114.0, FOUND)])
def test_a_tree_whose_guards_are_frozen_again_is_a_hole(
    run: Invented, again: float, rules: object
) -> None:
    """If that was before they had woken."""
    older, _ = taken_over(run, until=118.0)
    firing = run.history.firings[older.wrapper - 1001]
    firing.ended = 119.0
    run.stop(firing, "wrapper", "guard", at=102.0, until=110.0)
    run.stop(firing, "wrapper", "guard", at=again, until=118.0)
    assert (broken(run), holes(run)) == rules


def test_a_guard_killed_long_before_the_wrapper_is_no_hole(run: Invented) -> None:
    """The wrapper had the time to kill what the guard had left."""
    older, _ = taken_over(run)
    firing = run.history.firings[older.wrapper - 1001]
    firing.status = -9
    run.stop(firing, "guard", at=102.0, until=102.0, how="killed")
    run.stop(firing, "wrapper", at=108.0, until=108.0, how="killed")
    assert (broken(run), holes(run)) == (["overlap"], [])


@pytest.mark.parametrize(("at", "rules"), [(110.0, ([], ["overlap"])), (117.0, (["overlap"], []))])
def test_a_guard_stopped_within_the_grace_is_a_hole(
    run: Invented, at: float, rules: object
) -> None:
    """It ends the job of a killed wrapper by TERM first; beyond the grace it should have been done."""
    older, _ = taken_over(run, at=120.0, until=120.2)
    firing = run.history.firings[older.wrapper - 1001]
    firing.status = -9
    run.stop(firing, "wrapper", at=102.0, until=102.0, how="killed")
    run.stop(firing, "guard", at=at, until=121.0)
    assert (broken(run), holes(run)) == rules


# Ticks


AGAIN = ("--again",)


@pytest.mark.parametrize(
    ("options", "attempt", "found"), [((), 2, ["double"]), (AGAIN, 1, ["double"]), (AGAIN, 2, [])]
)
def test_a_tick_that_starts_twice_is_found(
    run: Invented, options: tuple[str, ...], attempt: int, found: list[str]
) -> None:
    """At most one start of a tick; --again is the one way to a second one, which is another attempt."""
    run.start(run.fire(110.0, "h2", "t1", options=options), attempt=attempt)
    assert broken(run) == found


def test_again_of_somebody_else_is_no_excuse(run: Invented) -> None:
    """The firing that starts must have asked itself."""
    run.start(run.fire(110.0, "h2", "t1", options=("--again",)), attempt=2)
    run.start(run.fire(120.0, "h3", "t1"), attempt=3)
    assert broken(run) == ["double"]


@pytest.mark.parametrize(("outcome", "found"), [("not-started", []), ("lost", ["double"])])
def test_only_the_positive_word_reopens_a_tick(
    run: Invented, outcome: str, found: list[str]
) -> None:
    """A claim that was given back lets the tick start; one that is silent does not."""
    run.fault(105.0, 106.0)
    silent = run.fire(105.0, "h2", "t9", status=75, stderr="oncecron: key billing: asked to stop\n")
    run.row(silent, token=1500, outcome=outcome)
    run.token = 2000
    run.start(run.fire(110.0, "h3", "t9"), attempt=2)
    assert broken(run) == found


@pytest.mark.parametrize(("at", "found"), [(102.0, []), (140.0, ["double"])])
def test_a_store_that_may_forget_may_repeat_what_it_forgot(at: float, found: list[str]) -> None:
    """A claim just before such a failover is a documented hole, one long before is none."""
    run = Invented(loses=["failover"])
    run.run(100.0)
    run.start(run.fire(at + 5, "h2"), attempt=1)
    run.fault(at, at + 3, kind="failover")
    assert broken(run) == found
    assert holes(run) == ([] if found else ["double"])


# Tokens


@pytest.mark.parametrize("token", [1001, 900])
def test_tokens_rise(run: Invented, token: int) -> None:
    """A later start has a higher token, never the same or a lower one."""
    start = run.run(110.0, "h2", "t2")
    start.token = run.history.log.executions[-1]["fencing_token"] = token
    assert "token" in broken(run)


def test_a_frozen_start_comes_late_with_its_old_token(run: Invented) -> None:
    """Frozen between its last look at the clock and its start: the hole that the token is for."""
    frozen = run.fire(101.5, "h1", "t2", status=75, lasts=20)
    start = run.start(frozen, at=120.0, lasts=0.2, ended=None, status=None)
    newer = run.start(run.fire(115.0, "h2", "t3"), lasts=8)
    run.stop(frozen, "wrapper", "guard", at=101.6, until=119.9)
    assert (broken(run), sorted(holes(run))) == ([], ["overlap", "token"])
    assert start in check(run.history).holes[0].starts
    start.token = newer.token
    assert "token" in broken(run)


def test_a_stale_write_that_was_accepted_is_found(run: Invented) -> None:
    """The register never goes back to a lower token; another key's is its own."""
    run.history.log.register += [(KEY, 5), ("backup", 2), (KEY, 5), (KEY, 6)]
    assert broken(run) == []
    run.history.log.register.append((KEY, 5))
    assert broken(run) == ["fence"]


def test_refused_writes_of_a_stale_child_are_counted(run: Invented) -> None:
    """They are what closes the hole; a refused write of whoever holds the lease is not one."""
    lost_while(run, "wrapper", "guard")
    older, newer = run.history.starts[1:]
    older.fenced += [(104.0, True), (105.0, False), (110.1, False), (110.2, False)]
    newer.fenced += [(110.3, True), (110.4, False)]
    verdict = check(run.history)
    assert verdict.violations == []
    assert verdict.counts["stale writes refused"] == 2


# Anything legal


@st.composite
def legal(draw: st.DrawFn) -> Invented:
    """Give a history in which ticks come one after another, and each ends in one of the ways that are promised."""
    run = Invented()
    at = 100.0
    for number in range(draw(st.integers(0, 12))):
        tick = draw(st.sampled_from([f"t{number}", None]))
        hosts = draw(st.permutations(["h1", "h2", "h3"]))
        end = draw(
            st.sampled_from(
                ["succeeded", "failed", "timed-out", "stopped", "lost", "frozen", "killed", "away"]
            )
        )
        ended = _tick(run, at, hosts[0], tick, end)
        for host in hosts[1 : draw(st.integers(1, 3))]:
            run.skip(
                run.fire(at + 0.05, host, tick),
                "held" if end == "away" else draw(st.sampled_from(["done", "held"])),
            )
        at = ended + draw(st.floats(0.2, 20))
    run.history.quiet = run.history.end = at
    return run  # fmt: skip


def _tick(run: Invented, at: float, host: str, tick: str | None, end: str) -> float:
    """Let one firing meet one end; return when that is over."""
    statuses = {"failed": 3, "timed-out": 124, "lost": 75, "frozen": 75, "killed": -9, "away": 69}
    options = ("--timeout", "1s") if end == "timed-out" else ()
    said = "oncecron: key billing: away\n" if end in ("away", "lost", "frozen") else ""
    firing = run.fire(at, host, tick, status=statuses.get(end, 0), options=options, stderr=said)
    if end == "away":
        run.fault(at - 0.1, at + 1)
        run.skip(firing, "no-store")
        return at + 1
    start = run.start(firing, lasts=1.0)
    row = run.history.log.executions[-1]
    if end in ("timed-out", "stopped"):
        start.signals.append((at + 0.9, "TERM"))
        start.status, firing.status = 9, 124 if end == "timed-out" else 9
        row.update(outcome=end, exit_code=9)
    elif end in ("lost", "frozen", "killed"):
        start.ended = start.status = None
        row.update(outcome="lost", exit_code=None, signal=9)
    if end == "lost":
        run.fault(at - 0.1, at + 1)
    elif end == "frozen":
        run.stop(firing, "wrapper", "guard", "job", at=at + 0.5, until=at + 1)
    elif end == "killed":
        run.stop(firing, "wrapper", "guard", "job", at=at + 1, until=at + 1, how="killed")
    return at + 1.2


@given(legal())
def test_a_legal_history_breaks_nothing(run: Invented) -> None:
    """Whatever follows whatever."""
    verdict = check(run.history)
    assert (verdict.violations, verdict.holes) == ([], [])
