"""Five hosts with skewed, stepped and late clocks fire one crontab line: each tick starts once.

A simulation of 200 periods for each of twelve scenarios. The claim is the store's: one start per tick, and
none while another runs. The rule under test only names the tick, from the clock of the host that fires.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from oncecron.core.tick import Tick, minute_tick
from oncecron.host.local_time import scheduled_tick

HOSTS = 5
PERIODS = 200
JOB_TAKES = 0.5
BEGIN = 1_795_132_800  # 2026-11-20T00:00Z
MINUTE, HOUR, DAY = 60, 3600, 86400
SCHEDULES = {MINUTE: "* * * * *", 5 * MINUTE: "*/5 * * * *", DAY: "0 0 * * *"}


class Scenario(NamedTuple):
    """How the hosts' clocks and crons behave; times in seconds, shares of one."""

    period: int
    skew: float
    late_share: float = 0.0
    late: tuple[float, float] = (0.0, 0.0)
    step_share: float = 0.0


class Firing(NamedTuple):
    """One host's cron starting the command, at a true time, for a period, by its own clock."""

    true: float
    period: int
    shown: float


SCENARIOS = {
    "minutely, skew 0.3 s": Scenario(MINUTE, 0.3),
    "minutely, skew 5 s": Scenario(MINUTE, 5),
    "minutely, skew 20 s": Scenario(MINUTE, 20),
    "minutely, 2 % late 20-50 s": Scenario(MINUTE, 0.3, 0.02, (20, 50)),
    "minutely, 2 % of clocks stepped back 2 s": Scenario(MINUTE, 0.3, step_share=0.02),
    "daily, skew 0.3 s": Scenario(DAY, 0.3),
    "daily, skew 120 s": Scenario(DAY, 120),
    "daily, 20 % late 1-20 min": Scenario(DAY, 0.3, 0.2, (MINUTE, 20 * MINUTE)),
    "daily, all delayed up to 1 h": Scenario(DAY, 0.3, 1, (0, HOUR)),
    "daily, 20 % late 4-16 h": Scenario(DAY, 0.3, 0.2, (4 * HOUR, 16 * HOUR)),
    "daily, 2 % of clocks stepped back 2 s": Scenario(DAY, 0.3, step_share=0.02),
    "every 5 min, skew 5 s, 5 % late 20-200 s": Scenario(5 * MINUTE, 5, 0.05, (20, 200)),
}


def firings(scenario: Scenario) -> list[Firing]:
    """Return all firings in the order in which they reach the store."""
    chance = random.Random(1)
    offsets = [chance.gauss(0, scenario.skew) for _ in range(HOSTS)]
    found = []
    for due in range(BEGIN, BEGIN + PERIODS * scenario.period, scenario.period):
        for offset in offsets:
            late = chance.expovariate(5)
            if chance.random() < scenario.late_share:
                late += chance.uniform(*scenario.late)
            # The clock is stepped back just after cron woke, before the command reads it.
            step = -2.0 if chance.random() < scenario.step_share else 0.0
            found.append(Firing(due - offset + late, due, due + late + step))
    return sorted(found)


def extra_and_missed(scenario: Scenario, rule: Callable[[Firing], Tick]) -> tuple[int, int]:
    """Return how many starts were one too many for their period, and how many periods had none."""
    claimed: set[Tick] = set()
    starts: Counter[int] = Counter()
    busy_until = 0.0
    for firing in firings(scenario):
        tick = rule(firing)
        if firing.true >= busy_until and tick not in claimed:
            claimed.add(tick)
            starts[firing.period] += 1
            busy_until = firing.true + JOB_TAKES
    return starts.total() - len(starts), PERIODS - len(starts)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_schedule_rule_starts_each_tick_once(name: str) -> None:
    """With the schedule named, no skew, step or lateness of hosts gives an extra or a missed run."""
    scenario = SCENARIOS[name]
    schedule = SCHEDULES[scenario.period]

    def rule(firing: Firing) -> Tick:
        return scheduled_tick(schedule, "UTC", firing.shown)

    assert extra_and_missed(scenario, rule) == (0, 0)


@pytest.mark.parametrize("name", ["minutely, skew 20 s", "daily, skew 120 s"])
def test_the_hosts_minute_withstands_any_skew(name: str) -> None:
    """Without a schedule the host's own minute is right under skew, as long as starts are on time."""
    assert extra_and_missed(SCENARIOS[name], lambda firing: minute_tick(firing.shown)) == (0, 0)


@pytest.mark.parametrize("name", ["minutely, skew 5 s", "daily, skew 120 s"])
def test_the_stores_clock_would_name_the_tick_wrong(name: str) -> None:
    """The minute by the true time, which a store's clock shows, gives extra runs: the test can fail."""
    extra, _ = extra_and_missed(SCENARIOS[name], lambda firing: minute_tick(firing.true))
    assert extra > 0
