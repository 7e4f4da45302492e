"""What should have run: expectations, missed and overdue ticks, overruns, on every store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hosts import KEY, Host, minute

from oncecron.core import clock
from oncecron.core.log_rows import Expectation, JobKey
from oncecron.core.model import Refusal, Retention
from oncecron.core.text import Clock
from oncecron.core.tick import NO_TICK, instant_of, named_tick
from oncecron.core.units import DAY
from oncecron.log.audit import Question, audit
from oncecron.log.jobs import jobs
from oncecron.log.sources import Sources
from oncecron.log.timeline import Span, ticks_of

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

    from oncecron.core.tick import Tick
    from oncecron.log.job_summary import JobSummary
    from oncecron.log.protocol import Breach

MINUTELY: dict[str, Any] = {"schedule": "* * * * *", "zone": "UTC"}
NOW = (minute(40).instant or 0.0) + 30
"""When the reports are asked for: what was due until the thirtieth minute has to be started."""


def expected(log: Log, key: str = KEY) -> Expectation | None:
    """Return what is expected of the first shard of a key."""
    return next(each.expected for each in log.people.job_keys() if each.key == key)


def scheduled(host: Host, store: StoreKind, *numbers: int) -> None:
    """Run ticks of a schedule of every minute, which is expected from an hour before the first one."""
    for number in numbers:
        host.run(minute(number), **MINUTELY)
        if number == numbers[0]:
            store.age(clock.wall() - (minute(number).instant or 0.0) - 1)


def findings(log: Log, *, now: float = NOW, kept: float = 86400.0) -> list[tuple[Any, ...]]:
    """Return the missing ticks that an audit finds."""
    question = Question(log.people, log.people, None, kept, now, Clock(utc=True), lambda: None)
    found: list[Breach] = list(audit(question))
    assert {each.finding for each in found} <= {"no-run"}
    missing = {
        at
        for each in found
        for first, last in [map(instant_of, (each.tick, each.last_tick or each.tick))]
        for at in range(int(first or 0), int(last or 0) + 60, 60)
    }
    assert in_timeline(log, now, kept, "missed", "incomplete", "overrun") == missing
    return [(each.tick, each.last_tick, each.count, each.reason) for each in found]


def job(log: Log, *, now: float = NOW) -> JobSummary:
    [found] = jobs(Sources(log.people, log.people, now))
    newest = max((each.high_water or 0.0 for each in log.people.job_keys()), default=0.0)
    since = {at for at in in_timeline(log, now, DAY, "missed") if at > newest}
    assert len(since) == found.missed
    assert (
        len({at for at in in_timeline(log, now, DAY, "overrun") if at > newest}) == found.overruns
    )
    if found.running_on:  # its firings are skipped: what came due meanwhile is no state of the key
        assert found.overdue is None
    elif not found.missed and not found.catching_up:
        overdue = in_timeline(log, now, DAY, "overdue")
        assert min(overdue, default=None) == instant_of(found.overdue)
    return found


def in_timeline(log: Log, now: float, kept: float, *words: str) -> set[float]:
    """Return the ticks of which a timeline says this: it agrees with `audit` and `jobs`."""
    span = Span(now - kept, now, Retention(kept, kept))
    found = ticks_of(Sources(log.people, log.people, now), span)
    return {
        at
        for key in found.values()
        for each in key.ticks
        if each.word in words
        for at in each.times
    }


def ticks(first: int, last: int) -> tuple[str | None, str | None, int]:
    return minute(first).text, minute(last).text, last - first + 1


# What is expected


def test_a_claim_with_a_schedule_says_what_is_expected(a: Host, log: Log) -> None:
    """Schedule, zone, shards, starting deadline, and since when."""
    before = clock.wall()
    a.run(minute(5), schedule="*/5 * * * *", zone="Europe/Berlin", starting_deadline=7200.0)
    a.run(minute(1), key="weekly")
    found = expected(log)
    assert found is not None
    assert found[:4] == ("*/5 * * * *", "Europe/Berlin", 1, 7200.0)
    assert before - 1 <= found.since <= clock.wall() + 1
    assert expected(log, "weekly") is None
    a.run(minute(6), schedule="@hourly")
    found = expected(log)
    assert found is not None
    assert found[:4] == ("@hourly", None, 1, None)


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (6, {}),
        (5, {"again": True, "schedule": "0 0 1 1 *", "zone": "Europe/Berlin"}),
        (6, {"again": True}),
    ],
)
def test_a_firing_by_hand_changes_nothing(
    a: Host, log: Log, number: int, how: dict[str, Any]
) -> None:
    """Neither one without a schedule nor a repetition."""
    a.run(minute(5), **MINUTELY)
    before = expected(log)
    a.run(minute(number), **how)
    assert expected(log) == before is not None


def test_since_begins_anew_with_another_schedule_alone(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Another zone and another number of shards are other schedules; another starting deadline is none."""
    a.run(minute(1), **MINUTELY)
    store.age(3600)
    first = expected(log)
    b.run(minute(2), **MINUTELY, starting_deadline=1e6)
    second = expected(log)
    assert first is not None
    assert second == first._replace(starting_deadline=1e6)
    others = (
        {"schedule": "* * * * *", "zone": "Europe/Berlin"},
        {"schedule": "* * * * *", "zone": None},
        {"schedule": "*/2 * * * *", "zone": None},
        {"schedule": "*/2 * * * *", "zone": None, "shards": 3},
    )
    for number, other in enumerate(others, 3):
        store.age(3600)
        a.run(minute(number), **other)
        found = expected(log)
        assert found is not None
        assert found.since > clock.wall() - 60, other


