"""Pausing keys and draining hosts: at once for new firings, never for what runs, and by the store's clock."""

import os

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, minute

from oncecron.core import clock
from oncecron.core.log_rows import ALL_KEYS, INTERNAL, Pause
from oncecron.core.model import Lease
from oncecron.core.tick import minute_tick
from oncecron.stores.reader import Reader

ANN = "ann@a.example"
YEAR = 365 * 86400  # seconds
PAUSED = int(os.environ.get("ONCECRON_TEST_PAUSED", "365"))
"""Ticks of a year that is paused; 525600 are all of its minutes."""


def pause(
    people: Reader, key: str = KEY, reason: str | None = None, seconds: float | None = None
) -> Pause | None:
    """Pause; return what was replaced."""
    now, before = people.pause(key, author=ANN, reason=reason, seconds=seconds)
    assert (now.key, now.host, now.author, now.reason) == (key, None, ANN, reason)
    return before


@pytest.mark.parametrize("key", [KEY, ALL_KEYS])
def test_a_paused_key_is_refused_until_it_is_resumed(a: Host, log: Log, key: str) -> None:
    """The answer and the record say who and why."""
    pause(log.people, key, "moving house")
    refusal = a.lose(minute(1))
    assert (refusal.reason, refusal.detail) == ("paused", f"by {ANN}: moving house")
    assert refusal.since == pytest.approx(clock.wall(), abs=20)
    [skip] = log.skips()
    assert (skip.reason, skip.detail) == ("paused", refusal.detail)
    ended = log.people.resume(key)
    assert ended is not None
    assert (ended.key, ended.author, ended.reason) == (key, ANN, "moving house")
    a.win(minute(1))


def test_only_what_is_paused_is_refused(a: Host, log: Log) -> None:
    """Another key goes on, also one whose name begins alike."""
    pause(log.people, KEY + "-2")
    a.win(minute(1))


def test_a_pause_ends_when_it_was_told_to(a: Host, store: StoreKind, log: Log) -> None:
    """By the store's clock; from then on it is as none, for firings and for people."""
    assert pause(log.people, seconds=600) is None
    [present] = log.people.pauses()
    assert present.until is not None
    assert present.until - present.since == pytest.approx(600, abs=1)
    assert a.lose(minute(1)).reason == "paused"
    store.age(601)
    assert log.people.pauses() == []
    assert log.people.resume(KEY) is None
    a.win(minute(1))


def test_a_drain_ends_when_it_was_told_to(a: Host, store: StoreKind, log: Log) -> None:
    """As a pause does; it has a reason, and what has ended does not come back with the store's clock."""
    now, _ = log.people.drain(a.holder.host, author=ANN, reason="a disk", seconds=600)
    assert now == Pause(None, "a.example", ANN, "a disk", now.since, now.until)
    assert now.until is not None
    assert now.until - now.since == pytest.approx(600, abs=1)
    assert log.people.pauses() == [now]
    assert a.lose(minute(1)).detail == f"by {ANN}: a disk"
    store.age(601)
    assert log.people.pauses() == []
    a.run(minute(2))
    store.age(-601)
    assert log.people.pauses() == []
    assert log.people.undrain(a.holder.host) is None


def test_what_oncecron_runs_for_itself_is_held_back_by_its_own_pause_alone(
    a: Host, log: Log
) -> None:
    """A pass of notify tells people of a pause of all keys, and of drained hosts."""
    key = INTERNAL + "notify"
    pause(log.people, ALL_KEYS)
    log.people.drain(a.holder.host, author=ANN)
    assert a.finish(a.win(minute(1), key=key))
    pause(log.people, key, "too loud")
    assert a.lose(minute(2), key=key).detail == f"by {ANN}: too loud"
    log.people.resume(key)
    a.win(minute(3), key=key)
    log.people.resume(ALL_KEYS)
    assert a.lose(minute(1)).reason == "drained"


def test_an_ended_pause_is_not_replaced_and_is_cleared_away(
    a: Host, store: StoreKind, log: Log
) -> None:
    """Whoever comes by removes it: it does not come back when the store's clock is set back."""
    pause(log.people, seconds=600)
    store.age(601)
    a.run(minute(1))
    store.age(-601)
    assert log.people.pauses() == []
    assert pause(log.people, seconds=600) is None
    store.age(601)
    assert pause(log.people) is None


