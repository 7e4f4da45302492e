"""A command from the prepared process does what the console script does."""

import functools
import threading
from pathlib import Path

import pytest
from servers import prepared
from servers.oncecron import CONSOLE_SCRIPT, Oncecron
from servers.prepared import can_carry_out, carry_out

from oncecron.cli.main import ONCECRON


@pytest.fixture
def host(tmp_path: Path) -> Oncecron:
    """Give a host with a store that no other test has."""
    return Oncecron(f"sqlite:///{tmp_path}/oncecron.db", tmp_path)


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


def test_whoever_asks_first_may_leave(host: Oncecron, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread: what it has started goes on for all."""
    another = functools.cache(prepared._prepared.__wrapped__)
    monkeypatch.setattr(prepared, "_prepared", another)
    first = threading.Thread(target=host, args=("history", "--help"))
    first.start()
    first.join()
    with another():
        assert host("history", "--help").status == 0


def test_what_runs_too_long_is_killed(host: Oncecron, tmp_path: Path) -> None:
    """As it is where it was started by itself."""
    host.run("k", "--", "true")
    words = [str(CONSOLE_SCRIPT), "history", "--follow"]
    with pytest.raises(AssertionError, match="still running"):
        carry_out(words, host.environment, str(tmp_path), 0.2)


def test_what_an_interpreter_heeds_at_its_start_starts_one() -> None:
    """And a firing is always started."""
    assert can_carry_out(["oncecron", "history"], {"PATH": "/bin"})
    assert not can_carry_out(["oncecron", "history"], {"PATH": "/bin", "LANG": "C"})
    assert not can_carry_out(["oncecron", "history"], {"LD_PRELOAD": "/usr/lib/faketime"})
    assert not can_carry_out(["oncecron", "run", "--key"], {"PATH": "/bin"})
