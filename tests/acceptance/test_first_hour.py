"""The first hour of a new user, as pasted from the pages: a database server and two hosts, each a Debian of its own.

The long form (ONCECRON_TEST_SYSTEMS). README's few lines are run without a terminal, those of the page of PostgreSQL at
one, those of Redis without. Each ends with a wrapped crontab that the cron of both hosts has fired.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from servers import Network, eventually
from servers.debian_system import SOURCES, DebianSystem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("ONCECRON_TEST_SYSTEMS"), reason="the long form sets ONCECRON_TEST_SYSTEMS"
    ),
]  # fmt: skip
SYSTEMCTL = """\
#!/bin/sh
# A container has no systemd.
case $2 in postgresql) exec pg_ctlcluster 15 main restart ;; *) exec service "$2" "$1" ;; esac
"""
SCRIPT = (SOURCES / "docs" / "stores" / "postgresql.sh").read_text(encoding="utf-8")
LINE = r'* * * * * date +\%F_\%R >>"$HOME/ran"'


def blocks(page: str) -> list[str]:
    """Return the commands that a page shows; of a console without the output, on any host."""
    text = (SOURCES / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        text if kind == "sh" else "".join(f"{line}\n" for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE))
        for kind, text in found
    ]  # fmt: skip


def pasted(page: str, words: str) -> str:
    """Return the first commands of a page that contain some words, for the network of the test."""
    text = next(block for block in blocks(page) if words in block)
    return (
        text.replace("192.0.2.0/24", "10.203.0.0/24")
        .replace("web2$", "")
        .replace("redis.example", "db.example")
    )


class Site:
    """A database server and two hosts."""

    def __init__(self, stack: ExitStack) -> None:
        network = Network()
        stack.callback(network.remove)
        releases = {"db": "bookworm", "web1": "bookworm", "web2": "trixie"}
        systems = {name: DebianSystem(release, name) for name, release in releases.items()}
        self.db, *self.hosts = systems.values()
        for system in systems.values():
            stack.callback(system.remove)
        self.db.install("sudo", "postgresql", "redis-server", "procps")
        self.db.do(
            f"cat >/usr/local/bin/systemctl <<'END'\n{SYSTEMCTL}END\nchmod 755 /usr/local/bin/systemctl"
        )
        for host in self.hosts:
            host.install("cron", "ca-certificates")
            host.add_user("ann")
            host.clone("/root/oncecron")
            host.do(
                pasted("docs/install.md", "/opt/oncecron/bin/pip install -q ."),
                directory="/root/oncecron",
            )
        install_as_a_user(self.hosts[1])
        places = [network.host(name) for name in systems]
        for system, place in zip(systems.values(), places, strict=True):
            system.do(f"echo '{places[0].address} db.example.com' >>/etc/hosts")
            system.join(place)
        self.db.do("pg_ctlcluster 15 main start; service redis-server start")
        for host in self.hosts:
            host.do("service cron start")

    def wrap_a_crontab(self) -> None:
        """Do as README does, on both; wait until one has run it and the other was skipped; give back what was there."""
        for host in self.hosts:
            host.do(f"crontab - <<'END'\n{LINE}\nEND", "ann")
            assert host.sh("oncecron crontab wrap --install --check", "ann").returncode == 2
            assert host.do("crontab -l", "ann") == f"{LINE}\n"
            host.do("oncecron crontab wrap --tz Europe/Berlin --install", "ann")
        wrapped = (
            self.hosts[0].do("date +%F_%R", "ann").strip()
        )  # an earlier minute may have run on both
        for kind in ("", "--skips"):
            eventually(lambda kind=kind: '"ann.date-' in self.history(kind), 150)
        for host in self.hosts:
            host.do("oncecron crontab unwrap --install", "ann")
            assert host.do("crontab -l", "ann") == f"{LINE}\n"
            host.do("crontab -r", "ann")
        ran = [host.sh("cat ran 2>/dev/null", "ann").stdout.splitlines() for host in self.hosts]
        minutes = [minute for lines in ran for minute in lines if minute > wrapped]
        assert minutes
        assert len(set(minutes)) == len(minutes)

    def history(self, kind: str) -> str:
        return self.hosts[0].do(f"oncecron history --json {kind}", "ann")


def install_as_a_user(host: DebianSystem) -> None:
    """Do what the page says for who is not root, and remove it."""
    host.clone("/home/ann/oncecron", "ann")
    host.do(
        pasted("docs/install.md", "~/.local/share/oncecron/bin/pip"), "ann", "/home/ann/oncecron"
    )
    assert host.do("~/.local/bin/oncecron --version", "ann").startswith("oncecron ")
    host.do("rm -rf ~/.local ~/oncecron", "ann")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Give the machines, with oncecron installed."""
    with ExitStack() as stack:
        yield Site(stack)


