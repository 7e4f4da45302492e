"""The drill: make a namespace, fire and strike in it, judge. Its keeper removes all of it, however the drill ends.

Nothing here judges: `assess` does, by the rules of the checker, from what the jobs wrote themselves.
"""

import contextlib
import dataclasses
import errno
import json
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from oncecron import __version__
from oncecron.core.errors import OutputError, StoreError, StoreRefusesError, UsageError, reason_of
from oncecron.core.log_rows import HistoryQuery, Roles
from oncecron.host.installation import own_command
from oncecron.stores import open_reader
from oncecron.stores.address import Address
from oncecron.stores.reader import Reader
from oncecron_drill import history
from oncecron_drill.another_wrapper import Wrapper, is_for_another
from oncecron_drill.control import LONGEST, SECONDS, control, have_met, plain_lock
from oncecron_drill.faults import OUTLIVING
from oncecron_drill.firing_hosts import FiringHost
from oncecron_drill.generator import ITEM_KEYS, KEYS, Key
from oncecron_drill.history import Fault, History, Log, now
from oncecron_drill.keeper import PREFIX, Ground
from oncecron_drill.nemesis import Pace
from oncecron_drill.place import Place, make_hosts
from oncecron_drill.run_under_faults import Run, UnreadableError
from oncecron_drill.store_watch import FORGETFUL, Progress, Watch
from oncecron_drill.stores import DrilledStore, open_drilled
from oncecron_drill.stores.another import ANOTHER, AnotherServer
from oncecron_drill.wanted import Wanted

ORDER = (
    *("stubborn", "leader", "gives-up", "failover", "shared", "letters", "limited", "schedule"),
    *("long", "quick", "retries", "parts", "payments", "forks", "again", "persists"),
    *("fails", "overtaken", "waits", "minute", "alone", "instants", "daemon", "loud"),
)
"""The keys of a drill; with fewer, the first ones. What is fenced writes elsewhere, and a drill does not."""
GAP, MOST_AT_ONCE = 0.3, 10
"""Seconds between two faults, on average, and how many last at a time."""
FAVOUR = {
    "late answers, then silence": 2.0, "a proxy that resets": 2.0, "lose an answer": 2.0, "refuse connections": 2.0,
    "kill the wrapper": 2.0, "kill the guard": 2.0, "kill the job": 2.0,
    "step the clock": 0.3,
}  # fmt: skip
"""What shows a hole only at the right moment is tried more often, and what is over at once."""
FRESH = 0.3
"""How likely each look for a job that has just begun strikes it."""
SELDOM = 0.2
"""How likely a host is struck that has no long job, against one that has one."""
JUST = 1.0
"""Seconds after which a firing of a long job that still lives is likely to be the one that runs it."""
PULSE = 1.0
"""Seconds between two beats."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
FULL = "disk full"
FULL_ID = 3_000_001


@dataclasses.dataclass(frozen=True)
class Request:
    """What a drill is asked for; `namespace`: one that a DBA has prepared, None to make one."""

    address: Address | None
    """None where another wrapper fires: whatever it locks by, it finds itself."""
    store: str
    """The address, or the other wrapper, as people read it, without a password."""
    minutes: float
    hosts: int
    keys: int
    seed: int
    namespace: str | None = None
    outside: bool = True
    """Whether to try too what the promise leaves out."""
    wrapper: Wrapper | None = None
    """What fires instead of oncecron."""
    server: tuple[str, int] | None = None
    """Where the other wrapper's lock is, if a proxy is to stand in front of it."""

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return self.address.kind if self.address else ANOTHER

    @property
    def chosen(self) -> tuple[Sequence[Key], Sequence[Key]]:
        """The keys of `run`, and those of `each`."""
        every = {key.name: key for key in (*KEYS, *ITEM_KEYS)}
        names = [name for name in ORDER if not self.wrapper or is_for_another(every[name])]
        names = names[: self.keys]
        return [key for key in KEYS if key.name in names], [
            key for key in ITEM_KEYS if key.name in names
        ]

    def open(self, namespace: str) -> DrilledStore:
        """Return the store; it connects at the first call."""
        return open_drilled(self.address, namespace) if self.address else AnotherServer(self.server)

    @property
    def firings_a_second(self) -> float:
        """How many firings a second all hosts begin together, on average."""
        plain, of_items = self.chosen
        return self.hosts * sum(1 / key.period for key in (*plain, *of_items))


def drill(request: Request, ground: Ground, progress: Progress) -> History:
    """Put a store to the proof, on its ground; return what happened. Raises `OncecronError`, KeyboardInterrupt."""
    directory, namespace = ground.directory, request.namespace or ground.own_namespace
    with _on_its_disk(directory), contextlib.ExitStack() as stack:
        _claim_namespace(request, ground, namespace)
        stage = _stage(request, ground, namespace, progress, stack)
        beside = stage
        if request.address is None:  # which plain lock its server would have, nobody knows
            own = Address("sqlite", str(directory / "control.db"))
            with_own = dataclasses.replace(request, address=own, wrapper=None)
            beside = _stage(with_own, ground, namespace, progress, stack)
        with beside.run(ControlRun, "control", plain_lock(_interpreter())) as run:
            shown = control(run)
        with stage.run(DrillRun, wrapper=request.wrapper) as run:
            unread = ""
            try:
                run.go()
            except UnreadableError as error:
                unread = str(error)
                run.give_up()
        ledgers = history.load(directory)
        ledgers.seen = dataclasses.replace(
            stage.watch.seen(), store=request.store, unproxied=stage.store.unproxied, unread=unread
        )
        ledgers.control = shown
        return ledgers


