"""Give each start of the command in one firing the same standard input: the retries, and one shard after another.

What a command has read from a pipe is gone. Another start would find no input, do nothing, and succeed. So it counts
what the standard input is before the first start:

    a file         Each start begins to read where the first one did.
    a pipe         If all its writers are gone, as those of cron's input after `%`, what it holds is copied. That is at
                   most its capacity, by default 64 KiB. The first start reads from the pipe itself.
    a terminal     Each start reads from it. Likewise from /dev/null, and from a pipe in which nothing is left.
    anything else  A pipe that is still written, or a socket. Nobody can tell how much of it a command reads, so no
                   other start follows.

Another host that takes over has an input of its own.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import sys
import termios

from oncecron.core.light_modules import CDLL, c_int, c_void_p
from oncecron.host.safe_paths import memory_file

_SPLICE_F_NONBLOCK = 2
_ENDED = select.POLLHUP | select.POLLRDHUP


class RepeatedInput:
    """The standard input of a firing, in the guard."""

    def __init__(self) -> None:
        """Nothing has been started."""
        self._has_begun = False
        self._source = 0
        self._begins_at: int | None = None
        self.is_lost = False
        """Another start would lack what the one before may have read."""

    def begin(self) -> tuple[tuple[int, int], ...]:
        """Return what replaces the standard input of the next start: (0, descriptor), or nothing."""
        if not self._has_begun:
            self._has_begun = True
            try:
                self._look()
            except OSError:  # it is closed, or no pipe can be made
                return ()
        elif self._begins_at is not None:
            os.lseek(self._source, self._begins_at, os.SEEK_SET)
            return ((0, self._source),) if self._source else ()
        return ()

    def _look(self) -> None:
        mode = os.fstat(0).st_mode
        if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
            self._begins_at = os.lseek(0, 0, os.SEEK_CUR)
        elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            has_ended = _has_ended()  # before the look at what is left
            waiting = int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, bytes(4)), sys.byteorder)
            self.is_lost = bool(waiting) or not has_ended
            if waiting and has_ended and stat.S_ISFIFO(mode):
                self._copy(waiting)

    def _copy(self, size: int) -> None:
        """Copy what is in the pipe, and leave it there: a command may leave it to the next one of a script."""
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, fcntl.fcntl(0, fcntl.F_GETPIPE_SZ))
            tee = CDLL(None).tee
            tee.argtypes = (c_int, c_int, c_void_p, c_int)
            if tee(0, writer, size, _SPLICE_F_NONBLOCK) == size:
                source = memory_file("oncecron-input")
                os.write(source, os.read(reader, size))
                self._source, self._begins_at, self.is_lost = source, 0, False
        finally:
            os.close(reader)
            os.close(writer)


def _has_ended() -> bool:
    poll = select.poll()
    poll.register(0, _ENDED)
    return any(events & _ENDED for _, events in poll.poll(0))
