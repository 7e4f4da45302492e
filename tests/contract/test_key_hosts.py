"""Which hosts fire a key: what each firing tells about its host, on every store."""

from collections.abc import Callable
from typing import Any

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import COMMAND, KEY, Host, minute, skip_record

from oncecron import __version__
from oncecron.core import clock
from oncecron.core.log_rows import KeyHost
from oncecron.core.model import COMMAND_SHOWN, Refusal, Retention
from oncecron.core.tick import NO_TICK, minute_tick
from oncecron.core.timing import HOST_FORGOTTEN_AFTER
from oncecron.core.units import HOUR


def seen(log: Log) -> dict[str, KeyHost]:
    found = {each.host: each for each in log.people.key_hosts()}
    assert {each.key for each in found.values()} <= {KEY}
    return found


def ticks(host: KeyHost) -> list[str]:
    return [tick for tick, _ in host.ticks]


def test_winner_and_loser_are_seen(a: Host, b: Host, log: Log) -> None:
    """With version and clock, tick and crontab, and what came of it."""
    before = clock.wall() - 1
    crontab: dict[str, Any] = {
        "schedule": "*/5 * * * *",
        "zone": "Europe/Berlin",
        "utc_offset": 7200,
    }
    a.run(minute(5), **crontab)
    b.lose(minute(5))
    won, lost = seen(log).values()
    assert (won.host, won.wins, won.skips) == ("a.example", 1, 0)
    assert (lost.host, lost.wins, lost.skips) == ("bb.example", 0, 1)
    assert (won.schedule, won.zone, won.command) == ("*/5 * * * *", "Europe/Berlin", COMMAND)
    assert (lost.schedule, lost.zone, lost.command) == (None, None, COMMAND)
    assert (won.utc_offset, lost.utc_offset) == (7200, None)
    for each in (won, lost):
        assert (each.key, each.shard, each.version) == (KEY, 0, __version__)
        assert abs(each.clock_ahead) < 20
        assert ticks(each) == [minute(5).text]
        assert before < each.seen_at <= clock.wall() + 1
        assert before < each.ticks[0][1] <= each.seen_at + 0.001


def machines(log: Log) -> int:
    """Return how many machines the only host is known to be."""
    [told] = log.people.key_hosts()
    return told.machines


def test_two_machines_that_fire_the_same_ticks_are_told_apart(a: Host, log: Log) -> None:
    """Twice among the last three ticks, in any order, whether they win or skip; until they no longer do."""
    for number, by in enumerate(("xx", "xy", "yx", "yyxx", "y", "y")):
        assert a.finish(a.win(minute(number), machine=by[0]))
        for machine in by[1:]:
            a.lose(minute(number), machine=machine)
        assert machines(log) == (1, 1, 2, 2, 2, 1)[number]


def test_a_plain_skip_tells_its_machine_too(a: Host, log: Log) -> None:
    """And what it takes its zone for. It has a way of its own on PostgreSQL."""
    for number in range(2):
        tick = minute_tick(clock.wall() + 60 * number)
        told: dict[str, Any] = {"fired_at": clock.wall(), "schedule": "* * * * *"}
        assert a.finish(a.win(tick, machine="x", utc_offset=-3600, **told))
        a.lose(tick, machine="y", utc_offset=20700 + number, **told)
        assert machines(log) == 1 + number
        assert seen(log)["a.example"].utc_offset == 20700 + number


@pytest.mark.parametrize(
    "by",
    [
        ("xx", "yy", "zz", "xx"),  # reboots, or a container that is moved
        ("xx", "xy", "yy", "yy"),  # it was rebooted between two firings of a tick
        ("xx", "x-", "-x", "--"),  # a kernel that tells nothing
    ],
)
def test_one_machine_after_the_other_is_no_second_one(
    a: Host, log: Log, by: tuple[str, ...]
) -> None:
    """Nor is one that is fired by hand, or without a tick."""
    for number, (first, second) in enumerate(by):
        told = [None if machine == "-" else machine for machine in (first, second)]
        assert a.finish(a.win(minute(number), machine=told[0]))
        a.lose(minute(number), machine=told[1])
        assert a.finish(a.win(minute(number), again=True, machine="by hand"))
        assert a.finish(a.win(minute(number), again=True, machine=told[1]))
        assert a.finish(a.win(NO_TICK, machine="z"))
        assert a.finish(a.win(NO_TICK, machine=told[1]))
        assert machines(log) == 1


