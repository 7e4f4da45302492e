"""A small disk of a server's own, that can be filled: a file system in memory (needs root)."""

import contextlib
import errno
import subprocess
from pathlib import Path

from servers.process import public_directory, remove_directory, server_user
from servers.require import not_proven, program, require_root

# Whoever holds the other end of its standard input decides how long the disk lives; a death by SIGKILL ends it too.
KEEP = """
{mount} -t tmpfs -o size={megabytes}m,uid={uid},gid={gid},mode=755 oncecron-test "$1" || exit
echo ready
read -r _
{umount} --lazy "$1" && rmdir "$1"
"""
CHUNK = bytes(1 << 16)


class Disk:
    """A file system of `megabytes` at `path`, which belongs to the user whom servers run as.

    What is on it takes memory; what is not takes none.
    """

    def __init__(self, megabytes: int) -> None:
        require_root("a disk of its own (mount)")
        self.path = public_directory("disk")
        user = server_user()
        uid, gid = (user.pw_uid, user.pw_gid) if user else (0, 0)
        keep = KEEP.format(
            mount=program("mount"), umount=program("umount"), megabytes=megabytes, uid=uid, gid=gid
        )
        # Not by `spawn`: it must outlive us for the moment in which it unmounts.
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", keep, "disk", self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != b"ready\n":
            not_proven(f"this machine mounts nothing: {self._end().decode()}")

    @property
    def _filler(self) -> Path:
        return self.path / "everything-else"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file:
            for chunk in (CHUNK, CHUNK[:4096], CHUNK[:1]):
                try:
                    while file.write(chunk):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._filler.unlink()

    def remove(self) -> None:
        """Unmount it, whoever uses it, and forget what was on it."""
        self._end()
        remove_directory(self.path)

    def _end(self) -> bytes:
        if self._keeper.returncode is not None:
            return b""
        _, complaint = self._keeper.communicate()
        return complaint
