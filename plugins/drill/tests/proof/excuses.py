"""Every excuse that a rule knows: a history in which the rule is broken, and what excuses it there.

Each is played as it is, and then with its cause moved: to another time, another host, another key, or another kind of
fault. A process that is hit instead is of a firing that is well.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from invented import AWAY, KEY, Invented

from oncecron.core.tick import at
from oncecron_drill.checker import Rule
from oncecron_drill.history import CALM_TICK, Fault, Firing, ItemEvent, Operation, Start
from oncecron_drill.rules.afterwards import blocked, left
from oncecron_drill.rules.attempts import doubles, standbys
from oncecron_drill.rules.exclusion import overlaps, tokens
from oncecron_drill.rules.firings import noise, unexplained, untrue
from oncecron_drill.rules.healthy_ticks import missed
from oncecron_drill.rules.joined import HOLDS, Joined
from oncecron_drill.rules.logged import audited
from oncecron_drill.rules.made_up import not_made_up, order
from oncecron_drill.rules.once_per_item import items
from oncecron_drill.rules.people import commands, hindered, stopped
from oncecron_drill.rules.records import recorded, started
from oncecron_drill.rules.statuses import exits, leftovers, orphans, timeouts

Cause = Fault | Operation
Causes = Sequence[Cause]
BEFORE, AFTER = 18.0, 20.0
"""Seconds by which a cause is moved away from all that it could excuse."""
OTHER_HOST, OTHER_KEY = "h9", "backup"
BOTH = ("wrapper", "guard")


@dataclasses.dataclass
class Excuse:
    """One of them."""

    rule: Rule
    found: str
    """The name under which the rule tells of it."""
    play: Callable[[Invented], Causes]
    still: Sequence[str] = ()
    """Where a move leaves it an excuse, and rightly so: its comment says why."""
    head: dict[str, Any] = dataclasses.field(default_factory=dict)

    def history(self, move: str) -> Joined | None:
        """Return the history with its cause moved; None where a cause of its kind cannot be moved so."""
        run = Invented(
            **{"hosts": ["h1", "h2", "h3", OTHER_HOST], "loses": ["failover"], **self.head}
        )
        causes = list(self.play(run))
        if not MOVES[move](run, causes):
            return None
        return Joined(run.history)

    def breaks(self, joined: Joined) -> bool:
        """Return whether the rule tells of it."""
        return any(found.rule == self.found and not found.hole for found in self.rule(joined))


ALL: dict[str, Excuse] = {}


def excuses(rule: Rule, found: str, *, still: Sequence[str] = (), **head: Any) -> Any:
    """Register what excuses this."""

    def register(play: Callable[[Invented], Causes]) -> Callable[[Invented], Causes]:
        ALL[play.__name__] = Excuse(rule, found, play, still, head)
        return play

    return register


# The moves


def _as_it_is(_run: Invented, _causes: list[Cause]) -> bool:
    return True


def _gone(run: Invented, causes: list[Cause]) -> bool:
    history = run.history
    history.faults = [each for each in history.faults if each not in causes]
    history.operations = [each for each in history.operations if each not in causes]
    return True


def _shift(causes: list[Cause], seconds: float) -> None:
    for cause in causes:
        cause.at += seconds
        if isinstance(cause, Fault) and cause.healed is not None:
            cause.healed += seconds
        elif isinstance(cause, Operation) and cause.ended is not None:
            cause.ended += seconds


def _moments(run: Invented, causes: list[Cause]) -> Iterator[float]:
    history = run.history
    for firing in history.firings:
        yield from (firing.at, firing.ended or firing.at)
    for start in history.starts:
        yield from (start.at, start.last_sign, start.ended or start.at)
    for other in (*history.faults, *history.operations):
        if other not in causes:
            yield other.at
    yield from (event.at for event in history.items)


def _earlier(run: Invented, causes: list[Cause]) -> bool:
    ends = [_end(cause) for cause in causes]
    _shift(causes, min(_moments(run, causes)) - BEFORE - max(ends))
    return True


def _end(cause: Cause) -> float:
    end = cause.healed if isinstance(cause, Fault) else cause.ended
    return cause.at if end is None else end


def _later(run: Invented, causes: list[Cause]) -> bool:
    _shift(causes, max(_moments(run, causes)) + AFTER - min(cause.at for cause in causes))
    return True


def _on_another_host(run: Invented, causes: list[Cause]) -> bool:
    moved = False
    for cause in causes:
        if isinstance(cause, Operation):
            if cause.words[0] in ("drain", "undrain"):
                cause.words[1], moved = OTHER_HOST, True
            continue
        moved = True
        if cause.hit:
            _hit_instead(cause, _bystander(run, cause, OTHER_HOST, KEY))
        cause.target = OTHER_HOST
    return moved


def _of_another_key(run: Invented, causes: list[Cause]) -> bool:
    moved = False
    for cause in causes:
        if isinstance(cause, Fault) and cause.hit:
            _hit_instead(cause, _bystander(run, cause, cause.target, OTHER_KEY))
            moved = True
        elif isinstance(cause, Operation) and cause.words[1] == KEY:
            cause.words[1], moved = OTHER_KEY, True
    return moved


def _of_another_kind(_run: Invented, causes: list[Cause]) -> bool:
    """Let a disk be full instead, a clock be wrong, or the store be well again with all that it had."""
    moved = False
    for cause in causes:
        if not isinstance(cause, Fault) or cause.hit:
            continue
        if cause.group in HOLDS:
            cause.kind, cause.group, moved = "step the clock", "clock", True
            cause.detail = "+1 s"
        elif cause.target != "store":
            cause.kind, cause.group, moved = "disk full", "disk", True
        elif cause.kind == "failover":
            cause.kind, moved = "restart", True
    return moved


def _bystander(run: Invented, cause: Fault, host: str, key: str) -> Firing:
    """Add a firing that lives while something is done to it, and is refused for a reason that needs none."""
    firing = run.fire(cause.at - 0.5, host, "beside", lasts=_end(cause) - cause.at + 1.0, key=key)
    run.skip(firing, "late")
    return firing


def _hit_instead(cause: Fault, other: Firing) -> None:
    cause.hit = [(other.id, role, state) for _, role, state in cause.hit]


MOVES: dict[str, Callable[[Invented, list[Cause]], bool]] = {
    "as it is": _as_it_is,
    "gone": _gone,
    "earlier": _earlier,
    "later": _later,
    "on another host": _on_another_host,
    "of another key": _of_another_key,
    "of another kind": _of_another_kind,
}


# Trees, ticks and tokens


def _lost_beside(run: Invented, until: float = 110.2) -> tuple[Start, Start]:
    """Let a lost job of h1 live while one of h2 runs."""
    firing = run.fire(101.0, "h1", "t2", status=75, lasts=10)
    older = run.start(firing, lasts=until - 101.1, ended=None, status=None)
    return older, run.start(run.fire(109.9, "h2", "t3"))


def _of(run: Invented, start: Start) -> Firing:
    return next(firing for firing in run.history.firings if firing.pid == start.wrapper)


@excuses(overlaps, "overlap")
def a_tree_that_nobody_could_kill(run: Invented) -> Causes:
    older, _ = _lost_beside(run)
    return [run.stop(_of(run, older), *BOTH, at=102.0, until=110.0)]


@excuses(tokens, "token")
def a_first_line_that_came_late(run: Invented) -> Causes:
    late = run.fire(100.0, "h1", "t1", status=75, lasts=12)
    stale = run.start(late, at=110.0, lasts=1.0, ended=None, status=None)
    run.start(run.fire(107.0, "h2", "t2"))
    assert stale.token
    return [run.stop(late, *BOTH, at=101.0, until=110.0)]


def _taken_over(run: Invented) -> None:
    run.start(run.fire(options=("--failover",)))
    run.history.log.executions[-1]["lost_reason"] = "expired"
    run.start(run.fire(100.1, "h2", options=("--failover",)), at=108.0, attempt=2)


@excuses(doubles, "double")
def a_lease_that_was_lost_with_its_host(run: Invented) -> Causes:
    _taken_over(run)
    return [run.fault(100.5, 107.0, "h1")]


@excuses(doubles, "double")
def a_lease_that_was_lost_with_its_wrapper(run: Invented) -> Causes:
    _taken_over(run)
    return [run.stop(run.history.firings[0], *BOTH, at=100.5, until=101.5)]


@excuses(doubles, "double")
def a_lease_that_was_lost_with_the_store(run: Invented) -> Causes:
    _taken_over(run)
    return [run.fault(100.5, 107.0)]


@excuses(doubles, "double")
def a_tick_that_the_store_forgot(run: Invented) -> Causes:
    run.run()
    run.run(105.0, "h2")
    return [run.fault(100.2, 101.0, kind="failover")]


_WALL = 1_800_000_000
"""Zero of a history's clock: a full minute."""
_MAKES_UP = ("--schedule", "* * * * *", "--catch-up", "1h")


