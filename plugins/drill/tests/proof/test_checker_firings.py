"""The checker finds what is planted about firings and what they say, and about what is left when all is over."""

from typing import Any

import pytest
from invented import AWAY, KEY, Invented, broken, every, holes, row

from oncecron_drill.checker import check

STANDING_BY = "the store cannot be reached; still waiting (--failover)"


@pytest.mark.parametrize("said", ["", "oncecron: internal error: ValueError: x\n"])
def test_a_bug_is_a_bug(run: Invented, said: str) -> None:
    """Exit status 70 is never right, whatever is said."""
    run.fire(110.0, "h2", "t2", status=70, stderr=said)
    assert broken(run) == ["bug"]


def test_a_traceback_is_a_bug(run: Invented) -> None:
    """Whatever the status."""
    run.history.firings[0].stderr = "Traceback (most recent call last):\n"
    assert broken(run) == ["bug"]


@pytest.mark.parametrize(
    ("roles", "until", "found"),
    [((), None, ["exit"]), (("wrapper",), 130.0, ["exit"]), (("wrapper",), None, []), (("guard",), None, ["exit"])],
)  # fmt: skip
def test_every_firing_ends(
    run: Invented, roles: tuple[str, ...], until: float | None, found: list[str]
) -> None:
    """Unless its wrapper is stopped for good."""
    firing = run.fire(110.0, "h2", "t2", status=None)
    firing.ended = None
    run.stop(firing, *roles, at=110.1, until=until)
    assert broken(run) == found


def test_a_firing_dies_of_a_signal_only_if_it_was_sent(run: Invented) -> None:
    """A crash of the interpreter would look like this."""
    firing = run.fire(110.0, "h2", "t2", status=-11)
    assert broken(run) == ["exit"]
    run.stop(firing, "wrapper", at=110.1, until=110.1, how="killed")
    assert broken(run) == []


@pytest.mark.parametrize(
    ("lived", "role", "found"),
    [(9.0, None, []), (9.4, None, ["timeout"]), (9.4, "guard", []), (9.4, "job", ["timeout"])],
)
def test_a_timed_out_job_is_dead_soon(lived: float, role: str | None, found: list[str]) -> None:
    """Timeout, grace and 5 s after its start, unless who had to kill it could not."""
    run = Invented()
    options = ("--timeout", "1500ms", "--grace", "2700ms")
    firing = run.fire(status=124, lasts=10.0, options=options)
    run.start(firing, lasts=lived, signals=[(101.6, "TERM")])
    if role:
        run.stop(firing, role, at=101.0, until=104.0)
    assert broken(run) == found


@pytest.mark.parametrize(("at", "found"), [(111.0, []), (101.0, ["timeout"])])
def test_who_was_hindered_in_another_attempt_could_kill_this_one(
    at: float, found: list[str]
) -> None:
    """Each attempt has its timeout."""
    run = Invented()
    firing = run.fire(status=124, options=("--timeout", "1s", "--grace", "1s", "--retries", "1"))
    run.start(firing, lasts=2.0, signals=[(101.1, "TERM")])
    run.start(firing, at=110.0, lasts=9.0, attempt=2, signals=[(111.1, "TERM")])
    run.stop(firing, "guard", at=at, until=at + 3.0)
    assert [rule for rule in broken(run) if rule == "timeout"] == found


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [(102.0, 104.0, []), (80.0, 82.0, ["exit"]), (120.0, 121.0, ["exit"])],
)
def test_a_firing_outlives_its_job(
    run: Invented, since: float, until: float, found: list[str]
) -> None:
    """Unless it could not act, and nor could its guard, when it ended, or shortly before."""
    run = Invented()
    firing = run.fire(status=75, stderr="oncecron: the lease was lost\n")
    start = run.start(firing, lasts=4.5)
    start.ended = start.status = None
    firing.ended = 104.0
    run.stop(firing, "wrapper", "guard", at=since, until=until)
    assert [rule for rule in broken(run) if rule == "exit"] == found


