"""What is known of a host after a firing, from what was known before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron import __version__
from oncecron.core.decision import State
from oncecron.core.model import COMMAND_SHOWN, Firing, Holder
from oncecron.core.presence import Seen, fields_of, seen
from oncecron.core.tick import NO_TICK, Tick, minute_tick
from oncecron.core.units import HOUR

NOW = 1_800_000_000.0
MOST = 14_000
"""Characters that PostgreSQL takes (tables.sql)."""


def minute(number: int) -> Tick:
    return minute_tick(NOW + 60 * number)


def fire(
    before: str | None, tick: Tick, *, at: float = NOW, won: bool = False, **parts: Any
) -> str:
    firing = Firing(
        *("nightly", 0, tick, "owner", Holder("a.example", 1, "root"), "./bill.sh", at, 60.0),
        *(None, None, False, None, None),
    )._replace(**parts)
    found = seen(State(1, at, 0.25, presence=before), firing, won=won)
    assert found == Seen(before, found.after)
    return found.after


def test_a_first_firing_tells_all_that_is_known() -> None:
    """A line for each."""
    told = {"schedule": "* * * * *", "zone": "UTC", "utc_offset": 0, "machine": "m"}
    assert fire(None, minute(0), won=True, **told) == "\n".join([
        f"version {__version__}", "clock_ahead 0.250000",
        f"ticks {minute(0).text}", f"ticks_at {NOW:.6f}",
        "schedule * * * * *", "zone UTC", "utc_offset 0", "command ./bill.sh",
        f"hour {int(NOW // HOUR)}", "wins 1", "skips 0", "machine m",
    ])  # fmt: skip


def test_the_last_three_ticks_are_known_with_their_first_firings() -> None:
    """The newest first."""
    known = None
    for number, at in ((1, 1), (2, 2), (1, 3), (3, 4), (4, 5)):
        known = fire(known, minute(number), at=NOW + at)
    fields = fields_of(known or "")
    assert fields["ticks"].split() == [minute(number).text for number in (4, 3, 2)]
    assert [float(at) - NOW for at in fields["ticks_at"].split()] == [5, 4, 2]


def test_one_by_hand_fires_no_tick_and_says_nothing_about_the_crontab() -> None:
    """It counts, and tells the version and the machine."""
    known = fire(None, minute(1), schedule="* * * * *", zone="UTC", machine="m")
    by_hand = fire(known, minute(2), again=True, machine="n", command="./other.sh", won=True)
    after = fields_of(known) | {"machine": "n", "wins": "1"}
    assert fields_of(by_hand) == after


@pytest.mark.parametrize(
    ("machines", "twice"),
    [
        (("x", "x"), 0), (("x", "y"), 1), (("x", "y", "x", "y"), 1),
        (("x", None), 0), ((None, "x"), 0), ((None, None), 0),
    ],
)  # fmt: skip
def test_two_machines_that_fire_one_tick_are_known(
    machines: tuple[str | None, ...], twice: int
) -> None:
    """If both are."""
    known = None
    for machine in machines:
        known = fire(known, minute(0), machine=machine)
    assert fields_of(known or "").get("twice", "").split() == [minute(0).text] * twice


def test_the_last_two_ticks_of_two_machines_are_known() -> None:
    """One without a tick says nothing."""
    known = None
    for number in range(3):
        known = fire(known, minute(number), machine="x")
        known = fire(known, NO_TICK, machine="y")
        known = fire(known, minute(number), machine="z")
    assert fields_of(known or "")["twice"].split() == [minute(2).text, minute(1).text]


def test_starts_and_skips_are_counted_by_hours() -> None:
    """Of the last 24; a clock that was set back counts in the newest."""
    known = None
    for hours, won in ((0, True), (0, True), (2, False), (1, True), (23, True), (24, False)):
        known = fire(known, NO_TICK, at=NOW + hours * HOUR, won=won)
    fields = fields_of(known or "")
    assert int(fields["hour"]) == int(NOW // HOUR) + 24
    assert fields["wins"].split() == ["1", *["0"] * 21, "1", "0"]
    assert fields["skips"].split() == ["1", *["0"] * 22, "1"]
    later = fields_of(fire(known, NO_TICK, at=NOW + 1000 * HOUR, won=True))
    assert (later["wins"].split(), later["skips"].split()) == (["0"] * 23 + ["1"], ["0"] * 24)


@given(
    st.one_of(
        st.text(),
        st.dictionaries(
            st.sampled_from(["ticks", "ticks_at", "hour", "wins", "skips", "machine", "twice"]),
            st.one_of(st.text(), st.integers().map(str), st.just("9" * 6000), st.just("a " * 9000)),
        ).map(lambda fields: "\n".join(f"{name} {value}" for name, value in fields.items())),
    )
)
def test_what_cannot_be_read_is_replaced_by_what_a_store_takes(before: str) -> None:
    """Whatever stands there: the firing is known by its tick."""
    after = fire(before, minute(0), schedule="*\n" * 9000, command="\udcff" * 2 * COMMAND_SHOWN)
    assert len(after) < MOST
    assert str(minute(0).text) in fields_of(after)["ticks"]
    assert fields_of(fire(after, minute(1))).keys() >= {"version", "hour", "wins", "skips"}


def test_bytes_are_replaced() -> None:
    """A SQLite file may have them."""
    damaged: Any = b"\xff"
    assert fields_of(fire(damaged, minute(0)))["skips"] == "1"


def test_a_tick_that_is_made_up_was_not_fired_now() -> None:
    """It is a start, and the line still says what it makes up; its time would be a wrong one."""
    known = fire(None, minute(3), catch_up=60.0)
    late = minute(1)._replace(rule="catch-up")
    after = fields_of(fire(known, late, at=NOW + 9, won=True, catch_up=60.0))
    assert {**after, "wins": "0", "skips": "1"} == fields_of(known)
    assert (after["wins"], after["catch_up"]) == ("1", "60.0")
