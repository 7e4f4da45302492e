"""What keeps oncecron from working on this host: its configuration, its store, its spool, its cron.

Each thing that was looked at is a `Diagnosis`: ok, warn or fail, with the cure.
"""

from __future__ import annotations

import collections
import os
import shutil
import sys
from typing import TYPE_CHECKING

from oncecron.core.errors import OncecronError
from oncecron.core.log_rows import Diagnosis, HistoryQuery
from oncecron.core.safe_paths import unsafe
from oncecron.core.text import visible
from oncecron.core.time_zone import host_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.crontab.crons import Cron
    from oncecron.run.spool import Spool
    from oncecron.stores.api import Inspector

_CRON_PATH = "/usr/bin:/bin"
"""PATH in the environment of cron's jobs, unless the crontab sets it."""

_DAEMONS = ("cron", "crond", "bcron-start", "bcron-sched", "supercronic", "fcron", "busybox")
_RUNS_READ = 500
_NAMED = 5


def of_spool(spool: Spool) -> Iterator[Diagnosis]:
    """Judge the directory in which records wait for the store."""
    try:
        why = unsafe(spool.root) if os.path.lexists(spool.root) else None
        waiting = sum(1 for _ in spool.pending())
        aside = spool.set_aside()
    except (OncecronError, OSError) as error:
        yield Diagnosis("fail", "spool", str(error), None)
        return
    if why:
        yield Diagnosis("fail", "spool", "records cannot be kept while the store is away", why)
    elif waiting:
        text = f"{waiting} record{'s' * (waiting != 1)} in {spool.root}: the store was unreachable"
        yield Diagnosis("warn", "spool", text, "`oncecron flush`")
    else:
        yield Diagnosis("ok", "spool", f"nothing waits in {spool.root}")
    if aside:
        text = f"{len(aside)} set aside in {spool.root}: the store refused, or could not be read"
        yield Diagnosis("warn", "spool", text, "`oncecron flush` names each of them")


def of_cron(cron: Cron | None, proc: str = "/proc") -> Iterator[Diagnosis]:
    """Judge the cron daemon of this host and the environment that it gives to jobs."""
    running = sorted({name for name in _processes(proc) if name in _DAEMONS})
    if running:
        yield Diagnosis("ok", "cron", f"{', '.join(running)} is running")
    else:
        which = f"{cron.title} is installed, but" if cron else "a cron daemon"
        text = f"{which} does not run: nothing fires the crontabs of this host"
        yield Diagnosis("warn", "cron", text, "start it, for example `systemctl enable --now cron`")
    found = shutil.which("oncecron", path=_CRON_PATH)
    if found:
        yield Diagnosis("ok", "path", f"cron finds {found}")
    else:
        here = os.path.abspath(sys.argv[0])
        text = f"cron's PATH ({_CRON_PATH}) has no oncecron"
        yield Diagnosis(
            "warn", "path", text, f"write {here} in crontabs, as `oncecron crontab wrap` does"
        )


def _processes(proc: str) -> Iterator[str]:
    for entry in os.listdir(proc) if os.path.isdir(proc) else ():
        if entry.isdigit():
            try:
                with open(f"{proc}/{entry}/comm", encoding="utf-8", errors="replace") as file:
                    yield file.read().strip()
            except OSError:  # it has ended
                continue


def of_zone() -> Diagnosis:
    """Name the time zone in which a schedule without --tz is read."""
    try:
        return Diagnosis("ok", "zone", f"schedules without --tz are in {host_zone()}")
    except (OncecronError, ValueError) as error:
        return Diagnosis("warn", "zone", str(error), "give --tz, or correct /etc/localtime")


def of_commands(log: Inspector) -> Diagnosis:
    """Compare what the hosts ran last under each key."""
    newest: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for each in log.history(HistoryQuery(limit=_RUNS_READ)):
        newest[each.key].setdefault(each.host, each.command)
    different = sorted(key for key, hosts in newest.items() if len({*hosts.values()}) > 1)
    if not different:
        return Diagnosis("ok", "commands", "all hosts run the same command under each key")
    text = f"hosts ran different commands under {_listed(different)}"
    cure = f"`oncecron history {different[0]}` shows them; make the crontabs equal, or give each job its own key"
    return Diagnosis("warn", "commands", text, cure)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return visible(", ".join(names[:_NAMED]) + more)
