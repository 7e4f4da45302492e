"""Which tick a firing belongs to: each rule, Debian cron's changes of the clock, and what is refused."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise, takewhile
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import debian_cron
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.errors import UnknownZoneError
from oncecron.core.tick import Tick, minute_tick, named_tick
from oncecron.host import local_time
from oncecron.host.local_time import BorrowedZone, host_zone, next_ticks, offsets, scheduled_tick

DAY = 86400


def at(text: str) -> float:
    """Return epoch seconds of an ISO text, in UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def ticks_between(schedule: str, zone: str, after: float, until: float) -> list[float]:
    """Return the instants of the ticks later than `after` and no later than `until`."""
    instants = (tick.instant or 0.0 for tick in next_ticks(schedule, zone, after))
    return list(takewhile(lambda instant: instant <= until, instants))


# --- the examples of the rule ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "zone", "fired_at", "text"),
    [
        ("0 2 * * *", "UTC", "2026-11-20T02:00:01", "2026-11-20T02:00Z"),
        ("0 2 * * *", "UTC", "2026-11-20T02:00:00", "2026-11-20T02:00Z"),
        ("0 2 * * *", "UTC", "2026-11-20T01:59:58", "2026-11-20T02:00Z"),
        ("0 2 * * *", "UTC", "2026-11-20T01:59:57.999", "2026-11-19T02:00Z"),
        ("0 2 * * *", "UTC", "2026-11-20T14:03:00", "2026-11-20T02:00Z"),
        ("0 2 * * *", "UTC", "2026-11-21T01:59:00", "2026-11-20T02:00Z"),
        ("0 2 * * *", "Europe/Berlin", "2026-11-20T02:30:00", "2026-11-20T01:00Z"),
        ("0 2 * * *", "Europe/Berlin", "2026-07-20T02:30:00", "2026-07-20T00:00Z"),
        ("* * * * *", "UTC", "2026-11-20T02:00:57.9", "2026-11-20T02:00Z"),
        ("* * * * *", "UTC", "2026-11-20T02:00:58.1", "2026-11-20T02:01Z"),
        ("*/5 * * * *", "UTC", "2026-11-20T02:07:00", "2026-11-20T02:05Z"),
        ("0 4 13 * fri", "UTC", "2026-11-13T05:00:00", "2026-11-13T04:00Z"),
        ("0 4 13 * fri", "UTC", "2026-11-21T05:00:00", "2026-11-20T04:00Z"),
        ("0 4 */13 * fri", "UTC", "2026-11-21T05:00:00", "2026-08-14T04:00Z"),
        ("0 0 29 2 *", "UTC", "2027-03-01T00:00:00", "2024-02-29T00:00Z"),
        ("0 0 29 2 *", "Europe/Berlin", "2027-03-01T00:00:00", "2024-02-28T23:00Z"),
        ("0 12 * * 7", "UTC", "2026-11-20T00:00:00", "2026-11-15T12:00Z"),
        ("0 12 * * Sun", "UTC", "2026-11-20T00:00:00", "2026-11-15T12:00Z"),
        ("0 12 * JAN-mar mon-FRI", "UTC", "2026-11-20T00:00:00", "2026-03-31T12:00Z"),
    ],
)
def test_the_latest_scheduled_time_names_the_tick(
    schedule: str, zone: str, fired_at: str, text: str
) -> None:
    """A firing means the latest scheduled time up to two seconds ahead, however late it is."""
    assert scheduled_tick(schedule, zone, at(fired_at)) == Tick(text, at(text), "schedule")


@pytest.mark.parametrize(
    ("nickname", "fields"),
    [
        ("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"),
    ],
)  # fmt: skip
def test_nicknames_are_their_five_fields(nickname: str, fields: str) -> None:
    """A nickname of cron's gives the ticks of the fields that it stands for."""
    start = at("2026-10-24T12:34:56")
    named = next_ticks(nickname, "Europe/Berlin", start)
    assert list(islice(named, 30)) == list(islice(next_ticks(fields, "Europe/Berlin", start), 30))
    assert scheduled_tick(f" {nickname}\n", "UTC", start) == scheduled_tick(fields, "UTC", start)


