"""What `jobs` and `why` say of running and dead executions, of shards and of pauses; the words of `why`."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from oncecron.core.log_rows import (
    ALL_KEYS,
    Execution,
    Expectation,
    HistoryQuery,
    JobKey,
    LeaseView,
    Pause,
    Skip,
    SkipReason,
    Traced,
    TracedSkip,
)
from oncecron.core.model import REFUSAL_REASONS
from oncecron.core.text import Clock
from oncecron.core.tick import named_tick
from oncecron.log.jobs import in_words, jobs, states
from oncecron.log.sources import Sources
from oncecron.log.tick_history import Division, Facts
from oncecron.log.why import account

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncecron.log.job_summary import JobSummary
    from oncecron.stores.reader import Reader

NOW = 1000.0
RUNNING = Execution(
    *(1, "k", 0, "t1", 1, "running", None, None, "host-a", 4711, "batch", "./bill.sh"),
    *(900.0, None, None, 5, "owner", None),
)
FAILED = RUNNING._replace(outcome="failed", exit_code=4, finished_at=901.0, duration=1.0)
LOST = RUNNING._replace(outcome="lost", finished_at=960.0)
SHARD = RUNNING._replace(
    outcome="succeeded", exit_code=0, duration=0.5, finished_at=901.0, shards=2
)
SKIP = Skip("k", 0, "t1", "done", "host-a", 4711, "host-b", 16, 902.0, 1, "failed")
LEASE = LeaseView(
    *("k", 0, "t1", 1, 1, "held", "host-a", 4711, "batch", 900.0, 990.0, 1050.0, 5, None, None),
    asked_at=NOW,
)
OVER = LEASE._replace(expires_at=950.0)


def pause(key: str, until: float | None) -> Pause:
    return Pause(key, None, f"ann@{key}", None, 0.0, until)


def at_a_glance(
    *newest: Execution, leases: tuple[LeaseView, ...] = (), pauses: tuple[Pause, ...] = ()
) -> JobSummary:
    """Return what is shown of the only key."""
    store = SimpleNamespace(
        job_keys=lambda: [JobKey("k", 0, None, None)],
        pauses=lambda: pauses,
        leases=lambda: leases,
        history=lambda query: (each for each in newest if each.outcome in query.outcomes),
        newest=lambda limit, _keys: iter(newest[:limit]),
        reasons=lambda _since: iter(()),
        skips=lambda _query: iter(()),
        read=lambda *_view, **_bounds: iter(()),
    )
    people = cast("Reader", store)
    [job] = jobs(Sources(people, people, NOW))
    return job


def told(*executions: Execution, leases: tuple[LeaseView, ...] = (), **known: Any) -> Any:
    return account(facts_for(executions, leases, **known), Clock(utc=True))


def facts_for(
    executions: Sequence[Execution], leases: tuple[LeaseView, ...] = (), /, **known: Any
) -> Facts:
    traced = [Traced(each, None, None, None) for each in executions]
    facts = Facts("k", "t1", None, (), traced, (), (), leases, (), {}, frozenset(), NOW)
    return facts._replace(**known)


@pytest.mark.parametrize(
    ("leases", "outcome", "headline"),
    [
        ((LEASE,), "running", "is running on host-a."),
        ((OVER,), "no-end", "was started on host-a and has no end on record."),
        ((), "no-end", "was started on host-a and has no end on record."),
        ((LEASE._replace(fencing_token=6),), "no-end", "was started on host-a and has no end"),
        ((OVER._replace(asked_at=900.0),), "running", "is running on host-a."),
        (
            (LEASE._replace(state="orphaned"),),
            "orphaned",
            "was started on host-a, whose holder seems dead.",
        ),
    ],
    ids=["alive", "over", "none", "of another", "just begun", "orphaned"],
)
def test_what_has_no_living_lease_does_not_run(
    leases: tuple[LeaseView, ...], outcome: str, headline: str
) -> None:
    """Unless it began when the leases had been asked for."""
    assert at_a_glance(RUNNING, leases=leases).outcome == outcome
    verdict, (first, *others) = told(RUNNING, leases=leases)
    state = "lost" if verdict == "no-end" else verdict
    assert at_a_glance(RUNNING, leases=leases).state == state
    assert first.startswith(f"Tick t1 of key k {headline}")
    assert any("its lease has expired" in each for each in others) == (outcome == "no-end")


def test_a_shard_without_a_living_lease_does_not_run() -> None:
    """Beside one that does, and alone."""
    shards = [RUNNING._replace(shards=2, shard=shard, execution_id=shard) for shard in (0, 1)]
    verdict, sentences = told(*shards, leases=(LEASE,))
    assert verdict == "running"
    assert "2 shards: 1 running (0), 1 without an end on record (1)." in sentences[0]
    assert told(*shards).verdict == "no-end"


@pytest.mark.parametrize(
    ("outcomes", "verdict", "described"),
    [
        ({0: "succeeded", 1: "succeeded"}, "succeeded", "2 succeeded (0-1)"),
        ({0: "succeeded", 1: "failed"}, "failed", "1 succeeded (0), 1 failed (1)"),
        ({0: "lost", 1: "failed"}, "lost", "1 failed (1), 1 lost (0)"),
        ({0: "stopped", 1: "timed-out"}, "timed-out", "1 stopped (0), 1 timed out (1)"),
        ({0: "unclaimed", 1: "succeeded"}, "unclaimed", None),
        ({1: "failed"}, "incomplete", "1 failed (1), 1 not started (0)"),
        ({1: "running"}, "running", None),
        ({0: "failed", 1: "running"}, "running", None),
        ({0: "lost", 5: "lost", 2: "lost", 7: "lost", 1: "lost"}, "incomplete",
         "5 lost (0-2, 5, 7), 3 not started (3-4, 6)"),
    ],
)  # fmt: skip
def test_a_tick_is_as_good_as_its_worst_shard(
    outcomes: dict[int, str], verdict: str, described: str | None
) -> None:
    """Once nothing runs, and all have been started. The good ones come first, and runs of numbers as ranges."""
    division = Division(8 if 7 in outcomes else 2, outcomes)
    assert division.verdict() == verdict
    assert described in (None, division.summary())


@pytest.mark.parametrize(("duration", "end"), [(None, " and has no end on record"), (5.6, "")])
@pytest.mark.parametrize("given_up", [True, False])
def test_an_end_is_unknown_only_where_nobody_told_it(
    duration: float | None, end: str, given_up: bool
) -> None:
    """Of what was lost."""
    known: dict[str, Any] = {"exhausted": frozenset({1})} if given_up else {}
    end += "; given up after its only attempt" if given_up else ""
    headline, *_ = told(LOST._replace(duration=duration), **known).sentences
    assert headline == f"Tick t1 of key k was lost on host-a{end}."


def test_the_account_is_a_timeline() -> None:
    """Sorted by time, the day in front; other days in full; a host's clock only where it disagrees."""
    started = RUNNING._replace(
        outcome="failed", exit_code=3, finished_at=90_000.0, duration=89_100.0
    )
    facts = {
        "executions": [Traced(started, None, 850.0, None)],
        "skips": [TracedSkip(SKIP, 901.5), TracedSkip(SKIP._replace(count=2, at=903.0), None)],
    }
    assert told(**facts).sentences == [
        "Tick t1 of key k failed on host-a.",
        "On 1970-01-01 (UTC, by the store's clock):",
        "00:15:00 host-a started it (pid 4711, user batch, fired at 00:14:10 by its own clock): ./bill.sh",
        "00:15:02 host-b skipped: host-a (pid 4711) had already run it (failed)",
        "00:15:03 host-b skipped 2 times: host-a (pid 4711) had already run it (failed)",
        "1970-01-02T01:00:00Z host-a failed after 1d1h (exit status 3)",
        "To run it again, as user batch: `oncecron run --key k --tick t1 --again -- ./bill.sh`",
    ]


