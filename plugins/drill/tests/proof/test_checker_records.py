"""The checker finds what is planted about starts and their rows."""

from typing import Any

import pytest
from invented import AWAY, KEY, Invented, broken, every, holes, row

# Starts and their rows


def test_a_start_needs_a_row(run: Invented) -> None:
    """A start that is in no log is found."""
    run.history.log.executions.clear()
    assert broken(run) == ["unrecorded"]


def test_a_start_without_a_token_had_no_lease(run: Invented) -> None:
    """Nothing may run without a lease here."""
    run.history.starts[0].token = None
    run.history.log.executions.clear()
    assert broken(run) == ["unrecorded"]


def test_a_start_needs_a_firing(run: Invented) -> None:
    """Nobody else starts a job."""
    run.history.firings[0].pid += 1
    run.skip(run.history.firings[0])
    assert broken(run) == ["stray"]


def test_a_reused_pid_belongs_to_the_last_firing(run: Invented) -> None:
    """Pids come again in a long run."""
    again = run.fire(150.0, "h1", "t2")
    again.pid = run.history.firings[0].pid
    run.start(again)
    assert broken(run) == []


@pytest.mark.parametrize(
    ("name", "wrong"), [("host", "h2"), ("pid", 11001), ("tick", "t2"), ("attempt", 2), ("execution_id", 9)]
)  # fmt: skip
def test_a_row_says_who_and_what(run: Invented, name: str, wrong: object) -> None:
    """The pid is the wrapper's, which cron waits for."""
    row(run)[name] = wrong
    assert broken(run) == ["unrecorded"]


@pytest.mark.parametrize(
    ("name", "found"), [("attempt", []), ("execution_id", []), ("pid", ["unrecorded"])]
)
@pytest.mark.parametrize("target", ["store", "h1"])
def test_a_row_that_was_put_back_has_another_id(
    run: Invented, name: str, target: str, found: list[str]
) -> None:
    """And perhaps another number; who and what stay. Only what the store had can be lost."""
    row(run)[name] = 7
    run.fault(100.5, 102.0, target)
    assert broken(run) == (found if target == "store" else ["unrecorded"])


def test_one_lease_has_one_row(run: Invented) -> None:
    """A second row with its token is found."""
    run.history.log.executions.append(dict(row(run)))
    assert broken(run) == ["unrecorded"]


@pytest.mark.parametrize("outcome", ["running", "unclaimed"])
def test_nothing_stays_open(run: Invented, outcome: str) -> None:
    """When all is over nothing runs, and nothing ran without a lease."""
    row(run)["outcome"] = outcome
    assert broken(run) == [outcome]


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "failed"}, {"exit_code": 3}, {"exit_code": 3, "outcome": "failed"}, {"exit_code": None},
        {"exit_code": None, "signal": 9, "outcome": "failed"}, {"outcome": "not-started"},
        {"outcome": "stopped"}, {"outcome": "timed-out"}, {"outcome": "lost", "exit_code": None},
    ],
)  # fmt: skip
def test_an_outcome_is_the_job_s_own(run: Invented, wrong: dict[str, Any]) -> None:
    """The row cannot say otherwise than the job that ended with 0."""
    row(run).update(wrong)
    assert "outcome" in broken(run)


def test_a_job_that_never_ended_did_not_succeed(run: Invented) -> None:
    """Its last word would be in its file."""
    start = run.history.starts[0]
    start.ended = start.status = None
    assert broken(run) == ["outcome"]


def test_a_job_may_end_itself_by_a_signal(run: Invented) -> None:
    """The row then has the signal, and the firing leaves with 128 + n."""
    run.history.starts[0].status = -15
    run.history.firings[0].status = 143
    row(run).update(outcome="failed", exit_code=None, signal=15)
    assert broken(run) == []


@pytest.mark.parametrize(("role", "found"), [("job", []), ("guard", ["outcome"])])
def test_a_killed_job_failed_by_signal(run: Invented, role: str, found: list[str]) -> None:
    """If somebody killed it."""
    start, firing = run.history.starts[0], run.history.firings[0]
    start.ended = start.status = None
    firing.status = 137
    row(run).update(outcome="failed", exit_code=None, signal=9)
    run.stop(firing, role, at=101.0, until=101.0, how="killed")
    assert broken(run) == found


