"""What real cron daemons read in the time fields of lines: each is asked in its own way, and starts no job.

busybox prints the values of each field at its most verbose, cronie has `crontab -T`, and systemd-cron makes a timer of
each line.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from servers.cron import CronHost
from servers.other_crons import by_its_own_library, daemons, generator, unpacked
from servers.process import end, spawn
from servers.waiting import eventually

WEEK = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
RANGES = (range(60), range(24), range(1, 32), range(1, 13), range(7))


class Reading(NamedTuple):
    """The values of the five fields; day-of-week from 0, which is Sunday."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both: bool
    """Whether a day must match both day fields."""


def read_by_cronie(lines: Sequence[str], directory: Path) -> list[bool]:
    """Return which lines cronie accepts."""
    command = by_its_own_library(unpacked(), "usr/bin/crontab")
    found = []
    for line in lines:
        (directory / "cronie").write_text(f"{line}\n")
        done = subprocess.run(
            [*command, "-T", directory / "cronie"], capture_output=True, check=False
        )
        found.append(done.returncode == 0)
    return found


def read_by_busybox(lines: Sequence[str], directory: Path) -> list[Reading | None]:
    """Return what busybox makes of lines that have a command, None for those of which it complains."""
    spool = directory / "busybox"
    spool.mkdir()
    (spool / "root").write_text("".join(f"{line}\n" for line in [*lines, "* * * * * last"]))
    log = directory / "busybox.log"
    log.touch()
    program = daemons()["busybox"].command[:2]
    daemon = spawn([*program, "-f", "-l", "0", "-L", str(log), "-c", str(spool)])
    try:
        entries = eventually(lambda: _busybox_entries(log.read_text(), len(lines) + 1), 20)
    finally:
        end(daemon)
    return [_busybox_reading(entry) for entry in entries[:-1]]


def _busybox_entries(text: str, count: int) -> list[list[str]]:
    entries = [entry.splitlines()[1:] for entry in re.split(r"crond: user:root entry", text)[1:]]
    assert len(entries) == count, text[-200:]
    assert len(entries[-1]) >= len(RANGES), text[-200:]
    return entries


def _busybox_reading(fields: list[str]) -> Reading | None:
    fields = fields[: len(RANGES)]
    if len(fields) < len(RANGES) or any("parse error" in field for field in fields):
        return None
    bits = [{at for at, bit in enumerate(field) if bit == "1"} for field in fields]
    minutes, hours, days, months, weekdays = bits
    # FixDayDow: where only one of the two is restricted, the other one is emptied, and either is enough.
    free = len(days) == 32, len(weekdays) == 7
    return Reading(
        frozenset(minutes),
        frozenset(hours),
        frozenset(days) - {0},
        frozenset(month + 1 for month in months),
        frozenset(weekdays),
        both=any(free),
    )


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for term in text.split(","):
        first, _, last = term.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def read_by_systemd_cron(lines: Sequence[str], directory: Path) -> list[Reading | None]:
    """Return what the generator of systemd-cron makes of lines whose commands are their numbers."""
    host = CronHost("alpha", "".join(f"{line}\n" for line in lines))
    try:
        host.run([*generator(), str(directory)])
    finally:
        host.remove()
    found: list[Reading | None] = [None] * len(lines)
    for timer in directory.glob("cron-root-root-*.timer"):
        text = timer.read_text()
        number = re.search(r'^Description=.* (\d+)"$', text, re.MULTILINE)
        calendar = re.search(
            r"^OnCalendar=(?:([A-Za-z,]+) )?\*-(\S+)-(\S+) (\S+):(\S+):00$", text, re.MULTILINE
        )
        if number is None or calendar is None:
            continue  # of the machine itself, or with a time that no --schedule can mean
        week, months, days, hours, minutes = calendar.groups()
        weekdays = {WEEK.index(day) for day in week.split(",")} if week else range(7)
        values = [
            frozenset(known) if field == "*" else _numbers(field)
            for known, field in zip(RANGES, (minutes, hours, days, months), strict=False)
        ]
        found[int(number[1])] = Reading(*values, frozenset(weekdays), both=True)
    return found
