"""A firing: its crontab line, what a host keeps for it, and its two processes, which run the product's own code."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from beneath import Signals, Tree
from greenlet import GreenletExit
from kernel import INF, TERM, Descriptor, Host, Kernel, Process
from store import SimulatedBugError, SimulatedStore

from oncecron.core import clock
from oncecron.core import tick as ticks
from oncecron.core.model import Firing, Holder, Retention
from oncecron.core.retry import RetryPolicy
from oncecron.run.events import Refused
from oncecron.run.firing_states import Claiming
from oncecron.run.guard import Guard
from oncecron.run.job import Trust
from oncecron.run.spec import RunSpec, random_uuid
from oncecron.run.spool import Spool, is_record
from oncecron.run.wrapper import Wrapper
from oncecron.stores.address import Address

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from ledger import Ledger, Start
    from store import Network

    from oncecron.run.events import Event
    from oncecron.run.firing_states import State

ADDRESS = Address("redis", "redis://simulated")


class Key:
    """A crontab line, the same on every host."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self.name = name
        self.every = draw.choice((1, 1, 1, 2, 5, 60))
        self.rule = draw.choice(("schedule", "schedule", "schedule", "minute", "name", "none"))
        self.ttl = draw.choice((6.0, 12.0, 30.0, 60.0))
        self.failover = draw.random() < 0.4
        self.retries = draw.choice((0, 0, 1, 2))
        self.wait = draw.choice((0.0, 0.0, 20.0, 90.0))
        self.shards = draw.choice((1, 1, 1, 1, 3)) if self.rule != "none" else 1
        self.timeout = draw.choice((None, None, 40.0))
        self.grace = draw.choice((10.0, 2.0))
        self.usual = draw.choice((0.1, 2.0, 10.0, 50.0))
        """How long the job takes."""
        self.deadline = draw.choice((None, None, 120.0)) if self.rule == "schedule" else None
        self.holds = draw.random() < 0.7
        """Whether the store holds its connection."""
        self.on_error = draw.choice(("fail", "fail", "fail", "fail", "run"))
        each = {1: "*", 60: "0"}.get(self.every, f"*/{self.every}")
        self.schedule = f"{each} * * * *"

    @property
    def attempts(self) -> int:
        """How many attempts of a tick may follow the first one."""
        return max(self.retries, 2) if self.failover and not self.retries else self.retries

    def tick(self, fired_at: float) -> ticks.Tick:
        """Return the tick that a firing is for."""
        if self.rule == "schedule":
            return ticks.scheduled_tick(self.schedule, "UTC", fired_at)
        if self.rule == "none":
            return ticks.NO_TICK
        minute = ticks.minute_tick(fired_at)
        is_named = self.rule == "name"
        return ticks.named_tick(minute.text.replace(":", ".")) if is_named else minute

    def spec(self, host: Host, pid: int, fired_at: float, *, again: bool) -> RunSpec:
        """Return what the wrapper on a host would make of the line."""
        firing = Firing(
            *(self.name, 0, self.tick(fired_at), random_uuid(), Holder(host.name, pid, "root")),
            *("job", fired_at, self.ttl, {"minute": 30.0, "none": 20.0}.get(self.rule), self.deadline),
            *(again, self.schedule if self.rule == "schedule" else None, "UTC"),
            shards=self.shards, failover=self.failover, retries=self.attempts, machine=host.name,
        )  # fmt: skip
        return RunSpec(
            *(firing, ("job",), ADDRESS, "sim", host.spool, None, Retention()),
            *(self.grace, self.timeout, self.wait),
            *(RetryPolicy(self.retries, (1.0, 20.0), frozenset((9,))), 0, self.on_error),
            *(30.0, 0, False, "job", "job"),
        )


