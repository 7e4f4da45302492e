"""The place of a run: the file in which a job leaves where the next attempt of its tick goes on.

Each start has a directory of its own, and in it a file with what the attempt before left and a newline, or nothing. The
guard looks at it once a second while the job runs, and once more when that is gone; the wrapper reads it when it has
killed the guard. What counts ends in a newline: a file that is just being written, or was just truncated, does not. A
job may put anything there: no link is followed, nothing waits, and no more is read than a place may have.
"""

from __future__ import annotations

import errno
import os
import stat

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LONGEST_PLACE, owner_digest
from oncecron.stores.address import state_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Firing, Lease

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PlaceFile:
    """The file of one start; the guard makes it, and the wrapper finds it by its name."""

    def __init__(self, firing: Firing, lease: Lease | None, say: Callable[[str], None]) -> None:
        shard, number = (lease.shard, lease.attempt) if lease else (0, 0)
        # An owner id is a secret, so nobody knows the name before it is made.
        name = f"oncecron-{owner_digest(f'{(lease or firing).owner} {shard} {number}')}"
        self._directories = [os.path.join(parent, name) for parent in _parents()]
        self._place: bytes | None = lease.place if lease else b""
        self._say = say
        self._said: set[str] = set()
        self._seen: tuple[int, ...] = ()
        """What tells one state of the file from another."""
        self._is_settled = False
        """Whether two looks have seen the same: a change within one tick of the kernel's clock shows at the second."""
        self.path: str | None = None
        self.left: bytes | None = None
        """What the job has left last; None: nothing new."""

    def make(self) -> str | None:
        """Make the file; return its path, or None where it cannot be made, which is reported."""
        why = None
        for directory in self._directories:
            try:
                os.mkdir(directory, 0o700)
                self.path = os.path.join(directory, "place")
                descriptor = os.open(self.path, _MAKE, 0o600)
                try:
                    os.write(descriptor, self._place + b"\n" if self._place else b"")
                finally:
                    os.close(descriptor)
            except OSError as error:
                why = why or f"{directory}: {error.strerror}"
                self.path = None
                _remove(directory)
            else:
                return self.path
        self._say(f"no place for the command, which runs without $ONCECRON_PLACE: {why}")
        return None

    def find(self) -> PlaceFile:
        """Take the file that another process has made; it may have what that has sent already."""
        paths = (os.path.join(directory, "place") for directory in self._directories)
        self.path = next(filter(os.path.lexists, paths), None)
        self._place = None
        return self

    def look(self) -> bytes | None:
        """Return the place if the job has left another one since the last look."""
        if self.path is None:
            return None
        try:
            status = os.lstat(self.path)
        except OSError:
            return None
        seen = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
        was_settled, self._is_settled = self._is_settled, seen == self._seen
        self._seen = seen
        if was_settled and self._is_settled:
            return None
        return self._newest(stays=self._is_settled)

    def end(self) -> bytes | None:
        """Return what the job, which is gone, has left last, None for nothing new; remove the file."""
        if self.path is not None:
            self._newest(stays=True)
        for directory in self._directories:
            _remove(directory)
        self.path = None
        return self.left

    def _newest(self, *, stays: bool) -> bytes | None:
        text = self._read()
        if not text:
            return None
        if not text.endswith(b"\n"):
            if stays:
                self._ignore("does not end in a newline")
            return None
        place = text[:-1]
        if b"\0" in place:
            self._ignore("has a NUL")
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
            self._ignore(f"cannot be read: {error.strerror}" if is_file else "is no regular file")
            return b""
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self._ignore("is no regular file")
            elif status.st_size > LONGEST_PLACE + 1:
                self._ignore(f"has more than {LONGEST_PLACE} bytes")
            else:
                return os.read(descriptor, LONGEST_PLACE + 1)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
        return b""

    def _ignore(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            self._say(f"what the command left in $ONCECRON_PLACE is ignored: it {why}")


def _parents() -> tuple[str, ...]:
    temporary = os.environ.get("TMPDIR", "")
    return temporary if temporary.startswith("/") else "/tmp", state_directory()  # noqa: S108 - 0700, with a secret name


def _remove(directory: str) -> None:
    """Remove a directory and the files that the job has put there, but no tree."""
    try:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path)
        os.rmdir(directory)
    except OSError:
        return
