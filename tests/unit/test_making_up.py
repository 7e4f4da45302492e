"""Which ticks a firing with --catch-up makes up, compared with a plain reading of what happened, and their order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncecron.config.run_parser import ParsedRun
from oncecron.core import clock
from oncecron.core.errors import StoreUnavailable, UsageError
from oncecron.core.making_up import AT_MOST, LENGTH_OF_PAST, firing_of_missed, made_up
from oncecron.core.model import Behind, Firing, Holder, Lease, Refusal
from oncecron.core.tick import Schedule, at, minute_tick
from oncecron.host.local_time import next_ticks, offsets, ticks_before
from oncecron.run.claimer import Claimer, StoreConnection
from oncecron.run.spec import RunSpec, make_spec

NOW = 1_800_000_000 // 60 * 60
HOLDER = Holder("web1", 1, "batch")
HELD = Refusal("held", HOLDER)
DONE = Refusal("done", HOLDER, 1.0, "succeeded")


def firing(catch_up: float, **parts: Any) -> Firing:
    """Return a firing of the minute NOW."""
    named = {"key": "k", "shard": 0, "tick": minute_tick(NOW), "owner": "o", "holder": HOLDER}
    usual = {"command": "true", "fired_at": NOW + 1.0, "ttl": 60.0, "min_gap": None}
    plan = {"starting_deadline": None, "again": False, "schedule": "* * * * *", "zone": "UTC"}
    return Firing(**{**named, **usual, **plan, "catch_up": catch_up, **parts})


SPANS = st.lists(
    st.tuples(st.integers(0, 130), st.integers(0, 60)).map(lambda each: (each[0], sum(each))),
    max_size=3,
)
HOSTS = ("web1", "web2")


@given(
    mark=st.integers(0, 130),
    since=st.integers(0, 130),
    age=st.integers(1, 130),
    pauses=SPANS,
    drains=st.fixed_dictionaries(dict.fromkeys(HOSTS, SPANS)),
    runs=SPANS,
    skips=st.lists(
        st.tuples(
            st.integers(0, 130), st.sampled_from(["paused", "drained"]), st.sampled_from(HOSTS)
        ),
        max_size=5,
    ),
    newest=st.booleans(),
)
def test_a_tick_is_made_up_if_nothing_else_explains_it(
    mark: int,
    since: int,
    age: int,
    pauses: list[tuple[int, int]],
    drains: dict[str, list[tuple[int, int]]],
    runs: list[tuple[int, int]],
    skips: list[tuple[int, str, str]],
    newest: bool,
) -> None:
    """In minutes before NOW: 130 of them."""

    def instant(number: int) -> int:
        return NOW - (130 - number) * 60

    rows: list[tuple[Any, ...]] = [("plan", "* * * * *", "UTC", str(instant(since)), None)]
    rows += [("host", host, None, None, None) for host in HOSTS]
    *before, last = [(instant(first), instant(end)) for first, end in [*pauses, (0, 0)]]
    past = "".join(f"{first}-{end} " for first, end in before)
    rows += [("pause", "k", past, *last)] if past else []
    rows += [
        ("drain", host, "", instant(first) + 0.5, instant(end))  # no firing comes within a second
        for host, spans in drains.items()
        for first, end in spans
    ]
    rows += [("run", None, None, instant(first), instant(end)) for first, end in runs]
    rows += [
        (reason, at(instant(number), "").text, host, None, None) for number, reason, host in skips
    ]
    due = [instant(number) for number in range(130)]

    def within(number: int, spans: list[tuple[int, int]]) -> bool:
        return any(first <= number < end for first, end in spans)

    def is_missed(number: int) -> bool:
        reasons = {(reason, host) for tick, reason, host in skips if tick == number}
        drained = {
            host for host in HOSTS if within(number, drains[host]) or ("drained", host) in reasons
        }
        paused = within(number, pauses) or any(reason == "paused" for reason, _ in reasons)
        is_running = within(number, runs)
        return not (paused or is_running or drained == {*HOSTS})

    expected = [
        number
        for number in range(130)
        if number > max(mark, since)
        and (newest or instant(number) > NOW + 1 - age * 60)
        and is_missed(number)
    ]
    wanted = firing(0.0 if newest else age * 60.0)
    found = made_up(wanted, instant(mark), due, rows)
    if newest:
        assert found == ([instant(number) for number in expected[-1:]], 0)
    else:
        assert [*found.instants] == [instant(number) for number in expected[-AT_MOST:]]
        assert found.left == max(0, len(expected) - AT_MOST)


def test_what_is_not_known_is_not_made_up() -> None:
    """Before the oldest pause of a list that is full; and where no row says since when the key is run."""
    due = [NOW - 60 * number for number in range(100, 0, -1)]
    plan = ("plan", "* * * * *", "UTC", 0.0, None)
    assert made_up(firing(1e6), 0.0, due, ()).instants == []
    one = f"{NOW - 3000:010}-{NOW - 2990:010} "
    pause = ("pause", "k", one * 45, 0, 0)
    assert len(pause[2]) == LENGTH_OF_PAST
    assert made_up(firing(1e6), 0.0, due, (plan, pause)).instants == due[51:]
    assert made_up(firing(1e6), 0.0, due, (plan, ("pause", "k", one * 44, 0, 0))).left == 0


@given(
    st.sampled_from(["* * * * *", "30 2 * * *", "*/7 1-3 * * *", "@weekly"]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    st.integers(1_700_000_000, 1_800_000_000),
    st.integers(1, 20),
)
@example("* * * * *", "UTC", 1_798_761_610, 20)  # a new year
@example("* * * * *", "Europe/Berlin", 1_774_746_610, 20)  # 03:10, an hour after 01:59
@example("*/30 * * * *", "Europe/Berlin", 1_792_893_600, 20)  # 03:00, the second one after 02:30
@example("30 2 * * *", "Europe/Berlin", 1_792_900_000, 3)
@example("30 2 * * *", "Europe/Berlin", 1_774_760_000, 3)
def test_the_ticks_before_one_are_those_that_led_to_it(
    schedule: str, zone: str, near: int, at_most: int
) -> None:
    """Forward and backward are one calendar, also where clocks change."""
    before = Schedule(schedule, offsets(zone)).latest(near)
    found = ticks_before(schedule, zone, before, 0, at_most)
    assert len(found) == at_most
    ahead = next_ticks(schedule, zone, found[0] - 1)
    assert [*found, before] == [int(next(ahead).instant or 0) for _ in range(at_most + 1)]
    assert ticks_before(schedule, zone, before, found[0], at_most + 1) == found[1:]


@dataclass
class Scripted:
    """A store in which some ticks are still to be started."""

    mark: float
    answers: dict[float | None, list[Any]] = field(default_factory=dict)
    """Of the ticks that are not granted at once, by their instants."""
    rows: list[Any] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    granted: list[Firing] = field(default_factory=list)
    zone: str = "UTC"
    """In which the key was run last."""
    lease_clock = clock.MONOTONIC

    def claim(self, firing: Firing, **_: Any) -> Any:
        self.calls.append("claim")
        if scripted := self.answers.get(firing.tick.instant):
            answer = scripted.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if firing.previous is not None and self.mark < firing.previous:
            return Behind(self.mark)
        self.mark = firing.tick.instant or 0.0
        self.granted.append(firing)
        return Lease("k", 0, firing.tick.text, firing.owner, 1, 1, 1, 60.0, 0.0, 1e9)

    def look_back(self, firing: Firing, since: float, *, deadline: float) -> list[Any]:
        self.calls.append("look_back")
        if self.rows and isinstance(self.rows[0], Exception):
            raise self.rows.pop(0)
        return [("plan", firing.schedule, self.zone, 0.0, None), *self.rows]

    def skip(self, firing: Firing, *_: Any, **__: Any) -> None:
        self.calls.append("skip")

    def close(self) -> None:
        pass


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunSpec]:
    """Give a function that makes the spec of a firing of NOW."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("oncecron.run.spec.wrong_variables", lambda _: ())
    monkeypatch.setattr(clock, "process_started", lambda: NOW + 1.0)

    def make(**given: str) -> RunSpec:
        options = {"key": "k", "store": "local", **given}
        return make_spec(ParsedRun({**options}, ["true"]))

    return make


