"""`oncecron next`: the coming ticks of a schedule, typed, configured or as it was last claimed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from oncecron.cli.command import (
    FORMAT,
    JSON,
    KEYS,
    STORE_OPTIONS,
    TableCommand,
    moment,
    output_format,
    store_and_log,
)
from oncecron.config.options import RUN_OPTION, Option

if TYPE_CHECKING:
    from oncecron.config.settings import Settings

# ruff: noqa: PLC0415 - --help imports as little as it can

_WHICH = "Which ticks"
_MOST = 10_000

OPTIONS = (
    RUN_OPTION["schedule"]._replace(
        help="Of these five fields, or @daily and the like.", group=_WHICH
    ),
    RUN_OPTION["tz"]._replace(group=_WHICH),
    Option(
        "count",
        "integer",
        "So many, and no others; when not given, also those beside the next two changes of the clock.",
        "N",
        _WHICH,
        "10",
        minimum=1,
        maximum=_MOST,
    ),
    Option(
        "since",
        "text",
        "From then on, instead of from now on: a date, a time like 2026-11-20T02:00+01:00, or an age like 2h.",
        "AGE|TIME",
        _WHICH,
    ),
    FORMAT,
    JSON,
    *STORE_OPTIONS,
)


def _show(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output, tables
    from oncecron.config.settings import Settings
    from oncecron.core.errors import UsageError
    from oncecron.reports.upcoming import FIRST, LAST, coming

    key = words[0] if words else None
    settings = Settings(OPTIONS, given, key)
    form = output_format(settings)
    now = time.time()
    since = now if settings["since"] is None else moment(settings["since"], now)
    if not FIRST <= since < LAST:
        raise UsageError(f"--since: {settings['since']!r} is not in the years 2 to 8999")
    schedule, zone = _schedule(settings, key)
    try:
        ticks = coming(
            key, schedule, zone, since, settings["count"], changes=not settings.typed("count")
        )
    except ValueError as error:
        raise _wrong(settings, error) from error
    stream = output.standard_output()
    output.Writer(tables.COMING, output.style_for(stream, form, utc=True), stream).write(ticks)
    return 0


def _schedule(settings: Settings, key: str | None) -> tuple[str, str | None]:
    """Return a schedule and its zone: typed, else configured, else as last claimed; only the last asks the store."""
    from oncecron.config.file import job_section
    from oncecron.core.errors import ConfigurationError, NotFoundError, UsageError
    from oncecron.reports.upcoming import known_schedule

    if (key is None) != settings.typed("schedule"):
        raise UsageError("name either a KEY or --schedule, such as --schedule '0 2 * * *'")
    if key == "":
        raise UsageError("the key is empty (an unset variable?)")
    if settings["schedule"] is not None:
        return settings["schedule"], settings["tz"]
    section = job_section(key or "")
    try:
        settings.address()
    except ConfigurationError as error:
        raise ConfigurationError(f"{section} names no schedule, and {error}") from error
    with store_and_log(settings) as (store, log):
        known = known_schedule([*store.job_keys(), *log.job_keys()], key or "")
    if known is None or known.schedule is None:
        raise NotFoundError(
            f"no schedule of key {key} is known: the configuration has none in {section}, and no host has "
            "fired it with --schedule; give --schedule"
        )
    return known.schedule, known.zone if settings["tz"] is None else settings["tz"]


def _wrong(settings: Settings, error: ValueError) -> Exception:
    """Return an error that names where the schedule, or its zone, came from."""
    from oncecron.core.errors import ConfigurationError, UnknownZoneError, UsageError

    wrong_zone = isinstance(error, UnknownZoneError) and settings["tz"] is not None
    culprit = "tz" if wrong_zone else "schedule"
    kind = UsageError if settings.typed(culprit) else ConfigurationError
    return kind(f"{settings.source(culprit) or 'as last claimed'}: {error}")


COMMAND = TableCommand(
    "next",
    OPTIONS,
    _show,
    short="Show the coming ticks of a schedule.",
    about="Show the coming ticks of --schedule, or of a key: by [job.KEY] of the configuration file, else as it was "
    "last claimed with --schedule, which alone asks the store. Ticks beside a change of the clock say what it does "
    "to them.",
    words=click.Argument(["words"], metavar="[KEY]", required=False, shell_complete=KEYS),
)