def _begun(run: Invented, *ticks: int) -> None:
    """Begin these minutes, one after another."""
    for number, minute in enumerate(ticks, start=5):
        firing = run.fire(60.0 * number + 2, tick=None, options=_MAKES_UP)
        run.start(firing, tick=at(_WALL + 60 * minute, "").text)


@excuses(order, "order", wall=_WALL)
def a_newer_tick_that_the_store_forgot(run: Invented) -> Causes:
    _begun(run, 5, 4)
    return [run.fault(305.0, 306.0, kind="failover")]


@excuses(not_made_up, "not-made-up", wall=_WALL)
def an_older_tick_that_the_store_forgot(run: Invented) -> Causes:
    _begun(run, 5, 8)
    return [run.fault(305.0, 306.0, kind="failover")]


def _stood_by(run: Invented) -> Firing:
    leader = run.fire(100.0, "h1", None, options=("--failover",))
    run.start(leader, lasts=9.0)
    run.start(run.fire(100.1, "h2", None, options=("--failover",)), at=112.0)
    return leader


@excuses(standbys, "standby")
def a_standby_that_was_hindered(run: Invented) -> Causes:
    _stood_by(run)
    return [run.fault(103.0, 105.0, "h2")]


@excuses(standbys, "standby")
def a_leader_that_was_hindered(run: Invented) -> Causes:
    return [run.stop(_stood_by(run), "guard", at=103.0, until=105.0)]