@pytest.mark.parametrize(("at", "found"), [(101.0, []), (106.0, ["outcome"])])
@pytest.mark.parametrize("outcome", ["failed", "stopped"])
def test_a_signal_to_one_attempt_explains_no_other(
    outcome: str, at: float, found: list[str]
) -> None:
    """A firing that retries has several starts; each needs its own reason."""
    run = Invented()
    firing = run.fire(status=137, options=("--retries", "1"))
    first = run.start(firing)
    run.start(firing, at=105.0, attempt=2, status=3)
    first.ended = first.status = None
    rows = run.history.log.executions
    rows[0].update(outcome=outcome, exit_code=None, signal=9)
    rows[1].update(outcome="failed", exit_code=3)
    firing.status = 3
    run.stop(firing, "job", at=at, until=at, how="killed")
    assert [rule for rule in broken(run) if rule == "outcome"] == found


@pytest.mark.parametrize(("at", "found"), [(102.0, ["outcome"]), (118.0, [])])
def test_what_was_killed_is_dead_soon(at: float, found: list[str]) -> None:
    """What lives on for long died of something else."""
    run = Invented()
    firing = run.fire(status=137)
    start = run.start(firing, lasts=20.0)
    start.ended = start.status = None
    row(run).update(outcome="failed", exit_code=None, signal=9)
    run.stop(firing, "job", at=at, until=at, how="killed")
    assert broken(run) == found


@pytest.mark.parametrize(("limit", "found"), [("1s", []), ("1m", ["outcome"])])
def test_a_timeout_comes_in_time(limit: str, found: list[str]) -> None:
    """Not long before what --timeout says."""
    run = Invented()
    start = run.start(run.fire(status=124, options=("--timeout", limit)))
    start.status = row(run)["exit_code"] = 9
    assert broken(run) == found


def test_a_stopped_job_got_a_signal(run: Invented) -> None:
    """Or its wrapper was hit."""
    row(run)["outcome"] = "stopped"
    run.history.starts[0].signals.append((100.5, "TERM"))
    assert broken(run) == []


@pytest.mark.parametrize(
    ("target", "at", "found"),
    [("h1", 100.5, []), ("store", 100.5, []), ("h2", 100.5, ["outcome"]), ("store", 150.0, ["outcome"]),
     ("store", 90.0, ["outcome"])],
)  # fmt: skip
def test_a_lost_job_felt_a_fault(run: Invented, target: str, at: float, found: list[str]) -> None:
    """Of its host or of the store, while it ran or while its end was being recorded."""
    run.history.firings[0].status = 75
    row(run).update(outcome="lost", exit_code=None)
    run.fault(at, at + 1, target)
    assert broken(run) == found


def test_a_kill_is_over_at_once(run: Invented) -> None:
    """It explains no loss of another firing of its host much later, also if nobody noted its end."""
    run.history.firings[0].status = 75
    row(run).update(outcome="lost", exit_code=None)
    run.stop(run.skip_of("h1", 80.0), "wrapper", at=80.1, until=None, how="killed")
    assert broken(run) == ["outcome"]


# Rows without a start


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "stopped", "timed-out", "lost"])
def test_a_row_needs_a_start(run: Invented, outcome: str) -> None:
    """What never started did not end."""
    ghost = run.fire(110.0, "h2", "t2", status=75, stderr=AWAY)
    run.row(ghost, token=1500, outcome=outcome)
    assert "phantom" in broken(run)


def test_a_row_needs_a_firing(run: Invented) -> None:
    """Nobody else claims."""
    run.row(run.history.firings[0], token=1500, outcome="not-started")
    assert broken(run) == ["phantom"]


@pytest.mark.parametrize(("outcome", "status"), [("not-started", 69), ("lost", 75)])
def test_a_claim_that_was_not_used_has_a_row(run: Invented, outcome: str, status: int) -> None:
    """Given back, or lost by a fault."""
    run.row(run.fire(110.0, "h2", "t2", status=status, stderr=AWAY), token=1500, outcome=outcome)
    run.fault(110.0, 112.0)
    assert broken(run) == []


def test_a_row_is_of_the_firing_with_its_tick(run: Invented) -> None:
    """Pids come again: the fault was at the second one's time."""
    first, second = run.skip_of("h2", 110.0), run.fire(140.0, "h2", "t3", status=75, stderr=AWAY)
    second.pid = first.pid
    run.row(second, token=1500)
    run.fault(140.0, 141.0)
    assert broken(run) == []


