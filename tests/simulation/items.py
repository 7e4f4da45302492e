"""A key with items: the runner of `each` is the job, and each command that it starts is a simulated process.

The list of a tick is there when a slot begins, as if another host had loaded it.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import memory_items
from firings import Key
from kernel import INF, Process
from store import Caller

from oncecron.core.retry import RetryPolicy
from oncecron_each.item_model import Item, ItemList
from oncecron_each.runner import CommandEnd
from oncecron_each.shared_page import Page
from oncecron_each.spec import ItemsSpec
from oncecron_each.worker import Worker, results_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from kernel import Host
    from world import Life, World

    from oncecron.core.model import Lease
    from oncecron.run.spec import RunSpec
    from oncecron_each.item_model import Draw, Drawn, DrawnItem, ItemCounts, ItemResult

_COMMAND = 4.0
"""Seconds that a command takes on average."""


class ItemsKey(Key):
    """A line of `oncecron each`; its shards are the slots."""

    def __init__(self, world: World, name: str, draw: random.Random) -> None:
        super().__init__(name, draw)
        self._world, self.rule = world, draw.choice(("schedule", "name"))
        self.shards = draw.choice((1, 2, 3))
        self.retries, self.timeout, self.on_error = 0, None, "fail"
        self.count, self.batch = draw.choice((3, 10, 30)), draw.choice((1, 1, 3))
        self.redraw_below = draw.choice((0, 0, 3))
        self.again = RetryPolicy(draw.choice((0, 2)), (1.0, 20.0), frozenset((9,)))

    def spec(self, host: Host, pid: int, fired_at: float, *, again: bool) -> RunSpec:
        """Return what `each` would make of the line for one firing."""
        spec = super().spec(host, pid, fired_at, again=again)
        turn = [(pid + number) % self.shards for number in range(self.shards)]
        items = ItemsSpec(
            *(None, False, False, False, False, self.batch, self.shards, None),
            *(self.redraw_below, self.again, None, self.failover, False, Page(1), turn),
        )
        life = self._world.kernel.current.process.life
        firing = spec.firing._replace(resumes=True, retries=0)
        nothing = RetryPolicy(0, (0.0, 0.0), frozenset())
        return spec._replace(
            firing=firing, retry_policy=nothing, body=_Items(self._world, life, items), place=None
        )

    def load(self, items_of: ItemList) -> None:
        """Put a list there, of whichever tick: a firing also makes up others than its own."""
        server = self._world.server
        if items_of not in server.lists:
            names = [Item(f"item{number}", "") for number in range(self.count)]
            server.lists[items_of] = memory_items.loaded(items_of, names, server.now())


class _Items:
    """The body of a firing: that of `each`, but for the runner."""

    def __init__(self, world: World, life: Life, items: ItemsSpec) -> None:
        self.world, self.life, self._items = world, life, items

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)

    def begin(
        self, spec: RunSpec, lease: Lease, environment: Mapping[str, str]
    ) -> Callable[[], int]:
        self.life.key.load(ItemList(lease.key, lease.tick or ""))
        self.page.begin_slot(self.number, lease.shard)
        return _Worker.body(spec, self, lease, environment)


class _Store(Caller):
    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        return self._call("draw", deadline, lease, draw)[0]

    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        return self._call("progress", deadline, items_of)[0]


class _Processes:
    """What the runner asks of `oncecron_each.runner.Processes`."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process, self.stopped_by = world, process, None
        process.on_signal, process.deaf = self._heed, True

    def _heed(self, process: Process, number: int) -> None:
        self._world.ledger.signalled(process.start, number)
        self.stopped_by = self.stopped_by or number
        self._world.kernel.wake(*process.threads)

    def close_input(self) -> None:
        """There is none."""

    def sleep(self, seconds: float) -> None:
        """Wait for a time, or for a signal."""
        kernel = self._world.kernel
        kernel.sleep_until(kernel.now + seconds, lambda: self.stopped_by)
        kernel.point()


class _Worker(Worker):
    """The runner, with the commands of the simulation."""

    def __init__(
        self, spec: RunSpec, items: _Items, lease: Lease, environment: Mapping[str, str]
    ) -> None:
        self._spec, self._items, self._lease, self._environment = spec, items, lease, {}
        self._items_of = ItemList(lease.key, lease.tick or "")
        self._world, self._me = items.world, items.world.kernel.current.process
        self._store = _Store(items.world.network, items.life)
        self._processes = _Processes(items.world, self._me)

    def _run(self, command: object, batch: Sequence[DrawnItem]) -> list[ItemResult]:
        world, me, draw = self._world, self._me, self._items.life.random
        kernel = world.kernel
        if me.host.short_until > kernel.now:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        process = Process(kernel, me.host, me, "item")
        world._belongs(process, me.start, deaf=draw.random() < 0.1)
        process.on_exit = lambda: (me.start.changed(), kernel.wake(*me.threads))
        names = [item.identity for item in batch]
        world.items.begins(self._items_of, names, process, self._items.redraw_below)
        seconds = draw.expovariate(1 / _COMMAND) if kernel.now < world.quiet_at else 0.01
        code = draw.choice((0, 0, 0, 0, 1, 9)) if kernel.now < world.quiet_at else 0
        world._exits_after(seconds, process, code << 8)
        kernel.sleep_until(INF, lambda: process.dead)
        kernel.point()
        me.zombies.clear()
        me.children.clear()
        end = CommandEnd(process.status, timed_out=False)
        return results_of(batch, end, {}, self._items.retry_policy)


class ItemRuns:
    """Which item was begun by which process: judged as it happens, and at the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runs: defaultdict[tuple[str, str, str], list[Process]] = defaultdict(list)

    def begins(
        self, items_of: ItemList, names: Sequence[str], process: Process, redraw_below: int
    ) -> None:
        """Judge that no other process has these items, and that none has done them, or may have."""
        ledger, life = self._world.ledger, process.start.life
        ledger.items += len(names)
        for name in names:
            before = self._runs[(*items_of, name)]
            for other in before:
                about = f"{items_of.key} {items_of.tick} {name} on {life.host.name}"
                if not other.dead:  # whichever of the two could not act until now
                    latest = max(other.start.life, life, key=lambda each: each.joint)
                    ledger._judge("item beside", about, latest)
                is_retry = other.dead and other.status >= 1 << 8  # it has failed
                if not (redraw_below or is_retry):
                    ledger._judge("item again", about, other.start.life)
            before.append(process)

    def at_the_end(self) -> None:
        """Judge that what is done was done, and that no slot which ended by itself has left an item."""
        server, ledger = self._world.server, self._world.ledger
        for (key, tick), found in server.lists.items():
            rows = [part.of("tick", tick) for part in server.of_key(key)]
            outcomes = {row["outcome"] for each in rows for row in each[-1:]}
            for row in found["items"]:
                about = f"{key} {tick} {row['item']}: {row['state']}"
                runs = self._runs[key, tick, row["item"]]
                if row["state"] == "done" and not any(each.status == 0 for each in runs):
                    ledger.violation("item not done", about)
                is_left = row["state"] in ("queued", "failed", "taken")
                if is_left and outcomes == {"succeeded"}:
                    ledger.violation("item left", about)