@pytest.mark.parametrize(
    ("run", "known", "line"),
    [
        (FAILED, {}, "--tick t1 --again -- ./bill.sh`"),
        (FAILED._replace(command="psql --password ***"), {}, "--tick t1 --again -- COMMAND`"),
        (FAILED._replace(command="psql ..."), {}, "--tick t1 --again -- COMMAND`"),
        (FAILED._replace(tick=None), {"tick": None}, "--no-tick --again -- ./bill.sh`"),
        (FAILED._replace(shards=2, shard=0), {}, None),
        (FAILED, {"is_divided": True}, None),
        (FAILED, {"leases": (LEASE,)}, None),
        (RUNNING, {"leases": (LEASE,)}, None),
        (FAILED._replace(outcome="succeeded"), {}, None),
    ],
)
def test_what_went_wrong_can_be_run_again_by_the_line_that_is_shown(
    run: Execution, known: dict[str, Any], line: str | None
) -> None:
    """Unless it succeeded, still runs, is retried by itself, or has items. No secret is made up."""
    last = told(run, **known).sentences[-1]
    assert last.endswith(line) if line else "--again" not in last


def test_a_time_that_is_no_tick_is_told_first() -> None:
    """Nobody missed it, and nobody has to look at a crontab."""
    expected = JobKey("k", 0, Expectation("0 2 * * *", "UTC", 1, None, 0.0))
    asked = {"job_keys": [expected], "now": 90_000.0}
    off = told(tick="1970-01-01T03:00Z", instant=10_800.0, **asked)
    assert (off.verdict, len(off.sentences)) == ("not-fired", 1)
    assert off.sentences[0].startswith(
        "Tick 1970-01-01T03:00Z of key k is no tick of the key's last schedule, "
    )
    assert off.sentences[0].endswith(
        "0 2 * * * (UTC); the last one before it is 1970-01-01T02:00Z."
    )
    old = told(tick="1970-01-01T03:00Z", instant=10_800.0, oldest=80_000.0, **asked)
    assert (old.verdict, old.sentences[0]) == ("no-record", off.sentences[0])
    due = told(tick="1970-01-01T02:00Z", instant=7200.0, **asked).sentences
    assert due[0] == "Tick 1970-01-01T02:00Z of key k did not run: no firing is on record."
    assert "The key's last schedule has this tick." in due


