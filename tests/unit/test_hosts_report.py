"""Who fires which keys, from the rows of a store."""

from __future__ import annotations

from typing import Any

from oncecron.core.log_rows import KeyHost, Pause
from oncecron.core.silent_hosts import Silence, last_ticks, recent
from oncecron.core.timing import HOST_FORGOTTEN_AFTER
from oncecron.core.units import DAY, HOUR
from oncecron.log.hosts import HostSummary, hosts, of_last_day

NOW = 1.8e9


def row(host: str, *ticks: int, key: str = "k", **parts: Any) -> KeyHost:
    """Return a host that has fired these ticks, numbered by how many seconds ago that was."""
    fired = tuple((f"t{ago}", NOW - ago) for ago in ticks)
    known = KeyHost(
        *(key, 0, host, NOW - min(ticks, default=0), "0.1.0", 0.5, fired),
        *("* * * * *", "UTC", "true", 1, 2),
    )
    return known._replace(**parts)


def silent(*rows: KeyHost, drained: dict[str, str] | None = None) -> list[str]:
    """Return the hosts that are silent on the only key."""
    [found] = last_ticks(rows, drained or {}).values()
    return [each.host for each in found.silent]


def test_a_host_is_silent_when_others_fired_the_last_three_ticks() -> None:
    """Not after two, and not if it fired one of the three."""
    assert silent(row("a", 60, 120, 180), row("b", 240)) == ["b"]
    assert silent(row("a", 60, 120, 180), row("b", 180, 240, 300)) == []
    assert silent(row("a", 60, 120), row("b", 180)) == []
    assert silent(row("a", 60, 120), row("b", 180, 240)) == []


def test_the_three_ticks_may_be_of_several_hosts() -> None:
    """No single host has to have fired all of them."""
    found = last_ticks((row("a", 60, 180), row("b", 120), row("c", 240)), {})["k"]
    assert found.ticks == ("t60", "t120", "t180")
    assert found.hosts == {"a", "b"}
    assert found.silent == (Silence("c", NOW - 240),)


def test_a_key_that_nobody_fires_has_no_silent_host() -> None:
    """Nor one without ticks, nor one of a single host."""
    assert silent(row("a", 60, 120, 180), row("b", 60, 120, 180)) == []
    assert silent(row("a"), row("b")) == []
    assert silent(row("a", 60, 120, 180)) == []


def test_ticks_are_ordered_by_the_first_host_that_fired_them() -> None:
    """A host that comes late to an old tick makes it no newer."""
    late = row("b", 240)._replace(ticks=(("t240", NOW - 1),))
    assert silent(row("a", 60, 120, 180), row("c", 240), late) == ["b", "c"]


def test_times_of_a_clock_that_was_ahead_count_as_a_day_ago() -> None:
    """Else its ticks would be the newest, and every host silent that fires only newer ones."""
    gone = row("gone")._replace(
        seen_at=NOW + 40 * DAY, ticks=tuple((f"m{n}", NOW + 40 * DAY) for n in range(3))
    )
    rows = list(recent([row("a", 60, 120, 180), row("b", 60, 120, 180), gone], NOW))
    assert silent(*rows) == ["gone"]
    assert [each.seen_at for each in rows] == [NOW - 60, NOW - 60, NOW - DAY]
    within = row("a")._replace(seen_at=NOW + 200, ticks=(("t", NOW + 200),))
    assert list(recent([within], NOW)) == [within]


def test_shards_are_one_key() -> None:
    """A host that fires another shard of a tick fires the tick."""
    rows = (row("a", 60, 120, 180), row("b", 240), row("b", 60)._replace(shard=1))
    assert silent(*rows) == []
    assert last_ticks(rows, {})["k"].hosts == {"a", "b"}


def test_a_drained_host_is_not_silent() -> None:
    """Somebody knows that it does not run its jobs."""
    rows = row("a", 60, 120, 180), row("b", 240)
    assert silent(*rows, drained={"b": "ann@web1"}) == []


def test_a_host_at_a_glance() -> None:
    """The newest row has version and clock; counts are added up."""
    rows = [
        row("a", 60, 120, 180),
        row("a", 30, key="l", version="0.2.0", clock_ahead=-3.0),
        row("b", 600),
        row("b", 500, key="l"),
        row("by-hand", command=None, seen_at=NOW - 5),
        row("gone", 10, seen_at=NOW - HOST_FORGOTTEN_AFTER - 1),
    ]
    drains = [Pause(None, "a", "ann@web1", None, 1.0, None), Pause("k", None, "x", None, 1.0, None)]
    found = list(hosts(rows, drains, NOW))
    assert found == [
        HostSummary("a", NOW - 30, "0.2.0", -3.0, "ann@web1", 2, 2, 4, None),
        HostSummary("b", NOW - 500, "0.1.0", 0.5, None, 2, 2, 4, "k"),
        HostSummary("by-hand", NOW - 5, "0.1.0", 0.5, None, 0, 1, 2, None),
    ]


def test_silent_keys_are_joined() -> None:
    """By name."""
    rows = [row(host, *ticks, key=key) for key in ("x", "k")
            for host, ticks in (("a", (1, 2, 3)), ("b", (4,)))]  # fmt: skip
    assert [each.silent_on for each in hosts(rows, (), NOW)] == [None, "k,x"]


def test_crontabs_are_compared_within_a_day() -> None:
    """A host that has stopped to fire a key has no say any more."""
    old = row("b", round(DAY) + round(HOUR))
    rows = [row("a", 60), old, row("by-hand", command=None), row("b", 60, key="l")]
    assert of_last_day(rows) == {"k": [rows[0]], "l": [rows[3]]}
