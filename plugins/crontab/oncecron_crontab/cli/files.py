"""Crontab files: read from a path or standard input, compared, kept, and replaced in one step.

A backup has the time in its name, is on disk before the crontab changes, and is never overwritten. No cron reads it as
a crontab. That of a file lies beside it, with its owner, mode and attributes, so the same people can read it. A user's
crontab is in the spool of cron, where only crontab(1) may write. So its backup is in the state directory, for the user
who runs oncecron alone.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import io
import os
import stat
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.cli import whole_file
from oncecron.core.errors import InputError, OutputError, UsageError
from oncecron.core.text import Clock, visible
from oncecron.host import safe_paths
from oncecron_crontab.system_files import DIRECTORY_NAME, cron_reads

if TYPE_CHECKING:
    from oncecron_crontab.scanner import Crontab
    from oncecron_crontab.wrap import Rewritten

STANDARD_INPUT = "-"
_LARGEST = 16 << 20
SYSTEM_FILE = "/etc/crontab"
SPOOLS = ("/var/spool/cron/crontabs", "/var/spool/cron")
"""Where cron keeps the crontabs of users, by their names."""
SYSTEM_DIRECTORY = "/etc/cron.d"


class CrontabFile(NamedTuple):
    """A crontab and where it came from."""

    path: str
    """With links resolved; `-` for standard input, the name for people of a user's crontab."""
    data: bytes
    status: os.stat_result | None
    """Of the file; None for standard input and a user's crontab."""
    user: str | None = None
    """Whose crontab it is, if it was read by crontab(1)."""
    named_owner: str | None = None
    """Whose crontab it is, if `--user` says so."""
    named: str | None = None
    """The path by which it was named, links and all."""

    @property
    def place(self) -> str:
        """Where cron finds it: cron judges a file by a link to it, if that lies where cron looks."""
        link = _with_real_directory(self.named) if self.named else self.path
        return link if _is_cron_s(link) else self.path

    @property
    def is_system(self) -> bool:
        """Whether cron reads this file as a system crontab, whose lines name a user."""
        return _is_system(self.place)

    @property
    def owner(self) -> str | None:
        """The user whose crontab this is, by `--user` or its path; None if unknown."""
        directory, name = os.path.split(self.place)
        return self.user or self.named_owner or (name if directory in SPOOLS else None)

    def not_read(self) -> str | None:
        """Return why cron does not read this system crontab, None if it does or may."""
        directory, name = os.path.split(self.place)
        if os.path.basename(directory) != DIRECTORY_NAME or cron_reads(name):
            return None
        return f"Debian's cron does not read a file with the name {name!r}; use only letters, digits, - and _ in it"

    def place_of(self, number: int) -> str:
        """Return how messages name a line."""
        path = visible(self.path)
        if path == STANDARD_INPUT:
            return f"line {number}"
        return f"{path}, line {number}" if self.user else f"{path}:{number}"


class Plan(NamedTuple):
    """A crontab and what it is to become."""

    source: CrontabFile
    crontab: Crontab
    rewritten: Rewritten


