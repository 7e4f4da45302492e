"""A history whose parts are joined: which firing a start belongs to, which row of the log, which faults it felt.

The log's times are of the store's clock, so that nothing is joined by them. A row belongs to a start by key, shard and
fencing token. Who executes is the wrapper's pid in both; pids come again, so that a start belongs to the
last firing before it that had that pid.
"""

import bisect
import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from oncecron.core.log_rows import Execution
from oncecron.core.units import parse_duration
from oncecron.log import protocol
from oncecron_drill.history import Fault, Firing, History, Operation, Start

MOMENT = 1.0
"""Seconds by which a recorded moment may be off: a deed and the line that tells of it are two steps."""

WAKING = 3.0
"""Seconds in which wrapper or guard, awake, has killed what it must: each looks at its clock once a second."""

RECORDING = 15.0
"""Seconds that a guard tries to record an end at most."""

FORGOTTEN = 2.0
"""Seconds before a failover of which a store that may forget (head: `loses`) can have lost what it acknowledged."""

HOLDS = ("proxy", "network")
"""Groups of faults in which what was sent may arrive when they are undone."""

UNDONE_BY = {"pause": "resume", "drain": "undrain"}
ENDED_BY = ("TERM", "INT", "QUIT")
"""Signals that ask a job to end."""

GRACE = 10.0
"""Seconds between TERM and KILL unless --grace says otherwise."""

Row = dict[str, Any]
Part = tuple[str, int]


class Out(NamedTuple):
    """When a process could not act."""

    since: float
    until: float
    killed: bool


