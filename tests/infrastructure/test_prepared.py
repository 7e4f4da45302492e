"""A command from the prepared process does what the console script does."""

from pathlib import Path

import pytest
from servers.oncecron import Oncecron

from oncecron.cli.main import ONCECRON


@pytest.fixture
def host(tmp_path: Path) -> Oncecron:
    """Give a host with a store that no other test has."""
    return Oncecron(f"sqlite:///{tmp_path}/oncecron.db", tmp_path)


@pytest.mark.turns(8)
@pytest.mark.parametrize("command", [command for command in ONCECRON.names if command != "run"])
@pytest.mark.parametrize("word", ["--help", "--mistyped"])
def test_the_same_is_said(host: Oncecron, command: str, word: str) -> None:
    """By status and both outputs."""
    assert host(command, word) == host.start(command, word).wait()


def test_environment_and_directory_are_the_callers(host: Oncecron, tmp_path: Path) -> None:
    """Also what Python and libc read once: the zone."""
    (tmp_path / "crontab").write_text("@dayly root x\n")
    lint = ("crontab", "lint", "--user-field", "crontab")
    assert host(*lint, cwd=tmp_path) == host.start(*lint, cwd=tmp_path).wait()
    assert b"crontab:1" in host(*lint, cwd=tmp_path).out
    assert b"crontab:1" not in host(*lint, cwd=Path("/")).out
    for zone, offset in (("Asia/Tokyo", b"+09:00"), ("America/Lima", b"-05:00")):
        host.environment["TZ"] = zone
        assert offset in host("next", "--schedule", "@daily", "--json").out