class Life:
    """One firing: its two processes, what was done to them, and when both could not act."""

    def __init__(
        self, host: Host, key: Key, now: float, draw: random.Random, *, again: bool
    ) -> None:
        self.host, self.key, self.at, self.random, self.again = host, key, now, draw, again
        self.ended: float | None = None
        self.status: int | None = None
        self.wrapper: Process
        self.guard: Process | None = None
        self.state = ""
        """The name of the guard's state."""
        self.spec: RunSpec | None = None
        self.startup = draw.uniform(0.03, 0.4)
        self.hit = self.left = self.bug = self.guard_was_out = False
        """Whether a fault hit it, the guard has left by itself, a bug waits in it, and the guard was once out."""
        self.joint = -INF
        """Until when wrapper and guard were both out of action."""
        self.refusals: list[tuple[int, str, bool | None, Any]] = []
        self.starts: list[Start] = []

    def is_over(self) -> bool:
        """Return whether none of its two processes is left."""
        return self.wrapper.dead and (self.guard is None or self.guard.dead)

    def changed(self, now: float) -> None:
        """Note that one of the processes can act again, or no longer."""
        guard_is_out = self.guard is not None and self.guard.is_out()
        self.guard_was_out |= guard_is_out
        if self.wrapper.is_out() and (self.guard is None or guard_is_out):
            self.joint = INF
        elif self.joint == INF:
            self.joint = now


class WatchedTrust(Trust):
    """The shared page; each value goes to the ledger."""

    def __init__(self, ledger: Ledger, life: Life) -> None:
        super().__init__()
        self._ledger, self._life = ledger, life

    @property
    def until(self) -> float:
        """The end of trust."""
        return Trust.until.fget(self)

    @until.setter
    def until(self, value: float) -> None:
        Trust.until.fset(self, value)
        if value:
            self._ledger.trusts(self._life, value - clock.lease_time(clock.BOOTTIME))


