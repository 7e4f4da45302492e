"""The recipes of Ansible, cloud-init, containers and Kubernetes, run on two bare Debian hosts (the long form).

The hosts share a database, and one of them runs the job. `ONCECRON_TEST_SYSTEMS` sets the long form.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import debian
import pytest
import yaml
from servers import Database, eventually
from servers.debian_system import RELEASES, SOURCES, DebianSystem
from servers.process import public_directory
from servers.roots import ROOTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get("ONCECRON_TEST_SYSTEMS"), reason="the long form sets ONCECRON_TEST_SYSTEMS"
    ),
]  # fmt: skip
RECIPES = SOURCES / "docs" / "recipes"
TOOLS = ("ansible-core==2.19.4", "kubernetes-validate==1.37.0")
PACKAGE = "oncecron_0.1.0-1_all.deb"
URL = "postgresql://cron:the-password@db.example.com/oncecron"
SSH = """\
#!/bin/sh
# Stands for ssh: the last two words are the host and the command.
for word; do host=$command; command=$word; done
set -- PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 /bin/sh -c "$command"
exec {nsenter} -- /usr/bin/env -i -C /root "$@"
"""


def blocks(page: str, language: str) -> list[str]:
    text = (RECIPES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def tools() -> Path:
    """Return the programs of the tools, installed once."""
    directory = ROOTS / "tools"

    def fetch() -> None:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        subprocess.run([directory / "bin/python", "-m", "pip", "install", "-q", *TOOLS], check=True)

    debian.once(directory, fetch)
    return directory / "bin"


@pytest.fixture(scope="module")
def package() -> Path:
    """Build oncecron as the recipes say."""
    directory = public_directory("packages")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    build = [sys.executable, SOURCES / "tools" / "packages.py", directory]
    subprocess.run(build, env=environment, check=True, capture_output=True)
    assert (directory / PACKAGE).exists()
    return directory / PACKAGE


@pytest.fixture
def hosts(request: pytest.FixtureRequest) -> Iterator[list[DebianSystem]]:
    """Give two hosts, of both releases or of one."""
    releases = getattr(request, "param", RELEASES)
    with ExitStack() as stack:
        made = [DebianSystem(release, f"web{number}") for number, release in enumerate(releases, 1)]
        for host in made:
            stack.callback(host.remove)
        yield made


def put(host: DebianSystem, path: str, data: bytes) -> None:
    command = host.command(f"mkdir -p {os.path.dirname(path)}; cat >{path}")
    subprocess.run([*host.prefix, *command], input=data, check=True)


def assert_one_runs(hosts: list[DebianSystem], database: Database, line: str) -> None:
    """Fire the command of a crontab's line on both, as its user, with no more than cron gives it; one runs it."""
    _, user, command = re.split(r"\s+", line.strip(), maxsplit=6)[4:]
    for host in hosts:
        put(host, "/usr/local/bin/bill.sh", b"#!/bin/sh\nhostname >>/tmp/billed\n")
        host.do("chmod 755 /usr/local/bin/bill.sh")
        quiet = host.do(f"setpriv --reuid {user} --regid {user} --init-groups {command}")
        assert quiet == ""
    assert database.execute("select host, outcome from oncecron.executions") == [
        ("web1", "succeeded")
    ]
    skips = database.execute("select host, reason, tick, pid, at from oncecron.skips")
    assert [skip[:2] for skip in skips] == [("web2", "done")], skips
    assert [host.sh("cat /tmp/billed").stdout for host in hosts] == [
        "web1\n", "cat: /tmp/billed: No such file or directory\n",
    ]  # fmt: skip