def test_the_last_three_ticks_are_known(a: Host, log: Log) -> None:
    """Each once, however often it is fired, and with the time of the first firing."""
    for number in (1, 2, 3):
        a.run(minute(number))
    [before] = seen(log).values()
    for number in (1, 2, 3):
        a.lose(minute(number))
    [after] = seen(log).values()
    assert after.ticks == before.ticks
    assert (after.wins, after.skips) == (3, 3)
    a.run(minute(4))
    [last] = seen(log).values()
    assert ticks(last) == [minute(number).text for number in (4, 3, 2)]
    assert last.ticks[1:] == before.ticks[:2]


def test_a_repetition_by_hand_says_nothing_about_the_crontab(a: Host, b: Host, log: Log) -> None:
    """It counts, but its host does not fire the key thereby."""
    crontab: dict[str, Any] = {"schedule": "* * * * *", "zone": "UTC", "utc_offset": 0}
    a.run(minute(1), **crontab)
    a.run(minute(2), again=True, schedule="0 0 1 1 *", utc_offset=3600, command="./other.sh")
    b.run(minute(2), again=True, utc_offset=3600)
    before, by_hand = seen(log).values()
    assert ticks(before) == [minute(1).text]
    assert (before.schedule, before.zone, before.command) == ("* * * * *", "UTC", COMMAND)
    assert (before.wins, before.utc_offset, by_hand.utc_offset) == (2, 0, None)
    assert by_hand[6:12] == ((), None, None, None, 1, 0)


def test_the_last_firing_counts(a: Host, log: Log) -> None:
    """A crontab that was changed is seen with the next firing."""
    a.run(minute(1), schedule="* * * * *", zone="UTC")
    a.run(minute(2), command="./é" + "x" * 2 * COMMAND_SHOWN)
    [host] = seen(log).values()
    assert (host.schedule, host.zone) == (None, None)
    assert host.command == "./é" + "x" * (COMMAND_SHOWN - 3)


def test_the_last_day_is_counted(a: Host, store: StoreKind, log: Log) -> None:
    """By whole hours: after 24 of them a count has gone."""
    a.run(minute(1))
    a.lose(minute(1))
    store.age(20 * HOUR)
    a.run(minute(2))
    [host] = seen(log).values()
    assert (host.wins, host.skips) == (2, 1)
    store.age(4 * HOUR)
    [host] = seen(log).values()
    assert (host.wins, host.skips) == (1, 0)
    a.lose(minute(2))
    [host] = seen(log).values()
    assert (host.wins, host.skips) == (1, 1)
    store.age(100 * HOUR)
    a.lose(minute(2))
    [host] = seen(log).values()
    assert (host.wins, host.skips) == (0, 1)


