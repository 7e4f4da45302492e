"""Who fires which keys, who is silent, and what `hosts`, `check` and `doctor` say of it, from the rows of a store."""

from typing import Any

import pytest

from oncecron.cli.doctor import of_crontabs
from oncecron.core.log_rows import KeyHost, Pause
from oncecron.core.text import Clock
from oncecron.core.timing import HOST_FORGOTTEN_AFTER
from oncecron.core.units import DAY, HOUR
from oncecron.log.hosts import HostSummary, hosts
from oncecron.log.job_summary import JobSummary
from oncecron.log.silent_hosts import last_ticks, recent
from oncecron.watch.findings import Finding, Limits, Situation, check, usual_states

NOW = 1.8e9
WELL = JobSummary(**{**dict.fromkeys(JobSummary._fields), "key": "k", "missed": 0, "overruns": 0,
                     "failures": 0, "outcome": "succeeded"})  # fmt: skip


def row(host: str, *ticks: int, key: str = "k", **parts: Any) -> KeyHost:
    """Return a host that has fired these ticks, numbered by how many seconds ago that was."""
    fired = tuple((f"t{ago}", NOW - ago) for ago in ticks)
    known = KeyHost(
        *(key, 0, host, NOW - min(ticks, default=0), "0.1.0", 0.5, fired),
        *("* * * * *", "UTC", "true", 1, 2),
    )
    return known._replace(**parts)


def findings(*rows: KeyHost, min_hosts: int = 1, drained: tuple[str, ...] = ()) -> list[Finding]:
    """Return what is wrong with the hosts of one key, which is well."""
    pauses = [Pause(None, host, "ann@desk", None, 1.0, None) for host in drained]
    situation = Situation(NOW, [WELL], hosts=rows, pauses=pauses)
    checked = check(situation, Limits(1, 3, usual_states(), min_hosts), Clock(utc=True))
    # A key is well as long as the other hosts fire it.
    assert checked.well == (not any(each.key for each in checked.findings))
    return checked.findings


def diagnoses(*rows: KeyHost) -> dict[str, tuple[str, str, str | None]]:
    return {each.subject: (each.state, each.text, each.cure) for each in of_crontabs(rows, NOW)}


# The rule

A = row("a", 60, 120, 180)


@pytest.mark.parametrize(
    ("rows", "silent"),
    [
        ([A, row("b", 240, 300)], ["b"]),
        ([A, row("b", 240)], []),  # a pod: its name is that of one run
        ([A, row("b", 240), row("b", 240)._replace(shard=1)], []),
        ([A, row("b", 240), row("b", 300)._replace(shard=1)], ["b"]),
        ([A, row("b", 180, 240, 300)], []),  # it fired one of the three
        ([row("a", 60, 120), row("b", 180, 240)], []),  # after two
        ([A, row("b", 60, 120, 180)], []),
        ([row("a"), row("b")], []),
        ([A], []),
        # A host that comes late to an old tick makes it no newer.
        (
            [
                A,
                row("c", 240, 300),
                row("b")._replace(ticks=(("t240", NOW - 1), ("t300", NOW - 300))),
            ],
            ["b", "c"],
        ),
        ([A, row("b", 240), row("b", 60)._replace(shard=1)], []),  # another shard of the tick
    ],
)
def test_a_host_is_silent_when_others_fired_the_last_three_ticks(
    rows: list[KeyHost], silent: list[str]
) -> None:
    """Ticks are in the order of the first host that fired them; a drained host is not silent."""
    [found] = last_ticks(rows, ()).values()
    assert [host for host, _ in found.silent] == silent
    assert last_ticks(rows, ("b", "c"))["k"].silent == ()


def test_the_three_ticks_may_be_of_several_hosts() -> None:
    """No single host has to have fired all of them."""
    found = last_ticks((row("a", 60, 180), row("b", 120), row("c", 240, 300)), {})["k"]
    assert (found.ticks, found.hosts) == (("t60", "t120", "t180"), {"a", "b"})
    assert found.silent == (("c", NOW - 240),)


def test_times_of_a_clock_that_was_ahead_count_as_a_day_ago() -> None:
    """Else its ticks would be the newest, and every host silent that fires only newer ones."""
    ahead = tuple((f"m{n}", NOW + 40 * DAY) for n in range(3))
    gone = row("gone")._replace(seen_at=NOW + 40 * DAY, ticks=ahead)
    rows = list(recent([A, row("b", 60, 120, 180), gone], NOW))
    assert [host for host, _ in last_ticks(rows, ())["k"].silent] == ["gone"]
    assert [each.seen_at for each in rows] == [NOW - 60, NOW - 60, NOW - DAY]
    within = row("a")._replace(seen_at=NOW + 200, ticks=(("t", NOW + 200),))
    assert list(recent([within], NOW)) == [within]


# hosts


def test_a_host_at_a_glance() -> None:
    """The newest row has version and clock; counts are added up, and silent keys joined."""
    rows = [
        row("a", 60, 120, 180),
        row("a", 30, key="l", version="0.2.0", clock_ahead=-3.0),
        row("b", 1600, 1700),
        row("b", 1500, 1600, key="l"),
        *(row(host, *ticks, key="x") for host, ticks in (("a", (90, 91, 92)), ("b", (1900, 2000)))),
        row("by-hand", command=None, seen_at=NOW - 5),
        row(
            "by-hand", key="oncecron/notify", seen_at=NOW - 4, version="0.2.0"
        ),  # no job, but alive
        row("gone", 10, seen_at=NOW - HOST_FORGOTTEN_AFTER - 1),
    ]
    drains = [Pause(None, "a", "ann@web1", None, 1.0, None), Pause("k", None, "x", None, 1.0, None)]
    assert list(hosts(rows, drains, NOW)) == [
        HostSummary("a", NOW - 30, "0.2.0", -3.0, "ann@web1", 3, 3, 6, ()),
        HostSummary("b", NOW - 1500, "0.1.0", 0.5, None, 3, 3, 6, ("k", "l", "x")),
        HostSummary("by-hand", NOW - 4, "0.2.0", 0.5, None, 0, 1, 2, ()),
    ]