MINUTELY = {"schedule": "* * * * *", "tz": "UTC"}


def started(store: Scripted, spec: RunSpec) -> list[int]:
    """Claim until nothing is left; return how many minutes before NOW the ticks were, in their order."""
    told: list[Refusal] = []
    claimer = Claimer(
        spec,
        StoreConnection(store),  # type: ignore[arg-type]
        lambda _seconds, _fd: False,
        lambda _firing, refusal, _waits: told.append(refusal),
    )
    leases = []
    while lease := claimer.next(clock.lease_time(clock.MONOTONIC)):
        leases.append(lease)
        assert isinstance(lease, Lease)
        assert spec.firing_of(lease).tick.text == lease.tick
        assert spec.job_environment(lease)["ONCECRON_TICK"] == lease.tick
    assert len({each.owner for each in leases}) == len(leases)
    store.calls += [f"told {each.reason}" for each in told]
    return [int(NOW - (each.tick.instant or 0)) // 60 for each in store.granted]


def test_the_missed_ticks_come_first(spec: Callable[..., RunSpec]) -> None:
    """In their order, then the own one, which asks no second time whether anything was missed."""
    store = Scripted(NOW - 300.0)
    assert started(store, spec(**MINUTELY, **{"catch-up": "1h"})) == [4, 3, 2, 1, 0]
    assert store.calls == ["claim", "look_back", *["claim"] * 5]
    assert {each.tick.rule for each in store.granted[:-1]} == {"catch-up"}


@pytest.mark.parametrize(
    ("options", "mark", "calls"),
    [
        ({"catch-up": "1h"}, NOW - 60.0, 1),
        ({"catch-up": "30s"}, NOW - 300.0, 1),
        ({}, NOW - 300.0, 1),
    ],
)
def test_nothing_to_make_up_costs_nothing(
    spec: Callable[..., RunSpec], options: dict[str, str], mark: float, calls: int
) -> None:
    """One claim, as without the option."""
    store = Scripted(mark)
    assert started(store, spec(**MINUTELY, **options)) == [0]
    assert store.calls == ["claim"] * calls


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ("UTC", "Etc/UTC", [2, 1, 0]),
        ("Zulu", "UTC", [2, 1, 0]),
        ("Europe/Berlin", "Europe/Berlin", [2, 1, 0]),
        ("Europe/Berlin", "UTC", [0]),
    ],
)
def test_hosts_may_call_utc_by_other_names(
    spec: Callable[..., RunSpec], here: str, there: str, expected: list[int]
) -> None:
    """Images and distributions do; a line of another zone has missed nothing."""
    store = Scripted(NOW - 180.0, zone=there)
    assert started(store, spec(**MINUTELY | {"tz": here}, **{"catch-up": "1h"})) == expected