# Records


@excuses(recorded, "unrecorded")
def a_row_that_the_store_forgot(run: Invented) -> Causes:
    run.run()
    run.history.log.executions.clear()
    return [run.fault(100.5, 101.0, kind="failover")]


@excuses(recorded, "unrecorded")
def a_row_that_was_put_back(run: Invented) -> Causes:
    run.run()
    run.history.log.executions[0].update(attempt=7, execution_id=9)
    return [run.fault(100.5, 101.0)]


def _killed(run: Invented, outcome: str = "failed") -> Firing:
    firing = run.fire(status=137)
    start = run.start(firing)
    start.ended = start.status = None
    run.history.log.executions[0].update(outcome=outcome, exit_code=None, signal=9)
    return firing


@excuses(recorded, "outcome")
def a_job_that_was_killed(run: Invented) -> Causes:
    return [run.stop(_killed(run), "job", at=101.0, until=101.0, how="killed")]


@excuses(recorded, "outcome")
def a_job_that_its_guard_saw_killed(run: Invented) -> Causes:
    return [run.stop(_killed(run), "guard", at=101.3, until=101.3, how="killed")]


@excuses(recorded, "outcome")
def a_job_that_was_stopped_in_its_sleep(run: Invented) -> Causes:
    return [run.stop(_killed(run, "stopped"), "job", at=101.0, until=101.2)]


