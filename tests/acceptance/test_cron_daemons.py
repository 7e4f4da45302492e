"""Two real cron daemons, each on a host with a name of its own, share one crontab, a PostgreSQL and a Redis.

They run for ONCECRON_TEST_MINUTES full minutes (2 when it is not set), by the real clock; the tests look at what
that has left: the jobs' own journals, the log, and the mails that cron handed to sendmail.
"""

import os
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from log_of import PostgresLog, RedisLog, Store
from servers import (
    CronHost,
    Journal,
    PostgresServer,
    RedisServer,
    assert_exclusive,
    eventually,
    job,
)
from servers.oncecron import CONSOLE_SCRIPT, installed
from servers.process import public_directory, remove_directory
from true_time import TrueServer, TrueTime, at

from oncecron_notify.notify_table import NOTIFY_KEY

MINUTES = int(os.environ.get("ONCECRON_TEST_MINUTES", "2"))
KEYS = ("by-minute", "by-schedule", "fails", "on-redis")
GUARDED = ("wrapped", "shell")
"""Of the lines that `crontab wrap` or SHELL= has guarded: what their keys begin with."""
JUMP = "2027-03-28T01:00Z"  # when clocks in Berlin go from 02:00 to 03:00
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES + 300)]

CONFIG = """\
store = "{url}"
connect_timeout = "20s"

[job.by-schedule]
schedule = "* * * * *"

[notify.channel.file]
command = "cat >>{told}"
"""
# /run is a host's own, where the configuration's file is shared as if it had been distributed.
CRONTAB = """\
XDG_STATE_HOME=/run
ONCECRON_CONFIG={config}
* * * * * {oncecron} run --key by-minute -- {quiet}
* * * * * {oncecron} run --key by-schedule --schedule '* * * * *' -- {quiet}
* * * * * {oncecron} run --key fails -- {failing}
* * * * * {oncecron} run --store {redis} --key on-redis -- {quiet}
* * * * * {oncecron} notify
# oncecron: key=wrapped
* * * * * cd / && {quiet}
# oncecron: key=speaks.wrapped
* * * * * cat && echo "it's wrapped"%first%second \\% line
SHELL={oncecron}-shell
ONCECRON_KEY_PREFIX=shell.
* * * * * cd / && {quiet}
ONCECRON_KEY_PREFIX=speaks.shell.
* * * * * cat && echo "it's a shell"%first%second \\% line
* * * * * ONCECRON=off echo on every host
"""
SPOKEN = "first\nsecond % line\n"

NIGHT_OF_THE_JUMP = """\
XDG_STATE_HOME=/run
ONCECRON_STORE={url}
*/30 * * * * {oncecron} run --key wildcard --schedule '*/30 * * * *' --tz Europe/Berlin -- {quiet}
15,45 2 * * * {oncecron} run --key twice-by-minute -- {quiet}
30 2 * * * {oncecron} run --key by-schedule --schedule '30 2 * * *' --tz Europe/Berlin -- {quiet}
"""


class Evidence(NamedTuple):
    """What the minutes have left."""

    journal: Journal
    logs: dict[str, Store]
    """By key."""
    ticks: list[str]
    mails: dict[str, list[str]]
    """By host."""
    told: str
    """What `oncecron notify` has sent."""


