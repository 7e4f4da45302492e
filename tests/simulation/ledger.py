"""What happened in a world, in true time and in the words of the drill: its checker judges it at the end.

Three judgements are made as it happens, because no history has what they need: the trust of a holder, whose job lives
when the store takes a lease away, and whether a lease lives when a job begins. They are excused like all others: by
the time in which wrapper and guard of a firing could both not act.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel import INF, KILL
from memory_reader import MemoryReader
from server import EPOCH

from oncecron.core.errors import EX_SOFTWARE
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.text import Clock
from oncecron.log.audit import attempts
from oncecron.log.protocol import Known, ShardRules, name_of
from oncecron_drill import history
from oncecron_drill.checker import check
from oncecron_drill.rules.joined import ENDED_BY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firings import Key, Life
    from kernel import Host, Process
    from memory_store import Part
    from world import World

_WAKING = 1.6
"""A timer of at most a second, which stood still meanwhile, and the kill."""
_ANSWERED = 0.1
"""Seconds after which the answer to a renewal is late."""
_LOOKED = 1.0 + 0.2
"""Seconds of work that is done once more: the guard looks once a second, and a message takes its time."""
_WRITTEN = 0.05
"""Seconds after which a job has written a number whole."""
_CONNECTED_BY = 30.0
"""Seconds after which a firing has asked the store, over a slow network, too."""


class Violation(NamedTuple):
    """A promise that was not kept."""

    at: float
    kind: str
    text: str


class Start:
    """One begin of a job, as the job itself wrote it down."""

    def __init__(self, number: int, life: Life, environment: Mapping[str, str]) -> None:
        get = environment.get
        self.life, self.at = life, life.host.kernel.now
        self.key, self.tick = get("ONCECRON_KEY"), get("ONCECRON_TICK")
        self.shard, self.token, self.attempt, self.id = (
            int(get(f"ONCECRON_{name}") or 0)
            for name in ("SHARD", "FENCING_TOKEN", "ATTEMPT", "EXECUTION_ID")
        )
        self.file, self.claimed = f"{self.key}/{number}", self.at
        self.processes: list[Process] = []
        self.signals: list[tuple[float, str]] = []
        self.hit = False
        """A process of the job was killed."""
        self.status: int | None = None
        self.ended: float | None = None
        self.last_sign = self.at
        self.found = 0
        """The place with which it began."""
        self.numbers: list[tuple[int, float]] = []
        """The pieces of its work that it has done, and when."""
        self.confirmed = 0
        """The last place of which the store has told its holder."""
        self.unanswered = False
        """Whether a renewal had no answer, or a late one."""

    def is_alive(self) -> bool:
        """Return whether a process of the run lives; what a success leaves running is no part of it."""
        return not self.is_success() and any(not process.dead for process in self.processes)

    def is_success(self) -> bool:
        """Return whether the job has ended with 0, and nobody had asked for its end."""
        return self.status == 0 and not any(name in ENDED_BY for _, name in self.signals)

    def changed(self) -> None:
        self.last_sign = self.life.host.kernel.now

    def told(self, now: float) -> history.Start:
        lives = self.is_alive()
        return history.Start(
            *(self.file, self.at, self.life.host.name, self.processes[0].pid, self.life.wrapper.pid),
            *(self.key, str(self.shard), self.tick, self.attempt, self.token or None, self.id or None),
            last_sign=now if lives else self.last_sign, ended=self.ended, status=self.status,
            signals=self.signals, lives=lives, claimed=self.claimed,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"execution {self.id} attempt {self.attempt} on {self.life.host.name}"


class Ledger:
    """All that happened, and what it shows."""

    def __init__(self, world: World) -> None:
        self._world, self._kernel = world, world.kernel
        self._kernel.watch = self._changed
        self.violations: list[Violation] = []
        self.excused: Counter[str] = Counter()
        self.items = 0
        self.places: Counter[str] = Counter()
        """How jobs of further attempts began."""
        self._starts: list[Start] = []
        self._by_id: dict[int, Start] = {}
        self._said: defaultdict[Life, list[str]] = defaultdict(list)
        self._faults: list[history.Fault] = []
        self._operations: list[history.Operation] = []
        self._out: dict[tuple[Life, str], float] = {}
        """Since when a wrapper or a guard cannot act."""
        self._outs: list[tuple[Life, str, float, float]] = []
        self._signals: list[tuple[Life, str, float]] = []

    @property
    def starts(self) -> int:
        return len(self._starts)

    def violation(self, kind: str, text: str, life: Life | None = None) -> None:
        self.violations.append(Violation(self._kernel.now, kind, text))
        self._kernel.trace("VIOLATION", kind, text, life.host.name if life else "")

    def _judge(self, kind: str, text: str, life: Life) -> None:
        """Note a violation, unless both that could have acted could not."""
        if life.joint >= self._kernel.now - _WAKING:
            self.excused[kind] += 1
            self._kernel.trace("excused", kind, text)
        else:
            self.violation(kind, text, life)

    # What happened

    def felt(self, begin: float, end: float, host: Host | None, kind: str = "fault") -> None:
        """Note when a fault is felt, and where; of the store's clock, by how much it is wrong after all its steps."""
        self._fault(kind, begin, end, host.name if host else "store")
        if kind == "step store back":
            self._faults[-1].kind = "step the clock"
            self._faults[-1].detail = f"{self._world.server.offset:g} s"

    def _fault(self, kind: str, begin: float, end: float | None, target: str, *hit: Any) -> None:
        number = len(self._faults) + 1
        group = "network" if "cut" in kind else ""
        self._faults.append(history.Fault(number, begin, kind, target, "", list(hit), end, group))

    def _changed(self, process: Process, number: int = 0) -> None:
        """Note that a wrapper or a guard can no longer act, or can again; not that it has left by itself."""
        life, place = process.life, (process.life, process.name)
        if number:
            self._signals.append((*place, self._kernel.now))
        by_itself = life.left if process is life.guard else life.ended is not None
        has_left = process.dead and by_itself and process.status != KILL
        if place in self._out and (process.dead or not process.is_out()):
            self._outs.append((*place, self._out.pop(place), self._kernel.now))
        if process.is_out() and not has_left:
            self._out.setdefault(place, self._kernel.now)

    def stood_still(self, life: Life, since: float) -> None:
        """Note that its lease clock stood still: wrapper and guard trust for up to a ttl what has ended."""
        until = self._kernel.now + life.key.ttl
        self._outs += [(life, role, since, until) for role in ("wrapper", "guard")]

    def stopped(self, name: str, seconds: float) -> None:
        """Note that a key is paused, or a host drained, for so long."""
        is_key = any(key.name == name for key in self._world.keys)
        words = ("pause", "resume") if is_key else ("drain", "undrain")
        now = self._kernel.now
        self.asked(now, words[0], name)
        self.asked(min(now + seconds, self._world.quiet_at), words[1], name)

    def asked(self, at: float, *words: str) -> None:
        number = len(self._operations) + 1
        self._operations.append(history.Operation(number, at, "desk", list(words), at, 0, "done"))

    def says(self, life: Life, text: str) -> None:
        self._said[life].append(f"oncecron: {text}")

    def begins(self, life: Life, environment: Mapping[str, str]) -> Start:
        """Note that a job begins; judge that its lease lives."""
        start = Start(len(self._starts), life, environment)
        self._starts.append(start)
        life.starts.append(start)
        if start.id:  # --on-store-error run gives up the promises
            self._kernel.trace("begin", start.key, start.shard, start.tick, start, start.token)
            self._by_id[start.id] = start
            server = self._world.server
            part = server.parts[start.key, start.shard]
            lease, row = part.lease, part.row(start.id)
            start.claimed = row["granted"] if row else start.at
            if (
                not lease
                or lease["execution_id"] != start.id
                or lease["expires_at"] <= server.now()
            ):
                self._judge("stale start", f"{start.key}: {start}", life)
        return start

    def finds_place(self, start: Start, text: bytes) -> int:
        """Judge the place with which a job begins; return it.

        It is no further than what was done, and no less than what a holder was told. Where nothing but a process was
        hit, only the last second is done once more; and nothing of what stood in the file when the job ended, if the
        same guard starts it again.
        """
        start.found = start.confirmed = int(text or b"0")
        chain = [each for each in self._chain(start) if each is not start]
        if start.tick is None or not chain or any(each.status == 0 for each in chain):
            return start.found  # success has ended the place
        what = f"{start.key} {start.tick}: {start} began after {start.found}"
        done = max((number for each in chain for number, _ in each.numbers), default=0)
        if start.found > max(done, *(each.found for each in chain)):
            self.violation("place ahead", f"{what}, and only {done} was done", start.life)
        confirmed = max(each.confirmed for each in chain)
        is_calm = not any(each.unanswered for each in chain)
        if start.found < confirmed and is_calm:
            self.violation("place lost", f"{what}, and {confirmed} was confirmed", start.life)
        last = chain[-1]
        again = [at for number, at in last.numbers if number > start.found]
        if again and is_calm and not self._was_out(last.life):
            ended, newest = last.processes[0].ended, last.numbers[-1][1]
            is_whole = last.life is start.life and ended - newest > _WRITTEN
            seconds = ended - again[0]
            if is_whole or seconds > _LOOKED:
                text = f"{what}, {seconds:.2f} s before the end"
                self.violation("repeated", text, start.life)
        self.places["gone on" if start.found else "begun anew"] += 1
        return start.found

    def _chain(self, start: Start) -> list[Start]:
        same = (start.key, start.tick, start.shard)
        return [each for each in self._starts if (each.key, each.tick, each.shard) == same]

    def _was_out(self, life: Life) -> bool:
        """Return whether the wrapper or the guard of a firing stood still, and did not only die."""
        is_still = any(each is life for each, *_, until in self._outs if until < INF)
        return is_still or any(
            each is life for each, role in self._out if not self._is_dead(life, role)
        )

    @staticmethod
    def _is_dead(life: Life, role: str) -> bool:
        process = life.guard if role == "guard" else life.wrapper
        return process is not None and process.dead

    def renewed(self, life: Life, execution_id: int, place: bytes | None, seconds: float) -> None:
        """Note what the answer to a renewal has confirmed, and how long that took; None: nothing new."""
        start = self._by_id.get(execution_id)
        if start is None or start.life is not life:
            return
        start.unanswered |= seconds > _ANSWERED
        if place is not None and seconds < INF:
            start.confirmed = int(place or b"0")

    def signalled(self, start: Start, number: int) -> None:
        start.signals.append((self._kernel.now, signal.Signals(number).name.removeprefix("SIG")))

    def job_ended(self, process: Process, status: int) -> None:
        """Note that a process of a job ends by itself."""
        start = process.start
        if process is start.processes[0]:
            start.status, start.ended = os.waitstatus_to_exitcode(status), self._kernel.now
            start.last_sign = self._kernel.now
            self._kernel.trace("end", start.key, start.shard, start.tick, start, status)

    def trusts(self, life: Life, seconds: float) -> None:
        """Judge for how long the shared page lets the job live: not beyond the lease that was renewed last."""
        server, owner = self._world.server, life.spec.firing.owner
        leases = [part.lease for (key, _), part in server.parts.items() if key == life.key.name]
        ends = [each["expires_at"] for each in leases if each and each["owner"] == owner]
        if ends and server.now() + seconds > max(ends):
            text = f"{life.key.name}: trusted {seconds:.3f} s, beyond the end of its lease"
            self._judge("trust", text, life)

    def expires(self, part: Part) -> None:
        """Judge that the job is dead whose lease the store takes away."""
        start = part.lease and self._by_id.get(part.lease["execution_id"])
        if start and start.is_alive():
            self._judge("outlived", f"{start.key}: {start} lives after its lease", start.life)

    def left(self, life: Life) -> None:
        """Judge that nothing of its jobs lives when the guard leaves."""
        for start in life.starts:
            if start.is_alive():
                self.violation("left alive", f"{start.key}: {start} when its guard left", life)

    # At the end

    def at_the_end(self) -> None:
        """Deliver what is spooled; let the checker judge all of it."""
        for host in self._world.hosts:
            for path, record in host.spool.pending():
                self._kernel.trace("flush", path)
                self._world.server.deliver(record)
        verdict = check(self._history())
        for found in verdict.violations:
            at = min(found.moments, default=self._kernel.now)
            self.violations.append(Violation(at, found.rule, found.sentence))
            self._kernel.trace("VIOLATION", found.rule, found.sentence)
        self.excused.update(found.rule for found in verdict.holes)

    def _history(self) -> history.History:
        world, now = self._world, self._kernel.now
        lives = {life: number for number, life in enumerate(world.all_lives, 1)}
        self._faults_of(lives)
        head = {
            "seed": 0, "store": "memory", "minutes": now / 60, "asked_by": _CONNECTED_BY,
            "ttl": max((key.ttl for key in world.keys), default=0),
            "hosts": [host.name for host in world.hosts], "wall": EPOCH,
            "keys": {key.name: _expected(key) for key in world.keys},
        }  # fmt: skip
        of_items = {key.name for key in world.keys if key.count}  # judged by themselves (`items`)
        firings = [self._firing(number, life) for life, number in lives.items()]
        firings = [each for each in firings if each.key not in of_items]
        starts = [start.told(now) for start in self._starts if start.key not in of_items]
        return history.History(
            head, firings, self._faults, starts, self._log(of_items), world.settled_at, now, self._operations,
        )  # fmt: skip

    def _faults_of(self, lives: dict[Life, int]) -> None:
        outs = [*self._outs, *((*place, since, INF) for place, since in self._out.items())]
        for life, role, since, until in outs:
            process = life.guard if role == "guard" else life.wrapper
            if process is None:
                continue  # it ended before it had a guard
            how = "failed" if process.status == EX_SOFTWARE << 8 else "killed"
            hit = (lives[life], role, how if until == INF else "stopped")
            self._fault("out", since, since if until == INF else until, life.host.name, hit)
        for life, role, at in self._signals:
            self._fault("signal", at, at, life.host.name, (lives[life], role, "signalled"))
        for start in self._starts:
            if start.hit:
                hit = (lives[start.life], "job", "killed")
                self._fault("kill", start.last_sign, start.last_sign, start.life.host.name, hit)

    def _firing(self, number: int, life: Life) -> history.Firing:
        wrapper = life.wrapper
        status = os.waitstatus_to_exitcode(wrapper.status) if wrapper.dead else None
        tick = life.spec.firing.tick.text if life.spec else None
        return history.Firing(
            *(number, life.at, life.host.name, life.key.name, tick, _words(life), wrapper.pid),
            *(wrapper.ended, status, "\n".join(self._said[life])),
        )  # fmt: skip

    def _log(self, of_items: set[str]) -> history.Log:
        """Return what the store has on record, as the commands for people read it."""
        reader, now = MemoryReader(self._world.server), self._world.server.now()
        every = HistoryQuery(limit=None)
        leases = (
            f"{each.key}: a lease that has ended"
            for each in reader.leases()
            if each.expires_at < now
        )
        known = Known(Clock(utc=True), attempts=partial(attempts, reader))
        shards = groupby(reader.timeline(None), key=lambda each: name_of(each.execution)[:2])
        rules = ((rows, ShardRules(known)) for _, rows in shards)
        findings = (
            found for rows, of_shard in rules for each in rows for found in of_shard.see(each)
        )
        return history.Log(
            [row._asdict() for row in reader.history(every) if row.key not in of_items],
            [row._asdict() for row in reader.skips(every) if row.key not in of_items],
            [found._asdict() for found in findings], [*leases],
        )  # fmt: skip


def _expected(key: Key) -> dict[str, Any]:
    return {"period": key.every * 60.0, "seconds": 30.0, "parts": key.shards, "ttl": key.ttl}


def _words(life: Life) -> list[str]:
    key = life.key
    words = ["oncecron", "run", "--key", key.name, f"--grace={key.grace:g}s"]
    words += ["--again"] if life.again else []
    words += ["--failover"] if key.failover else []
    words += [f"--retries={key.retries}"] if key.retries else []
    words += [f"--shards={key.shards}"] if key.shards > 1 else []
    words += [f"--timeout={key.timeout:g}s"] if key.timeout else []
    words += [f"--wait={key.wait:g}s"] if key.wait else []
    if key.catch_up is not None:
        words += [f"--catch-up={key.catch_up:g}s", f"--schedule={key.schedule}"]
    words += ["--on-store-error=run"] if key.on_error == "run" else []
    return [*words, "--", "job"]
