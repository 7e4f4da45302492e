"""A kernel without hardware: virtual time, hosts with clocks of their own, processes, threads, signals, descriptors.

A thread is a greenlet. It runs until it waits, and no virtual time passes while it runs. One heap of events drives the
world, so one seed gives one history. Each call of the kernel is a `point` at which a process may be stopped or killed.
"""

from __future__ import annotations

import hashlib
import heapq
from itertools import count
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from ledger import Start
    from world import Life, MemorySpool

INF = float("inf")
TERM, KILL, STOP, CONT, CHLD = 15, 9, 19, 18, 17
_FIRST_DESCRIPTOR = 1 << 20


class Host:
    """A machine. Its wall clock and its lease clock are linear in true time, and can be stepped or stand still."""

    def __init__(self, kernel: Kernel, name: str, draw: random.Random, epoch: float) -> None:
        self.kernel, self.name, self.random = kernel, name, draw
        self.ahead = epoch + draw.choice((0.0, 0.0, draw.uniform(-2, 2), draw.uniform(-120, 120)))
        self.rate = 1 + draw.uniform(-1e-4, 1e-4)  # a lease clock may run this much too fast
        self.booted, self.stood_still = -draw.uniform(1e3, 1e6), 0.0
        self.frozen, self.frozen_at, self.up = False, 0.0, True
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.processes: dict[int, Process] = {}
        self.short_until = 0.0
        """Until then no process can be started."""
        self.spool: MemorySpool
        self.places: dict[str, bytes] = {}
        """The files for the places of its jobs."""

    def wall(self) -> float:
        return self.kernel.now + self.ahead

    def lease(self) -> float:
        """Return the lease clock, which never goes back: it has microseconds, and no remainders of sums."""
        return round((self.kernel.now - self.booted - self.stood_still) * self.rate, 6)

    def later(self, what: Callable[..., None], *args: Any) -> None:
        """Do something now, or when the host thaws."""
        if self.frozen:
            self.deferred.append((what, args))
        else:
            what(*args)


class Thread:
    """A thread of a process; `turn` counts its waits, so that an old timer does not end a new wait."""

    def __init__(self, kernel: Kernel, process: Process, run: Callable[[], None]) -> None:
        self.process, self.turn, self.until, self.waiting = process, 0, INF, True
        self.greenlet = greenlet(run, kernel.main)


class Process:
    """A process, with its place in the tree."""

    def __init__(
        self, kernel: Kernel, host: Host, parent: Process | None, name: str, life: Life | None = None
    ) -> None:  # fmt: skip
        self.pid, self.host, self.parent = next(kernel.pids), host, parent
        self.name, self.life = name, life
        self.children: list[Process] = []
        self.zombies: list[Process] = []
        self.threads: list[Thread] = []
        self.descriptors: list[Descriptor] = []
        self.dead = self.stopped = self.subreaper = self.deaf = False
        self.signals: Descriptor | None = None
        self.on_signal: Callable[[Process, int], None] | None = None
        self.on_exit: Callable[[], None] | None = None
        self.status: int | None = None
        self.ended: float | None = None
        self.stall, self.on_stall = 0, lambda process: None
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.start: Start
        host.processes[self.pid] = self
        if parent:
            parent.children.append(self)

    def is_out(self) -> bool:
        return self.dead or self.stopped or self.host.frozen

    def later(self, what: Callable[..., None], *args: Any) -> None:
        """Do something now, or when the process can act again."""
        if self.stopped:
            self.deferred.append((what, args))
        else:
            self.host.later(what, *args)


class Descriptor:
    """An eventfd (`count`), an end of a pipe (`data`, `peer`), or the signals of a process (`data`), and who has it."""

    def __init__(self, kernel: Kernel, process: Process, data: Any = None) -> None:
        self.fd, self.holders, self.data, self.count = next(kernel.fds), [process], data, 0
        self.waiters: list[Thread] = []
        self.peer: Descriptor | None = None
        kernel.descriptors[self.fd] = self
        process.descriptors.append(self)

    def is_readable(self) -> bool:
        """Return whether a read would not wait."""
        return bool(self.count or self.data or (self.peer and not self.peer.holders))