class Joined:
    """A history and what belongs together in it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.counts: Counter[str] = Counter()
        """What rules count on their way."""
        hosts = history.head.get("hosts", ())
        self.hosts = {firing.host for firing in history.firings}
        self.hosts |= set() if isinstance(hosts, int) else set(hosts)
        self.parts: dict[Part, list[Start]] = defaultdict(list)
        self._firings: dict[tuple[str, int, str], list[Firing]] = defaultdict(list)
        for firing in sorted(history.firings, key=lambda firing: firing.at):
            self._firings[firing.host, firing.pid, firing.key].append(firing)
        self._rows: dict[tuple[Part, int], list[Row]] = defaultdict(list)
        for row in history.log.executions:
            if row["fencing_token"] is not None:
                self._rows[part_of_row(row), row["fencing_token"]].append(row)
        self._by_id = {firing.id: firing for firing in history.firings}
        self.starts = [start for start in history.starts if not self.is_unclaimed(start)]
        for start in sorted(self.starts, key=lambda start: start.at):
            self.parts[part_of(start)].append(start)

    @property
    def is_of_another(self) -> bool:
        """Return whether another wrapper than oncecron fired."""
        return self.history.head.get("promised") is not None

    # What belongs together

    def firing_of(self, start: Start) -> Firing | None:
        """Return the firing that a start belongs to."""
        firings = self._firings.get((start.host, start.wrapper, start.key), [])
        number = bisect.bisect(firings, start.at + MOMENT, key=lambda firing: firing.at)
        return firings[number - 1] if number else None

    def is_unclaimed(self, start: Start) -> bool:
        """Return whether it had no lease, and its firing gave up the promises (--on-store-error run)."""
        return start.token is None and gives_up(self.firing_of(start))

    def gave_up(self, row: Row) -> bool:
        """Return whether a row may be of a firing that started its job without a lease."""
        return any(map(gives_up, self._firings.get((row["host"], row["pid"], row["key"]), ())))

    @functools.cached_property
    def _starts(self) -> dict[int, list[Start]]:
        found: dict[int, list[Start]] = defaultdict(list)
        for start in self.history.starts:
            if firing := self.firing_of(start):
                found[firing.id].append(start)
        return found

    def starts_of(self, firing: Firing) -> list[Start]:
        """Return the starts of a firing."""
        return self._starts.get(firing.id, [])

    def rows_of(self, start: Start) -> list[Row]:
        """Return the rows of the log with the token of a start."""
        return [] if start.token is None else self._rows.get((part_of(start), start.token), [])

    @functools.cached_property
    def startless(self) -> list[tuple[Row, Firing | None]]:
        """The rows that no start belongs to, each with the firing that it is of."""
        tokens = {(part_of(start), start.token) for start in self.history.starts}
        rows = [
            row
            for row in self.history.log.executions
            if row["fencing_token"] is None or (part_of_row(row), row["fencing_token"]) not in tokens
        ]  # fmt: skip
        taken: set[int] = set()
        joined = []
        for row in sorted(rows, key=lambda row: row["fencing_token"] or 0):
            firing = self._firing_of_row(row, taken)
            if firing:
                taken.add(firing.id)
            joined.append((row, firing))
        return joined

    def _firing_of_row(self, row: Row, taken: set[int]) -> Firing | None:
        candidates = [
            firing
            for firing in self._firings.get((row["host"], row["pid"], row["key"]), [])
            if firing.tick in (None, row["tick"]) or option(firing, "--catch-up")
        ]
        for firing in candidates:
            if firing.id not in taken and not self.starts_of(firing):
                return firing
        return next((each for each in candidates if goes_on(each) or gives_up(each)), None)

    @functools.cached_property
    def rows_without_start(self) -> dict[int, list[Row]]:
        """The rows of each firing, in the order of their tokens, that no start belongs to."""
        found: dict[int, list[Row]] = defaultdict(list)
        for row, firing in self.startless:
            if firing:
                found[firing.id].append(row)
        return found

    def runs_of(self, firing: Firing) -> list[Row]:
        """Return all rows of a firing in the order of their tokens; of a start without a row nothing."""
        rows = [row for start in self.starts_of(firing) for row in self.rows_of(start)[:1]]
        rows += self.rows_without_start.get(firing.id, [])
        return sorted(rows, key=lambda row: row["fencing_token"] or 0)

    def claimed_after(self, start: Start) -> float:
        """Return a moment before which the lease of a start was certainly not granted.

        That is when its firing was begun; when the last thing that its firing ran, and the last that anybody ran of
        this part, was dead; and, where no host's clock is the store's, what the store's own clock said.
        """
        if start.claimed is not None:
            return start.claimed
        firing = self.firing_of(start)
        moments = [firing.at] if firing else []
        before = self.parts[part_of(start)] + (self.starts_of(firing) if firing else [])
        moments += [alive_until(other) for other in before if other.at < start.at]
        wall = self.history.head.get("wall")
        if wall is not None and self.history.head.get("store") != "sqlite":
            granted = (moment_of(row["started_at"]) for row in self.rows_of(start)[:1])
            moments += [at - wall - MOMENT for at in granted if at is not None]
        return max((at for at in moments if at <= start.at), default=0.0)

    # What was done to whom

    @functools.cached_property
    def _hits(self) -> dict[int, list[tuple[Fault, str, str]]]:
        """Whom each fault reached, of what lived then."""
        found: dict[int, list[tuple[Fault, str, str]]] = defaultdict(list)
        until: dict[int, float] = {}
        for fault in sorted(self.history.faults, key=lambda fault: fault.at):
            for firing_id, role, state in fault.hit:
                firing = self._by_id.get(firing_id)  # of items there is none
                if firing:
                    end = until.setdefault(firing_id, self._lives_until(firing))
                    if not firing.at - MOMENT <= fault.at <= end:
                        continue
                    until[firing_id] = max(end, undone(fault) + RECORDING)
                found[firing_id].append((fault, role, state))
        return found

    def _lives_until(self, firing: Firing) -> float:
        """Return until when a guard may have lived, if nobody hindered it: beyond a killed wrapper, and its job."""
        starts = self.starts_of(firing)
        if firing.ended is None or any(start.lives for start in starts):
            return self.history.end
        return max([firing.ended, *map(alive_until, starts)]) + RECORDING

    def hits(
        self, firing: Firing, role: str | None = None, state: str | None = None
    ) -> list[Fault]:
        """Return the faults that reached a firing's wrapper, guard or job (or any), in one of two ways (or both)."""
        return [
            fault
            for fault, its_role, its_state in self._hits.get(firing.id, [])
            if role in (None, its_role) and state in (None, its_state)
        ]  # fmt: skip

    def hits_of(
        self, start: Start, role: str | None = None, state: str | None = None
    ) -> list[Fault]:
        """Return those of the faults that came after a start, and before its firing went on to the next one."""
        firing = self.firing_of(start)
        later = [other.at for other in self.starts_of(firing)] if firing else []
        until = min((at for at in later if at > start.at), default=math.inf)
        hits = self.hits(firing, role, state) if firing else []
        return [fault for fault in hits if start.at - MOMENT <= undone(fault) and fault.at < until]

    def out(self, firing: int, role: str) -> list[Out]:
        """Return when wrapper or guard could not act: a stop lasts until it is healed, a kill for ever."""
        return [
            Out(fault.at, math.inf if killed or fault.healed is None else fault.healed, killed)
            for fault, its_role, state in self._hits.get(firing, [])
            for killed in [state in ("killed", "failed")]
            if its_role == role and state != "signalled"
        ]

    def jointly_out(self, firing: int, grace: float = GRACE) -> Iterator[tuple[float, float]]:
        """Yield when neither wrapper nor guard could act, and neither had had the time to end the job alone."""
        wrappers, guards = self.out(firing, "wrapper"), self.out(firing, "guard")
        for wrapper in wrappers:
            for guard in guards:
                since, until = max(wrapper.since, guard.since), min(wrapper.until, guard.until)
                if (
                    since <= until
                    and not _had_time(wrappers, guard, WAKING)
                    and not _had_time(guards, wrapper, grace + WAKING)
                ):
                    yield since, until

    def could_not_act(self, firing: int, since: float, until: float, grace: float = GRACE) -> bool:
        """Return whether wrapper and guard could not act from `since` on, and `until` comes before they had woken."""
        out_until = -math.inf
        for begin, end in sorted(self.jointly_out(firing, grace)):
            if begin <= max(since + MOMENT, out_until + WAKING):  # again before they had woken
                out_until = max(out_until, end)
        return until <= out_until + WAKING

    def was_hindered(
        self, firing: Firing, role: str, since: float, until: float, within: float
    ) -> bool:
        """Return whether who had to act from `since` on could not, and `until` comes before it had the time for it."""
        return any(
            out.since <= since + within and until <= out.until + within
            for out in self.out(firing.id, role)
        )

    def felt(self, host: str, since: float, until: float, key: str | None = None) -> list[Fault]:
        """Return the faults of a host, or of what all hosts share, within a time.

        `key`: but for those that reached firings of other keys alone. A full disk ends no lease, and changes no answer.
        """
        return [
            fault
            for fault in self.history.faults
            if fault.at <= until + MOMENT
            and undone(fault) >= since - MOMENT
            and fault.group != "disk"
            and (self.is_shared(fault) or (fault.target == host and self._concerns(fault, key)))
        ]  # fmt: skip

    def _concerns(self, fault: Fault, key: str | None) -> bool:
        firings = [self._by_id.get(firing) for firing, _, _ in fault.hit]
        return key is None or not firings or any(firing and firing.key == key for firing in firings)

    def asked(self, key: str, since: float, until: float) -> list[Operation]:
        """Return by what people asked the holders of a key to end within a time: what is asked lives with the lease."""
        ttl = self.history.head.get("ttl", 0.0)
        return [
            operation
            for operation in self.history.operations
            if operation.words[0] in ("stop", "release") and operation.subject == key
            and operation.at <= until and since <= (operation.ended or math.inf) + ttl + MOMENT
        ]  # fmt: skip

    def is_shared(self, fault: Fault) -> bool:
        """Return whether it is the store's, or the network's, and no host's."""
        return fault.target not in self.hosts

    def forgets(self, since: float, until: float) -> bool:
        """Return whether the store may have lost what it acknowledged within a time."""
        return any(
            fault.at - FORGOTTEN <= until and undone(fault) >= since
            for fault in self.history.faults
            if fault.kind in self.history.head.get("loses", ()) and self.is_shared(fault)
        )

    # Words

    @functools.cached_property
    def begin(self) -> float:
        """When the run began."""
        history = self.history
        moments = [firing.at for firing in history.firings]
        moments += [fault.at for fault in history.faults]
        return min(moments, default=0.0)

    def when(self, at: float) -> str:
        """Return a moment as people read it: since the run began."""
        return f"+{at - self.begin:.3f} s"

    def start_text(self, start: Start) -> str:
        """Return a start in words."""
        tick = f" of tick {start.tick}" if start.tick else ""
        return f"attempt {start.attempt}{tick} on {start.host} (pid {start.pid}, {self.when(start.at)})"

    def operation_text(self, operation: Operation) -> str:
        """Return what a person typed in words."""
        return f"`oncecron {' '.join(operation.words)}` on {operation.host} ({self.when(operation.at)})"

    def firing_text(self, firing: Firing) -> str:
        """Return a firing in words."""
        tick = f" tick {firing.tick}" if firing.tick else ""
        return f"firing {firing.id} of {firing.key}{tick} on {firing.host} (pid {firing.pid}, {self.when(firing.at)})"


