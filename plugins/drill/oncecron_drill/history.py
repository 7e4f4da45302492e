"""What happened in one run, in the words that hosts, generator and nemesis write and the checker reads.

Everything carries one clock, CLOCK_MONOTONIC in seconds, which all namespaces of the machine share and no fault moves.
A run leaves a directory:

    history.ndjson   what we did: the run's head, firings, faults, people's commands, and their ends; one object a line
    journal/KEY/*    what the children wrote themselves (witness.py), one file a start
    items/KEY        what the commands of `each` wrote of their items (letters.py)
    log.json         what the product says of it afterwards: executions, skips, and what is left behind
    stderr/*         what each firing printed
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

CALM_TICK = "calm"
"""The tick that each key with items is fired for when all is quiet."""


@dataclasses.dataclass
class Firing:
    """One `oncecron run`, or one `oncecron each`; `pid` is that of the process that cron would start.

    One that is killed from outside has no status of its own.
    """

    id: int
    at: float
    host: str
    key: str
    tick: str | None
    """As given by `--tick`; None where a host's clock names it, or nothing does."""
    command: list[str]
    pid: int
    ended: float | None = None
    status: int | None = None
    """As Popen has it: negative for a signal."""
    stderr: str = ""


@dataclasses.dataclass
class Fault:
    """Something the nemesis did, from `at` until it was undone; a kill is undone at once. Or what the pulse felt."""

    id: int
    at: float
    kind: str
    target: str
    """The host, or `store`."""
    detail: str = ""
    hit: list[tuple[int, str, str]] = dataclasses.field(default_factory=list)
    """Whom a signal reached: (firing, role, what); role: wrapper, guard or job (all of the tree); what: `killed`,
    `stopped`, `signalled` by what it may handle, or `failed` by a bug that was put there."""
    healed: float | None = None
    group: str = ""
    """What of a host it befalls: processes, clock, disk, proxy or network; empty for the store."""


@dataclasses.dataclass
class Operation:
    """What a person did meanwhile: one command besides `run`, typed on a host."""

    id: int
    at: float
    host: str
    words: list[str]
    """From its name on: `pause KEY`, `resume --all`, `drain HOST`, `stop KEY`, `release KEY`."""
    ended: float | None = None
    status: int | None = None
    """As Popen has it: negative for a signal."""
    stdout: str = ""
    stderr: str = ""

    @property
    def subject(self) -> str:
        """The key or the host; `--all`."""
        return self.words[1]


@dataclasses.dataclass
class Start:
    """One start of a job with all that descends from it, as they wrote it in one file.

    All of them hold the file's lock (flock), so that it is free when none of them lives, and not before.
    """

    file: str
    at: float
    host: str
    pid: int
    wrapper: int
    """The pid of its firing."""
    key: str
    shard: str | None
    tick: str | None
    attempt: int
    token: int | None
    execution_id: int | None
    last_sign: float
    """When something of it certainly still lived."""
    own_sign: float | None = None
    """When the job's own process did, and not only what it has left running."""
    overlaps: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    """The files of the same key and shard that it found locked at its start: others that lived."""
    ended: float | None = None
    status: int | None = None
    """With which the job itself says that it ends."""
    signals: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    fenced: list[tuple[float, bool]] = dataclasses.field(default_factory=list)
    """Its writes under its fencing token, and whether they were accepted."""
    lives: bool = False
    """Something of it lived when the run was over."""
    claimed: float | None = None
    """When its lease was granted, where that is known."""


@dataclasses.dataclass
class ItemEvent:
    """A line that a command of `each` wrote of one item."""

    key: str
    event: str
    """begin, end, or overlap: another command that worked on it lived."""
    item: str
    tick: str
    firing: int
    at: float


@dataclasses.dataclass
class Log:
    """What the product and the store say when all is over and every spool was delivered."""

    executions: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """The rows of `oncecron history --format json`."""
    skips: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """The rows of `oncecron history --skips --format json`."""
    findings: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """The rows of `oncecron audit --format json`."""
    left: list[str] = dataclasses.field(default_factory=list)
    """Leases, locks, sessions, processes, files and undelivered records that should be gone, each in a sentence."""
    items: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """The rows of `oncecron items KEY --tick TICK --format json`."""
    register: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    """(key, token) of the accepted writes of fenced jobs, in their order."""


@dataclasses.dataclass
class Never:
    """What a store must never do, as a session saw it that asks the store each second."""

    rule: str
    sentence: str
    at: float


@dataclasses.dataclass
class Seen:
    """What was seen of a store from outside while a drill went on."""

    store: str = ""
    """Its address, without a password."""
    version: str = "unknown"
    """With its name: `PostgreSQL 17.2`."""
    topology: list[str] = dataclasses.field(default_factory=list)
    """A sentence for each server or role."""
    events: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """When, and what."""
    never: list[Never] = dataclasses.field(default_factory=list)
    unproxied: str = ""
    """Why no connection could be cut; empty if they could be."""
    unread: str = ""
    """Why the log could not be read in the end; empty if it was."""


@dataclasses.dataclass
class Control:
    """What a plain lock has shown under the same faults: a drill that does not catch it cannot judge."""

    together: int = 0
    """How often two jobs of a key lived at once."""
    faults: int = 0
    """How many have hit."""
    starts: int = 0
    said: str = ""
    """The last line of a lock that failed, empty if none did."""