def test_commands_are_shown() -> None:
    """For more skips, for a pause of the key, and for that of all keys."""
    skips, pauses = [TracedSkip(SKIP, None)] * 21, [pause("k", None), pause(ALL_KEYS, None)]
    shown = told(skips=skips, pauses=pauses).sentences
    assert "Further skips on record: 1. To list all: `oncecron history --skips k`" in shown
    assert shown[-2].endswith("; to resume: `oncecron resume k`")
    assert shown[-1].endswith("; to resume: `oncecron resume --all`")


def test_every_reason_of_a_skip_has_its_sentence() -> None:
    """Not its bare name; and the tick was skipped."""
    for reason in REFUSAL_REASONS:
        verdict, (headline, _, line, *_) = told(
            skips=[TracedSkip(SKIP._replace(reason=reason), None)]
        )
        assert verdict == ("no-store" if reason == "no-store" else "skipped")
        assert "did not run" in headline
        assert line.startswith("00:15:02 host-b skipped: ")
        assert not line.startswith(f"00:15:02 host-b skipped: {reason}")


def test_a_tick_that_was_skipped_has_the_line_that_runs_it() -> None:
    """Not where it has run, or was not wanted; with the command of the newest start."""
    line = "To run it now, as user batch: `oncecron run --key k --tick t1 --again -- ./bill.sh`"
    for reason in REFUSAL_REASONS:
        skips = [TracedSkip(SKIP._replace(reason=reason), None)]
        shown = told(skips=skips, newest_start=RUNNING).sentences
        assert (line in shown) == (reason not in ("done", "recent", "unmet")), reason
        unknown = told(skips=skips).sentences  # a line without its command is none
        assert not any("--again" in each for each in unknown if reason != "no-store")


def test_a_run_that_keeps_other_ticks_from_starting_has_the_command_that_ends_it() -> None:
    """The run of the tick itself has none: it may be as long as always."""
    held = TracedSkip(SKIP._replace(reason="held", tick="t2", holder_pid=RUNNING.pid), None)
    holder = Traced(RUNNING, None, None, None)
    stop = "To end it: `oncecron stop k`"
    shown = told(skips=[held], holders=[holder], leases=(LEASE,), tick="t2").sentences
    assert [stop in each for each in shown].count(True) == 1
    assert not any(stop in each for each in told(RUNNING, leases=(LEASE,)).sentences)


def test_the_line_below_the_keys_counts_what_is_wrong_and_what_is_paused() -> None:
    """A key that somebody has paused is not wrong, and may be forgotten."""
    well, wrong = at_a_glance(SHARD), at_a_glance(FAILED)
    held = at_a_glance(SHARD, pauses=(pause("k", None),))
    assert in_words([well]) == "nothing is wrong with 1 key"
    assert in_words([well, held]) == "nothing is wrong with 2 keys; 1 paused"
    assert in_words([wrong, held, wrong]) == "2 failed of 3 keys; 1 paused"


