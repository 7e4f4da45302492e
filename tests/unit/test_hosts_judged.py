"""What `check` and `doctor` say of the hosts, from the rows of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_hosts_report import NOW, row

from oncecron.alerts.findings import DEFAULT_STATES, Limits, Situation, check
from oncecron.cli.diagnoses import of_hosts
from oncecron.core.job_summary import JobSummary
from oncecron.core.log_rows import HostTicks
from oncecron.core.text import Clock
from oncecron.core.units import DAY, HOUR

if TYPE_CHECKING:
    from oncecron.alerts.findings import Finding
    from oncecron.core.log_rows import KeyHost

WELL = JobSummary(**{**dict.fromkeys(JobSummary._fields), "key": "k", "missed": 0, "overruns": 0,
                     "streak": 0, "outcome": "succeeded"})  # fmt: skip


def findings(*rows: KeyHost, min_hosts: int = 1, drained: tuple[str, ...] = ()) -> list[Finding]:
    """Return what is wrong with the hosts of one key, which is well."""
    limits = Limits(1, 3, DEFAULT_STATES, min_hosts)
    seen = [HostTicks(*(getattr(each, name) for name in HostTicks._fields)) for each in rows]
    situation = Situation(NOW, [WELL], hosts=seen, drained=drained)
    return check(situation, limits, Clock(utc=True)).findings


def diagnoses(*rows: KeyHost) -> dict[str, tuple[str, str, str | None]]:
    """Return state, text and cure by subject."""
    return {each.subject: (each.state, each.text, each.cure) for each in of_hosts(rows, NOW)}


# check


def test_two_machines_of_one_name_are_a_warning() -> None:
    """With the cure; of a host, whatever number of keys it fires."""
    twins = [row("a", 60, key=key, machines=2) for key in ("k", "l")]
    [found] = [each for each in findings(*twins, row("b", 60)) if each.finding == "same-name"]
    assert (found.state, found.key, found.host) == ("warning", None, "a")
    assert found.reason.startswith("a is the name of two machines or more, which have fired the")
    state, text, cure = diagnoses(*twins, row("b", 60))["names"]
    assert (state, text.startswith("a is the name of two machines")) == ("warn", True)
    assert "ONCECRON_HOST" in (cure or "")
    assert diagnoses(row("a", 60), row("b", 60))["names"][0] == "ok"


def test_a_silent_host_is_a_warning() -> None:
    """For each key and host; with the time of its last firing."""
    [found] = findings(row("a", 60, 120, 180), row("b", 240))
    assert found[:4] == ("silent-host", "warning", "k", None)
    assert (found.count, found.since) == (1, NOW - 240)
    assert found.reason == "has not been fired by b for the last 3 ticks"
    assert findings(row("a", 60, 120, 180), row("b", 180)) == []
    assert findings(row("a", 60, 120, 180), row("b", 240), drained=("b",)) == []


@pytest.mark.parametrize(("min_hosts", "count"), [(1, None), (2, None), (3, 1), (5, 3)])
def test_a_key_with_few_hosts(min_hosts: int, count: int | None) -> None:
    """Counted are the hosts that fired one of the last three ticks."""
    found = findings(row("a", 60, 120, 180), row("b", 180), min_hosts=min_hosts)
    assert [each.count for each in found] == ([] if count is None else [count])
    for each in found:
        assert each.finding == "silent-host"
        assert (
            each.reason == f"has been fired by 2 hosts in its last 3 ticks, and not by {min_hosts}"
        )


def test_a_new_key_has_time_for_its_hosts() -> None:
    """Before its third tick nothing is said of it."""
    assert findings(row("a", 60, 120), min_hosts=2) == []


def test_other_keys_are_not_judged() -> None:
    """Only those that were asked about."""
    assert findings(row("a", 60, 120, 180, key="l"), row("b", 240, key="l")) == []


def test_a_wrong_clock_is_a_warning() -> None:
    """Within the last day; a difference that NTP does not leave."""
    [ahead, behind] = findings(
        row("a", 60, clock_ahead=2.5),
        row("b", 60, clock_ahead=-99.0),
        row("c", 60, clock_ahead=-1.9),
        row("d", round(DAY) + 1, clock_ahead=99.0),
    )
    assert (ahead.finding, ahead.state, ahead.key) == ("clock", "warning", None)
    assert ahead.reason == "the clock of a is 2.5 s ahead of the store's"
    assert behind.reason == "the clock of b is 99.0 s behind the store's"


# doctor


def test_hosts_that_agree() -> None:
    """Nothing is wrong."""
    found = diagnoses(row("a", 60), row("b", 60))
    assert {state for state, *_ in found.values()} == {"ok"}
    assert list(found) == ["versions", "clocks", "names", "schedules", "commands"]
    assert found["versions"][1] == "oncecron 0.1.0 on every host that fired in the last day (2)"


def test_before_the_first_firing() -> None:
    """There is nothing to compare."""
    found = diagnoses()
    assert {state for state, *_ in found.values()} == {"ok"}
    assert found["versions"][1] == "no host has fired in the last day"


def test_different_versions() -> None:
    """Each with its hosts; a host that has not been seen for a day has none."""
    rows = [row(f"h{n}", 60, version="0.2.0") for n in range(7)]
    found = diagnoses(row("a", 60), *rows, row("old", round(DAY) + 1, version="0.0.1"))
    expected = "hosts have different versions: 0.1.0 (a), 0.2.0 (h0, h1, h2, h3, h4 and 2 more)"
    assert found["versions"] == ("warn", expected, "upgrade oncecron on the other hosts")


def test_clocks_that_differ() -> None:
    """Each with its difference."""
    state, text, _ = diagnoses(row("a", 60), row("b", 60, clock_ahead=12.0))["clocks"]
    assert (state, text) == ("warn", "the clock of b is 12.0 s ahead of the store's")


@pytest.mark.parametrize(
    ("subject", "other", "cure"),
    [
        (
            "commands",
            {"command": "false"},
            "k is false on b; true on a, or give each job its own key",
        ),
        (
            "schedules",
            {"schedule": None, "zone": None},
            "'* * * * *' in UTC on a; without --schedule on b",
        ),
        (
            "schedules",
            {"zone": None},
            "'* * * * *' in UTC on a; '* * * * *' in the zone of the host on b",
        ),
    ],
)
def test_crontabs_that_differ(subject: str, other: dict[str, Any], cure: str) -> None:
    """The keys are named, and what the hosts have under the first one."""
    rows = (row("a", 60), row("a", 60, key="l"), row("b", 60, **other))
    found = diagnoses(*rows, row("b", 60, key="l"))
    state, text, shown = found[subject]
    assert state == "warn"
    assert " k" in text
    assert shown is not None
    assert shown.endswith(cure)
    assert [name for name, each in found.items() if each[0] != "ok"] == [subject]


def test_a_crontab_of_yesterday_is_not_compared() -> None:
    """The host has stopped to fire the key, which is another finding."""
    old = row("b", round(DAY + HOUR), command="false")
    assert diagnoses(row("a", 60), old)["commands"][0] == "ok"
