"""The nemesis: draws faults from a seed, several at once, and undoes each after its time.

Faults of hosts stand in faults.py; those of a store are given and are carried out one at a time by the
operator, the thread that keeps the servers.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from random import Random

from oncecron_drill.faults import HostFaults, Kind, StoreFault
from oncecron_drill.history import Fault, Recorder, now
from oncecron_drill.processes import process_table

MOST_AT_ONCE = 5
GAP, SOON = 2.0, 0.1
"""Seconds between two faults, on average; and until the next try where nothing was to be broken."""


LOOK = 0.3
"""Seconds between two looks for such jobs."""


@dataclass(frozen=True)
class Pace:
    """How hard it strikes."""

    gap: float
    """Seconds between two faults, on average."""
    most: int
    """How many last at a time."""
    weigh: Callable[[str], float] = lambda _: 1.0
    """How likely a target is, by its name, against the others."""
    favour: Mapping[str, float] = field(default_factory=dict)
    """By how much kinds of faults are likelier than usual."""
    fresh: float = 0.0
    """How likely each look, several in a second, strikes a job that has just begun and will outlive its lease."""


USUAL = Pace(GAP, MOST_AT_ONCE)


@dataclass
class Running:
    """A fault that lasts. What the operator does for it is waited for by looking now and then."""

    fault: Fault
    until: float
    undo: Callable[[], None]
    operation: "Future[None] | None" = None
    undoing: bool = False
    then: tuple[float, Callable[[], object]] | None = None


class Nemesis:
    """Begins and undoes faults, whenever `step` is called."""

    def __init__(
        self, random: Random, hosts: Sequence[HostFaults], store_faults: Sequence[StoreFault], operator: Executor,
        recorder: Recorder, only: Callable[[str], bool], pace: Pace = USUAL,
    ) -> None:  # fmt: skip
        """`operator` is the one thread that keeps the store; `only` says which kinds are wanted."""
        self._pace = pace
        self._random = random
        self._recorder = recorder
        self._operator = operator
        self._ids = itertools.count(1)
        self._running: dict[str, Running] = {}
        self._hosts = {faults.host.name: faults for faults in hosts}
        self._kinds = {
            faults.host.name: [kind for kind in faults.kinds() if only(kind.name)]
            for faults in hosts
        }
        self._store_faults = [fault for fault in store_faults if only(fault.kind)]
        self._next = self._next_look = now() + GAP

    @property
    def kinds(self) -> dict[str, str]:
        """The class of each kind that may be begun at a host, by its name."""
        return {kind.name: kind.of for kinds in self._kinds.values() for kind in kinds}

    def step(self) -> None:
        """Do what is due."""
        for place, running in list(self._running.items()):
            if running.then and now() >= running.fault.at + running.then[0]:
                running.then[1]()
                running.then = None
            if now() >= running.until:
                self._undo(place, running)
        if len(self._running) >= self._pace.most:
            return
        if self._pace.fresh and now() >= self._next_look:
            self._next_look = now() + LOOK
            if self._random.random() < self._pace.fresh:
                self._begin_at_new_job()
        if now() >= self._next:
            begun = self._begin()
            self._next = now() + (self._random.expovariate(1 / self._pace.gap) if begun else SOON)

    def undo_all(self) -> bool:
        """End all that lasts; return whether nothing does."""
        for place, running in list(self._running.items()):
            self._undo(place, running)
        return not self._running

    def _begin(self) -> bool:
        targets = [name for name, kinds in self._kinds.items() if kinds]
        targets += ["store"] if self._store_faults else []
        if not targets:
            return False
        [target] = self._random.choices(targets, [self._pace.weigh(each) for each in targets])
        if target == "store":
            return self._begin_at_store(Fault(next(self._ids), now(), "", target))
        return self._begin_at_host(target, self._free(target))

    def _free(self, name: str) -> list[Kind]:
        """Return the kinds of a host of whose group none lasts."""
        kinds = self._kinds[name]
        return [kind for kind in kinds if f"{name} {kind.group}" not in self._running]

    def _begin_at_new_job(self) -> bool:
        table = process_table()
        for name in self._random.sample(list(self._hosts), len(self._hosts)):
            kinds = [kind for kind in self._free(name) if kind.fresh]
            if kinds and self._hosts[name].has_just_begun(table):
                return self._begin_at_host(name, kinds)
        return False

    def _begin_at_host(self, name: str, kinds: Sequence[Kind]) -> bool:
        if not kinds:
            return False
        weights = [kind.weight * self._pace.favour.get(kind.name, 1.0) for kind in kinds]
        [kind] = self._random.choices(kinds, weights)
        place = f"{name} {kind.group}"
        fault = Fault(next(self._ids), now(), kind.name, name, group=kind.group)
        done = kind.begin()
        if done is None:
            return False
        fault.detail, fault.hit = done
        seconds = self._random.uniform(*kind.seconds)
        if seconds:
            until = fault.at + seconds
            self._running[place] = Running(fault, until, kind.undo, then=kind.then)
        else:
            fault.healed = fault.at
        self._recorder.fault(fault)
        return True

    def _begin_at_store(self, fault: Fault) -> bool:
        if fault.target in self._running:
            return False
        chosen = self._random.choice(self._store_faults)
        fault.kind = chosen.kind
        random = Random(self._random.random())

        def begin() -> None:
            fault.detail = chosen.begin(random)

        until = fault.at + self._random.uniform(*chosen.seconds)
        operation = self._operator.submit(begin)
        self._running[fault.target] = Running(fault, until, chosen.undo, operation)
        self._recorder.fault(fault)
        return True

    def _undo(self, place: str, running: Running) -> None:
        operation = running.operation
        if operation is None:
            running.undo()
        elif not operation.done():
            return
        else:
            operation.result()
            if not running.undoing:
                running.undoing = True
                running.operation = self._operator.submit(running.undo)
                return
        del self._running[place]
        running.fault.healed = now()
        self._recorder.fault(running.fault)
