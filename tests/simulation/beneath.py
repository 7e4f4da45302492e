"""What stands below the product instead of Linux: the calls, the processes and the files of a spool, of one kernel."""

from __future__ import annotations

import json
import os
import select
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from greenlet import GreenletExit
from kernel import Descriptor, Host, Kernel, Process, below

from oncecron.core import system
from oncecron.run.place_file import PlaceFile
from oncecron.run.spool import Spool, is_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger import Ledger

    from oncecron.core.model import Lease
    from oncecron.run.spec import RunSpec

_STDERR, _SIGNALS = 2, 3
_NEVER_FULL = SimpleNamespace(waiters=[], is_readable=lambda: True)


class Calls(system.Calls):
    """The calls of a firing, each made by the current process."""

    def __init__(
        self, kernel: Kernel, said: Callable[[str], None], forked: Callable[[Process], None]
    ) -> None:
        """`said` gets each message, and `forked` each guard before its first step."""
        self._kernel, self._said, self._forked = kernel, said, forked
        self.poll = partial(_Poll, kernel)

    # Time and chance

    def wall(self) -> float:
        return self._kernel.current.process.host.wall()

    def clock_gettime(self, clock: int) -> float:
        self._kernel.point()
        host = self._kernel.current.process.host
        return host.wall() if clock == time.CLOCK_REALTIME else host.lease()

    def urandom(self, size: int) -> bytes:
        return self._kernel.current.process.host.random.randbytes(size)

    # Waiting

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

    def start_thread(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._kernel.thread(self._kernel.current.process, function, *args)

    # Descriptors

    def pipe(self) -> tuple[int, int]:
        process = self._kernel.current.process
        reader, writer = Descriptor(self._kernel, process, b""), Descriptor(self._kernel, process)
        reader.peer, writer.peer = writer, reader
        return reader.fd, writer.fd

    def read(self, fd: int, size: int) -> bytes:
        descriptor = self._kernel.descriptors[fd]
        data, descriptor.data = descriptor.data[:size], descriptor.data[size:]
        if not data and descriptor.peer.holders:
            raise BlockingIOError
        return data

    def write(self, fd: int, data: bytes) -> int:
        self._kernel.point()
        if fd == _STDERR:
            self._said(data.decode().strip())
            return len(data)
        peer = self._kernel.descriptors[fd].peer
        if not peer.holders:
            raise BrokenPipeError
        peer.data += data
        self._kernel.wake(*peer.waiters)
        return len(data)

    def open(self, *_arguments: object) -> int:
        return -1

    def close(self, fd: int) -> None:
        if not self._kernel.current.process.dead:  # as in a generator that its end closes
            self._kernel.point()
        if descriptor := self._kernel.descriptors.get(fd):
            self._kernel.let_go(descriptor, self._kernel.current.process)

    def set_blocking(self, _fd: int, _blocking: bool) -> None:
        return

    def isatty(self, _fd: int) -> bool:
        return False

    # Processes

    def fork(self, child: Callable[[], NoReturn]) -> int:
        kernel, parent = self._kernel, self._kernel.current.process
        kernel.point()
        process = Process(kernel, parent.host, parent, "guard", parent.life)
        for descriptor in parent.descriptors:
            if descriptor is not parent.signals:
                descriptor.holders.append(process)
                process.descriptors.append(descriptor)
        process.signals = Descriptor(kernel, process, [])
        self._forked(process)
        kernel.thread(process, child)
        return process.pid

    def exit(self, status: int) -> NoReturn:
        self._kernel.exit(self._kernel.current.process, status << 8)
        raise GreenletExit

    def getpid(self) -> int:
        self._kernel.point()
        return self._kernel.current.process.pid

    def waitpid(self, _pid: int, _options: int) -> tuple[int, int]:
        self._kernel.point()
        process = self._kernel.current.process
        if not process.children:
            raise ChildProcessError
        if not process.zombies:
            return 0, 0
        zombie = process.zombies.pop(0)
        process.children.remove(zombie)
        return zombie.pid, zombie.status or 0

    def _found(self, pid: int) -> Process:
        current = self._kernel.current.process
        for each in (current, *below(current)):
            if each.pid == pid:
                return each
        raise ProcessLookupError

    def kill(self, pid: int, number: int) -> None:
        self._kernel.kill(self._found(pid), number)

    pidfd_send_signal = kill

    def pidfd_open(self, pid: int) -> int:
        return self._found(pid).pid

    def listdir(self, path: str) -> list[str]:
        """Return the processes, or the one thread that has children."""
        of = path.split("/")[2:3]
        return of or [str(each.pid) for each in below(self._kernel.current.process)]

    def read_file(self, path: str) -> bytes:
        """Return /proc/PID/stat, with the pid for the time of the start, or /proc/.../PID/children."""
        process = self._found(int(path.split("/")[-2]))
        if path.endswith("/children"):
            return " ".join(str(each.pid) for each in process.children).encode()
        state, parent = "Z" if process.dead else "T" if process.stopped else "S", process.parent
        return f"() {state} {parent.pid if parent else 1}{' 0' * 17} {process.pid}".encode()


class _Poll:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._fds: list[int] = []

    def register(self, fd: int, _mask: int = 0) -> None:
        self._fds.append(fd)

    def unregister(self, fd: int) -> None:
        self._fds.remove(fd)

    def _known(self, fd: int) -> Any:
        if fd == _SIGNALS:
            return self._kernel.current.process.signals
        return _NEVER_FULL if fd == _STDERR else self._kernel.descriptors[fd]

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        kernel, thread = self._kernel, self._kernel.current
        kernel.point()
        known = [(fd, self._known(fd)) for fd in self._fds]

        def readable() -> list[tuple[int, int]]:
            return [(fd, select.POLLIN) for fd, each in known if each.is_readable()]

        for _, descriptor in known:
            descriptor.waiters.append(thread)
        try:
            kernel.sleep_until(kernel.now + milliseconds / 1000, readable)
        finally:
            for _, descriptor in known:
                descriptor.waiters.remove(thread)
        ready = readable()
        kernel.point()
        return ready


class Processes:
    """`seams.Processes`, with a `start` of the world; and `process_tree.Signals`, of whichever process reads."""

    fd, mask_before = _SIGNALS, ()

    def __init__(self, kernel: Kernel, start: Callable[..., int]) -> None:
        self._kernel, self.start = kernel, start

    def Signals(self) -> Processes:  # noqa: N802 - as the class is called
        process = self._kernel.current.process
        process.signals = Descriptor(self._kernel, process, [])
        return self

    def read(self) -> list[tuple[int, bool]]:
        descriptor = self._kernel.current.process.signals
        received, descriptor.data = descriptor.data, []
        return [(number, False) for number in received]  # none is from a terminal

    def become_subreaper(self) -> None:
        self._kernel.current.process.subreaper = True

    def become_guard(self, *, terminal: bool) -> None:
        self.become_subreaper()


class MemoryPlace(PlaceFile):
    """The file for a place on a host, in memory."""

    def __init__(self, host: Host, spec: RunSpec, say: Callable[[str], None]) -> None:
        super().__init__(spec.spool, spec.firing, say)
        self._host = host
        self._text = b""

    def make(self, lease: Lease | None) -> str:
        self._place = lease.place if lease else b""
        self.path = os.path.join(self._directory(lease), "place")
        self._host.places[self.path] = self._place + b"\n" if self._place else b""
        return self.path

    def look(self) -> bytes | None:
        before, self._text = self._text, self._read() if self.path else b""
        return self._newest(stays=self._text == before) if self.path else None

    def end(self, outcome: str) -> bytes | None:
        path = self.path
        left = super().end(outcome)
        self._host.places.pop(path, None)
        return left

    def _read(self) -> bytes:
        return self._host.places.get(self.path, b"")


class MemorySpool(Spool):
    """The spool of a host, with its files in memory."""

    def __init__(self, kernel: Kernel, host: Host, ledger: Ledger) -> None:
        super().__init__("/state", "simulated", "sim")
        self._kernel, self._host, self._ledger = kernel, host, ledger
        self.files: dict[str, str] = {}
        """Their texts, the oldest first."""
        self._unreachable: set[str] = set()
        self._locked = -1
        """The descriptor of the lock."""

    def keys(self) -> list[str]:
        return sorted({path.partition("/")[0] for path in self.files})

    def files_of(self, name: str) -> list[str]:
        return [path for path in self.files if path.startswith(f"{name}/")]

    def read_file(self, path: str) -> dict[str, Any]:
        if path not in self.files:
            raise FileNotFoundError
        return json.loads(self.files[path])

    def write_file(self, key: str, name: str, record: dict[str, Any]) -> str:
        """Write a file; what cannot be delivered is a violation."""
        self._kernel.point()
        path, text = f"{key}/{name}", json.dumps(record, allow_nan=False)
        if not is_record(json.loads(text)) or not name.endswith(".json"):
            self._ledger.violation("spool", f"{name}: {text}")
        self.files.pop(path, None)
        self.files[path] = text
        outcome = record.get("outcome") or record["reason"]
        self._kernel.trace("spool", self._host.name, path, outcome)
        return path

    def lock(self, name: str) -> int | None:
        """Let one process deliver at a time, of whichever key."""
        if self._locked in self._kernel.descriptors:
            return None
        self._locked = Descriptor(self._kernel, self._kernel.current.process).fd
        return self._locked

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def note_unreachable(self, key: str) -> bool:
        is_new = key not in self._unreachable
        self._unreachable.add(key)
        return is_new

    def note_waiting(self) -> bool:
        return self.note_unreachable("")

    def note_reached(self, key: str) -> None:
        self._unreachable.discard(key)