def at_terminal(system: DebianSystem, text: str, user: str = "root", answers: str = "") -> str:
    """Run commands at a terminal, where somebody types answers."""
    system.do(f"cat >pasted <<'PASTED'\nset -e\n{text}\nPASTED", user)
    done = subprocess.run(
        [*system.prefix, *system.command("script -qec 'sh ./pasted' /dev/null", user)],
        input=answers, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def copy_passwords(site: Site) -> None:
    """Copy each file of a password where the pages say: the owner's to one host, that of `cron` to all."""
    for host in site.hosts:
        for role in ("cron", *["oncecron_owner"] * (host is site.hosts[0])):
            password = site.db.do(f"cat {role}.pgpass")
            host.do(f"umask 077; cat >{role}.pgpass <<'END'\n{password}END", "ann")


def test_postgresql_in_a_few_lines(site: Site) -> None:
    """README, without a terminal."""
    site.db.do(f"cat >postgresql.sh <<'END'\n{SCRIPT}END")
    site.db.do(pasted("README.md", "sh postgresql.sh"))
    copy_passwords(site)
    site.hosts[0].do(pasted("README.md", "oncecron init"), "ann")
    said = [host.do(pasted("README.md", "store = "), "ann") for host in site.hosts]
    assert said == ["hello\n", ""]
    site.wrap_a_crontab()
    site.db.do(
        "sudo -u postgres psql -q -c 'drop database oncecron with (force)' -c 'drop role cron, oncecron_owner'\n"
        "rm *.pgpass"
    )


def test_postgresql_at_a_terminal(site: Site) -> None:
    """The page of PostgreSQL, where `init` asks for the roles that the page names; the script is run twice."""
    page = "docs/stores/postgresql.md"
    call = pasted("README.md", "sh postgresql.sh")
    assert [at_terminal(site.db, call).count("exists,") for _ in range(2)] == [0, 3]
    assert site.db.do("grep -c oncecron_owner,cron /etc/postgresql/*/main/pg_hba.conf") == "1\n"
    for host in site.hosts:
        host.do("rm -f .pgpass *.pgpass .config/oncecron/config.toml", "ann")
    copy_passwords(site)
    first, second = site.hosts
    init = pasted(page, "oncecron init").replace(" --run-role cron --read-role cron", "")
    assert "gave rights to cron" in at_terminal(first, init, "ann", "cron\n\n")
    last = pasted(page, "store = ")
    assert "hello\n" in at_terminal(first, last, "ann").replace("\r", "")
    assert "skipped: hello tick 1 has already run on web1" in at_terminal(second, last, "ann")
    site.wrap_a_crontab()


def test_redis_as_debian_has_it(site: Site) -> None:
    """The page of Redis, without a terminal."""
    page = "docs/stores/redis.md"
    text = (SOURCES / page).read_text(encoding="utf-8")
    [settings] = re.findall(r"^```text\n([^`]*`default`.*?)^```$", text, re.MULTILINE | re.DOTALL)
    site.db.do(
        f"cat >>/etc/redis/redis.conf <<'END'\n{settings}END\nservice redis-server restart; sleep 2"
    )
    site.db.do(f"export REDISCLI_AUTH=the-admin-password\n{pasted(page, 'ACL SETUSER')}")
    site.db.do(f"export REDISCLI_AUTH=the-admin-password\n{pasted(page, 'CONFIG REWRITE')}")
    site.db.do("service redis-server restart; sleep 2")
    for host in site.hosts:
        host.do("rm -f .config/oncecron/config.toml", "ann")
        host.do(pasted(page, "/etc/oncecron.store"))
        host.do("echo 'store_file = \"/etc/oncecron.store\"' >/etc/oncecron.toml")
        host.do("chgrp ann /etc/oncecron.store; chmod 640 /etc/oncecron.store")
    said = [
        host.do(pasted(page, "oncecron run --key hello").partition("\n")[0], "ann")
        for host in site.hosts
    ]
    assert said == ["hello\n", ""]
    site.wrap_a_crontab()
