"""What stands below the product instead of Linux: `os`, `select`, `time`, the process tree and signals of one kernel.

`install` is all that is replaced in the product.
"""

from __future__ import annotations

import os
import select
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from kernel import CONT, KILL, Descriptor, Kernel, Process, below

if TYPE_CHECKING:
    from collections.abc import Callable


def install(
    kernel: Kernel,
    start_job: Callable[..., int],
    complain: Callable[[str], None],
    watch: Callable[[Any], Any] | None,
) -> None:
    """Put a kernel below the product. Each comment names the seam that would make the lines below it needless."""
    from oncecron.core import clock, decision, retry, stderr
    from oncecron.run import guard, process_tree, reporter, spec, spool, store_thread, wrapper
    from oncecron.stores import claim_loop

    # One module of calls to the host (eventfd, poll, clocks, urandom), which these take instead of `os`.
    simulated_os, simulated_time = _Os(kernel), _Time(kernel)
    for module in (retry, stderr, guard, reporter, spec, spool, store_thread, wrapper):
        module.os = simulated_os
    for module in (guard, store_thread, wrapper):
        module.select = SimpleNamespace(poll=partial(_Poll, kernel), POLLIN=select.POLLIN)
    clock.time = wrapper.time = simulated_time
    # How a thread starts, and the driver that it needs: from what opens the store.
    store_thread.start_thread = lambda run, args: kernel.thread(kernel.current.process, run, *args)
    guard.load_driver = lambda _address: None
    # Where messages go: from the specification of the firing.
    stderr.complain = complain
    # The tree and how a job is started: arguments of `Guard`, as `Wrapper` has the tree already.
    process_tree.Tree = partial(Tree, kernel)
    process_tree.start = start_job
    # Nothing is replaced here but for a count of what is reached: an observer of decisions.
    if watch:
        claim_loop.decide = watch(decision.decide)
        claim_loop.goes_on_after = watch(decision.goes_on_after)


class _Os:
    """The calls of `os` that the product makes, by the same names; the others are those of Python."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.environ: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def urandom(self, size: int) -> bytes:
        return self._kernel.current.process.host.random.randbytes(size)

    def isatty(self, _fd: int) -> bool:
        return False

    def eventfd(self, _count: int, _flags: int) -> int:
        return Descriptor(self._kernel, self._kernel.current.process).fd

    def eventfd_write(self, fd: int, count: int) -> None:
        if descriptor := self._kernel.descriptors.get(fd):
            descriptor.count += count
            self._kernel.wake(*descriptor.waiters)
        self._kernel.point()

    def eventfd_read(self, fd: int) -> None:
        descriptor = self._kernel.descriptors[fd]
        if not descriptor.count:
            raise BlockingIOError
        descriptor.count = 0

    def read(self, fd: int, size: int) -> bytes:
        descriptor = self._kernel.descriptors[fd]
        data, descriptor.data = descriptor.data[:size], descriptor.data[size:]
        if not data and not descriptor.peer.process.dead:
            raise BlockingIOError
        return data

    def write(self, fd: int, data: bytes) -> int:
        self._kernel.point()
        peer = self._kernel.descriptors[fd].peer
        if peer.process.dead:
            raise BrokenPipeError
        peer.data += data
        self._kernel.wake(*peer.waiters)
        return len(data)

    def open(self, *_arguments: object) -> int:
        return -1

    def close(self, _fd: int) -> None:
        self._kernel.point()

    def set_blocking(self, _fd: int, _blocking: bool) -> None:
        return

    def getpid(self) -> int:
        return self._kernel.current.process.pid

    def fork(self) -> NoReturn:
        raise NotImplementedError


class _Poll:
    """`select.poll`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._fds: list[int] = []

    def register(self, fd: int, _mask: int = 0) -> None:
        self._fds.append(fd)

    def unregister(self, fd: int) -> None:
        self._fds.remove(fd)

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        kernel = self._kernel
        kernel.point()
        known = [kernel.descriptors[fd] for fd in self._fds]
        for descriptor in known:
            descriptor.waiters.append(kernel.current)
        thread = kernel.current
        try:
            until = kernel.now + milliseconds / 1000
            kernel.sleep_until(until, lambda: any(each.is_readable() for each in known))
        finally:
            for descriptor in known:
                descriptor.waiters.remove(thread)
        ready = [each for each in known if each.is_readable()]
        kernel.point()
        return [(each.fd, select.POLLIN) for each in ready]


class _Time:
    """The clocks of `time`, of the host on which the product runs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return self._kernel.current.process.host.wall()

    def clock_gettime(self, _clock: int) -> float:
        self._kernel.point()
        return self._kernel.current.process.host.lease()

    def monotonic(self) -> float:
        return self._kernel.current.process.host.lease()


class Signals:
    """`process_tree.Signals` of the current process."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, process = kernel, kernel.current.process
        process.signals = self._descriptor = Descriptor(kernel, process, [])
        self.fd, self.mask_before = self._descriptor.fd, ()

    def read(self) -> list[tuple[int, bool]]:
        """Return the signals that have come; none is from a terminal."""
        received, self._descriptor.data = self._descriptor.data, []
        return [(number, False) for number in received]


class Tree:
    """`process_tree.Tree` of the current process: the same words mean the same."""

    def __init__(self, kernel: Kernel, *awaited: int) -> None:
        self._kernel = kernel
        self.statuses: dict[int, int] = {}
        self.awaited = set(awaited)
        self._apart: frozenset[Process] = frozenset()

    def _members(self) -> list[Process]:
        return list(below(self._kernel.current.process, self._apart))

    def expect(self, pid: int) -> None:
        """Await a child."""
        self.statuses.pop(pid, None)
        self.awaited.add(pid)

    def set_apart(self) -> None:
        """Take what is there now for no part of the tree."""
        if self.reap():
            alive = (each for each in below(self._kernel.current.process) if not each.dead)
            self._apart = frozenset(alive)

    def signal_awaited(self, number: int) -> None:
        """Send a signal to the awaited children."""
        for each in self._kernel.current.process.children:
            if each.pid in self.awaited:
                self._kernel.kill(each, number)

    def signal(self, number: int) -> None:
        """Send a signal to all members, and CONT to the stopped ones."""
        for process in self._members():
            self._kernel.kill(process, number)
            if process.stopped:
                self._kernel.kill(process, CONT)

    def reap(self) -> bool:
        """Collect the zombies; return whether another child is left."""
        self._kernel.point()
        process = self._kernel.current.process
        while process.zombies:
            zombie = process.zombies.pop(0)
            process.children.remove(zombie)
            if zombie.pid in self.awaited:
                self.awaited.remove(zombie.pid)
                self.statuses[zombie.pid] = zombie.status or 0
        return any(child not in self._apart for child in process.children)

    def kill(self) -> bool:
        """Kill all members; return whether one is left."""
        for process in self._members():
            self._kernel.kill(process, KILL)
        return self.reap()

    def kill_all(self, timeout: float) -> bool:
        """Kill until no member is left; return False after `timeout` seconds."""
        end = self._kernel.now + timeout
        while self.kill():
            self._kernel.sleep_until(self._kernel.now + 0.002)
            if self._kernel.now >= end:
                return False
        return True
