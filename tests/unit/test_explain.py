"""What `jobs` and `why` say of what goes on, of what cannot go on any more, of parts and of pauses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from oncecron.core.log_rows import ALL_KEYS, Execution, JobKey, LeaseView, Pause, Traced
from oncecron.core.text import Clock
from oncecron.reports.explain import account
from oncecron.reports.jobs import JobSummary, jobs
from oncecron.reports.tick_history import Facts

if TYPE_CHECKING:
    from oncecron.stores.api import Inspector

NOW = 1000.0
RUNNING = Execution(
    *(1, "k", 0, "t1", 1, "running", None, None, "host-a", 4711, "batch", "./bill.sh"),
    *(900.0, None, None, 5, "owner", None),
)
FAILED = RUNNING._replace(outcome="failed", exit_code=4, finished_at=901.0, duration=1.0)
LOST = RUNNING._replace(outcome="lost", finished_at=960.0)
PART = RUNNING._replace(outcome="succeeded", exit_code=0, duration=0.5, finished_at=901.0, shards=2)
LEASE = LeaseView(
    *("k", 0, "t1", 1, 1, "held", "host-a", 4711, "batch", 900.0, 990.0, 1050.0, 5, None, None),
    asked_at=NOW,
)
OVER = LEASE._replace(expires_at=950.0)


def pause(key: str, until: float | None) -> Pause:
    """Return a pause."""
    return Pause(key, None, f"ann@{key}", None, 0.0, until)


def at_a_glance(
    *newest: Execution, leases: tuple[LeaseView, ...] = (), pauses: tuple[Pause, ...] = ()
) -> JobSummary:
    """Return what is shown of the only key."""
    store = SimpleNamespace(
        job_keys=lambda: [JobKey("k", 0, None, None)],
        pauses=lambda: pauses,
        leases=lambda: leases,
        history=lambda _query: iter(newest),
    )
    people = cast("Inspector", store)
    [job] = jobs(people, people, NOW)
    return job


def told(*executions: Execution, leases: tuple[LeaseView, ...] = (), **known: Any) -> Any:
    """Return the account of a tick."""
    traced = [Traced(each, None, None, None) for each in executions]
    facts = Facts("k", "t1", None, (), traced, (), (), leases, (), {}, frozenset(), (), NOW)
    return account(facts._replace(**known), Clock(utc=True))


@pytest.mark.parametrize(
    ("leases", "outcome", "headline"),
    [
        ((LEASE,), "running", "is running on host-a."),
        ((OVER,), "no-end", "was started on host-a, and no end is recorded."),
        ((), "no-end", "was started on host-a, and no end is recorded."),
        ((LEASE._replace(fencing_token=6),), "no-end", "was started on host-a, and no end"),
        ((OVER._replace(asked_at=900.0),), "running", "is running on host-a."),
    ],
    ids=["alive", "over", "none", "of another", "just begun"],
)
def test_what_has_no_living_lease_does_not_run(
    leases: tuple[LeaseView, ...], outcome: str, headline: str
) -> None:
    """Unless it began when the leases had been asked for."""
    assert at_a_glance(RUNNING, leases=leases).outcome == outcome
    verdict, (first, *others) = told(RUNNING, leases=leases)
    assert verdict == outcome
    assert first.startswith(f"Tick t1 of key k {headline}")
    assert any("no living lease" in each for each in others) == (outcome == "no-end")


def test_a_part_without_a_living_lease_does_not_run() -> None:
    """Beside one that does, and alone."""
    parts = [RUNNING._replace(shards=2, shard=shard, execution_id=shard) for shard in (0, 1)]
    verdict, sentences = told(*parts, leases=(LEASE,))
    assert verdict == "running"
    assert "2 parts: 1 without an end (1), 1 running (0)." in sentences[0]
    assert told(*parts).verdict == "no-end"


@pytest.mark.parametrize(
    ("duration", "end"), [(None, ": it was started, and its end is unknown"), (5.6, "")]
)
@pytest.mark.parametrize("given_up", [True, False])
def test_an_end_is_unknown_only_where_nobody_told_it(
    duration: float | None, end: str, given_up: bool
) -> None:
    """Of what was lost."""
    known: dict[str, Any] = {"exhausted": frozenset({1})} if given_up else {}
    end += "; it was given up at its only attempt" if given_up else ""
    headline, *_ = told(LOST._replace(duration=duration), **known).sentences
    assert headline == f"Tick t1 of key k was lost on host-a{end}."


def test_what_waits_for_its_next_attempt_runs() -> None:
    """Where no tick was over before."""
    job = at_a_glance(FAILED, leases=(LEASE,))
    assert (job.outcome, job.exit_code, job.streak) == ("running", None, 0)
    before = FAILED._replace(tick="t0", owner="other", fencing_token=4, exit_code=3)
    job = at_a_glance(FAILED, before, leases=(LEASE,))
    assert (job.outcome, job.exit_code, job.streak) == ("failed", 3, 1)


def test_a_part_that_succeeded_is_no_success_of_its_key() -> None:
    """Neither when, nor how long."""
    job = at_a_glance(PART._replace(shard=1, outcome="failed", exit_code=4), PART)
    assert (job.outcome, job.succeeded_at, job.usual_duration) == ("failed", None, None)
    job = at_a_glance(PART._replace(shard=1), PART)
    assert (job.outcome, job.succeeded_at, job.usual_duration) == ("succeeded", 901.0, 0.5)


@pytest.mark.parametrize(
    ("own", "of_all", "shown"),
    [
        (2000.0, None, ALL_KEYS),
        (None, 2000.0, "k"),
        (2000.0, 3000.0, ALL_KEYS),
        (3000.0, 2000.0, "k"),
        (None, None, "k"),
    ],
)
def test_the_pause_that_lasts_longest_is_shown(
    own: float | None, of_all: float | None, shown: str
) -> None:
    """Of the key's own and that of all keys."""
    job = at_a_glance(FAILED, pauses=(pause(ALL_KEYS, of_all), pause("k", own)))
    assert job.paused_by == f"ann@{shown}"
