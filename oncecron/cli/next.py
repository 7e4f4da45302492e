"""`oncecron next`: the next ticks of a schedule that is typed, configured, or known from the last claim."""

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
from oncecron.cli.pause import named_key, near
from oncecron.config.options import RUN_OPTION, Option

if TYPE_CHECKING:
    from oncecron.config.settings import Settings

# ruff: noqa: PLC0415 - --help imports as little as it can

_WHICH = "Which ticks"
_MOST = 10_000

OPTIONS = (
    RUN_OPTION["schedule"]._replace(
        help="Use this schedule: five fields in quotes, or a nickname such as @daily.", group=_WHICH
    ),
    RUN_OPTION["tz"]._replace(group=_WHICH),
    Option(
        "count",
        "integer",
        "Show exactly N ticks. Without it, also show the ticks around the next two clock changes.",
        "N",
        _WHICH,
        "10",
        minimum=1,
        maximum=_MOST,
    ),
    Option(
        "since",
        "text",
        "Start then instead of now: a date, a time such as 2026-11-20T02:00+01:00, or an age such as 2h.",
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
    from oncecron.log.upcoming import FIRST, LAST, coming_ticks

    key = words[0] if words else None
    settings = Settings(OPTIONS, given, key)
    form = output_format(settings)
    now = time.time()
    since = now if settings["since"] is None else moment(settings["since"], now)
    if not FIRST <= since < LAST:
        raise UsageError(f"--since: {settings['since']!r} is outside the years 2 to 8999")
    schedule, zone = _schedule(settings, key)
    try:
        ticks = coming_ticks(
            key, schedule, zone, since, settings["count"], changes=not settings.typed("count")
        )
    except ValueError as error:
        raise _wrong(settings, error) from error
    stream = output.standard_output()
    output.Writer(tables.COMING, output.style_for(stream, form, utc=True), stream).write(ticks)
    return 0


def _schedule(settings: Settings, key: str | None) -> tuple[str, str | None]:
    """Return a schedule and its zone: typed, else configured, else from the last claim, which asks the store."""
    from oncecron.config.file import job_section
    from oncecron.core.errors import ConfigurationError, NotFoundError, UsageError
    from oncecron.log.upcoming import known_schedule

    if (key is None) != settings.typed("schedule"):
        raise UsageError("give either a KEY or a schedule, such as --schedule '0 2 * * *'")
    if key is not None and " " in key:
        raise UsageError(f"{key!r} is not a key; for a schedule, use --schedule {key!r}")
    if key is not None:
        named_key(key)
    if settings["schedule"] is not None:
        return settings["schedule"], settings["tz"]
    section = job_section(key or "")
    try:
        settings.address()
    except ConfigurationError as error:
        meant = settings.near_section(key or "")
        raise ConfigurationError(f"{section} sets no schedule, and {error}{meant}") from error
    with store_and_log(settings) as (store, log):
        keys = [*store.job_keys(), *log.job_keys()]
    known = known_schedule(keys, key or "")
    if known is None:
        raise NotFoundError(
            f"no schedule on record for key {key}; set `schedule` in {section}, or use --schedule"
            f"{near(key or '', {part.key for part in keys} - {key or ''})}"
        )
    return known.schedule, known.zone if settings["tz"] is None else settings["tz"]


def _wrong(settings: Settings, error: ValueError) -> Exception:
    """Return an error that names the source of the schedule or of its zone."""
    from oncecron.core.errors import ConfigurationError, UnknownZoneError, UsageError

    wrong_zone = isinstance(error, UnknownZoneError) and settings["tz"] is not None
    culprit = "tz" if wrong_zone else "schedule"
    kind = UsageError if settings.typed(culprit) else ConfigurationError
    return kind(f"{settings.source(culprit) or 'the last claim'}: {error}")


COMMAND = TableCommand(
    "next",
    OPTIONS,
    _show,
    short="Show the next ticks of a schedule.",
    about="Show the next ticks of --schedule, or of a key. The schedule of a key comes from [job.KEY] in the "
    "configuration file, else from the store. Ticks around a clock change are marked with its effect.",
    examples=(
        "oncecron next billing-nightly",
        "oncecron next --schedule '30 2 * * *' --tz Europe/Berlin",
    ),
    words=click.Argument(["words"], metavar="[KEY]", required=False, shell_complete=KEYS),
)
