"""The journal's checks bite, and the job writes what it did."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from servers import Journal, assert_exclusive, assert_tokens_rise, eventually, job, spawn
from servers.process import end, read_process


def plant(journal: Journal, run: str, first: float, last: float, **fields: Any) -> None:
    """Write the lines of a run that lived from `first` to `last`."""
    values = {"key": "k", "shard": "-", "tick": run, "attempt": "1", "token": "1"} | fields
    identity = [values[name] for name in ("key", "shard", "tick", "attempt", "token")]
    journal.write("start", "host", 7, first, f"host:{run}", *identity, "job")
    journal.write(values.get("kind", "end"), "host", 7, last, f"host:{run}", *identity, "0")


@pytest.fixture
def running(journal: Journal) -> Iterator[Any]:
    """Give a function that starts the job and, if asked to, waits until it is ready."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: object, **environment: str) -> subprocess.Popen[bytes]:
        process = spawn(
            job(journal, *options), stdout=subprocess.PIPE, env=dict(os.environ) | environment
        )
        started.append(process)
        if "--ready" in options:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        end(process, signal.SIGKILL)


def test_runs_one_after_another_are_exclusive(journal: Journal) -> None:
    """Intervals that do not touch, each of another tick, pass."""
    plant(journal, "one", 1, 2, token="5")
    plant(journal, "two", 2.1, 3, token="6")
    assert_exclusive(journal)
    assert_tokens_rise(journal)


@pytest.mark.parametrize("kind", ["end", "beat"])
def test_planted_overlap_is_found(journal: Journal, kind: str) -> None:
    """Two that lived at a time are found, also behind a short one, also by beats alone."""
    plant(journal, "long", 1, 9, kind=kind)
    plant(journal, "short", 0.1, 0.2)
    plant(journal, "late", 8, 10)
    with pytest.raises(AssertionError, match="two at a time"):
        assert_exclusive(journal)


def test_planted_second_start_of_a_tick_is_found(journal: Journal) -> None:
    """A tick that was started twice is found, unless it may have further attempts."""
    plant(journal, "a", 1, 2, tick="t")
    plant(journal, "b", 3, 4, tick="t", attempt="2")
    with pytest.raises(AssertionError, match="started twice"):
        assert_exclusive(journal)
    assert_exclusive(journal, attempts=True)
    plant(journal, "c", 5, 6, tick="t", attempt="2")
    with pytest.raises(AssertionError, match="started twice"):
        assert_exclusive(journal, attempts=True)


def test_empty_journal_proves_nothing(journal: Journal) -> None:
    """A test whose jobs never ran must not pass."""
    with pytest.raises(AssertionError, match="nothing ran"):
        assert_exclusive(journal)


@pytest.mark.parametrize("token", ["5", "4", "-"])
def test_token_that_does_not_rise_is_found(journal: Journal, token: str) -> None:
    """Equal, lower and missing fencing tokens are found."""
    plant(journal, "one", 1, 2, token="5")
    plant(journal, "two", 3, 4, token=token)
    with pytest.raises(AssertionError):
        assert_tokens_rise(journal)


@pytest.mark.parametrize(
    ("option", "role"), [("--fork", "survivor"), ("--setsid-grandchild", "grandchild")]
)
def test_leftovers_count_as_the_run_that_left_them(
    journal: Journal, running: Any, option: str, role: str
) -> None:
    """What a job leaves behind beats on in the job's name until it is killed."""
    assert running(option).wait(timeout=60) == 0
    [start] = journal.wait_for("start", where=lambda line: line.detail == role)
    process = read_process(start.pid)
    assert process is not None
    journal.wait_for("beat", 3)
    with pytest.raises(ProcessLookupError):
        os.killpg(start.pid, 0)  # it is no leader of a group of its own
    plant(journal, "next", start.time + 0.001, start.time + 0.01, key="-", shard="-")
    with pytest.raises(AssertionError, match="two at a time"):
        assert_exclusive(journal)
    os.kill(start.pid, signal.SIGKILL)
    eventually(lambda: not process.alive())