def test_a_forgotten_key_is_expected_again_when_it_is_claimed(a: Host, log: Log) -> None:
    """Nothing is missed in between, and the log stays."""
    a.run(minute(1), **MINUTELY)
    assert log.people.forget(KEY, "ann@desk")
    assert not log.people.forget("unknown", "ann@desk")
    [known] = log.people.job_keys()
    assert known.expected is None
    assert known.forgotten_at is not None
    assert (known.forgotten_by, job(log).forgotten_by) == ("ann@desk", "ann@desk")
    assert (findings(log), job(log).missed, len(log.executions())) == ([], 0, 1)
    a.run(minute(2), **MINUTELY)
    found = expected(log)
    assert found is not None
    assert found.since >= known.forgotten_at


# What is missing, by `audit`


def test_ticks_are_missing_up_to_now_although_nobody_fired(
    a: Host, store: StoreKind, log: Log
) -> None:
    """All that was due ten minutes ago, also after the newest start."""
    scheduled(a, store, 1, 2, 5)
    assert [found[:3] for found in findings(log)] == [ticks(3, 4), ticks(6, 30)]
    assert "no host fired" in findings(log)[0][3]


def test_what_the_next_firing_makes_up_is_missing_in_no_report(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Once that firing is late too, all but the newest late tick is; if one host makes up nothing, every one."""
    a.run(minute(1), **MINUTELY, catch_up=7200.0)
    store.age(clock.wall() - (minute(1).instant or 0.0) - 1)
    now = (minute(12).instant or 0.0) + 1
    assert (findings(log, now=now), job(log, now=now).missed) == ([], 0)
    assert in_timeline(log, now, DAY, "overdue") == {minute(each).instant for each in range(2, 13)}
    assert ([found[:3] for found in findings(log)], job(log).missed) == ([ticks(2, 29)], 28)
    b.lose(minute(1), **MINUTELY)
    assert ([found[:3] for found in findings(log)], job(log).missed) == ([ticks(2, 30)], 29)


def test_a_longer_starting_deadline_counts(a: Host, store: StoreKind, log: Log) -> None:
    """Until then the tick may still start."""
    a.run(minute(50), **MINUTELY, starting_deadline=7200.0)
    store.age(clock.wall() - (minute(50).instant or 0.0) - 1)
    now = (minute(174).instant or 0.0) + 1
    assert [found[:3] for found in findings(log, now=now)] == [ticks(51, 54)]


def test_a_key_without_any_start_is_missing(a: Host, store: StoreKind, log: Log) -> None:
    """Also when retention has removed its executions."""
    scheduled(a, store, 1)
    store.age(30 * DAY)
    assert log.people.prune(Retention()) == (0, 0)
    store.age(371 * DAY)
    assert log.people.prune(Retention())[0] == 1
    [found] = findings(log, kept=1.0 * DAY)
    assert found[1:3] == (minute(30).text, 24 * 60 - 10)


def test_nothing_is_missing_before_the_schedule_or_the_retention(
    a: Host, store: StoreKind, log: Log
) -> None:
    """An older schedule had other ticks; retention removes in any order."""
    a.run(minute(1), schedule="0 0 1 1 *", zone="UTC")
    scheduled(a, store, 20, 22)
    assert [found[:3] for found in findings(log)] == [(minute(21).text, None, 1), ticks(23, 30)]
    assert [found[:3] for found in findings(log, kept=NOW - (minute(25).instant or 0.0))] == [
        ticks(26, 30)
    ]


def test_what_a_store_has_removed_by_number_is_not_missing(
    a: Host, store: StoreKind, log: Log
) -> None:
    """Redis keeps some executions of each key: a timeline begins with the oldest."""
    scheduled(a, store, 28, 30)
    store.age(180)
    for keeps, missing in ((2, (29,)), (3, (26, 27, 29))):
        log.people.keeps = keeps
        found = in_timeline(log, NOW, DAY, "missed")
        assert {*missing} <= {round((at - (minute(0).instant or 0.0)) / 60) for at in found}
        assert (len(found) > 1) == (keeps > 2)


def test_a_tick_that_was_given_back_and_never_taken_is_missing(
    a: Host, store: StoreKind, log: Log
) -> None:
    """Unless somebody took it later."""
    scheduled(a, store, 28)
    a.run(minute(29), "not-started", **MINUTELY)
    a.run(minute(30), **MINUTELY)
    [found] = findings(log)
    assert found[3] == "not started: claimed and given back by a.example"
    a.run(minute(29), again=True)
    assert findings(log) == []


def test_what_was_due_in_a_pause_is_not_missing(a: Host, store: StoreKind, log: Log) -> None:
    """Whether it lasts, or has ended and skips tell of it."""
    number = int(clock.wall() + 30 - (minute(0).instant or 0.0)) // 60  # none is due right now
    now = (minute(number + 14).instant or 0.0) + 1
    a.run(minute(number), **MINUTELY)
    store.age(clock.wall() - (minute(number).instant or 0.0) + 40)  # started before the pause
    log.people.pause(KEY, author="ops@x", reason=None, seconds=None)
    assert findings(log, now=now) == []
    a.lose(minute(number + 2), **MINUTELY)
    log.people.resume(KEY)
    assert [found[0] for found in findings(log, now=now)] == [
        minute(each).text for each in (number + 1, number + 3)
    ]


def test_what_was_due_on_drained_hosts_is_not_missing(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """On all hosts that fire the key."""
    scheduled(a, store, 29)
    b.lose(minute(29), **MINUTELY)
    for host in (a, b):
        log.people.drain(host.holder.host, author="ops@x")
        assert [found[0] for found in findings(log)] == [minute(30).text]
        host.lose(minute(30), **MINUTELY)
    assert findings(log) == []


def test_shards_are_expected_as_many_as_there_are_now(a: Host, store: StoreKind, log: Log) -> None:
    """The third shard of two is not."""
    for shard in range(3):
        a.run(minute(28), **MINUTELY, shards=3, shard=shard)
    for shard in range(2):
        a.run(minute(29), **MINUTELY, shards=2, shard=shard)
    store.age(clock.wall() - (minute(29).instant or 0.0) - 1)
    assert [found[:3] for found in findings(log)] == [(minute(30).text, None, 1)] * 2


# What is due, by `jobs`


def test_a_key_is_overdue_and_then_missed(a: Host, store: StoreKind, log: Log) -> None:
    """Overdue as soon as a tick is due, missed ten minutes later; the next start ends both."""
    scheduled(a, store, 1)
    at = minute(2).instant or 0.0
    found = job(log, now=at - 1)
    assert (found.next_at, found.overdue, found.missed) == (at, None, 0)
    found = job(log, now=at + 599)
    assert (found.overdue, found.missed) == (minute(2).text, 0)
    found = job(log)
    assert (found.overdue, found.missed) == (None, 29)
    assert (found.first_missed, found.last_missed) == (minute(2).text, minute(30).text)
    a.run(minute(40), **MINUTELY)
    found = job(log)
    assert (found.overdue, found.missed, found.overruns) == (None, 0, 0)


def test_a_tick_that_the_last_run_outlasted_is_an_overrun(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """It is not missed."""
    scheduled(a, store, 28)
    lease = a.win(minute(29), **MINUTELY)
    b.lose(minute(30), **MINUTELY)
    assert (job(log).missed, job(log).overruns) == (0, 1)
    assert a.finish(lease, "failed")
    found = job(log)
    assert (found.missed, found.overruns) == (0, 1)
    assert found.failed_at is not None
    assert found.succeeded_at is not None


def test_what_people_held_back_is_neither_overdue_nor_missed(
    a: Host, store: StoreKind, log: Log
) -> None:
    """As long as the pause lasts, and for the ticks that were skipped during it; the next one is after its end."""
    scheduled(a, store, 29)
    log.people.pause(KEY, author="ops@x", reason=None, seconds=3600)
    found = job(log)
    assert (found.next_at or 0.0) >= (found.paused_until or math.inf)
    log.people.pause(KEY, author="ops@x", reason=None, seconds=None)
    assert (job(log).state, job(log).next_at) == ("paused", None)
    store.age(clock.wall() - (minute(29).instant or 0.0) - 30)
    assert (job(log).overdue, job(log).missed) == (None, 0)
    a.lose(minute(30), **MINUTELY)
    log.people.resume(KEY)
    assert (job(log).overdue, job(log).missed) == (minute(31).text, 0)


def test_a_key_without_a_schedule_is_silent_after_three_gaps(
    a: Host, store: StoreKind, log: Log
) -> None:
    """Of its longest recent gap, and an hour at least; not while it is paused, and not after it was forgotten."""
    for number in range(3):
        a.run(named_tick(f"t{number}"))
        store.age(3000)
    assert silent(log) is None
    store.age(5900)
    assert silent(log) is None
    store.age(200)
    assert silent(log) is not None
    log.people.pause(KEY, author="ops@x", reason=None, seconds=None)
    assert silent(log) is None
    log.people.resume(KEY)
    assert log.people.forget(KEY, "ann@desk")
    assert silent(log) is None


def test_a_key_that_runs_is_not_silent(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """However long: a daemon starts once."""
    for number in range(3):
        a.run(named_tick(f"t{number}"))
        store.age(60)
    lease = a.win(NO_TICK)
    store.age(8000)
    assert silent(log) is not None
    assert a.renew(lease) or b.win(NO_TICK)
    assert silent(log) is None


# What has gone on elsewhere


@pytest.mark.parametrize("outcome", ["stopped", "lost", "failed"])
def test_what_was_cut_short_without_a_tick_goes_on_elsewhere(
    a: Host, b: Host, store: StoreKind, log: Log, outcome: str
) -> None:
    """A daemon whose host was shut down, or died, is well while another host runs it; one that failed is not."""
    if outcome == "lost":
        a.win(NO_TICK)
        store.expire(KEY)
    else:
        a.run(NO_TICK, outcome)
        assert job(log, now=clock.wall()).state == "failed"
    lease = b.win(NO_TICK)
    found = job(log, now=clock.wall())
    assert found.running_on == (b.holder.host,)
    if outcome == "failed":
        assert (found.state, found.failures) == ("failed", 1)
        return
    assert (found.state, found.outcome, found.failures) == ("running", "running", 0)
    assert found.failed_at is not None
    assert b.finish(lease, "stopped")
    found = job(log, now=clock.wall())
    assert (found.state, found.failures) == ("failed", 2)


@pytest.mark.parametrize("outcome", ["stopped", "lost"])
def test_a_tick_that_was_cut_short_has_not_run(
    a: Host, b: Host, store: StoreKind, log: Log, outcome: str
) -> None:
    """Whatever runs now."""
    if outcome == "lost":
        a.win(minute(1))
        store.expire(KEY)
    else:
        a.run(minute(1), outcome)
    b.win(minute(2))
    assert job(log, now=clock.wall()).state == ("lost" if outcome == "lost" else "failed")


# What has never started


LATE: dict[str, Any] = {**MINUTELY, "starting_deadline": 1.0}


def test_a_key_that_has_never_started_is_expected_as_it_is_fired(
    a: Host, b: Host, log: Log
) -> None:
    """From its first tick on, which was skipped like all others, with the reasons; its start ends that."""
    for number in (28, 29):
        assert a.lose(minute(number), **LATE).reason == "late"
        b.lose(minute(number), **LATE)
    found = job(log)
    assert (found.missed, found.first_missed, found.schedule) == (3, minute(28).text, "* * * * *")
    assert (found.next_at, found.silent_since) == (minute(41).instant, None)
    assert findings(log)[0][:3] == ticks(28, 29)
    assert findings(log)[0][3] == f"not started: late on {a.holder.host}, {b.holder.host}"
    a.run(minute(40), **MINUTELY)
    assert job(log).missed == 0


def test_what_people_held_back_before_the_first_start_is_not_missed(a: Host, log: Log) -> None:
    """A new job may be paused until it is wanted."""
    log.people.pause(KEY, author="ops@x", reason=None, seconds=None)
    for number in range(28, 31):
        a.lose(minute(number), **MINUTELY)
    assert (job(log).missed, job(log).silent_since, findings(log)) == (0, None, [])


def test_a_forgotten_key_that_is_fired_in_vain_is_expected_again(a: Host, log: Log) -> None:
    """Since it is fired: a person may have forgotten it because it was moved."""
    a.run(minute(1), **MINUTELY)
    log.people.forget(KEY, "ann@desk")
    assert (job(log).missed, job(log).retired) == (0, True)
    a.lose(minute(28), **LATE)
    assert (job(log).missed, job(log).first_missed) == (3, minute(28).text)
    assert not job(log).retired


@pytest.mark.parametrize("tick", [*map(named_tick, ("t1", "2026-11"))])
def test_a_key_without_a_schedule_that_has_never_started_is_silent(
    a: Host, b: Host, log: Log, tick: Tick
) -> None:
    """Once one host has fired it three times; a pause is no such firing."""
    for host in (a, b, a):
        host.store.skip(host.firing(tick), Refusal("broken"), deadline=host.deadline())
        assert silent(log) is None
    host.store.skip(host.firing(tick), Refusal("paused"), deadline=host.deadline())
    assert silent(log) is None
    a.store.skip(a.firing(tick), Refusal("broken"), deadline=a.deadline())
    assert silent(log) is not None
    a.run(named_tick("other"))
    assert silent(log) is None


def test_what_the_configuration_file_expects_counts_until_a_host_has_fired_it(
    a: Host, store: StoreKind, log: Log
) -> None:
    """And where its schedule was changed there after the last start, since that."""
    scheduled(a, store, 1)

    def missed(key: str, since: float, schedule: str = "* * * * *") -> int:
        plan = Expectation(schedule, "Etc/UTC", 1, None, since)
        sources = Sources(log.people, log.people, NOW, [JobKey(key, 0, plan)])
        found = {each.key: each for each in jobs(sources)}
        assert {*found} == {KEY, key}
        return found[key].missed

    assert missed("new", (minute(28).instant or 0.0) - 1) == 3
    assert missed("new", NOW) == 0
    assert missed(KEY, clock.wall() - DAY, "0 0 1 1 *") == missed(KEY, NOW + DAY) == 29
    later = clock.wall() + 1
    assert missed(KEY, later, "0 0 1 1 *") == 0


def silent(log: Log) -> float | None:
    return job(log, now=clock.wall()).silent_since
