"""Plain skips: less is kept of what every host but one has at every tick, but who, when, which tick and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hosts import KEY, Host
from servers import eventually

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery, Skip, SkipReason
from oncecron.core.model import Retention
from oncecron.core.tick import NO_TICK, minute_tick, named_tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Log
    from contract_stores import StoreKind

    Now = Callable[..., dict[str, Any]]

EVERY = HistoryQuery(limit=None)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    """Parts of a firing for the tick of this minute or of one that many later: of one clock for the whole test.

    A busy machine may need more than ten seconds for it: then no skip would be plain.
    """
    monkeypatch.setattr("oncecron.core.decision.PLAIN_SKIP_WITHIN", 50.0)
    at = clock.wall()
    return lambda minutes=0: {"tick": minute_tick(at + 60 * minutes), "fired_at": at}


def plain(log: Log, query: HistoryQuery = EVERY) -> list[Skip]:
    """Return the skips of which less is kept."""
    return [skip for skip in log.people.skips(query) if skip.pid is None]


@pytest.mark.parametrize(("ended", "reason"), [(False, "held"), (True, "done")])
def test_a_plain_skip_tells_who_when_and_why(
    a: Host, b: Host, log: Log, ended: bool, reason: str, now: Now
) -> None:
    """And who had the tick, and how it ended, as the log of executions says."""
    fired = now()
    lease = a.win(**fired)
    if ended:
        a.finish(lease, "failed")
    b.lose(**fired)
    [skip] = log.skips()
    assert skip == Skip(
        *(KEY, 0, fired["tick"].text, reason, a.holder.host, a.holder.pid, b.holder.host, None),
        *(skip.at, 1, "failed" if ended else None),
    )
    assert skip.at == pytest.approx(clock.wall(), abs=20)
    [traced] = log.people.traced_skips(HistoryQuery(key=KEY, tick=fired["tick"].text))
    assert (traced.skip, traced.fired_at) == (skip, None)
    assert list(log.people.reasons({KEY: fired["tick"]})) == [
        SkipReason(KEY, str(fired["tick"].text), b.holder.host, reason)
    ]


def test_plain_skips_are_found_by_all_that_is_kept(
    a: Host, b: Host, store: StoreKind, log: Log, now: Now
) -> None:
    """Key, tick, host, reason and time."""
    first, second = now(-1), now()
    for fired in (first, second):
        store.pass_time(0.01)
        a.run(**fired)
        b.lose(**fired)
    at = clock.wall()
    found = HistoryQuery(KEY, at - 60, b.holder.host, ["done"], second["tick"].text)
    assert [skip.tick for skip in plain(log, found)] == [second["tick"].text]
    for other in (
        found._replace(key="weekly"),
        found._replace(since=at + 60),
        found._replace(host=a.holder.host),
        found._replace(outcomes=["held"]),
        found._replace(tick=now(-2)["tick"].text),
        found._replace(tick="a name"),
    ):
        assert list(log.people.skips(other)) == []
    assert [skip.tick for skip in log.skips()] == [second["tick"].text, first["tick"].text]
    assert [skip.tick for skip in log.people.skips(HistoryQuery(limit=1))] == [second["tick"].text]


def test_equal_plain_skips_are_one_with_a_count(
    a: Host, b: Host, store: StoreKind, log: Log, now: Now
) -> None:
    """For each tick, host and reason, and with the time of the newest."""
    fired = now()
    lease = a.win(**fired)
    b.lose(**fired)
    a.finish(lease)
    for _ in range(2):
        b.lose(**fired)
    before = log.skips()[0].at
    assert {skip.reason: skip.count for skip in plain(log)} == {"held": 1, "done": 2}
    store.pass_time(0.01)
    b.lose(**fired)
    assert [(skip.reason, skip.count) for skip in log.skips()] == [("done", 3), ("held", 1)]
    assert log.skips()[0].at > before


def test_many_ticks_of_many_hosts_are_all_there(a: Host, b: Host, log: Log, now: Now) -> None:
    """However they are kept; also those of an earlier tick that come later."""
    order = (-4, -3, -1, -2, 0)
    for minutes in order:
        a.run(**now(minutes), again=True) if minutes == -2 else a.run(**now(minutes))
    hosts = [b.holder._replace(host=f"h{number}") for number in range(5)]
    expected = set()
    for minutes in (-2, -4, 0, -3, -1):
        for holder in hosts:
            fired = now(minutes)
            assert b.lose(**fired, holder=holder).reason == "done"
            expected.add((fired["tick"].text, holder.host))
    found = [(skip.tick, skip.host) for skip in plain(log)]
    assert sorted(found) == sorted(expected)
    for tick in {tick for tick, _ in expected}:
        assert len(plain(log, HistoryQuery(key=KEY, tick=tick, limit=None))) == len(hosts)


# What tells more stays a row of its own


@pytest.mark.parametrize(
    "parts",
    [
        {"tick": named_tick("one")},
        {"tick": NO_TICK},
        {"fired_at": clock.wall() - 60},
        {"tick": minute_tick(clock.wall() - 3000)},
    ],
    ids=["name", "none", "apart", "late"],
)
def test_another_skip_is_kept_in_full(
    a: Host, b: Host, log: Log, parts: dict[str, Any], now: Now
) -> None:
    """Of a tick that is no minute, or of a firing that was late, or whose clock is wrong."""
    a.win(**(now() | parts))
    b.lose(**(now() | parts))
    [skip] = log.skips()
    assert (skip.pid, skip.holder_pid) == (b.holder.pid, a.holder.pid)


def test_a_skip_because_of_another_tick_is_kept_in_full(
    a: Host, b: Host, log: Log, now: Now
) -> None:
    """An overrun is what people look for."""
    a.win(**now(-1))
    b.lose(**now())
    [skip] = log.skips()
    assert (skip.reason, skip.pid) == ("held", b.holder.pid)


def test_a_skip_of_a_tick_that_ran_because_of_another_is_kept_in_full(
    a: Host, b: Host, log: Log, now: Now
) -> None:
    """Its holder is not the one that had its tick."""
    a.run(**now(-1))
    c = b.holder._replace(host="c.example")
    b.win(**now(), holder=c)
    assert a.lose(**now(-1)).reason == "held"
    [skip] = log.skips()
    assert (skip.pid, skip.holder_host) == (a.holder.pid, "c.example")


def test_a_skip_because_of_a_further_attempt_is_kept_in_full(
    a: Host, b: Host, log: Log, now: Now
) -> None:
    """It may be another host's."""
    fired = now()
    a.run(outcome="not-started", **fired)
    b.run(**fired)
    a.lose(**fired)
    [skip] = log.skips()
    assert (skip.pid, skip.holder_host) == (a.holder.pid, b.holder.host)


