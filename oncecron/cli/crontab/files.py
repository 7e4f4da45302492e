"""Crontabs as files: read from a path or standard input, shown, and replaced at once or not at all."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import stat
import sys
import tempfile
from typing import Any, NamedTuple

from oncecron.core import safe_paths
from oncecron.core.errors import InputError, OutputError, UsageError

STANDARD_INPUT = "-"
_LARGEST = 16 << 20
SYSTEM_FILE = "/etc/crontab"
_SYSTEM_DIRECTORY = "/etc/cron.d"


class CrontabFile(NamedTuple):
    """A crontab that was read."""

    path: str
    """Links followed; `-` for standard input."""
    data: bytes
    status: os.stat_result | None
    """Of the file."""

    @property
    def is_system(self) -> bool:
        """Whether cron reads this very file as one whose lines name a user."""
        return self.path == SYSTEM_FILE or os.path.dirname(self.path) == _SYSTEM_DIRECTORY


def read_source(words: list[str]) -> CrontabFile:
    """Read the file that is named, else standard input. Raises `InputError` or `UsageError`."""
    path = words[0] if words else STANDARD_INPUT
    if path == STANDARD_INPUT:
        return CrontabFile(path, _standard_input(named=bool(words)), None)
    path = os.path.realpath(path)
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{path} is no file; for a pipe write - and redirect it")
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise InputError(f"{path} is larger than any crontab: {_LARGEST >> 20} MiB")
    return CrontabFile(path, data, status)


def _standard_input(*, named: bool) -> bytes:
    stream: Any = sys.stdin
    if stream is None:
        raise InputError("standard input is closed")
    if not named and stream.isatty():
        raise UsageError("name a crontab, or pipe one in: crontab -l | oncecron crontab wrap")
    try:
        return stream.buffer.read()  # type: ignore[no-any-return]
    except OSError as error:
        raise InputError(f"standard input cannot be read: {error.strerror}") from error


def difference(source: CrontabFile, new: bytes) -> bytes:
    """Return what would change as a unified diff, which patch(1) takes; empty if nothing does."""
    name = os.fsencode(source.path)
    lines = difflib.diff_bytes(
        difflib.unified_diff,
        io.BytesIO(source.data).readlines(),  # split at \n alone, as cron and patch(1) do
        io.BytesIO(new).readlines(),
        name,
        name + b" (wrapped)",
    )
    return b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in lines
    )


def replace_file(source: CrontabFile, new: bytes) -> str:
    """Replace a file by another text, keeping owner, mode and attributes; return the path of the backup.

    Both are written beside it, to disk, under names that no cron reads, before the one step that replaces it. Raises
    `OutputError`: then the file is as it was.
    """
    backup = source.path + "~"  # neither Debian's cron nor cronie reads such a name in /etc/cron.d
    status = source.status
    assert status is not None  # noqa: S101 - standard input is never replaced
    try:
        _put(backup, source.data, source.path, status)
        if _changed(source.path, status):
            raise OutputError(f"{source.path} has been changed meanwhile, and is left as it is")
        _put(source.path, new, source.path, status)
    except OSError as error:
        raise OutputError(
            f"{source.path} is left as it was: {error.strerror}: {error.filename}"
        ) from error
    return backup


def _changed(path: str, before: os.stat_result) -> bool:
    now = os.stat(path)
    return (now.st_ino, now.st_size, now.st_mtime_ns) != (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )


def _put(path: str, data: bytes, like: str, status: os.stat_result) -> None:
    """Write a file in one step. Raises `OSError`."""
    directory, name = os.path.split(path)
    number, temporary = tempfile.mkstemp("~", f".{name}.", directory)
    try:
        with open(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fchown(number, status.st_uid, status.st_gid)
            _copy_attributes(like, number)
            os.fchmod(number, stat.S_IMODE(status.st_mode))
            os.fsync(number)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    safe_paths.sync(directory)


def _copy_attributes(path: str, number: int) -> None:
    """Copy what a security module or an access list keeps beside a file, as far as that can be kept."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(path):
            with contextlib.suppress(OSError):
                os.setxattr(number, name, os.getxattr(path, name))
