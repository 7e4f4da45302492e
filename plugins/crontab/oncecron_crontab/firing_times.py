"""When cron fires a line, as `--schedule` and `--tz` of the guard say it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from oncecron.core.schedule_fields import read_schedule
from oncecron.host import local_time
from oncecron_crontab.crons import CRON_TZ, CRONS
from oncecron_crontab.fields import for_schedule
from oncecron_crontab.percent_sign import depends_on_cron
from oncecron_crontab.scanner import Entry, Problem, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron_crontab.crons import Cron
    from oncecron_crontab.scanner import Crontab, Variable


def zone_variable(crontab: Crontab, entry: Entry, cron: Cron | None) -> Variable | None:
    """Return the variable that sets the time zone of a line; for an unknown cron, the one that may set it."""
    if cron is None:
        cron = CRONS["supercronic"]
    found = [
        variable
        for variable in crontab.variables
        if variable.name in cron.zone_variables
        and (cron.whole_file or variable.number < entry.number)
    ]
    return found[-1] if found else None


def schedule_of(entry: Entry) -> str:
    """Return the schedule for `tick`, with the same meaning as cron's reading of the line; empty: never.

    Raises `ValueError` if no schedule has that meaning.
    """
    return for_schedule(entry.fields, either=entry.either_day) if entry.fields else entry.schedule


def written_schedule(entry: Entry, cron: Cron | None) -> str:
    """Return the schedule of a line. Raises `ValueError` with the cure if no --schedule has its meaning."""
    try:
        return schedule_of(entry)
    except ValueError as error:
        title = "the cron" if cron is None else cron.title
        raise ValueError(
            f"{title} takes this line, and {error}; write other fields, or `# oncecron: no-tick` above the line"
        ) from None


def never_runs(entry: Entry) -> bool:
    """Return whether no time matches a line, such as on 31 February."""
    try:
        schedule = schedule_of(entry)
    except ValueError:  # it runs, and --schedule cannot say when
        return False
    try:
        local_time.scheduled_tick(schedule, "UTC", time.time())
    except ValueError:
        return True
    return False


def zone_of(crontab: Crontab, entry: Entry, cron: Cron | None, zone: str, *, given: bool) -> str:
    """Return the time zone in which cron fires a line. Raises `ValueError` if it is not known.

    `zone`: that of cron; `given`: whether a person has named it, with the crontab in view.
    """
    _refuse_moved_nickname(crontab, entry, cron)
    variable = zone_variable(crontab, entry, cron)
    if cron is None:
        if variable and not given:
            raise ValueError(
                "CRON_TZ sets the time zone of this line for cronie, systemd-cron and supercronic, and not for other "
                "crons; name the cron with --cron, or the zone with --tz"
            )
        return zone
    named = variable.value.decode(errors="replace").removeprefix(":") if variable else ""
    if not variable or not named:
        return zone
    try:
        local_time.scheduled_tick("@daily", named, 0)
    except ValueError as error:
        raise ValueError(f"{variable.name.decode()}: {error}") from None
    return named


def zones_without_effect(crontab: Crontab, cron: Cron | None) -> list[Problem]:
    """Return the `CRON_TZ` that cron does not read."""
    if cron is None or CRON_TZ in cron.zone_variables:
        return []
    return [
        Problem(
            variable.number,
            f"{cron.title} ignores CRON_TZ, so the zone of the lines below it is cron's own; if another cron reads "
            "this file, name it with --cron",
        )
        for variable in crontab.variables
        if variable.name == CRON_TZ
    ]


def refuse_other_readings(entry: Entry, cron: Cron | None) -> None:
    """Raise `ValueError` if the line would not mean the same with a prefix, or may not for an unknown cron."""
    if cron is None:
        if depends_on_cron(entry.command):
            raise ValueError(
                "crons read the percent signs, `#` or double backslashes of this line in different ways; name the cron "
                "with --cron"
            )
        if len(set(_readings(entry))) > 1:
            raise ValueError(
                "crons read the time fields of this line in different ways; name the cron with --cron"
            )
        return
    if re.match(cron.own_words, entry.command):
        raise ValueError(
            f"{cron.title} does not read the first word as a part of the command; write `oncecron run` after it by hand"
        )


def _refuse_moved_nickname(crontab: Crontab, entry: Entry, cron: Cron | None) -> None:
    """Raise `ValueError` if a variable above a nickname moves its time."""
    if cron and entry.schedule.startswith("@") and not entry.is_reboot:
        for name in sorted(cron.moves_nicknames.intersection(crontab.environment(entry))):
            raise ValueError(
                f"{name.decode()} moves the time of nicknames for {cron.title}; write five fields"
            )


def _readings(entry: Entry) -> Iterator[tuple[int, object]]:
    for cron in CRONS.values():
        [line] = scan(entry.raw, system=entry.user is not None, cron=cron).lines
        if isinstance(line, Entry):
            yield line.command_start, _times(line)


def _times(entry: Entry) -> object:
    try:
        return read_schedule(schedule_of(entry))
    except ValueError as error:
        return str(error)
