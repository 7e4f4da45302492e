"""Write a file whole or not at all: who reads it finds the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from oncecron.core import safe_paths
from oncecron.core.errors import OutputError


def replace(path: str, data: bytes, mode: int | None = None) -> None:
    """Replace a file, or what a link of this name leads to. `mode`: None: what the umask leaves.

    Until it is on the disk, the new file has a name that begins with `.oncecron-`. Raises `OutputError`.
    """
    to = os.path.realpath(path)
    directory = os.path.dirname(to)
    written = os.path.join(directory, f".oncecron-{secrets.token_hex(8)}")
    if os.path.lexists(to) and not stat.S_ISREG(os.lstat(to).st_mode):
        raise OutputError(f"cannot write {path}: it is not a regular file")
    try:
        try:
            _write(written, data, mode)
            os.replace(written, to)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(written)
            raise
        safe_paths.sync(directory)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _write(path: str, data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        safe_paths.sync_file(file.fileno())