# check


OFTEN = row("a", 60, 120, 180)


def test_a_dead_host_is_one_finding() -> None:
    """Of all its keys, also of those that are not due yet; with the time of its last firing."""
    keys = ("k", "l", "m", "n")
    dead = [row("b", 1000 + 10 * n, 2000, key=key) for n, key in enumerate(keys)]
    rows = [OFTEN, row("a", 60, 120, 180, key="l"), *dead]
    [found] = findings(*rows)
    assert found[:5] == ("silent-host", "warning", None, None, 4)
    assert (found.since, found.host, found.keys) == (NOW - 1000, "b", keys)
    at = Clock(utc=True).seconds(NOW - 1000)
    assert found.reason == f"b has fired nothing since {at} (4 keys: k, l, m and 1 more)"
    assert findings(*rows, drained=("b",)) == []
    [few] = [each for each in findings(*rows, min_hosts=3) if each.key]
    assert few.reason == "has been fired by 1 host in its last 3 ticks, and not by 3"


def test_pods_are_no_dead_hosts_and_hide_none() -> None:
    """Each fires one tick under its own name; of a fleet beside them, the machine that is lost is told."""
    nights = [round(n * DAY) for n in range(1, 9)]
    pods = [row(f"bill-{ago}", ago) for ago in nights]
    assert findings(*pods) == []
    fleet = [row("web1", *nights[:3]), row("web2", *nights[4:7])]
    assert [each.host for each in findings(*fleet)] == ["web2"]
    assert [each.host for each in findings(*pods, *fleet)] == ["web2"]


def test_a_line_that_is_gone_is_a_finding_of_its_key() -> None:
    """The host fires others."""
    [found] = findings(OFTEN, row("b", 1000, 1060), row("b", 60, key="l"))
    assert found[:5] == ("silent-host", "warning", "k", None, 1)
    at = Clock(utc=True).seconds(NOW - 1000)
    assert found.reason == f"has not been fired by b since {at}, which fires other keys"


@pytest.mark.parametrize(("ago", "count"), [(240, 0), (899, 0), (900, 1)])
def test_a_host_that_reboots_is_not_silent(ago: int, count: int) -> None:
    """Three ticks, and a quarter of an hour."""
    assert len(findings(OFTEN, row("b", ago, 1000))) == count


@pytest.mark.parametrize(("min_hosts", "count"), [(1, None), (2, None), (3, 1), (5, 3)])
def test_a_key_with_few_hosts(min_hosts: int, count: int | None) -> None:
    """Counted are the hosts that fired one of the last three ticks; before the third, nothing is said."""
    found = findings(A, row("b", 180), min_hosts=min_hosts)
    reason = f"has been fired by 2 hosts in its last 3 ticks, and not by {min_hosts}"
    assert [(each.finding, each.count, each.reason) for each in found] == (
        [] if count is None else [("silent-host", count, reason)]
    )
    assert findings(row("a", 60, 120), min_hosts=min_hosts) == []


def test_two_machines_of_one_name_are_a_warning() -> None:
    """With the cure; of a host, whatever number of keys it fires."""
    twins = [row("a", 60, key=key, machines=2) for key in ("k", "l")]
    [found] = [each for each in findings(*twins, row("b", 60)) if each.finding == "same-name"]
    assert (found.state, found.key, found.host) == ("warning", None, "a")
    assert found.reason.startswith("a is the name of two machines or more, which have fired the")
    assert found.reason.endswith("ONCECRON_HOST")


def test_a_wrong_clock_is_a_warning() -> None:
    """Within the last day; a difference that NTP does not leave."""
    rows = (
        row("a", 60, clock_ahead=2.5),
        row("b", 60, clock_ahead=-99.0),
        row("c", 60, clock_ahead=-1.9),
        row("d", round(DAY) + 1, clock_ahead=99.0),
    )
    [ahead, behind] = findings(*rows)
    assert (ahead.finding, ahead.state, ahead.key) == ("clock", "warning", None)
    assert ahead.reason == "the clock of a is 2.5 s ahead of the store's"
    assert behind.reason == "the clock of b is 99.0 s behind the store's"


# doctor


@pytest.mark.parametrize(
    ("subject", "other", "cure"),
    [
        ("commands", {"command": "false"}, "or give each job its own key: k is false on b; true on a"),
        ("schedules", {"schedule": None, "zone": None}, "'* * * * *' in UTC on a; without --schedule on b"),
        ("schedules", {"zone": None}, "'* * * * *' in UTC on a; '* * * * *' in the zone of the host on b"),
    ],
)  # fmt: skip
def test_crontabs_that_differ(subject: str, other: dict[str, Any], cure: str) -> None:
    """The keys are named, and what the hosts have under the first one; not a line of yesterday, or a firing by hand."""
    rows = (row("a", 60), row("a", 60, key="l"), row("b", 60, key="l"))
    found = diagnoses(*rows, row("b", 60, **other))
    state, text, shown = found[subject]
    assert (state, " k" in text) == ("warn", True)
    assert shown is not None
    assert shown.endswith(cure)
    assert [name for name, each in found.items() if each[0] != "ok"] == [subject]
    others = (row("b", round(DAY + HOUR), **other), row("c", 60, **{**other, "command": None}))
    assert diagnoses(*rows, *others)[subject][0] == "ok"
