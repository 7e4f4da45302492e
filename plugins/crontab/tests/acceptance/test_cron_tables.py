"""The table of crons compared with the daemons: random fields are accepted and refused alike, and mean the same.

What `wrap` would write as `--schedule` is compared, too: `run` must find the minutes and the days of the daemon. There
are ONCECRON_TEST_CRONTAB_LINES random lines for each daemon (80 when it is not set).
"""

import itertools
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cron_readings import (
    RANGES,
    Reading,
    read_by_busybox,
    read_by_cronie,
    read_by_systemd_cron,
)
from crontabs import EXAMPLES
from servers.require import require_root

from oncecron.core.schedule_fields import ScheduleFields, read_schedule
from oncecron_crontab.crons import CRONS
from oncecron_crontab.firing_times import schedule_of
from oncecron_crontab.scanner import Entry, scan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.turns(1)]
NUMBERS = (
    *(("0", "5", "59", "60", "07"), ("0", "2", "23", "24"), ("0", "1", "15", "31", "32")),
    *(("1", "6", "12", "13", "jan", "FEB", "december"), ("0", "1", "6", "7", "8", "sun", "Mon", "SAT", "friday")),
)  # fmt: skip
SHAPES = (
    ("*",) * 6 + ("{0}",) * 5 + ("{0}-{1}", "{0}-{1}", "*/{2}", "{0}/{2}", "{0}-{1}/{2}", "*/100")
)
STRANGE = ("?", "L", "{0}L", "{0}#2", "{0}W", "{0}x", "x", "*{0}x", "{0}-", "-{0}", "")
JUNCTIONS = (",", ",", ",", ",,")
DAEMONS: dict[str, Callable[[Sequence[str], Path], Sequence[Reading | bool | None]]] = {
    "cronie": read_by_cronie,
    "busybox": read_by_busybox,
    "systemd-cron": read_by_systemd_cron,
}


def random_field(dice: random.Random, position: int) -> str:
    """Return a field as people write it, or nearly."""
    terms = []
    for _ in range(dice.choice((1, 1, 1, 1, 2, 3))):
        shape = dice.choice(STRANGE if dice.random() < 0.02 else SHAPES)
        pool = NUMBERS[position]
        terms.append(shape.format(dice.choice(pool), dice.choice(pool), dice.choice("12357")))
    field = terms[0]
    for term in terms[1:]:
        field += dice.choice(JUNCTIONS) + term
    return (field + "," * (dice.random() < 0.02)) or "*"


def random_line(dice: random.Random, number: int) -> str:
    """Return a line; three of five fields are usually plain, so that most lines are accepted."""
    fields = ["*" if dice.random() < 0.5 else random_field(dice, at) for at in range(5)]
    return f"{' '.join(fields)} {number}"


@pytest.mark.parametrize("cron", DAEMONS)
def test_random_lines_are_read_alike(cron: str, public_path: Path) -> None:
    """Which of them are taken, the values of their fields, and the days and minutes of the --schedule."""
    if cron in ("cronie", "busybox"):
        require_root(f"{cron}, which reads nobody else's crontab")
    seed = int(os.environ.get("ONCECRON_TEST_SEED", random.randrange(1 << 30)))
    dice = random.Random(f"{seed} {cron}")
    lines = [random_line(dice, number) for number in range(EXAMPLES)]
    readings = DAEMONS[cron](lines, public_path)
    taken = 0
    for line, reading in zip(lines, readings, strict=True):
        [entry] = scan(f"{line}\n".encode(), cron=CRONS[cron]).lines
        where = f"{cron}, seed {seed}: {line!r}: {reading}"
        foreign = isinstance(entry, Entry) and any(field.foreign for field in entry.fields)
        assert isinstance(entry, Entry) == bool(reading) or foreign, where
        if isinstance(entry, Entry) and isinstance(reading, Reading) and not foreign:
            assert_same(entry, reading, where)
            taken += 1
    assert cron == "cronie" or taken > EXAMPLES / 4


def read_schedule_of(entry: Entry) -> ScheduleFields | str:
    """Return the schedule that wrap would write, else why there is none."""
    try:
        return read_schedule(schedule_of(entry))
    except ValueError as error:
        return str(error)


def assert_same(entry: Entry, reading: Reading, where: str) -> None:
    """Assert that an entry has the values of the daemon, and its schedule, unless it has none, the same times."""
    values = [field.values for field in entry.fields]
    assert values[:4] == [reading.minutes, reading.hours, reading.days, reading.months], where
    assert {day % 7 for day in values[4]} == reading.weekdays, where
    known = read_schedule_of(entry)
    if isinstance(known, str):
        assert "both day fields" in known or not reading.days or "never fires" in known, where
        return
    schedule = known
    assert (set(schedule.minutes), set(schedule.hours)) == (reading.minutes, reading.hours), where
    assert set(schedule.months) == reading.months, where
    for day, weekday in itertools.product(RANGES[2], RANGES[4]):
        matches = day in reading.days, weekday in reading.weekdays
        due = all(matches) if reading.both else any(matches)
        found = schedule._is_day(day, (weekday - 1) % 7)
        assert found == due, (where, day, weekday)
