"""What is installed on this host: its cron, by its files, and the crontabs that this user may read. Starts nothing."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from oncecron.config.options import Option, convert
from oncecron.core.errors import OncecronError, UsageError
from oncecron_crontab.cli import files, user_crontab
from oncecron_crontab.crons import CRONS
from oncecron_crontab.lint import LintedCrontab
from oncecron_crontab.scanner import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncecron_crontab.crons import Cron

CRON = Option(
    "cron", "choice", "Read the crontab as this cron does. Default: the cron that is installed on this host.", "NAME",
    choices=tuple(CRONS),
)  # fmt: skip
_DIRECTORIES = ("usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin", "sbin", "bin")
_DAEMONS = ("cron", "crond")
_MARKS = {b"this crontab file will be ignored": "debian", b"cronie": "cronie"}
"""Texts in the program files of daemons with one name."""
_GENERATORS = ("usr/lib", "lib")
_GENERATOR = "systemd/system-generators/systemd-crontab-generator"
_LARGEST = 4 << 20


def chosen_cron(given: Mapping[str, str]) -> Cron | None:
    """Return the cron of `--cron`, else the installed one; None if that is unknown. Raises `UsageError`."""
    if "cron" not in given:
        return installed_cron()

    try:
        return CRONS[str(convert(CRON, given["cron"]))]
    except ValueError as error:
        raise UsageError(f"--cron: {error}") from error


def installed_cron(root: str = "/") -> Cron | None:
    """Return the cron of the host whose files are below `root`; None if it has none, or several."""
    found = set(_names(root))
    return CRONS[found.pop()] if len(found) == 1 else None


def _names(root: str) -> Iterator[str]:
    for directory in _DIRECTORIES:
        for daemon in _DAEMONS:
            yield from _daemon(os.path.join(root, directory, daemon))
        if os.path.exists(os.path.join(root, directory, "supercronic")):
            yield "supercronic"
    for directory in _GENERATORS:
        # 2.4 is the first that passes the text after a % to the command.
        if b"StandardInputData=" in _content(os.path.join(root, directory, _GENERATOR)):
            yield "systemd-cron"


def _daemon(path: str) -> Iterator[str]:
    if os.path.islink(path) and os.path.basename(os.readlink(path)).startswith("busybox"):
        yield "busybox"
        return
    content = _content(path)
    yield from (name for mark, name in _MARKS.items() if mark in content)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except OSError:
        return b""


def crontabs_of_host(cron: Cron | None) -> Iterator[LintedCrontab]:
    """Yield the user's own crontab, /etc/crontab and those in /etc/cron.d; one that cannot be read is left out."""
    cron = cron or CRONS["debian"]
    with contextlib.suppress(OncecronError):
        data = user_crontab.read(None)
        own = scan(data, cron=cron)
        yield LintedCrontab(user_crontab.name_of(None), own, user_crontab.own_name())
    paths = [files.SYSTEM_FILE]
    with contextlib.suppress(OncecronError):
        directory = files.in_directory(files.SYSTEM_DIRECTORY, system=True)
        paths += directory.crontabs if directory else []
    for path in paths:
        with contextlib.suppress(OncecronError):
            yield LintedCrontab(path, scan(files.read_source([path]).data, system=True, cron=cron))
