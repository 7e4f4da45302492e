"""What keeps oncecron from working on this host: its configuration, its store, its spool.

Each thing that was looked at is a `Diagnosis`: ok, warn or fail, with the cure.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from oncecron import __version__
from oncecron.core import installation
from oncecron.core.diagnosis import Diagnosis
from oncecron.core.errors import OncecronError
from oncecron.core.text import visible
from oncecron.core.time_zone import host_zone
from oncecron.core.timing import NOTABLE_CLOCK_SKEW
from oncecron.core.units import DAY
from oncecron.log.hosts import of_last_day
from oncecron.log.silent_hosts import NAMES_CURE, clock_difference, newest_rows, recent, same_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import KeyHost
    from oncecron.log.job_summary import Remark
    from oncecron.run.spool import Spool

CRON_PATH = "/usr/bin:/bin"
"""PATH in the environment of cron's jobs, unless the crontab sets it."""

_PROGRAM = "oncecron"
_TZ_DATA = "/usr/share/zoneinfo/tzdata.zi"
_NAMED = 5
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
        text = f"{waiting} record{'s' * (waiting != 1)} in {spool.root}: the store was unreachable"
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


def of_hosts(rows: Sequence[KeyHost], now: float) -> Iterator[Diagnosis]:
    """Compare the hosts that fired in the last day: versions, clocks, and the crontabs of each key."""
    rows = list(recent(rows, now))
    found = newest_rows(rows, now - DAY)
    yield _of_versions(found)
    yield _of_clocks(found)
    yield _of_names(rows)
    crontabs = of_last_day(rows)
    schedules = _different(crontabs, lambda row: (row.schedule, row.zone))
    if schedules:
        text = f"hosts fire {listed(schedules)} by different schedules, or in different zones"
        yield Diagnosis(
            "warn", "schedules", text, _crontabs_cure(crontabs, schedules[0], _schedule)
        )
    else:
        yield Diagnosis("ok", "schedules", "all hosts fire each key by the same schedule")
    commands = _different(crontabs, lambda row: row.command)
    if commands:
        text = f"hosts have different commands under {listed(commands)}"
        cure = _crontabs_cure(crontabs, commands[0], lambda row: row.command or "-")
        yield Diagnosis("warn", "commands", text, f"{cure}, or give each job its own key")
    else:
        yield Diagnosis("ok", "commands", "all hosts have the same command under each key")


def of_keys(remarks: Mapping[str, Iterable[Remark]]) -> Iterator[Diagnosis]:
    """Say what is known of keys: by what was looked at, each key with what is wrong."""
    well = {
        "marks": "no tick, start or pause is in the future",
        "zones": "every key starts at its ticks, and its hosts agree about its zone",
    }
    for name, of_name in remarks.items():
        wrong = list(of_name)
        for remark in wrong[:_NAMED]:
            text = f"{remark.key} {remark.text}" if remark.key else remark.text
            yield Diagnosis("warn", name, visible(text), visible(remark.cure or ""))
        if not wrong:
            yield Diagnosis("ok", name, well[name])


def _of_versions(hosts: Sequence[KeyHost]) -> Diagnosis:
    versions: dict[str, list[str]] = {}
    for row in hosts:
        versions.setdefault(row.version, []).append(row.host)
    if not versions:
        return Diagnosis("ok", "versions", "no host has fired in the last day")
    if len(versions) == 1:
        text = (
            f"oncecron {visible(*versions)} on every host that fired in the last day ({len(hosts)})"
        )
        return Diagnosis("ok", "versions", text)
    named = (f"{visible(version)} ({listed(names)})" for version, names in sorted(versions.items()))
    text = f"hosts have different versions: {', '.join(named)}"
    return Diagnosis("warn", "versions", text, "upgrade oncecron on the other hosts")


def _of_clocks(hosts: Sequence[KeyHost]) -> Diagnosis:
    wrong = [row for row in hosts if abs(row.clock_ahead) > NOTABLE_CLOCK_SKEW]
    if not wrong:
        return Diagnosis("ok", "clocks", "the clocks of all hosts agree with the store's")
    named = listed(
        [f"the clock of {row.host} {clock_difference(row.clock_ahead)}" for row in wrong]
    )
    return Diagnosis("warn", "clocks", named, "start a time service (chrony) on each host")


def _of_names(rows: Sequence[KeyHost]) -> Diagnosis:
    same = same_names(rows)
    if same:
        return Diagnosis("warn", "names", listed([*same.values()]), NAMES_CURE)
    return Diagnosis("ok", "names", "no two machines fire under one name, as far as is known")


def _different(
    crontabs: Mapping[str, Sequence[KeyHost]], part: Callable[[KeyHost], object]
) -> list[str]:
    return sorted(key for key, rows in crontabs.items() if len({part(row) for row in rows}) > 1)


def _crontabs_cure(
    crontabs: Mapping[str, Sequence[KeyHost]], key: str, part: Callable[[KeyHost], str]
) -> str:
    hosts: dict[str, list[str]] = {}
    for row in crontabs[key]:
        hosts.setdefault(part(row), []).append(row.host)
    shown = "; ".join(
        f"{visible(text[:_SHOWN])} on {listed(names)}" for text, names in sorted(hosts.items())
    )
    return f"make the crontabs equal: {visible(key)} is {shown}"


def _schedule(row: KeyHost) -> str:
    if row.schedule is None:
        return "without --schedule"
    return f"{row.schedule!r} in {row.zone or 'the zone of the host'}"


def listed(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return visible(", ".join(names[:_NAMED]) + more)