def test_a_retry_repeats_no_command() -> None:
    """Another command of the tick is shown."""
    again = [FAILED._replace(attempt=number, execution_id=number) for number in (1, 2, 3)]
    again[2] = again[2]._replace(command="./mend.sh", started_at=905.0)
    starts = [each for each in told(*again).sentences if "(pid 4711, user batch)" in each]
    assert [each.partition("user batch)")[2] for each in starts] == [
        ": ./bill.sh",
        "",
        ": ./mend.sh",
    ]


def test_a_tick_is_shown_in_the_zone_of_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this host, as `--tick` takes it; the line to paste, and UTC, have its name."""
    name, here = "2026-11-28T01:00Z", "2026-11-28T02:00+01:00"
    assert named_tick(here).text == name
    before = RUNNING._replace(tick=name, outcome="failed", started_at=1795827601.0)
    held = TracedSkip(SKIP._replace(reason="held", holder_pid=RUNNING.pid, at=1795827602.0), None)
    facts = facts_for([before], skips=[held], holders=[Traced(before, None, None, None)], tick=name)
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        shown, in_utc = (account(facts, Clock(utc=utc)).sentences for utc in (False, True))
        assert Clock(utc=False).said_tick("month-07") == "month-07"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert shown[0].startswith(f"Tick {here} of key k failed")
    assert shown[1].startswith("On 2026-11-28 (UTC+01:00, ")
    assert [each for each in shown if name in each] == [shown[-1]]
    assert f"(tick {here})" in shown[2]
    assert f"--tick {name} --again" in shown[-1]
    assert here not in " ".join(in_utc)


def test_what_waits_for_its_next_attempt_runs() -> None:
    """Where no tick was over before."""
    job = at_a_glance(FAILED, leases=(LEASE,))
    assert (job.outcome, job.exit_code, job.failures) == ("running", None, 0)
    before = FAILED._replace(tick="t0", owner="other", fencing_token=4, exit_code=3)
    job = at_a_glance(FAILED, before, leases=(LEASE,))
    assert (job.outcome, job.exit_code, job.failures) == ("failed", 3, 1)


def test_a_shard_that_succeeded_is_no_success_of_its_key() -> None:
    """Neither when, nor how long."""
    job = at_a_glance(SHARD._replace(shard=1, outcome="failed", exit_code=4), SHARD)
    assert (job.outcome, job.succeeded_at, job.usual_duration) == ("failed", None, None)
    job = at_a_glance(SHARD._replace(shard=1), SHARD)
    assert (job.outcome, job.succeeded_at, job.usual_duration) == ("succeeded", 901.0, 0.5)


def ran(number: int, outcome: str = "succeeded", **parts: Any) -> Execution:
    """Return one execution of many, each of its own tick."""
    each = FAILED._replace(execution_id=number, tick=f"t{number}", owner=f"o{number}", **parts)
    return each._replace(outcome=outcome, fencing_token=number)


@pytest.mark.parametrize(
    ("newest", "streak"),
    [
        ([ran(200 - n) for n in range(24)], 24),
        ([ran(200 - n) for n in range(150)], 25),
        ([ran(200 - n, "failed") for n in range(150)], 100),
        ([ran(200 - n, "failed" if n < 60 else "succeeded") for n in range(150)], 60),
        ([ran(200 - n // 2, shard=n % 2, shards=2) for n in range(150)], 25),
    ],
    ids=["few", "successes", "failures", "failures before which it succeeded", "shards"],
)
def test_a_streak_is_counted_further_where_it_is_bad(newest: list[Execution], streak: int) -> None:
    """A look at a few executions is enough of a key that is well."""
    job = at_a_glance(*newest)
    assert max(job.successes, job.failures) == streak
    assert min(job.successes, job.failures) == 0
    assert (job.succeeded_at is not None) == any(each.outcome == "succeeded" for each in newest)


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"outcome": None}, [(None, 0)]),
        ({"successes": 3}, [("ok", 0)]),
        ({"outcome": "unclaimed", "exit_code": 0, "successes": 1}, [("ok", 0)]),
        ({"outcome": "failed", "failures": 1, "settled": True}, [("ok", 0)]),
        ({"paused_by": "x@y"}, [("paused", 0)]),
        ({"paused_by": "x@y", "lease": "held"}, [("running", 0)]),
        ({"outcome": "timed-out", "lease": "held"}, [("failed", 0), ("running", 0)]),
        ({"outcome": "stopped", "stopped_by": "x@y", "lease": "held"}, [("running", 0)]),
        (
            {"lease": "held", "slow": True, "overruns": 2},
            [("slow", 0), ("running", 0), ("overrun", 2)],
        ),
        ({"lease": "orphaned"}, [("orphaned", 0)]),
        ({"outcome": "failed", "lease": "stale"}, [("failed", 0), ("stale", 0)]),
        ({"outcome": "unclaimed", "exit_code": 1}, [("failed", 0)]),
        ({"outcome": "no-end", "missed": 2}, [("lost", 0), ("missed", 2)]),
        (
            {"outcome": "stopped", "stopped_by": "x@y", "overruns": 3},
            [("stopped", 0), ("overrun", 3)],
        ),
        ({"outcome": "stopped"}, [("failed", 0)]),
        ({"overdue": "t", "paused_by": "x@y"}, [("overdue", 0)]),
        ({"outcome": "not-started", "silent_since": 1.0}, [("failed", 0), ("silent", 0)]),
    ],
)
def test_what_is_wrong_with_a_key_comes_before_what_is_well(
    parts: dict[str, Any], found: list[tuple[str | None, int]]
) -> None:
    """The worst first; a green outcome hides nothing."""
    job = at_a_glance()._replace(**{"outcome": "succeeded", **parts})
    assert states(job) == found


def test_what_a_person_stopped_is_no_failure() -> None:
    """Neither in the streak, nor as the last failure; its host's end is one."""
    stopped = ran(9, "stopped", requested_by="ann@web1")
    job = at_a_glance(stopped, ran(8), ran(7))
    assert (job.state, job.successes, job.failures, job.failed_at) == ("stopped", 2, 0, None)
    job = at_a_glance(stopped, ran(8, "failed", finished_at=950.0), ran(7))
    assert (job.state, job.successes, job.failures, job.failed_at) == ("stopped", 0, 1, 950.0)
    job = at_a_glance(ran(9, "stopped"), ran(8))
    assert (job.state, job.failures) == ("failed", 1)
    query = HistoryQuery(failed=True)
    assert not query.takes_outcome(stopped)
    assert query.takes_outcome(ran(9, "stopped"))