def test_each_firing_has_a_row_of_its_own(run: Invented) -> None:
    """One row does not explain two, though their host and pid are the same."""
    for at in (110.0, 130.0):
        firing = run.fire(at, "h2", None, status=69, stderr=AWAY)
        firing.pid = 77
        run.row(firing, token=int(at), outcome="not-started")
    assert broken(run) == []
    run.history.log.executions.pop()
    assert broken(run) == ["unexplained"]


@pytest.mark.parametrize(("duration", "found"), [(0.1, []), (9.0, ["phantom"])])
def test_a_job_may_die_before_its_first_line(
    run: Invented, duration: float, found: list[str]
) -> None:
    """By a signal, soon, if its firing was hit."""
    firing = run.fire(110.0, "h2", "t2", status=-9)
    run.row(firing, token=1500, outcome="stopped", exit_code=None, signal=15, duration=duration)
    run.stop(firing, "wrapper", at=110.2, until=110.2, how="killed")
    assert broken(run) == found


# What an audit of the log finds


def find(run: Invented, finding: str) -> None:
    """Let the audit of the log find something about the first start."""
    about = {"finding": finding, "key": KEY, "tick": "t1", "reason": "a reason"}
    about |= {"execution_id": row(run)["execution_id"], "other_execution_id": None}
    run.history.log.findings.append(about)


@pytest.mark.parametrize(
    ("finding", "found"), [("late-end", ["audit"]), ("gap", ["audit"]), ("no-run", []), ("no-end", [])]
)  # fmt: skip
def test_what_an_audit_finds_is_found(run: Invented, finding: str, found: list[str]) -> None:
    """But for what faults may leave: other rules know these."""
    find(run, finding)
    assert broken(run) == found


@pytest.mark.parametrize(
    ("finding", "roles", "found"),
    [
        ("late-end", ("wrapper", "guard"), []), ("late-end", ("guard",), ["audit"]),
        ("gap", ("wrapper", "guard"), ["audit"]),
    ],
)  # fmt: skip
def test_an_audit_finds_who_could_not_act(
    run: Invented, finding: str, roles: tuple[str, ...], found: list[str]
) -> None:
    """A host that is frozen ends its job late: a documented hole, and none of the store."""
    find(run, finding)
    run.stop(run.history.firings[0], *roles, at=100.5, until=103.0)
    assert (broken(run), holes(run)) == (found, [] if found else ["audit"])


@pytest.mark.parametrize(("at", "found"), [(100.5, []), (140.5, ["audit"])])
def test_an_audit_finds_who_could_act_in_this_attempt(at: float, found: list[str]) -> None:
    """That nobody could in a later one of the same firing explains nothing."""
    run = Invented()
    firing = run.fire(status=3, options=("--retries", "1"))
    run.start(firing)
    run.start(firing, at=140.0, attempt=2)
    find(run, "late-end")
    run.stop(firing, "wrapper", "guard", at=at, until=at + 3.0)
    assert [rule for rule in broken(run) if rule == "audit"] == found


@pytest.mark.parametrize(
    ("roles", "found"), [(("wrapper", "guard"), []), (("guard",), ["audit"])]
)  # fmt: skip
def test_an_audit_finds_who_was_frozen_before_the_first_word(
    roles: tuple[str, ...], found: list[str]
) -> None:
    """Its job had been started, and never came to write."""
    run = Invented()
    firing = run.fire(110.0, "h1", "t1", status=75, lasts=20.0)
    run.row(firing, token=1500, outcome="lost")
    find(run, "late-end")
    run.stop(firing, *roles, at=112.0, until=125.0)
    assert [rule for rule in every(run) if rule == "audit"] == found


@pytest.mark.parametrize(
    ("store", "found"), [("sqlite", []), ("postgres", ["audit"])]
)  # fmt: skip
def test_an_audit_goes_by_the_clock_of_the_store(store: str, found: list[str]) -> None:
    """On SQLite that is the clock of a host, which may be set."""
    run = Invented(store=store)
    run.run()
    find(run, "overlap")
    run.fault(100.5, 102.0, "h1", "step the clock").detail = "+20 s"
    assert broken(run) == found


@pytest.mark.parametrize(("at", "found"), [(101.0, []), (90.0, ["audit"])])
def test_an_audit_finds_what_a_store_has_forgotten(at: float, found: list[str]) -> None:
    """That is the store's hole, if it may forget at all."""
    run = Invented(loses=["failover"])
    run.run()
    find(run, "gap")
    run.fault(at, at + 1, "store", "failover")
    assert broken(run) == found