@pytest.fixture(scope="module")
def evidence(postgres: PostgresServer) -> Iterator[Evidence]:
    """Run two cron daemons for the given number of minutes."""
    with ExitStack() as stack:
        path = public_directory("cron-daemons")
        stack.callback(remove_directory, path)
        database = installed(stack.enter_context(postgres.create_database().until_dropped()))
        server = RedisServer(aof=True)
        stack.callback(server.remove)
        server.start()
        journal = Journal(path / "journal")
        stack.callback(journal.kill_jobs)
        crontab = crontab_for(path, database.url(), server.url(), journal)
        hosts = [CronHost(name, crontab) for name in ("alpha", "beta")]
        for host in hosts:
            stack.callback(host.remove)
        left = 60 - time.time() % 60
        time.sleep(left + 0.1 if left < 15 else 0)  # both must be there at the first full minute
        first = time.time() // 60 * 60 + 60
        for host in hosts:
            host.start()
        journal.wait_for("end", MINUTES * len(KEYS + GUARDED), 60 * MINUTES + 60)
        logs: dict[str, Store] = dict.fromkeys(KEYS, PostgresLog(database))
        logs["on-redis"] = RedisLog(server)
        for key in KEYS:
            # A cron that is stopped too early has not fired every line of the last minute.
            eventually(lambda key=key: fired(logs[key], key) >= 2 * MINUTES, 20)
        eventually(lambda: fired(logs["fails"], NOTIFY_KEY) >= 2 * MINUTES, 20)
        said = 4 * MINUTES  # two lines once, one on both hosts
        eventually(lambda: sum(len(spoken(host.mails(), "")) for host in hosts) >= said, 30)
        for host in hosts:
            host.stop()
            eventually(lambda host=host: not host.processes(), 30)
        ticks = [tick_text(first + 60 * number) for number in range(MINUTES)]
        mails = {host.name: host.mails() for host in hosts}
        yield Evidence(journal, logs, ticks, mails, (path / "told").read_text())


def crontab_for(path: Path, url: str, redis: str, journal: Journal) -> str:
    """Return the crontab of both hosts, having written the configuration that it names."""
    config = path / "oncecron.toml"
    config.write_text(CONFIG.format(url=url, told=path / "told"))
    config.chmod(0o600)
    quiet, failing = (
        shlex.join(job(journal, "--beats", "--sleep", 0.1, *options))
        for options in ((), ("--ready", "--exit", 3))
    )
    crontab = CRONTAB.format(
        config=config, oncecron=CONSOLE_SCRIPT, quiet=quiet, failing=failing, redis=redis
    )
    wrap = [CONSOLE_SCRIPT, "crontab", "wrap"]
    return subprocess.run(
        wrap, input=crontab, capture_output=True, text=True, env={}, check=True
    ).stdout


def tick_text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%MZ")


@pytest.mark.parametrize("key", KEYS)
def test_each_minute_is_started_once(evidence: Evidence, key: str) -> None:
    """With --schedule and without: one start per minute, none missed, none twice, never two at a time."""
    assert_exclusive(evidence.journal)
    starts = [start for start in evidence.journal.starts() if start.key == key]
    assert [start.tick for start in starts] == evidence.ticks


@pytest.mark.parametrize("key", KEYS)
def test_the_log_has_a_row_per_minute_and_names_who_was_refused(
    evidence: Evidence, key: str
) -> None:
    """One execution per minute, on the host whose child says so, and one refusal, of the other."""
    ran = {start.tick: start.host for start in evidence.journal.starts() if start.key == key}
    outcome = "failed" if key == "fails" else "succeeded"
    assert [
        (row.tick, row.attempt, row.host, row.outcome) for row in evidence.logs[key].executions(key)
    ] == [(tick, 1, ran[tick], outcome) for tick in evidence.ticks]
    refused = evidence.logs[key].skips(key)
    other = {"alpha": "beta", "beta": "alpha"}
    assert sorted((skip.tick, skip.host, skip.holder_host) for skip in refused) == [
        (tick, other[ran[tick]], ran[tick]) for tick in evidence.ticks
    ]
    assert {skip.reason for skip in refused} <= {"done", "held"}


def test_nothing_is_mailed_but_the_output_of_what_fails(evidence: Evidence) -> None:
    """Successes and refusals are silent; a failing job's output is mailed once, by the host that ran it."""
    ran = Counter(start.host for start in evidence.journal.starts() if start.key == "fails")
    silent = {
        host: [mail for mail in mails if not spoken([mail], "")]
        for host, mails in evidence.mails.items()
    }
    assert {host: len(mails) for host, mails in silent.items() if mails} == dict(ran)
    for host, mails in silent.items():
        for mail in mails:
            headers, _, body = mail.partition("\n\n")
            assert f"Cron <root@{host}>" in headers
            assert "run --key fails" in headers
            assert body == "ready\n"