class Kernel:
    """The loop, and all that the processes of all hosts share."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        """`tell` gets each line of the trace."""
        self.now, self._number = 0.0, count()
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.main = getcurrent()
        self.current: Any = None
        """The thread that runs."""
        self.pids, self.fds = count(1001), count(_FIRST_DESCRIPTOR)
        self.descriptors: dict[int, Descriptor] = {}
        self.hash, self._tell = hashlib.sha256(), tell
        self.watch: Callable[..., None] = lambda process, number=0: None
        """Is told of each wrapper and guard that can no longer act, or can again, or gets a signal."""

    def trace(self, *words: Any) -> None:
        line = f"{self.now:.6f} {' '.join(map(str, words))}"
        self.hash.update(line.encode() + b"\n")
        if self._tell:
            self._tell(line)

    def at(self, when: float, what: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self.heap, (when, next(self._number), what, args))

    def run(self, until: float) -> None:
        while self.heap and self.heap[0][0] <= until:
            self.now, _, what, args = heapq.heappop(self.heap)
            what(*args)
        self.now = until

    # Threads

    def thread(self, process: Process, function: Callable[..., None], *args: Any) -> None:
        thread = Thread(self, process, lambda: function(*args))
        process.threads.append(thread)
        self.at(self.now, self._resume, thread, 0)

    def wait(self) -> None:
        """Let others run until `until` of the current thread, or until it is woken; it may wake for nothing."""
        thread = self.current
        thread.turn += 1
        thread.waiting = True
        if thread.until < INF:
            self.at(thread.until, self._resume, thread, thread.turn)
        self.main.switch()
        if thread.process.dead:
            raise GreenletExit

    def _resume(self, thread: Thread, turn: int) -> None:
        if thread.turn == turn and thread.waiting and not thread.process.is_out():
            thread.waiting, self.current = False, thread
            thread.greenlet.switch()
            self.current = None

    def wake(self, *threads: Thread) -> None:
        """Let threads look again at what they wait for."""
        for thread in threads:
            if thread.waiting:
                self.at(self.now, self._resume, thread, thread.turn)

    def point(self) -> None:
        """Be stopped or killed here, if that is to happen between two steps of the current process."""
        process = self.current.process
        if process.stall:
            process.stall -= 1
            if process.stall == 0:
                process.on_stall(process)
        if process.dead:
            raise GreenletExit
        while process.stopped or process.host.frozen:
            self.current.until = self.now
            self.wait()

    def sleep_until(self, until: float, is_over: Callable[[], object] = bool) -> None:
        """Wait until a time, which a freeze of the host moves, or until `is_over`, which a wake lets it ask."""
        thread = self.current
        thread.until = until
        while not is_over() and self.now < thread.until:
            self.wait()

    # Processes

    def kill(self, process: Process, number: int) -> None:
        if process.dead:
            return
        if number == KILL:
            moment = self.now + process.host.random.uniform(1e-4, 5e-3)
            self.at(moment, process.host.later, self.exit, process, KILL)
        elif number == STOP:
            process.stopped = True
            self._changed(process)
        elif number == CONT:
            self._continue(process)
        elif process.stopped:
            process.later(self.kill, process, number)
        elif process.signals:
            self.post(process.signals, number)
            self.watch(process, number)
        elif process.on_signal:
            process.on_signal(process, number)
        else:
            self.exit(process, number)

    def _continue(self, process: Process) -> None:
        process.stopped = False
        self._changed(process)
        deferred, process.deferred = process.deferred, []
        for what, args in deferred:
            what(*args)
        self.wake(*process.threads)

    def exit(self, process: Process, status: int) -> None:
        """End a process: its threads and descriptors go, and its children get another parent."""
        if process.dead:
            return
        process.dead, process.status, process.ended = True, status, self.now
        process.host.processes.pop(process.pid, None)
        for thread in process.threads:
            self.at(self.now, self._end_thread, thread)
        for descriptor in list(process.descriptors):
            self.let_go(descriptor, process)
        self._leave_children(process)
        if process.parent and not process.parent.dead:
            process.parent.zombies.append(process)
            if process.parent.signals:
                self.post(process.parent.signals, CHLD)
        self._changed(process)
        if process.on_exit:
            process.on_exit()

    def let_go(self, descriptor: Descriptor, process: Process) -> None:
        """Close a descriptor; the other end of a pipe sees when nobody has it any more."""
        process.descriptors.remove(descriptor)
        descriptor.holders.remove(process)
        if not descriptor.holders:
            del self.descriptors[descriptor.fd]
            if descriptor.peer:
                self.wake(*descriptor.peer.waiters)

    def _leave_children(self, process: Process) -> None:
        reaper = process.parent
        while reaper and (reaper.dead or not reaper.subreaper):
            reaper = reaper.parent
        for child in process.children:
            child.parent = reaper
            if reaper:
                reaper.children.append(child)
                if child.dead:
                    reaper.zombies.append(child)
            if child.name == "job" and not child.dead:
                self.kill(child, KILL)  # PR_SET_PDEATHSIG
        process.children = []

    def _end_thread(self, thread: Thread) -> None:
        if not thread.greenlet.dead:
            self.current = thread
            thread.greenlet.throw(GreenletExit)
            self.current = None

    def _changed(self, process: Process) -> None:
        if process.life:
            process.life.changed(self.now)
            self.watch(process)

    def post(self, descriptor: Descriptor, value: int) -> None:
        """Add to what a descriptor has to be read."""
        descriptor.data.append(value)
        self.wake(*descriptor.waiters)

    # Hosts

    def freeze(self, host: Host) -> None:
        host.frozen, host.frozen_at = True, self.now
        for process in list(host.processes.values()):
            self._changed(process)

    def thaw(self, host: Host, *, counts: bool) -> None:
        """Let a host go on. Timers stood still, and the lease clock too unless it `counts` suspend."""
        if not host.frozen:
            return
        slept = self.now - host.frozen_at
        host.frozen = False
        host.stood_still += 0 if counts else slept
        deferred, host.deferred = host.deferred, []
        for what, args in deferred:
            what(*args)
        for process in list(host.processes.values()):
            self._changed(process)
            for thread in process.threads:
                thread.until += slept if thread.waiting and thread.until > host.frozen_at else 0
            self.wake(*process.threads)

    def crash(self, host: Host) -> None:
        host.up = False
        self.thaw(host, counts=True)
        for process in list(host.processes.values()):
            self.exit(process, KILL)

    def boot(self, host: Host) -> None:
        host.up, host.booted, host.stood_still = True, self.now - 20, 0.0


def below(process: Process) -> Iterator[Process]:
    """Yield the descendants of a process, dead ones too."""
    for child in process.children:
        yield child
        yield from below(child)
