"""After an outage all hosts and all keys come back at once, and make up what was missed: each tick once, in order.

`ONCECRON_TEST_OUTAGE=300,20,60` sets how many hosts, keys and missed ticks there are.
"""

from __future__ import annotations

import gc
import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from beneath import MemorySpool
from kernel import Host
from server import EPOCH
from shrink import Only
from world import World

from oncecron.core import system
from oncecron.core.tick import instant_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firings import Key
    from ledger import Start

HOSTS, KEYS, TICKS = map(int, os.environ.get("ONCECRON_TEST_OUTAGE", "40,5,60").split(","))
SEEDS = int(os.environ.get("ONCECRON_TEST_OUTAGE_SEEDS", "8"))
FIRST = 600.0
"""When the last tick before the outage is fired, and the first one after it is TICKS + 1 minutes later."""


class CatchingUp(World):
    """All keys have a schedule, and make up what they have missed."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        for key in self.keys:
            self._let_make_up(key)

    def _let_make_up(self, key: Key) -> None:
        key.rule, key.catch_up, key.on_error = "schedule", 7200.0, "fail"

    def parts(self) -> dict[tuple[str, int], list[Start]]:
        """Return what began of each shard, in its order."""
        found = defaultdict(list)
        for start in self.ledger._starts:
            found[start.key, start.shard].append(start)
        return found


class Outage(CatchingUp):
    """Many hosts and keys, and an hour in which no host fires: a power cut."""

    def __init__(self, hosts: int, keys: int, ticks: int) -> None:
        super().__init__(1, (FIRST + ticks * 60) / 3600, only=Only((), None, ()), calm=True)
        kernel, draw = self.kernel, self._draw("outage")
        self.hosts = [Host(kernel, f"host{each}", self._draw(each), EPOCH) for each in range(hosts)]
        for host in self.hosts:
            host.ahead = EPOCH + draw.uniform(-1, 1)
            host.spool = MemorySpool(kernel, host, self.ledger)
            self.network._draws[host.name] = self._draw(host.name, "network")
        first = self.keys[0]
        self.keys = []
        for number in range(keys):
            key = type(first)(f"key{number}", self._draw("key", number))
            key.every, key.ttl, key.failover, key.retries, key.wait = 1, 60.0, False, 0, 0.0
            key.shards, key.timeout, key.deadline, key.holds, key.usual = 1, None, 30.0, True, 0.1
            key.schedule = "* * * * *"
            self._let_make_up(key)
            self.keys.append(key)
        self.seconds: Counter[int] = Counter()
        """How many requests reached the server in each second."""
        carry = self.network.send

        def send(call: Any) -> None:
            self.seconds[int(kernel.now)] += 1
            carry(call)

        self.network.send = send
        for minute in (0, *range(ticks + 1, ticks + 4)):
            for host in self.hosts:
                for key in self.keys:
                    of_cron = self._draw(host.name, key.name, minute)
                    late = 0.5 + of_cron.uniform(0, 1)  # cron starts one after another
                    kernel.at(FIRST + minute * 60 + late, self.fire, host, key, of_cron)


@pytest.fixture(autouse=True)
def real_calls() -> Iterator[None]:
    """Let the calls of the machine count again for the tests that follow: a world lies below its own process."""
    before = system.calls
    yield
    system.use(before)
    gc.collect()  # threads of the last world


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of those threads
def test_all_that_was_missed_is_made_up_once_and_in_order() -> None:
    """By many hosts that come back in the same second."""
    world = Outage(HOSTS, KEYS, TICKS)
    world.kernel.run(FIRST + (TICKS + 5) * 60)
    assert world.ledger.violations == []
    parts = world.parts()
    assert len(parts) == KEYS
    for starts in parts.values():
        assert [int((instant_of(each.tick) or 0) - EPOCH - FIRST) // 60 for each in starts] == [
            *range(TICKS + 4)
        ]
        assert [each.attempt for each in starts] == [1] * (TICKS + 4)
        tokens = [each.token for each in starts]
        assert tokens == sorted(tokens)
    rows = [row for part in world.server.parts.values() for row in part.rows.values()]
    causes = Counter(row["cause"] for row in rows)
    assert causes == {"catch-up": KEYS * TICKS, "schedule": KEYS * 4}
    usual = max(world.seconds[int(FIRST) + second] for second in range(60))
    back = max(world.seconds[int(FIRST) + (TICKS + 1) * 60 + second] for second in range(60))
    print(f"{len(world.all_lives)} firings; at most {usual} requests a second before, {back} after")
    assert back < 3 * usual  # as many claims as ever, and the runs of one host for each key


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_faults_break_no_order_and_leave_nothing() -> None:
    """Outages of the store, dead hosts, wrong clocks, pauses: no tick twice, none after a newer one, and none left."""
    made_up = 0
    for seed in range(1, SEEDS + 1):
        world = CatchingUp(seed, 3.0)
        assert world.run() == []
        rows = [row for part in world.server.parts.values() for row in part.rows.values()]
        made_up += sum(row["cause"] == "catch-up" for row in rows)
    assert made_up > 10 * SEEDS