# Retention


def test_prune_removes_plain_skips(a: Host, b: Host, log: Log, now: Now) -> None:
    """With all of them older than what is to be kept; not before."""
    for minutes in (-1, 0):
        a.run(**now(minutes))
        b.lose(**now(minutes))
    assert log.people.prune(Retention(skips=3600.0)) == (0, 0)
    assert len(plain(log)) == 2
    eventually(lambda: log.people.prune(Retention(skips=0.0)) == (0, 2))
    assert log.skips() == []


def test_an_end_removes_old_plain_skips(
    a: Host, b: Host, store: StoreKind, log: Log, now: Now
) -> None:
    """With the retention of the others."""
    fired = now()
    a.run(**fired)
    b.lose(**fired)
    store.age(5000)
    a.finish(a.win(named_tick("one")), retention=Retention(skips=10000.0))
    assert len(plain(log)) == 1
    store.age(10)
    a.finish(a.win(named_tick("two")), retention=Retention(skips=100.0))
    assert log.skips() == []


def test_what_retention_has_removed_leaves_a_skip_without_its_holder(
    a: Host, b: Host, store: StoreKind, log: Log, now: Now
) -> None:
    """The rest of the skip stays."""
    fired: dict[str, Any] = now()
    a.run(**fired)
    b.lose(**fired)
    store.age(10)
    assert log.people.prune(Retention(executions=5.0, skips=3600.0)) == (1, 0)
    [skip] = log.skips()
    assert (skip.tick, skip.host, skip.reason) == (fired["tick"].text, b.holder.host, "done")
    assert (skip.holder_host, skip.holder_pid, skip.detail) == (None, None, None)