def _had_time(outs: list[Out], other: Out, needed: float) -> bool:
    """Return whether one was awake for long enough after the other was killed to end the job alone."""
    return other.killed and not any(
        out.since <= other.since + needed and out.until >= other.since for out in outs
    )


def part_of(start: Start) -> Part:
    """Return what starts of which exclude each other."""
    return start.key, int(start.shard or 0)


def part_of_row(row: Row) -> Part:
    """Return the same of a row."""
    return row["key"], int(row["shard"] or 0)


def alive_until(start: Start) -> float:
    """Return when something of a start still lived for certain, but for what a success left behind on purpose."""
    if start.ended is not None and has_succeeded(start):
        return start.ended
    return max(start.last_sign, start.ended or start.at)


def has_succeeded(start: Start) -> bool:
    """Return whether a job ended with 0, and nobody had asked for its end: what it left is there on purpose."""
    ended = start.ended or 0.0
    asked = any(at <= ended and name in ENDED_BY for at, name in start.signals)
    return start.status == 0 and not asked


def undone(fault: Fault) -> float:
    """Return until when a fault lasted."""
    if fault.healed is not None:
        return fault.healed
    only_kills = fault.hit and all(state == "killed" for _, _, state in fault.hit)
    return fault.at if only_kills else math.inf


