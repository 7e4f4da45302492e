"""Other cron daemons than Debian's, each on two hosts, fire crontabs that `crontab wrap --cron` has wrapped.

They run for ONCECRON_TEST_MINUTES full minutes (2 when it is not set), by the real clock, all at once.
"""

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from log_of import PostgresLog
from servers import Journal, PostgresServer, assert_exclusive, eventually, job
from servers.oncecron import CONSOLE_SCRIPT, installed
from servers.other_crons import Daemon, OtherCronHost, daemons
from servers.process import public_directory, remove_directory
from test_cron_daemons import MINUTES, tick_text

CRONS = ("cronie", "busybox")
LINES = ("line", "percent", "shell")
TOKYO = "cronie-tokyo"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60 * MINUTES + 240),
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


class Evidence(NamedTuple):
    """What the minutes have left."""

    journal: Journal
    log: PostgresLog
    ticks: list[str]


def wrapped(crontab: str, cron: str) -> str:
    """Return a crontab as `wrap` writes it for a cron, on a host in UTC; no line may be refused."""
    command = [CONSOLE_SCRIPT, "crontab", "wrap", "--cron", cron, "--tz", "UTC"]
    done = subprocess.run(
        command, input=crontab, capture_output=True, text=True, env={}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def crontab_for(cron: str, url: str, quiet: str) -> str:
    """Return the crontab of both hosts of a cron."""
    percent = "\\%" if cron == "cronie" else "%"
    text = CRONTAB.format(cron=cron, url=url, quiet=quiet, percent=percent, oncecron=CONSOLE_SCRIPT)
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
        first = (time.time() + 5) // 60 * 60 + 60
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
