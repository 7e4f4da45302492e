"""The cron that `--cron` names, and the crontabs of this host that this user may read."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from oncecron.config.options import Option, convert
from oncecron.core.errors import OncecronError, UsageError
from oncecron_crontab.cli import files, user_crontab
from oncecron_crontab.crons import CRONS
from oncecron_crontab.installed_cron import installed_cron
from oncecron_crontab.lint import LintedCrontab
from oncecron_crontab.scanner import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncecron_crontab.crons import Cron

CRON = Option(
    "cron", "choice", "Read the crontab as this cron does. Default: the cron that is installed on this host.", "NAME",
    choices=tuple(CRONS),
)  # fmt: skip


def chosen_cron(given: Mapping[str, str]) -> Cron | None:
    """Return the cron of `--cron`, else the installed one; None if that is unknown. Raises `UsageError`."""
    if "cron" not in given:
        return installed_cron()

    try:
        return CRONS[str(convert(CRON, given["cron"]))]
    except ValueError as error:
        raise UsageError(f"--cron: {error}") from error


def crontabs_of_host(cron: Cron | None) -> Iterator[LintedCrontab]:
    """Yield the user's own crontab, for root those of others, /etc/crontab and those in /etc/cron.d.

    One that cannot be read is left out.
    """
    cron = cron or CRONS["debian"]
    for user in (None, *_other_users()):
        with contextlib.suppress(OncecronError):
            lines = scan(user_crontab.read(user), cron=cron)
            yield LintedCrontab(user_crontab.name_of(user), lines, user or user_crontab.own_name())
    paths = [files.SYSTEM_FILE]
    with contextlib.suppress(OncecronError):
        directory = files.in_directory(files.SYSTEM_DIRECTORY, system=True)
        paths += directory.crontabs if directory else []
    for path in paths:
        with contextlib.suppress(OncecronError):
            yield LintedCrontab(path, scan(files.read_source([path]).data, system=True, cron=cron))


def _other_users() -> list[str]:
    """Return the other users who have a crontab, as root alone can see."""
    found: set[str] = set()
    for directory in files.SPOOLS if os.getuid() == 0 else ():
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            found.update(each.name for each in entries if each.is_file(follow_symlinks=False))
    return sorted(found - {user_crontab.own_name()})
