"""Hosts with wrong, stepped and late clocks fire the console script: each tick starts once."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import pytest
from servers import Journal, skewed
from servers.process import public_directory, remove_directory, spawn
from true_time import (
    CRON_DELAY,
    DAY,
    FIRST,
    MINUTE,
    Site,
    TrueServer,
    TrueTime,
    World,
    at,
    every_host,
    forget,
    named,
)

QUIET = (0, b"", "")


@pytest.fixture(scope="module")
def true_server() -> Iterator[TrueServer]:
    """Start a server whose clock shows the true time."""
    directory = public_directory("clock")
    server = TrueServer(TrueTime(directory))
    try:
        yield server.start()  # type: ignore[misc]
    finally:
        server.remove()
        remove_directory(directory)


@pytest.fixture
def world(true_server: TrueServer, public_path: Path, journal: Journal) -> Iterator[World]:
    """Make hosts around an empty database, a day before FIRST."""
    with true_server.create_database().until_dropped() as database:
        world = World(database, true_server.clock, public_path, journal)
        yield world
        forget(world.pids)


SLOW, FAST, AHEAD = Site("slow", -0.5), Site("fast", 0.5), Site("ahead", 90)
RIGHT, OTHER = Site("right"), Site("other", -0.2)
STEPPED = Site("stepped", 0, -2)
DAILY, MINUTELY = ("--schedule", "0 2 * * *", "--tz", "UTC"), ("--schedule", "* * * * *")
RULES = pytest.mark.parametrize("options", [(), DAILY], ids=["by the minute", "by the schedule"])


@pytest.mark.turns(1)
@RULES
def test_skewed_hosts_start_each_daily_tick_once(world: World, options: Sequence[str]) -> None:
    """Half a second slow or fast, 90 s ahead, stepped back: the first starts it, early or not."""
    days = [FIRST, FIRST + DAY, FIRST + 2 * DAY]
    ended = world.play(every_host([SLOW, FAST, AHEAD, STEPPED], days), *options)
    assert set(ended) == {QUIET}
    assert world.started() == [named(day) for day in days]
    assert {start.host for start in world.journal.starts()} == {"ahead"}


@pytest.mark.turns(1)
@pytest.mark.parametrize("options", [(), MINUTELY], ids=["by the minute", "by the schedule"])
def test_skewed_hosts_start_each_minute_once(world: World, options: Sequence[str]) -> None:
    """None is started twice or missed, but the one that a fast host overtakes when it joins: `passed`."""
    minutes = [FIRST + MINUTE * number for number in range(5)]
    dues = every_host([SLOW, FAST, STEPPED], minutes) + every_host([AHEAD], minutes[3:])
    assert set(world.play(dues, *options, in_turn=True)) == {QUIET}
    overtaken = named(minutes[2])
    assert world.started() == [named(minute) for minute in minutes if minute != minutes[2]]
    # By the minute, the clock that was stepped back shows the one before: at first, one older than all.
    passed = {skip.tick for skip in world.skips("passed")} - {named(FIRST - MINUTE)}
    assert passed == {overtaken}


def test_the_start_of_the_process_is_known_under_a_wrong_clock() -> None:
    """However long the interpreter took, and whatever the clock is off, it is the time of the fork."""
    program = (
        "import select; select.select([], [], [], 0.4); "
        "from oncecron.core.clock import process_started; print(process_started())"
    )
    for ahead in (-90.0, 0.5, 400 * DAY):
        before = time.time() + ahead
        process = spawn(
            [sys.executable, "-P", "-c", program], env=skewed(ahead), stdout=PIPE, stderr=PIPE
        )
        after = time.time() + ahead
        out, err = process.communicate(timeout=30)
        forget([process.pid])
        assert err == b""
        assert before - 0.02 <= float(out) <= after + 0.02  # the process table counts hundredths


def test_a_slow_interpreter_cannot_move_a_firing_into_another_minute(world: World) -> None:
    """Fired 52 s into the minute, and the interpreter needs ten: it is that minute's tick."""
    slow = world.path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text("import select; select.select([], [], [], 10)\n")
    ended = world.at(FIRST + 52, RIGHT, PYTHONPATH=str(slow))
    assert ended == QUIET
    assert world.started() == [named(FIRST)]