@pytest.mark.parametrize(("reason", "found"), [("held", ["own-lease"]), ("passed", [])])
def test_a_firing_is_not_in_its_own_way(run: Invented, reason: str, found: list[str]) -> None:
    """Nobody is the holder of the lease that he is refused for."""
    firing = run.skip_of("h2", 110.0)
    skip = run.history.log.skips[-1]
    skip.update(reason=reason, holder_host="h2", holder_pid=firing.pid)
    assert broken(run) == found


def test_what_is_done_has_an_execution(run: Invented) -> None:
    """Of that tick, and of that part."""
    refused = run.skip(run.fire(110.0, "h2"), "done")
    assert broken(run) == []
    refused["shard"] = 1
    assert broken(run) == ["untrue"]


@pytest.mark.parametrize("status", [1, 75, 124, 128])
def test_a_firing_leaves_with_its_job_s_status(run: Invented, status: int) -> None:
    """It succeeded, so 0."""
    run.history.firings[0].status = status
    assert broken(run) == ["exit"]


def test_a_firing_whose_guard_was_hit_may_leave_with_75(run: Invented) -> None:
    """The record may have been made before."""
    firing = run.history.firings[0]
    firing.status = 75
    run.stop(firing, "guard", at=101.1, until=101.1, how="killed")
    assert broken(run) == []


@pytest.mark.parametrize(
    ("said", "found"), [("", ["exit"]), ("oncecron: key billing: a record is lost: no space\n", [])]
)
def test_a_job_recorded_as_lost_left_with_75(run: Invented, said: str, found: list[str]) -> None:
    """Or its record could not be kept on the disk, in so many words."""
    run.history.firings[0].stderr = said
    row(run).update(outcome="lost", exit_code=None)
    run.fault(100.5, 101.0)
    assert broken(run) == found


@pytest.mark.parametrize(
    ("options", "own", "status", "found"),
    [
        ((), 143, 143, []), ((), None, 137, []), ((), 143, 124, ["exit"]),
        (("--timeout", "1s"), 143, 124, []), (("--timeout", "1s"), None, 124, []),
    ],
)  # fmt: skip
def test_a_job_whose_end_nobody_could_record_left_with_its_end(
    run: Invented, options: tuple[str, ...], own: int | None, status: int, found: list[str]
) -> None:
    """That of the job, or of its timeout."""
    firing = run.history.firings[0]
    firing.command[:0] = options
    firing.status, firing.stderr = status, "oncecron: key billing: a record is lost: no space\n"
    run.history.starts[0].status = own
    row(run).update(outcome="lost", exit_code=None)
    run.fault(100.5, 101.0)
    assert broken(run) == found


def test_a_firing_does_not_end_before_its_job(run: Invented) -> None:
    """Its tree is gone when it leaves."""
    start = run.history.starts[0]
    start.status = run.history.firings[0].status = 3
    row(run).update(outcome="failed", exit_code=3)
    start.last_sign = 103.0
    assert broken(run) == ["exit"]


@pytest.mark.parametrize("counted", [1, 2])
def test_a_refusal_is_counted(run: Invented, counted: int) -> None:
    """One count for each firing of that host, key and tick that was refused."""
    run.fire(110.0, "h2", "t2")
    run.skip(run.fire(110.1, "h2", "t2"), count=counted)
    assert broken(run) == ["unexplained"] * (2 - counted)


def test_a_refusal_of_another_tick_or_host_does_not_count(run: Invented) -> None:
    """Each explains its own."""
    firing = run.fire(110.0, "h2", "t2")
    run.skip(firing)["tick"] = "t3"
    run.skip(firing)["host"] = "h3"
    run.skip(firing, "no-store")
    assert broken(run) == ["unexplained"]


def test_a_firing_whose_host_named_its_tick_counts_with_any(run: Invented) -> None:
    """Nobody but that host knows which it was; what is left over explains it, and no more."""
    run.skip(run.fire(110.0, "h2", "t2"), count=2)
    run.fire(111.0, "h2", None)
    assert broken(run) == []
    run.fire(112.0, "h2", None)
    assert broken(run) == ["unexplained"]


