"""The forwarder: a process that forwards the job's output immediately and keeps a copy of its end.

It is a child of init, so nothing that ends the job, the guard or the wrapper ends it, and nothing waits for it.

- The job writes: the bytes go into the ring, then to the job's original output. Each pipe has its own thread. A slow
  reader blocks the job when the pipe is full, as it would without oncecron, and never blocks the other pipe.
- The reader is gone, or the disk is full: the forwarder closes its end of the pipe, and the job gets SIGPIPE.
- SETTLE is asked: everything that was in the pipes is in the ring. It may not have been forwarded yet, because the
  record of the end must not depend on the reader.
- FINISH is asked: everything that was in the pipes has been forwarded.
- No process holds the pipes any more: the ring is complete, and the forwarder exits. A daemon that the job has left
  keeps it running, as it would keep cron's pipe open.
- The forwarder is killed: the job gets SIGPIPE, and guard and wrapper see the end of the pipe of replies.
"""

from __future__ import annotations

import _thread
import collections
import errno
import fcntl
import os
import select
import stat
import sys
import termios

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.host import stderr
from oncecron.run.process_tree import cause_of, detach

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from oncecron.run.capture.ring import Ring

READY = 0
FINISH = 1
SETTLE = 2
"""Orders and replies are one byte each, and the reply repeats the order. Every byte from `SETTLE` on means settle."""

_CHUNK = 1 << 16  # bytes: the default size of a pipe on Linux
_NOBODY_READS = (errno.EPIPE, errno.ECONNRESET)
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Pipe(NamedTuple):
    """A pipe that the job writes to."""

    source: int
    """The end that the forwarder reads, non-blocking."""
    target: int
    """The original output of the job."""


def forward(
    pipes: Sequence[Pipe], ring: Ring, orders: int, replies: int, errors_begin: str
) -> NoReturn:
    """Run the forwarder, in a process that was forked for it."""
    try:
        needed = {orders, replies, *(descriptor for pipe in pipes for descriptor in pipe)}
        detach(needed, empty=(0,))
        _Forwarder(pipes, ring, orders, replies, errors_begin).run()
    except BaseException as error:  # noqa: BLE001 - the process ends here, with a message
        if cause := cause_of(error):
            stderr.complain(f"{errors_begin}the command's output is not recorded: {cause}")
        else:
            stderr.complain(f"internal error: {type(error).__name__}: {error}")
    finally:
        os._exit(0)


class _Forwarder:
    """The thread that takes orders; each stream has its own thread."""

    def __init__(
        self, pipes: Sequence[Pipe], ring: Ring, orders: int, replies: int, errors_begin: str
    ) -> None:
        lock = _thread.allocate_lock()
        self._ring = ring
        self._progress = os.eventfd(0, os.EFD_CLOEXEC)
        self._streams = [_Stream(pipe, ring, lock, self._progress, errors_begin) for pipe in pipes]
        self._orders = orders
        self._replies = replies
        self._finishing = False

    def run(self) -> None:
        """Forward until every pipe has ended."""
        for stream in self._streams:
            _thread.start_new_thread(stream.run, ())
        self._reply(READY)
        poll = select.poll()
        poll.register(self._progress, select.POLLIN)
        poll.register(self._orders, select.POLLIN)
        while not all(stream.ended for stream in self._streams):
            for descriptor, _ in poll.poll():
                if descriptor == self._progress:
                    os.eventfd_read(self._progress)
                elif orders := os.read(self._orders, 64):
                    self._obey(orders)
                else:  # wrapper and guard have exited
                    poll.unregister(self._orders)
            if self._finishing and not any(stream.busy() for stream in self._streams):
                self._finishing = False
                self._reply(FINISH)
        self._ring.complete = True

    def _obey(self, orders: bytes) -> None:
        for stream in self._streams:
            stream.take_all(tell=FINISH in orders)
        for order in orders:
            if order == FINISH:
                self._finishing = True
            else:
                self._reply(order)

    def _reply(self, word: int) -> None:
        try:
            os.write(self._replies, bytes([word]))
        except OSError:  # wrapper and guard have exited
            return


