"""Findings on when a line runs: time fields that cron reads in an unexpected way, and `--schedule`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.config.file import job_section
from oncecron.host.local_time import canonical
from oncecron_crontab.crons import CRON_TZ, CRONS
from oncecron_crontab.fields import NAMES, Field, read_field, without_empty_day
from oncecron_crontab.firing_times import never_runs, schedule_of, zone_variable
from oncecron_crontab.lint.line import Diagnostic
from oncecron_crontab.scanner import Entry, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron_crontab.crons import Cron
    from oncecron_crontab.lint.line import Invocation, LintedCrontab, LintedEntry

_DAY, _WEEKDAY = 2, 4
_OFTEN = 5  # minutes
_NAME_OR_NUMBER = r"(?:\d+|sun|mon|tue|wed|thu|fri|sat)"
_ANY_FIELD = re.compile(
    rf"\?|\*(?:/\d+)?|{_NAME_OR_NUMBER}(?:[-,/]{_NAME_OR_NUMBER})*", re.IGNORECASE
)


def check_fields(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield the time fields that never match, or that match other times than they seem to."""
    for position, field in enumerate(line.entry.fields):
        yield from _check_field(line, position, field)
    fields = line.entry.fields
    if fields and all(field.values for field in fields) and never_runs(line.entry):
        yield line.diagnostic(
            "never",
            f"month {fields[3].written} has no day {fields[_DAY].written}: cron never runs the line",
            "use a day that exists",
        )


def _check_field(line: LintedEntry, position: int, field: Field) -> Iterator[Diagnostic]:
    what = f"{field.written} in the {NAMES[position]} field"
    if not field.values:
        never = not all(
            each.values
            for each in without_empty_day(line.entry.fields, either=line.entry.either_day)
        )
        yield line.diagnostic(
            "never" if never else "field",
            f"{what} is a falling range: cron "
            + (
                "never runs the line"
                if never
                else "reads it as no day, and runs the line by the other day field"
            ),
            "write two rising ranges, such as 22-23,0-2",
        )
    elif line.cron.rules:
        usual = read_field(position, field.written.encode())
        if usual and not field.foreign and usual.text != field.text:
            yield line.diagnostic(
                "field",
                f"{line.cron.title} reads {what} as {field.text}, and other crons as {usual.text}",
                "write the values that are meant",
            )
    elif field.text != field.written:
        yield line.diagnostic(
            "field",
            f"cron reads {what} as {field.text} and ignores the rest",
            f"write {field.text}, and test for the rest in the command",
        )


