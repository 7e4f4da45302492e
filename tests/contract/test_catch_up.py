"""What a firing with --catch-up is told, on every store: what was missed, and not what people held back."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hosts import KEY, Host, minute

from oncecron.core import clock
from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.making_up import firing_of_missed, looks_back_to, made_up
from oncecron.core.model import Behind, Retention
from oncecron.core.units import DAY, HOUR

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

    from oncecron.core.model import Firing

MINUTELY: dict[str, Any] = {"schedule": "* * * * *", "zone": "UTC"}
ANN = "ann@a.example"
STOPS = ("pause", "drain")


def scheduled(host: Host, number: int, **parts: Any) -> Firing:
    """Return a firing with --catch-up."""
    before = minute(number - 1).instant
    return host.firing(
        minute(number), **{**MINUTELY, "catch_up": 10 * HOUR, "previous": before, **parts}
    )


def missed(host: Host, firing: Firing) -> list[int]:
    """Return the numbers of the minutes that a firing makes up."""
    told = host.ask(firing)
    assert isinstance(told, Behind), told
    due = [int(minute(number).instant or 0) for number in range(60)]
    due = [each for each in due if each < (firing.tick.instant or 0)]
    since = max(told.mark, looks_back_to(firing.fired_at, firing.catch_up))
    rows = host.store.look_back(firing, since, deadline=host.deadline())
    host.store.close()
    found = made_up(firing, told.mark, due, rows).instants
    return [due.index(each) for each in found]


def due_within(since: float, until: float) -> set[int]:
    """Return the numbers of the minutes that are due from one time on, and before another."""
    return {number for number in range(60) if since <= (minute(number).instant or 0.0) < until}


@pytest.fixture(autouse=True)
def present_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renumber the minutes: a suite that has run for many has numbered them long ago."""
    monkeypatch.setattr("hosts._FIRST_MINUTE", clock.wall() // 60 * 60 - 59 * 60)


@pytest.fixture
def began(a: Host, store: StoreKind) -> Host:
    """Give a host that has run the key every minute for two hours, up to the thirtieth one of the last."""
    a.run(minute(30), **MINUTELY)
    store.age(2 * HOUR)
    return a


def test_what_is_above_the_mark_was_missed(began: Host, b: Host, log: Log) -> None:
    """It is claimed as any tick of a schedule, and says why it was started; then the own one is claimed."""
    firing = scheduled(b, 34)
    assert missed(b, firing) == [31, 32, 33]
    for number in (31, 32, 33):
        late = firing_of_missed(firing, minute(number).instant or 0.0, str(uuid.uuid4()))
        late = late._replace(starting_deadline=60.0)
        other = late._replace(owner=str(uuid.uuid4()), holder=began.holder)
        lease = b.ask(late)
        told = (lease.tick, lease.cause, lease.owner)
        assert told == (minute(number).text, "catch-up", late.owner)
        assert began.ask(other).reason == "held"
        assert b.finish(lease)
        assert began.ask(other).reason == "done"
    own = b.ask(firing._replace(previous=None))
    assert (own.tick, own.cause) == (minute(34).text, "schedule")
    newest = log.executions()
    assert [each.cause for each in newest] == ["schedule", *["catch-up"] * 3, "schedule"]
    assert log.skips() == []  # nobody is told that a tick was skipped which was run


def test_who_is_not_behind_is_granted_at_once(began: Host, b: Host) -> None:
    """There is nothing between the mark and the own tick; or nothing that is young enough."""
    b.run(minute(31), **MINUTELY, catch_up=10 * HOUR, previous=minute(30).instant)
    began.win(minute(34), **MINUTELY, catch_up=60.0, previous=None)


def test_a_refusal_comes_first(began: Host, b: Host, log: Log) -> None:
    """A key that is running, or paused, is not behind: it is skipped."""
    lease = began.win(minute(31), **MINUTELY)
    assert b.ask(scheduled(b, 34)).reason == "held"
    began.finish(lease)
    log.people.pause(KEY, author=ANN, reason=None, seconds=None)
    assert b.ask(scheduled(b, 34)).reason == "paused"


@pytest.mark.parametrize("key", [KEY, ALL_KEYS])
def test_what_was_due_in_a_pause_is_not_made_up(
    began: Host, b: Host, store: StoreKind, log: Log, key: str
) -> None:
    """In the last one, and in those before; what was due between them is."""
    firing, early = scheduled(b, 59), clock.wall() - 12 * 60
    log.people.pause(key, author=ANN, reason=None, seconds=2 * 60)
    late = clock.wall() - 12 * 60
    store.age(12 * 60)
    found = missed(b, firing)
    held_back = {*range(31, 59)} - {*found}
    assert due_within(late, early + 2 * 60) <= held_back <= due_within(early // 1, late + 2 * 60)
    log.people.pause(key, author=ANN, reason=None, seconds=3600)
    log.people.pause(key, author=ANN, reason=None, seconds=3600)
    log.people.resume(key)
    log.people.resume(key)
    assert missed(b, firing) == found


def test_a_tick_that_was_skipped_in_a_pause_is_not_made_up(began: Host, b: Host, log: Log) -> None:
    """Although it was due before it."""
    log.people.pause(KEY, author=ANN, reason=None, seconds=None)
    assert began.lose(minute(32), **MINUTELY).reason == "paused"
    log.people.resume(KEY)
    assert missed(b, scheduled(b, 35)) == [31, 33, 34]


def test_a_tick_is_held_back_where_all_hosts_were_drained(
    began: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """Of those that fire the key; one that is not drained could have run it."""
    log.people.drain(began.holder.host, author=ANN, reason=None, seconds=None)
    store.age(40 * 60)
    log.people.undrain(began.holder.host)
    assert missed(b, scheduled(b, 34)) == []  # `b` has never fired it
    other = Host(store.firing(), "other.example")
    other.lose(minute(30), **MINUTELY)
    assert missed(b, scheduled(b, 34)) == [31, 32, 33]
    for host in (other.holder.host, began.holder.host):
        log.people.drain(host, author=ANN, reason=None, seconds=None)
    assert other.lose(minute(32), **MINUTELY).reason == "drained"
    assert began.lose(minute(32), **MINUTELY).reason == "drained"
    for host in (other.holder.host, began.holder.host):
        log.people.undrain(host)
    assert missed(b, scheduled(b, 34)) == [31, 33]


def test_what_a_run_kept_from_its_start_was_not_missed(
    began: Host, b: Host, store: StoreKind
) -> None:
    """As people are told of it: it was skipped because an earlier run was still running."""
    early = clock.wall()
    lease = began.win(minute(31), **MINUTELY)
    store.age(4 * 60)
    began.finish(lease)
    late = clock.wall()
    store.age(3 * 60)
    gone = {*range(32, 59)} - {*missed(b, scheduled(b, 59))}
    since, until = (late - 7 * 60, early - 7 * 60), (early - 3 * 60, late - 3 * 60)
    assert due_within(since[0], until[0]) <= gone <= due_within(since[1], until[1])


def test_no_other_schedule_is_made_up(began: Host, b: Host, log: Log) -> None:
    """A line that was changed has missed nothing yet, and neither has a key that was forgotten."""
    assert missed(b, scheduled(b, 34, schedule="*/2 * * * *")) == []
    assert missed(b, scheduled(b, 34, zone="Europe/Berlin")) == []
    log.people.forget(KEY, "ann")
    assert missed(b, scheduled(b, 34)) == []


def test_an_old_pause_stays_on_record(began: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Retention leaves it: otherwise what was due in it would be made up."""
    early = clock.wall() - 20 * 60
    log.people.pause(KEY, author=ANN, reason=None, seconds=60)
    late = clock.wall() - 20 * 60
    store.age(20 * 60)
    began.run(minute(31), **MINUTELY)
    log.people.prune(Retention(0.0, 0.0))
    assert log.people.pauses() == []
    held_back = {*range(32, 59)} - {*missed(b, scheduled(b, 59))}
    assert due_within(late, early + 60) <= held_back <= due_within(early - 1, late + 61)


def test_retention_removes_what_held_ticks_back_long_ago(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """After 400 days, also of keys that nobody fires; a start removes nothing."""
    host = a.holder.host

    def known() -> set[tuple[str, str]]:
        """Return what is on record."""
        firings = (b.firing(minute(3), key=key) for key in (KEY, "retired"))
        rows = (b.store.look_back(firing, 0.0, deadline=b.deadline()) for firing in firings)
        return {(kind, name) for found in rows for kind, name, *_ in found if kind in STOPS}

    def stop() -> set[tuple[str, str]]:
        """Pause and drain for a minute; a person ends one of the pauses at once."""
        for key in (KEY, ALL_KEYS, "retired"):
            log.people.pause(key, author=ANN, reason=None, seconds=60)
        log.people.resume(ALL_KEYS)
        log.people.drain(host, author=ANN, reason=None, seconds=60)
        return {*[("pause", key) for key in (KEY, ALL_KEYS, "retired")], ("drain", host)}

    a.run(minute(0))
    stopped = stop()
    store.age(398 * DAY)
    a.run(minute(1))
    log.people.prune(Retention(0.0, 0.0))
    assert known() == stopped
    store.age(3 * DAY)
    lease = a.win(minute(2))
    assert known() == stopped
    a.finish(lease)
    log.people.prune(Retention(0.0, 0.0))
    assert known() == set()