@pytest.mark.parametrize("key", GUARDED)
def test_each_minute_of_a_guarded_crontab_is_started_once(evidence: Evidence, key: str) -> None:
    """By the prefix that `crontab wrap` has put there, or by SHELL= above the untouched line."""
    starts = [start for start in evidence.journal.starts() if start.key.startswith(key)]
    assert [start.tick for start in starts] == evidence.ticks
    assert len({start.key for start in starts}) == 1


@pytest.mark.parametrize("said", ["it's wrapped", "it's a shell"])
def test_what_a_guarded_line_says_is_mailed_as_before(evidence: Evidence, said: str) -> None:
    """Once a minute, by one of the hosts: its output, its input from behind the percent sign among it."""
    mails = [mail for mails in evidence.mails.values() for mail in spoken(mails, said)]
    assert len(mails) == MINUTES
    for mail in mails:
        headers, _, body = mail.partition("\n\n")
        assert "Cron <root@" in headers
        assert body == f"{SPOKEN}{said}\n"


def test_a_failure_is_sent_once_by_one_of_the_hosts(evidence: Evidence) -> None:
    """However often it fails: both hosts start `oncecron notify` each minute, and cron has nothing to mail of it."""
    sent = [line for line in evidence.told.splitlines() if line.startswith("oncecron CRITICAL: ")]
    assert [line for line in sent if " fails failed" in line] == [
        "oncecron CRITICAL: fails failed (exit status 3)"
    ]
    passes = evidence.logs["fails"].executions(NOTIFY_KEY)
    assert [(each.tick, each.outcome) for each in passes] == [
        (tick, "succeeded") for tick in evidence.ticks
    ]


def test_a_line_that_is_off_runs_on_every_host(evidence: Evidence) -> None:
    """Below SHELL= too."""
    for mails in evidence.mails.values():
        assert len(spoken(mails, "every host")) >= MINUTES


def test_the_jump_of_the_clocks_in_spring(public_path: Path, journal: Journal) -> None:
    """Cron starts the times that were jumped over one after another: once each, as of the jump."""
    with ExitStack() as stack:
        true = TrueTime(public_path)
        server = TrueServer(true)
        stack.callback(server.remove)
        database = installed(server.start().create_database())
        quiet = shlex.join(job(journal, "--beats"))
        crontab = NIGHT_OF_THE_JUMP.format(url=database.url(), oncecron=CONSOLE_SCRIPT, quiet=quiet)
        true.set(at(JUMP) - 20)  # by then both hosts are there
        for number, name in enumerate(("alpha", "beta")):
            host = CronHost(name, crontab, skew=true.now() - time.time() + number * 0.3)
            stack.callback(host.remove)
            host.environment["TZ"] = "Europe/Berlin"
            host.start()
        journal.wait_for("end", 3, 60)
        log = PostgresLog(database)
        eventually(lambda: fired(log, "twice-by-minute") == 4, 60)
        eventually(lambda: fired(log, "by-schedule") == fired(log, "wildcard") == 2, 60)
        assert_exclusive(journal)
        keys = ("wildcard", "twice-by-minute", "by-schedule")
        assert {(start.key, start.tick) for start in journal.starts()} == {
            (key, JUMP) for key in keys
        }


def spoken(mails: list[str], what: str) -> list[str]:
    """Return the mails of the lines that say something, and this."""
    speaking = [mail for mail in mails if "cat && echo" in mail or "ONCECRON=off" in mail]
    return [mail for mail in speaking if what in mail.partition("\n\n")[2]]


def fired(log: Store, key: str) -> int:
    """Return how many firings of a key the log knows."""
    return len(log.executions(key)) + sum(skip.count for skip in log.skips(key))