def test_what_is_due_while_it_runs_is_not_overdue() -> None:
    """A key has one state: it runs, and then it is slow."""
    usual = [ran(number, duration=10.0, finished_at=911.0) for number in range(5)]
    assert at_a_glance(RUNNING, *usual, leases=(LEASE,)).state == "slow"
    assert at_a_glance(RUNNING, *usual, leases=(LEASE._replace(state="stale"),)).state == "stale"
    usual = [each._replace(duration=50.0) for each in usual]
    assert at_a_glance(RUNNING, *usual, leases=(LEASE,)).state == "running"


@pytest.mark.parametrize("keys", [1, 200])
def test_the_questions_do_not_depend_on_how_many_keys_there_are(keys: int) -> None:
    """One question of each kind, although every key has a tick that is due."""
    pytest.importorskip("oncecron_each")  # its lists are one question
    asked: list[str] = []

    def answer(name: str, *rows: Any) -> Callable[..., Any]:
        return lambda *_given: asked.append(name) or iter(rows)

    names = [f"k{number}" for number in range(keys)]
    expected = Expectation("* * * * *", "UTC", 1, None, NOW - 3600)
    store = SimpleNamespace(
        job_keys=answer("job_keys", *(JobKey(name, 0, expected, NOW - 600) for name in names)),
        pauses=lambda: asked.append("pauses") or [],
        leases=lambda: asked.append("leases") or [],
        newest=answer("newest", *(ran(1, key=name) for name in names)),
        reasons=answer("reasons", *(SkipReason(name, "t", "h", "held") for name in names)),
        read=lambda view, *_types, **_bounds: asked.append(view) or iter(()),
    )
    people = cast("Reader", store)
    found = list(jobs(Sources(people, people, NOW)))
    assert len(found) == keys
    assert {job.missed + bool(job.overdue) for job in found} == {1}
    assert sorted(asked) == ["each/item_lists", "job_keys", "leases", "newest", "pauses", "reasons"]


@pytest.mark.parametrize(
    ("own", "of_all", "shown"),
    [
        (2000.0, None, ALL_KEYS), (None, 2000.0, "k"), (2000.0, 3000.0, ALL_KEYS), (3000.0, 2000.0, "k"),
        (None, None, "k"),
    ],
)  # fmt: skip
def test_the_pause_that_lasts_longest_is_shown(
    own: float | None, of_all: float | None, shown: str
) -> None:
    """Of the key's own and that of all keys."""
    job = at_a_glance(FAILED, pauses=(pause(ALL_KEYS, of_all), pause("k", own)))
    assert job.paused_by == f"ann@{shown}"
