"""The grid of a timeline: what is gathered in a column, where columns begin, and how a terminal shows it."""

import itertools
import random
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import pytest

from oncecron.cli.terminal import Style
from oncecron.cli.timeline import Drawing
from oncecron.core.columns import display_width
from oncecron.core.text import Clock
from oncecron.core.units import DAY, HOUR
from oncecron.host.local_time import instants_between, next_ticks
from oncecron.log.grid import WORST_FIRST, Ticks, columns, days, gather
from oncecron.log.state_kinds import kind_of
from oncecron.log.timeline import Span

NOW = 1795647600.0  # 2026-11-25T23:00Z, a Wednesday
HOSTILE = "web\x1b[31m\u202eé"
DRAWN = [word for word in WORST_FIRST if word != "unclaimed"]


def random_ticks(rng: random.Random, span: float) -> list[Ticks]:
    """Return ticks of which a few have gone wrong."""
    return [
        Ticks(
            rng.choice(WORST_FIRST),
            sorted(NOW - rng.random() * span for _ in range(rng.randrange(40))),
        )
        for _ in range(rng.randrange(1, 8))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_bad_tick_is_never_hidden(seed: int) -> None:
    """Whatever else is in its column: the mark is as bad, and every tick is counted once."""
    rng = random.Random(seed)
    span = rng.choice([HOUR, DAY, 30 * DAY])
    ticks = random_ticks(rng, span)
    starts = columns(NOW - span, NOW, rng.randrange(5, 200))
    line = gather("k", ticks, starts, NOW)
    for each in ticks:
        for at in each.times:
            mark = line.marks[bisect_right(starts, at) - 1]
            assert mark is not None
            assert WORST_FIRST.index(mark.word) <= WORST_FIRST.index(each.word)
            assert starts[0] <= mark.at < NOW
    expected = Counter[str]()
    for each in ticks:
        expected[each.word] += len(each.times)
    assert dict(line.counts) == dict(+expected)
    counted = sum((Counter(dict(mark.counts)) for mark in line.marks if mark), Counter[str]())
    assert counted == +expected
    assert [mark.count for mark in line.marks if mark] == [
        sum(dict(mark.counts).values()) for mark in line.marks if mark
    ]


def test_a_mark_names_the_newest_of_its_worst_ticks() -> None:
    """With the host that ran it: a page links to its account."""
    ticks = [
        Ticks("succeeded", [NOW - 120, NOW - 60], "web1"),
        Ticks("failed", [NOW - 240, NOW - 180], "web2"),
        Ticks("failed", [NOW - 200], "web3", "campaign"),
        Ticks("succeeded", [NOW - 3600], "web1", None, has_tick=False),
    ]
    first, *_, last = [
        mark for mark in gather("k", ticks, columns(NOW - 2 * HOUR, NOW, 8), NOW).marks if mark
    ]
    assert (last.word, last.count, last.tick, last.host) == (
        "failed",
        5,
        "2026-11-25T22:57Z",
        "web2",
    )
    assert last.counts == (("failed", 3), ("succeeded", 2))
    assert (first.word, first.tick, first.host) == ("succeeded", None, "web1")


def test_the_worst_comes_first() -> None:
    """As states are classified everywhere: what somebody has to look at before what is well."""
    kinds = [kind for kind, _ in itertools.groupby(map(kind_of, WORST_FIRST)) if kind != "bad"]
    places = [
        WORST_FIRST.index(word)
        for word in ("lost", "failed", "missed", "stopped", "overdue", "running", "succeeded")
    ]
    assert places == sorted(places)
    assert kinds.index("warning") < kinds.index("running") < kinds.index("well")


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
)
@pytest.mark.parametrize("most", [5, 24, 60, 200])
def test_columns_begin_at_round_local_times(
    zone: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cover the span without a gap, also where a clock changes, and are no more than there is room for."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for span, until in itertools.product(
            (HOUR, DAY, 7 * DAY, 60 * DAY, 3653 * DAY), (NOW, 1792893600.0)
        ):
            starts = columns(until - span, until, most)
            assert 1 <= len(starts) <= most
            assert starts[0] <= until - span < [*starts[1:], until][0]
            assert all(one < other for one, other in itertools.pairwise([*starts, until]))
            assert not any(time.localtime(start).tm_sec for start in starts)
        midnights = days(NOW - 90 * DAY, NOW)
        assert {time.localtime(start)[3:6] for start in midnights} == {(0, 0, 0)}
        assert len(midnights) in (90, 91, 92)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_ticks_of_a_span_are_those_that_follow_each_other() -> None:
    """Day by day, as one by one, also across the changes of clocks."""
    rng = random.Random(1)
    schedules = (
        "*/7 * * * *",
        "17 * * * *",
        "30 2 * * *",
        "0 3 1,15 * 1",
        "0 0 * * *",
        "59 23 * * *",
    )
    zones = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca")
    for schedule, zone in itertools.product(schedules, zones):
        for start in (1774656000, 1792800000, rng.randrange(1_700_000_000, 1_800_000_000)):
            until = start + rng.choice([HOUR, 3 * DAY])
            due = [
                each.instant for each in itertools.islice(next_ticks(schedule, zone, start), 700)
            ]
            expected = [instant for instant in due if instant is not None and instant <= until]
            assert instants_between(schedule, zone, start, until) == expected


def drawing(
    width: int | None, lines: Sequence[tuple[str, Sequence[Ticks]]], span: float = DAY, **how: bool
) -> list[str]:
    style = Style(
        "table",
        Clock(utc=True, zone=None, now=NOW),
        width=width,
        terminal=True,
        **{"unicode": True, **how},
    )
    return [*Drawing(style, Span(NOW - span, NOW), lines).text()]


LINES = [
    ("billing-nightly", [Ticks("succeeded", [NOW - 79200], "web1"), Ticks("missed", [NOW - 3600])]),
    ("a" * 200, [Ticks("failed", [*range(int(NOW) - 80000, int(NOW), 60)])]),
    (
        f"  {HOSTILE}",
        [Ticks(word, [NOW - 600 * place]) for place, word in enumerate(DRAWN, 1)],
    ),
]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("span", [600, DAY, 40 * DAY])
def test_a_picture_fits_the_terminal(width: int, unicode: bool, colour: bool, span: float) -> None:
    """Of any width, in any locale; a hostile name moves no cursor."""
    shown = drawing(width, LINES, span, unicode=unicode, colour=colour)
    plain = [line.replace("\x1b[0m", "") for line in shown]
    for code in ("2", "31", "32", "33", "36"):
        plain = [line.replace(f"\x1b[{code}m", "") for line in plain]
    assert max(map(display_width, plain)) <= width, plain
    assert all(line.isprintable() for line in plain)
    assert colour == any("\x1b[" in line for line in shown)
    assert "missed" in "".join(plain) or span < DAY
    if not unicode:
        assert "".join(plain).replace("é", "").isascii()


def test_what_a_picture_says() -> None:
    """The time, an axis, a line for each key with its counts, and what the marks mean."""
    assert drawing(70, LINES[:1]) == [
        "Tue 23:00 to now (UTC); a column is 1h",
        "                  Wed     08:00   16:00",
        "billing-nightly    •                    ○  1 missed, 1 ok",
        "                 • ok  ○ missed",
    ]
    of_a_pipe = drawing(None, LINES[:1], unicode=False)
    assert of_a_pipe[2].split() == ["billing-nightly", ".", "o", "1", "missed,", "1", "ok"]
