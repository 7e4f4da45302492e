"""Once per item under kill -9: what the commands themselves wrote is compared with what the store says of each item.

Three hosts draw from one list, each with four slots. Every moment a part of one of them is killed: the process that
cron started, a wrapper, a guard, a runner, a command, or all of the host. A host that is down is started again, as a
person would. The store is restarted twice, and one host loses it in a black hole once. SQLite has no server for these
two: there the kills are all.

ONCECRON_TEST_ITEMS=50000 is the long form: a kill every two seconds, and each kind of kill at least once.

The ledger is a file to which commands append: `begin ITEM` before the work on an item, `end ITEM` after it.
"""

import contextlib
import csv
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from servers import FaultProxy, PostgresServer, RedisServer, descendants
from servers.oncecron import Firing, Oncecron, installed
from servers.process import Process, kill_tree
from servers.waiting import eventually
from story_stores import seed

ITEMS = int(os.environ.get("ONCECRON_TEST_ITEMS", "300"))
IS_LONG = ITEMS > 5000
BATCH = 20 if IS_LONG else 5
HOSTS = ("host-a", "host-b", "host-c")
JOBS = 4
TTL = 8
"""Seconds: a store that a busy machine restarts costs no lease, of which nobody was killed."""
KILL_EVERY = 2.0 if IS_LONG else 0.3
"""Seconds."""
DEPTHS = {"host": 0, "wrapper": 1, "guard": 2, "runner": 3, "command": 4}
"""How far below the process that cron started each part is."""
SLOTS = dict.fromkeys(DEPTHS, 1) | {"host": JOBS, "all": JOBS}
"""How many slots may die with a part."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + ITEMS / 20)]


class Place(NamedTuple):
    """A store that can be restarted, and cut off from one host."""

    url: str
    cut_url: str
    """By way of the proxy."""
    proxy: FaultProxy | None
    restart: Callable[[], None]


@pytest.fixture(params=["postgres", "redis", "sqlite"])
def store(request: pytest.FixtureRequest, public_path: Path) -> Iterator[Place]:
    """Give a store of each kind; SQLite has no server."""
    new_proxy: Callable[..., FaultProxy] = request.getfixturevalue("new_proxy")
    if request.param == "sqlite":
        directory = public_path / "store"
        directory.mkdir(mode=0o700)
        url = f"sqlite://{directory}/oncecron.db"
        yield Place(url, url, None, lambda: None)
    elif request.param == "redis":
        redis: RedisServer = request.getfixturevalue("new_redis")(aof=True, appendfsync="always")
        proxy = new_proxy(redis)
        yield Place(redis.url(), redis.url(via=proxy), proxy, redis.restart)
    else:
        postgres: PostgresServer = request.getfixturevalue("new_postgres")()
        proxy = new_proxy(postgres)
        with postgres.create_database().until_dropped() as database:
            ready = installed(database)
            yield Place(ready.url(), ready.url(via=proxy), proxy, postgres.restart)


class Host:
    """A host that fires the same tick again when it is down."""

    def __init__(self, oncecron: Oncecron, words: list[object]) -> None:
        self._oncecron = oncecron
        self._words = words
        self._errors = 0
        self.firing: Firing | None = None
        self.statuses: Counter[int] = Counter()

    def up(self) -> None:
        """Fire if nothing runs."""
        if self.firing is not None and self.firing.process.poll() is None:
            return
        if self.firing is not None:
            self.statuses[self.firing.wait().status] += 1
        self.firing = self._oncecron.start("each", *self._words, stdin=-3)

    def part(self, name: str, chance: random.Random) -> Process | None:
        """Return a process of this host."""
        if self.firing is None:
            return None
        depth = {self.firing.process.pid: 0}
        parts = descendants(self.firing.process.pid)
        for process in parts:
            depth.setdefault(process.pid, depth.get(process.parent, -1) + 1)
        found = [process for process in parts if depth[process.pid] == DEPTHS[name]]
        return chance.choice(found) if found else None

    def strike(self, name: str, chance: random.Random) -> bool:
        """Kill a part of this host, or all of it; return whether there was one."""
        if name == "all":
            alive = self.firing is not None and self.firing.process.poll() is None
            if self.firing is not None and alive:
                kill_tree(self.firing.process.pid)
            return alive
        process = self.part(name, chance)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return process is not None


def ended_items(oncecron: Oncecron) -> Counter[str]:
    """Return how many items are done, and how many are lost."""
    told = oncecron("items", "--format", "csv")
    if told.status or not (rows := list(csv.DictReader(told.out.decode().splitlines()))):
        return Counter()
    return Counter({name: int(rows[0][name]) for name in ("done", "lost")})


def item_states(oncecron: Oncecron) -> dict[str, str]:
    """Return the state of each item."""
    told = oncecron("items", "k", "--tick", "one", "--format", "csv")
    if told.status:
        return {}
    head, *rows = (line.split(",") for line in told.out.decode().splitlines())
    item, state = head.index("item"), head.index("state")
    return {row[item]: row[state] for row in rows}


def command(ledger: Path) -> list[str]:
    """Return a command that writes to the ledger before and after the work on each item of a batch."""
    script = 'for i; do echo "begin $i"; done; sleep 0.3; for i; do echo "end $i"; done'
    return ["sh", "-c", f"exec >>{ledger}; {script}", "sh"]


class Nemesis:
    """Strikes hosts and the store while the items are drawn."""

    def __init__(self, store: Place, hosts: list[Host]) -> None:
        self._store = store
        self._hosts = hosts
        self._chance = random.Random(seed())
        self._struck = self._cut_at = time.monotonic()
        self._parts: list[str] = []
        """What is to be killed next: each kind once in a round."""
        self.kills: Counter[str] = Counter()
        self.restarts = self.cuts = 0

    @property
    def most_lost(self) -> int:
        """Return how many items these faults may leave in doubt: a batch of each slot that can have died."""
        killed = sum(times * SLOTS[part] for part, times in self.kills.items())
        return BATCH * (killed + JOBS * self.cuts)

    def act(self, done: int) -> None:
        """Do what is due once so many items have ended."""
        now = time.monotonic()
        if now > self._struck + KILL_EVERY and done < ITEMS * 0.9:
            self._parts = self._parts or self._chance.sample([*SLOTS], len(SLOTS))
            if self._chance.choice(self._hosts).strike(self._parts[-1], self._chance):
                self.kills[self._parts.pop()] += 1
                self._struck = now
        while self.restarts < 2 and done > ITEMS * (self.restarts + 1) / 4:
            self._store.restart()
            self.restarts += 1
        if self._store.proxy and not self.cuts and done > ITEMS / 3:
            self._store.proxy.deaf()
            self.cuts, self._cut_at = 1, now
        elif self._store.proxy and self.cuts and now > self._cut_at + TTL:
            self._store.proxy.passing()


@pytest.mark.parametrize("in_doubt", ["keep", "retry"])
def test_what_is_killed_is_in_doubt_and_nothing_else(
    store: Place, public_path: Path, in_doubt: str
) -> None:
    """`keep`: no item begins twice, and what did not end is `lost`. `retry`: every item ends, and is `done`."""
    ledger = public_path / "ledger"
    ledger.touch(mode=0o666)
    listed = ("--items", f"seq {ITEMS}", "--batch", BATCH, "--retries", 50)
    slots = ("--slots", len(HOSTS) * JOBS, "--jobs", JOBS, "--in-doubt", in_doubt)
    words = [
        "--key",
        "k",
        "--tick",
        "one",
        *listed,
        *slots,
        "--ttl",
        TTL,
        "--",
        *command(ledger),
    ]
    urls = dict.fromkeys(HOSTS, store.url) | {HOSTS[-1]: store.cut_url}
    hosts = [Host(Oncecron(urls[name], public_path, name), words) for name in HOSTS]
    asks = Oncecron(store.url, public_path, "asking")
    for host in hosts:
        host.up()
    eventually(lambda: ledger.stat().st_size > 0, 60)
    nemesis = Nemesis(store, hosts)
    found: Counter[str] = Counter()

    def over() -> bool:
        nonlocal asked, found
        if asked.done():
            found, asked = asked.result(), thread.submit(ended_items, asks)
        for host in hosts:
            host.up()
        nemesis.act(found["done"] + found["lost"])
        ended = found["done"] if in_doubt == "retry" else found["done"] + found["lost"]
        return ended == ITEMS

    with ThreadPoolExecutor(1) as thread:  # a count may take longer than the time between two kills
        asked = thread.submit(ended_items, asks)
        eventually(over, 180 + ITEMS / 25)
    for host in hosts:
        if host.firing:
            host.firing.wait(60)
    print(f"{nemesis.kills}, {nemesis.restarts} restarts, {nemesis.cuts} cuts")
    assert nemesis.kills.total() > 0
    assert not IS_LONG or all(nemesis.kills[part] for part in SLOTS)
    assert nemesis.restarts == 2
    assert nemesis.cuts == (store.proxy is not None)
    judge(ledger, item_states(asks), in_doubt, nemesis.most_lost)


def judge(ledger: Path, found: dict[str, str], in_doubt: str, most_lost: int) -> None:
    """Compare what the commands wrote with what the store says."""
    written = [line.split() for line in ledger.read_text().splitlines()]
    begun = Counter(item for kind, item in written if kind == "begin")
    ended = {item for kind, item in written if kind == "end"}
    assert set(found) == {str(number) for number in range(1, ITEMS + 1)}
    lost = {item for item, state in found.items() if state == "lost"}
    assert {item for item, state in found.items() if state == "done"} <= ended
    if in_doubt == "retry":
        assert len(ended) == ITEMS
        return
    repeated = {item: times for item, times in begun.items() if times > 1}
    assert repeated == {}
    assert set(begun) - ended <= lost
    assert set(found) - ended == lost - ended
    print(
        f"{len(lost)} of at most {most_lost} in doubt, {len(set(begun) - ended)} of them not ended"
    )
    assert len(lost) <= most_lost
