"""The faults of hosts, their processes, networks and clocks: each a kind that can be begun and undone.

What could not be done, because nothing ran that it could reach, is not done.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from oncecron_drill.firing_hosts import FiringHost, Tree, firing_of
from oncecron_drill.generator import ITEM_KEYS, KEYS, TTL
from oncecron_drill.history import Firing
from oncecron_drill.processes import Process, process_table, send
from oncecron_drill.proxy import FaultProxy

LATE = 0.94 * TTL / 6
"""Just within the time for which a renewal is waited for, in seconds."""
JUST = 1.5
TICKS = os.sysconf("SC_CLK_TCK")
OUTLIVING = {key.name for key in KEYS if key.seconds > TTL}
_OF_ITEMS = {key.name for key in ITEM_KEYS}
BEYOND = (TTL * 1.5, TTL * 2)
"""Seconds until a lease that is not renewed is certainly over, and another has seen it, and started."""
FURTHEST_STEP = 90.0
"""Seconds by which a host's clock is set at most."""
BACK = 20.0
"""By so many seconds a clock is set back."""
BRIEFLY = (0.5, TTL / 3)
"""Seconds that a renewal can always wait."""
ROLES = ("wrapper", "guard", "job")
KILLED, STOPPED, POWERLESS, FROZEN = (
    "a process killed", "a process stopped", "host without power", "host frozen briefly",
)  # fmt: skip
CLOCK, CUT, SLOW = "clock set", "connections cut", "answers late or lost"
"""Classes of faults."""
BOTH_KILLED, BOTH_STOPPED, LONG_FROZEN = OUTSIDE = (
    "both processes killed together", "both processes stopped together", "host frozen for longer than its lease",
)  # fmt: skip
"""Those under which docs/guarantees.md promises nothing: nobody is left who could end a job whose lease is over."""
Hit = list[tuple[int, str, str]]
Done = tuple[str, Hit]
"""A detail for the history, and whom a signal reached."""


class Kind(NamedTuple):
    """A kind of fault of one host; `undo` is called once, after so many seconds.

    Of one group a host has one at a time, for undoing the one would undo the other.
    """

    group: str
    name: str
    seconds: tuple[float, float]
    begin: Callable[[], Done | None]
    undo: Callable[[], None]
    weight: float = 1.0
    then: tuple[float, Callable[[], object]] | None = None
    """What is done besides when it has lasted for so many seconds."""
    fresh: bool = False
    """Whether it needs a job that has just begun and will outlive its lease."""
    of: str = ""
    """Its class: what a certificate counts."""


class StoreFault(NamedTuple):
    """Something that befalls the store, of its own accord or by its operator.

    One at a time: two together may do what nobody promises to survive, as losing the standby and then the primary.
    """

    kind: str
    begin: Callable[[Random], str]
    """Do it, and return a detail for the history."""
    undo: Callable[[], None]
    """Return when the store is well again; does no harm when it already is."""
    seconds: tuple[float, float]
    """How long it may last."""


