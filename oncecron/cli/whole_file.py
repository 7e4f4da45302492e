"""Replace a file whole or not at all: who reads it finds the old one or the new one.

Whatever oncecron replaces for people goes through here: crontabs, pages, certificates, the text file of metrics. The
new file has the owner, mode and attributes of the one that it replaces, so what was closed to others stays closed.
Links of other users are not followed: who made one chooses the file. The kernel forbids it too where everybody may
write (fs.protected_symlinks, proc(5)), but not for readlink(2), by which a path is resolved.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

from oncecron.core.errors import OutputError
from oncecron.host import safe_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(path: str, data: bytes, mode: int | None = None) -> None:
    """Replace a file, or what a link of this name leads to, by an answer of this command.

    `mode`: of a file that was not there; None: what the umask leaves. Until it is on the disk, the new file has a name
    that begins with `.oncecron-` and ends with `~`. Raises `OutputError`; then the old file is as it was.
    """
    _refuse_owner(path)
    with _new_file(path) as (descriptor, written, to):
        fill(descriptor, data, to if os.path.lexists(to) else None, mode)
        _put(written, to)


def rehearse(path: str) -> None:
    """Raise the `OutputError` that `replace` would raise: before long work for what is written."""
    _refuse_owner(path)
    with _new_file(path) as (descriptor, written, to):
        fill(descriptor, b"", to if os.path.lexists(to) else None)
        os.unlink(written)


def edit(path: str, data: bytes, last_look: Callable[[], None]) -> None:
    """Replace a file by what has been made of its own content, whoever owns it.

    `last_look` is called directly before the rename and may raise. Raises `OutputError`.
    """
    with _new_file(path) as (descriptor, written, to):
        fill(descriptor, data, to)
        last_look()
        _put(written, to)


def target(path: str) -> str:
    """Return what a path leads to: a regular file that may be replaced, or nothing yet. Raises `OutputError`."""
    with _explained(path):
        _refuse_foreign_links(path)
        to = os.path.realpath(path)
        if os.path.lexists(to) and not stat.S_ISREG(os.lstat(to).st_mode):
            raise OutputError(f"cannot write {path}: it is not a regular file")
    return to


def _refuse_foreign_links(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a new file
        for place, status in safe_paths.steps(path):
            if stat.S_ISLNK(status.st_mode) and not _is_trusted(status):
                raise OutputError(
                    f"cannot write {path}: {place} is a link of user {status.st_uid}; name the file that it leads to"
                )


def _refuse_owner(path: str) -> None:
    """Raise `OutputError` if another user may have put this file here, who would get what is written.

    fs.protected_regular is the same rule of the kernel, for a directory that is as /tmp.
    """
    to, shared = target(path), stat.S_IWOTH | stat.S_ISVTX
    with _explained(path), contextlib.suppress(FileNotFoundError):
        status = os.lstat(to)
        is_shared = os.stat(os.path.dirname(to)).st_mode & shared == shared
        if is_shared and not _is_trusted(status):
            raise OutputError(
                f"cannot write {path}: it belongs to user {status.st_uid}, in a directory where everybody may write; "
                "remove it, or choose another directory"
            )


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid in safe_paths.trusted_users()


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[tuple[int, str, str]]:
    """Give a new file and its name, which is removed after an error, and the path that it is to have."""
    to = target(path)
    written = os.path.join(os.path.dirname(to), f".oncecron-{secrets.token_hex(8)}~")
    mode = 0o600 if os.path.lexists(to) else 0o666  # nobody reads it before it is like the old one
    with _explained(path):
        try:
            yield os.open(written, _NEW, mode), written, to
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(written)
            raise


def _put(written: str, to: str) -> None:
    os.replace(written, to)
    safe_paths.sync(os.path.dirname(to))


def fill(descriptor: int, data: bytes, like: str | None, mode: int | None = None) -> None:
    """Write a new file to disk, as `like` in owner, mode and attributes, and close it. Raises `OSError`."""
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if like:
            _become_like(descriptor, like)
        elif mode is not None:
            os.fchmod(descriptor, mode)
        safe_paths.sync_file(descriptor)


def _become_like(descriptor: int, path: str) -> None:
    status = os.stat(path)
    os.fchown(descriptor, status.st_uid, status.st_gid)
    with contextlib.suppress(OSError):  # a file system without attributes, such as vfat
        for name in os.listxattr(path):
            with contextlib.suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(path, name))
    # Last: fchown clears setuid and setgid, and an attribute of an ACL changes the mode of the group.
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
