"""The checker finds what is planted about further attempts, parts, and the statuses that come of them."""

from typing import Any

import pytest
from invented import Invented, broken

from oncecron_drill.history import Start

FAILOVER = ("--failover",)
RETRIES = ("--retries", "2")
PARTS = ("--shards", "2")


@pytest.fixture
def run() -> Invented:
    """Give a history without an event."""
    return Invented()


def last_row(run: Invented) -> dict[str, Any]:
    """Return the row that was made last."""
    return run.history.log.executions[-1]


# Takeovers


def lose(run: Invented, tick: str | None = "t1", outcome: str = "lost", at: float = 100.0) -> Start:
    """Add a start on h1, at whose end all of its host is killed, recorded with this outcome."""
    firing = run.fire(at, "h1", tick, status=-9, options=FAILOVER)
    start = run.start(firing, ended=None, status=None, attempt=1)
    last_row(run).update(outcome=outcome, exit_code=None, signal=9)
    run.stop(firing, "wrapper", "guard", "job", at=at + 1.1, until=at + 1.1, how="killed")
    return start


@pytest.mark.parametrize(("options", "found"), [(FAILOVER, []), ((), ["double"])])
def test_a_lost_tick_may_be_taken_over(
    run: Invented, options: tuple[str, ...], found: list[str]
) -> None:
    """By a firing with --failover."""
    lose(run)
    run.start(run.fire(100.1, "h2", options=options), at=108.0, attempt=2)
    assert broken(run) == found


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "stopped"])
def test_what_was_not_lost_is_not_taken_over(run: Invented, outcome: str) -> None:
    """It has ended, and by its own; what people stopped is final."""
    first = run.start(run.fire(options=FAILOVER, status=3 if outcome == "failed" else 0))
    if outcome == "stopped":
        first.signals.append((101.0, "TERM"))
        last_row(run)["outcome"] = "stopped"
    run.start(run.fire(100.1, "h2", options=FAILOVER), at=108.0, attempt=2)
    assert broken(run) == ["double"]


@pytest.mark.parametrize(("felt", "found"), [(True, []), (False, ["double"])])
def test_what_was_lost_may_tell_its_end_later(run: Invented, felt: bool, found: list[str]) -> None:
    """Its record says that it had been lost; without a fault it cannot have been."""
    run.start(run.fire(options=FAILOVER))
    last_row(run)["lost_reason"] = "expired"
    if felt:
        run.fault(100.5, 107.0, "h1")
    run.start(run.fire(100.1, "h2", options=FAILOVER), at=108.0, attempt=2)
    assert broken(run) == found


def test_a_living_attempt_is_not_taken_over(run: Invented) -> None:
    """Two trees at once, whatever is recorded."""
    firing = run.fire(100.0, "h1", options=FAILOVER, status=75, lasts=12)
    run.start(firing, lasts=10, ended=None, status=None)
    run.fault(100.5, 107.0, "h1")
    run.start(run.fire(100.1, "h2", options=FAILOVER), at=108.0, attempt=2)
    assert broken(run) == ["overlap"]


def test_a_takeover_has_a_limit(run: Invented) -> None:
    """Without --retries two follow the first one: a job may kill its host."""
    at = 100.0
    for attempt in range(1, 5):
        lose(run, at=at).attempt = attempt
        last_row(run).update(attempt=attempt, cause="takeover" if attempt > 1 else "schedule")
        assert broken(run) == ([] if attempt < 4 else ["double"])
        at += 10


def test_an_attempt_that_did_not_start_is_none(run: Invented) -> None:
    """It takes a number all the same."""
    lose(run)
    silent = run.fire(100.2, "h3", status=75, options=FAILOVER, stderr="oncecron: asked to stop\n")
    run.row(silent, token=1500, outcome="not-started", attempt=2)
    run.token = 2000
    run.start(run.fire(100.1, "h2", options=FAILOVER), at=110.0, attempt=3)
    assert broken(run) == []


@pytest.mark.parametrize(("lost", "found"), [("expired", []), (None, ["double"])])
def test_who_was_lost_before_it_did_not_start_is_taken_over(
    lost: str | None, found: list[str]
) -> None:
    """A person had asked for it again, after what had succeeded; that it did not start it told later."""
    run = Invented()
    run.run()
    silent = run.fire(105.0, status=75, options=("--again",), stderr="oncecron: lease lost\n")
    run.row(silent, token=1500, outcome="not-started", attempt=2, lost_reason=lost)
    run.fault(105.0, 106.0)
    run.token = 2000
    run.start(run.fire(104.0, "h2", options=FAILOVER), at=110.0, attempt=3)
    assert broken(run) == found


