"""Decide whether a directory is safe to read records from: only its owner may write to it or replace it."""

from __future__ import annotations

import os
import stat


def unsafe(directory: str) -> str | None:
    """Return why other users could write here, with the cure; None if they cannot. Raises `OSError`.

    The directory must belong to the user, must not be a link, and no group may write to it. Directories above it may
    also belong to root, and a group may write to them: /var/local belongs to the group staff on Debian, and a home
    directory often to its user's own group. They may be world-writable only with the sticky bit.
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
    # In a user namespace, root's directories have another owner, and so has `/`.
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
    """Make a directory and those above it, all with mode 0700; os.makedirs sets the mode of the last one only."""
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
