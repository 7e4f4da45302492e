"""A crontab whose lines name a user is recognised wherever it lies; one that does not is not mistaken for it."""

from pathlib import Path

import pytest
from crontabs import REALISTIC

from oncecron_crontab.scanner import scan
from oncecron_crontab.system_files import named_user

USERS = {"root", "www-data", "backup", "mail", "sync", "munin", "Debian-exim", "app", "first.last"}
PROGRAMS = {"backup", "mail", "sync", "perl", "php", "date", "run-parts", "/usr/bin/php", "/opt/x"}


def found(text: str, users: set[str] | None = None) -> tuple[int, str] | None:
    """Return the line and the word that seems to be a user; by default the users are those of another host."""
    known = users or set()
    return named_user(scan(text.encode()), known.__contains__, lambda word, _: word in PROGRAMS)


@pytest.mark.parametrize(
    "line",
    [
        "*/5 * * * *     munin if [ -x /usr/bin/munin-cron ]; then /usr/bin/munin-cron; fi",
        "2 * * * *  logcheck    if [ -x /usr/sbin/logcheck ]; then nice -n10 /usr/sbin/logcheck; fi",
        "5-55/10 * * * * root command -v debian-sa1 > /dev/null && debian-sa1 1 1",
        "59 23 * * * root (date; /opt/x)",
        "09,39 * * * * root [ -x /usr/lib/php/sessionclean ] && /usr/lib/php/sessionclean",
        "30 3 * * 0 root test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/x86_64-linux-gnu/e2fsprogs/e2scrub_all",
        "*/10 * * * * www-data [ -x /usr/share/awstats/tools/update.sh ] && /usr/share/awstats/tools/update.sh",
        "0 3 * * * Debian-exim /usr/sbin/exim_tidydb -t 30d /var/spool/exim4 retry",
        "@daily debian-spamd test -x /etc/cron.daily/spamassassin",
        "@hourly _rpc LANG=C /opt/unknown",
        "@weekly amavis . /etc/profile",
        "@weekly postgres php /opt/clean.php",
        "0 4 * * * app /srv/app/unknown",
    ],
)
def test_a_line_of_cron_d_is_recognised(line: str) -> None:
    """Whether or not the user exists here."""
    name = scan(line.encode(), system=True).lines[0].user.decode()  # type: ignore[union-attr]
    assert found(f"A=b\n{line}\n") == (2, name)
    assert found(f"A=b\n{line}\n", USERS) == (2, name)


@pytest.mark.parametrize(
    "line",
    [
        "@daily /opt/x root y", "@daily cd /srv && ./bill", "@daily mail root", "@daily sync",
        "@daily sync /mnt", "@daily backup --all", "@daily root -v", "@daily test -e /x && y",
        "@daily bill.sh /var/www", "@daily date +\\%F", "@daily mytool all", "@daily ~/bin/x /y",
        "@daily A=b /opt/x", "@daily root", "@daily echo php",
    ],
)  # fmt: skip
def test_a_line_of_a_user_is_not_mistaken(line: str) -> None:
    """Nor is one whose command bears the name of a user."""
    assert found(f"{line}\n", USERS) is None


def test_a_user_that_a_program_follows() -> None:
    """Though a program has the user's name; a user of this host needs no program after it."""
    assert found("@daily backup perl /opt/x\n", USERS) == (1, "backup")
    assert found("@daily first.last mytool all\n", USERS) == (1, "first.last")
    assert found("@daily first.last mytool all\n") is None


def test_one_line_that_has_no_user_decides() -> None:
    """Cron would refuse the whole file as one with users."""
    assert found("@daily munin /opt/x\n@daily /opt/y z\n", USERS) is None
    assert found("@daily mytool all\n@daily munin /opt/x\n", USERS) == (2, "munin")


def test_the_path_of_the_crontab_is_searched() -> None:
    """There the programs of a user's crontab are."""
    seen = []

    def is_program(word: str, path: str) -> bool:
        seen.append((word, path))
        return path == "/home/ann/bin"

    crontab = scan(b"PATH=/home/ann/bin\n@daily mytool /data\n")
    assert named_user(crontab, lambda _: False, is_program) is None
    assert ("mytool", "/home/ann/bin") in seen


@pytest.mark.parametrize("path", REALISTIC, ids=lambda path: path.name)
def test_realistic_crontabs_are_told_apart(path: Path) -> None:
    """With the users that every Debian has."""
    crontab = scan(path.read_bytes())
    known = {"root", "www-data", "backup", "mail"}
    word = named_user(crontab, known.__contains__, lambda word, _: word in PROGRAMS)
    assert bool(word) == path.name.startswith("system-")
