"""The drill: make a namespace, fire and strike in it, judge, and remove it; nothing is left, also after Ctrl-C.

Nothing here judges: `assess` does, by the rules of the checker, from what the jobs wrote themselves.
"""

import contextlib
import dataclasses
import json
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from oncecron.core.errors import StoreError, StoreRefusesError, UsageError
from oncecron.core.installation import own_command
from oncecron.core.log_rows import HistoryQuery, Roles
from oncecron.core.stderr import complain
from oncecron.drill import history
from oncecron.drill.assess import Told, assess
from oncecron.drill.certificate import Certificate
from oncecron.drill.faults import OUTLIVING
from oncecron.drill.generator import ITEM_KEYS, KEYS, Key
from oncecron.drill.history import Fault, Log, now
from oncecron.drill.hosts import FiringHost
from oncecron.drill.nemesis import Pace
from oncecron.drill.place import Place, make_hosts
from oncecron.drill.processes import send
from oncecron.drill.run import Run, UnreadableError, Wanted
from oncecron.drill.watch import FORGETFUL, Progress, Watch
from oncecron.stores import open_reader
from oncecron.stores.address import Address
from oncecron.stores.drilled import open_drilled
from oncecron.stores.reader import Reader

PREFIX = "oncecron_drill"
"""How the name of each namespace of a drill begins; the drill uses no other."""
ORDER = (
    *("stubborn", "leader", "gives-up", "failover", "shared", "letters", "limited", "schedule"),
    *("long", "quick", "retries", "parts", "payments", "forks", "again", "persists"),
    *("fails", "overtaken", "waits", "minute", "alone", "instants", "daemon", "loud"),
)
"""The keys of a drill; with fewer, the first ones. What is fenced writes elsewhere, and a drill does not."""
MOST_KEYS = len(ORDER)
MOST_HOSTS = 20
GAP, MOST_AT_ONCE = 0.8, 10
"""Seconds between two faults, on average, and how many last at a time."""
FAVOUR = {
    "late answers, then silence": 2.0, "a proxy that resets": 2.0, "lose an answer": 2.0, "refuse connections": 2.0,
    "step the clock": 0.3,
}  # fmt: skip
"""What shows a hole only at the right moment is tried more often."""
FRESH = 0.3
"""How likely each look for a job that has just begun strikes it."""
SELDOM = 0.2
"""How likely a host is struck that has no long job, against one that has one."""
JUST = 1.0
"""Seconds after which a firing of a long job that still lives is likely to be the one that runs it."""
PULSE = 1.0
"""Seconds between two beats."""
FULL = "disk full"
FULL_ID = 3_000_001
SWEEPS = 5
"""How often what still runs is looked for; each may have started another one before it was stopped."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What a drill is asked for; `namespace`: one that a DBA has prepared, None to make one."""

    address: Address
    store: str
    """The address as people read it, without a password."""
    minutes: float
    hosts: int
    keys: int
    seed: int
    namespace: str | None = None

    @property
    def chosen(self) -> tuple[Sequence[Key], Sequence[Key]]:
        """The keys of `run`, and those of `each`."""
        names = ORDER[: self.keys]
        return [key for key in KEYS if key.name in names], [
            key for key in ITEM_KEYS if key.name in names
        ]

    @property
    def firings_a_second(self) -> float:
        """How many firings a second all hosts begin together, on average."""
        plain, of_items = self.chosen
        return self.hosts * sum(1 / key.period for key in (*plain, *of_items))


