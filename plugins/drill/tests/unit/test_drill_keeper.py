"""What a drill leaves that was killed, at whichever moment, is removed by the next one; what lives is not."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from oncecron.stores.address import parse_address
from oncecron_drill import keeper
from oncecron_drill.keeper import MARK, Ground, keeping
from oncecron_drill.processes import send

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oncecron_drill.processes import Process

STORE = "sqlite:///nowhere/s.db"


@pytest.mark.parametrize(
    "note",
    [
        None,  # killed when its directory was made
        "", "[]", '{"store": ',  # what a power cut may leave
        '{"store": "elsewhere", "has_namespace": false}',
    ],
)  # fmt: skip
def test_what_was_killed_at_any_moment_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str | None
) -> None:
    """Its directory and all that is in it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = tmp_path / "oncecron-drill-abcd1234"
    (dead / "state" / "drill-1").mkdir(parents=True)
    (dead / "history.ndjson").write_text("{")
    if note is not None:
        (dead / Ground.NOTE).write_text(note)
    with keeping(parse_address(STORE), STORE) as ground:
        assert [*tmp_path.iterdir()] == [ground.directory]
    assert [*tmp_path.iterdir()] == []


def test_what_lives_and_what_is_no_drill_s_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another drill holds the lock of its directory; a link leads to what somebody else has made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living, link = tmp_path / "oncecron-drill-living00", tmp_path / "oncecron-drill-link0000"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("dear")
    link.symlink_to(tmp_path / "other")
    living.mkdir()
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with keeping(parse_address(STORE), STORE):
        assert living.exists()
    os.close(lock)
    assert sorted(path.name for path in tmp_path.iterdir()) == [link.name, living.name, "other"]
    assert (tmp_path / "other" / "file").exists()
    with keeping(parse_address(STORE), STORE):
        assert not living.exists()


def test_a_namespace_in_another_store_stays_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next drill into that store removes it; the rest of it is removed now."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = tmp_path / "oncecron-drill-abcd1234"
    dead.mkdir()
    (dead / Ground.NOTE).write_text('{"store": "elsewhere", "has_namespace": true}')
    (dead / "history.ndjson").write_text("{")
    with keeping(parse_address(STORE), STORE):
        assert [path.name for path in dead.iterdir()] == [Ground.NOTE]


def test_what_it_kills_is_dead_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a process dies some time after its signal, and until then it may still write a file."""

    def send_late(processes: Sequence[Process], number: int) -> None:
        late = threading.Timer(0.5 * (number == signal.SIGKILL), send, (processes, number))
        late.start()

    monkeypatch.setattr(keeper, "send", send_late)
    process = subprocess.Popen(["sleep", "60"], env={MARK: f"{tmp_path}/state"})
    try:
        Ground(tmp_path, None, STORE).end_processes()
        assert process.poll() == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