@pytest.mark.parametrize(
    ("fired_at", "text"),
    [
        ("2026-11-20T02:00:00", "2026-11-20T02:00Z"),
        ("2026-11-20T02:00:01.25", "2026-11-20T02:00Z"),
        ("2026-11-20T02:00:59.999", "2026-11-20T02:00Z"),
        ("2026-11-20T07:31:00+05:30", "2026-11-20T02:01Z"),
    ],
)
def test_without_a_rule_the_hosts_minute_is_the_tick(fired_at: str, text: str) -> None:
    """The minute that the host's clock shows, in UTC, is the tick, to its last fraction of a second."""
    assert minute_tick(at(fired_at)) == Tick(text, at(text), "minute")


@pytest.mark.parametrize("name", ["2026-11-20", "2026-03", "billing/2026:W47", "ß→", "x" * 200])
def test_a_name_is_a_tick(name: str) -> None:
    """A name is taken as it is and denotes no instant."""
    assert named_tick(name) == Tick(name, None, "name")


@pytest.mark.parametrize(
    "name",
    [
        "2026-11-20T02:00Z", "2026-11-20T02:00:00Z", "2026-11-20t02:00:00.000z", "2026-11-20T02:00:00,000000000Z",
        "2026-11-20T03:00+01:00", "2026-11-19T20:30:00-05:30", "2026-11-20T02:00:00+00:00", "2026-11-20T02:00-00:00",
        "2026-11-20 02:00Z", "2026-11-20 02:00:00+00", "2026-11-20 03:00:00 +0100", "2026-11-20 02:00:00 UTC",
        "20261120T020000Z", "20261120T0300+0100", "2026-11-20T02Z",
    ],
)  # fmt: skip
def test_an_instant_is_one_tick_however_it_is_written(name: str) -> None:
    """It is the tick that a schedule has then."""
    tick = named_tick(name)
    assert tick == Tick("2026-11-20T02:00Z", at("2026-11-20T02:00Z"), "name")
    assert tick[:2] == scheduled_tick("0 2 * * *", "UTC", at("2026-11-20T02:00"))[:2]


def test_an_instant_within_a_minute_has_one_text() -> None:
    """No schedule has such a tick, so it is a name, and the same one in each writing."""
    for name in ("2026-11-20T02:00:30Z", "2026-11-20 03:00:30.000+01:00"):
        assert named_tick(name) == Tick("2026-11-20T02:00:30Z", None, "name")
    for name in ("2026-11-20T02:00:30.5Z", "2026-11-20T02:00:30.500000-00:00"):
        assert named_tick(name) == Tick("2026-11-20T02:00:30.500000Z", None, "name")


@pytest.mark.parametrize(
    "name",
    [
        "2026-11-20T02",
        "2026-11-20_02:00Z",
        "2026-W47-5T02:00Z",
        "٢٠٢٦-11-20T02:00Z",
        "run-2026-11-20T02:00Z",
        "12T34",
    ],
)
def test_what_does_not_begin_with_a_day_and_its_minute_is_a_name(name: str) -> None:
    """It is taken as it is."""
    assert named_tick(name) == Tick(name, None, "name")


