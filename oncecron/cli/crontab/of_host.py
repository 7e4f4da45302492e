"""The crontabs of this host that this user may read: the user's own, /etc/crontab and those in /etc/cron.d."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from oncecron.cli.crontab import user_crontab
from oncecron.cli.crontab.files import SYSTEM_DIRECTORY, SYSTEM_FILE, in_directory, read_source
from oncecron.core.errors import OncecronError
from oncecron.crontab.crons import CRONS
from oncecron.crontab.lint import LintedCrontab
from oncecron.crontab.scanner import scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.crontab.crons import Cron


def crontabs_of_host(cron: Cron | None) -> Iterator[LintedCrontab]:
    """Yield the crontabs, as this cron reads them; one that cannot be read is left out."""
    cron = cron or CRONS["debian"]
    with contextlib.suppress(OncecronError):
        data = user_crontab.read(None)
        own = scan(data, cron=cron)
        yield LintedCrontab(user_crontab.name_of(None), own, user_crontab.own_name())
    paths = [SYSTEM_FILE]
    with contextlib.suppress(OncecronError):
        directory = in_directory(SYSTEM_DIRECTORY, system=True)
        paths += directory.crontabs if directory else []
    for path in paths:
        with contextlib.suppress(OncecronError):
            yield LintedCrontab(path, scan(read_source([path]).data, system=True, cron=cron))