def drill(request: Request, progress: Progress) -> Certificate:
    """Put a store to the proof. Raises `OncecronError`; KeyboardInterrupt ends it, and it leaves nothing behind."""
    with contextlib.ExitStack() as stack:
        namespace = _namespace(request, stack)
        store = open_drilled(request.address, namespace)
        stack.callback(store.close)
        store.prepare()
        watch = Watch(store)
        watch.look()
        directory = Path(tempfile.mkdtemp(prefix="oncecron-drill-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        place = Place(store, watch, request.address, namespace)
        stack.callback(place.close)
        random = Random(f"{request.seed} hosts")
        hosts = make_hosts(request.hosts, random, place, directory, namespace, request.address)
        stack.callback(_end_all, hosts)
        operator = stack.enter_context(ThreadPoolExecutor(1, "operator"))
        plain, of_items = request.chosen
        wanted = Wanted(
            request.address.kind, request.seed, request.minutes, directory, own_command(), plain, of_items,
            pulse=PULSE,
        )  # fmt: skip
        run = DrillRun(wanted, hosts, place, operator, watch, progress)
        stack.callback(run.close)
        began_at = time.time()
        stack.callback(watch.stop)
        watch.start()
        unread = ""
        try:
            run.go()
        except UnreadableError as error:
            unread = str(error)
            run.give_up()
        told = Told(request.store, request.hosts, request.keys, began_at, store.unproxied, unread)
        return assess(history.load(directory), watch, told)


def _namespace(request: Request, stack: contextlib.ExitStack) -> str:
    """Make a namespace, which is removed in the end; or take the one that is prepared, if nothing has used it yet."""
    given = request.namespace
    if given is not None and not given.startswith(PREFIX):
        raise UsageError(
            f"--namespace: {given!r} may be in use; a drill takes one whose name begins with {PREFIX}"
        )
    name = given or f"{PREFIX}_{secrets.token_hex(4)}"
    with contextlib.closing(open_reader(request.address, name)) as reader:
        if given is None:
            _make(request.address, name, reader)
            stack.callback(_remove, request.address, name)
        elif next(iter(reader.history(HistoryQuery(limit=1))), None):
            raise StoreRefusesError(
                f"the namespace {name} has records of another drill; prepare a new one"
            )
    return name


def _make(address: Address, name: str, reader: Reader) -> None:
    """Make the namespace. Where this role may not, the error has the command for whoever may."""
    with contextlib.closing(open_drilled(address, name)) as store:
        role = store.role()
    roles = () if role is None else (role,)
    try:
        reader.initialise(Roles(run=roles, read=roles))
    except StoreRefusesError as error:
        raise StoreRefusesError(f"{error}; then drill with --namespace {name}") from error


def _remove(address: Address, name: str) -> None:
    """Remove the namespace; what cannot be removed is told."""
    try:
        with contextlib.closing(open_drilled(address, name)) as store:
            store.remove()
    except StoreError as error:
        complain(f"the namespace {name} of this drill is left: {error}")


def _end_all(hosts: Sequence[FiringHost]) -> None:
    """Kill what still runs on any host."""
    for _ in range(SWEEPS):
        living = [process for host in hosts for process in host.processes()]
        if not living:
            return
        send(living, signal.SIGSTOP)
        send(living, signal.SIGKILL)


class DrillRun(Run):
    """A run in the user's store, which the watch looks at."""

    def __init__(
        self, wanted: Wanted, hosts: Sequence[FiringHost], place: Place, operator: ThreadPoolExecutor, watch: Watch,
        progress: Progress,
    ) -> None:  # fmt: skip
        super().__init__(wanted, hosts, place, operator, lambda _: None)
        self._watch = watch
        self._progress = progress
        self._full = [
            Fault(FULL_ID + number, now(), FULL, host.name)
            for number, host in enumerate(hosts)
            if host.is_full
        ]

    def head(self) -> dict[str, Any]:
        """Say too after what a store may have forgotten what it had confirmed."""
        return super().head() | {"loses": FORGETFUL}

    def pace(self) -> Pace:
        """Strike often, and mostly where a job runs that outlives its lease."""
        return Pace(GAP, MOST_AT_ONCE, self._weight, FAVOUR, FRESH)

    def _weight(self, name: str) -> float:
        since = now() - JUST
        firings = self.firings_of(self.hosts[name])
        return SELDOM + sum(each.key in OUTLIVING and each.at < since for each in firings)

    def begin(self) -> None:
        """Record whose disk is full."""
        for fault in self._full:
            fault.at = now()
            self.recorder.fault(fault)

    def calm(self) -> None:
        """Give the hosts room again."""
        for fault in self._full:
            self.hosts[fault.target].is_full = False
            fault.healed = now()
            self.recorder.fault(fault)

    def give_up(self) -> None:
        """Record that nobody knows what the log says."""
        (self.wanted.directory / "log.json").write_text(json.dumps(dataclasses.asdict(Log())))

    def feel(self) -> None:
        """Take what the watch has seen too."""
        super().feel()
        for fault in self._watch.faults():
            self.recorder.fault(fault)

    def say_how_far(self) -> None:
        """Say it at each turn; whoever shows it does so when it likes."""
        faults = sum(1 for fault in self.recorder.faults.values() if fault.target != "store")
        seen = len(self._watch.found)
        known = f"{seen} violation{'s' * (seen > 1)} so far" if seen else "judged at the end"
        self._progress(
            self.elapsed, f"{len(self.recorder.firings)} firings, {faults} faults, {known}"
        )