@pytest.mark.parametrize(("target", "found"), [("store", []), ("h2", ["unexplained"])])
def test_a_skip_may_be_lost_with_the_store(run: Invented, target: str, found: list[str]) -> None:
    """It does not wait for the disk; such are counted."""
    run.fire(110.0, "h2", "t2")
    run.fault(110.2, 112.0, target)
    verdict = check(run.history)
    assert [violation.rule for violation in verdict.violations] == found
    assert verdict.counts["skips lost with the store"] == 1 - len(found)


def test_skip_exit_is_a_refusal(run: Invented) -> None:
    """With the status that was asked for."""
    run.skip(run.fire(110.0, "h2", "t2", status=9, options=("--skip-exit", "9")))
    assert broken(run) == []
    run.fire(111.0, "h2", "t2", status=9)
    assert broken(run) == ["unexplained"]


def test_a_store_that_is_away_is_told_and_recorded(run: Invented) -> None:
    """One line and a no-store from the spool."""
    firing = run.fire(110.0, "h2", "t2", status=69, stderr=AWAY)
    run.skip(firing, "held")
    assert broken(run) == ["unexplained"]
    run.skip(firing, "no-store")
    assert broken(run) == []
    firing.stderr = ""
    assert broken(run) == ["unexplained"]


@pytest.mark.parametrize(("reached", "found"), [(None, []), (109.0, []), (111.0, ["unexplained"])])
def test_a_store_that_is_still_away_is_no_news(
    run: Invented, reached: float | None, found: list[str]
) -> None:
    """The line comes once until the store is reached again."""
    run.skip(run.fire(110.0, "h2", "t2", status=69, stderr=AWAY), "no-store")
    if reached:
        run.skip_of("h2", reached)
    run.skip(run.fire(112.0, "h2", "t3", status=69), "no-store")
    assert broken(run) == found


@pytest.mark.parametrize("status", [75, 78, 126])
def test_a_firing_says_why_it_started_nothing(run: Invented, status: int) -> None:
    """In a line."""
    firing = run.fire(110.0, "h2", "t2", status=status)
    run.skip(firing, "broken")
    run.fault(110.0, 111.0)
    assert broken(run) == ["unexplained"]
    firing.stderr = "oncecron: because\n"
    assert broken(run) == []
    run.history.log.skips.clear()
    assert broken(run) == (["unexplained"] if status == 126 else [])


@pytest.mark.parametrize("status", [1, 64, 143])
def test_no_other_status_is_known(run: Invented, status: int) -> None:
    """A firing without a start has no status of a job."""
    run.fire(110.0, "h2", "t2", status=status, stderr=AWAY)
    assert broken(run) == ["unexplained"]


# Silence


def test_success_and_refusal_are_silent(run: Invented) -> None:
    """Cron would mail it."""
    run.skip(run.fire(110.0, "h2", "t2", stderr="oncecron: key billing is held\n"))
    run.history.firings[0].stderr = "oncecron: hello\n"
    assert broken(run) == ["noise", "noise"]


def test_what_the_job_prints_is_its_own(run: Invented) -> None:
    """And what -v asks for is wanted."""
    run.history.firings[0].stderr = "12 bills\n"
    run.skip(run.fire(110.0, "h2", "t2", options=("-v",), stderr="oncecron: key billing is held\n"))
    assert broken(run) == []


@pytest.mark.parametrize(("words", "found"), [(["stop", KEY], []), (["pause", KEY], ["noise"])])
def test_a_job_that_was_stopped_may_end_well(
    run: Invented, words: list[str], found: list[str]
) -> None:
    """Its firing says who asked for it, and nobody else has a reason to."""
    run.history.firings[
        0
    ].stderr = f"oncecron: key {KEY}: the command was stopped: root@h2 asked for it\n"
    run.operate(100.5, *words)
    assert [rule for rule in broken(run) if rule == "noise"] == found


@pytest.mark.parametrize(("fault", "found"), [(True, []), (False, ["noise"])])
@pytest.mark.parametrize(
    "said", ["the end of the run could not be recorded: away; the record is spooled", STANDING_BY]
)
def test_what_is_told_of_a_store_that_is_away_is_no_noise(
    run: Invented, said: str, fault: bool, found: list[str]
) -> None:
    """Only where something was away."""
    run.history.firings[0].stderr = f"oncecron: key billing: {said}\n"
    if fault:
        run.fault(101.0, 110.0)
    assert broken(run) == found


