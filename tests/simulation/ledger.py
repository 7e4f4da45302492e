"""What is judged, in true time: by what the simulated jobs do themselves, as it happens and at the end.

Documented holes are excused by time alone: wrapper and guard of a firing could both not act, or could not until
`WAKING` ago (`Life.joint`). What a successful job leaves running is no part of its run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel import TERM, Host, Kernel, Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from firings import Key, Life
    from memory_store import Part
    from world import World

WAKING = 1.6
"""A timer of at most a second, which stood still meanwhile, and the kill."""
_AT_A_TIME = 12
"""So many of the newest starts of a shard may live at the same time."""


class Violation(NamedTuple):
    """A promise that was not kept."""

    at: float
    kind: str
    text: str


class Window(NamedTuple):
    """When a fault was felt, and on which host; None: on all."""

    begin: float
    end: float
    host: Host | None


class Start:
    """One begin of a job, as the job itself wrote it down."""

    def __init__(self, life: Life, environment: Mapping[str, str], kernel: Kernel) -> None:
        get = environment.get
        self._kernel, self.life, self.at = kernel, life, kernel.now
        self.key, self.tick = get("ONCECRON_KEY"), get("ONCECRON_TICK")
        self.shard, self.token, self.attempt, self.id = (
            int(get(f"ONCECRON_{name}") or 0)
            for name in ("SHARD", "FENCING_TOKEN", "ATTEMPT", "EXECUTION_ID")
        )
        self.processes: list[Process] = []
        self.succeeded = self.signalled = self.hit = False
        self.status: int | None = None
        self.ended: float | None = None
        self.gone_at: float | None = None

    def is_alive(self) -> bool:
        """Return whether a process of the run lives."""
        return not self.succeeded and any(not process.dead for process in self.processes)

    def changed(self) -> None:
        """Note that a process has ended."""
        if not self.is_alive():
            self.gone_at = self.gone_at or self._kernel.now

    def is_undisturbed(self) -> bool:
        """Return whether the job ended by itself."""
        return self.ended is not None and not self.signalled and not self.hit

    def __str__(self) -> str:
        """Name the start."""
        return f"execution {self.id} attempt {self.attempt} on {self.life.host.name}"


class Ledger:
    """All starts, all faults, and what they show."""

    def __init__(self, world: World) -> None:
        self._world, self._kernel = world, world.kernel
        self.violations: list[Violation] = []
        self.excused: Counter[str] = Counter()
        self.starts = self.items = 0
        self._parts: defaultdict[tuple[str, int], list[Start]] = defaultdict(list)
        self._by_tick: defaultdict[tuple[str, str, int], list[Start]] = defaultdict(list)
        self._by_id: dict[int, Start] = {}
        self._windows: list[Window] = []
        self._stops: list[tuple[float, float, str]] = []
        self._unclaimed: set[tuple[str, str]] = set()

    def violation(self, kind: str, text: str, life: Life | None = None) -> None:
        """Note a violation."""
        self.violations.append(Violation(self._kernel.now, kind, text))
        self._kernel.trace("VIOLATION", kind, text, life.host.name if life else "")

    def _judge(self, kind: str, text: str, life: Life) -> None:
        """Note a violation, unless both that could have acted could not."""
        if life.joint >= self._kernel.now - WAKING:
            self.excused[kind] += 1
            self._kernel.trace("excused", kind, text)
        else:
            self.violation(kind, text, life)

    # What happened

    def felt(self, begin: float, end: float, host: Host | None) -> None:
        """Note when a fault is felt, and where."""
        self._windows.append(Window(begin, end, host))
        for life in self._world.lives:
            life.hit |= host in (None, life.host)

    def stopped(self, name: str, seconds: float) -> None:
        """Note that a key is paused, or a host drained."""
        self._stops.append((self._kernel.now, self._kernel.now + seconds, name))

    def _is_hindered(self, life: Life, until: float) -> bool:
        return life.hit or any(
            begin <= until and end >= life.at - 1 and host in (None, life.host)
            for begin, end, host in self._windows
        )

    def begins(self, life: Life, environment: Mapping[str, str]) -> Start:
        """Note that a job begins; judge that it may."""
        start = Start(life, environment, self._kernel)
        self.starts += 1
        if not start.id:  # --on-store-error run gives up the promises
            self._unclaimed.add((start.key, start.tick))
            return start
        self._kernel.trace("begin", start.key, start.shard, start.tick, start, start.token)
        part = self._parts[start.key, start.shard]
        self._judge_begin(start, part[-_AT_A_TIME:])
        before = self._by_tick[start.key, start.tick, start.shard]
        if start.tick and before and (why := self._why_not_again(start, before)):
            text = f"{start.key} {start.tick}: {start} after {before[-1]}: {why}"
            # A process that was frozen between its fork and its begin is late, and is excused like its lease.
            judge = self._judge if start.token < before[-1].token else self.violation
            judge("double", text, life)
        for starts in (part, life.starts, before):
            starts.append(start)
        self._by_id[start.id] = start
        return start

    def _judge_begin(self, start: Start, others: list[Start]) -> None:
        """Judge that a start has the lease, alone, and with the highest token."""
        about, server = f"{start.key}: {start}", self._world.server
        for other in others:
            if other.is_alive():
                older = min(other, start, key=lambda each: each.token)
                self._judge("overlap", f"{about} beside {other}", older.life)
            if other.token >= start.token:
                self._judge("token", f"{about} has no higher token than {other}", start.life)
        part = server.parts[start.key, start.shard]
        lease, row = part.lease, part.row(execution_id=start.id)
        if not lease or lease["execution_id"] != start.id or lease["expires_at"] <= server.now():
            self._judge("stale start", about, start.life)
        if row and row.get("stopped"):
            self.violation("stopped start", f"{about} was granted under a stop", start.life)

    def _why_not_again(self, start: Start, before: list[Start]) -> str | None:
        """Return why a tick that was begun must not be begun again."""
        key, last = start.life.key, before[-1]
        if any(other.attempt == start.attempt for other in before):
            return "the same attempt"
        if last.life is start.life:
            wanted = last.attempt <= key.retries and (last.status != 0 or last.signalled)
            return None if wanted else "a retry that nobody wanted"
        return None if start.life.again else self._why_no_takeover(start, last)

    def _why_no_takeover(self, start: Start, last: Start) -> str | None:
        key = start.life.key
        if key.count:  # it goes on after what was lost or stopped
            row = self._world.server.parts[start.key, start.shard].row(last.id)
            ended = row["lost_reason"] or row["outcome"] == "stopped"
            return None if ended else f"after what was {row['outcome']}"
        if not key.failover or last.attempt > key.attempts:
            return f"failover {key.failover}, {last.attempt} attempts"
        part = self._world.server.parts[start.key, start.shard]
        between = (row for row in part.of("tick", start.tick) if row["attempt"] > last.attempt)
        if any(row["attempt"] < start.attempt and row["lost_at"] for row in between):
            return None  # it takes over one that was lost before it began
        row = part.row(execution_id=last.id)
        if row and not (row["lost_reason"] or row["retrying"] or row["outcome"] == "lost"):
            return f"a takeover of what was {row['outcome']}"
        is_hindered = self._is_hindered(last.life, self._kernel.now)
        return None if is_hindered else "a takeover of a holder that nothing hindered"

    def signalled(self, start: Start, number: int) -> None:
        """Note that a process of a job gets a signal."""
        if start.succeeded and not start.life.guard_was_out:  # else it did not know of the success
            text = f"what the success of {start} left running gets signal {number}"
            self.violation("leftover", f"{start.key}: {text}")
        start.signalled |= number in (TERM, 2, 3)
        start.hit = True

    def job_ended(self, process: Process, status: int) -> None:
        """Note that a process of a job ends by itself."""
        start = process.start
        if process is start.processes[0]:
            start.status, start.ended = status, self._kernel.now
            start.succeeded = status == 0 and not start.signalled
            start.changed()
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

    def wrapper_gone(self, life: Life) -> None:
        """Judge later that the guard has ended the job, with TERM, grace and KILL: its wrapper is gone."""
        if life.ended is None and life.guard and not life.guard.is_out():
            life.guard_was_out = False
            self._kernel.at(self._kernel.now + life.key.grace + 3, self._is_orphan, life)

    def _is_orphan(self, life: Life) -> None:
        if not life.guard_was_out and any(start.is_alive() for start in life.starts):
            text = f"{life.key.name}: a job on {life.host.name} outlives its wrapper"
            self.violation("orphan", text, life)

    def left(self, life: Life) -> None:
        """Judge that nothing of its jobs lives when the guard leaves."""
        for start in life.starts:
            if start.is_alive():
                self.violation("left alive", f"{start.key}: {start} when its guard left", life)

    def ended(self, life: Life) -> None:
        """Judge with what the wrapper leaves."""
        me, key = (life.host.name, life.wrapper.pid), life.key
        if any(reason == "held" and by and by[:2] == me for _, reason, _, by in life.refusals):
            self.violation("self", f"{key.name}: refused because of its own lease", life)
        for start in life.starts:
            if start.is_alive():
                self._judge("left alive", f"{start.key}: {start} when its wrapper left", life)
        self._says_what_never_began(life)
        if not life.starts or key.shards > 1 or key.timeout or self._is_hindered(life, life.ended):
            return
        last = life.starts[-1]
        if last.is_undisturbed() and life.status != last.status >> 8:
            text = f"{key.name}: exit {life.status}, but the job {last.status}"
            self.violation("status", text, life)

    def _says_what_never_began(self, life: Life) -> None:
        """Judge that a firing which ends by itself records a lease under which it has started nothing."""
        owner, key = life.spec.firing.owner, life.key
        spooled = [path for path in life.host.spool.files if owner in path]
        is_spooled = any(not path.endswith("-skip.json") for path in spooled)
        if not life.left or key.on_error == "run" or is_spooled:
            return
        for shard in range(key.shards):
            for row in self._world.server.parts[key.name, shard].of("owner", owner):
                if row["outcome"] in ("lost", "running") and row["execution_id"] not in self._by_id:
                    name = f"{key.name}: execution {row['execution_id']} of {life.host.name}"
                    what = f"{row['outcome']} ({row['note']}); exit {life.status}"
                    self.violation("unsaid", f"{name} never began, and is {what}", life)

    # At the end

    def at_the_end(self) -> None:
        """Judge what is on record, and what is left."""
        world = self._world
        for host in world.hosts:
            for path, record in host.spool.pending():
                self._kernel.trace("flush", path)
                world.server.deliver(record)
        if not world.server.forgets:
            for start in self._by_id.values():
                self._judge_record(start)
        for key, tick, fired in self._fired():
            self._judge_tick(key, tick, fired)
        for place, part in world.server.parts.items():
            if part.lease and part.lease["expires_at"] < world.server.now():
                self.violation("left", f"a lease of {place} that has ended")
        for life in world.all_lives:
            if life.ended is None and not life.wrapper.dead and life.at < world.settled_at:
                text = f"a firing of {life.key.name} on {life.host.name} has not ended"
                self.violation("left", text, life)

    def _judge_record(self, start: Start) -> None:
        world = self._world
        row = world.server.parts[start.key, start.shard].row(execution_id=start.id)
        if row is None:
            if start.at > world.end - 3600:
                self.violation("no record", str(start))
            return
        outcome = row["outcome"]
        if outcome == "running" and start.at < world.settled_at:
            self.violation("no end", f"{start.key}: {start} is recorded as running")
        if not start.is_undisturbed() or self._is_hindered(start.life, start.ended):
            return
        if start.life.key.count and start.status not in (0, 1 << 8):
            return
        if outcome not in (("succeeded",) if start.status == 0 else ("failed", "timed-out")):
            text = f"{start.key}: {start} is {outcome}, status {start.status}"
            self.violation("wrong record", text)

    def _fired(self) -> Iterator[tuple[Key, str, list[Life]]]:
        """Yield each tick with those who fired it."""
        fired: defaultdict[tuple[Key, Any], list[Life]] = defaultdict(list)
        for life in self._world.all_lives:
            if life.spec and life.spec.firing.tick.text and life.at < self._world.end - 120:
                fired[life.key, life.spec.firing.tick].append(life)
        for (key, tick), lives in fired.items():
            yield key, tick.text, lives

    def _judge_tick(self, key: Key, tick: str, fired: list[Life]) -> None:
        """Judge that a tick which a healthy firing fired was begun, or that there is a reason."""
        healthy = [
            life
            for life in fired
            if life.ended and life.status != 78 and not self._is_hindered(life, life.ended)
        ]
        if (key.name, tick) in self._unclaimed or not healthy:
            return
        others_hit = any(self._is_hindered(each, each.ended or each.at + key.ttl) for each in fired)
        is_quiet = min(life.at for life in fired) > self._world.settled_at
        for shard in range(key.shards):
            if self._by_tick.get((key.name, tick, shard)):
                continue
            reasons = [_reason(life, shard) for life in healthy]
            if not all(
                self._explains(
                    reason, key, shard, healthy, others_hit=others_hit, is_quiet=is_quiet
                )
                for reason in reasons
            ):
                said = sorted({str(reason) for reason in reasons})
                self.violation("missed", f"{key.name} {tick} shard {shard}: not begun: {said}")

    def _explains(
        self,
        reason: tuple[str | None, bool | None],
        key: Key,
        shard: int,
        healthy: list[Life],
        *,
        others_hit: bool,
        is_quiet: bool,
    ) -> bool:
        word, same_tick = reason
        if word in ("paused", "drained"):
            return any(self._was_stopped(key, life) for life in healthy)
        if is_quiet:
            return False
        if word == "held" and not same_tick:  # the last run still runs, or a newer tick has begun
            return others_hit or any(self._was_busy(key, shard, life) for life in healthy)
        if word in ("late", "recent", "passed"):
            return True
        if key.shards > 1 and word is None:
            return True  # its turn did not come: it was occupied with another shard
        return others_hit and word in ("done", "held", "exhausted")

    def _was_stopped(self, key: Key, life: Life) -> bool:
        return any(
            begin - 1 <= life.ended and end >= life.at - 1 and name in (key.name, life.host.name)
            for begin, end, name in self._stops
        )

    def _was_busy(self, key: Key, shard: int, life: Life) -> bool:
        tick = life.spec.firing.tick.text
        return any(
            start.at <= life.ended
            and (
                start.gone_at is None
                or start.gone_at + (key.ttl if start.life.hit else 1) >= life.at
                or start.tick > tick
            )
            for start in self._parts[key.name, shard]
        )


def _reason(life: Life, shard: int) -> tuple[str | None, bool | None]:
    """Return the last refusal of a shard, and whether the lease in the way is of the same tick."""
    found = [each for each in life.refusals if each[0] == shard]
    return found[-1][1:3] if found else (None, None)
