"""What stands still as a whole is one finding, and it is only told where nothing else explains it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncecron.core.log_rows import ALL_KEYS, INTERNAL, KeyHost, Pause
from oncecron.core.text import Clock
from oncecron.core.tick import minute_tick
from oncecron.core.units import DAY, HOUR, MINUTE
from oncecron.log.gone_lines import gone_lines
from oncecron.watch.findings import Finding, Situation, check, cure, finding, title, usual_limits
from oncecron.watch.standstill import firing, silence, stops

NOW = 1.8e9 // HOUR * HOUR + 30
STOPPED = NOW - HOUR
"""When the hosts fired last."""
UTC = Clock(utc=True)


def row(key: str, host: str, at: float = STOPPED) -> KeyHost:
    """Return that a host fired a key at last."""
    tick = str(minute_tick(at).text)
    return KeyHost(key, 0, host, at, "1", 0.0, ((tick, at),), "* * * * *", "UTC", "x", 1, 0)


def job(key: str, missed_at: float | None = None, silent_since: float | None = None) -> Any:
    """Return a key that is missed, or silent, since then."""
    return SimpleNamespace(
        key=key,
        missed=int(missed_at is not None),
        first_missed=None if missed_at is None else minute_tick(missed_at).text,
        silent_since=silent_since,
        retired=False,
    )


LATE = [job(key, STOPPED + MINUTE) for key in "abc"]
ROWS = [row(key, host) for key in "abc" for host in ("web1", "web2")]


def test_that_no_host_fires_is_one_finding_about_all_keys() -> None:
    """With the time since when, and without what is said of each of them."""
    [found] = silence(Situation(NOW, LATE, hosts=ROWS), UTC)
    assert (found.since, found.keys) == (STOPPED, ("a", "b", "c"))
    assert found.reason == (
        f"no host has fired since {UTC.seconds(STOPPED)} (3 keys): cron or the way to the store is down"
    )
    assert "`oncecron doctor`" in cure(found)
    missed = [finding("missed", each, 1, "missed 1 tick") for each in "abcd"]
    jobs = cast("Any", [SimpleNamespace(**{**vars(each), **_WELL}) for each in [*LATE, job("d")]])
    checked = check(Situation(NOW, jobs, remarks=lambda _: [*missed, found]), usual_limits(), UTC)
    assert [each.finding for each in checked.findings] == ["standstill", "missed"]
    assert checked.findings[1].key == "d"


_WELL = {
    "missed": 0, "silent_since": None, "outcome": "succeeded", "settled": False, "forgotten_at": None,
    "stopped_by": None, "exit_code": 0, "signal": None, "overruns": 0, "running_since": None, "lease": None,
    "usual_duration": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "rows"),
    [
        (LATE[:1], ROWS),  # the finding of the key says it
        (LATE, [*ROWS, row("other", "web3", STOPPED + 2 * MINUTE)]),
        (LATE, []),  # no host has ever fired: another finding has the cure
        ([job("a", STOPPED - MINUTE), *LATE[1:2]], ROWS),
        (
            [job(key, silent_since=STOPPED - DAY) for key in "ab"],
            [*[row(key, "w", STOPPED - DAY) for key in "ab"], ROWS[4]],
        ),
    ],
)  # fmt: skip
def test_what_else_explains_it(jobs: list[Any], rows: list[KeyHost]) -> None:
    """One key, a host that fires others, a key that was missed before."""
    assert [*silence(Situation(NOW, jobs, hosts=rows), UTC)] == []


def test_keys_without_a_schedule_are_among_them() -> None:
    """They were fired until then."""
    [found] = silence(
        Situation(NOW, [job(key, silent_since=STOPPED) for key in "ab"], hosts=ROWS), UTC
    )
    assert found.keys == ("a", "b")


def test_a_pass_of_notify_is_no_sign_of_life() -> None:
    """Then cron is not what is down."""
    [found] = silence(
        Situation(NOW, LATE, hosts=[*ROWS, row(INTERNAL + "notify", "mon1", NOW)]), UTC
    )
    assert "only `notify` runs, on mon1" in found.reason


def drain(host: str, since: float, until: float | None = None) -> Pause:
    return Pause(None, host, "ann@a", "new disk", since, until)


def told(pauses: list[Pause], jobs: list[Any] = LATE) -> list[Finding]:
    return [*stops(Situation(NOW, jobs, hosts=ROWS, pauses=pauses), HOUR, UTC)]


def test_all_hosts_drained_is_told_with_who_and_the_command() -> None:
    """After an hour since the last of them."""
    drains = [drain("web1", NOW - DAY), drain("web2", NOW - HOUR)]
    [found] = told(drains)
    assert (found.host, found.state, found.since) == (None, "warning", NOW - HOUR)
    assert found.named() == ("a", "b", "c")
    last = UTC.logged(NOW - HOUR)
    assert found.reason.startswith(
        f"all 2 hosts are drained by ann@a since {last}: new disk; nothing runs;"
    )
    assert title(found) == "all 2 hosts are drained"
    assert "to end it: `oncecron undrain web1`, `oncecron undrain web2`" in found.reason
    assert (
        told([drains[0]._replace(since=NOW - 2 * HOUR), drains[1]._replace(since=NOW - 60)]) == []
    )
    assert told([drain("web1", NOW - 2 * HOUR)]) == []
    [found] = told([drains[0], drains[1]._replace(author="bob@b")])
    assert "all 2 hosts are drained: web1 by ann@a since" in found.reason
    assert title(found) == "all 2 hosts are drained"


def test_all_keys_paused_is_told() -> None:
    """At once, or one by one."""
    at_once = Pause(ALL_KEYS, None, "ann@a", "a move", NOW - 2 * HOUR, None)
    [found] = told([at_once])
    assert found.named() == ("a", "b", "c")
    assert found.reason.startswith("all keys are paused by ann@a since ")
    assert title(found) == "all keys are paused"
    assert "`oncecron resume --all`" in found.reason
    each = [at_once._replace(key=key) for key in "abc"]
    assert "`oncecron resume a`, `oncecron resume b`" in told(each)[0].reason
    assert told(each[:2]) == []
    assert told([at_once._replace(since=NOW - 60)]) == []


def test_a_drain_without_an_end_is_forgotten_after_a_day() -> None:
    """One that ends by itself, or whose host is gone, is none."""
    [found] = told([drain("web1", NOW - DAY)])
    assert (found.host, found.since) == ("web1", NOW - DAY)
    assert "web1 is drained by ann@a since" in found.reason
    assert title(found) == "web1 is drained"
    assert "to end it: `oncecron undrain web1`" in found.reason
    assert told([drain("web1", NOW - DAY, until=NOW + HOUR)]) == []
    assert told([drain("gone", NOW - DAY)]) == []


def test_a_pause_without_an_end_is_forgotten_after_a_day() -> None:
    """Of one key; also where only that one is looked at: it is not all keys. All of them are one event."""
    pause = Pause("a", None, "ann@a", "a move", NOW - DAY, None)
    of_one = Situation(NOW, LATE[:1], hosts=ROWS, pauses=[pause])
    found = [*stops(of_one, HOUR, UTC, of_all=False)]
    for [each] in (told([pause]), found):
        assert (each.key, each.host, each.since, each.state) == ("a", None, NOW - DAY, "warning")
        assert each.reason.startswith("is paused by ann@a since ")
        assert title(each) == "a is paused"
        assert "a move; to end it: `oncecron resume a`, or `oncecron forget a`" in each.reason
    of_all = of_one._replace(pauses=[pause._replace(key=ALL_KEYS)])
    [found] = stops(of_all, HOUR, UTC, of_all=False)
    assert title(found) == "all keys are paused"
    assert told([pause._replace(since=NOW - HOUR)]) == []
    assert told([pause._replace(until=NOW + HOUR)]) == []
    assert [each.key for each in told([pause._replace(key=key) for key in "abc"])] == [None]


def test_how_many_hosts_fire() -> None:
    """None where no host does; a drained host and a dead one do not count."""
    hosts: Any = [SimpleNamespace(host=name, drained_by=None) for name in ("web1", "web2", "web3")]
    assert firing(hosts, []) == 3
    assert firing(hosts, [finding("silent-host", None, 1, "", host="web1")]) == 2
    assert firing(hosts, [finding("silent-host", "k", 1, "", host="web1")]) == 3
    hosts[1].drained_by = "ann@a"
    assert firing(hosts, []) == 2
    assert firing(hosts, [finding("standstill", None, 2, "")]) == 0


def test_nobody_is_told_to_forget_one_key_of_several() -> None:
    """Their hosts may be down: only of a single key is it likely that it is retired."""
    rows = [
        row("a", "web1", NOW - 2 * HOUR),
        row("b", "web1", NOW - 2 * HOUR),
        row("c", "web1", NOW),
    ]
    missed = {"a": NOW - HOUR}
    assert "`oncecron forget a`" in gone_lines(rows, [], missed)["a"]
    several = gone_lines(rows, [], missed | {"b": NOW - HOUR}, alone=False)
    assert [each for each in several.values() if "forget" in each] == []
    assert "forget" not in cure(finding("missed", "a", 1, "missed 1 tick"))
    still = [*rows[:2], row(f"{INTERNAL}notify", "web1", NOW)]
    assert gone_lines(still, [], missed) == {}
