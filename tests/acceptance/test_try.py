"""`./try` shows a run and a skip in a clone, and leaves nothing elsewhere; `tests/run` sets up all that tests need.

The long form (ONCECRON_TEST_SYSTEMS) starts both in bare Debian systems, as root and as another user, as README prints
them: first each names the one line that installs what is missing.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.debian_system import NOT_SOURCES, RELEASES, SOURCES, DebianSystem
from servers.require import SYSTEM_PATH, program

pytestmark = [pytest.mark.slow, pytest.mark.turns(1, "systems")]
SYSTEMS = os.environ.get("ONCECRON_TEST_SYSTEMS", "")
in_bare_systems = pytest.mark.skipif(not SYSTEMS, reason="the long form sets ONCECRON_TEST_SYSTEMS")
README = (SOURCES / "README.md").read_text(encoding="utf-8")
TRY, SHOWN = re.findall(r"^```console\n\$ (\./try\n)(.*?)^```$", README, re.MULTILINE | re.DOTALL)[
    0
]
[RUN] = re.findall(r"`(tests/run)` runs all tests", README)


def assert_shows_both(output: str) -> None:
    """Check that it has run on one host, was skipped on the other, and that README and the log say so."""
    places = [re.sub(r"\btry-[\d.]+", "try-1", output).find(line) for line in SHOWN.splitlines()]
    assert -1 not in places
    assert places == sorted(places)
    assert output.count("I run\n") == 1
    assert re.search(
        r"^oncecron: skipped: hello tick \S+ has already run on web1 ", output, re.MULTILINE
    )
    assert re.search(r"^ +\d+ +hello .* succeeded .* web1 ", output, re.MULTILINE)
    assert re.search(r"^\S+ +hello .* done +web2 +web1/", output, re.MULTILINE)


def last_commands(output: str) -> tuple[str, str]:
    """Return what it says to go on with, and what removes it."""
    [more] = re.findall(r"^(export PATH=.*\noncecron why hello)$", output, re.MULTILINE)
    return more, output.rpartition("To remove what this has made: ")[2].strip()


def test_a_clone_shows_a_run_and_a_skip(public_path: Path) -> None:
    """In a path with spaces, again without set-up, and for another user; no configuration is read, no store touched."""
    clone, home, elsewhere = (public_path / name for name in ("my clone", "home", "tmp"))
    shutil.copytree(SOURCES, clone, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    home.mkdir()
    elsewhere.mkdir()
    elsewhere.chmod(0o1777)
    (public_path / "oncecron.toml").write_text("wrong")
    own = {
        "ONCECRON_STORE": "redis://nowhere.invalid",
        "ONCECRON_CONFIG": str(public_path / "oncecron.toml"),
    }
    path = f"{sys.base_prefix}/bin:{SYSTEM_PATH}"
    environment = {**os.environ, **own, "HOME": str(home), "TMPDIR": str(elsewhere), "PATH": path}

    def tried(*prefix: str) -> str:
        return subprocess.run(
            [*prefix, str(clone / "try")], cwd="/", env=environment, check=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ).stdout  # fmt: skip

    first, second = tried(), tried()
    assert ("Setting up" in first, "Setting up" in second) == (True, False)
    for output in (first, second):
        assert_shows_both(output)
    more, remove = last_commands(second)
    assert b"web1" in subprocess.check_output(["/bin/sh", "-ec", more], env=environment)
    if os.geteuid() == 0:
        other = tried(program("setpriv"), "--reuid", "65534", "--clear-groups", "--")
        assert_shows_both(other)
        subprocess.run(["/bin/sh", "-ec", last_commands(other)[1]], check=True)
    subprocess.run(["/bin/sh", "-ec", remove], check=True)
    assert [*home.iterdir(), *elsewhere.iterdir()] == []
    assert not (clone / ".try").exists()


@pytest.fixture(params=RELEASES)
def system(request: pytest.FixtureRequest) -> Iterator[DebianSystem]:
    system = DebianSystem(request.param)
    try:
        system.add_user("ann")
        yield system
    finally:
        system.remove()


def prepared(system: DebianSystem, user: str, command: str, lines: int = 1) -> str:
    """Lay a clone and install what the command names, until it names nothing; return the clone's path."""
    path = "/root/oncecron" if user == "root" else f"/home/{user}/oncecron"
    system.clone(path, user)
    for _ in range(lines):
        refused = system.sh(command, user, path)
        assert refused.returncode == 69, refused.stdout
        line = refused.stdout.splitlines()[-1]
        assert line.startswith("sudo ") == (user != "root")
        system.do(f"export DEBIAN_FRONTEND=noninteractive; {line.replace('sudo ', '')}")
    return path


@in_bare_systems
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("user", ["root", "ann"])
def test_in_a_bare_system(system: DebianSystem, user: str) -> None:
    """What it names is installed by one line; then it takes seconds, and writes nothing outside the clone."""
    path = prepared(system, user, TRY)
    before = system.files()
    output, _, times = system.do(f"{TRY}echo TIMES\ntimes", user, path).rpartition("TIMES\n")
    assert_shows_both(output)
    more, remove = last_commands(output)
    assert "web1 started it" in system.do(more, user, "/")
    assert {
        name for name in system.files() - before if not name.startswith(f"{path}/.try")
    } == set()
    system.do(remove, user, "/")
    assert system.files() == before
    spent = [60 * float(m) + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", times)]
    assert len(spent) == 4, times  # of the processor: the machine may have other work
    assert sum(spent) < 30, times


@in_bare_systems
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("user", ["root", "ann"])
def test_the_tests_in_a_bare_system(system: DebianSystem, user: str, tmp_path: Path) -> None:
    """Root needs nothing but a clone; another user installs what one line names."""
    command = RUN + (" --quick" if SYSTEMS == "quick" else "")
    path = "/root/oncecron"
    if user == "root":
        system.clone(path)
    else:
        path = prepared(system, user, command)
    ended = system.sh(command, user, path, timeout=4 * 3600)
    everything = tmp_path / "output"
    everything.write_text(ended.stdout)
    assert ended.returncode == 0, f"{ended.stdout[-20000:]}\nEverything is in {everything}"
    assert re.search(r" \d+ passed", ended.stdout), ended.stdout[-2000:]
