"""Old crontabs, kept before they are replaced.

A backup has the time in its name, is on disk before the crontab changes, and is never overwritten: after
`wrap --unlock` and `unwrap`, only the first one has the lockers. No cron reads it as a crontab.

The backup of a file lies beside it, with its owner, mode and attributes, so the same people can read it. A user's
crontab is in the spool of cron, where only crontab(1) may write. So its backup is in the state directory, for the user
who runs oncecron alone.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from itertools import count

from oncecron.core import safe_paths
from oncecron.core.text import Clock


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
        fill(descriptor, data, like)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    safe_paths.sync(os.path.dirname(path))
    return path


def fill(descriptor: int, data: bytes, like: str | None) -> None:
    """Write a new file to disk, as `like` in owner, mode and attributes, and close it. Raises `OSError`."""
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if like:
            status = os.stat(like)
            os.fchown(descriptor, status.st_uid, status.st_gid)
            _copy_attributes(like, descriptor)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        os.fsync(descriptor)


def _copy_attributes(path: str, descriptor: int) -> None:
    """Copy extended attributes (security labels, access lists) as far as possible."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(path):
            with contextlib.suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(path, name))