@pytest.mark.parametrize(("reached", "found"), [(False, []), (True, ["unexplained"])])
def test_who_was_killed_may_have_noted_that_the_store_is_away(
    run: Invented, reached: bool, found: list[str]
) -> None:
    """Without having said it; until somebody has reached the store since."""
    dead = run.fire(110.0, "h2", "t2", status=-9, lasts=1.0)
    run.stop(dead, "wrapper", at=111.0, until=111.0, how="killed")
    if reached:
        run.skip_of("h2", 113.0, "t3")
    run.skip(run.fire(115.0, "h2", "t4", status=69), "no-store")
    assert broken(run) == found


@pytest.mark.parametrize("at", [110.0, 117.0])
def test_who_retries_may_have_told_that_the_store_is_away(run: Invented, at: float) -> None:
    """Before it ends; not before it was fired."""
    tries = run.fire(
        at,
        "h2",
        "t2",
        status=1,
        stderr=AWAY.replace("reached", "reached; the command was not started"),
    )
    run.start(tries, lasts=15.0)
    run.fault(at, 130.0)
    run.skip(run.fire(112.0, "h2", "t3", status=69), "no-store")
    assert broken(run) == (["unexplained"] if at > 112.0 else [])


def test_who_stands_by_has_told_that_the_store_is_away(run: Invented) -> None:
    """At some time of its wait; later firings are silent."""
    waits = run.fire(110.0, "h2", "t2", lasts=20.0)
    run.skip(waits, "done")["tick"] = "t1"
    run.skip(waits)
    run.fault(110.0, 119.0)
    run.skip(run.fire(112.0, "h2", "t3", status=69), "no-store")
    assert broken(run) == ["unexplained"]
    waits.stderr = f"oncecron: key billing: {STANDING_BY}\n"
    assert broken(run) == []


@pytest.mark.parametrize(("lasts", "found"), [(10.0, []), (25.0, ["unexplained"])])
def test_who_has_told_that_the_store_is_away_tries_to_record_it(
    run: Invented, lasts: float, found: list[str]
) -> None:
    """So that it ends later than a silent one."""
    said = AWAY.replace("reached", "reached; the command was not started")
    told = run.fire(109.0, "h2", "t2", status=69, lasts=lasts, stderr=said)
    run.skip(told, "no-store")
    run.skip(run.fire(110.0, "h2", "t3", status=69), "no-store")
    assert broken(run) == found


@pytest.mark.parametrize(
    ("woken", "found"), [(113.0, []), (111.5, ["unexplained"]), (None, ["unexplained"])]
)
def test_a_guard_that_wakes_without_its_wrapper_has_told_it_then(
    run: Invented, woken: float | None, found: list[str]
) -> None:
    """Though others had reached the store since its wrapper was killed."""
    waits = run.fire(110.0, "h2", "t2", status=-9, lasts=1.0)
    waits.stderr = f"oncecron: key billing: {STANDING_BY}\n"
    run.stop(waits, "guard", at=110.5, until=woken)
    run.stop(waits, "wrapper", at=111.0, until=111.0, how="killed")
    run.skip_of("h2", 112.0, "t3")
    run.skip(run.fire(115.0, "h2", "t4", status=69), "no-store")
    assert broken(run) == found


# Afterwards


def quiet(run: Invented, at: float, **values: Any) -> None:
    """Let the faults end at 130 and fire once more."""
    run.history.quiet = 130.0
    run.skip(run.fire(at, "h2", **values))


@pytest.mark.parametrize(
    ("at", "tick", "end", "once", "found"),
    [
        (131.0, "t2", 200.0, False, ["blocked"]),
        (131.0, "t1", 200.0, False, []),  # its tick had run before
        (150.0, "t2", 200.0, False, []),  # it was fired too late to tell
        (
            131.0,
            "t2",
            152.0,
            False,
            [],
        ),  # less than period, job, ttl and bound after the last fault
        (131.0, "t2", 200.0, True, []),
    ],
)
def test_a_key_that_is_never_started_again_is_blocked(
    run: Invented, at: float, tick: str, end: float, once: bool, found: list[str]
) -> None:
    """It was fired for a new tick, and there was time; not one that runs once, and has."""
    run.history.head["keys"][KEY]["once"] = once
    quiet(run, at, tick=tick)
    run.history.end = end
    assert broken(run) == found
    run.run(135.0, "h3", "t3")
    assert broken(run) == []