@excuses(recorded, "outcome")
def a_job_that_somebody_stopped(run: Invented) -> Causes:
    start = run.run()
    start.signals.append((100.9, "TERM"))
    run.history.log.executions[0].update(outcome="stopped", request="stop", requested_by="ann@h3")
    return [run.operate(100.5, "stop", KEY)]


@excuses(recorded, "outcome")
def a_job_that_was_stopped_when_its_wrapper_was_dead(run: Invented) -> Causes:
    firing = _killed(run, "stopped")
    firing.status = -9
    run.history.log.executions[0].update(request="stop", requested_by="ann@h3")
    run.history.starts[0].signals.append((100.9, "TERM"))
    run.operate(110.0, "stop", KEY)
    return [run.stop(firing, "wrapper", at=101.0, until=101.0, how="killed")]


def _lost(run: Invented) -> Firing:
    firing = run.fire(status=75)
    run.start(firing)
    run.history.log.executions[0].update(outcome="lost", exit_code=None)
    return firing


@excuses(recorded, "outcome")
def a_run_that_was_lost_with_its_host(run: Invented) -> Causes:
    _lost(run)
    return [run.fault(100.5, 101.0, "h1")]


@excuses(recorded, "outcome")
def a_run_that_was_lost_with_its_guard(run: Invented) -> Causes:
    return [run.stop(_lost(run), "guard", at=100.5, until=101.0)]


def _claimed(run: Invented, outcome: str, *, status: int = 75, **values: Any) -> Firing:
    """Record an execution that has no start."""
    firing = run.fire(100.0, "h1", "t1", status=status, stderr=AWAY)
    run.row(firing, token=1500, outcome=outcome, exit_code=None, **values)
    return firing


@excuses(started, "phantom")
def a_claim_that_was_lost_with_its_host(run: Invented) -> Causes:
    _claimed(run, "lost")
    return [run.fault(100.1, 101.0, "h1")]


@excuses(started, "phantom")
def a_claim_that_was_lost_with_its_guard(run: Invented) -> Causes:
    return [run.stop(_claimed(run, "lost"), "guard", at=100.1, until=100.3)]


@excuses(started, "phantom")
def a_claim_whose_guard_was_killed(run: Invented) -> Causes:
    firing = _claimed(run, "lost", duration=None)
    run.fault(100.1, 101.0, "h1")
    return [run.stop(firing, "guard", at=100.2, until=100.2, how="killed")]


@excuses(started, "phantom")
def a_word_that_the_store_forgot(run: Invented) -> Causes:
    _claimed(run, "lost", duration=None)
    run.fault(100.1, 101.0, "h1")
    return [run.fault(100.3, 101.0, kind="failover")]


@excuses(started, "phantom")
def a_claim_that_was_called_off_by_a_signal(run: Invented) -> Causes:
    firing = _claimed(run, "stopped", status=143)
    return [run.stop(firing, "wrapper", at=100.2, until=100.2, how="signalled")]


@excuses(started, "phantom")
def a_claim_that_somebody_called_off(run: Invented) -> Causes:
    _claimed(run, "stopped", status=143)
    return [run.operate(100.2, "release", KEY)]


@excuses(started, "phantom")
def a_job_that_was_killed_before_its_first_line(run: Invented) -> Causes:
    firing = _claimed(run, "failed", status=137, signal=9, duration=0.1)
    return [run.stop(firing, "job", at=100.2, until=100.2, how="killed")]


@excuses(started, "phantom")
def a_job_that_somebody_stopped_before_its_first_line(run: Invented) -> Causes:
    _claimed(run, "stopped", status=143, signal=15, duration=0.1)
    return [run.operate(100.2, "stop", KEY)]


# Statuses


# Who has not ended can be stopped at any time.
@excuses(exits, "exit", still=["later"])
def a_wrapper_that_is_stopped_for_good(run: Invented) -> Causes:
    firing = run.fire(status=None)
    firing.ended = None
    return [run.stop(firing, "wrapper", at=100.1, until=run.history.end)]