@dataclasses.dataclass
class History:
    """All of it."""

    head: dict[str, Any]
    """seed, store, minutes, ttl, hosts, keys: what was asked for; `wall`: this clock's zero, since the epoch."""
    firings: list[Firing]
    faults: list[Fault]
    starts: list[Start]
    log: Log
    quiet: float
    """When the last fault was undone, and everything resumed."""
    end: float
    operations: list[Operation] = dataclasses.field(default_factory=list)
    items: list[ItemEvent] = dataclasses.field(default_factory=list)
    """What the commands of `each` wrote. Its firings and its rows are not among those of `run`."""
    seen: Seen = dataclasses.field(default_factory=Seen)
    control: Control = dataclasses.field(default_factory=Control)


class Recorder:
    """Writes history.ndjson as it happens, so that a run which dies has one too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.firings: dict[int, Firing] = {}
        self.faults: dict[int, Fault] = {}
        self.operations: dict[int, Operation] = {}
        self._file = (directory / "history.ndjson").open("w")

    def head(self, **values: Any) -> None:
        """Say what was asked for."""
        self._write("head", values)

    def firing(self, firing: Firing) -> None:
        """Record a firing: when it begins, and again when it has ended."""
        self.firings[firing.id] = firing
        self._write("firing", dataclasses.asdict(firing))

    def fault(self, fault: Fault) -> None:
        """Record a fault: when it begins, and again when it is undone."""
        self.faults[fault.id] = fault
        self._write("fault", dataclasses.asdict(fault))

    def operation(self, operation: Operation) -> None:
        """Record what a person does: when it begins, and again when it has ended."""
        self.operations[operation.id] = operation
        self._write("operation", dataclasses.asdict(operation))

    def moment(self, name: str) -> None:
        """Record `quiet` or `end`."""
        self._write(name, {"at": now()})

    def close(self) -> None:
        """Say no more."""
        self._file.close()

    def _write(self, event: str, values: dict[str, Any]) -> None:
        self._file.write(json.dumps({"event": event, **values}) + "\n")
        self._file.flush()


def now() -> float:
    """Return the time of all events, in seconds."""
    return time.monotonic()


class LedgerError(Exception):
    """A ledger is not whole: its disk had no room."""


def load(directory: Path) -> History:
    """Read a run's directory; an event that is recorded twice counts as it was last. Raises `LedgerError`."""
    try:
        return _load(directory)
    except ValueError as error:
        raise LedgerError("a ledger has a line that is not whole") from error


def _load(directory: Path) -> History:
    head: dict[str, Any] = {}
    firings: dict[int, Firing] = {}
    faults: dict[int, Fault] = {}
    operations: dict[int, Operation] = {}
    moments: dict[str, float] = {}
    for line in (directory / "history.ndjson").read_text().splitlines():
        values = json.loads(line)
        match values.pop("event"):
            case "head":
                head = values
            case "firing":
                firings[values["id"]] = Firing(**values)
            case "fault":
                values["hit"] = [tuple(hit) for hit in values["hit"]]
                faults[values["id"]] = Fault(**values)
            case "operation":
                operations[values["id"]] = Operation(**values)
            case moment:
                moments[moment] = values["at"]
    log = json.loads((directory / "log.json").read_text())
    log["register"] = [tuple(write) for write in log["register"]]
    of_items = set(head.get("items", ()))
    for rows in ("executions", "skips"):
        log[rows] = [row for row in log[rows] if row["key"] not in of_items]
    firings = {number: each for number, each in firings.items() if each.key not in of_items}
    files = sorted((directory / "journal").glob("*/*"))
    found = (_start(file, firings) for file in files)
    starts = sorted(filter(None, found), key=lambda start: start.at)
    return History(
        head, list(firings.values()), list(faults.values()), starts,
        Log(**log), moments["quiet"], moments["end"], list(operations.values()),
        [event for key in sorted(of_items) for event in _items(directory / "items" / key)],
    )  # fmt: skip


def _items(ledger: Path) -> list[ItemEvent]:
    whole = ledger.read_text().splitlines() if ledger.exists() else []
    return [ItemEvent(ledger.name, **json.loads(line)) for line in whole]


def _start(file: Path, firings: dict[int, Firing]) -> Start | None:
    """Read what the processes of one start wrote; None when it died before its first line was whole."""
    whole, _, _ = file.read_text().rpartition("\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    if not lines or lines[0]["event"] != "start":
        return None
    first = lines[0]
    del first["event"]
    firing = firings[first.pop("firing")]
    start = Start(
        file=f"{file.parent.name}/{file.name}",
        wrapper=firing.pid,
        last_sign=first["at"],
        own_sign=first["at"],
        **first,
    )
    for line in lines[1:]:
        at = line["at"]
        start.last_sign = max(start.last_sign, at)
        if line.get("pid") == start.pid:  # that something lives in the end is the drill's own line
            start.own_sign = at
        match line["event"]:
            case "overlap":
                start.overlaps.append((at, f"{file.parent.name}/{line['with']}"))
            case "signal":
                start.signals.append((at, line["name"]))
            case "fenced":
                start.fenced.append((at, line["accepted"]))
            case "end":
                start.ended, start.status = at, line["status"]
            case "lives":
                start.lives = True
    return start