def test_ansible(hosts: list[DebianSystem], tools: Path, package: Path, ready: Database) -> None:
    """The second play changes nothing."""
    play = public_directory("play")
    for block in blocks("ansible", "yaml")[1:]:
        path = play / block.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.replace(URL, ready.url("runner")))
    (play / "roles/oncecron/files").mkdir()
    (play / "roles/oncecron/files" / PACKAGE).write_bytes(package.read_bytes())
    inventory = "[cron_hosts]\n"
    for host in hosts:
        host.install("python3", "cron", "sudo")  # what a host of Ansible has
        host.do("useradd --system billing")
        ssh = play / f"ssh-{host.name}"
        ssh.write_text(SSH.format(nsenter=shlex.join(host.prefix[:-1])))
        ssh.chmod(0o755)
        inventory += f"{host.name} ansible_ssh_executable={ssh} ansible_ssh_transfer_method=piped\n"
    (play / "inventory").write_text(inventory)
    for changed in ("[1-9]", "0"):
        done = subprocess.run(
            [tools / "ansible-playbook", "-i", "inventory", "site.yml"], cwd=play, check=False,
            capture_output=True, text=True, env={**os.environ, "HOME": str(play), "ANSIBLE_PIPELINING": "1"},
        )  # fmt: skip
        recap = re.findall(r"^(web\d) .* changed=(\S+) .* failed=0 ", done.stdout, re.MULTILINE)
        assert [name for name, _ in recap] == ["web1", "web2"], done.stdout + done.stderr
        assert all(re.match(changed, count) for _, count in recap), done.stdout
    assert_one_runs(hosts, ready, hosts[1].do("cat /etc/cron.d/billing").splitlines()[-1])


def test_cloud_init(hosts: list[DebianSystem], package: Path, ready: Database) -> None:
    """Its schema is checked by cloud-init itself; its files are written and its commands run."""
    [text] = blocks("cloud-init", "yaml")
    data: dict[str, Any] = yaml.safe_load(text)
    for host in hosts:
        put(host, f"/srv/{PACKAGE}", package.read_bytes())
        host.install(*data["packages"])
        for user in data["users"][1:]:
            host.do(f"useradd --system {user['name']}")
        for file in data["write_files"]:
            put(host, file["path"], file["content"].replace(URL, ready.url("runner")).encode())
            host.do(f"chmod {file.get('permissions', '0644')} {file['path']}")
        commands = "\n".join(data["runcmd"]).replace("https://files.example.com", "file:///srv")
        host.do(commands)
    assert_one_runs(hosts, ready, data["write_files"][-1]["content"])
    put(hosts[1], "/root/user-data", text.encode())
    hosts[1].install("cloud-init")
    assert "Valid" in hosts[1].do("cloud-init schema --config-file user-data")


@pytest.mark.parametrize("hosts", [("trixie", "trixie")], indirect=True)
def test_a_container(hosts: list[DebianSystem], package: Path, ready: Database) -> None:
    """The lines of the Dockerfile, and its cron for a minute."""
    [text] = blocks("docker", "dockerfile")
    [crontab] = blocks("docker", "crontab")
    two_lines = "\n".join(text.replace(" cron &&", " &&").splitlines()[1:3])
    assert two_lines in (SOURCES / "docs" / "install.md").read_text()
    files = {f"dist/{PACKAGE}": package.read_bytes(), "crontab": crontab.encode()}
    running = []
    for host in hosts:
        put(host, "/run/secrets/oncecron-store", ready.url("runner").encode())
        host.do("chmod 640 /run/secrets/oncecron-store")
        for line in text.splitlines():
            verb, _, words = line.partition(" ")
            if verb == "RUN":
                host.do(f"export DEBIAN_FRONTEND=noninteractive; {words}")
            elif verb == "COPY":
                source, target = words.split()
                name = os.path.basename(source) if target.endswith("/") else ""
                put(host, target + name, files[source])
            elif verb == "CMD":
                running.append(
                    host.popen(
                        [
                            f"/usr/sbin/{word}" if word == "cron" else word
                            for word in yaml.safe_load(words)
                        ]
                    )
                )
    eventually(lambda: ready.execute("select 1 from oncecron.skips"), 130)
    [(starts, ticks)] = ready.execute(
        "select count(*), count(distinct tick) from oncecron.executions"
    )
    assert starts == ticks > 0


def test_kubernetes(tools: Path, tmp_path: Path) -> None:
    """The manifest has no field that Kubernetes does not know."""
    [text] = blocks("kubernetes", "yaml")
    (tmp_path / "cronjob.yaml").write_text(text)
    command = [tools / "kubernetes-validate", "--strict", "-k", "1.37.0", tmp_path / "cronjob.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
