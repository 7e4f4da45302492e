"""A firing: its crontab line, what a host keeps for it, and its two processes, which run the product's own code."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from beneath import MemoryPlace
from kernel import INF, Host, Kernel, Process
from store import SimulatedStore

from oncecron.core import tick as ticks
from oncecron.core.model import Firing, Holder, Retention
from oncecron.core.retry import RetryPolicy
from oncecron.host.local_time import scheduled_tick, ticks_before
from oncecron.run.firing_states import Claiming
from oncecron.run.spec import RunSpec, random_uuid
from oncecron.run.wrapper import supervise
from oncecron.stores import steady
from oncecron.stores.address import Address

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from beneath import Processes
    from ledger import Ledger, Start
    from store import Network

    from oncecron.run.events import Event
    from oncecron.run.firing_states import State
    from oncecron.run.guard import Guard

ADDRESS = Address("redis", "redis://simulated")
NOBODY = SimpleNamespace(send=lambda *_: None, close=lambda _: None)
"""An observer of starts and ends: only for one the claim loop asks what becomes of a lost run."""


class Key:
    """A crontab line, the same on every host."""

    count = 0
    """How many items it has, if it has any (`items`)."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self.name = name
        self.every = draw.choice((1, 1, 1, 2, 5, 60))
        rules = ("schedule", "schedule", "schedule", "minute", "name", "instant", "none")
        self.rule = draw.choice(rules)
        self.ttl = draw.choice((6.0, 12.0, 30.0, 60.0))
        self.failover = draw.random() < 0.4
        self.retries = draw.choice((0, 0, 1, 2))
        self.wait = draw.choice((0.0, 0.0, 20.0, 90.0))
        self.shards = draw.choice((1, 1, 1, 1, 3)) if self.rule != "none" else 1
        self.timeout = draw.choice((None, None, 40.0))
        self.grace = draw.choice((10.0, 2.0))
        self.usual = draw.choice((0.1, 2.0, 10.0, 50.0))
        """How long the job takes."""
        self.deadline = draw.choice((None, None, 30.0, 120.0)) if self.rule == "schedule" else None
        self.holds = draw.random() < 0.7
        """Whether the store holds its connection."""
        self.on_error = draw.choice(("fail", "fail", "fail", "fail", "run"))
        each = {1: "*", 60: "0"}.get(self.every, f"*/{self.every}")
        self.schedule = f"{each} * * * *"
        self.leaves_place = draw.random() < 0.6 and self.on_error == "fail"
        self.step = draw.choice((0.4, 0.7, 1.5)) if self.usual < 30 else 2.5
        """Seconds from one number to the next of a job that leaves its place."""
        makes_up = self.rule == "schedule" and draw.random() < 0.4
        self.catch_up = draw.choice((1800.0, 7200.0)) if makes_up else None

    @property
    def attempts(self) -> int:
        """How many attempts of a tick may follow the first one."""
        return max(self.retries, 2) if self.failover and not self.retries else self.retries

    def tick(self, fired_at: float) -> ticks.Tick:
        if self.rule == "schedule":
            return scheduled_tick(self.schedule, "UTC", fired_at)
        if self.rule == "none":
            return ticks.NO_TICK
        minute = ticks.minute_tick(fired_at)
        if self.rule == "minute":
            return minute
        return ticks.named_tick(minute.text.replace(":", "." if self.rule == "name" else ":"))

    def spec(self, host: Host, pid: int, fired_at: float, *, again: bool) -> RunSpec:
        """Return what the wrapper on a host would make of the line."""
        firing = Firing(
            *(self.name, 0, self.tick(fired_at), random_uuid(), Holder(host.name, pid, "root")),
            *("job", fired_at, self.ttl, {"minute": 30.0, "none": 20.0}.get(self.rule), self.deadline),
            *(again, self.schedule if self.rule == "schedule" else None, "UTC"),
            shards=self.shards, failover=self.failover, retries=self.attempts, machine=host.name,
        )  # fmt: skip
        if self.catch_up is not None and not again:
            instant, oldest = int(firing.tick.instant or 0), fired_at - self.catch_up
            before = ticks_before(self.schedule, "UTC", instant, oldest, 1)
            firing = firing._replace(catch_up=self.catch_up, previous=before[0] if before else None)
        return RunSpec(
            *(firing, ("job",), ADDRESS, "sim", host.spool, None, Retention()),
            *(self.grace, self.timeout, self.wait),
            *(RetryPolicy(self.retries, (1.0, 20.0), frozenset((9,))), 0, self.on_error),
            *(30.0, 0, False, "job", "job"), observe=lambda _: NOBODY, pings=("nobody",),
            place=partial(MemoryPlace, host) if self.leaves_place else None,
        )  # fmt: skip


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
        self._state = ""
        self.on_state: Callable[[Life], None] = lambda life: None
        self.renewed: Callable[[int, bytes | None, float], None] = lambda *_: None
        """Called with what a renewal has confirmed."""
        self.spec: RunSpec | None = None
        self.startup = draw.uniform(0.03, 0.4)
        self.left = self.bug = False
        """Whether the guard has left by itself, and a bug waits in it."""
        self.joint = self.trusts_until = -INF
        """Until when wrapper and guard were both out of action, or trusted what had ended: a clock had stood still."""
        self.starts: list[Start] = []

    @property
    def state(self) -> str:
        return self._state

    @state.setter
    def state(self, name: str) -> None:
        if name != self._state:
            self._state = name
            self.on_state(self)

    def is_over(self) -> bool:
        """Return whether none of its two processes is left."""
        return self.wrapper.dead and (self.guard is None or self.guard.dead)

    def changed(self, now: float) -> None:
        """Note that one of the processes can act again, or no longer."""
        if self.wrapper.is_out() and (self.guard is None or self.guard.is_out()):
            self.joint = INF
        elif self.joint == INF:
            self.joint = max(now, self.trusts_until)


