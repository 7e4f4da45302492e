"""Decide whether other users could have written what is read: records, the configuration, a SQLite store.

`unsafe` is for directories of oncecron's own, which belong to the user. `why_distrusted` is for files that say what
runs, or where the leases are. Its rule is cron's for such files: the owner is root or the user, and neither a group
nor others may write to it. It also holds for the directory that has the file, because whoever may write there
replaces the file, and for links, because whoever made one chooses the file. The directories above must have such an
owner too.
"""

from __future__ import annotations

import errno
import os
import stat

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)
_MOST_LINKS = 40  # as the kernel (path_resolution(7))


def unsafe(directory: str, *own: str) -> str | None:
    """Return why other users could write here, with the cure; None if they cannot. Raises `OSError`.

    The directory must belong to the user, must not be a link, and no group may write to it; so must those of its `own`
    that lie below it, one in another. Directories above it may also belong to root, and a group may write to them:
    /var/local belongs to the group staff on Debian, and a home directory often to its user's own group. They may be
    world-writable only with the sticky bit.
    """
    for place in (directory, *own):
        if why := _writable(place):
            return why
    trusted = trusted_users()
    for place in sorted({*_above(directory), *_above(os.path.realpath(directory))}):
        status = os.lstat(place)
        if status.st_uid not in trusted:
            return f"{place} belongs to user {status.st_uid}; set XDG_STATE_HOME to a directory that you own"
        writable = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if writable and not stat.S_ISLNK(status.st_mode):
            return f"{place} is world-writable; set XDG_STATE_HOME to a directory that you own"
    return None


def _writable(directory: str) -> str | None:
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a directory"
        return f"{directory} is {what}; set XDG_STATE_HOME to a directory that you own"
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        name = _quoted(directory)
        return (
            f"other users can write to {directory}; check what is in it, then make it yours: "
            f"`chown {os.geteuid()} {name} && chmod 700 {name}`"
        )
    return None


def trusted_users() -> set[int]:
    """Return root and this user. In a user namespace, root's directories have another owner, and so has `/`."""
    return {0, os.lstat("/").st_uid, os.geteuid()}


def _above(directory: str) -> list[str]:
    above = os.path.dirname(directory)
    return [] if above == directory else [above, *_above(above)]


def why_distrusted(path: str) -> str | None:
    """Return why another user could choose what is in a file, with the cure; None if nobody can. Raises `OSError`.

    `path` may also be the directory in which the file is to be made. A group may write to the directories above it,
    and others only if they have the sticky bit.
    """
    trusted = trusted_users()
    met = list(steps(path))
    last, status = met[-1]
    directory = last if stat.S_ISDIR(status.st_mode) else os.path.dirname(last)
    for place, status in reversed(met):
        if status.st_uid not in trusted:
            cure = _chown(place, status)
            return (
                f"{place} belongs to user {status.st_uid}; check what is in it, then run `{cure}`"
            )
        if stat.S_ISLNK(status.st_mode):
            continue
        writable = status.st_mode & (0o022 if place in (last, directory) else 0o002)
        if writable and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            return (
                f"other users can write to {place}; "
                f"check what is in it, then run `chmod go-w {_quoted(place)}`"
            )
    return None


def steps(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each directory, each link and at last the file that the kernel meets on a path, and its status."""
    if not path.startswith("/"):  # os.getcwd() fails where the working directory was removed
        path = os.path.join(os.getcwd(), path)
    left = path.split("/")[::-1]
    place, links = "/", 0
    yield place, os.lstat(place)
    while left:
        name = left.pop()
        if name == "..":
            place = os.path.dirname(place)
        if name in ("", ".", ".."):
            continue
        here = os.path.join(place, name)
        status = os.lstat(here)
        yield here, status
        if not stat.S_ISLNK(status.st_mode):
            place = here
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(here)
        place = "/" if target.startswith("/") else place
        left += target.split("/")[::-1]


def _chown(place: str, status: os.stat_result) -> str:
    owner = "root" if os.geteuid() == 0 else str(os.geteuid())
    option = "-h " if stat.S_ISLNK(status.st_mode) else ""
    return f"chown {option}{owner} {_quoted(place)}"


def _quoted(text: str) -> str:
    import shlex  # noqa: PLC0415 - for error messages alone

    return shlex.quote(text)


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
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def sync_file(descriptor: int) -> None:
    """Wait until a file is on disk, where that can be waited for. Raises `OSError`.

    Some file systems and sandboxes refuse the call itself: what was written is there all the same.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def memory_file(name: str) -> int:
    """Return a descriptor of an empty file that nobody else can open. Raises `OSError`.

    Old profiles of containers refuse memfd_create(2), and vm.memfd_noexec=2 does unless a sealed file is asked for.
    """
    try:
        return os.memfd_create(name)
    except OSError:
        import tempfile  # noqa: PLC0415 - almost never

        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
