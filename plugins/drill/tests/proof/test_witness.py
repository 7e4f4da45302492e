"""The witness: its file's lock lives exactly as long as its tree, and it tells whom it met."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from servers import descendants, eventually, spawn
from servers.process import end, send

from oncecron_drill.firing_hosts import locked_files
from oncecron_drill.generator import WITNESS_WORDS

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(public_path: Path) -> Iterator[Start]:
    """Give a function that starts a witness with options, as a firing of that number; its tree ends with the test."""
    with ExitStack() as stack:

        def begin(firing: int, *options: str, attempt: int = 1) -> "subprocess.Popen[bytes]":
            process = spawn(
                [*WITNESS_WORDS, str(public_path), *options],
                env={
                    "WITNESS_FIRING": str(firing), "WITNESS_HOST": "a", "ONCECRON_KEY": "k",
                    "ONCECRON_SHARD": "0", "ONCECRON_TICK": "t", "ONCECRON_ATTEMPT": str(attempt),
                    "ONCECRON_FENCING_TOKEN": str(firing), "ONCECRON_EXECUTION_ID": str(firing),
                },
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(end, process, signal.SIGKILL)
            eventually(lambda: "beat" in _events(public_path, firing))
            return process

        yield begin


def _lines(journal: Path, firing: int) -> list[dict[str, Any]]:
    """Return what the start of a firing wrote; nothing while its first line is not there."""
    for path in journal.glob("k/*"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if lines and lines[0]["firing"] == firing:
            return lines
    return []


def _events(journal: Path, firing: int) -> list[str]:
    return [line["event"] for line in _lines(journal, firing)]


def test_a_second_one_meets_the_first(start: Start, public_path: Path) -> None:
    """Of two that live at a time the later one writes it down."""
    start(1, "--seconds", "20")
    start(2, "--seconds", "0.1").wait(60)
    assert "overlap" in _events(public_path, 2)
    assert "overlap" not in _events(public_path, 1)


def test_one_after_the_other_meet_nobody(start: Start, public_path: Path) -> None:
    """A job that is over is not met."""
    start(1).wait(60)
    start(2).wait(60)
    assert _events(public_path, 2)[-1] == "end"
    assert "overlap" not in _events(public_path, 2)


@pytest.mark.parametrize("option", ["--fork", "--setsid"])
def test_what_a_killed_job_leaves_is_met(start: Start, public_path: Path, option: str) -> None:
    """A descendant of a job that was killed counts for as long as it lives, and no longer."""
    first = start(1, "--seconds", "20", option)
    eventually(lambda: len({line["pid"] for line in _lines(public_path, 1)}) > 1)
    left = [process for process in descendants(first.pid) if process.pid != first.pid]
    pids = {line["pid"] for line in _lines(public_path, 1)} - {first.pid}
    first.kill()
    first.wait()
    start(2).wait(60)
    assert "overlap" in _events(public_path, 2)
    send(left, signal.SIGKILL)
    for pid in pids:
        if os.path.exists(f"/proc/{pid}"):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not locked_files(public_path))
    start(3).wait(60)
    assert "overlap" not in _events(public_path, 3)


def test_what_a_successful_job_leaves_is_not_met(start: Start, public_path: Path) -> None:
    """A daemon that outlives a success has dropped the lock before the job ended."""
    first = start(1, "--daemon", "5")
    assert first.wait(60) == 0
    assert locked_files(public_path) == []
    start(2).wait(60)
    assert "overlap" not in _events(public_path, 2)


def test_signals_and_status_are_told(start: Start, public_path: Path) -> None:
    """The end says what the parent is told, and by which signal it came."""
    process = start(1, "--seconds", "20")
    eventually(lambda: "beat" in _events(public_path, 1))
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    assert [line.get("name") for line in _lines(public_path, 1) if line["event"] == "signal"] == [
        "TERM"
    ]
    assert _lines(public_path, 1)[-1]["status"] == 128 + signal.SIGTERM


def test_the_first_attempts_fail(start: Start) -> None:
    """Those before the one that is named; then its status is what is asked for."""
    statuses = [
        start(attempt, "--fail-before", "3", "--exit", "4", attempt=attempt).wait(60)
        for attempt in (1, 2, 3)
    ]
    assert statuses == [9, 9, 4]