@pytest.mark.parametrize(
    ("store", "host", "step", "found"),
    [
        ("postgres", "h1", "+90 s", ["blocked"]), ("sqlite", "h1", "+90 s", []), ("sqlite", "h1", "+1 s", ["blocked"]),
        ("sqlite", "h1", "-90 s", ["blocked"]), ("sqlite", "h2", "+90 s", ["blocked"]),
    ],
)  # fmt: skip
def test_a_start_in_the_future_keeps_the_gap(
    store: str, host: str, step: str, found: list[str]
) -> None:
    """On SQLite the hosts' clocks are the store's, and that of the last start was ahead."""
    run = Invented(store=store)
    run.run()
    run.fault(99.0, 125.0, host, "step the clock").detail = step
    quiet(run, 131.0, tick="t2", options=("--min-gap", "2s"))
    assert broken(run) == found
    run.history.end = 300.0
    assert broken(run) == ["blocked"]


def test_what_is_left_is_found(run: Invented) -> None:
    """Leases, files, processes."""
    run.history.log.left.append("the lease of billing is held")
    run.history.starts[0].lives = True
    assert broken(run) == ["left", "left"]


@pytest.mark.parametrize(
    ("how", "until", "rules"),
    [("killed", 100.5, ([], ["left"])), ("stopped", None, ([], ["left"])), ("stopped", 103.0, (["left"], []))],
)  # fmt: skip
def test_what_nobody_could_end_is_a_hole(
    run: Invented, how: str, until: float | None, rules: object
) -> None:
    """Wrapper and guard were killed together, or never woke."""
    firing, start = run.history.firings[0], run.history.starts[0]
    start.lives, start.ended, start.status = True, None, None
    firing.status = -9
    run.history.log.executions[0].update(outcome="lost", exit_code=None)
    run.stop(firing, "wrapper", "guard", at=100.5, until=until, how=how)
    run.stop(firing, "wrapper", at=150.0, until=150.0, how="killed")
    assert (broken(run), holes(run)) == rules


# What was missed


@pytest.mark.parametrize(
    ("reason", "busy", "found"),
    [("held", False, ["missed"]), ("held", True, []), ("done", True, ["missed"]), ("passed", False, [])],
)  # fmt: skip
def test_a_refusal_has_a_reason_that_holds(reason: str, busy: bool, found: list[str]) -> None:
    """Somebody ran the key meanwhile, or the refusal says itself why."""
    run = Invented()
    run.start(run.fire(90.0 if busy else 50.0, "h1", "t0"), lasts=11.0)
    firing = run.fire(100.0, "h2", "t2")
    run.skip(firing, reason)
    assert [rule for rule in every(run) if rule == "missed"] == found
    run.fault(99.0, 101.0, "h3")
    run.fire(100.2, "h3", "t2", status=75, stderr=AWAY)
    assert "missed" not in every(run)


def test_who_was_hit_later_has_taken_no_tick_with_it() -> None:
    """A refusal before it came to the store has another reason."""
    run = Invented()
    run.skip(run.fire(100.0, "h2", "t2"), "done")
    run.stop(run.fire(110.0, "h3", "t2", status=-9), "wrapper", at=110.2, until=110.2, how="killed")
    assert "missed" in every(run)


@pytest.mark.parametrize(("at", "found"), [(99.0, []), (110.0, ["missed"])])
def test_a_pause_explains_what_was_fired_under_it(at: float, found: list[str]) -> None:
    """And nothing else."""
    run = Invented()
    run.operate(at, "pause", KEY)
    run.operate(at + 5, "resume", KEY)
    run.skip(run.fire(101.0, "h2", "t2"), "paused")
    assert every(run) == found


