"""The checker finds what is planted about pauses, drained hosts, stops, and the commands themselves."""

import pytest
from invented import KEY, Invented, broken, holes


@pytest.mark.parametrize(
    ("words", "found"),
    [(("pause", KEY), ["paused"]), (("pause", "--all"), ["paused"]), (("pause", "backup"), []),
     (("drain", "h2"), ["drained"]), (("drain", "h1"), [])],
)  # fmt: skip
def test_nothing_starts_that_is_paused_or_drained(
    run: Invented, words: tuple[str, ...], found: list[str]
) -> None:
    """Of the key or of all, or on the host."""
    run.operate(105.0, *words)
    run.run(106.0, "h2", "t2")
    assert broken(run) == found


@pytest.mark.parametrize("at", [104.9, 105.4, 107.0])
def test_what_was_claimed_before_or_after_may_start(run: Invented, at: float) -> None:
    """Before the pause had returned; and from when somebody asked to resume."""
    run.operate(105.0, "pause", KEY)
    run.operate(107.0, "resume", KEY)
    run.start(run.fire(at, "h2", "t2"), at=max(at + 0.1, 106.0))
    assert broken(run) == []


def test_a_pause_that_did_not_return_promises_nothing(run: Invented) -> None:
    """It may not have been heard."""
    run.fault(104.0, 108.0)
    run.operate(105.0, "pause", KEY, status=69, stderr="oncecron: the store is away\n")
    run.run(106.0, "h2", "t2")
    assert broken(run) == []


def test_a_further_attempt_is_claimed_after_the_one_before(run: Invented) -> None:
    """Its firing was begun before the pause, but it cannot have been granted before."""
    firing = run.fire(103.0, "h2", "t2", status=3, options=("--retries", "1"))
    run.start(firing, at=103.1, lasts=3.0)
    run.start(firing, at=107.0, attempt=2)
    assert broken(run) == []
    run.operate(104.0, "pause", KEY)
    assert broken(run) == ["paused"]


@pytest.mark.parametrize(("store", "found"), [("postgres", ["paused"]), ("sqlite", [])])
def test_the_store_s_clock_tells_when_it_was_granted(store: str, found: list[str]) -> None:
    """Where it is no host's."""
    run = Invented(store=store, wall=0.0)
    run.start(run.fire(104.0, "h2", "t2"), at=109.0)
    run.history.log.executions[-1]["started_at"] = "1970-01-01T00:01:48.000Z"
    run.operate(105.0, "pause", KEY)
    assert broken(run) == found


def test_a_store_that_may_forget_may_forget_a_pause() -> None:
    """As it may forget a claim."""
    run = Invented(loses=["failover"])
    run.operate(105.0, "pause", KEY)
    run.fault(106.0, 107.0, kind="failover")
    run.run(108.0, "h2", "t2")
    assert (broken(run), holes(run)) == ([], ["paused"])


@pytest.mark.parametrize("word", ["stop", "release"])
def test_what_was_stopped_is_dead(run: Invented, word: str) -> None:
    """When the command returns."""
    start = run.start(run.fire(110.0, "h2", "t2", status=143), lasts=3.0, status=-15)
    start.signals.append((111.0, "TERM"))
    run.history.log.executions[-1].update(outcome="stopped", exit_code=None, signal=15)
    operation = run.operate(110.5, word, KEY, lasts=3.0)
    assert broken(run) == []
    operation.ended = 112.0
    assert broken(run) == ["not-ended"]


def test_what_nobody_could_kill_is_a_hole(run: Invented) -> None:
    """Wrapper and guard were stopped, and the lease had ended."""
    firing = run.fire(110.0, "h2", "t2", status=75)
    run.start(firing, lasts=12.0, ended=None, status=None)
    run.stop(firing, "wrapper", "guard", at=110.3, until=121.0)
    run.operate(110.5, "stop", KEY, lasts=8.0)
    assert (broken(run), holes(run)) == ([], ["not-ended"])


@pytest.mark.parametrize(
    ("asked", "found"), [(100.9, []), (104.0, []), (106.0, ["outcome"]), (None, ["outcome"])]
)
def test_a_stop_was_asked_for(run: Invented, asked: float | None, found: list[str]) -> None:
    """Whoever is named in the record; the job may have been frozen for a while before."""
    start, firing = run.history.starts[0], run.history.firings[0]
    start.ended = start.status = None
    firing.status, firing.ended = 137, 105.0
    row = run.history.log.executions[0]
    row.update(outcome="stopped", exit_code=None, signal=9, request="stop", requested_by="root@h3")
    if asked:
        run.operate(asked, "stop", KEY, "--signal", "KILL")
    assert broken(run) == found


