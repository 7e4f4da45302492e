"""What a guard would break, and what every host must run: named by one judgement, and nothing else is."""

from pathlib import Path

import pytest
from crontabs import REALISTIC

from oncecron_crontab.per_host import judgements
from oncecron_crontab.percent_sign import shell_command
from oncecron_crontab.scanner import scan

EACH_HOST = {
    "run-parts /etc/cron.daily": "run-parts", "test -x /usr/sbin/anacron || x": "anacron",
    "/usr/bin/oncecron flush": "oncecron", "/usr/sbin/logrotate /etc/logrotate.conf": "logrotate",
    "nice -n 19 /usr/sbin/logrotate -f /etc/l": "logrotate",
    "sudo -u root apt-get -qq update": "apt-get", "bash -lc 'cd / && apt-get update'": "apt-get",
    "su - root -c \"sh -c 'dnf makecache'\"": "dnf",
    "flock -n /run/x timeout 60 certbot -q renew": "certbot",
    "certbot renew && systemctl reload nginx": "certbot",
    '"/root/.acme.sh"/acme.sh --cron --home "/root/.acme.sh" > /dev/null': "acme.sh",
    "/sbin/shutdown -r now": "shutdown", "/sbin/reboot": "reboot",
    "DEBIAN_FRONTEND=noninteractive apt-get -y upgrade": "apt-get",
    "/etc/init.d/apache2 restart": "apache2",
    "pgrep worker || systemctl restart worker": "systemctl",
    "[ -x /usr/lib/php/sessionclean ] && /usr/lib/php/sessionclean": "sessionclean",
    "/usr/lib/sysstat/sa1 1 1": "sa1",
    "command -v debian-sa1 > /dev/null && debian-sa1 1 1": "debian-sa1",
    "if [ -x /usr/share/mdadm/checkarray ]; then /usr/share/mdadm/checkarray --cron; fi": "checkarray",
    "/usr/sbin/ntpdate -s pool.ntp.org": "ntpdate", "find /tmp -mtime +7 -delete": "find",
    "find /var/log -name '*.gz' -mtime +30 -exec rm {} \\;": "find",
    "cd /tmp && rm -rf /tmp/cache/*": "rm", "echo cleaning; find /var/tmp -type f -delete": "find",
    "sync; echo 3 > /proc/sys/vm/drop_caches": "echo", "> /var/log/app.log": "`>`",
    "docker system prune -f": "docker prune",
    "cd /srv/app && docker compose pull && docker compose up -d": "docker pull",
    "cd /srv/app && git pull -q": "git pull", "/opt/puppetlabs/bin/puppet agent --onetime": "puppet",
    "crontab -l > /root/crontab.bak": "crontab",
    "/usr/local/cpanel/scripts/upcp --cron > /dev/null": "upcp",
    "test -x /usr/local/cpanel/bin/tail-check && /usr/local/cpanel/bin/tail-check": "tail-check",
    "test -d /run/systemd/system || /usr/share/roundcube/bin/gc.sh": "it",
    '[ -d "/run/systemd/system" ] || job': "it", "if [ ! -d /run/systemd/system ]; then job; fi": "it",
    "kill -HUP $(cat /run/x.pid)": "kill",
}  # fmt: skip
"""Commands that every host must run, and the program that shows it."""
PINNED = {
    '[ "$(hostname)" = web1 ] && job': "$(hostname)", "[ `hostname -s` = web1 ] && job": "`hostname -s`",
    'test "$(hostname -f)" == web1.example.com && job': "$(hostname -f)",
    '[ "$HOSTNAME" = web1 ] && job': "$HOSTNAME", "[ ${HOSTNAME%%.*} = web1 ] && job": "${HOSTNAME%%.*}",
    "[ $(uname -n) = web1 ] && job": "$(uname -n)",
    '[ "$(cat /etc/hostname)" = web1 ] || exit 0; job': "$(cat /etc/hostname)",
    "[[ $(hostname) == web1* ]] && job": "$(hostname)",
    'if [ "$(hostname)" = web1 ]; then job; fi': "$(hostname)",
    "if test $(hostname) = web1; then job; else :; fi": "$(hostname)",
    "case $(hostname) in web1) job;; esac": "$(hostname)",
    'case "$(/bin/hostname -s)" in web*) job;; esac': "$(/bin/hostname -s)",
    "hostname | grep -q web1 && job": "hostname",
    "if hostname -f | grep -q ^web1; then job; fi": "hostname -f",
    "uname -n | grep -q web1 && job": "uname -n", "grep -q web1 /etc/hostname && job": "/etc/hostname",
    "ip addr show | grep -q 10.0.0.100 && job": "ip addr show",
    "/sbin/ifconfig eth0 | grep -q 10.0.0.100 || exit 0; job": "/sbin/ifconfig eth0",
    'H=$(hostname); [ "$H" = web1 ] && job': "$H",
    "bash -c '[ $(hostname) = web1 ] && job'": "$(hostname)",
    "[ \"$(psql -Atc 'select pg_is_in_recovery()')\" = f ] && job": "pg_is_in_recovery",
}  # fmt: skip
"""Commands that only one host carries out, and what they test."""
BACKGROUND = {
    "job &": "`&`", "nohup job >/dev/null 2>&1 &": "`&`", "(job >x &)": "`&`", "cd /srv && { job & }": "`&`",
    "a & b": "`&`", "su - app -c 'job &'": "`&`", "screen -dmS x job": "screen", "screen -d -m job": "screen",
    "tmux new-session -d -s x job": "tmux",
    "/usr/bin/tmux send-keys -t x job Enter": "tmux",
    "setsid job": "setsid", "nice setsid -f job": "setsid",
    "start-stop-daemon --start --background --exec /srv/bin/job": "start-stop-daemon",
    "systemd-run --unit x job": "systemd-run",
    "echo job | at now": "at",
    "docker run -d --rm image job": "docker",
}  # fmt: skip
"""Commands that end before their job does, and what starts it."""
NONE = [
    "/srv/bin/bill", "echo reboot", "mail -s 'apt-get update is due' ops", "echo service >> /srv/log",
    "/srv/bin/bill --service nginx --apt", "[ -x /usr/bin/certbot-report ] && /usr/bin/certbot-report",
    "command -v apt-get", "systemctl is-active -q app && /srv/bin/job",
    "tar czf /tmp/x.tgz /srv && scp /tmp/x.tgz backup: && rm /tmp/x.tgz",
    "find /srv/uploads -mtime +30 -delete", "find /tmp -name report", "echo done >> /var/log/app.log",
    "docker exec app sh -c 'job up'", "docker run --rm image job", "docker compose -f x.yml run --rm app job",
    "git push origin main", "job 2>&1 | logger", "job &>/dev/null", "job >&2", "a & b & wait", "nohup job",
    "echo 'a & b'", "setsid --wait job", "screen -D -m job", "tmux kill-session -t x", "systemd-run --wait job",
    "systemd-run --scope -q job", "start-stop-daemon --start --exec /srv/bin/job",
    'pg_dump app > "/backup/$(hostname)-$(date +%F).dump"',
    "/srv/bin/report --host $(hostname) | mail -s $(hostname) ops", "hostname | mail -s up ops",
    "ip addr | grep inet >> /srv/addresses", "[ -f /srv/hostname ] && job", "[ $(date +%u) = 1 ] && job",
    "case $(date +%a) in Mon) job;; esac", "echo 'unclosed", "",
]  # fmt: skip
"""Commands that a guard does not break."""