@excuses(exits, "bug")
def a_bug_that_was_put_there(run: Invented) -> Causes:
    firing = run.fire(status=70, stderr="oncecron: internal error: x\n")
    return [run.stop(firing, "guard", at=100.2, until=100.2, how="failed")]


@excuses(exits, "exit")
def a_wrapper_that_was_killed(run: Invented) -> Causes:
    firing = run.fire(status=-9)
    return [run.stop(firing, "wrapper", at=100.3, until=100.3, how="killed")]


def _with_status(run: Invented, status: int, *options: str) -> Firing:
    firing = run.fire(options=options)
    run.start(firing)
    firing.status = status
    return firing


@excuses(exits, "exit")
def a_guard_that_could_not_tell_how_it_ended(run: Invented) -> Causes:
    return [run.stop(_with_status(run, 75), "guard", at=101.0, until=101.0, how="killed")]


@excuses(exits, "exit")
def a_wrapper_that_was_told_to_end(run: Invented) -> Causes:
    return [run.stop(_with_status(run, 143), "wrapper", at=101.0, until=101.0, how="signalled")]


@excuses(exits, "exit")
def a_firing_that_could_not_go_on(run: Invented) -> Causes:
    _with_status(run, 69, "--retries", "2")
    return [run.fault(100.5, 102.0, "h1")]


@excuses(exits, "exit")
def an_end_that_the_store_forgot(run: Invented) -> Causes:
    _lost(run).status = 3
    run.history.starts[0].status = 3
    run.fault(100.5, 101.0, "h1")
    return [run.fault(100.5, 101.0, kind="failover")]


@excuses(exits, "exit")
def a_tree_that_its_firing_could_not_wait_for(run: Invented) -> Causes:
    firing = run.fire(status=75)
    run.start(firing, lasts=4.5, ended=None, status=None)
    run.history.log.executions[0].update(outcome="lost", exit_code=None)
    firing.ended = 104.0
    return [run.stop(firing, *BOTH, at=102.0, until=104.0)]


@excuses(timeouts, "timeout")
def a_guard_that_could_not_end_it_in_time(run: Invented) -> Causes:
    firing = run.fire(status=124, options=("--timeout", "1s", "--grace", "1s"))
    run.start(firing, lasts=9.0, signals=[(101.1, "TERM")])
    return [run.stop(firing, "guard", at=100.9, until=108.0)]


@excuses(timeouts, "timeout")
def a_wrapper_that_could_not_end_it_in_time(run: Invented) -> Causes:
    firing = run.fire(status=124, options=("--timeout", "1s", "--grace", "1s"))
    run.start(firing, lasts=9.0, signals=[(101.1, "TERM")])
    return [run.stop(firing, "wrapper", at=100.9, until=108.0)]


@excuses(orphans, "orphan")
def a_guard_that_could_not_end_an_orphan(run: Invented) -> Causes:
    firing = run.fire(status=-9, options=("--grace", "1s"))
    run.start(firing, lasts=12.0, ended=None, status=None)
    firing.ended = 101.0
    run.stop(firing, "wrapper", at=101.0, until=101.0, how="killed")
    return [run.stop(firing, "guard", at=100.5, until=110.0)]


@excuses(leftovers, "leftover")
def a_guard_that_did_not_see_the_success(run: Invented) -> Causes:
    start = run.run()
    start.signals.append((109.0, "TERM"))
    return [run.stop(run.history.firings[0], "guard", at=100.5, until=108.0)]


# Firings without a start


@excuses(unexplained, "unexplained")
def a_firing_that_was_told_to_end_before_its_job(run: Invented) -> Causes:
    firing = run.fire(status=143, stderr=AWAY)
    return [run.stop(firing, "wrapper", at=100.2, until=100.2, how="signalled")]


@excuses(unexplained, "unexplained")
def a_firing_whose_guard_was_hit_before_its_job(run: Invented) -> Causes:
    return [run.stop(run.fire(status=75, stderr=AWAY), "guard", at=100.2, until=100.3)]


