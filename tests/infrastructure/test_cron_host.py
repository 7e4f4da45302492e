"""A real cron daemon fires on its own host, by its own clock, and mails what a job prints."""

import shlex
from collections.abc import Callable

import pytest
from servers import CronHost, Journal, Network, eventually, job
from servers.cron import just_before_the_minute

NewCronHost = Callable[..., CronHost]

A_MINUTE_MISSED = 80
"""Seconds until a daemon has fired that a busy machine started only after the minute."""


def line(journal: Journal, *options: object) -> str:
    """Return a crontab line that starts the job each minute."""
    return f"* * * * * {shlex.join(job(journal, *options))}\n"


@pytest.mark.slow
def test_real_firing_by_the_real_clock(new_cron_host: NewCronHost, journal: Journal) -> None:
    """Two hosts fire, each with its own name, and each mails the output."""
    hosts = [new_cron_host(name, line(journal, "--ready")) for name in ("alpha", "beta")]
    eventually(lambda: {start.host for start in journal.starts()} == {"alpha", "beta"}, 75)
    for host in hosts:
        mail = host.wait_mail(lambda text: "ready" in text, deadline=10)
        assert f"Cron <root@{host.name}>" in mail


def test_skewed_host_fires_by_its_own_clock(new_cron_host: NewCronHost, journal: Journal) -> None:
    """A host whose clock stands just before the minute fires in a few seconds."""
    skew = just_before_the_minute()
    crontab = line(journal) + "* * * * * echo at $(date +%s)\n".replace("%", "\\%")
    host = new_cron_host("gamma", crontab, skew=skew)
    [start] = journal.wait_for("start", deadline=A_MINUTE_MISSED)
    assert start.host == "gamma"
    mail = host.wait_mail(lambda text: "\nat " in text, deadline=10)
    assert int(mail.rpartition("\nat ")[2]) % 60 < 10


def test_nothing_of_the_real_machine_is_seen(new_cron_host: NewCronHost) -> None:
    """The host has this one crontab and no other, and the machine does not have it."""
    from pathlib import Path

    crontab = "59 23 31 12 * true planted\n"
    host = new_cron_host("delta", crontab)
    assert host.run(["crontab", "-l"]) == crontab
    assert host.run(["/bin/sh", "-c", "cat /etc/crontab; ls /etc/cron.d"]) == ""
    real = Path("/var/spool/cron/crontabs/root")
    assert not real.exists() or "planted" not in real.read_text()
    assert not Path("/run/crond.pid").exists() or host.run(["cat", "/run/crond.pid"]).strip() != (
        Path("/run/crond.pid").read_text().strip()
    )


@pytest.mark.slow
def test_daemon_on_a_host_of_a_network(
    network: Network, new_cron_host: NewCronHost, journal: Journal
) -> None:
    """Cron can run on a host that can be cut off; its jobs are there."""
    alpha = network.host("alpha")
    new_cron_host("", line(journal, "--sleep", 60), host=alpha, skew=just_before_the_minute())
    [start] = journal.wait_for("start", deadline=A_MINUTE_MISSED)
    assert start.host == "alpha"
    assert start.pid in [process.pid for process in alpha.processes()]