class _Stream:
    def __init__(
        self, pipe: Pipe, ring: Ring, lock: _thread.LockType, progress: int, errors_begin: str
    ) -> None:
        self._source, self._target = pipe
        self._ring = ring
        self._lock = lock  # for the ring, and for the order of reads
        self._progress = progress
        self._errors_begin = errors_begin
        self._taken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waiting: collections.deque[bytes] = collections.deque()
        self._read = self._passed = 0
        self._wanted = 0
        self._at_end = False
        self.ended = False

    # In the thread that takes orders

    def take_all(self, *, tell: bool) -> None:
        """Read what is in the pipe now; `tell`: report when it has been forwarded."""
        with self._lock:
            if not self.ended:
                self._take_all()
            if tell:
                self._wanted = self._read
        os.eventfd_write(self._taken, 1)

    def busy(self) -> bool:
        """Return whether reported output still has to be forwarded, or the end of the pipe has come."""
        with self._lock:
            if self.ended:
                return False
            poll = select.poll()
            poll.register(self._source, 0)
            return self._passed < self._wanted or bool(poll.poll(0))

    # In its own thread

    def run(self) -> None:
        """Forward until the job has closed its end, or the reader is gone."""
        try:
            self._run()
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                stderr.complain(
                    f"{self._errors_begin}cannot forward the command's output: {error.strerror}; "
                    "the command gets SIGPIPE"
                )
        finally:
            with self._lock:
                self._take_all()  # what has arrived meanwhile belongs to the record
                self.ended = True
                os.close(self._source)
            os.eventfd_write(self._progress, 1)

    def _run(self) -> None:
        poll = self._poll()
        while True:
            at_end = self._at_end  # read first: everything before the end is waiting by then
            while self._waiting:
                self._pass_on(self._waiting.popleft())
            if at_end:
                return
            for descriptor, event in poll.poll():
                if descriptor == self._taken:
                    os.eventfd_read(self._taken)
                if descriptor == self._target and event & _BROKEN:
                    return
            with self._lock:
                self._take(_CHUNK)

    def _poll(self) -> select.poll:
        """Return a poll object for the job's output and for the end of the reader.

        Without oncecron the job would see a closed pipe immediately. A named pipe is not watched, because it may have a
        reader again before the next byte.
        """
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._taken, select.POLLIN)
        status = os.fstat(self._target)
        unnamed = status.st_dev == os.fstat(self._source).st_dev
        if unnamed or not stat.S_ISFIFO(status.st_mode):
            poll.register(self._target, 0)
        return poll

    def _take_all(self) -> None:
        """Read what is there now, with the lock held, and not what a daemon still writes."""
        remaining = int.from_bytes(
            fcntl.ioctl(self._source, termios.FIONREAD, bytes(4)), sys.byteorder
        )
        while remaining > 0 and (read := self._take(remaining)):
            remaining -= read

    def _take(self, most: int) -> int:
        """Read at most `most` bytes, with the lock held; return how many were read."""
        try:
            data = os.read(self._source, min(most, _CHUNK))
        except BlockingIOError:  # the other thread was faster
            return 0
        if data:
            self._ring.add(data)
            self._waiting.append(data)
            self._read += len(data)
        else:
            self._at_end = True
        return len(data)

    def _pass_on(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining:
            try:
                written = os.write(self._target, remaining)
            except BlockingIOError:  # another process made the shared descriptor non-blocking
                poll = select.poll()
                poll.register(self._target, select.POLLOUT)
                poll.poll()
                continue
            remaining = remaining[written:]
            self._passed += written
        if self._passed >= self._wanted > 0:
            self._wanted = 0
            os.eventfd_write(self._progress, 1)