@excuses(unexplained, "unexplained")
def a_firing_whose_host_was_hit_before_its_job(run: Invented) -> Causes:
    run.fire(status=75, stderr=AWAY)
    return [run.fault(100.2, 100.4, "h1")]


@excuses(unexplained, "unexplained")
def a_skip_that_was_lost_with_the_store(run: Invented) -> Causes:
    run.fire(100.0, "h2", "t2")
    return [run.fault(100.2, 101.0)]


# A spooled skip may be delivered, and forgotten, at any time after it.
@excuses(unexplained, "unexplained", still=["later"])
def a_spooled_skip_that_the_store_forgot(run: Invented) -> Causes:
    run.fire(100.0, "h2", "t2", status=69, stderr=AWAY)
    return [run.fault(100.2, 101.0, kind="failover")]


@excuses(unexplained, "unexplained")
def a_killed_firing_may_have_noted_that_the_store_is_away(run: Invented) -> Causes:
    dead = run.fire(100.0, "h2", "t2", status=-9, lasts=1.0)
    run.skip(run.fire(103.0, "h2", "t4", status=69), "no-store")
    return [run.stop(dead, "wrapper", at=101.0, until=101.0, how="killed")]


def _woken(run: Invented) -> tuple[Fault, Fault]:
    said = "oncecron: key billing: the store cannot be reached; still waiting (--failover)\n"
    waits = run.fire(100.0, "h2", "t2", status=-9, lasts=1.0, stderr=said)
    run.skip_of("h2", 102.0, "t3")
    run.skip(run.fire(105.0, "h2", "t4", status=69), "no-store")
    guard = run.stop(waits, "guard", at=100.5, until=103.0)
    return guard, run.stop(waits, "wrapper", at=101.0, until=101.0, how="killed")


@excuses(unexplained, "unexplained")
def a_guard_that_woke_has_told_it_then(run: Invented) -> Causes:
    return _woken(run)[:1]


@excuses(unexplained, "unexplained")
def a_guard_whose_wrapper_was_killed_has_told_it_then(run: Invented) -> Causes:
    return _woken(run)[1:]


@excuses(untrue, "untrue")
def what_was_done_before_the_store_forgot_it(run: Invented) -> Causes:
    run.fire(100.0, "h1", "t2", status=-9)
    run.skip(run.fire(103.0, "h2", "t2"), "done")
    return [run.fault(100.5, 101.5, kind="failover")]


_SPOOLS = (
    "oncecron: key billing: the end of the run could not be recorded: away; the record is spooled\n"
)


@excuses(noise, "noise")
def a_line_while_the_host_was_cut_off(run: Invented) -> Causes:
    run.run(stderr=_SPOOLS)
    return [run.fault(100.5, 101.0, "h1")]


@excuses(noise, "noise")
def a_line_of_a_guard_that_was_stopped(run: Invented) -> Causes:
    run.run(stderr=_SPOOLS)
    return [run.stop(run.history.firings[0], "guard", at=100.5, until=101.0)]


@excuses(noise, "noise")
def a_line_of_a_job_that_somebody_stopped(run: Invented) -> Causes:
    run.run(stderr="oncecron: key billing: the command was stopped: ann@h3 asked for it\n")
    return [run.operate(100.5, "stop", KEY)]


# Ticks without a start


def _refused(run: Invented, reason: str, at: float = 101.0) -> Firing:
    firing = run.fire(at, "h2", "t2")
    run.skip(firing, reason)
    return firing


@excuses(missed, "missed")
def a_tick_that_was_fired_in_a_pause(run: Invented) -> Causes:
    _refused(run, "paused")
    return [run.operate(99.0, "pause", KEY), run.operate(104.0, "resume", KEY)]


@excuses(missed, "missed")
def a_tick_that_was_fired_on_a_drained_host(run: Invented) -> Causes:
    _refused(run, "drained")
    return [run.operate(99.0, "drain", "h2"), run.operate(104.0, "undrain", "h2")]