@pytest.mark.parametrize(
    "name",
    [
        "2026-11-20T02:00", "2026-11-20 02:00:00", "20261120T0200", "2026-13-40T02:00Z", "2026-11-31T02:00Z",
        "2026-11-20T25:00Z", "2026-11-20T02:60Z", "2026-11-20T02:00:60Z", "2026-11-20T02:00+25:00",
        "2026-11-20T02:00Z-second", "2026/11/20T02:00Z", "2026-1-5T02:00Z", "2026-11-20T2:00Z", "20261120T020000Z0",
        "0001-01-01T00:00+01:00", "9999-12-31T23:59-01:00", "02:00", "2:00", "02:00:00", "02:00Z",
        "18:50", "today", "Yesterday", "Tue", "3h", "90m",
    ],
)  # fmt: skip
def test_what_looks_like_a_time_and_is_no_instant_is_refused(name: str) -> None:
    """Without a zone or a day it is another time on another host; the message says what to write."""
    with pytest.raises(ValueError, match=r"no instant; write day, time and zone, such as 2026-"):
        named_tick(name)


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(9990, 1, 1)),  # noqa: DTZ001 - the zone comes below
    st.integers(-14 * 60, 14 * 60),
    st.sampled_from(["T", "t", " "]),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
)
def test_the_writing_of_an_instant_never_counts(
    moment: datetime, minutes: int, between: str, precision: str
) -> None:
    """Any offset, any separator and any precision that keeps the instant give the text of its UTC."""
    there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    written = there.isoformat(between if between != "t" else "T", precision).replace("T", between)
    utc = datetime.fromisoformat(written).astimezone(UTC)
    assert named_tick(written) == named_tick(utc.isoformat()) == named_tick(f"{utc:%F %T.%f}Z")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", r"the tick is empty \(an unset variable\?\); give it a name"),
        ("a b", r"the tick 'a b' contains ' '; use printable characters without spaces"),
        ("a\u00a0b", r"contains '\\xa0'"), ("a\n", r"contains '\\n'"), ("a\x1b[1m", r"contains '\\x1b'"),
        ("\udc80", r"contains '\\udc80'"), ("x" * 201, "has 201 characters: use at most 200"),
    ],
)  # fmt: skip
def test_a_name_that_is_none_is_refused(name: str, message: str) -> None:
    """An empty, overlong, blank or unprintable name is refused with what was found and what to do."""
    with pytest.raises(ValueError, match=message):
        named_tick(name)


# --- changes of the clock -------------------------------------------------------------------------


SAMPLE = [
    "30 2 * * *", "0,15,45 2 * * *", "45 1-3 * * *", "0 0 * * *", "5,50 0,23 * * *", "10 */2 * * *",
    "*/20 * * * *", "*/40 2 * * *", "45 * * * *", "15 2 * * 0", "0-59/25 1-2 25,29 * 7", "0-59 0-23 * * *",
    "30 2-2/3 * * *", "07-7/5,20 23-23/2,0 * jan-1/2,3-3/4,2-12 sun-mon/1,2-tue/2,3-6", "* * * * *",
]  # fmt: skip
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("America/Havana", "2026-03-08T05:00"),
    ("America/Havana", "2026-11-01T05:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Antarctica/Casey", "2010-03-04T15:00"),  # back by three hours
    ("Antarctica/Casey", "2018-03-10T17:00"),
    ("Antarctica/Casey", "2009-10-17T18:00"),  # forward by three hours
    ("Asia/Kolkata", "2026-03-29T01:00"),
    ("UTC", "2026-10-25T01:00"),
]


