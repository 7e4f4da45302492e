"""The world of one seed: hosts with crontabs, their jobs, and what goes wrong (`faults`)."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, Any

import faults
from beneath import Calls, MemorySpool, Processes
from firings import Key, Life, Runner
from items import ItemRuns, ItemsKey
from kernel import Host, Kernel, Process
from ledger import Ledger
from server import EPOCH, Server
from shrink import ALL, HOUR, Only
from store import Network

from oncecron.core import system

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger import Start, Violation

_LONGEST_JOB, _LAST_JOBS = 900.0, 5.0
_ENDING = 200.0
"""Seconds in which the last firings have all ended."""
_SETTLING = 1800.0
"""Seconds after the last fault until nothing of it can be felt any more."""


class World:
    """Hosts, keys, a server and a network between them; it runs for some hours, and then until all is quiet."""

    def __init__(
        self, seed: int, hours: float, *, only: Only = ALL, calm: bool = False, items: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        """Play `only` a part of what the seed has; `calm`: no faults; `items`: all keys have items."""
        self._seed, draw = seed, random.Random(f"{seed} world")
        self.kernel = kernel = Kernel(tell)
        self.ledger = Ledger(self)
        hosts = [f"host{number}" for number in range(draw.choice((2, 3, 3, 4)))]
        self.hosts = [Host(kernel, name, self._draw(name), EPOCH) for name in hosts]
        keys = [
            f"key{number}" for number in range(draw.choice((2, 3, 4))) if only.of(only.keys, number)
        ]
        self.keys: list[Key] = [Key(name, self._draw(name)) for name in keys]
        self.items = ItemRuns(self)
        if items:
            self.keys = [ItemsKey(self, name, self._draw(name, "items")) for name in keys]
        self._make_store(draw)
        processes = Processes(kernel, self._start_job)
        self.runner = Runner(kernel, self.network, self.ledger, processes)
        system.use(Calls(kernel, self.runner.said, self.runner.forked))
        self.lives: list[Life] = []
        """Those that are not over; `all_lives` has all."""
        self.all_lives: list[Life] = []
        self.quiet_at = hours * HOUR
        self.settled_at = self.quiet_at + _SETTLING
        is_hourly = any(key.every == 60 for key in self.keys)
        self.last_at = self.settled_at + (3700 if is_hourly else 400)
        """The last firing."""
        self.end = self.last_at + _ENDING
        pause = draw.choice((10.0, 30.0, 120.0))
        drawn = () if calm else faults.draw(seed, self.quiet_at, pause)
        self.faults = {
            number: fault for number, fault in enumerate(drawn) if only.of(only.faults, number)
        }
        self.nemesis = faults.Nemesis(self)
        for at, kind, of_fault in self.faults.values():
            kernel.at(at, self.nemesis.strike, kind, of_fault)
        for number, host in enumerate(self.hosts):
            host.spool = MemorySpool(kernel, host, self.ledger)
            if only.of(only.hosts, number):
                kernel.at(0.0, self._cron, host, None)

    def _draw(self, *names: object) -> random.Random:
        """Return choices that do not depend on which others there are."""
        return random.Random(" ".join(map(str, (self._seed, *names))))

    def _make_store(self, draw: random.Random) -> None:
        guarded, sessions = draw.random() < 0.3, draw.random() < 0.4
        self.server = Server(self.kernel, guarded=guarded, sessions=sessions)
        self.server.on_expire = self.ledger.expires
        draws = {host.name: self._draw(host.name, "network") for host in self.hosts}
        self.network = Network(self.kernel, self.server, draws, timely=draw.random() < 0.5)

    def run(self, *, for_kind: str | None = None) -> list[Violation]:
        """Run to the end, or until a violation `for_kind` is found, "" for any kind."""
        kernel, found = self.kernel, self.ledger.violations
        while kernel.now < self.end and (
            for_kind is None or not any(for_kind in ("", each.kind) for each in found)
        ):
            next_step = self.quiet_at if kernel.now < self.quiet_at else self.end
            kernel.run(min(next_step, kernel.now + 600))
            if kernel.now == self.quiet_at:
                self.nemesis.heal()
        if kernel.now == self.end:
            self.ledger.at_the_end()
            self.items.at_the_end()
        return self.ledger.violations

    # Cron

    def _cron(self, host: Host, last: float | None) -> None:
        """Wake up after each minute of the host's own clock, and fire what is due."""
        kernel, minute = self.kernel, host.wall() // 60
        is_over = kernel.now > self.last_at
        if host.up and not host.frozen and last not in (None, minute) and not is_over:
            for key in self.keys:
                if minute % key.every == 0:
                    draw = self._draw(host.name, key.name, minute)
                    late = draw.choice((0.0, 0.0, draw.uniform(0, 0.3), draw.uniform(0, 20)))
                    kernel.at(kernel.now + late, self.fire, host, key, draw)
        wait = (minute + 1) * 60 - host.wall() + 0.5
        kernel.at(kernel.now + wait, self._cron, host, minute)

    def fire(self, host: Host, key: Key, draw: random.Random, *, again: bool = False) -> None:
        """Start a firing, by cron or (`again`) by a person."""
        if not host.up or host.frozen:
            return
        life = Life(host, key, self.kernel.now, draw, again=again)
        self.lives = [each for each in self.lives if not each.is_over()]
        life.on_state = self.nemesis.entered
        self.lives.append(life)
        self.all_lives.append(life)
        self.runner.fire(life)

    # Jobs

    def _start_job(
        self, _program: str, _command: object, environment: Mapping[str, str], *more: Any
    ) -> int:
        kernel = self.kernel
        kernel.point()
        guard = kernel.current.process
        if guard.host.short_until > kernel.now:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        job = Process(kernel, guard.host, guard, "job")
        delay = guard.life.random.uniform(0.0005, 0.004)
        body = more[-1] if guard.life.key.count else None
        begin = (self._begin_job, job, guard.life, environment, body)
        kernel.at(kernel.now + delay, job.later, *begin)
        kernel.sleep_until(kernel.now + delay + 0.0005)
        kernel.point()
        return job.pid

    def _begin_job(
        self, job: Process, life: Life, environment: Mapping[str, str], body: Any
    ) -> None:
        if job.dead:
            return
        if body:
            self._belongs(job, self.ledger.begins(life, environment), deaf=True)
            self.kernel.thread(job, lambda: self._exit(job, body() << 8))
            return
        kernel, draw = self.kernel, life.random
        seconds = min(draw.expovariate(1 / life.key.usual), _LONGEST_JOB) + 0.01
        code = 0 if draw.random() < 0.75 else draw.choice((1, 1, 9))
        if kernel.now >= self.quiet_at:
            seconds, code = min(seconds, _LAST_JOBS), 0
        start = self.ledger.begins(life, environment)
        if path := environment.get("ONCECRON_PLACE"):
            self._count(job, start, path, self.ledger.finds_place(start, job.host.places[path]))
        self._belongs(job, start, deaf=draw.random() < 0.15)
        if draw.random() < 0.2:
            grandchild = Process(kernel, job.host, job, "grandchild")
            self._belongs(grandchild, start, deaf=draw.random() < 0.4)
            self._exits_after(seconds * draw.uniform(0.2, 3), grandchild, 0)
        self._exits_after(seconds, job, code << 8)

    def _count(self, job: Process, start: Start, path: str, number: int) -> None:
        """Do the next piece of the work; its number is the place, once the file has it whole."""
        if job.dead:
            return
        if number > start.found:
            start.numbers.append((number, self.kernel.now))
        self._leave(job, path, b"")
        for after, what, last in (
            (0.01, self._leave, b"%d\n" % number),
            (start.life.key.step, self._count, None),
        ):
            args = (path, last) if last else (start, path, number + 1)
            self.kernel.at(self.kernel.now + after, job.later, what, job, *args)

    def _leave(self, job: Process, path: str, text: bytes) -> None:
        if not job.dead and path in job.host.places:
            job.host.places[path] = text

    def _belongs(self, process: Process, start: Start, *, deaf: bool) -> None:
        process.start, process.deaf, process.on_signal = start, deaf, self._job_signalled
        process.on_exit = start.changed
        start.processes.append(process)

    def _job_signalled(self, process: Process, number: int) -> None:
        self.ledger.signalled(process.start, number)
        if not process.deaf:
            draw = process.start.life.random
            status = draw.choice((number, number, 0, 1 << 8))
            self._exits_after(draw.choice((0.001, 0.5, 2.0)), process, status)

    def _exits_after(self, seconds: float, process: Process, status: int) -> None:
        self.kernel.at(self.kernel.now + seconds, process.later, self._exit, process, status)

    def _exit(self, process: Process, status: int) -> None:
        if not process.dead:
            self.kernel.exit(process, status)
            self.ledger.job_ended(process, status)
