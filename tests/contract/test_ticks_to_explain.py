"""Which tick `why` explains, and which run it names, on every store."""

from typing import Any, NamedTuple

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, minute, skip_record

from oncecron.config.file import File
from oncecron.core import clock
from oncecron.core.errors import NotFoundError, UsageError
from oncecron.core.model import Retention
from oncecron.core.text import Clock
from oncecron.core.tick import NO_TICK
from oncecron.log.jobs import jobs
from oncecron.log.run_phrases import delay
from oncecron.log.sources import Sources
from oncecron.log.tick_history import facts_of
from oncecron.log.which_tick import Choice, Ticks
from oncecron.log.why import account
from oncecron.watch.findings import Limits, Situation, check, cure, usual_states
from oncecron.watch.situation import situation_of

MINUTELY: dict[str, Any] = {"schedule": "* * * * *", "zone": "UTC"}
UTC = Clock(utc=True)
NOW = (minute(40).instant or 0.0) + 30


class Explained(NamedTuple):
    """What `why` answers."""

    because: str
    tick: str | None
    verdict: str
    text: str
    newest: str | None
    trouble: str | None


def sources(log: Log) -> Sources:
    return Sources(log.people, log.people, NOW)


def ticks(log: Log) -> Ticks:
    return Ticks(sources(log), KEY, (), UTC)


def explained(log: Log, choice: Choice | None = None) -> Explained:
    """Return the account of a choice, or of what is wrong."""
    reads = sources(log)
    [job] = jobs(reads, [KEY])
    chosen = choice or ticks(log).worst(job)
    verdict, sentences = account(facts_of(reads, KEY, chosen.which, judges=choice is None), UTC)
    if choice is None:  # it is what `check` finds
        found = check(Situation(NOW, [job], reads.leases), Limits(1, 3, usual_states()), UTC)
        kinds = {each.finding for each in found.findings} - {"slow"}
        assert chosen.because in kinds or (chosen.because == "newest" and not kinds)
    newest, trouble = (each and each.tick for each in (chosen.newest, chosen.trouble))
    return Explained(
        chosen.because, chosen.which.tick, verdict, "\n".join(sentences), newest, trouble
    )


def scheduled(host: Host, store: StoreKind, number: int, outcome: str = "succeeded") -> None:
    """Run a tick of a schedule of every minute, which is expected since then."""
    host.run(minute(number), outcome, **MINUTELY)
    store.age(clock.wall() - (minute(number).instant or 0.0) - 1)


@pytest.mark.parametrize(
    ("end", "because", "became"),
    [
        (None, "overrun", "has been running it for "),
        ("succeeded", "overrun", "succeeded after 1.5s (exit status 0)"),
        ("failed", "failed", "failed after 1.5s (exit status 3)"),
        ("lost", "lost", "has no end on record and its lease has expired"),
    ],
)
def test_a_skip_because_of_an_earlier_run_says_which_and_what_became_of_it(
    a: Host, b: Host, store: StoreKind, log: Log, end: str | None, because: str, became: str
) -> None:
    """Of which tick, on which host, since when; never `this run`."""
    scheduled(a, store, 38)
    lease = a.win(minute(39), **MINUTELY)
    b.lose(minute(40), **MINUTELY)
    if end == "lost":
        store.expire(KEY)
    elif end:
        assert a.finish(lease, end)
    wrong = explained(log)
    assert wrong.because == because
    assert wrong.newest == (minute(40).text if because != "overrun" else None)
    held = explained(log, ticks(log).named(str(minute(40).text)))
    run = f"a.example (tick {minute(39).text})"
    headline = f"a.example was still running tick {minute(39).text}."
    assert held.verdict == "skipped"
    assert held.text.startswith(f"Tick {minute(40).text} of key {KEY} did not run: {headline}\n")
    assert f"{run} started it " in held.text
    assert f"{run} {became}" in held.text
    assert f"(pid 1009) was still running tick {minute(39).text}" in held.text
    assert "this run" not in held.text + wrong.text


