"""What lives when a run is over is told, and not what is about to leave."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from oncecron_drill import run_under_faults
from oncecron_drill.firing_hosts import FiringHost
from oncecron_drill.run_under_faults import Run

if TYPE_CHECKING:
    from pathlib import Path


class Over(Run):
    """A run that is over, without hosts and store."""

    def __init__(self) -> None:
        self.wanted = SimpleNamespace(wrapper=None)  # type: ignore[assignment]
        self.recorder: Any = SimpleNamespace(faults={})


@pytest.mark.parametrize(("lives", "is_told"), [(0.5, False), (60, True)])
def test_who_leaves_soon_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: float, is_told: bool
) -> None:
    """A guard records the end of its job, and its wrapper has not waited for it. What is left is killed."""
    monkeypatch.setattr(run_under_faults, "LONGEST_LEAVING", 1.0 if is_told else 30.0)
    host = FiringHost("h1", tmp_path, "store")
    environment = host.environment(WITNESS_FIRING="7")
    guard = host.start(["sleep", str(lives)], environment, stdout=subprocess.DEVNULL)
    try:
        told = [sentence.strip() for sentence in Over()._living_processes(host)]
        assert told == ([f"h1: process {guard.pid} lives: sleep {lives}"] if is_told else [])
        assert guard.wait(30) == (-9 if is_told else 0)
    finally:
        guard.kill()
        guard.wait()