@pytest.mark.turns(70)
@pytest.mark.parametrize(("zone", "change"), CHANGES)
@pytest.mark.parametrize("schedule", SAMPLE)
def test_agrees_with_debian_cron_minute_by_minute(schedule: str, zone: str, change: str) -> None:
    """Around each change the ticks are the minutes in which Debian's cron starts the job, both ways."""
    start, stop = int(at(change)) - DAY, int(at(change)) + DAY
    started = debian_cron.started(schedule, zone, start, stop)
    assert ticks_between(schedule, zone, start - 1, stop - 1) == started
    around = range(int(at(change)) - 3 * 3600, int(at(change)) + 4 * 3600, 420)
    for probe in [*around, *started[:: len(started) // 60 + 1]]:
        passed = bisect_right(started, probe)
        if passed:
            instant = scheduled_tick(schedule, zone, probe + 1.2).instant
            assert instant == started[passed - 1], probe


# --- properties -----------------------------------------------------------------------------------

schedules = st.sampled_from([*SAMPLE, "0 4 13 * 5", "0 0 29 2 *", "* * 29 2 *", "@monthly"])
zones = st.sampled_from(sorted({zone for zone, _ in CHANGES}))
moments = st.floats(min_value=at("2025-01-01"), max_value=at("2029-01-01"))


def instant_of(schedule: str, zone: str, fired_at: float) -> float:
    """Return the instant of the tick, which a schedule's tick always has."""
    instant = scheduled_tick(schedule, zone, fired_at).instant
    assert instant is not None
    return instant


@given(schedules, zones, moments, st.floats(min_value=0, max_value=400 * DAY))
def test_a_later_firing_never_means_an_earlier_tick(
    schedule: str, zone: str, fired_at: float, more: float
) -> None:
    """The tick is monotone in the time of the firing."""
    assert instant_of(schedule, zone, fired_at) <= instant_of(schedule, zone, fired_at + more)


@given(schedules, zones, moments)
def test_no_tick_is_more_than_two_seconds_ahead(schedule: str, zone: str, fired_at: float) -> None:
    """The tick is the latest up to two seconds ahead: the following one is further off."""
    instant = instant_of(schedule, zone, fired_at)
    assert instant <= fired_at + 2
    assert next(next_ticks(schedule, zone, instant)).instant > fired_at + 2  # type: ignore[operator]


@given(schedules, zones, moments, st.floats(min_value=-2, max_value=0.499))
def test_skew_within_half_an_interval_changes_nothing(
    schedule: str, zone: str, start: float, skew: float
) -> None:
    """A firing up to two seconds before or half an interval after its time means that time."""
    due, following = (tick.instant or 0.0 for tick in islice(next_ticks(schedule, zone, start), 2))
    fired_at = due + (skew if skew < 0 else skew * (following - due))
    assert instant_of(schedule, zone, fired_at) == due


@given(schedules, zones, moments)
def test_forward_and_backward_agree(schedule: str, zone: str, start: float) -> None:
    """The ticks ahead ascend by whole minutes, and each is the latest at its own time."""
    instants = [tick.instant or 0.0 for tick in islice(next_ticks(schedule, zone, start), 5)]
    assert start < instants[0]
    for earlier, later in pairwise(instants):
        assert later - earlier >= 60
        assert later % 60 == 0
        assert instant_of(schedule, zone, later - 2.001) == earlier
        assert instant_of(schedule, zone, later) == later


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("@reboot", "'@reboot' has no scheduled time; use --no-tick"),
        ("@Daily", "unknown schedule '@Daily'; did you mean @daily?"),
        ("@every 5m", "unknown schedule '@every 5m'"),
        ("", "schedule '' has 0 fields: use five (minute, hour, day-of-month"),
        ("0 2 * *", "has 4 fields: use five"), ("0 0 2 * * *", "has 6 fields: use five"),
        ("name " * 500, "name name ...' has 500 fields: use five"),
        ("0 0 31 2 *", "'0 0 31 2 *' never fires: no year has such a day"),
        ("0 0 30 2 *", "never fires"), ("0 0 31 4,6,9,11 */2", "never fires"),
        ("0 0 L * *", "invalid day-of-month 'L' in schedule '0 0 L * *' (use 1-31"),
        ("0 0 LW * *", "invalid day-of-month 'LW'"), ("0 0 15W * *", "invalid day-of-month '15W'"),
        ("0 0 * * 5L", "invalid day-of-week '5L'"), ("0 0 * * 1#2", "invalid day-of-week '1#2'"),
        ("0 0 * * mon#1", "invalid day-of-week 'mon#1'"), ("5/10 * * * *", "invalid minute '5/10'"),
        ("0 0 * * mon/2", "invalid day-of-week 'mon/2'"), ("0~30 * * * *", "invalid minute '0~30'"),
        ("? * * * *", "invalid minute '?'"), ("1,,2 * * * *", "invalid minute ''"),
        ("-5 * * * *", "invalid minute '-5'"), ("mon * * * *", "invalid minute 'mon'"),
        ("0 0 * january *", "invalid month 'january'"), ("٥ * * * *", "invalid minute '٥'"),
        ("60 * * * *", "invalid minute '60' in schedule '60 * * * *' (use 0-59"),
        ("0 24 * * *", "invalid hour '24' in schedule '0 24 * * *' (use 0-23"),
        ("0 0 0 * *", "invalid day-of-month '0'"), ("0 0 * 13 *", "invalid month '13'"),
        ("0 0 * * 8", "invalid day-of-week '8'"), ("*/0 * * * *", "invalid minute '*/0'"),
        ("*/x * * * *", "invalid minute '*/x'"), ("1-5/2/2 * * * *", "invalid minute '1-5/2/2'"),
        ("5-1 * * * *", "use 0-59, ranges that rise"), ("*-5 * * * *", "invalid minute '*-5'"),
        ("1-2-3 * * * *", "invalid minute '1-2-3'"),
    ],
)  # fmt: skip
def test_a_schedule_that_debian_cron_would_not_run_is_refused(schedule: str, message: str) -> None:
    """A schedule that is none is refused at once, in one line with what was found and what to do."""
    with pytest.raises(ValueError, match=r".") as caught:
        scheduled_tick(schedule, "UTC", 0.0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"."):
        next_ticks(schedule, "UTC", 0.0)


