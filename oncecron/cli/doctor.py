"""`oncecron doctor`: find what is wrong with this host and its store, and say what to do."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from oncecron.cli import output, table
from oncecron.cli.command import (
    STORE_OPTIONS,
    TABLE_OPTIONS,
    TableCommand,
    open_store,
    output_format,
)
from oncecron.cli.table import Column, Kind
from oncecron.cli.terminal import style_for
from oncecron.config.options import wrong_variables
from oncecron.config.settings import Settings, naming
from oncecron.core import clock
from oncecron.core.diagnosis import FIRINGS, Diagnosis
from oncecron.core.errors import EX_FOUND, ConfigurationError, OncecronError
from oncecron.core.text import count, listed, visible
from oncecron.host import installation
from oncecron.host.local_time import host_zone
from oncecron.log.hosts import of_last_day
from oncecron.log.silent_hosts import recent
from oncecron.plugins import brought, problems_of
from oncecron.run.sandbox import diagnoses, refused
from oncecron.run.spool import spool_of
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncecron.core.log_rows import KeyHost
    from oncecron.core.text import Clock
    from oncecron.run.spool import Spool
    from oncecron.stores.address import Address


CRON_PATH = "/usr/bin:/bin"
"""PATH in the environment of cron's jobs, unless the crontab sets it."""

_PROGRAM = "oncecron"
_TZ_DATA = "/usr/share/zoneinfo/tzdata.zi"
_SHOWN = 100
"""So many characters of a command are shown."""


def _finding(of: Diagnosis, _clock: Clock) -> str:
    return "; ".join(filter(None, (of.text, of.cure)))


DIAGNOSES = Kind(
    Diagnosis._fields,
    columns=(
        table.state("state"),
        table.field("subject", "SUBJECT", 0, 8),
        Column("FINDING", _finding, 0, 30, folds=True),
    ),
)

OPTIONS = (*TABLE_OPTIONS, *STORE_OPTIONS)


def _examine(given: dict[str, str], _words: list[str]) -> int:
    stream = output.standard_output()
    found: list[Diagnosis] = []
    try:
        settings = Settings(OPTIONS, given)
        chosen = output_format(settings)
        diagnoses = iter(sorted(_diagnoses(settings), key=lambda each: each.subject != FIRINGS))
    except ConfigurationError as error:
        chosen = "json" if "json" in given else given.get("format", "table")
        diagnoses = iter([Diagnosis("fail", "configuration", str(error))])
    style = style_for(stream, chosen, utc=False, wide="wide" in given)

    def noted() -> Iterator[Diagnosis]:
        for each in diagnoses:
            text, cure = (part and naming(part, given) for part in (each.text, each.cure))
            found.append(each)
            yield each._replace(text=text or "", cure=cure)

    output.Writer(DIAGNOSES, style, stream).write(noted())
    if chosen == "table":
        output.say(naming("keys and hosts: `oncecron check`", given), stream)
    return EX_FOUND if any(each.state != "ok" for each in found) else 0


def _diagnoses(settings: Settings) -> Iterator[Diagnosis]:
    path = settings.file.path
    problems = list(problems_of(settings.file))
    for problem in problems:
        yield Diagnosis("fail" if problem.stops else "warn", "configuration", str(problem))
    if not problems:
        yield Diagnosis("ok", "configuration", path or "no configuration file")
    for wrong, cure in wrong_variables(os.environ):
        yield Diagnosis("warn", "environment", visible(wrong), cure)
    yield of_program()
    yield of_zone()
    yield from diagnoses(refused())
    yield from brought(lambda each: each.host(settings))
    for name, find in (("store", settings.address), ("log", settings.log)):
        try:
            address = find()
        except ConfigurationError as error:
            yield Diagnosis("fail", name, str(error))
            return  # log() compares with the store's address, and would say the same again
        if address:
            yield from _of_store(settings, name, address)
            yield from of_spool(spool_of(address, settings["namespace"]))


def _of_store(settings: Settings, name: str, address: Address) -> Iterator[Diagnosis]:
    source = settings.source(name) or (settings.file.store_file if name == "store" else "")
    where = f"{masked(address.target)}, from {source or 'the configuration file'}"
    try:
        reader = open_store(address, settings["namespace"])
        try:
            for number, each in enumerate(reader.examine()):
                if number == 0:
                    yield Diagnosis("ok", name, where)
                yield each
            if name == "store":
                yield from of_crontabs(reader.key_hosts(), clock.wall())
                yield from brought(lambda each: each.store(settings, reader))
        finally:
            reader.close()
    except OncecronError as error:
        yield Diagnosis("fail", name, f"{where}: {error}", None)


def of_spool(spool: Spool) -> Iterator[Diagnosis]:
    """Judge the directory in which records wait for the store."""
    try:
        waiting = sum(1 for _ in spool.pending())
        aside = spool.set_aside()
        spool.probe()
    except (OncecronError, OSError) as error:
        text = "records cannot be kept while the store is away, and commands get no $ONCECRON_PLACE"
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
    which = f"{here} is oncecron {installation.version()} in {installation.HOME}"
    text = f"{which}, with Python {python} ({sys.executable})"
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


COMMAND = TableCommand(
    "doctor", OPTIONS, _examine,
    about="Look at the configuration, the store, the spool, the clock and the cron daemon of this host. Print one "
    "line for each: ok, warn or fail, and what to do about it. Exit with status 1 unless all are ok. Run it as the "
    "user of the crontab.",
    examples=("oncecron doctor", "sudo -u batch oncecron doctor --json"),
)  # fmt: skip