class Watched:
    """Stands in the place of the guard's state, and notes what follows each event."""

    def __init__(self, runner: Runner, life: Life, guard: Guard) -> None:
        self._runner, self._life, self._guard = runner, life, guard
        self._state: State = Claiming(guard)
        self._until = 0.0
        life.state = "Claiming"

    def __getattr__(self, name: str) -> Any:
        """Return what asks no event: the exit status, the time to wait."""
        return getattr(self._state, name)

    def take(self, event: Event) -> Watched:
        return self._then(type(event).__name__, self._state.take(event))

    def take_signal(self, number: int, *, already_there: bool) -> Watched:
        after = self._state.take_signal(number, already_there=already_there)
        return self._then("USR1" if number in (10, 12) else "stop", after)

    def lose_wrapper(self) -> Watched:
        return self._then("stop", self._state.lose_wrapper())

    def judge(self, now: float) -> Watched:
        return self._then("clock", self._state.judge(now))

    def _then(self, cause: str, after: State) -> Watched:
        runner, life, name = self._runner, self._life, type(after).__name__
        runner.reached[f"{cause}: {life.state} -> {'=' if name == life.state else name}"] += 1
        self._state, life.state = after, name
        until = self._guard.trust.until
        if until and until != self._until:
            runner.ledger.trusts(life, until - life.host.lease())
        self._until = until
        if after.exit_status is not None and not life.left:
            life.left = True
            runner.ledger.left(life)
        return self


class Runner:
    """Runs firings, and notes what becomes of them."""

    def __init__(
        self, kernel: Kernel, network: Network, ledger: Ledger, processes: Processes
    ) -> None:
        self._kernel, self._network, self.ledger = kernel, network, ledger
        self._processes = processes
        self.reached: Counter[str] = Counter()
        """How often each transition of the guard's states happened."""
        self.next: list[Callable[[Life], None]] = []
        """Faults that wait for the next firing to start its guard."""

    def fire(self, life: Life) -> None:
        life.wrapper = Process(self._kernel, life.host, None, "wrapper", life)
        life.renewed = partial(self.ledger.renewed, life)
        self._kernel.thread(life.wrapper, self._be_wrapper, life)

    def _be_wrapper(self, life: Life) -> None:
        kernel, host, key, process = self._kernel, life.host, life.key, life.wrapper
        life.spec = key.spec(host, process.pid, host.wall(), again=life.again)
        tick = life.spec.firing.tick.text
        kernel.trace("fire", host.name, key.name, tick, life.spec.firing.owner)
        kernel.sleep_until(kernel.now + life.startup)
        kernel.point()

        def open_store() -> SimulatedStore:
            return steady(SimulatedStore(self._network, life), ADDRESS, None)

        try:
            life.status = supervise(
                *(life.spec, open_store, self._processes), lambda guard: Watched(self, life, guard)
            )
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._found_bug(error)
        life.ended = kernel.now
        kernel.trace("exit", host.name, key.name, tick, life.status)
        kernel.exit(process, (life.status or 0) << 8)

    def forked(self, guard: Process) -> None:
        """Note a new guard; let a fault that waits for it happen."""
        guard.life.guard = guard
        if self.next:
            self.next.pop()(guard.life)

    def said(self, text: str) -> None:
        process = self._kernel.current.process
        self._kernel.trace("says", process.host.name, text)
        self.ledger.says(process.life, text)
        if "internal error" in text and "SimulatedBugError" not in text:
            self._found_bug(sys.exception())

    def _found_bug(self, error: BaseException) -> None:
        process = self._kernel.current.process
        where = traceback.extract_tb(error.__traceback__)[-1].name
        text = f"{process.name}: {type(error).__name__}: {error} ({where})"
        self.ledger.violation("bug", text, process.life)