@pytest.mark.parametrize(
    "zone", ["CEST", "UTC+2", "Europe/Berln", "", "Europe", "../etc/passwd", "/etc/localtime"]
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    """A zone that the tz database does not have is refused with an example of one that it has."""
    with pytest.raises(
        ValueError, match=r"unknown time zone '.*'; give a name such as Europe/Berlin"
    ):
        scheduled_tick("@daily", zone, 0.0)


# --- the host's zone ------------------------------------------------------------------------------


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder that stands for /etc, on a host that sets no zone in its environment."""
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(local_time, "_LOCALTIME", str(tmp_path / "localtime"))
    monkeypatch.setattr(local_time, "_TIMEZONE", str(tmp_path / "timezone"))
    return tmp_path


@pytest.mark.parametrize(
    ("setting", "zone"),
    [
        ("America/New_York", "America/New_York"), (":America/New_York", "America/New_York"),
        ("/usr/share/zoneinfo/America/New_York", "America/New_York"),
        ("", "UTC"), (":", "UTC"), ("UTC", "UTC"),
    ],
)  # fmt: skip
def test_the_environment_names_the_zone_first(
    setting: str, zone: str, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$TZ is read before the files, as a name or the path of a zone's file; empty, it is UTC."""
    (host / "localtime").symlink_to("/usr/share/zoneinfo/Asia/Kolkata")
    monkeypatch.setenv("TZ", setting)
    assert host_zone() == zone


@pytest.mark.parametrize("setting", ["CET-1CEST,M3.5.0,M10.5.0/3", "Nowhere/Town", "/nowhere"])
def test_a_zone_without_a_name_has_a_cure(
    setting: str, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A $TZ that names no zone is refused, and the message names --tz."""
    monkeypatch.setenv("TZ", setting)
    with pytest.raises(ValueError, match="is not in the tz database; name the zone with --tz"):
        host_zone()


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("right/Europe/Berlin", "counts leap seconds.*; use Europe/Berlin$"),
        ("right//Europe/Berlin", "counts leap seconds.*; use Europe/Berlin$"),
        ("right/UTC", "counts leap seconds.*; use UTC$"),
        ("localtime", "is not the same on every host; use a name"),
        ("posixrules", "is not the same on every host; use a name"),
        ("Factory", "is not the same on every host; use a name"),
        ("./right/Europe/Berlin", "unknown time zone"),
        ("Europe/../right/Europe/Berlin", "unknown time zone"),
    ],
)
def test_a_zone_with_other_times_than_cron_is_refused(
    name: str, cure: str, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is named, and also if it is the host's: a schedule in it would be an hour off."""
    with pytest.raises(UnknownZoneError, match=cure):
        scheduled_tick("0 2 * * *", name, at("2026-11-20"))
    with pytest.raises(UnknownZoneError, match=cure):
        next_ticks("0 2 * * *", name, at("2026-11-20"))
    if not name.startswith("right/"):
        return
    (host / "localtime").symlink_to(f"/usr/share/zoneinfo/{name}")
    settings = [
        None, name, f":{name}", f"/usr/share/zoneinfo/{name}", f":/usr/share/zoneinfo/{name}",
    ]  # fmt: skip
    for setting in settings:
        if setting is not None:
            monkeypatch.setenv("TZ", setting)
        with pytest.raises(UnknownZoneError, match=cure):
            host_zone()


@pytest.mark.parametrize(
    "target",
    [
        "/usr/share/zoneinfo/Asia/Kolkata",
        "../usr/share/zoneinfo/Asia/Kolkata",
        "/usr/share/zoneinfo/posix/Asia/Kolkata",
        "chosen",
    ],
)
def test_the_link_names_the_zone(target: str, host: Path) -> None:
    """Without $TZ the zone is what the link /etc/localtime leads to, and that is the default zone."""
    (host / "chosen").symlink_to("/usr/share/zoneinfo/Asia/Kolkata")
    (host / "localtime").symlink_to(target)
    assert host_zone() == "Asia/Kolkata"
    assert scheduled_tick("0 2 * * *", None, at("2026-11-20")).text == "2026-11-19T20:30Z"


def test_the_name_that_was_chosen_is_kept(host: Path) -> None:
    """Where the chosen zone's file is a link in turn, to its newer name, the chosen name counts."""
    (host / "zoneinfo").mkdir()
    (host / "zoneinfo" / "Calcutta").symlink_to("Kolkata")
    (host / "localtime").symlink_to(host / "zoneinfo" / "Calcutta")
    assert host_zone() == "Calcutta"


def test_no_zone_is_utc(host: Path) -> None:
    """A host without /etc/localtime is on UTC, whatever /etc/timezone says, as for the C library."""
    (host / "timezone").write_text("Asia/Kolkata\n")
    assert host_zone() == "UTC"


def test_a_copied_file_is_named_by_etc_timezone(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copied /etc/localtime takes its name from /etc/timezone, if both show the same times."""
    (host / "localtime").write_bytes(Path("/usr/share/zoneinfo/Asia/Kolkata").read_bytes())
    with pytest.raises(ValueError, match=r"localtime is a copy, .* --tz"):
        host_zone()
    rules = ZoneInfo("Asia/Kolkata")
    monkeypatch.setattr(local_time, "localtime", _LocalTimes(rules))
    (host / "timezone").write_text("Asia/Kolkata\n")
    assert host_zone() == "Asia/Kolkata"
    (host / "timezone").write_text("Europe/Berlin\n")
    with pytest.raises(
        ValueError, match=r"differs from the zone 'Europe/Berlin' in .*; name the zone"
    ):
        host_zone()


class _LocalTimes:
    """Stands for the C library's local time in a zone of the test's choice."""

    def __init__(self, rules: ZoneInfo) -> None:
        self.rules = rules
        self.tm_gmtoff = 0

    def __call__(self, now: float) -> _LocalTimes:
        offset = datetime.fromtimestamp(now, self.rules).utcoffset()
        assert offset is not None
        self.tm_gmtoff = int(offset.total_seconds())
        return self


# --- borrowed zones -------------------------------------------------------------------------------

ZONES = sorted(available_timezones() - {"Factory", "localtime"})


@given(st.sampled_from(ZONES), st.integers(-3 * 10**9, 5 * 10**9))
def test_a_borrowed_zone_is_that_of_zoneinfo(name: str, instant: int) -> None:
    """The C library and zoneinfo read the same file."""
    expected = offsets(name)(instant)
    before = os.environ.get("TZ"), time.localtime(instant).tm_gmtoff
    with BorrowedZone(name) as zone:
        found = zone.offset(instant)
    assert found == expected
    assert (os.environ.get("TZ"), time.localtime(instant).tm_gmtoff) == before


@pytest.mark.parametrize("own", [None, "Asia/Tokyo", ":America/New_York", ""])
def test_a_borrowed_zone_is_given_back(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when something was raised: the command inherits the environment."""
    if own is None:
        monkeypatch.delenv("TZ", raising=False)
    else:
        monkeypatch.setenv("TZ", own)
    time.tzset()
    shown = time.localtime(0)
    with pytest.raises(OverflowError), BorrowedZone("Asia/Kolkata") as zone:
        zone.offset(1 << 80)
    assert os.environ.get("TZ") == own
    assert time.localtime(0) == shown
    monkeypatch.undo()
    time.tzset()


def test_a_zone_of_another_place_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the variable says where zones are, or the system has none."""
    for place in ("/nonexistent", "/usr/share/zoneinfo"):
        monkeypatch.setattr(local_time, "_DATABASE", place)
        with BorrowedZone("Asia/Kolkata") as zone:
            assert zone.offset(0) == 19800


@pytest.mark.parametrize(
    "name", ["Europe/Nowhere", "../zoneinfo/UTC", "/etc/localtime", "tzdata.zi", "Europe", "a\0b"]
)
def test_what_is_no_zone_cannot_be_borrowed(name: str) -> None:
    """The C library would take UTC without a word."""
    with pytest.raises(UnknownZoneError, match="unknown time zone"):
        BorrowedZone(name)
