"""Texts for a terminal: short times, and what fits into so many columns."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.columns import cut, display_width, fold
from oncecron.core.model import OUTCOMES, REFUSAL_REASONS
from oncecron.core.text import Clock
from oncecron.log.jobs import WRONG
from oncecron.log.state_kinds import kind_of, kind_of_skip
from oncecron_each.item_model import ITEM_STATES

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 25, 22, 30, tzinfo=BERLIN)
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("after", "near", "logged"),
    [
        (0, "now", "22:30:00"),
        (-12, "12s ago", "22:29:48"),
        (-3.5 * MINUTE, "3m ago", "22:26:30"),
        (2.5 * MINUTE, "in 2m", "22:32:30"),
        (-HOUR + 1, "59m ago", "21:30:01"),
        (-HOUR, "21:30", "21:30:00"),
        (-22.5 * HOUR, "00:00", "00:00:00"),
        (-22.5 * HOUR - 1, "Tue 23:59", "Tue 23:59:59"),
        (3.5 * HOUR, "Thu 02:00", "Thu 02:00:00"),
        (-6 * DAY, "Thu 22:30", "Thu 22:30:00"),
        (-7 * DAY, "18 Nov", "18 Nov 22:30:00"),
        (290 * DAY, "11 Sep", "11 Sep 23:30:00"),
        (-330 * DAY, "30 Dec 2025", "30 Dec 2025 22:30:00"),
    ],
)
def test_times_are_short_for_a_person_who_looks_now(after: float, near: str, logged: str) -> None:
    """Relative within the hour, else on the clock and the calendar of one zone; whole for a program."""
    now = NOW.timestamp()
    clock = Clock(utc=True, zone=ZoneInfo("Europe/Berlin"), now=now)
    assert (clock.near(now + after), clock.logged(now + after)) == (near, logged)
    assert Clock(utc=True).near(now + after) == Clock(utc=True).seconds(now + after)
    assert Clock(utc=True, now=now).near(None) == "-"


@pytest.mark.parametrize(
    ("tick", "shown"),
    [
        ("2026-11-25T01:00Z", "02:00"), ("2026-11-24T01:00Z", "Tue 02:00"), ("2026-11-12T01:00Z", "12 Nov 02:00"),
        ("2026-10-25T00:30Z", "25 Oct 02:30 CEST"), ("2026-10-25T01:30Z", "25 Oct 02:30 CET"),
        ("campaign-42", "campaign-42"),
    ],
)  # fmt: skip
def test_a_tick_is_a_time_for_a_person(tick: str, shown: str) -> None:
    """With the zone in the hour that the clock shows twice; a name stays a name, and for a program a tick is one."""
    clock = Clock(utc=True, zone=ZoneInfo("Europe/Berlin"), now=NOW.timestamp())
    assert clock.tick(tick) == shown
    assert Clock(utc=False).tick(tick) == tick


@pytest.mark.parametrize(
    ("text", "width", "keeps_end", "shown"),
    [
        ("exports-eu-central-1-orders", 27, True, "exports-eu-central-1-orders"),
        ("exports-eu-central-1-orders", 16, True, "exports-eu…rders"),
        ("the bank moves house", 12, False, "the bank mo…"),
        ("東京東京東京", 9, True, "東京東…京"), ("e\u0301" * 9, 5, True, "e\u0301" * 3 + "…" + "e\u0301"),
        ("abc", 1, True, "…"), ("abc", 0, False, ""),
    ],
)  # fmt: skip
def test_both_ends_of_a_name_are_kept_and_the_beginning_of_a_sentence(
    text: str, width: int, keeps_end: bool, shown: str
) -> None:
    """By the columns that a terminal needs."""
    assert cut(text, width, "…", keeps_end=keeps_end) == shown


@given(st.text(), st.integers(0, 40), st.booleans())
def test_no_text_is_wider_than_it_may_be(text: str, width: int, keeps_end: bool) -> None:
    """Whatever its letters."""
    assert display_width(cut(text, width, ">", keeps_end=keeps_end)) <= width


def test_a_command_is_not_folded() -> None:
    """It could not be pasted."""
    text = (
        "1 pause; to list them, and who did it: `oncecron --store local locks --pauses`, and wait"
    )
    assert fold(text, 40, 2) == [
        "1 pause; to list them, and who did it:",
        "`oncecron --store local locks --pauses`,",
        "  and wait",
    ]
    line = """`oncecron run --key k -- /bin/sh -c 'dump >`date +%F`.sql; echo done' 'it'"'"'s' b`"""
    assert fold(f"To run it again: {line}, or wait", 40, 2) == [
        "To run it again:",
        f"{line},",
        "  or wait",
    ]


def test_every_state_has_a_kind() -> None:
    """A word that is added is one that a person has to tell from what is as usual."""
    words = {
        *OUTCOMES,
        *WRONG,
        *ITEM_STATES,
        *("paused", "ok", "held", "stale", "orphaned", "warn", "fail"),
    }
    assert {word for word in words if kind_of(word) == "nothing"} == {"queued"}
    assert {reason for reason in REFUSAL_REASONS if kind_of_skip(reason) == "nothing"} == {
        "held", "done", "passed", "recent", "unmet",
    }  # fmt: skip