def test_a_clock_that_is_wrong_is_seen(
    a: Host, store: StoreKind, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how much the host's clock is ahead of the store's, as long as they can differ."""
    if not store.own_clock:
        pytest.skip("one machine, one clock")
    real = clock.wall
    a.run(minute(1))
    monkeypatch.setattr(clock, "wall", lambda: real() + 100)
    a.lose(minute(1))
    [host] = seen(log).values()
    assert 80 < host.clock_ahead < 101
    monkeypatch.setattr(clock, "wall", lambda: real() - 50)
    a.run(minute(2))
    [host] = seen(log).values()
    assert -70 < host.clock_ahead < -49


def test_what_comes_later_is_no_sign_of_life(a: Host, b: Host, log: Log) -> None:
    """A spooled record says that a host did not reach the store."""
    a.run(minute(1))
    b.deliver(skip_record(b.firing(minute(1)), "no-store", clock.wall()))
    assert list(seen(log)) == ["a.example"]


def test_a_host_that_has_gone_is_forgotten(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """With an end of the key, and by a prune; however long records are kept."""
    b.run(minute(1))
    store.age(HOST_FORGOTTEN_AFTER - HOUR)
    a.run(minute(2))
    assert len(seen(log)) == 2
    store.age(2 * HOUR)
    a.run(minute(3))
    assert list(seen(log)) == ["a.example"]
    store.age(HOST_FORGOTTEN_AFTER + HOUR)
    log.people.prune(Retention(executions=1e9, skips=1e9))
    assert seen(log) == {}


def test_a_retired_host_is_forgotten(a: Host, b: Host, log: Log) -> None:
    """On every key, until it fires again."""
    a.run(minute(1))
    b.run(minute(2))
    b.run(minute(2), key="other", shard=1, shards=2)
    assert log.people.forget_host("bb.example")
    assert [each.host for each in log.people.key_hosts()] == ["a.example"]
    assert not log.people.forget_host("bb.example")
    b.run(minute(3))
    [_, again] = seen(log).values()
    assert (ticks(again), again.wins) == ([minute(3).text], 1)


def test_a_damaged_row_does_not_keep_a_firing_from_its_start(
    a: Host, store: StoreKind, log: Log
) -> None:
    """What another program has written there is replaced, as far as it cannot be read."""
    a.run(minute(1))
    damage_host(store)
    a.run(minute(2))
    a.lose(minute(2))
    [host] = seen(log).values()
    assert minute(2).text in ticks(host)
    assert (host.wins, host.skips) == (1, 1)


DAMAGED = "hour soon"


def damage_host(store: Any) -> None:
    """Make the only row of a host one that cannot be read."""
    if hasattr(store, "database"):
        store.database.execute(f"update oncecron.key_host set presence = '{DAMAGED}'")
    elif hasattr(store, "client"):
        store.client.hset("oncecron:{oncecron}:hosts:nightly#0", "a.example", DAMAGED)
    elif hasattr(store, "memory"):
        store.memory.parts[KEY, 0].hosts["a.example"]["presence"] = DAMAGED
    else:
        store.run("UPDATE key_host SET presence = x'ff'")


# Two firings of one host at once


class Raced:
    """Lets another firing of the host come between the looks of a store and its writes, a few times."""

    def __init__(self, host: Host, between: Callable[[], object], times: int) -> None:
        self.looks, self._look, self._between, self._times = 0, host.store.look, between, times  # type: ignore[attr-defined]

    def __call__(self, *given: Any, **how: Any) -> Any:
        self.looks += 1
        facts = self._look(*given, **how)
        if self.looks <= self._times:
            self._between()
        return facts


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("is_plain", [False, True])
def test_no_skip_is_lost_to_another_firing_of_its_host(
    a: Host, store: StoreKind, log: Log, monkeypatch: pytest.MonkeyPatch, times: int, is_plain: bool
) -> None:
    """The host's row is looked at once more; where another one comes between again, the skip is recorded alone."""
    now = clock.wall()
    tick = minute_tick(now) if is_plain else minute(1)
    a.run(tick, fired_at=now)
    twin = Host(store.firing(), a.holder.host)
    raced = Raced(a, lambda: twin.lose(tick, fired_at=now), times)
    monkeypatch.setattr(a.store, "look", raced)
    a.lose(tick, fired_at=now)
    assert raced.looks == 2
    assert sum(skip.count for skip in log.skips()) == times + 1
    [host] = seen(log).values()
    assert host.skips == 2


def test_a_start_knows_its_host_after_another_firing_of_it(
    a: Host, store: StoreKind, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was between is there too."""
    a.run(minute(1))
    twin = Host(store.firing(), a.holder.host)
    raced = Raced(a, lambda: twin.lose(minute(1)), 1)
    monkeypatch.setattr(a.store, "look", raced)
    a.win(minute(2))
    assert raced.looks == 2
    [host] = seen(log).values()
    assert (host.wins, host.skips, ticks(host)) == (2, 1, [minute(2).text, minute(1).text])


@pytest.mark.parametrize("wins", [False, True])
@pytest.mark.parametrize("is_plain", [False, True])
def test_two_first_firings_of_a_host_at_once_are_both_there(
    a: Host,
    b: Host,
    store: StoreKind,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    wins: bool,
    is_plain: bool,
) -> None:
    """Neither keeps the other from its start or its skip."""
    now = clock.wall()
    tick = minute_tick(now) if is_plain else minute(1)
    b.run(tick, fired_at=now)
    twin = Host(store.firing(), a.holder.host)
    raced = Raced(a, lambda: twin.lose(tick, fired_at=now), 1)
    monkeypatch.setattr(a.store, "look", raced)
    if wins:
        assert a.finish(a.win(minute_tick(now + 60), fired_at=now))
    else:
        a.lose(tick, fired_at=now)
    assert raced.looks == 2
    host = seen(log)[a.holder.host]
    assert (host.wins, host.skips) == (int(wins), 2 - int(wins))


def test_a_skip_that_no_claim_was_answered_tells_of_its_host(a: Host, log: Log) -> None:
    """As of a command that is not there."""
    for number in range(2):
        a.store.skip(a.firing(minute(number)), Refusal("broken"), deadline=a.deadline())
    [host] = seen(log).values()
    assert (host.wins, host.skips, ticks(host)) == (0, 2, [minute(1).text, minute(0).text])
    assert [skip.reason for skip in log.skips()] == ["broken"] * 2
