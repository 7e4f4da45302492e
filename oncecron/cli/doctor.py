"""`oncecron doctor`: find what is wrong with this host and its store, and say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli import output, table
from oncecron.cli.command import (
    STORE_OPTIONS,
    TABLE_OPTIONS,
    TableCommand,
    open_store,
    output_format,
)
from oncecron.cli.doctor_checks import (
    of_crontabs,
    of_program,
    of_spool,
    of_zone,
)
from oncecron.cli.table import Column, Kind
from oncecron.cli.terminal import style_for
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.diagnosis import Diagnosis
from oncecron.core.errors import ConfigurationError, OncecronError
from oncecron.plugins import brought, problems_of
from oncecron.run.sandbox import diagnoses, refused
from oncecron.run.spool import spool_of
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.text import Clock
    from oncecron.stores.address import Address


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
FOUND = 1
"""Exit status where anything is not ok."""


def _examine(given: dict[str, str], _words: list[str]) -> int:
    stream = output.standard_output()
    found: list[Diagnosis] = []
    try:
        settings = Settings(OPTIONS, given)
        chosen, diagnoses = output_format(settings), _diagnoses(settings)
    except ConfigurationError as error:
        chosen = "json" if "json" in given else given.get("format", "table")
        diagnoses = iter([Diagnosis("fail", "configuration", str(error))])
    style = style_for(stream, chosen, utc=False, wide="wide" in given)

    def noted() -> Iterator[Diagnosis]:
        for each in diagnoses:
            found.append(each)
            yield each

    output.Writer(DIAGNOSES, style, stream).write(noted())
    if chosen == "table":
        output.say("keys and hosts: `oncecron check`", stream)
    return FOUND if any(each.state != "ok" for each in found) else 0


def _diagnoses(settings: Settings) -> Iterator[Diagnosis]:
    path = settings.file.path
    problems = list(problems_of(settings.file))
    for problem in problems:
        yield Diagnosis("fail" if problem.stops else "warn", "configuration", str(problem))
    if not problems:
        yield Diagnosis("ok", "configuration", path or "no configuration file")
    yield of_program()
    yield of_zone()
    yield from diagnoses(refused())
    yield from brought(lambda each: each.host(settings))
    for name, find in (("store", settings.address), ("log", settings.log)):
        try:
            address = find()
        except ConfigurationError as error:
            yield Diagnosis("fail", name, str(error))
            return
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


COMMAND = TableCommand(
    "doctor", OPTIONS, _examine,
    about="Look at the configuration, the store, the spool, the clock and the cron daemon of this host. Print one "
    "line for each: ok, warn or fail, and what to do about it. Exit with status 1 unless all are ok. Run it as the "
    "user of the crontab.",
    examples=("oncecron doctor", "sudo -u batch oncecron doctor --json"),
)  # fmt: skip