def test_what_another_host_has_run_is_passed_over(spec: Callable[..., RunSpec]) -> None:
    """It is neither run again nor told; what comes after it is made up."""
    store = Scripted(NOW - 300.0, {NOW - 240.0: [DONE], NOW - 120.0: [Refusal("passed")]})
    assert started(store, spec(**MINUTELY, **{"catch-up": "1h"})) == [3, 1, 0]


@pytest.mark.parametrize("reason", ["held", "paused", "drained"])
def test_who_may_not_go_on_is_told_for_its_own_tick(
    spec: Callable[..., RunSpec], reason: Any
) -> None:
    """No skip of a missed tick is told, or recorded."""
    stop = Refusal(reason, HOLDER)
    store = Scripted(NOW - 300.0, {NOW - 180.0: [stop], float(NOW): []})
    store.answers[float(NOW)] = [Behind(NOW - 300.0), stop]
    assert started(store, spec(**MINUTELY, **{"catch-up": "1h"})) == [4]
    assert [each for each in store.calls if each != "claim"] == ["look_back", f"told {reason}"]


def test_who_was_kept_for_a_moment_looks_again(spec: Callable[..., RunSpec]) -> None:
    """The holder has ended meanwhile: the own tick is not started before what is left."""
    store = Scripted(NOW - 300.0, {NOW - 180.0: [HELD]})
    assert started(store, spec(**MINUTELY, **{"catch-up": "1h"})) == [4, 3, 2, 1, 0]
    assert store.calls.count("look_back") == 2