def found(command: str) -> list[tuple[str, str]]:
    """Return the kinds of judgements of a command, and what shows them."""
    return [(each.kind, each.what) for each in judgements(command.encode())]


@pytest.mark.parametrize(("command", "what"), EACH_HOST.items())
def test_the_work_of_each_host(command: str, what: str) -> None:
    """Seen through launchers, shells and tests; each with a reason."""
    assert found(command) == [("each-host", what)]
    assert all(each.why for each in judgements(command.encode()))


@pytest.mark.parametrize(("command", "what"), PINNED.items())
def test_a_line_that_is_bound_to_a_host(command: str, what: str) -> None:
    """By its name, its address or its role."""
    assert found(command) == [("pinned", what if what.startswith("`") else f"`{what}`")]


@pytest.mark.parametrize(("command", "what"), BACKGROUND.items())
def test_a_job_in_the_background(command: str, what: str) -> None:
    """The guard would end at once."""
    assert found(command) == [("background", what)]


@pytest.mark.parametrize("command", NONE)
def test_what_a_guard_does_not_break(command: str) -> None:
    """The same words elsewhere say nothing."""
    assert found(command) == []


def test_each_kind_is_found_beside_the_others() -> None:
    """A person may overrule one of them."""
    command = '[ "$(hostname)" = web1 ] && apt-get update &'
    assert [kind for kind, _ in found(command)] == ["each-host", "background", "pinned"]


def test_the_judgement_of_real_crontabs() -> None:
    """These lines are left, of all lines of all files; most of them are of packages."""
    left = {}
    for path in [*REALISTIC, Path(REALISTIC[0].parents[1] / "debian/php-common/php")]:
        system = path.name.startswith("system-") or "debian" in path.parts
        for entry in scan(path.read_bytes(), system=system).entries():
            kinds = [kind for kind, _ in found(shell_command(entry.command).decode("latin-1"))]
            if kinds:
                left[path.name, entry.number] = kinds
    assert left == {
        ("certbot", 1): ["each-host"], ("curl-monitor", 3): ["each-host"], ("docker", 2): ["each-host"],
        ("rabbit-hole", 3): ["background"], ("system-anacron", 3): ["each-host"],
        **{("system-crontab", number): ["each-host"] for number in (10, 11, 12, 13)},
        ("system-mdadm", 1): ["each-host"], ("system-php", 2): ["each-host"],
        ("system-sysstat", 6): ["each-host"], ("system-sysstat", 9): ["each-host"], ("php", 14): ["each-host"],
    }  # fmt: skip