def _stage(
    request: Request,
    ground: Ground,
    namespace: str,
    progress: Progress,
    stack: contextlib.ExitStack,
) -> "_Stage":
    store = request.open(namespace)
    stack.callback(store.close)
    store.prepare()
    watch = Watch(store)
    watch.look()
    stack.callback(watch.stop)
    watch.start()
    return _Stage(request, ground, namespace, store, watch, progress)


class _Stage(NamedTuple):
    """What the control and the drill itself have in common."""

    request: Request
    ground: Ground
    namespace: str
    store: DrilledStore
    watch: Watch
    progress: Progress

    @contextlib.contextmanager
    def run(
        self, kind: type["DrillRun"], where: str = "", wrapper: Wrapper | None = None
    ) -> Iterator["DrillRun"]:
        """Make hosts, with proxies, for a run that keeps its ledgers in a part of the directory."""
        request, directory = self.request, self.ground.directory / where
        directory.mkdir(mode=0o700, exist_ok=True)
        with contextlib.ExitStack() as stack:
            place = Place(self.store, self.watch, request.address, self.namespace)
            stack.callback(place.close)
            random = Random(f"{request.seed} hosts")
            hosts = make_hosts(
                request.hosts, random, place, directory, self.namespace, request.address
            )
            stack.callback(self.ground.end_processes)
            operator = stack.enter_context(ThreadPoolExecutor(1, "operator"))
            plain, of_items = request.chosen
            wanted = Wanted(
                request.kind, request.seed, request.minutes, directory, own_command(), plain, of_items,
                outside=request.outside, pulse=PULSE, wrapper=wrapper,
            )  # fmt: skip
            run = kind(wanted, hosts, place, operator, self.watch, self.progress)
            stack.callback(run.close)
            yield run


def _interpreter() -> list[str]:
    words = own_command()
    return words[: -2 if words[-2:-1] == ["-m"] else -1]


@contextlib.contextmanager
def _on_its_disk(directory: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, history.LedgerError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_ROOM:
            raise
        raise OutputError(
            f"not judged: the ledgers of the drill cannot be kept in {directory.parent}: {reason_of(error)}; make room "
            "there, or set TMPDIR to a directory that has some"
        ) from error


def check_namespace(name: str | None) -> None:
    """Raise `UsageError` for a namespace that may be in use."""
    if name is not None and not name.startswith(PREFIX):
        raise UsageError(
            f"--namespace: {name!r} may be in use; a drill takes one whose name begins with {PREFIX}"
        )


def _claim_namespace(request: Request, ground: Ground, name: str) -> None:
    if request.address is None:
        return
    with contextlib.closing(open_reader(request.address, name)) as reader:
        if request.namespace is None:
            _make(request.address, ground, reader)
        elif next(iter(reader.history(HistoryQuery(limit=1))), None):
            raise StoreRefusesError(
                f"the namespace {name} has records of another drill; prepare a new one"
            )


def _make(address: Address, ground: Ground, reader: Reader) -> None:
    name = ground.own_namespace
    with contextlib.closing(open_drilled(address, name)) as store:
        role = store.role()
    roles = () if role is None else (role,)
    ground.write_note(has_namespace=True)
    try:
        reader.initialise(Roles(run=roles, read=roles))
    except StoreError as error:
        ground.write_note(has_namespace=error.unanswered)
        if isinstance(error, StoreRefusesError):
            raise StoreRefusesError(f"{error}; then drill with --namespace {name}") from error
        raise


class DrillRun(Run):
    """A run in the user's store, which the watch looks at."""

    def __init__(
        self, wanted: Wanted, hosts: Sequence[FiringHost], place: Place, operator: ThreadPoolExecutor, watch: Watch,
        progress: Progress,
    ) -> None:  # fmt: skip
        super().__init__(wanted, hosts, place, operator)
        self._watch = watch
        self._progress = progress
        self._full = [
            Fault(FULL_ID + number, now(), FULL, host.name, group="disk")
            for number, host in enumerate(hosts)
            if host.is_full
        ]

    def head(self) -> dict[str, Any]:
        """Say too when it began, what fired, and after what a store may have forgotten what it had confirmed."""
        return super().head() | {
            "began_at": time.time(), "oncecron": __version__, "python": platform.python_version(), "loses": FORGETFUL,
            "kinds": self.nemesis.kinds | {fault.kind: FULL for fault in self._full},
        }  # fmt: skip

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


class ControlRun(DrillRun):
    """The run of a plain lock, until it has been caught."""

    _next_look = 0.0

    def is_long_enough(self) -> bool:
        """Return so too where it has not been, after a while."""
        if self.elapsed < max(self._next_look, min(SECONDS, self.wanted.minutes * 60)):
            return False
        self._next_look = self.elapsed + PULSE
        return self.elapsed >= LONGEST or have_met(self.journal)

    def say_how_far(self) -> None:
        """Say that the drill itself has not begun."""
        self._progress(0, f"control: a plain lock, {len(self.recorder.firings)} firings")