@pytest.mark.parametrize(("status", "found"), [(69, []), (0, ["missed"])])
def test_a_pause_lasts_until_it_is_taken_back(status: int, found: list[str]) -> None:
    """Who could not reach the store has taken nothing back."""
    run = Invented()
    run.operate(80.0, "pause", "--all")
    run.operate(85.0, "resume", "--all", status=status)
    run.skip(run.fire(101.0, "h2", "t2"), "paused")
    assert [rule for rule in every(run) if rule == "missed"] == found


# What is left running


@pytest.mark.parametrize(
    ("sign", "hindered", "found"),
    [(113.0, False, []), (140.0, False, ["orphan"]), (140.0, True, [])],
)
def test_a_job_does_not_outlive_its_killed_wrapper(
    sign: float, hindered: bool, found: list[str]
) -> None:
    """By more than the grace, if its guard can act."""
    run = Invented()
    firing = run.fire(110.0, "h1", "t1", status=-9)
    start = run.start(firing, ended=None, status=None, last_sign=sign)
    firing.ended = 111.0
    run.history.log.executions[-1].update(outcome="stopped", exit_code=None, signal=9)
    run.stop(
        firing, "wrapper", *(["guard"] if hindered else []), at=111.0, until=111.0, how="killed"
    )
    start.signals.append((111.1, "TERM"))
    assert [rule for rule in every(run) if rule == "orphan"] == found


@pytest.mark.parametrize(("at", "found"), [(101.0, ["orphan"]), (139.0, [])])
def test_a_guard_that_was_stopped_long_before_can_end_an_orphan(
    at: float, found: list[str]
) -> None:
    """It had gone on."""
    run = Invented()
    firing = run.fire(100.0, status=-9)
    start = run.start(firing, lasts=60.0, ended=None, status=None)
    firing.ended = 140.0
    run.stop(firing, "wrapper", at=140.0, until=140.0, how="killed")
    run.stop(firing, "guard", at=at, until=at + 20.0)
    assert [rule for rule in every(run) if rule == "orphan"] == found
    assert start.last_sign == 160.1


@pytest.mark.parametrize(("lasts", "found"), [(80.0, ["timeout"]), (60.0, [])])
def test_a_guard_that_was_stopped_is_forgiven_that_time_and_no_more(
    lasts: float, found: list[str]
) -> None:
    """On a paused machine the time of a job stands still too."""
    run = Invented()
    firing = run.fire(100.0, status=124, options=("--timeout", "40s", "--grace", "1s"))
    run.start(firing, lasts=lasts, signals=[(140.1, "TERM")])
    run.stop(firing, "guard", at=139.0, until=159.0)
    assert [rule for rule in every(run) if rule == "timeout"] == found


@pytest.mark.parametrize(("at", "found"), [(100.5, []), (130.0, ["leftover"])])
def test_what_a_success_left_gets_no_signal(run: Invented, at: float, found: list[str]) -> None:
    """It is there on purpose."""
    run.history.starts[0].signals.append((at, "TERM"))
    assert [rule for rule in every(run) if rule == "leftover"] == found


@pytest.mark.parametrize(
    ("duration", "guard", "told", "found"),
    [
        (None, "stopped", AWAY, ["phantom"]), (None, "killed", AWAY, []), (3.0, "stopped", AWAY, []),
        (None, "stopped", "the oncecron guard did not stop the command in time; no command is running", []),
    ],
)  # fmt: skip
def test_who_starts_nothing_under_a_lease_says_so(
    duration: float | None, guard: str, told: str, found: list[str]
) -> None:
    """Whatever befell the store: a record that cannot be delivered is spooled; and a guard that goes on records."""
    run = Invented()
    firing = run.fire(110.0, "h1", "t1", status=75, stderr=told)
    run.row(firing, token=1500, outcome="lost", exit_code=None, duration=duration)
    run.fault(109.0, 112.0)
    run.stop(firing, "guard", at=110.1, until=110.3, how=guard)
    assert [rule for rule in every(run) if rule == "phantom"] == found