@excuses(missed, "missed")
def a_tick_that_another_host_may_have_taken_with_it(run: Invented) -> Causes:
    other = run.fire(100.5, "h1", "t2", status=-9)
    _refused(run, "done")
    return [run.stop(other, "wrapper", at=100.8, until=100.8, how="killed")]


@excuses(missed, "missed")
def a_tick_that_another_host_may_have_lost(run: Invented) -> Causes:
    run.fire(100.5, "h1", "t2", status=75, stderr=AWAY)
    _refused(run, "done")
    return [run.fault(100.4, 102.0, "h1")]


@excuses(missed, "missed")
def a_lease_of_a_firing_that_was_killed(run: Invented) -> Causes:
    holder = run.fire(98.0, "h1", "t0", status=143, stderr=AWAY)
    run.row(holder, token=1500, outcome="not-started", exit_code=None)
    _refused(run, "held", 100.0)
    return [run.stop(holder, "wrapper", at=98.2, until=98.2, how="signalled")]


@excuses(missed, "missed")
def a_claim_that_came_when_the_network_was_whole(run: Invented) -> Causes:
    holder = run.fire(98.0, "h1", "t0", status=143, stderr=AWAY)
    run.row(holder, token=1500, outcome="not-started", exit_code=None)
    run.stop(holder, "wrapper", at=98.2, until=98.2, how="signalled")
    _refused(run, "held", 109.0)
    cut = run.fault(98.2, 103.0, "h1")
    cut.group = "network"
    return [cut]


@excuses(missed, "missed")
def a_renewal_that_came_when_the_network_was_whole(run: Invented) -> Causes:
    holder = run.fire(80.0, "h1", "t0")
    run.start(holder, lasts=6.0)
    holder.ended = 98.5
    _refused(run, "held", 100.0)
    cut = run.fault(85.0, 98.0, "h1")
    cut.group = "proxy"
    return [cut]


# Items


def _items(run: Invented, *events: tuple[str, str, int], state: str = "done") -> list[Firing]:
    run.history.items = [
        ItemEvent("letters", event, item, "t1", firing, 100.0 + number)
        for number, (event, item, firing) in enumerate(events)
    ]
    calm = {"key": "letters", "tick": CALM_TICK, "item": "1", "state": state}
    run.history.log.items.append(calm)
    return [
        Firing(number, 99.0, host, "letters", "t1", [], number)
        for number, host in ((901, "h1"), (902, "h2"))
    ]


@excuses(items, "repeated", items={"letters": 1})
def an_item_whose_draw_the_store_forgot(run: Invented) -> Causes:
    _items(run, ("begin", "a", 901), ("end", "a", 901), ("begin", "a", 902))
    return [run.fault(100.2, 101.0, kind="failover")]


@excuses(items, "beside", items={"letters": 1}, retried=["letters"])
def a_command_that_nobody_could_kill(run: Invented) -> Causes:
    first, _ = _items(
        run, ("begin", "a", 901), ("overlap", "a", 902), ("begin", "a", 902), ("end", "a", 902), ("end", "a", 901),
    )  # fmt: skip
    return [run.stop(first, *BOTH, at=100.5, until=103.5)]


# Every host works at that list, until the run is over.
@excuses(items, "left-out", items={"letters": 1}, still=["later", "on another host"])
def an_item_of_a_machine_with_too_much_to_do(run: Invented) -> Causes:
    _items(run, state="lost")
    run.history.quiet = 150.0
    run.run(149.0)
    return [run.fault(151.0, 153.0, kind="slow answer")]


# People


@excuses(hindered, "paused")
def a_pause_that_the_store_forgot(run: Invented) -> Causes:
    run.operate(100.0, "pause", KEY)
    run.run(105.0)
    return [run.fault(100.2, 101.0, kind="failover")]


def _outlived_a_stop(run: Invented) -> Firing:
    firing = run.fire(status=75, lasts=12.0)
    run.start(firing, lasts=9.0, ended=None, status=None)
    run.operate(103.0, "stop", KEY)
    return firing