def test_pausing_what_is_paused_replaces_it(a: Host, log: Log) -> None:
    """The last word counts, also when it is shorter, and what was replaced is told."""
    pause(log.people, reason="first")
    now, before = log.people.pause(KEY, author="bob@b", reason=None, seconds=600)
    assert before is not None
    assert (before.author, before.reason, before.until) == (ANN, "first", None)
    assert [now] == log.people.pauses()
    assert a.lose(minute(1)).detail == "by bob@b"
    assert now.until is not None


def test_a_pause_of_all_is_another_than_that_of_a_key(a: Host, log: Log) -> None:
    """Ending one leaves the other; a key's own pause is named first."""
    pause(log.people, ALL_KEYS, "all")
    pause(log.people, KEY, "one")
    assert [each.key for each in log.people.pauses()] == [ALL_KEYS, KEY]
    assert a.lose(minute(1)).detail == f"by {ANN}: one"
    log.people.resume(KEY)
    assert a.lose(minute(1)).detail == f"by {ANN}: all"
    pause(log.people, KEY, "one")
    log.people.resume(ALL_KEYS)
    assert a.lose(minute(1)).detail == f"by {ANN}: one"
    a.win(minute(1), key="weekly")


@pytest.mark.parametrize("how", ["pause", "pause all", "drain"])
def test_what_runs_is_never_touched(a: Host, log: Log, how: str) -> None:
    """Its claim sent again gets the same lease, it renews, it ends; only then is anything refused."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    if how == "drain":
        log.people.drain(a.holder.host, author=ANN)
    else:
        pause(log.people, KEY if how == "pause" else ALL_KEYS)
    again = a.ask(firing)
    assert isinstance(again, Lease)
    assert again.execution_id == lease.execution_id
    assert a.renew(lease)
    assert a.finish(lease)
    assert log.outcomes() == ["succeeded"]
    assert log.skips() == []
    assert a.lose(minute(2)).reason == ("drained" if how == "drain" else "paused")


def test_a_drained_host_claims_nothing_until_it_is_undrained(a: Host, b: Host, log: Log) -> None:
    """Others run the tick meanwhile; the record says who drained it."""
    now, before = log.people.drain(a.holder.host, author=ANN)
    assert (now.key, now.host, now.author, now.until, before) == (None, "a.example", ANN, None, None)  # fmt: skip
    refusal = a.lose(minute(1))
    assert (refusal.reason, refusal.detail) == ("drained", f"by {ANN}")
    assert [(skip.reason, skip.detail) for skip in log.skips()] == [("drained", f"by {ANN}")]
    b.run(minute(1))
    ended = log.people.undrain(a.holder.host)
    assert ended is not None
    assert ended.host == "a.example"
    assert log.people.undrain(a.holder.host) is None
    a.win(minute(2))


def test_draining_twice_is_draining_once(a: Host, log: Log) -> None:
    """The newest author is kept, and the one before is told."""
    log.people.drain(a.holder.host, author=ANN)
    now, before = log.people.drain(a.holder.host, author="bob@b")
    assert before is not None
    assert before.author == ANN
    assert log.people.pauses() == [now]
    assert a.lose(minute(1)).detail == "by bob@b"


@pytest.mark.timeout(300 + PAUSED / 50)
def test_what_is_missed_is_not_caught_up(a: Host, b: Host, log: Log) -> None:
    """A year of ticks under a pause: one run at the next tick, and no burst."""
    now = clock.wall() // 60 * 60
    apart = YEAR // PAUSED // 60 * 60
    ticks = [minute_tick(now - number * apart) for number in range(PAUSED - 1, -1, -1)]
    a.run(ticks[0])
    pause(log.people)
    for tick in ticks[1:-1]:
        assert a.lose(tick).reason == "paused"
    assert b.lose(ticks[-2]).reason == "paused"
    log.people.resume(KEY)
    assert [execution.tick for execution in log.executions()] == [ticks[0].text]
    a.run(ticks[-1])
    assert b.lose(ticks[-1]).reason == "done"
    for tick in (ticks[1], ticks[len(ticks) // 2], ticks[-2]):
        assert b.lose(tick).reason == "passed"
    assert [execution.tick for execution in log.executions()] == [ticks[-1].text, ticks[0].text]


def test_keys_are_those_that_have_fired(a: Host, log: Log) -> None:
    """Once each, also where all that it got was a refusal; a pause makes no key known."""
    pause(log.people, "weekly")
    a.lose(minute(1), key="weekly")
    a.run(minute(1))
    a.run(minute(2))
    pause(log.people, "monthly")
    assert [part.key for part in log.people.job_keys()] == [KEY, "weekly"]
