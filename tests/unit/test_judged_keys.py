"""What `check` reads of a key, which is less than `jobs` does: the findings are the same, whatever the log has."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from oncecron.core.log_rows import Execution, Expectation, JobKey, LeaseView, Pause, SkipReason
from oncecron.core.text import Clock
from oncecron.log.jobs import jobs
from oncecron.log.sources import Sources
from oncecron.watch.findings import Limits, Situation, check, kinds

if TYPE_CHECKING:
    from oncecron.stores.reader import Reader
    from oncecron.watch.findings import Finding

MINUTE, HOUR = 60.0, 3600.0
NOW = 1.8e9 // HOUR * HOUR + 30
ENDINGS = ("succeeded", "succeeded", "succeeded", "failed", "lost", "not-started", "unclaimed")


class World:
    """A store with a key whose past is drawn; it counts the executions that are read."""

    def __init__(self, draw: random.Random) -> None:
        self.read = 0
        interval = draw.choice((MINUTE, HOUR))
        schedule = "* * * * *" if interval == MINUTE else "0 * * * *"
        shards = draw.choice((1, 1, 1, 2))
        expected = Expectation(schedule, "UTC", shards, None, NOW - 30 * HOUR)
        last = NOW // interval * interval - draw.choice((0, 0, 1, 2, 30, 120)) * interval
        self.keys = [
            JobKey("k", shard, draw.choice((expected, expected, None)), last)
            for shard in range(shards)
        ]
        self.leases: list[LeaseView] = []
        self.newest: list[Execution] = []
        ill = draw.choice((0.0, 0.1, 0.6, 1.0))
        others = draw.choice((shards, shards, 1, 2))  # there were as many shards before
        for number in range(draw.choice((0, 1, 2, 24, 25, 40, 150))):
            parts = shards if number < 2 else others
            outcome = draw.choice(ENDINGS) if draw.random() < ill else "succeeded"
            self.newest.append(self._execution(draw, 1000 - number, outcome, last, interval, parts))
        if self.newest and draw.random() < 0.2:
            self._let_run(draw)
        self.paused = [Pause("k", None, "ann@a", None, NOW - HOUR, None)] * (draw.random() < 0.1)
        self.skips = [
            SkipReason("k", _text(last + n * interval), draw.choice("ab"), reason)
            for n in range(1, draw.choice((1, 1, 3)))
            for reason in draw.choice((("drained",), ("held",), ("drained", "done"), ("paused",)))
        ]

    def _execution(
        self,
        draw: random.Random,
        number: int,
        outcome: str,
        last: float,
        interval: float,
        shards: int,
    ) -> Execution:
        ago = (1000 - number) // shards * interval
        tick = _text(last - ago) if draw.random() < 0.8 else None
        started = last - ago + draw.uniform(0, 5)
        took = draw.uniform(1, 90)
        return Execution(
            *(number, "k", number % shards, tick, 1, outcome, int(outcome == "failed"), None),
            *(draw.choice("abc"), 1, "root", "true", started, started + took, took),
            *(number, f"o{number}", None, shards),
        )

    def _let_run(self, draw: random.Random) -> None:
        newest = self.newest[0] = self.newest[0]._replace(
            outcome=draw.choice(("running", self.newest[0].outcome)), finished_at=None
        )
        if draw.random() < 0.8:
            lease = LeaseView(
                *("k", newest.shard, newest.tick, newest.execution_id, 1, "held", "a", 1, "root"),
                *(newest.started_at, NOW - 5, NOW + draw.choice((55, -55)), newest.fencing_token),
                *(None, None),
                asked_at=NOW,
            )  # fmt: skip
            self.leases = [lease]

    def findings(self, *, brief: bool) -> list[Finding]:
        people = cast(
            "Reader",
            SimpleNamespace(
                job_keys=lambda: self.keys,
                pauses=lambda: self.paused,
                leases=lambda: self.leases,
                key_hosts=list,
                history=lambda query: (e for e in self.newest if e.outcome in query.outcomes),
                newest=self._newest,
                reasons=lambda _since: iter(self.skips),
                skips=lambda _query: iter(()),
                read=lambda *_view, **_bounds: iter(()),
            ),
        )
        found = list(jobs(Sources(people, people, NOW), brief=brief))
        limits = Limits(1, 3, dict.fromkeys(kinds(), 2))
        situation = Situation(NOW, found, self.leases)
        return check(situation, limits, Clock(utc=True)).findings

    def _newest(self, limit: int, _keys: Any) -> Any:
        self.read += len(self.newest[:limit])
        return iter(self.newest[:limit])


def _text(instant: float) -> str:
    from oncecron.core.tick import minute_tick

    return str(minute_tick(instant).text)


@pytest.mark.parametrize("seed", range(10))
def test_the_findings_do_not_depend_on_how_much_is_read(seed: int) -> None:
    """A success of the newest tick hides nothing that older executions would say."""
    found: set[str] = set()
    for number in range(300):
        draw = random.Random(f"{seed} {number}")
        world = World(draw)
        complete = world.findings(brief=False)
        assert world.findings(brief=True) == complete, (seed, number)
        found |= {each.finding for each in complete}
    assert {"failed", "lost", "missed", "overrun", "silent"} <= found


def well(number_of_executions: int) -> World:
    """Return a world whose only key has run at its last ticks, every hour."""
    world, draw = World(random.Random(0)), random.Random(1)
    last = NOW // HOUR * HOUR
    world.keys = [JobKey("k", 0, Expectation("0 * * * *", "UTC", 1, None, NOW - 30 * HOUR), last)]
    world.leases, world.paused, world.skips = [], [], []
    world.newest = [
        world._execution(draw, 1000 - number, "succeeded", last, HOUR, 1)._replace(
            tick=_text(last - number * HOUR)
        )
        for number in range(number_of_executions)
    ]
    return world


def test_a_key_that_is_well_costs_one_row() -> None:
    """And jobs read the rows from which they show the usual duration."""
    world = well(150)
    assert world.findings(brief=True) == []
    assert world.read == 1
    assert world.findings(brief=False) == []
    assert world.read == 1 + 25


def test_a_mark_of_the_future_hides_no_missed_tick() -> None:
    """The newest start that can be true counts; without one, nothing is known to be due. An expectation, too."""
    world = well(3)
    [known] = world.keys
    world.newest = [
        each._replace(tick=_text(NOW // HOUR * HOUR - (2 + number) * HOUR))
        for number, each in enumerate(world.newest)
    ]
    world.newest.insert(0, world.newest[0]._replace(tick=_text(NOW + 1000 * HOUR)))
    world.keys = [known._replace(high_water=NOW + 1000 * HOUR)]
    [found] = world.findings(brief=True)
    assert (found.finding, found.count) == ("missed", 1)  # and one is due
    assert world.findings(brief=True) == world.findings(brief=False)
    world.newest = world.newest[:1]
    assert world.findings(brief=True) == []
    assert known.expected
    since = known.expected._replace(since=NOW + 1000 * HOUR)
    world.keys = [known._replace(expected=since, high_water=None)]
    assert world.findings(brief=True) == []


def test_a_run_without_a_tick_does_not_hide_a_tick_that_was_given_back() -> None:
    """Somebody ran the job by hand since."""
    world = well(3)
    first, second, third = world.newest
    world.newest = [first._replace(tick=None), second._replace(outcome="not-started"), third]
    world.keys = [world.keys[0]._replace(high_water=NOW // HOUR * HOUR - HOUR)]
    assert [each.finding for each in world.findings(brief=True)] == ["missed"]
    assert world.findings(brief=True) == world.findings(brief=False)
    assert world.findings(brief=True)[0].count == 1
