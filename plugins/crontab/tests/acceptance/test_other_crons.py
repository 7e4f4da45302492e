"""Other cron daemons than Debian's, each on two hosts, fire crontabs that `crontab wrap --cron` has wrapped.

They run for ONCECRON_TEST_MINUTES full minutes (2 when it is not set), by the real clock, all at once. systemd-cron is
a generator: what it makes of a crontab is started on two hosts, as systemd would.
"""

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from log_of import PostgresLog
from servers import CronHost, Journal, PostgresServer, assert_exclusive, eventually, job
from servers.oncecron import installed, recording_script
from servers.other_crons import Daemon, OtherCronHost, daemons, generator
from servers.process import public_directory, remove_directory
from test_cron_daemons import MINUTES, tick_text

CRONS = ("cronie", "busybox")
LINES = ("line", "percent", "shell")
TOKYO = "cronie-tokyo"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60 * MINUTES + 300),
    pytest.mark.turns(1, "systems"),
]

CRONTAB = """\
XDG_STATE_HOME=/run
ONCECRON_STORE={url}
# oncecron: key={cron}-line
* * * * * cd / && {quiet}
# oncecron: key={cron}-percent
* * * * * test "$(date +{percent}Y)" -gt 2000 && {quiet}
ONCECRON_KEY_PREFIX={cron}-shell.
SHELL={oncecron}-shell
* * * * * cd / && {quiet}
"""
IN_TOKYO = """\
SHELL=/bin/sh
CRON_TZ=Asia/Tokyo
# oncecron: key={key}
* {hours} * * * {quiet}
"""
YEARLY = """\
XDG_STATE_HOME=/run
ONCECRON_STORE={url}
# oncecron: key=percent
0 0 1 1 * test "$(date +\\%Y)" -gt 2000 && {quiet}
CRON_TZ=Asia/Tokyo
# oncecron: key=tokyo
0 0 1 1 * {quiet}
"""


class Evidence(NamedTuple):
    """What the minutes have left."""

    journal: Journal
    log: PostgresLog
    ticks: list[str]


