"""Directories whose contents are believed: whose they are, how they are made, and what is on disk of them.

What a directory holds is the word of its owner, and of everybody who can write to it or put another in its place.
"""

from __future__ import annotations

import os
import stat


def unsafe(directory: str) -> str | None:
    """Return how somebody else could put or change something here, and the cure; None if nobody could.

    It must be the user's own, no link, and written by no group. Those above it may also be root's, and a group may
    write to them, which their owner let in: /var/local is staff's on Debian, a home often its user's own group's.
    Everybody may only where the sticky bit keeps what others have there. Raises `OSError`.
    """
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a directory"
        return f"{directory} is {what}; set XDG_STATE_HOME to a directory that you own"
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        import shlex  # noqa: PLC0415 - for error messages alone

        return (
            f"other users can write to {directory}; check what is in it, then make it yours: "
            f"`chown {os.geteuid()} {shlex.quote(directory)} && chmod 700 {shlex.quote(directory)}`"
        )
    # In a user namespace of its own root's directories have another owner, `/` too.
    trusted = {0, os.lstat("/").st_uid, os.geteuid()}
    for place in sorted({*_above(directory), *_above(os.path.realpath(directory))}):
        status = os.lstat(place)
        if status.st_uid not in trusted:
            return f"{place} belongs to user {status.st_uid}; set XDG_STATE_HOME to a directory that you own"
        writable = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if writable and not stat.S_ISLNK(status.st_mode):
            return f"{place} is world-writable; set XDG_STATE_HOME to a directory that you own"
    return None


def _above(directory: str) -> list[str]:
    above = os.path.dirname(directory)
    return [] if above == directory else [above, *_above(above)]


def make(directory: str) -> None:
    """Make a directory and those above it, all 0700: os.makedirs gives its mode to the last alone."""
    if not os.path.lexists(directory):
        make(os.path.dirname(directory))
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:  # another firing was faster
            return


def sync(directory: str) -> None:
    """Wait until the names in a directory are on disk. Raises `OSError`."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