def test_a_clock_stepped_back_into_the_minute_before_starts_nothing_more(world: World) -> None:
    """It starts first, as the minute before; the others within the gap are refused as `recent`."""
    days = [FIRST, FIRST + DAY]
    stepped = Site("stepped", 0.5, -8)
    assert set(world.play(every_host([stepped, RIGHT, SLOW], days), in_turn=True)) == {QUIET}
    assert world.started() == [named(day - MINUTE) for day in days]
    assert [(s.tick, s.host, s.holder_host) for s in world.skips("recent")] == [
        (named(day), host, "stepped") for day in days for host in ("right", "slow")
    ]


@pytest.mark.turns(2)
@RULES
@pytest.mark.parametrize("off", [DAY, -DAY, 330], ids=["a day ahead", "a day behind", "330 s"])
def test_a_host_whose_clock_is_far_off_is_refused(
    world: World, options: Sequence[str], off: float
) -> None:
    """Exit 78, either clock may be the wrong one, and neither today's nor tomorrow's tick is burnt."""
    if options:  # each minute, so that the wrong clock names another tick
        options = ("--schedule", "* * * * *", "--tz", "UTC")
    wrong = world.at(FIRST + CRON_DELAY, Site("wrong", off), *options)
    assert (wrong.status, wrong.out) == (78, b"")
    assert wrong.err.count("\n") == 1
    assert "correct the clock that is wrong" in wrong.err
    assert "date -u" in wrong.err
    assert "`date -u` on this host and on the store's server" in wrong.err
    assert set(world.play(every_host([RIGHT], [FIRST, FIRST + DAY]), *options)) == {QUIET}
    assert world.started() == [named(FIRST), named(FIRST + DAY)]
    assert {start.host for start in world.journal.starts()} == {"right"}


class Night(NamedTuple):
    """What Debian's cron does around a change of the clock in Berlin (cron(8)), as UTC instants."""

    schedule: str
    fires: tuple[str, ...]
    ticks: tuple[str, ...]


SPRING = ("2027-03-27T01:30Z", "2027-03-28T01:00Z", "2027-03-29T00:30Z")
SPRING_HOURS = ("2027-03-27T23:30Z", "2027-03-28T00:30Z", "2027-03-28T01:30Z")
AUTUMN = ("2027-10-30T00:30Z", "2027-10-31T00:30Z", "2027-11-01T01:30Z")
AUTUMN_HOURS = tuple(f"2027-10-{time}:30Z" for time in ("30T23", "31T00", "31T01", "31T02"))
JUMP = "2027-03-28T01:00Z"
NIGHTS = {
    "spring, fixed": Night("30 2 * * *", SPRING, SPRING),
    "spring, three in the gap": Night("5,30,55 2 * * *", (JUMP, JUMP, JUMP), (JUMP,)),
    "spring, wildcard": Night("30 * * * *", SPRING_HOURS, SPRING_HOURS),
    "autumn, fixed": Night("30 2 * * *", AUTUMN, AUTUMN),
    "autumn, wildcard": Night("30 * * * *", AUTUMN_HOURS, AUTUMN_HOURS),
}
BERLIN = (Site("slow", -100), Site("right"), Site("ahead", 150))


@pytest.mark.turns(2)
@pytest.mark.parametrize("rule", ["by the minute", "by the schedule"])
@pytest.mark.parametrize("name", NIGHTS)
def test_the_nights_when_clocks_change(world: World, name: str, rule: str) -> None:
    """Three hosts within five minutes of each other start each tick of both nights once."""
    night = NIGHTS[name]
    options = ("--schedule", night.schedule) if rule == "by the schedule" else ()
    dues = every_host(BERLIN, map(at, night.fires))
    assert set(world.play(dues, *options, TZ="Europe/Berlin")) == {QUIET}
    assert world.started() == list(night.ticks)
    assert len(world.skips("done")) + len(night.ticks) >= len(BERLIN) * len(night.ticks)


def test_another_cron_that_repeats_the_hour_starts_nothing_more(world: World) -> None:
    """With --schedule and --tz a second firing at the second 02:30 is of the first: done."""
    options = ("--schedule", "30 2 * * *", "--tz", "Europe/Berlin")
    twice = ["2027-10-31T00:30Z", "2027-10-31T01:30Z"]
    assert set(world.play(every_host([RIGHT, OTHER], map(at, twice)), *options)) == {QUIET}
    assert world.started() == twice[:1]
    assert {(skip.tick, skip.host) for skip in world.skips("done")} == {
        (twice[0], "right"),
        (twice[0], "other"),
    }
