"""The place of a run: the file in which a job leaves where the next attempt of its tick goes on.

Each start has a directory of its own in the spool, and in it a file with what the attempt before left and a newline, or
nothing. The guard looks at it once a second while the job runs, and once more when that is gone; the wrapper reads it
when it has killed the guard. What counts ends in a newline: a file that is just being written, or was just truncated,
does not. A job may put anything there: no link is followed, nothing waits, and no more is read than a place may have.

Where wrapper and guard were killed together, the directory is left. The next start of that shard of the key removes it:
its lease shows that nobody else may run, on this host or on another one with the same home. A start without a lease has
no such proof: what it left is removed when its wrapper is gone, and no container with the same spool may have it.
"""

from __future__ import annotations

import errno
import os
import stat

from oncecron.core import clock
from oncecron.core.errors import OncecronError, reason_of
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LONGEST_PLACE
from oncecron.core.units import DAY
from oncecron.run.spool import name_of, short_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Firing, Lease
    from oncecron.run.spool import Spool

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_PLACES = ".places"
_LEASED = 3
"""Words of the name of a directory that a start under a lease has."""


class PlaceFile:
    """The files of one firing, one after another; the guard makes them, and the wrapper finds the last by its name."""

    def __init__(self, spool: Spool, firing: Firing, say: Callable[[str], None]) -> None:
        self._spool, self._firing, self._say = spool, firing, say
        self._said: set[str] = set()
        self._place: bytes | None = b""
        self._no_file: str | None = None
        """Why the command that runs has none."""
        self._seen: tuple[int, ...] = ()
        """What tells one state of the file from another."""
        self._is_settled = False
        """Whether two looks have seen the same: a change within one tick of the kernel's clock shows at the second."""
        self.is_half_written = False
        """Whether the last look met the job while it wrote: another one soon sees the place."""
        self.path: str | None = None
        self.left: bytes | None = None
        """What the job has left last; None: nothing new."""

    def make(self, lease: Lease | None) -> str | None:
        """Make the file for a start, and return its path; None where it cannot be made."""
        self._place = lease.place if lease else b""
        self._seen, self._is_settled = (), False
        directory = self._directory(lease)
        try:
            self._write(directory, lease)
        except (OncecronError, OSError) as error:
            _remove(directory)
            why = error if isinstance(error, OncecronError) else self._unwritable(error)
            self._no_file = f"the command runs without $ONCECRON_PLACE: {why}"
            if self._place:
                self._say_once(self._no_file)
            return None
        self.path = os.path.join(directory, "place")
        return self.path

    def _write(self, directory: str, lease: Lease | None) -> None:
        self._spool.made(_PLACES)
        if lease:
            self._remove_left(directory)
        os.mkdir(directory, 0o700)
        descriptor = os.open(os.path.join(directory, "place"), _MAKE, 0o600)
        try:
            text = self._place + b"\n" if self._place else b""
            if os.write(descriptor, text) < len(text):  # the rest has no room
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def _unwritable(self, error: OSError) -> str:
        cure = "set XDG_STATE_HOME to a directory that this user can write to"
        return f"cannot write to {self._spool.root}: {reason_of(error)}; {cure}"

    def find(self, lease: Lease | None) -> PlaceFile:
        """Take the file that another process has made; it may have what that has sent already."""
        self.path = os.path.join(self._directory(lease), "place")
        self._place = None
        return self

    def look(self) -> bytes | None:
        """Return the place if the job has left another one since the last look."""
        was_half_written, self.is_half_written = self.is_half_written, False
        if self.path is None:
            return None
        try:
            status = os.lstat(self.path)
        except OSError:
            return None
        seen = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
        if was_half_written and seen == self._seen:
            return None  # a slow writer has until the next look
        was_settled, self._is_settled = self._is_settled, seen == self._seen
        self._seen = seen
        if was_settled and self._is_settled:
            return None
        return self._newest(stays=self._is_settled)

    def end(self, outcome: str) -> bytes | None:
        """Return what the job, which is gone, has left last, None for nothing new; remove the file.

        A command that has none, and does not need it, is not mailed about at each tick: only where it did not succeed.
        """
        if self.path is not None:
            self._newest(stays=True)
            _remove(os.path.dirname(self.path))
            self.path = None
        if self._no_file and outcome != "succeeded":
            self._say_once(self._no_file)
        left, self.left, self._no_file = self.left, None, None
        return left

    def _newest(self, *, stays: bool) -> bytes | None:
        text = self._read()
        self.is_half_written = not (stays or text.endswith(b"\n"))
        if not text:
            return None
        if not text.endswith(b"\n"):
            if stays:
                self._ignore("does not end in a newline")
            return None
        place = text[:-1]
        if b"\0" in place:
            self._ignore("contains a NUL byte")
        elif place != self._place:
            self._place = self.left = place
            return place
        return None

    def _read(self) -> bytes:
        try:
            descriptor = os.open(self.path or "", _READ)
        except FileNotFoundError:
            return b""  # the job is about to replace it
        except OSError as error:
            is_file = error.errno not in (errno.ELOOP, errno.ENXIO)
            self._ignore(
                f"cannot be read: {error.strerror}" if is_file else "is not a regular file"
            )
            return b""
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self._ignore("is not a regular file")
            elif status.st_size > LONGEST_PLACE + 1:
                self._ignore(f"is longer than {LONGEST_PLACE} bytes")
            else:
                return os.read(descriptor, LONGEST_PLACE + 1)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
        return b""

    def _ignore(self, why: str) -> None:
        self._say_once(
            f"what the command left in $ONCECRON_PLACE is ignored, and the last place stays: it {why}"
        )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _directory(self, lease: Lease | None) -> str:
        """Return the directory of a start: KEY+SHARD+START, without a lease also the pid of the wrapper."""
        firing = self._firing
        shard, number = (lease.shard, lease.attempt) if lease else (firing.shard, 0)
        # The owner id is a secret, and the job's environment is not: 32 bits say nothing of its 122.
        start = f"{short_hash(f'{(lease or firing).owner} {number}'.encode()):08x}"
        wrapper = "" if lease else f"+{firing.holder.pid}"
        name = f"{name_of(firing.key)}+{shard}+{start}{wrapper}"
        return os.path.join(self._spool.root, _PLACES, name)

    def _remove_left(self, directory: str) -> None:
        """Remove what killed firings of the same shard have left. To be called under its lease."""
        parent, name = os.path.split(directory)
        ours = name.split("+")[:2]
        for other in os.listdir(parent):
            words = other.split("+")
            if words[:2] == ours and (len(words) == _LEASED or _is_gone(parent, other)):
                _remove(os.path.join(parent, other))


def _is_gone(parent: str, name: str) -> bool:
    """Return whether the wrapper of a start is gone; another container with this spool has pids of its own."""
    try:
        age = abs(clock.wall() - os.lstat(os.path.join(parent, name)).st_mtime)
    except OSError:
        return False
    return age > DAY and not os.path.exists(f"/proc/{name.rpartition('+')[2]}")


def _remove(directory: str) -> None:
    """Remove a directory and the files that the job has put there, but no tree; a link that stands there, alone."""
    try:
        descriptor = os.open(directory, _ENTER)
    except OSError:
        _unlink(directory)
        return
    try:
        for name in os.listdir(descriptor):
            _unlink(name, descriptor)
        os.rmdir(directory)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _unlink(name: str, descriptor: int | None = None) -> None:
    """Remove a file, a link or an empty directory, where that is possible."""
    for remove in (os.unlink, os.rmdir):
        try:
            remove(name, dir_fd=descriptor)
        except OSError:
            continue
        return
