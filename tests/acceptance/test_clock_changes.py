"""The real Debian cron daemon through both changes of the clock: it starts a line at its ticks, and at no other time.

Its clock runs seventy-five times as fast as the real one, and its sleeps are as much shorter (libfaketime), so that
it lives through every minute of the night. What it starts writes down the real time.
"""

import time
from collections import Counter
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path

import pytest
from servers import CronHost, eventually, skewed
from true_time import MINUTE, at

from oncecron.host.local_time import next_ticks

RATE = 75
LATE = 9 * MINUTE
"""So much may lie between a minute and its job, by the fast clock: 7.2 s by the real one; ticks are ten apart."""
ZONE = "Europe/Berlin"
SCHEDULES = {
    "fixed": "30 2 * * *",
    "several": "15,45 2 * * *",
    "late": "50 1-2 * * *",
    "after": "0 3 * * *",
    "half": "0,30 * * * *",
    "wildcard": "*/20 2 * * *",
    "hourly": "@hourly",
    "quarter": "*/15 * * * *",
}
SPRING, AUTUMN = "2027-03-28T00:28Z", "2027-10-31T00:08Z"
AGAIN = {("several", SPRING): [at("2027-03-28T01:00Z")]}
"""Of several times that are skipped each is started, one after another: they are one tick."""
LINE = "{schedule} echo {name} $(date +\\%s.\\%N) >>{journal}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "stop"),
    [
        pytest.param(SPRING, "2027-03-28T01:31Z", id="spring"),
        pytest.param(AUTUMN, "2027-10-31T02:01Z", id="autumn"),
    ],
)
def test_cron_starts_a_line_at_its_ticks(public_path: Path, start: str, stop: str) -> None:
    """Fixed times that are skipped at the jump, those that are repeated once; wildcards as the clock shows them."""
    journal = public_path / "starts"
    journal.touch()
    journal.chmod(0o666)
    expected = {name: ticks(schedule, start, stop) for name, schedule in SCHEDULES.items()}
    with ExitStack() as stack:
        host = CronHost("alpha", crontab(journal))
        stack.callback(host.remove)
        began = time.time()
        host.environment |= skewed(at(start) - began, {"TZ": ZONE})
        host.environment["FAKETIME"] += f" x{RATE}"
        host.start()
        last = len(expected["quarter"])
        eventually(lambda: Counter(map(of, lines(journal)))["quarter"] >= last, 200)
        eventually(lambda: len(host.processes()) <= 1)  # the daemon alone
        host.stop()
    for name, due in expected.items():
        real = sorted(float(line.split()[1]) for line in lines(journal) if of(line) == name)
        shown = [at(start) + (moment - began) * RATE for moment in real]
        starts = [max(tick for tick in due if tick <= moment) for moment in shown]
        assert all(moment - tick < LATE for moment, tick in zip(shown, starts, strict=True)), name
        assert starts == sorted([*due, *AGAIN.get((name, start), [])]), name


def crontab(journal: Path) -> str:
    return "".join(
        LINE.format(schedule=schedule, name=name, journal=journal)
        for name, schedule in SCHEDULES.items()
    )


def ticks(schedule: str, start: str, stop: str) -> list[float]:
    """Return the ticks later than `start`, before `stop`."""
    instants = (each.instant or 0.0 for each in next_ticks(schedule, ZONE, at(start)))
    return list(takewhile(lambda instant: instant < at(stop), instants))


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines()


def of(line: str) -> str:
    return line.split(maxsplit=1)[0]