class MemorySpool(Spool):
    """The spool of a host, with its files in memory; when what is written and delivered is the product's."""

    def __init__(self, kernel: Kernel, host: Host, ledger: Ledger) -> None:
        super().__init__("/state", "simulated", "sim")
        self._kernel, self._host, self._ledger = kernel, host, ledger
        self.files: dict[str, tuple[str, str]] = {}
        """By path: the key and the text."""
        self._unreachable: set[str] = set()
        self._holder = 0
        """The descriptor of the lock."""

    def _write(self, record: dict[str, Any], suffix: str) -> str:
        self._kernel.point()
        what = record.get("attempt", record["kind"])
        path = f"{record['key']}/{record['owner']}-{record['shard']}-{what}{suffix}"
        text = json.dumps(record, allow_nan=False)
        if not is_record(json.loads(text)) or suffix:
            self._ledger.violation("spool", f"{suffix or 'not a record'}: {text}")
        self.files.pop(path, None)
        self.files[path] = (record["key"], text)
        outcome = record.get("outcome") or record["reason"]
        self._kernel.trace("spool", self._host.name, path, outcome)
        return path

    def pending(self, key: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (path, record), oldest first."""
        for path, (of, text) in list(self.files.items()):
            if key in (None, of) and path in self.files:
                yield path, json.loads(text)

    def taken(
        self, key: str | None = None, *, ends: bool = False
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the same for delivery, while no other process delivers."""
        if self._holder in self._kernel.descriptors:
            return
        self._holder = Descriptor(self._kernel, self._kernel.current.process).fd
        try:
            for path, record in self.pending(key):
                if not (ends and record["kind"] == "skip"):
                    yield path, record
        finally:
            self._kernel.descriptors.pop(self._holder, None)

    def has(self, key: str | None = None) -> bool:
        """Return whether a record is pending."""
        return any(key in (None, of) for of, _ in self.files.values())

    def remove(self, path: str) -> None:
        """Remove a record."""
        self.files.pop(path, None)

    def note_unreachable(self, key: str) -> bool:
        """Note that the store is unreachable; return whether this is new."""
        is_new = key not in self._unreachable
        self._unreachable.add(key)
        return is_new

    def note_reached(self, key: str) -> None:
        """Note that the store was reached."""
        self._unreachable.discard(key)


class WatchedGuard(Guard):
    """The guard; it notes each transition of its states, with its cause, and each refusal."""

    def __init__(self, kernel: Kernel, life: Life, reached: Counter[str], *args: Any) -> None:
        super().__init__(*args, observer=SimpleNamespace(send=lambda *_: None))
        self._kernel, self._life, self._reached = kernel, life, reached
        self._causes: list[str] = []
        self._at: State | None = None

    @property
    def _state(self) -> State:
        return self._at

    @_state.setter
    def _state(self, state: State) -> None:
        if self._at is not None:
            cause = self._causes.pop(0) if self._causes else "clock"
            before, after = type(self._at).__name__, type(state).__name__
            self._reached[f"{cause}: {before} -> {'=' if state is self._at else after}"] += 1
        self._at = state
        self._life.state = type(state).__name__

    def _without_wrong_request(self, event: Event) -> Event:
        self._causes = [type(event).__name__]
        if isinstance(event, Refused):
            refusal, way = event.refusal, event.refusal.blocked_by
            same_tick = way.same_tick if way else None
            told = (event.firing.shard, refusal.reason, same_tick, refusal.holder)
            self._life.refusals.append(told)
        return super()._without_wrong_request(event)

    def _take_orders(self) -> bool:
        orders = self._kernel.descriptors[self._orders].data or (
            TERM,
        )  # at its end: the wrapper is gone
        self._causes = ["USR1" if number in (10, 12) else "stop" for number in orders]
        try:
            return super()._take_orders()
        finally:
            self._causes = []


class Runner:
    """Runs the processes of firings. What it does between the two is the second half of `wrapper._begin`."""

    def __init__(self, kernel: Kernel, network: Network, ledger: Ledger) -> None:
        self._kernel, self._network, self._ledger = kernel, network, ledger
        self.reached: Counter[str] = Counter()
        """How often each transition of the guard's states happened."""
        self.next: list[Callable[[Life], None]] = []
        """Faults that wait for the next firing to start its guard."""

    def fire(self, life: Life) -> None:
        """Start the wrapper of a firing."""
        life.wrapper = Process(self._kernel, life.host, None, "wrapper", life)
        life.wrapper.subreaper = True
        life.wrapper.on_exit = lambda: self._ledger.wrapper_gone(life)
        self._kernel.thread(life.wrapper, self._run, life.wrapper, self._be_wrapper)

    def _run(self, process: Process, function: Callable[..., int], *args: Any) -> None:
        """Run a process to its exit; an exception is a violation."""
        life, status = process.life, 70
        try:
            status = function(life, *args)
        except (GreenletExit, SimulatedBugError) as end:
            if isinstance(end, GreenletExit):
                raise
        except Exception as error:  # noqa: BLE001 - whatever it is
            where = traceback.extract_tb(error.__traceback__)[-1].name
            text = f"{process.name}: {type(error).__name__}: {error} ({where})"
            self._ledger.violation("bug", text, life)
        self._kernel.exit(process, status << 8)

    def _be_wrapper(self, life: Life) -> int:
        kernel, host, process = self._kernel, life.host, life.wrapper
        life.spec = life.key.spec(host, process.pid, host.wall(), again=life.again)
        tick = life.spec.firing.tick.text
        kernel.trace("fire", host.name, life.key.name, tick, life.spec.firing.owner)
        kernel.sleep_until(kernel.now + life.startup)
        kernel.point()
        guard = life.guard = Process(kernel, host, process, "guard", life)
        guard.subreaper = True
        orders, reports = self._pipe(guard, process), self._pipe(process, guard)
        if self.next:
            life.hit = True
            self.next.pop()(life)
        trust = WatchedTrust(self._ledger, life)
        kernel.thread(guard, self._run, guard, self._be_guard, trust, orders[0], reports[1])
        signals, tree = Signals(kernel), Tree(kernel, guard.pid)
        wrapper = Wrapper(life.spec, trust, signals, tree, guard.pid, orders[1], reports[0])
        life.status, life.ended = wrapper.watch(), kernel.now
        kernel.trace("exit", host.name, life.key.name, tick, life.status)
        self._ledger.ended(life)
        return life.status

    def _be_guard(self, life: Life, trust: Trust, orders: int, reports: int) -> int:
        given = (life.spec, trust, orders, reports, lambda: SimulatedStore(self._network, life))
        guard = WatchedGuard(self._kernel, life, self.reached, *given)
        status = guard.run(Signals(self._kernel), 1, Claiming)
        life.left = True
        self._ledger.left(life)
        guard.report(f"exit {status}")
        return status

    def _pipe(self, reader: Process, writer: Process) -> tuple[int, int]:
        ends = Descriptor(self._kernel, reader, b""), Descriptor(self._kernel, writer)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        return ends[0].fd, ends[1].fd