def taken_back(joined: Joined, operation: Operation) -> tuple[float, float]:
    """Return when a pause, or the draining of a host, may have been taken back, and when that had been done."""
    word, subject = UNDONE_BY[operation.words[0]], operation.subject
    later = [
        other
        for other in joined.history.operations
        if (other.words[0], other.subject) == (word, subject) and other.at > operation.at
    ]
    done = [other.ended for other in later if other.status == 0 and other.ended is not None]
    return min((other.at for other in later), default=math.inf), min(done, default=math.inf)


def clock_step(fault: Fault) -> float:
    """Return by how many seconds a clock was set, a host's or the store's; 0 for every other fault."""
    return float(fault.detail.split()[0]) if "clock" in fault.kind else 0.0


def execution_of(row: Row) -> Execution:
    """Return a row as the rules of the log take it."""
    values = {name: row[name] for name in Execution._fields if name in row}
    for name in ("started_at", "finished_at"):
        values[name] = moment_of(row[name])
    return Execution(**values)


def was_lost(row: Row) -> bool:
    """Return whether an execution was declared lost, whatever it told later."""
    return protocol.was_lost(execution_of(row))


def moment_of(text: str | float | None) -> float | None:
    """Return a time of the log in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else text


def goes_on(firing: Firing) -> bool:
    """Return whether a firing may run more than one attempt, part or tick."""
    names = ("--retries", "--shards", "--catch-up")
    return any(option(firing, name) is not None for name in names)


def option(firing: Firing, name: str) -> str | None:
    """Return the value of an option of `run` as it was typed; of a flag, the flag."""
    words = firing.command
    words = words[: words.index("--")] if "--" in words else words
    for number, word in enumerate(words):
        given, equals, value = word.partition("=")
        if given == name:
            after = words[number + 1] if number + 1 < len(words) else ""
            return value if equals else name if after.startswith("-") or not after else after
    return None


def gives_up(firing: Firing | None) -> bool:
    """Return whether a firing starts its job without a lease where the store is away."""
    return firing is not None and option(firing, "--on-store-error") == "run"


def seconds(firing: Firing, name: str) -> float | None:
    """Return the value of an option that is a duration."""
    value = option(firing, name)
    return None if value is None else parse_duration(value)


def grace_of(firing: Firing) -> float:
    """Return the seconds between TERM and KILL in a firing."""
    return seconds(firing, "--grace") or GRACE