def wrapped(crontab: str, cron: str) -> str:
    """Return a crontab as `wrap` writes it for a cron, on a host in UTC; no line may be refused."""
    command = [recording_script(), "crontab", "wrap", "--cron", cron, "--tz", "UTC"]
    done = subprocess.run(
        command, input=crontab, capture_output=True, text=True, env={}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def crontab_for(cron: str, url: str, quiet: str) -> str:
    """Return the crontab of both hosts of a cron."""
    percent = "\\%" if cron == "cronie" else "%"
    text = CRONTAB.format(
        cron=cron, url=url, quiet=quiet, percent=percent, oncecron=recording_script()
    )
    if cron == "cronie":
        now = datetime.now(ZoneInfo("Asia/Tokyo"))
        hours = f"{now.hour},{(now + timedelta(hours=1)).hour}"
        text += IN_TOKYO.format(key=TOKYO, hours=hours, quiet=quiet)
    return wrapped(text, cron)


def with_variables(daemon: Daemon, cron: str, url: str) -> Daemon:
    """Return a daemon that passes the variables on which its crontab cannot set."""
    if cron != "busybox":
        return daemon
    variables = {"ONCECRON_STORE": url, "ONCECRON_KEY_PREFIX": f"{cron}-shell."}
    return daemon._replace(variables=daemon.variables | variables)


@pytest.fixture(scope="module")
def evidence(postgres: PostgresServer) -> Iterator[Evidence]:
    """Run two daemons of each kind for the given number of minutes."""
    known = daemons()
    with ExitStack() as stack:
        path = public_directory("other-crons")
        stack.callback(remove_directory, path)
        database = installed(stack.enter_context(postgres.create_database().until_dropped()))
        journal = Journal(path / "journal")
        stack.callback(journal.kill_jobs)
        quiet = shlex.join(job(journal, "--beats", "--sleep", 0.1))
        hosts = []
        for cron in CRONS:
            crontab = crontab_for(cron, database.url(), quiet)
            daemon = with_variables(known[cron], cron, database.url())
            for name in ("alpha", "beta"):
                host = OtherCronHost(f"{cron}-{name}", crontab, daemon)
                stack.callback(host.remove)
                hosts.append(host)
        for host in hosts:
            host.start()
        # All are there at this minute, some perhaps at the one before.
        first = (time.time() + 20) // 60 * 60 + 60
        ticks = [tick_text(first + 60 * number) for number in range(MINUTES)]
        lines = len(CRONS) * len(LINES) + 1
        eventually(
            lambda: len({each.key for each in journal.starts() if each.tick == ticks[-1]}) == lines,
            60 * MINUTES + 90,
        )
        log = PostgresLog(database)
        for key in sorted({start.key for start in journal.starts()}):
            eventually(lambda key=key: has_fired(log, key, ticks), 40)
        for host in hosts:
            host.stop()
            eventually(lambda host=host: not host.processes(), 30)
        yield Evidence(journal, log, ticks)


def has_fired(log: PostgresLog, key: str, ticks: list[str]) -> bool:
    """Return whether both hosts have fired a line each minute."""
    ended = {each.tick for each in log.executions(key) if each.outcome == "succeeded"}
    return {*ticks} <= ended and {*ticks} <= {skip.tick for skip in log.skips(key)}


def key_of(evidence: Evidence, begin: str) -> str:
    """Return the one key that begins so; that of a line below SHELL= is derived."""
    [key] = {start.key for start in evidence.journal.starts() if start.key.startswith(begin)}
    return key


@pytest.mark.parametrize("begin", [*(f"{cron}-{line}" for cron in CRONS for line in LINES), TOKYO])
def test_each_minute_is_started_once(evidence: Evidence, begin: str) -> None:
    """With a percent sign as this cron reads it, below SHELL=oncecron-shell, and in the zone of CRON_TZ."""
    assert_exclusive(evidence.journal)
    starts = [
        start
        for start in evidence.journal.starts()
        if start.key.startswith(begin) and start.tick in evidence.ticks
    ]
    assert [start.tick for start in starts] == evidence.ticks
    assert all(start.host.startswith(begin.partition("-")[0]) for start in starts)


@pytest.mark.parametrize("begin", [*(f"{cron}-{line}" for cron in CRONS for line in LINES), TOKYO])
def test_the_other_host_was_refused(evidence: Evidence, begin: str) -> None:
    """Once a minute: both daemons have fired the line."""
    key = key_of(evidence, begin)
    ran = [
        (row.tick, row.host) for row in evidence.log.executions(key) if row.tick in evidence.ticks
    ]
    assert [tick for tick, _ in ran] == evidence.ticks
    skips = [skip for skip in evidence.log.skips(key) if skip.tick in evidence.ticks]
    assert sorted((skip.tick, skip.holder_host) for skip in skips) == ran
    assert all(skip.host != skip.holder_host for skip in skips)


def test_what_systemd_cron_makes_of_a_crontab(
    postgres: PostgresServer, public_path: Path, journal: Journal
) -> None:
    """Its timers are in the zone of CRON_TZ, and a service that two hosts start runs on one of them."""
    with ExitStack() as stack:
        database = installed(stack.enter_context(postgres.create_database().until_dropped()))
        quiet = shlex.join(job(journal, "--beats"))
        crontab = wrapped(YEARLY.format(url=database.url(), quiet=quiet), "systemd-cron")
        log = PostgresLog(database)
        for name in ("alpha", "beta"):
            host = CronHost(name, crontab)
            stack.callback(host.remove)
            units = public_path / name
            units.mkdir()
            host.run([*generator(), str(units)])
            timers = {timer_zone(path) for path in units.glob("*.timer")}
            assert timers == {"", "Asia/Tokyo"}
            services = sorted(units.glob("cron-root-root-*.service"))
            assert len(services) == 2
            for service in services:
                host.run(command_of(service))
        here, tokyo = (datetime.now(zone).year for zone in (UTC, ZoneInfo("Asia/Tokyo")))
        assert {(start.key, start.tick) for start in journal.starts()} == {
            ("percent", f"{here}-01-01T00:00Z"),
            ("tokyo", f"{tokyo - 1}-12-31T15:00Z"),
        }
        for key in ("percent", "tokyo"):
            [row] = log.executions(key)
            [skip] = log.skips(key)
            assert (row.host, row.outcome, skip.host, skip.reason) == (
                "alpha",
                "succeeded",
                "beta",
                "done",
            )


def settings(unit: Path, name: str) -> list[str]:
    """Return the values of a setting of a unit."""
    lines = unit.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def timer_zone(timer: Path) -> str:
    """Return the time zone of a timer, empty for the host's."""
    [calendar] = settings(timer, "OnCalendar")
    return calendar.partition(":00 ")[2]


def command_of(service: Path) -> list[str]:
    """Return what systemd would start, with its environment."""
    variables = [word for text in settings(service, "Environment") for word in shlex.split(text)]
    [command] = settings(service, "ExecStart")
    return [
        "/usr/bin/env",
        "-i",
        "HOME=/root",
        "PATH=/usr/bin:/bin",
        *variables,
        *shlex.split(command),
    ]
