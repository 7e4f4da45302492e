"""Keep the end of the job's output (`--capture`): the part of the wrapper and of the guard.

- The wrapper makes the pipes and forks the forwarder, before it forks the guard. It exits when all output of the job
  has been forwarded, or at a signal. A daemon that the job has left does not delay it.
- The guard gives the pipes to each attempt. When the job's process tree is gone, it reads the ring. It waits for the
  forwarder at most a second, and never on the way to a kill.
- Neither needs the forwarder. If it is killed before a start, the job writes to its original output. If it is killed
  later, the record has what the ring has, and a note.

Without `--capture` none of this is imported.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import LONGEST_SLEEP, NEVER, OUTPUT_TIMEOUT
from oncecron.run.capture.forwarder import FINISH, READY, SETTLE, Pipe, forward
from oncecron.run.capture.ring import Ring
from oncecron.run.process_tree import start_detached

if TYPE_CHECKING:
    from oncecron.core.model import Ending
    from oncecron.run.process_tree import Signals

_LEAVE_AT = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class Capture:
    """The pipes, the ring, and the way to the forwarder."""

    def __init__(self, size: int, errors_begin: str) -> None:
        """Fork the forwarder, which keeps the last `size` bytes. To be called before any thread starts.

        Only open outputs are captured: a standard output or standard error that is closed stays closed.
        """
        self._ring = Ring(size)
        ends = {target: _pipe() for target in sorted({*_outputs().values()})}
        self._outputs = tuple((number, ends[target][1]) for number, target in _outputs().items())
        orders, self._orders = _pipe()
        self._replies, replies = _pipe()
        pipes = [Pipe(source, target) for target, (source, _) in ends.items()]
        for pipe in pipes:
            os.set_blocking(pipe.source, False)
        os.set_blocking(self._replies, False)
        # Adopted by init, it is not in the tree that the wrapper may have to kill.
        start_detached(lambda: forward(pipes, self._ring, orders, replies, errors_begin))
        for descriptor in (orders, replies, *(pipe.source for pipe in pipes)):
            os.close(descriptor)
        self._order = SETTLE
        self._gone = False

    # In the guard

    def begin(self) -> tuple[tuple[int, int], ...]:
        """Return the job's outputs, (1, descriptor) and (2, descriptor); nothing if there is no forwarder."""
        self._wait_for(READY, OUTPUT_TIMEOUT if self._order == SETTLE else 0)
        if self._gone:
            return ()
        self._ring.begin()
        return self._outputs

    def with_output(self, ending: Ending) -> Ending:
        """Add the output to the end of an attempt whose process tree is gone."""
        missing = self._missing()
        output = self._ring.end()
        if output is None or ending.outcome == "not-started":
            return ending
        note = "; ".join(filter(None, (ending.note, missing)))
        return ending._replace(output=output, note=note or None)

    # In the wrapper

    def close_outputs(self) -> None:
        """Close the pipes in this process: the forwarder sees their end only when every copy is closed."""
        for descriptor in {descriptor for _, descriptor in self._outputs}:
            os.close(descriptor)

    def pass_on(self, signals: Signals, within: float | None) -> None:
        """Wait until all output of the job has been forwarded, or for a signal that ends the firing.

        `within`: seconds; None: as long as the reader takes, as the job itself would wait.
        """
        self._tell(FINISH)
        deadline = time.monotonic() + (NEVER if within is None else within)
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        poll.register(signals.fd, select.POLLIN)
        while (remaining := deadline - time.monotonic()) > 0:
            if FINISH in self._read() or self._gone:
                return
            if any(one.number in _LEAVE_AT for one in signals.read()):
                return
            poll.poll(min(remaining, LONGEST_SLEEP) * 1000)

    # In both

    def _missing(self) -> str | None:
        """Have the forwarder move the job's output into the ring; return a note if some of it is missing."""
        self._order = SETTLE + (self._order - SETTLE + 1) % 200
        self._tell(self._order)
        if self._wait_for(self._order, OUTPUT_TIMEOUT) or self._ring.complete:
            return None
        if self._gone:
            return "its output is incomplete: the process that forwards it was killed"
        return "the end of its output did not arrive in time"

    def _tell(self, order: int) -> None:
        try:
            os.write(self._orders, bytes([order]))
        except OSError:  # the forwarder is gone: the pipe of its replies has ended
            return

    def _wait_for(self, reply: int, within: float) -> bool:
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        deadline = time.monotonic() + within
        while reply not in self._read():
            remaining = deadline - time.monotonic()
            if self._gone or remaining <= 0:
                return False
            poll.poll(remaining * 1000)
        return True

    def _read(self) -> bytes:
        replies = b""
        while not self._gone:
            try:
                more = os.read(self._replies, 256)
            except BlockingIOError:
                break
            self._gone = not more
            replies += more
        return replies


def _outputs() -> dict[int, int]:
    given = [number for number in (1, 2) if _is_given(number)]
    if len(given) == 2 and os.path.sameopenfile(1, 2):  # noqa: PLR2004
        return {1: 1, 2: 1}
    return {number: number for number in given}


def _is_given(descriptor: int) -> bool:
    """Return whether the caller opened it; a descriptor that this process opened in its place is not inheritable."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    return _above_standard(reader), _above_standard(writer)


def _above_standard(descriptor: int) -> int:
    """Return a descriptor above 2, so that it cannot be mistaken for a closed standard one."""
    if descriptor > 2:  # noqa: PLR2004
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved
