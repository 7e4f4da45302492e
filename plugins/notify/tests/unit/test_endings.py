"""How findings end that the lives of `test_alarm_truth` do not have, and what is said of a line that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from oncecron.core.log_rows import Expectation, JobKey, KeyHost, Pause
from oncecron.core.text import Clock
from oncecron.log.gone_lines import gone_lines
from oncecron.log.job_summary import JobSummary
from oncecron.watch.findings import Limits, Situation, finding, usual_states
from oncecron_notify.changes import Failing, Identity, Known
from oncecron_notify.endings import Now, ending_of
from oncecron_notify.message import Change, Message, summary

NOW = 1_795_400_000.0
BEFORE = Known("critical", NOW - 3600, NOW - 3600, "critical", NOW - 3600)
NOTHING = {
    **dict.fromkeys(JobSummary._fields),
    "key": "k",
    "missed": 0,
    "overruns": 0,
    "failures": 0,
}
ROW = KeyHost("k", 0, "web1", NOW - 60, "1", 0.1, (("t", NOW - 60),), None, None, None, 1, 0)
REFUSING = {"ops": Failing(NOW, NOW, 1, "no")}
LIMITS = Limits(1, 3, usual_states())


@pytest.mark.parametrize(
    ("kind", "about", "situation", "change", "words"),
    [
        ("missed", {"key": "gone"}, {}, "closed", "is not known to the store any more"),
        ("missed", {"key": "k"}, {}, "closed", "is expected by no schedule any more"),
        ("silent", {"key": "k"}, {"started_at": NOW - 9}, "recovered", "runs again: "),
        ("silent", {"key": "k"}, {"started_at": NOW - 9999}, "closed", "is expected by no"),
        ("failed", {"key": "k"}, {"settled": True}, "recovered", "all items of its tick are done"),
        ("failed", {"key": "k"}, {"running_on": ("web1",)}, None, ""),
        (
            *("failed", {"key": "k"}, {"running_on": ("web1",), "running_since": NOW}, "recovered"),
            "runs again: running on web1 since ",
        ),
        (
            *("failed", {"key": "k"}),
            {"running_on": ("web1",), "running_since": NOW, "tick": "2026-11-20T02:00Z"},
            *(None, ""),
        ),
        ("lost", {"key": "k"}, {}, "closed", "was lost; its newest run: failed, started at "),
        (
            *("lost", {"key": "k"}, {"outcome": "succeeded", "succeeded_at": NOW}, "recovered"),
            "is well again: it was lost, and a later run succeeded at ",
        ),
        ("slow", {"key": "k"}, {"running_since": NOW - 99, "lease": "orphaned"}, None, ""),
        ("slow", {"key": "k"}, {"outcome": "no-end"}, "closed", "its newest run: lost, started"),
        ("in-doubt", {"key": "k"}, {}, "recovered", "has no items in doubt"),
        ("left", {"key": "k"}, {}, "recovered", "has no items left"),
        ("future", {"key": "k"}, {}, "recovered", "in the future any more"),
        ("zone", {"key": "k"}, {}, "recovered", "at the times of its schedule again"),
        ("of-tomorrow", {"key": "k"}, {}, "closed", "of-tomorrow is no finding any more"),
        ("of-tomorrow", {}, {}, "closed", "of-tomorrow is no finding any more"),
        ("clock", {"host": "web1"}, {}, "recovered", "the clock of web1 is right again (+0.1 s)"),
        ("clock", {"host": "web2"}, {}, "closed", "it has fired nothing for a day"),
        ("same-name", {"host": "web1"}, {}, "recovered", "web1 is the name of one machine again"),
        ("same-name", {"host": "web2"}, {}, "closed", "web2 is the name of no host any more"),
        ("standstill", {}, {}, "recovered", "hosts fire again: k at "),
        ("stopped", {}, {}, "recovered", "not all are drained, and not all are paused"),
        ("stopped", {"host": "web1"}, {}, "recovered", "web1 is not drained any more"),
        ("stopped", {"key": "k"}, {}, "recovered", "is not paused any more"),
        ("channel", {"channel": "old"}, {}, "closed", "channel old of notify is not configured"),
        ("channel", {"channel": "ops"}, {}, "recovered", "channel ops of notify works again"),
    ],
)
def test_how_a_finding_ends(
    kind: str, about: dict[str, str], situation: dict[str, Any], change: str | None, words: str
) -> None:
    """Whether it is well, or nobody can or need know."""
    if kind in ("in-doubt", "left"):
        pytest.importorskip("oncecron_each")
    job = JobSummary(**{**NOTHING, "outcome": "failed", "started_at": NOW - 9999, **situation})
    which = Identity(kind, *(about.get(each) for each in ("key", "", "host", "channel")))
    now = Now(Situation(NOW, [job], hosts=[ROW]), LIMITS, Clock(utc=True), ["ops"])
    ending = ending_of(which, BEFORE, now)
    assert (ending and ending.change) == change
    assert ending is None or words in ending.words


def test_the_subject_says_that_a_lost_key_is_well_again() -> None:
    """Not only that it was lost, where its sentence is too long for a subject."""
    job = JobSummary(**{**NOTHING, "outcome": "succeeded", "succeeded_at": NOW})
    now = Now(Situation(NOW, [job]), LIMITS, Clock(utc=True))
    ending = ending_of(Identity("lost", "k", None, None, None), BEFORE, now)
    assert ending is not None
    over = Change(
        "recovered", finding("lost", "k", 0, ending.words)._replace(state="ok"), "critical"
    )
    message = Message("0", "ops", "oncecron", "web1", NOW, [over], {}, 0)
    assert summary(message) == "oncecron OK: k is well again"


def test_a_channel_that_failed_once_more_does_not_work_again() -> None:
    """Nor has it not been tried."""
    now = Now(Situation(NOW, []), LIMITS, Clock(utc=True), ["ops"], REFUSING)
    which = Identity("channel", None, None, None, "ops")
    assert ending_of(which, BEFORE, now) is None


def test_what_is_missed_is_not_over_because_no_host_fires() -> None:
    """One finding says it of all keys."""
    silenced = finding("standstill", None, 2, "no host has fired")._replace(keys=("k", "l"))
    for remarks, is_told in (([silenced], False), ([], True)):
        situation = Situation(NOW, [JobSummary(**NOTHING)], remarks=lambda _, each=remarks: each)
        now = Now(situation, LIMITS, Clock(utc=True))
        which = Identity("missed", "k", None, None, None)
        assert (ending_of(which, BEFORE, now) is not None) == is_told


def test_all_are_held_back_until_one_is_not() -> None:
    """Also where one more is held back with the others, as a key that was forgotten and is fired again."""
    for since, is_told in ((NOW - 60, False), (None, True)):
        jobs = [JobSummary(**{**NOTHING, "key": key}) for key in ("k", "l")]
        pauses = [Pause("k", None, "ann", None, NOW - 9999, None)]
        pauses += [Pause("l", None, "ann", None, since, None)] if since else []
        now = Now(Situation(NOW, jobs, pauses=pauses), LIMITS, Clock(utc=True))
        about = Identity("stopped", None, None, None, None)
        assert (ending_of(about, BEFORE, now) is not None) == is_told


@pytest.mark.parametrize("which", [("web2", "k"), (None, "k")])
def test_a_dead_host_leaves_nothing_to_say_of_its_keys(which: tuple[str | None, str]) -> None:
    """As long as it is dead: neither of the one that it does not fire, nor of how few fire it."""
    host, key = which
    well = ROW._replace(seen_at=NOW, ticks=tuple((f"t{n}", NOW - 60 * n) for n in (1, 2, 3)))
    dead = ROW._replace(
        host="web2", seen_at=NOW - 7200, ticks=(("t9", NOW - 7200), ("t8", NOW - 7260))
    )
    limits = Limits(1, 3, usual_states(), min_hosts=2)
    for rows, is_told in (([well, dead], False), ([well], True)):
        now = Now(Situation(NOW, [JobSummary(**NOTHING)], hosts=rows), limits, Clock(utc=True))
        about = Identity("silent-host", key, None, host, None)
        before = BEFORE._replace(since=NOW)
        assert (ending_of(about, before, now) is not None) == is_told


def line(key: str, host: str, ago: float, command: str = "/bin/bill") -> KeyHost:
    """Return a host that fired a key so many seconds ago."""
    fired = (("t", NOW - ago),)
    return KeyHost(key, 0, host, NOW - ago, "1", 0.0, fired, "* * * * *", "UTC", command, 1, 0)


OLD = [line("bill", "web1", 7200), line("bill", "web2", 7200)]
BOTH = ("web1", "web2")


@pytest.mark.parametrize(
    ("rows", "since", "words"),
    [
        ([], NOW, None),  # both are dead
        ([line("x", "web1", 60, "x")], NOW, "web1 fires other keys, but has not fired this one: "),
        ([line("x", each, 60, "x") for each in BOTH], NOW, "web1, web2 fire other keys, but "),
        ([line("new", each, 60) for each in BOTH], NOW - 7000, "run its command as new now: if it"),
        ([line("twin", each, 60) for each in BOTH], NOW - 9e6, "web1, web2 fire other keys"),
        ([line("plain", each, 60) for each in BOTH], None, "web1, web2 fire other keys"),
        ([line("new", "web3", 60), line("x", "web1", 60, "x")], NOW - 7000, "web1 fires other"),
    ],
)
def test_a_line_that_is_gone(rows: list[KeyHost], since: float | None, words: str | None) -> None:
    """Retired, or renamed: a key that appeared since, on the same hosts, with the same command."""
    keys = []
    if since is not None:
        expected = Expectation("* * * * *", "UTC", 1, None, since)
        keys = [JobKey(row.key, 0, expected) for row in rows]
    said = gone_lines([*OLD, *rows], keys, {"bill": NOW - 3600}).get("bill")
    assert said is None if words is None else words in str(said)
    assert said is None or "`oncecron forget bill`" in said


def test_a_host_that_still_fires_the_key_says_nothing() -> None:
    """Of another one nothing is known."""
    rows = [line("bill", "web1", 30), line("x", "web1", 30, "x")]
    assert gone_lines(rows, [], {"bill": NOW - 3600}) == {}