def test_a_store_that_goes_away_is_asked_again(spec: Callable[..., RunSpec]) -> None:
    """While it tells what was missed, and while a missed tick is claimed."""
    store = Scripted(NOW - 180.0, rows=[StoreUnavailable("away")])
    store.answers[NOW - 120.0] = [StoreUnavailable("away")]
    assert started(store, spec(**MINUTELY, **{"catch-up": "1h"})) == [2, 1, 0]


def test_too_many_are_left_and_told_once(
    spec: Callable[..., RunSpec], capfd: pytest.CaptureFixture[str]
) -> None:
    """A hundred days of a minutely key: the newest hundred ticks."""
    store = Scripted(NOW - 100 * 86400.0)
    assert started(store, spec(**MINUTELY, **{"catch-up": "100d"})) == [*range(100, -1, -1)]
    [line] = capfd.readouterr().err.splitlines()
    assert "900 missed ticks or more before " in line
    assert "; to run one by hand: `oncecron again k --tick TICK --store " in line
    assert started(store, spec(**MINUTELY, **{"catch-up": "100d"})) == [*range(100, -1, -1), 0]
    assert capfd.readouterr().err == ""


def test_only_the_newest(spec: Callable[..., RunSpec]) -> None:
    """However many were missed, `--catch-up last` makes up one."""
    assert started(Scripted(0.0), spec(**MINUTELY, **{"catch-up": "last"})) == [1, 0]


def test_no_age_is_not_the_newest(spec: Callable[..., RunSpec]) -> None:
    """That is what `last` says; nothing is younger than no age."""
    with pytest.raises(UsageError, match="--catch-up: '0s' is too small"):
        spec(**MINUTELY, **{"catch-up": "0s"})


@pytest.mark.parametrize("rule", [{}, {"no-tick": "true"}, {"tick": "t"}])
def test_it_needs_a_schedule(spec: Callable[..., RunSpec], rule: dict[str, str]) -> None:
    """Only a schedule says what was due."""
    with pytest.raises(UsageError, match="--catch-up: needs --schedule") as refused:
        spec(**rule, **{"catch-up": "1h"})
    assert refused.value.exit_status == 64


def test_a_run_by_hand_makes_up_nothing(
    spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no firing of the schedule, whatever its line says."""
    monkeypatch.setattr("os.isatty", lambda _: True)
    found = spec(**MINUTELY, **{"catch-up": "1h"}, again="true").firing
    assert (found.catch_up, found.previous) == (None, None)


def test_the_firing_of_a_missed_tick_is_of_that_instant() -> None:
    """Claimed by an owner of its own, and never behind."""
    found = firing_of_missed(firing(60.0, previous=1.0), NOW - 60, "other")
    assert (found.tick, found.owner) == (at(NOW - 60, "catch-up"), "other")
    assert (found.catch_up, found.previous) == (60.0, None)  # the line still says so
