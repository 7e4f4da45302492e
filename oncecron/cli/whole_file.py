"""Write a file whole or not at all: who reads it finds the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

from oncecron.core import safe_paths
from oncecron.core.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator


def replace(path: str, data: bytes, mode: int | None = None) -> None:
    """Replace a file, or what a link of this name leads to. `mode`: None: what the umask leaves.

    Until it is on the disk, the new file has a name that begins with `.oncecron-`. Raises `OutputError`.
    """
    with _new_file(path) as (written, to):
        _write(written, data, mode)
        os.replace(written, to)
        safe_paths.sync(os.path.dirname(to))


def check_place(path: str) -> None:
    """Raise `OutputError` if `replace` could not write this file now, before hours are spent on what is in it."""
    with _new_file(path) as (written, _):
        _write(written, b"", None)
        os.unlink(written)


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[tuple[str, str]]:
    """Give the name of a new file, which is removed after an error, and the name that it is to have."""
    to = os.path.realpath(path)
    written = os.path.join(os.path.dirname(to), f".oncecron-{secrets.token_hex(8)}")
    if os.path.lexists(to) and not stat.S_ISREG(os.lstat(to).st_mode):
        raise OutputError(f"cannot write {path}: it is not a regular file")
    try:
        yield written, to
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(written)
        if isinstance(error, OSError):
            raise OutputError(f"cannot write {path}: {error.strerror}") from error
        raise


def _write(path: str, data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        safe_paths.sync_file(file.fileno())