class HostFaults:
    """What can be done to one host; `firings` tells which of its firings live."""

    def __init__(
        self, host: FiringHost, proxies: Sequence[FaultProxy], random: Random, firings: Callable[[], list[Firing]],
        *, outside: bool = True,
    ) -> None:  # fmt: skip
        """Take the proxies in front of the store for this host alone; `outside`: also what the promise leaves out."""
        self.host = host
        self.random = random
        self._firings = firings
        self._proxies = proxies
        self._outside = outside
        self._stopped: list[Process] = []

    def kinds(self) -> list[Kind]:
        """Return all that is possible here."""
        found = [*self._of_processes(), *self._of_the_machine(), *self.further()]
        if self._proxies:
            found += self._of_the_proxies()
        return [kind for kind in found if self._outside or kind.of not in OUTSIDE]

    def further(self) -> list[Kind]:
        """Return what is possible besides, where a host is more than its processes."""
        return []

    def _of_processes(self) -> list[Kind]:
        both, guard, wrapper, job = ROLES[:2], ("guard",), ("wrapper",), ("job",)
        if self.host.is_foreign:  # one process may be killed; all that could act may be stopped
            return [
                self._killing("the wrapper", wrapper, 2.0),
                self._killing("the job", job, 1.5),
                self._stopping("the wrapper", both, (1, 2 * TTL), 1.5),
                self._stopping("the job", job, (1, 2 * TTL)),
                self._stopping("the wrapper of a new job", both, BEYOND, new=True),
                self._killing("the wrapper of a new job", wrapper, new=True),
            ]
        return [
            *(self._killing(f"the {role}", (role,), 1.5) for role in ROLES),
            self._killing("wrapper and guard", both, 0.5),
            *(self._stopping(f"the {role}", (role,), (1, 2 * TTL)) for role in ROLES),
            self._stopping("wrapper and guard", both, (4, 12), 0.5),
            self._stopping("the guard of a new job", guard, BEYOND, new=True),
            self._stopping("wrapper and guard of a new job", both, BEYOND, 0.5, new=True),
            self._killing("the wrapper of a new job", wrapper, new=True),
        ]

    def _killing(
        self, whom: str, roles: Sequence[str], weight: float = 1.0, *, new: bool = False
    ) -> Kind:
        begin = partial(self._kill, roles, new=new)
        of = KILLED if len(roles) == 1 else BOTH_KILLED
        return Kind("processes", f"kill {whom}", (0, 0), begin, _nothing, weight, fresh=new, of=of)

    def _stopping(
        self, whom: str, roles: Sequence[str], seconds: tuple[float, float], weight: float = 1.0, *, new: bool = False
    ) -> Kind:  # fmt: skip
        begin = partial(self._stop, roles, new=new)
        of, undo = STOPPED if len(roles) == 1 else BOTH_STOPPED, self._go_on
        return Kind("processes", f"stop {whom}", seconds, begin, undo, weight, fresh=new, of=of)

    def _of_the_machine(self) -> list[Kind]:
        host = self.host

        def power_off() -> Done:
            return self._everything("killed", host.power_off)

        def freeze() -> Done:
            return self._everything("stopped", host.freeze)

        found = [
            Kind("processes", "power off the host", (0, 0), power_off, _nothing, of=POWERLESS),
            Kind("processes", "freeze the host", BRIEFLY, freeze, host.thaw, of=FROZEN),
            Kind(
                "processes", "freeze the host for long", BEYOND, freeze, host.thaw, of=LONG_FROZEN
            ),
        ]
        if host.has_clock:
            undo = self._right_clock
            found.append(
                Kind("clock", "step the clock", (3, 20), self._step_clock, undo, 2, of=CLOCK)
            )
        return found

    def _of_the_proxies(self) -> list[Kind]:
        passing = self._forward
        # The answer to one renewal comes as late as it may, and then no other does.
        late_then_silent = Kind(
            "proxy", "late answers, then silence", BEYOND, self._late_answers, passing,
            then=(TTL / 3, lambda: self._tell("deaf")), fresh=True, of=CUT,
        )  # fmt: skip
        found = [
            late_then_silent,
            Kind("proxy", "delay", (2, 12), self._delay, passing, 2, of=SLOW),
            Kind("proxy", "a deaf proxy", (1, 12), lambda: self._tell("deaf"), passing, of=CUT),
            Kind("proxy", "a proxy that forwards one way", (1, 12), self._one_way, passing, of=CUT),
            Kind("proxy", "a proxy that resets", (1, 6), lambda: self._tell("reset"), passing, of=CUT),
            Kind("proxy", "refuse connections", (6, 14), self._refuse, passing, of=CUT),
            Kind("proxy", "sever the connections", (0, 0), lambda: self._tell("sever"), _nothing, of=CUT),
            Kind("proxy", "lose an answer", (2, 4), self._lose_an_answer, passing, 2, of=SLOW),
        ]  # fmt: skip
        if self.host.has_clock:
            name = "set the clock back, then silence"
            undo = self._set_and_forward
            found.append(
                Kind("proxy", name, BEYOND, self._back_and_deaf, undo, fresh=True, of=CLOCK)
            )
        return found

    # What they do

    def _tell(self, order: str, *values: object) -> Done:
        for proxy in self._proxies:
            getattr(proxy, order)(*values)
        return " ".join(map(str, values)), []

    def _forward(self) -> None:
        self._tell("passing")

    def _refuse(self) -> Done:
        self._tell("refuse")
        return self._tell("sever")

    def _delay(self) -> Done:
        return self._tell("delay", round(self.random.uniform(0.02, 0.48), 2))

    def _one_way(self) -> Done:
        return self._tell("one_way", self.random.choice(["server", "client"]))

    def _lose_an_answer(self) -> Done:
        """Of any request, or of the next claim, told by a word that only oncecron's claims have."""
        of_a_claim = b"if_version" if self.host.store.startswith("redis") else b"grant_v1"
        if self.host.is_foreign or self.random.random() < 0.3:
            return self._tell("drop_next_reply", self.random.randint(1, 4))
        return self._tell("drop_next_reply", 1, of_a_claim)

    def _late_answers(self) -> Done | None:
        if not self.has_just_begun():
            return None
        for proxy in self._proxies:
            proxy.delay(LATE, towards="client")
        return f"{LATE:g} s", []

    def _back_and_deaf(self) -> Done | None:
        if not self.has_just_begun():
            return None
        self.host.give_clock(self.host.offset - BACK)
        self._tell("deaf")
        return f"{-BACK:+g} s", []

    def _set_and_forward(self) -> None:
        self.host.give_clock(self.host.offset + BACK)
        self._forward()

    def has_just_begun(self, table: Sequence[Process] | None = None) -> bool:
        """Return whether a job runs here that will outlive its lease, if nobody ends it; `table` spares reading all."""
        return any(_is_new(firing, tree) for firing, tree in self._trees(table))

    def _kill(self, roles: Sequence[str], *, new: bool = False) -> Done | None:
        return self._signal(roles, signal.SIGKILL, "killed", new=new)

    def _stop(self, roles: Sequence[str], *, new: bool = False) -> Done | None:
        return self._signal(roles, signal.SIGSTOP, "stopped", new=new)

    def _go_on(self) -> None:
        send(self._stopped, signal.SIGCONT)

    def _trees(self, table: Sequence[Process] | None = None) -> list[tuple[Firing, Tree]]:
        firings = self._firings()
        self.random.shuffle(firings)
        if table is None:
            table = process_table() if firings else []
        trees = [
            (firing, Tree(self._wrapper(firing, table), table, has_guard=not self.host.is_foreign))
            for firing in firings
        ]
        return [(firing, tree) for firing, tree in trees if tree.job]

    def _wrapper(self, firing: Firing, table: Sequence[Process]) -> int:
        # `each` forks a firing for each of its slots.
        wrappers = [process.pid for process in table if process.parent == firing.pid]
        is_each = firing.key in _OF_ITEMS
        return self.random.choice(wrappers) if is_each and wrappers else firing.pid

    def _signal(
        self, roles: Sequence[str], number: int, how: str, *, new: bool = False
    ) -> Done | None:
        for firing, tree in self._trees():
            if (not new or _is_new(firing, tree)) and tree.signal(roles, number):
                self._stopped = tree.parts(roles)
                return firing.key, [(firing.id, role, how) for role in roles]
        return None

    def _everything(self, how: str, step: Callable[[], None]) -> Done:
        # Also of those whose wrapper is gone already.
        firings = {firing_of(process.pid) for process in self.host.processes()}
        hit = [(firing, role, how) for firing in sorted(filter(None, firings)) for role in ROLES]
        step()
        return "", hit

    def _step_clock(self) -> Done:
        seconds = self.random.choice([-FURTHEST_STEP, -20.0, -3.0, 3.0, 20.0, FURTHEST_STEP])
        self.host.give_clock(seconds)
        return f"{seconds:+g} s", []

    def _right_clock(self) -> None:
        self.host.give_clock(0)


def _is_new(firing: Firing, tree: Tree) -> bool:
    booted = time.clock_gettime(time.CLOCK_BOOTTIME)
    return firing.key in OUTLIVING and booted - tree.job[0].started / TICKS < JUST


def _nothing() -> None:
    return
