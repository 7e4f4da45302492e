"""What keeps oncecron from working on this host: its configuration, its store, its spool.

Each thing that was looked at is a `Diagnosis`: ok, warn or fail, with the cure.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from oncecron import __version__
from oncecron.core.diagnosis import Diagnosis
from oncecron.core.errors import OncecronError
from oncecron.core.text import count, listed, visible
from oncecron.host import installation
from oncecron.host.local_time import host_zone
from oncecron.log.hosts import of_last_day
from oncecron.log.silent_hosts import recent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncecron.core.log_rows import KeyHost
    from oncecron.run.spool import Spool

CRON_PATH = "/usr/bin:/bin"
"""PATH in the environment of cron's jobs, unless the crontab sets it."""

_PROGRAM = "oncecron"
_TZ_DATA = "/usr/share/zoneinfo/tzdata.zi"
_SHOWN = 100
"""So many characters of a command are shown."""


def of_spool(spool: Spool) -> Iterator[Diagnosis]:
    """Judge the directory in which records wait for the store."""
    try:
        waiting = sum(1 for _ in spool.pending())
        aside = spool.set_aside()
        spool.probe()
    except (OncecronError, OSError) as error:
        text = "records cannot be kept while the store is away"
        yield Diagnosis("fail", "spool", text, str(error))
        return
    if waiting:
        text = f"{count(waiting, 'record')} in {spool.root}: the store was unreachable"
        yield Diagnosis("warn", "spool", text, "`oncecron flush`")
    else:
        yield Diagnosis("ok", "spool", f"nothing waits in {spool.root}")
    if aside:
        text = f"{len(aside)} set aside in {spool.root}: the store refused, or could not be read"
        yield Diagnosis("warn", "spool", text, "`oncecron flush` names each of them")


def of_program() -> Diagnosis:
    """Say which oncecron runs, and whether another one is there, which cron or a shell may find."""
    here = os.path.abspath(sys.argv[0])
    python = ".".join(map(str, sys.version_info[:3]))
    text = f"{here} is oncecron {__version__} in {installation.HOME}, with Python {python} ({sys.executable})"
    mixed = installation.mixed()
    if mixed:
        return Diagnosis("fail", "program", f"{here}: {mixed}")
    places = [*os.get_exec_path(), "/usr/local/bin", *CRON_PATH.split(":")]
    found = (shutil.which(_PROGRAM, path=place) for place in places)
    others = {os.path.realpath(path): path for path in reversed([*filter(None, found)])}
    others.pop(os.path.realpath(here), None)
    if others:
        by_cron = shutil.which(_PROGRAM, path=CRON_PATH) or "none"
        text += f"; another one is {listed([*others.values()])}; cron (PATH={CRON_PATH}) finds {by_cron}"
        return Diagnosis("warn", "program", text, "remove all but one")
    waiting = installation.waiting()
    if waiting:
        text += f"; a package has brought {waiting}, which is not in use"
        cure = "`dpkg --configure -a`, or install all packages of oncecron again, in one version"
        return Diagnosis("warn", "program", text, cure)
    return Diagnosis("ok", "program", text)


def of_zone() -> Diagnosis:
    """Name the time zone in which a schedule without --tz is read."""
    try:
        text = f"schedules without --tz are in {host_zone()}; the tz database is {_tz_database()}"
        return Diagnosis("ok", "zone", text)
    except (OncecronError, ValueError) as error:
        return Diagnosis("warn", "zone", str(error), "give --tz, or correct /etc/localtime")


def _tz_database() -> str:
    try:
        with open(_TZ_DATA, encoding="ascii", errors="replace") as file:
            first = file.readline(100).split()  # `# version 2026a`
    except OSError:
        first = []
    return first[2] if first[:2] == ["#", "version"] and first[2:] else "of an unknown version"


def of_crontabs(rows: Iterable[KeyHost], now: float) -> Iterator[Diagnosis]:
    """Compare what the hosts that fired in the last day have under each key: `check` cannot know which is right."""
    crontabs = of_last_day(recent(rows, now))
    for subject, part in (("schedules", _schedule), ("commands", lambda row: row.command or "-")):
        keys = [key for key, rows in sorted(crontabs.items()) if len({*map(part, rows)}) > 1]
        if not keys:
            text = f"all hosts have the same {subject[:-1]} under each key"
            yield Diagnosis("ok", subject, text)
            continue
        hosts: dict[str, list[str]] = {}
        for row in crontabs[keys[0]]:
            hosts.setdefault(part(row), []).append(row.host)
        shown = "; ".join(
            f"{text[:_SHOWN]} on {listed(names)}" for text, names in sorted(hosts.items())
        )
        cure = (
            f"make the crontabs equal, or give each job its own key: {visible(keys[0])} is {shown}"
        )
        yield Diagnosis(
            "warn", subject, f"hosts have different {subject} under {listed(keys)}", cure
        )


def _schedule(row: KeyHost) -> str:
    if row.schedule is None:
        return "without --schedule"
    return f"{row.schedule!r} in {row.zone or 'the zone of the host'}"