@excuses(stopped, "not-ended")
def a_stopped_tree_that_nobody_could_kill(run: Invented) -> Causes:
    return [run.stop(_outlived_a_stop(run), *BOTH, at=102.0, until=109.0)]


@excuses(stopped, "not-ended")
def a_lease_that_the_store_forgot(run: Invented) -> Causes:
    _outlived_a_stop(run)
    return [run.fault(101.0, 102.0, kind="failover")]


@excuses(commands, "command")
def a_command_whose_store_was_away(run: Invented) -> Causes:
    run.run()
    run.operate(100.5, "pause", KEY, status=69, stderr="oncecron: away\n")
    return [run.fault(100.4, 101.0)]


@excuses(commands, "command")
def a_command_whose_host_was_switched_off(run: Invented) -> Causes:
    run.operate(100.5, "pause", KEY, status=-9)
    return [run.fault(100.6, 100.6, "h3")]


@excuses(commands, "command")
def a_lease_whose_holder_could_not_answer(run: Invented) -> Causes:
    firing = run.fire(status=0)
    run.start(firing)
    run.operate(100.5, "stop", KEY, status=75, stderr="oncecron: not yet\n")
    return [run.stop(firing, *BOTH, at=100.3, until=101.0)]


@excuses(commands, "command")
def a_key_that_the_store_forgot(run: Invented) -> Causes:
    run.run()
    run.operate(105.0, "stop", KEY, status=66, stderr="oncecron: no host has fired key billing\n")
    return [run.fault(100.2, 101.0, kind="failover")]


# The log


def _found(run: Invented, finding: str) -> None:
    row = run.history.log.executions[0]
    found = {"finding": finding, "key": KEY, "tick": "t1", "reason": "a reason"}
    found |= {"execution_id": row["execution_id"], "other_execution_id": None}
    run.history.log.findings.append(found)


@excuses(audited, "audit")
def a_finding_of_what_the_store_forgot(run: Invented) -> Causes:
    run.run()
    _found(run, "gap")
    return [run.fault(100.5, 101.0, kind="failover")]


@excuses(audited, "audit")
def a_finding_of_what_nobody_could_end(run: Invented) -> Causes:
    run.run()
    _found(run, "late-end")
    return [run.stop(run.history.firings[0], *BOTH, at=100.5, until=103.0)]


@excuses(audited, "audit")
def a_finding_of_what_nobody_could_end_before_its_first_line(run: Invented) -> Causes:
    firing = _claimed(run, "lost")
    _found(run, "late-end")
    return [run.stop(firing, *BOTH, at=100.1, until=103.0)]


@excuses(audited, "audit", store="sqlite")
def a_finding_by_a_clock_that_was_set(run: Invented) -> Causes:
    run.run()
    _found(run, "overlap")
    step = run.fault(100.5, 101.0, "h1", "step the clock")
    step.detail = "+3 s"
    return [step]


# Afterwards


def _not_again(run: Invented, *options: str) -> None:
    run.history.quiet, run.history.end = 130.0, 165.0
    run.skip(run.fire(131.0, "h2", "t2", options=options))
    run.skip(run.fire(150.0, "h2", "t2", options=options))


@excuses(blocked, "blocked")
def a_store_that_did_not_answer(run: Invented) -> Causes:
    _not_again(run)
    return [run.fault(132.0, 145.0, kind="slow answer")]


@excuses(blocked, "blocked", store="sqlite")
def a_start_that_is_still_to_come(run: Invented) -> Causes:
    run.run()
    _not_again(run, "--min-gap", "2s")
    step = run.fault(99.0, 125.0, "h1", "step the clock")
    step.detail = "+90 s"
    return [step]


# Who is stopped until the run is over did not wake before it.
@excuses(left, "left", still=["later"])
def a_tree_that_nobody_can_end_any_more(run: Invented) -> Causes:
    run.run().lives = True
    firing = run.history.firings[0]
    return [run.stop(firing, *BOTH, at=100.5, until=run.history.end)]