@pytest.mark.parametrize(
    ("asked", "said", "found"),
    [(122.0, "", []), (124.0, "", ["outcome"]), (124.0, "oncecron: the record is spooled\n", [])],
)
def test_a_guard_may_be_asked_that_lives_on(
    run: Invented, asked: float, said: str, found: list[str]
) -> None:
    """For as long as it takes to end the job of a killed wrapper, and to record that; or its lease."""
    firing = run.history.firings[0]
    firing.status, firing.ended, firing.stderr = -9, 101.5, said
    run.stop(firing, "wrapper", at=101.5, until=101.5, how="killed")
    run.history.log.executions[0].update(outcome="stopped", request="stop", requested_by="root@h3")
    run.operate(asked, "stop", KEY)
    assert broken(run) == found


def test_a_retry_that_is_called_off_may_tell_the_status(run: Invented) -> None:
    """Instead of the attempt before, which has failed."""
    firing = run.fire(110.0, "h2", "t2", status=1, options=("--retries=1",))
    run.start(firing)
    run.row(firing, token=1500, attempt=2, outcome="stopped", exit_code=None)
    firing.status = 130
    run.history.log.executions[-2]["exit_code"] = 1
    run.operate(111.0, "stop", KEY)
    assert broken(run) == []
    firing.status = 3
    assert broken(run) == ["exit"]


@pytest.mark.parametrize(("asked", "found"), [(True, []), (False, ["phantom"])])
def test_what_was_called_off_was_asked_for(run: Invented, asked: bool, found: list[str]) -> None:
    """It was granted, and not yet started."""
    firing = run.fire(110.0, "h2", "t2", status=143)
    named = {"request": "stop", "requested_by": "root@h3"}
    run.row(firing, token=1500, outcome="stopped", exit_code=None, **named)
    if asked:
        run.operate(110.0, "stop", KEY)
    assert broken(run) == found


# The commands


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, []),
        ({"status": None}, ["command"]),
        ({"status": 70, "stderr": "oncecron: internal error: KeyError: 'x'\n"}, ["command"]),
        ({"status": 1, "stderr": "Traceback (most recent call last):\n"}, ["command"]),
        ({"status": 69, "stderr": "oncecron: away\n"}, ["command"]),
        ({"status": 75, "stderr": "oncecron: not yet\n"}, ["command"]),
        ({"status": 66, "stderr": f"oncecron: no host has fired key {KEY}\n"}, ["command"]),
        ({"status": -9}, ["command"]),
    ],
)
def test_a_command_does_what_it_says(
    run: Invented, values: dict[str, object], found: list[str]
) -> None:
    """It fails by nothing but faults."""
    run.operate(110.0, "stop", KEY, **values)  # type: ignore[arg-type]
    assert broken(run) == found


def test_a_command_says_that_it_is_done(run: Invented) -> None:
    """In a word."""
    run.operate(110.0, "resume", KEY).stdout = ""
    assert broken(run) == ["command"]


@pytest.mark.parametrize(
    ("words", "status", "target", "found"),
    [
        (("stop", KEY), 69, "store", []), (("stop", KEY), 69, "h2", ["command"]),
        (("release", KEY), 75, "h1", []), (("release", KEY), 75, "h2", ["command"]),
        (("pause", "backup"), 75, "h3", ["command"]),
        (("pause", "backup"), 78, "store", []), (("drain", "h2"), -9, "h3", []),
        (("drain", "h2"), -9, "store", ["command"]),
    ],
)  # fmt: skip
def test_a_fault_explains_what_it_may(
    run: Invented, words: tuple[str, ...], status: int, target: str, found: list[str]
) -> None:
    """The store's, or that of the host where it was typed; or of one that has to answer, as it runs the key."""
    run.start(run.fire(108.0, tick="t2"), lasts=1.0)
    run.fault(109.0, 112.0, target)
    run.operate(110.0, *words, status=status, stderr="oncecron: because\n")
    assert broken(run) == found


def test_a_key_that_was_never_fired_is_unknown(run: Invented) -> None:
    """No fault is needed for that."""
    run.operate(110.0, "stop", "backup", status=66, stderr="oncecron: no host has fired key x\n")
    assert broken(run) == []
