"""A plugin of another package, and commands that are not installed, in an environment of its own.

It has the wheel of a host and that of the example of docs/design, as pip installs them; of what oncecron needs, click
alone.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pip
import pytest

import oncecron
from oncecron.cli.main import ONCECRON

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "design" / "example_plugin"
MISSING = {"web": "web", "report": "web", "metrics": "web", "drill": "drill"}
"""The commands that the wheel of a host does not have, and the rest of the name of what has them."""


class Environment:
    """A virtual environment, and a store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
        [self.modules] = directory.glob("lib/python*/site-packages")

    def install(self, *sources: Path) -> None:
        """Build wheels and install them, without the index."""
        wheels = self.directory / "wheels"
        for source in sources:
            build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
            subprocess.run(build, cwd=source, check=True, capture_output=True)
        install = [sys.executable, "-m", "pip", "--python", self.python, "install", "-q"]
        subprocess.run([*install, "--no-index", "--no-deps", *wheels.iterdir()], check=True)

    def oncecron(self, *words: str, **more: str) -> tuple[int, str, list[str]]:
        """Return the exit status, the output, and the lines of standard error."""
        home = str(self.directory)
        environment = {"PATH": os.environ["PATH"], "HOME": home, "XDG_STATE_HOME": home}
        environment |= {"ONCECRON_STORE": f"sqlite://{home}/store.db", **more}
        command = [self.python, "-m", "oncecron", *words]
        done = subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr.splitlines()

    def offered(self, line: str) -> list[str]:
        typed = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        _, out, said = self.oncecron(_ONCECRON_COMPLETE="bash_complete", **typed)
        assert said == []
        return [row.partition(",")[2] for row in out.splitlines() if row]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Give the environment, in which one job has run. pip is there for what tells how it is called."""
    environment = Environment(tmp_path_factory.mktemp("host"))
    environment.install(ROOT, EXAMPLE)
    for package in (click, pip):
        source = Path(package.__file__).parent
        (environment.modules / source.name).symlink_to(source)
    for name in MISSING.values():
        shutil.rmtree(environment.modules / f"oncecron_{name}", ignore_errors=True)
    fired = environment.oncecron("run", "--key", "k", "--tick", "1", "--", "echo", "ran")
    assert fired == (0, "ran\n", [])
    return environment


def full_at(host: Environment, percent: int) -> str:
    """Return a configuration file with the option of the plugin."""
    file = host.directory / "file.toml"
    file.write_text(f"[plugin.disk]\nfull = {percent}\n")
    return str(file)


def test_a_plugin_brings_a_command_and_a_finding(host: Environment) -> None:
    """The command has its line in the help, and its name at a TAB; the finding has its option in the file."""
    status, out, said = host.oncecron("disk")
    assert (status, said) == (0, [])
    assert out.endswith(" % of / is used\n")
    status, out, said = host.oncecron("--help")
    assert (
        "\n\nOf other packages:\n  disk  Show how full the disk of this host is. [oncecron_disk]"
        in out
    )
    assert said == []
    assert "disk" in host.offered("oncecron d")
    assert host.offered("oncecron disk --he") == ["--help"]
    assert host.oncecron("disc")[2] == [
        "oncecron: unknown command 'disc'; did you mean `oncecron disk`?"
    ]
    for percent, expected in ((0, 1), (101, 0)):
        file = full_at(host, percent)
        assert host.oncecron("config", "check", file)[0] == 0
        status, out, said = host.oncecron("check", "--config", file)
        assert (status, said) == (expected, [])
        assert (" % of / is used" in out) == bool(expected)
        assert f" disk={expected};0 " in out
        assert host.oncecron("check", "--config", file, "--critical", "disk")[0] == 2 * expected


@pytest.mark.parametrize("name", MISSING)
def test_a_command_that_is_not_installed_says_how_to_install_it(
    host: Environment, name: str
) -> None:
    """It is named in the help, and completes nothing."""
    what = f"oncecron-{MISSING[name]}"
    line = f"{host.python} -m pip install {what}=={oncecron.__version__}"
    cure = [f"oncecron: `oncecron {name}` is not installed; install it: `{line}`"]
    for words in ([name], [name, "--help"], ["help", name], [name, "--no-such"]):
        assert host.oncecron(*words) == (64, "", cure)
    shown = f" {name} {ONCECRON.names[name].about} [not installed: {what}] "
    assert shown in " ".join(host.oncecron("--help")[1].split())
    assert name not in host.offered(f"oncecron {name[:2]}")
    assert host.offered(f"oncecron {name} --") == []