def check_count(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield lines with six fields, as Quartz and others have them: cron takes the sixth for the command or the user."""
    if len(line.cron.fields) > 1:
        return
    user = (line.entry.user or b"").decode(errors="replace")
    first = user or line.command.partition(" ")[0]
    if line.entry.fields and _ANY_FIELD.fullmatch(first):
        yield line.diagnostic(
            "field",
            f"the line has more than five time fields: cron takes {first} for the "
            + ("user" if user else "command"),
            "write minute, hour, day of month, month and day of week, without seconds and year",
        )


def check_zone_of_cron(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield schedules of a guard that are in another zone than the one that CRON_TZ sets for the line."""
    variable = zone_variable(line.source.crontab, line.entry, line.cron)
    if variable is None:
        return
    zone = variable.value.decode(errors="replace")
    for invocation in line.invocations:
        given = invocation.options.get("tz")
        if "schedule" in invocation.options and (
            given is None or canonical(given) != canonical(zone)
        ):
            yield line.diagnostic(
                "zone",
                f"{line.cron.title} fires the line in {zone}, but --schedule is in {given or 'the zone of the host'}",
                f"use --tz {zone}",
            )


def check_cron_zone(source: LintedCrontab, cron: Cron) -> Iterator[Diagnostic]:
    """Yield a CRON_TZ that this cron does not read, although lines are below it."""
    if CRON_TZ in cron.zone_variables:
        return
    last = max((entry.number for entry in source.crontab.entries()), default=0)
    for variable in source.crontab.variables:
        if variable.name == CRON_TZ and variable.number < last:
            yield Diagnostic(
                *(source.name, variable.number, "zone"),
                f"{cron.title} ignores CRON_TZ: the lines below it run at the host's time",
                "convert the times of the lines to the host's time zone, or use a cron that reads it",
            )


def check_schedule(line: LintedEntry, invocation: Invocation) -> Iterator[Diagnostic]:
    """Yield where the tick that oncecron derives does not fit the time of the line."""
    written = invocation.options.get("schedule")
    if line.entry.is_reboot:
        if invocation.key is not None and (written is not None or not invocation.names_the_tick):
            yield line.diagnostic(
                "schedule",
                "@reboot has no schedule: hosts boot in different minutes, so each of them runs it",
                "to run it on every host, write ONCECRON=off in front; to run it on one, set no_tick = true in "
                "[job.KEY] of the configuration file"
                if invocation.is_shell
                else "use --tick with a name, under which each item is run once"
                if invocation.subcommand == "each"
                else "use --no-tick; to prevent a second run when another host boots later, also --min-gap",
            )
    elif any(field.foreign for field in line.entry.fields):
        return
    elif written is not None and meaning(line.entry) != _meaning_of(written):
        yield line.diagnostic(
            "schedule",
            f"the line runs at {line.entry.schedule!r}, but --schedule is {written!r}: firings get the wrong tick",
            _write(line, invocation),
        )
    if written is not None and "tz" not in invocation.options and "TZ" in line.environment:
        yield line.diagnostic(
            "zone",
            f"--schedule uses TZ={line.environment['TZ']} from above the line, but cron fires in the host's time zone",
            "set --tz to the host's time zone, such as --tz Europe/Berlin",
        )


def meaning(entry: Entry) -> tuple[object, ...] | None:
    """Return a value that is equal for schedules with the same meaning; None for @reboot."""
    if entry.is_reboot:
        return None
    if not entry.fields:
        return _meaning_of(CRONS["debian"].nicknames[entry.schedule.encode()])
    fields = without_empty_day(entry.fields, either=entry.either_day)
    either = entry.either_day and not (fields[_DAY].has_star or fields[_WEEKDAY].has_star)
    weekdays = frozenset(day % 7 for day in fields[_WEEKDAY].values)
    values = (*(field.values for field in fields[:_WEEKDAY]), weekdays)
    wild = fields[0].has_star or fields[1].has_star
    return *values, wild, either


def _meaning_of(schedule: str) -> tuple[object, ...] | None:
    entry = scan(f"{schedule} x\n".encode()).lines[:1]
    return meaning(entry[0]) if entry and isinstance(entry[0], Entry) else None


def _write(line: LintedEntry, invocation: Invocation) -> str:
    try:
        schedule = schedule_of(line.entry)
    except ValueError:
        return "write fields that --schedule has, too"
    if invocation.is_shell and invocation.key and schedule:
        return f"set schedule = '{schedule}' in {job_section(invocation.key)} of the configuration file"
    return f"use --schedule '{schedule}'" if schedule else "remove the line"


def check_frequency(line: LintedEntry, invocation: Invocation) -> Iterator[Diagnostic]:
    """Yield lines that run so often that a late start counts as the next tick."""
    if invocation.key is None or invocation.names_the_tick or not line.entry.fields:
        return
    minutes, hours = (sorted(field.values) for field in line.entry.fields[:2])
    if not minutes or not hours:
        return
    around = [minutes[0] + 60] if len(hours) > 1 else []
    gaps = [later - earlier for earlier, later in zip(minutes, minutes[1:] + around, strict=False)]
    if gaps and min(gaps) < _OFTEN:
        yield line.diagnostic(
            "frequent",
            "it runs every few minutes: without --schedule, a start that is a minute late counts as another tick",
            _write(line, invocation),
        )