def test_a_lost_attempt_without_a_first_line_counts(run: Invented) -> None:
    """The one that follows it is a takeover, which needs --failover."""
    silent = run.fire(100.0, "h1", status=-9, options=FAILOVER)
    run.row(silent, token=900, outcome="lost", exit_code=None)
    run.stop(silent, "wrapper", "guard", "job", at=100.1, until=100.1, how="killed")
    start = run.start(run.fire(100.1, "h2", options=FAILOVER), at=108.0, attempt=2)
    assert broken(run) == []
    run.history.firings[1].command.remove("--failover")
    assert start.attempt == 2
    assert broken(run) == ["double"]


def test_a_takeover_without_a_first_line_came_after_the_loss(run: Invented) -> None:
    """Its firing had waited since before the first start: when it was granted, nobody saw."""
    silent = run.fire(99.9, "h2", status=75, lasts=12, options=FAILOVER, stderr="oncecron: lost\n")
    lose(run)
    run.row(silent, token=1500, attempt=2)
    run.fault(109.0, 111.0)
    assert broken(run) == []


# Retries


def retry(run: Invented, *statuses: int, options: tuple[str, ...] = RETRIES) -> list[Start]:
    """Add a firing whose attempts end so, one after another; it leaves with the last one's status."""
    firing = run.fire(100.0, status=statuses[0], lasts=0, options=options)
    starts = []
    for number, status in enumerate(statuses):
        firing.status = status
        starts.append(run.start(firing, at=100.1 + 2 * number, attempt=number + 1))
    return starts


@pytest.mark.parametrize(
    ("statuses", "options", "found"),
    [
        ((3, 3, 0), RETRIES, []), ((3, 3, 3, 3), RETRIES, ["double"]),
        ((0, 0), RETRIES, ["double"]), ((3, 0), (), ["double"]),
    ],
)  # fmt: skip
def test_what_failed_is_tried_again(
    run: Invented, statuses: tuple[int, ...], options: tuple[str, ...], found: list[str]
) -> None:
    """As often as --retries says, and no more often; a success is not."""
    retry(run, *statuses, options=options)
    assert broken(run) == found


def test_attempts_are_numbered(run: Invented) -> None:
    """None has the number of another."""
    retry(run, 3, 0)[1].attempt = 1
    last_row(run).update(attempt=1, cause="schedule")
    assert broken(run) == ["double"]


def test_the_token_rises_with_the_attempt(run: Invented) -> None:
    """Each is fenced off by the next."""
    starts = retry(run, 3, 0)
    starts[1].token = last_row(run)["fencing_token"] = (starts[0].token or 0) - 1
    assert "token" in broken(run)


def test_the_last_attempt_tells_the_status(run: Invented) -> None:
    """Not the first one."""
    retry(run, 3, 0)
    run.history.firings[0].status = 3
    assert broken(run) == ["exit"]


def test_an_attempt_may_die_before_its_first_line(run: Invented) -> None:
    """It belongs to a firing that has other starts."""
    retry(run, 3)
    firing = run.history.firings[0]
    firing.status = 137
    run.row(firing, token=1500, attempt=2, outcome="failed", exit_code=None, signal=9, duration=0.1)
    run.stop(firing, "job", at=103.0, until=103.0, how="killed")
    assert broken(run) == []


@pytest.mark.parametrize(("felt", "found"), [(True, []), (False, ["double"])])
def test_another_host_may_go_on_where_the_next_attempt_was_due(
    run: Invented, felt: bool, found: list[str]
) -> None:
    """The holder died in the delay."""
    options = (*RETRIES, *FAILOVER)
    [first] = retry(run, 3, options=options)
    if felt:
        run.fault(101.5, 107.0, "h1")
    run.start(run.fire(100.1, "h2", options=options), at=108.0, attempt=2)
    assert broken(run) == found
    assert first.attempt == 1


# Without a tick


@pytest.mark.parametrize(
    ("outcome", "requested_by", "found"),
    [("lost", None, []), ("stopped", None, []), ("stopped", "root@h3", ["standby"]), ("succeeded", None, ["standby"])],
)  # fmt: skip
def test_a_standby_goes_on_after_what_was_not_to_end(
    run: Invented, outcome: str, requested_by: str | None, found: list[str]
) -> None:
    """A leader that was lost, or whose host shut down; not one that ended, or was to."""
    firing = run.fire(100.0, "h1", None, status=75 if outcome == "lost" else 0, options=FAILOVER)
    start = run.start(firing, lasts=9.0)
    start.signals.append((108.9, "TERM"))
    last_row(run).update(outcome=outcome, requested_by=requested_by)
    if outcome == "lost":
        last_row(run).update(exit_code=None)
        run.fault(109.1, 110.0, "h1")
    if requested_by:
        run.operate(108.8, "stop", start.key)
    run.start(run.fire(100.1, "h2", None, options=FAILOVER), at=112.0)
    assert broken(run) == found


