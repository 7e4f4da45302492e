"""A crash of oncecron leaves no core, which would hold the store's password; what it starts has its own limit."""

import os
import signal
from pathlib import Path

import pytest
from servers import eventually
from servers.oncecron import Oncecron

LIMITS = ["/bin/sh", "-c", 'ulimit -Sc "$0"; exec "$@"']
SHOWN = "ulimit -Sc; ulimit -Hc"


def core_limit(pid: int) -> str:
    """Return the soft limit of a process, in bytes."""
    text = Path(f"/proc/{pid}/limits").read_text()
    return next(line.split()[4] for line in text.splitlines() if line.startswith("Max core"))


@pytest.mark.turns(1)
@pytest.mark.parametrize("soft", ["unlimited", "0"])
@pytest.mark.parametrize("victim", ["wrapper", "guard"])
def test_a_firing_that_crashes_leaves_no_core(
    host: Oncecron, public_path: Path, victim: str, soft: str
) -> None:
    """Neither of the wrapper nor of the guard, in no file and through no pipe: only 1 keeps those from starting."""
    host.prefix = [*LIMITS, soft]
    place, shown = public_path / "place", public_path / "shown"
    place.mkdir()
    script = f"{SHOWN}; touch {shown}; exec sleep 60"
    firing = host.start(*("run", "--key", "k", "--", "/bin/sh", "-c", script), cwd=place)
    guard, job = firing.guard(), firing.job()
    assert [core_limit(each.pid) for each in (firing.wrapper, guard)] == ["1", "1"]
    eventually(shown.exists)
    assert core_limit(job.pid) == soft
    os.kill(firing.wrapper.pid if victim == "wrapper" else guard.pid, signal.SIGSEGV)
    ended = firing.wait()
    assert ended.out == f"{soft}\nunlimited\n".encode()
    assert ended.status == (-signal.SIGSEGV if victim == "wrapper" else 75)
    assert list(place.iterdir()) == []


@pytest.mark.turns(1)
@pytest.mark.parametrize("soft", ["unlimited", "8", "1", "0"])
def test_what_is_started_has_the_limit_of_its_caller(
    host: Oncecron, public_path: Path, soft: str
) -> None:
    """The job, the test of --only-if, the commands of `each`, and a command of notify."""
    host.prefix = [*LIMITS, soft]
    told = public_path / "told"
    told.touch(mode=0o666)
    tell = f"{{ {SHOWN}; }} >>{told}"
    shell = ("--tick", "one", "--shell", tell)
    assert host.run("k", "--only-if", tell, *shell).status == 0
    assert host("each", "--key", "e", "--items", f"{tell}; echo 1; echo 2", *shell).status == 0
    config = public_path / "oncecron.toml"
    config.write_text(f"[notify.channel.c]\ncommand = '{tell}'\n")
    assert host("notify", "--test", "--config", str(config)).status == 0
    assert told.read_text() == f"{soft}\nunlimited\n" * 6


def test_a_command_that_people_give_leaves_no_core(host: Oncecron, public_path: Path) -> None:
    """`history --follow`, which waits with the store's password in its memory."""
    assert (
        host.run("k", "--tick", "one", "--", "true").status == 0
    )  # without a store it would not wait
    host.prefix = [*LIMITS, "unlimited"]
    firing = host.start("history", "--follow", cwd=public_path)
    eventually(lambda: core_limit(firing.process.pid) == "1")
    os.kill(firing.process.pid, signal.SIGSEGV)
    assert firing.wait().status == -signal.SIGSEGV
    assert list(public_path.glob("core*")) == []