def read_source(words: list[str], command: str = "wrap") -> CrontabFile:
    """Read the named file, else standard input. `command`: for the usage. Raises `InputError`, `UsageError`."""
    path = words[0] if words else STANDARD_INPUT
    if path == STANDARD_INPUT:
        return CrontabFile(path, _standard_input(command, named=bool(words)), None)
    named, path = path, real(path)
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(
                    f"{path} is not a regular file; to read a pipe, use - and redirect it"
                )
            data = _not_too_large(file.read(_LARGEST + 1), path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return CrontabFile(path, data, status, named=named)


def _with_real_directory(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(real(directory, named=path), name)


def _is_system(path: str) -> bool:
    return path == SYSTEM_FILE or os.path.dirname(path) == SYSTEM_DIRECTORY


def _is_cron_s(path: str) -> bool:
    directory = os.path.dirname(path)
    return _is_system(path) or directory in SPOOLS or os.path.basename(directory) == DIRECTORY_NAME


def real(path: str, *, named: str | None = None) -> str:
    """Return the absolute path behind links. Raises `InputError` where the working directory was removed.

    `named`: what a message calls it.
    """
    try:
        return os.path.realpath(path)
    except OSError as error:
        raise InputError(
            f"cannot read {named or path}: the working directory was removed; change to another one, or name an "
            "absolute path"
        ) from error


class Directory(NamedTuple):
    """The crontabs of a directory."""

    crontabs: list[str]
    """Their paths."""
    not_read: list[str]
    """Files that cron does not read, because of their names."""


def in_directory(path: str, *, system: bool) -> Directory | None:
    """Return the files of a directory, None if it is not one; `system`: only those that cron reads there.

    Hidden files, and files whose names end with `~`, are left out: editors and `--in-place` write them. Raises
    `InputError`.
    """
    if not os.path.isdir(path):
        return None
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    paths = [os.path.join(path, name) for name in names if name[0] != "." and name[-1] != "~"]
    paths = list(filter(os.path.isfile, paths))
    system = system or real(path) == SYSTEM_DIRECTORY
    not_read = [each for each in paths if system and not cron_reads(os.path.basename(each))]
    return Directory([each for each in paths if each not in not_read], not_read)


def _standard_input(command: str, *, named: bool) -> bytes:
    stream: Any = sys.stdin
    if stream is None:
        raise InputError("standard input is closed")
    if not named and stream.isatty():
        raise UsageError(
            f"name a crontab file, or pipe one in: `crontab -l | oncecron crontab {command}`"
        )
    try:
        return _not_too_large(stream.buffer.read(_LARGEST + 1), "standard input")
    except OSError as error:
        raise InputError(f"cannot read standard input: {error.strerror}") from error


def _not_too_large(data: bytes, name: str) -> bytes:
    if len(data) > _LARGEST:
        raise InputError(f"{name} is too large for a crontab: more than {_LARGEST >> 20} MiB")
    return data


def difference(source: CrontabFile, new: bytes) -> bytes:
    """Return the changes as a unified diff for patch(1); empty if there are none."""
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
    """Replace the content of a file, keep owner, mode and attributes; return the path of the backup.

    The backup and the new file are first written to disk beside it, under names that no cron reads, not even in
    /etc/cron.d: Debian's cron reads names of letters, digits, `-` and `_`; cronie and systemd-cron ignore a dot in
    front. The spool of busybox holds the names of users. One
    rename replaces the file, directly after the file has been compared once more, under a lock for which other runs of
    oncecron wait. Raises `OutputError`: then the file is unchanged.
    """
    directory, name = os.path.split(source.path)
    whole_file.target(source.named or source.path)
    try:
        with open(source.path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            backup = keep(source.data, os.path.join(directory, f".{name}."), "~", like=source.path)
            whole_file.edit(source.path, new, lambda: _refuse_changed(source))
    except OSError as error:
        reason = ": ".join(filter(None, (error.strerror, error.filename)))
        raise OutputError(
            f"cannot replace {source.path}: {reason}; the file is unchanged"
        ) from error
    return backup


def _refuse_changed(source: CrontabFile) -> None:
    """Raise `OutputError` if the file is not the one that was read: another one, or with another content."""
    before = source.status
    assert before is not None  # noqa: S101 - standard input is never replaced
    with open(source.path, "rb") as file:
        now = os.fstat(file.fileno())
        same = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
        if not same or file.read(len(source.data) + 1) != source.data:
            raise OutputError(
                f"{source.path} changed while it was read, so it is left unchanged; run the command again"
            )


# Backups


def keep(data: bytes, before: str, after: str = "", like: str | None = None) -> str:
    """Write a backup, and return its path: `before` and `after` with the time between. Raises `OSError`.

    Owner, mode and attributes are those of the file `like`; without one, only this user can read it.
    """
    stamp = Clock(utc=True).exactly(time.time())
    for number in count(1):
        path = f"{before}{stamp}{f'.{number}' if number > 1 else ''}{after}"
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            break
    try:
        whole_file.fill(descriptor, data, like)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    safe_paths.sync(os.path.dirname(path))
    return path
