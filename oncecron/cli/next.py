"""`oncecron next`: the next ticks of a schedule that is typed, configured, or known from the last claim."""

from __future__ import annotations

import math
import time
from datetime import date, datetime
from typing import TYPE_CHECKING

from oncecron.cli import table
from oncecron.cli.command import (
    SINCE,
    STORE_OPTIONS,
    TABLE_OPTIONS,
    UNTIL,
    TableCommand,
    moment,
    store_and_log,
    writer,
)
from oncecron.cli.sentences import suggestion, valid_key
from oncecron.cli.table import Column, Kind
from oncecron.config.file import job_section
from oncecron.config.options import RUN_OPTION, Option, in_group
from oncecron.config.settings import Settings
from oncecron.core.errors import ConfigurationError, NotFoundError, UnknownZoneError, UsageError
from oncecron.core.text import relative_time
from oncecron.core.tick import instant_of
from oncecron.host.stderr import complain
from oncecron.log.jobs import jobs
from oncecron.log.sources import sources_of
from oncecron.log.time_span import EXPECTED
from oncecron.log.upcoming import Coming, coming_ticks
from oncecron.log.why import to_make_up

if TYPE_CHECKING:
    from oncecron.core.text import Clock

_MOST = 10_000


def _weekday(tick: Coming, _clock: Clock) -> str:
    return date.fromisoformat(tick.local[:10]).strftime("%a")


def _local(tick: Coming, _clock: Clock) -> str:
    there = datetime.fromisoformat(tick.local)
    return f"{there:%a} {there.day} {there:%b %Y %H:%M}"


def _offset(tick: Coming, _clock: Clock) -> str:
    return tick.local[len("2026-11-20T02:00:00") :]


def _distance(tick: Coming, clock: Clock) -> str:
    return relative_time(instant_of(tick.tick) or 0.0, clock.now or 0.0)


COMING = Kind(
    Coming._fields,
    columns=(
        table.field("tick"), Column("DAY", _weekday),
        *(table.field(name) for name in ("local", "zone", "change")),
    ),
    screen=(
        Column("TIME", _local, 0, is_time=True), Column("OFFSET", _offset, 2), Column("DUE", _distance, 1),
        table.field("tick", "TICK", 3), table.field("change", "CHANGE", 0, 16, folds=True),
    ),
)  # fmt: skip
OPTIONS = (
    *in_group(
        "Which ticks",
        RUN_OPTION["schedule"]._replace(
            help="Use this schedule: five fields in quotes, or a nickname such as @daily."
        ),
        RUN_OPTION["tz"],
        Option(
            "count", "integer",
            "Show exactly N ticks. Without it, also show the ticks around the next two clock changes.", default="10",
            minimum=1, maximum=_MOST,
        ),
        SINCE._replace(help=f"Begin then instead of now: {EXPECTED}."),
        UNTIL._replace(help="End then, written like --since: 2h, 14:47 or a weekday is the next one after it."),
    ),
    *TABLE_OPTIONS,
    *STORE_OPTIONS,
)  # fmt: skip


def _show(given: dict[str, str], words: list[str]) -> int:
    key = words[0] if words else None
    if key == "@reboot":
        raise UsageError("@reboot has no ticks; the line runs whenever cron starts with the host")
    if key and "schedule" not in given and (" " in key or key.startswith("@")):
        given, key = {**given, "schedule": key}, None
    settings = Settings(OPTIONS, given, key)
    now = time.time()
    since = now if settings["since"] is None else moment(settings["since"], now, utc=False)
    until = math.inf
    if settings["until"] is not None:
        until = moment(settings["until"], since, "until", utc=False, ahead=True)
    if until <= since:
        raise UsageError("--since is not before --until: nothing lies between them")
    schedule, zone = _schedule(settings, key)
    all_of_span = settings.is_typed("until") and not settings.is_typed("count")
    try:
        ticks = coming_ticks(
            *(key, schedule, zone, (since, until), _MOST if all_of_span else settings["count"]),
            changes=not (all_of_span or settings.is_typed("count")),
        )
    except ValueError as error:
        raise _wrong(settings, error) from error
    writer(COMING, settings, utc=True, zone=ticks[0].zone if ticks else None).write(ticks)
    return 0


def _schedule(settings: Settings, key: str | None) -> tuple[str, str | None]:
    if (key is None) != settings.is_typed("schedule"):
        raise UsageError("give either a KEY or a schedule, such as '0 2 * * *'")
    if key is not None:
        valid_key(key)
    if settings["schedule"] is not None:
        return settings["schedule"], settings["tz"]
    section = job_section(key or "")
    try:
        settings.address()
    except ConfigurationError as error:
        meant = settings.near_section(key or "")
        raise ConfigurationError(f"{section} sets no schedule, and {error}{meant}") from error
    with store_and_log(settings) as (store, log):
        sources = sources_of(settings, store, log)
        keys = [*store.job_keys(), *log.job_keys()]
        for job in jobs(sources, {key or ""}):
            if job.catching_up:
                complain(f"key {key}: {to_make_up(job.catching_up, job.first_caught_up)}")
        known = next((each.expected for each in keys if each.key == key and each.expected), None)
        if known is None:
            raise NotFoundError(
                f"no schedule on record for key {key}; set `schedule` in {section}, or use --schedule"
                f"{suggestion(key or '', {part.key for part in keys} - {key or ''})}"
            )
    return known.schedule, known.zone if settings["tz"] is None else settings["tz"]


def _wrong(settings: Settings, error: ValueError) -> Exception:
    wrong_zone = isinstance(error, UnknownZoneError) and settings["tz"] is not None
    culprit = "tz" if wrong_zone else "schedule"
    kind = UsageError if settings.is_typed(culprit) else ConfigurationError
    return kind(f"{settings.source(culprit) or 'the last claim'}: {error}")


COMMAND = TableCommand(
    "next", OPTIONS, _show,
    about="Show the next ticks of a schedule, or of a key. The schedule of a key comes from [job.KEY] in the "
    "configuration file, else from the store; then a line also says what the next firing makes up. Ticks around a "
    "clock change are marked with its effect.",
    examples=(
        "oncecron next billing-nightly",
        "oncecron next '30 2 * * *' --tz Europe/Berlin",
    ),
    words="[KEY|SCHEDULE]",
)  # fmt: skip