def test_a_standby_goes_on_after_one_that_was_lost_before_its_first_line(run: Invented) -> None:
    """It is on record, and no job wrote anything of it."""
    run.start(run.fire(100.0, "h1", None, options=FAILOVER), lasts=9.0)
    run.token += 1
    firing = run.fire(109.5, "h3", None, status=75, options=FAILOVER)
    run.stop(firing, "guard", at=109.6, until=None, how="killed")
    run.row(firing, token=run.token, execution_id=run.token)
    run.start(run.fire(100.1, "h2", None, options=FAILOVER), at=112.0)
    assert "standby" not in broken(run)


def test_a_firing_that_came_later_stood_by_for_nobody(run: Invented) -> None:
    """It is the next one."""
    run.start(run.fire(100.0, "h1", None, options=FAILOVER), lasts=9.0)
    run.start(run.fire(108.0, "h2", None, options=FAILOVER), at=112.0)
    assert broken(run) == []


# Parts


def run_parts(run: Invented, *statuses: int) -> None:
    """Add a firing whose parts end so, one after another; it leaves with the first one that is not 0."""
    firing = run.fire(100.0, lasts=0, options=PARTS)
    for part, status in enumerate(statuses):
        firing.status = status
        run.start(firing, at=100.1 + 2 * part, shard=str(part))
        last_row(run)["shard"] = part
    firing.status = next((status for status in statuses if status), 0)


def test_a_part_that_starts_twice_is_found(run: Invented) -> None:
    """Each is started once, one after another: its tick is its own."""
    run_parts(run, 0, 0)
    assert broken(run) == []
    run.start(run.fire(110.0, "h2", options=PARTS), shard="1", attempt=2)
    last_row(run)["shard"] = 1
    assert broken(run) == ["double"]


@pytest.mark.parametrize(("status", "found"), [(4, []), (5, ["exit"]), (0, ["exit"])])
def test_the_first_part_that_failed_tells_the_status(
    run: Invented, status: int, found: list[str]
) -> None:
    """Whatever the others ended with."""
    run_parts(run, 0, 4, 5)
    run.history.firings[0].status = status
    assert broken(run) == found


def test_a_clock_that_is_set_back_does_not_change_the_order_of_parts(run: Invented) -> None:
    """Tokens of two parts are not comparable."""
    run_parts(run, 4, 5)
    rows = run.history.log.executions[-2:]
    for start, row in zip(run.history.starts[-2:], rows, strict=True):
        start.token = row["fencing_token"] = 5000 - row["fencing_token"]
    assert broken(run) == []


def test_a_firing_is_refused_for_each_part(run: Invented) -> None:
    """One count a part, but for a pause, which refuses all."""
    run_parts(run, 0, 0)
    firing = run.fire(100.1, "h2", options=PARTS)
    run.skip(firing)
    assert broken(run) == ["unexplained"]
    run.skip(firing)["shard"] = 1
    assert broken(run) == []
    run.history.log.skips.clear()
    run.skip(firing, "paused")
    assert broken(run) == []


@pytest.mark.parametrize(("reason", "found"), [("done", []), ("held", ["unexplained"])])
def test_who_has_waited_is_refused_after_the_end(
    run: Invented, reason: str, found: list[str]
) -> None:
    """That it was told to wait before explains nothing."""
    run.start(run.fire(options=FAILOVER))
    run.skip(run.fire(100.1, "h2", options=FAILOVER), reason)
    assert broken(run) == found


@pytest.mark.parametrize(("tick", "found"), [("t1", ["unexplained"]), ("t0", [])])
def test_who_meets_another_tick_does_not_wait(run: Invented, tick: str, found: list[str]) -> None:
    """Its holder had a lease before it started anything."""
    holder = run.fire(options=FAILOVER, tick=tick)
    refused = run.skip(run.fire(100.1, "h2", options=FAILOVER))
    refused.update(holder_host=holder.host, holder_pid=holder.pid)
    run.start(holder, at=103.0)
    assert broken(run) == found


@pytest.mark.parametrize(("fired", "found"), [(101.6, []), (110.0, ["unexplained"])])
def test_another_tick_may_take_the_lease_before_it_starts(
    run: Invented, fired: float, found: list[str]
) -> None:
    """Who has waited meets the lease, not the job, which a slow host starts later."""
    run.start(run.fire(options=FAILOVER), lasts=1.5)
    run.skip(run.fire(100.1, "h2", options=FAILOVER, lasts=3.0))
    run.start(run.fire(fired, "h3", "t2"), at=fired + 2.0)
    assert broken(run) == found


def test_in_the_calm_every_part_is_started(run: Invented) -> None:
    """Unless another tick's was in its way."""
    run.history.head["keys"]["billing"]["parts"] = 2
    run.history.quiet = 99.0
    run_parts(run, 0)
    assert broken(run) == ["blocked", "part"]
    run.skip(run.fire(100.1, "h2", options=PARTS), "held")["shard"] = 1
    run.skip(run.history.firings[1])
    assert broken(run) == ["blocked"]