@pytest.mark.parametrize(
    ("note", "found"), [(f"the next attempt could not start: {AWAY}", []), (None, ["phantom"])]
)  # fmt: skip
def test_an_attempt_whose_grant_went_unheard_is_told_by_the_one_before(
    note: str | None, found: list[str]
) -> None:
    """The store had granted it, and the answer never came."""
    run = Invented()
    firing = run.fire(110.0, "h1", "t1", status=9, options=("--retries", "2"))
    run.start(firing)
    row(run)["note"] = note
    run.row(firing, token=1500, attempt=2, outcome="lost", exit_code=None, duration=None)
    run.fault(109.0, 112.0)
    assert [rule for rule in every(run) if rule == "phantom"] == found


@pytest.mark.parametrize(("claimed", "found"), [(99.5, []), (104.0, ["missed"])])
def test_a_frozen_start_is_in_the_way_before_its_first_line(
    claimed: float, found: list[str]
) -> None:
    """From its lease on."""
    run = Invented()
    run.start(run.fire(99.0, "h1", "t0"), at=105.0, claimed=claimed)
    run.skip(run.fire(100.0, "h2", "t2"))
    assert [rule for rule in every(run) if rule == "missed"] == found


@pytest.mark.parametrize(("hit", "found"), [(True, []), (False, ["missed"])])
def test_a_lease_may_stand_in_the_way_without_a_start(hit: bool, found: list[str]) -> None:
    """Its firing was asked to end, and could not give it back."""
    run = Invented()
    holder = run.fire(98.0, "h1", "t0", status=143, stderr=AWAY)
    run.row(holder, token=1500, outcome="not-started", exit_code=None)
    if hit:
        run.stop(holder, "wrapper", at=98.2, until=98.2, how="signalled")
    run.skip(run.fire(100.0, "h2", "t2"))
    assert [rule for rule in every(run) if rule == "missed"] == found


@pytest.mark.parametrize(
    ("target", "healed", "found"),
    [
        ("h1", 103.0, []),
        ("h3", 103.0, ["missed"]),
        ("h1", 99.0, ["missed"]),
        ("h1", None, ["missed"]),
    ],
)
def test_a_cut_network_carries_a_claim_when_it_is_whole(
    target: str, healed: float | None, found: list[str]
) -> None:
    """So that the lease of a firing that has left begins then, and is in the way for a ttl."""
    run = Invented()
    holder = run.fire(98.0, "h1", "t0", status=143, stderr=AWAY)
    run.row(holder, token=1500, outcome="not-started", exit_code=None)
    run.stop(holder, "wrapper", at=98.2, until=98.2, how="signalled")
    run.fault(98.2, healed, target, "cut host").group = "network"
    run.skip(run.fire(109.0, "h2", "t2"))
    assert [rule for rule in every(run) if rule == "missed"] == found


def test_a_run_without_a_lease_was_asked_for() -> None:
    """By --on-store-error run, and by nothing else."""
    run = Invented()
    firing = run.fire(110.0, "h1", "t1", options=("--on-store-error", "run"), stderr=AWAY)
    start = run.start(firing)
    start.token = start.execution_id = None
    run.history.log.executions[-1].update(outcome="unclaimed", fencing_token=None)
    run.fault(109.0, 112.0)
    assert every(run) == []
    run.row(firing, token=1500, outcome="lost", exit_code=None, duration=None)
    assert every(run) == []  # a claim whose answer came too late
    firing.command[:] = [word for word in firing.command if word not in ("--on-store-error", "run")]
    assert "unrecorded" in every(run)


@pytest.mark.parametrize(
    ("host", "gone", "found"),
    [("h1", 98.5, []), ("h1", 97.5, ["missed"]), ("h2", 98.5, ["missed"])],
)
def test_a_lease_outlives_a_job_whose_end_is_not_heard(
    host: str, gone: float, found: list[str]
) -> None:
    """What a wrapper has sent comes when its own network is whole, if it has not died before."""
    run = Invented()
    holder = run.fire(80.0, "h1", "t0")
    run.start(holder, lasts=6.0)
    run.fault(85.0, 98.0, host).group = "network"
    holder.ended = gone
    run.skip(run.fire(100.0, "h3", "t2"))
    assert [rule for rule in every(run) if rule == "missed"] == found
