"""The tarball with its own Python, on bare Debian 11, which has none: the long form, ONCECRON_TEST_ROOTS=all."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_of import PostgresLog
from servers import Database, eventually
from servers.process import public_directory
from servers.require import require_root
from servers.roots import Root

import oncecron

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        os.environ.get("ONCECRON_TEST_ROOTS") != "all",
        reason="the long form: ONCECRON_TEST_ROOTS=all",
    ),
]
PLACES = ("/opt/oncecron", "/srv/with blanks")
"""Where the two hosts have it."""


@pytest.fixture(scope="session")
def tarball() -> Path:
    """Build it, with the Python that was built before, if one was."""
    require_root("a Python that is built in a Debian of its own")
    directory = public_directory("standalone")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000", "ONCECRON_BUILD_RELEASE": "yes"}
    for tool in ("packages", "standalone"):
        command = [sys.executable, ROOT / "tools" / f"{tool}.py", directory]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() in (ROOT / "docs" / "install.md").read_text()
    subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=directory, check=True)
    listed = json.loads(next(directory.glob("*-linux-*.spdx.json")).read_text())
    ours = {"oncecron", "oncecron-drill", "oncecron-web"}
    assert {"python", "openssl", "psycopg-binary", *ours} <= {
        each["name"] for each in listed["packages"]
    }
    [found] = directory.glob("*.tar.xz")
    return found


@pytest.fixture
def hosts(public_path: Path) -> Iterator[tuple[Root, Root]]:
    """Start two hosts with a cron and no Python."""
    both = Root("alpha", "11", public_path), Root("beta", "11", public_path)
    for host in both:
        host("apt-get", "install", "-y", "cron", "xz-utils")
        assert host("sh", "-c", "command -v python3 || :") == ""
    yield both
    for host in both:
        host.remove()


def unpack(host: Root, tarball: Path, to: str) -> None:
    """Unpack it, as the page of the installation says."""
    host("mkdir", "-p", to)
    host("tar", "-xf", tarball, "-C", to, "--strip-components=1")


def put_on_the_path(host: Root, place: str) -> None:
    host("ln", "-sfn", f"{place}/bin/oncecron", "/usr/bin/oncecron")
    host("ln", "-sfn", f"{place}/bin/oncecron-shell", "/usr/bin/oncecron-shell")


def test_a_tarball_from_its_unpacking_to_its_removal(
    hosts: tuple[Root, Root], tarball: Path, ready: Database, public_path: Path
) -> None:
    """In two places, under cron; upgraded while the job runs; nothing of it reaches the job, and nothing stays."""
    log, kept = PostgresLog(ready), public_path / tarball.name
    kept.write_bytes(tarball.read_bytes())
    before = hosts[0].changes()
    for host, place in zip(hosts, PLACES, strict=True):
        unpack(host, kept, place)
        put_on_the_path(host, place)
        store = f'store = "{ready.url()}"\n[notify.channel.file]\ncommand = "cat >>/root/told"\n'
        host("sh", "-c", f"umask 077; cat >/etc/oncecron.toml <<'E'\n{store}E")
        assert host("oncecron", "--version") == f"oncecron {oncecron.__version__}\n"
        ran = ("oncecron", "run", "--store", "local", "--key", "env", "--no-tick", "--", "env")
        environment = host("env", "-i", "PATH=/usr/bin:/bin", "ONLY=this", *ran).splitlines()
        assert {line for line in environment if not line.startswith(("ONCECRON_", "TRACEPARENT="))} == {
            "PATH=/usr/bin:/bin", "ONLY=this",
        }  # fmt: skip

    started, enough = public_path / "started", public_path / "enough"
    job = f"uname -n >>{started}; until [ -e {enough} ]; do sleep 0.1; done; exit 3"
    for host in hosts:
        host(
            "sh",
            "-c",
            f"echo \"* * * * * oncecron run --key by-cron -- sh -c '{job}'\" | crontab -",
        )
        host.start("cron", "-f")
    eventually(lambda: started.exists() and log.skips("by-cron") != [], 150)
    for host in hosts:
        host("crontab", "-r")
        unpack(host, kept, "/opt/newer")
        put_on_the_path(host, "/opt/newer")
        host("oncecron", "run", "--key", "meanwhile", "--no-tick", "--", "true")
    enough.touch()
    eventually(lambda: log.executions("by-cron")[0].outcome != "running", 30)
    [row] = log.executions("by-cron")
    assert (row.outcome, row.exit_code, row.note) == ("failed", 3, None)
    assert {skip.reason for skip in log.skips("by-cron")} == {"held"}

    for host, place in zip(hosts, PLACES, strict=True):
        host("rm", "-r", place)
        found = json.loads(host("sh", "-c", "oncecron doctor --json || :"))
        assert [each for each in found if each["state"] != "ok"] == []
        assert "by-cron" in host("oncecron", "metrics")
        assert "by-cron" in host("oncecron", "report", "--html", "-")
        assert "oncecron drill" in host("oncecron", "drill", "--help")
        unwritable = host("sh", "-c", "umask 022; find /opt/newer -name '*.py' | wc -l")
        compiled = host("sh", "-c", "find /opt/newer -name '*.pyc' | wc -l")
        assert unwritable == compiled

    [host, _] = hosts
    host("oncecron", "notify", "--now")  # which starts itself
    assert "by-cron" in host("cat", "/root/told")
    host("rm", "-r", "/opt/newer", "/usr/bin/oncecron", "/usr/bin/oncecron-shell")
    left = host.changes() - before
    named = ("/etc/oncecron.toml", "/var/lib/oncecron", "/root/told")
    assert [path for path in left if not path.startswith(named)] == []