def test_a_tick_that_was_missed_because_the_store_was_away_says_so(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Not that its line is gone, although its hosts fire other keys since; with the line that runs it."""
    scheduled(a, store, 10)
    b.run(minute(39), key="other")
    a.run(minute(40), key="other")
    for host in (a, b):
        firing = host.firing(minute(11), **MINUTELY)
        host.deliver(skip_record(firing, "no-store", minute(11).instant or 0.0))
    file = File(None, {}, {}, None, Retention())
    limits = Limits(1, 3, usual_states())
    found = check(situation_of(sources(log), file, limits), limits, UTC).findings
    [missed] = [each for each in found if each.finding == "missed"]
    assert missed.reason == (
        f"missed 20 ticks since {minute(11).text}; a.example, bb.example could not reach the store then"
    )
    assert "see whether cron runs" not in cure(missed)
    named = explained(log, ticks(log).named(str(minute(11).text)))
    assert named.verdict == "no-store"
    assert f"`oncecron again {KEY} --tick {minute(11).text}`" in named.text


def test_a_skip_between_two_attempts_of_an_earlier_tick(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Nothing ran: the lease was kept for a retry, and that one is told too."""
    scheduled(a, store, 37)
    lease = a.win(minute(38), retries=2, **MINUTELY)
    second = a.retried(lease)
    b.lose(minute(39), **MINUTELY)
    assert a.keep(second)
    b.lose(minute(40), **MINUTELY)
    store.age(1)
    third = a.retry(second)
    assert third
    a.finish(third)  # type: ignore[arg-type]
    text = explained(log, ticks(log).named(str(minute(39).text))).text
    assert f"was still running attempt 2 of tick {minute(38).text}" in text
    text = explained(log, ticks(log).named(str(minute(40).text))).text
    assert f"was waiting to retry tick {minute(38).text}" in text
    assert f"a.example (tick {minute(38).text}) retried it, attempt 3" in text


def test_what_is_wrong_is_explained_and_not_the_newest_tick(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """What `check` finds: first an end that is none, then what was missed; the newest is named beside it."""
    scheduled(a, store, 10)
    found = explained(log)
    assert found[:3] == ("missed", minute(11).text, "not-fired")
    assert found.newest == minute(10).text
    assert f"In all, 20 ticks were missed, {minute(11).text} to {minute(30).text}." in found.text
    assert "Hosts that have fired the key: a.example (last at " in found.text
    a.win(minute(20), **MINUTELY)
    store.expire(KEY)
    found = explained(log)
    assert found[:3] == ("lost", minute(20).text, "no-end")
    assert f"Since then, 10 ticks were missed, {minute(21).text} to " in found.text
    b.run(minute(38), **MINUTELY)
    found = explained(log)
    assert found[:3] == ("newest", minute(38).text, "succeeded")
    assert (found.newest, found.trouble) == (None, minute(20).text)
    b.run(minute(39), "failed", **MINUTELY)
    b.win(minute(40), **MINUTELY)
    found = explained(log)
    assert found[:3] == ("failed", minute(39).text, "failed")
    assert found.newest == minute(40).text


@pytest.fixture
def past(a: Host, b: Host, store: StoreKind, log: Log) -> Host:
    """Let each outcome happen, minute by minute; nobody fired the minutes 16 to 34."""
    scheduled(a, store, 10)
    a.run(minute(11), "failed", **MINUTELY)
    b.win(minute(12), **MINUTELY)
    store.expire(KEY)
    a.run(minute(13), **MINUTELY)
    log.people.pause(KEY, author="ann@desk", reason=None, seconds=None)
    a.lose(minute(14), **MINUTELY)
    log.people.resume(KEY)
    lease = a.win(minute(15), retries=1, **MINUTELY)
    a.finish(a.retried(lease))
    a.run(minute(35), **MINUTELY)
    return a


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("lost", 12), ("failed", 11), ("failed,lost", 12), ("succeeded", 35), ("skipped", 14), ("paused", 14),
        ("missed", 34), ("lost,paused", 14),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("past")
def test_the_newest_tick_with_an_outcome(log: Log, words: str, number: int) -> None:
    """That of the tick, not of an attempt that was retried; also of ticks that nobody started."""
    chosen = ticks(log).newest_with(words.split(","))
    assert (chosen.which.tick, chosen.because) == (minute(number).text, "outcome")


@pytest.mark.usefixtures("past")
def test_an_outcome_that_no_tick_has(log: Log) -> None:
    """It is said."""
    with pytest.raises(NotFoundError, match=f"no tick of key {KEY} on record has the outcome"):
        ticks(log).newest_with(["timed-out"])


def minutes_ago(number: int) -> str:
    return f"{40 - number}m"


@pytest.mark.parametrize(
    ("text", "number", "verdict"),
    [
        (str(minute(12).text), 12, "lost"),
        (str(minute(11).text)[11:16], 11, "failed"),
        (str(minute(17).text)[11:16], 17, "not-fired"),
        (minutes_ago(13), 13, "succeeded"),
        (minutes_ago(18), 18, "not-fired"),
        ("2001-01-01T00:00Z", None, "no-record"),
        ("2101-01-01T00:00Z", None, "to-come"),
    ],
    ids=["tick", "time", "time not fired", "age", "age not fired", "long ago", "in future"],
)
@pytest.mark.usefixtures("past")
def test_a_time_means_the_tick_that_a_person_means(
    log: Log, text: str, number: int | None, verdict: str
) -> None:
    """A minute, an age, before all records, in the future."""
    found = explained(log, ticks(log).named(text))
    assert found.tick == (text if number is None else minute(number).text)
    assert found.verdict == verdict


@pytest.mark.usefixtures("past")
def test_a_time_without_a_tick_means_the_first_one_since(log: Log) -> None:
    """It says so; also the newest one, where there is none since."""
    chosen = ticks(log).named(str(minute(5).text)[11:16])
    assert (chosen.which.tick, chosen.because) == (minute(10).text, "time")
    assert chosen.note
    assert chosen.note.startswith("The first tick since ")
    assert ticks(log).named(str(minute(11).text)[11:16]).note is None


@pytest.mark.usefixtures("past")
def test_what_is_no_tick_and_no_time_is_refused(log: Log) -> None:
    """By name, with what to write."""
    with pytest.raises(UsageError, match=r"'noon' is neither a tick .* or a time: 90m, 14:47"):
        ticks(log).named("noon")


def test_a_name_comes_before_a_time(a: Host, log: Log) -> None:
    """Ticks may have any name."""
    for name in ("yesterday", "14:47", "3h", "2026-11-20"):
        a.run(minute(1)._replace(text=name, instant=None, rule="name"), "failed", min_gap=None)
        assert explained(log, ticks(log).named(name))[:3] == ("tick", name, "failed")


def test_firings_without_a_tick_are_found_too(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """By outcome, and as what is wrong; also that there are none any more."""
    a.run(NO_TICK, "failed")
    first = log.newest()
    assert explained(log)[:3] == ("failed", None, "failed")
    b.run(NO_TICK)
    chosen = ticks(log).newest_with(["failed"])
    assert chosen.which.owner == first.owner
    assert "a.example failed after 1.5s (exit status 3)" in explained(log, chosen).text
    assert explained(log)[:3] == ("newest", None, "succeeded")
    assert "bb.example succeeded" in explained(log).text
    for _ in range(3):
        b.run(NO_TICK)
        store.age(60)
    store.age(clock.wall() - NOW + 86400)
    assert explained(log)[:3] == ("silent", None, "succeeded")
    assert "The key has not run since " in explained(log).text


def test_how_long_after_its_tick_a_run_started(a: Host, store: StoreKind, log: Log) -> None:
    """By the store's clock, of the first attempt."""
    a.run(minute(40), **MINUTELY)
    store.age(log.newest().started_at - (minute(40).instant or 0.0) - 7)
    found = explained(log)
    assert "a.example started it 7s after its tick (pid " in found.text
    [traced] = facts_of(sources(log), KEY, ticks(log).named(str(found.tick)).which).executions
    assert delay(traced) == pytest.approx(7, abs=0.01)
