"""A host that is short of processes or descriptors: 69 or 75 with a line, no traceback, and nothing is lost.

Without memory the interpreter itself may crash, so what is told then is tested by itself (unit/test_shortage.py).
"""

import itertools
import os
import re
from pathlib import Path

import pytest
from log_of import SQLiteLog, Store
from servers.oncecron import Ended, Oncecron
from servers.process import as_user
from story_stores import seed

USERS = itertools.count(100_000 + 100 * os.getpid())
"""Nobody else runs as these users: their processes are counted, also those that are not yet reaped."""
LINE = re.compile(r"oncecron: [^\n]*\n")
NOT_RECORDED = re.compile(r"oncecron: key k\d*: the command's output is not recorded: [^\n]*\n")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


def checked(ended: Ended, public_path: Path) -> bool:
    """Check the end of a firing of `echo ran >>ran`; return whether the command ran."""
    ran = public_path / "made" / "ran"
    times = ran.read_text().count("ran") if ran.exists() else 0
    if ran.exists():
        ran.unlink()
    assert "Traceback" not in ended.err, ended
    assert "internal error" not in ended.err, ended
    ended = ended._replace(err=NOT_RECORDED.sub("", ended.err))
    if ended.status == 0:
        assert (times, ended.err) == (1, ""), ended
    else:
        assert ended.status in (69, 75), ended
        assert times == 0, ended
        assert LINE.fullmatch(ended.err), ended
    return ended.status == 0


@pytest.fixture
def made(public_path: Path) -> Path:
    """Give a directory for what the command makes."""
    path = public_path / "made"
    path.mkdir()
    path.chmod(0o777)
    return path


def new_user(home: Path) -> tuple[Oncecron, int, Path]:
    """Return a host on which a user fires who has nothing else, with the user's number and home."""
    home.mkdir()
    user = next(USERS)
    os.chown(home, user, user)
    return Oncecron(f"sqlite://{home}/store.db", home, prefix=as_user(user)), user, home


@needs_root
@pytest.mark.turns(1)
@pytest.mark.parametrize(
    "options",
    [(), ("--capture", "1k"), ("--only-if", "true"), ("--config", "ping.toml")],
    ids=["", "capture", "only-if", "ping"],
)
def test_a_user_without_processes_left(
    public_path: Path, made: Path, options: tuple[str, ...]
) -> None:
    """Whichever process or thread cannot be started: the guard, its thread, the command."""
    ran = []
    for most in range(1, 12):
        host, user, home = new_user(public_path / f"home-{most}")
        become = host.prefix
        words = ("--tick", "one", "--", "/bin/sh", "-c", f"echo ran >>{made}/ran")
        pings = home / "ping.toml"
        pings.write_text('[[ping]]\nservice = "webhook"\nurl = "http://127.0.0.1:9/"\n')
        pings.chmod(0o600)
        os.chown(pings, user, user)
        given = [str(pings) if word == pings.name else word for word in options]
        host.prefix = ["prlimit", f"--nproc={most}", *become]
        ran.append(checked(host.run("k", *given, *words), public_path))
        if ran[-1]:
            continue
        host.prefix = become
        assert host("flush").status == 0
        log = SQLiteLog(home / "store.db")
        recorded = [skip.reason for skip in log.skips("k")]
        recorded += [execution.outcome for execution in log.executions("k")]
        assert recorded in (["broken"], ["not-started"]), most
        assert checked(host.run("k", *words), public_path), most  # its tick is still open
    assert not any(ran[:3])
    assert ran[-1]


@needs_root
def test_items_of_a_user_without_processes_left(public_path: Path, made: Path) -> None:
    """What could not be started stays queued, is run later, and nothing is run twice."""
    statuses = []
    for most in (*range(1 + seed() % 3, 12, 3), 12):
        host, *_ = new_user(public_path / f"home-{most}")
        become = host.prefix
        words = (
            "--slots",
            "2",
            "--items",
            "echo 1; echo 2",
            "--shell",
            f'echo "$1" >>{made}/{most}',
        )
        for host.prefix in ["prlimit", f"--nproc={most}", *become], become:
            ended = host("each", "--key", "k", "--tick", "one", *words)
            assert ended.status in (0, 75), (most, ended)
            assert all(map(LINE.fullmatch, ended.err.splitlines(keepends=True))), (most, ended)
            assert not re.search("Errno|Traceback|internal error", ended.err), (most, ended)
            statuses.append(ended.status)
        assert sorted((made / str(most)).read_text().split()) == ["1", "2"], most
    assert {*statuses[1::2]} == {0}
    assert statuses[0] == 75
    assert statuses[-2] == 0


def test_a_process_without_descriptors_left(
    store: Store, host: Oncecron, public_path: Path, made: Path
) -> None:
    """At whatever number they end."""
    without_descriptors(host, public_path)


def test_a_capture_without_descriptors_left(
    store: Store, host: Oncecron, public_path: Path, made: Path
) -> None:
    """It needs more of them; the run needs no capture."""
    without_descriptors(host, public_path, "--capture", "1k")


def without_descriptors(host: Oncecron, public_path: Path, *options: str) -> None:
    ran = []
    for most in range(6 + seed() % 3, 36, 3):
        host.prefix = ["prlimit", f"--nofile={most}"]
        patience = "1s" if most < 30 else "20s"  # the last ones have what they need
        words = ("--tick", "one", "--connect-timeout", patience, *options, "--", "/bin/sh", "-c")
        ended = host.run(f"k{most}", *words, f"echo ran >>{public_path}/made/ran")
        ran.append(checked(ended, public_path))
    assert all(ran[-2:])
    assert not ran[0]


def test_people_are_told_of_missing_descriptors(store: Store, host: Oncecron) -> None:
    """The commands for people as well."""
    host("init")
    host.run("k", "--", "true")
    for command in (["history"], ["why", "k"]):
        for most in range(4, 16, 2):
            host.prefix = ["prlimit", f"--nofile={most}"]
            ended = host(*command)
            if ended.status > 1:
                assert ended.status in (69, 75), ended
                assert LINE.fullmatch(ended.err), ended
