"""A job that fails is run again: how often, when, and what ends it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from log_of import Store
from servers import Journal, eventually, job
from servers.oncecron import Ended, Firing, Oncecron
from servers.process import send

SOON = ("--retry-delay", "100ms")
FAILS = ("sh", "-c", "exit 3")


def attempts(store: Store, key: str = "k") -> list[tuple[int, str, int | None]]:
    """Return number, outcome and exit code, the oldest first."""
    return [(row.attempt, row.outcome, row.exit_code) for row in store.executions(key)]


def ended(store: Store, count: int) -> None:
    eventually(
        lambda: (
            [o for _, o, _ in attempts(store)].count("failed") >= count
            and "running" not in [o for _, o, _ in attempts(store)]
        ),
        20,
    )


def in_the_delay(store: Store, host: Oncecron) -> Firing:
    """Fire a job that fails at once, and return it in the long delay before its next attempt."""
    options = ("--ttl", 6, "--retries", 3, "--retry-delay", "60s")
    firing = host.fire("k", "--tick", "one", *options, "--", *FAILS)
    ended(store, 1)
    # The record is there before its guard has heard of that; a second later it renews.
    kept = store.heartbeat("k") or 0
    eventually(lambda: (store.heartbeat("k") or 0) > kept)
    return firing


def test_a_job_that_fails_is_run_again_until_it_succeeds(
    store: Store, host: Oncecron, journal: Journal
) -> None:
    """Each attempt has its number, a record of its own and a higher token; the status is the last one's."""
    script = 'echo "$ONCECRON_ATTEMPT $ONCECRON_FENCING_TOKEN"; [ $ONCECRON_ATTEMPT = 3 ]'
    told = host.run("k", "--tick", "one", "--retries", 5, *SOON, "--", "sh", "-c", script)
    assert (told.status, told.err) == (0, "")
    numbers, tokens = zip(*(line.split() for line in told.out.split(b"\n")[:-1]), strict=True)
    assert numbers == (b"1", b"2", b"3")
    assert list(map(int, tokens)) == sorted(set(map(int, tokens)))
    assert attempts(store) == [(1, "failed", 1), (2, "failed", 1), (3, "succeeded", 0)]
    assert [row.fencing_token for row in store.executions("k")] == list(map(int, tokens))
    assert host.run("k", "--tick", "one", *SOON, "--retries", 5, "--", "echo") == Ended(0, b"", "")


READS = ("sh", "-c", "n=$(cat | wc -c); echo $n; [ $n = 0 ]")
"""Succeeds without input, as psql does."""


def test_each_attempt_has_the_same_input(store: Store, host: Oncecron, public_path: Path) -> None:
    """Of a file its rest, of a pipe that has ended a copy, as of cron's input after a percent sign."""
    file = public_path / "input"
    file.write_bytes(b"delete from cart;\n")
    with file.open("rb") as rest:
        rest.seek(7, os.SEEK_SET)
        options = ("run", "--key", "file", "--tick", "one", "--retries", 2, *SOON, "--", *READS)
        assert host(*options, stdin=rest) == Ended(1, b"11\n" * 3, "")
    reader, writer = os.pipe()
    os.write(writer, b"delete from cart;\n")
    os.close(writer)
    options = ("run", "--key", "pipe", "--tick", "one", "--retries", 2, *SOON, "--", *READS)
    assert host(*options, stdin=reader) == Ended(1, b"18\n" * 3, "")
    os.close(reader)
    assert [outcome for _, outcome, _ in attempts(store, "pipe")] == ["failed"] * 3


def test_an_input_that_cannot_be_given_again_ends_the_retries(store: Store, host: Oncecron) -> None:
    """A pipe that is still written when the command starts: with a word, on record too."""
    firing = host.start(
        *("run", "--key", "k", "--tick", "one", "--retries", 2, *SOON, "--", *READS),
        stdin=subprocess.PIPE,
    )
    firing.job()
    out, err = firing.process.communicate(b"delete from cart;\n", 30)
    assert (firing.process.returncode, out) == (1, b"18\n")
    assert err.startswith(b"oncecron: key k: no retry: an earlier start may have read the ")
    assert err.count(b"\n") == 1
    [row] = store.executions("k")
    assert (row.outcome, row.note) == (
        "failed",
        "no retry: its standard input cannot be given again",
    )
    assert Ended(0, b"", "") == host.run("k", "--tick", "two", "--retries", 2, "--", "true")


def test_a_signal_while_a_timeout_is_being_carried_out_ends_the_retries(
    any_store: Store, host: Oncecron, journal: Journal
) -> None:
    """The end is `timed-out`, which would be run again; but the whole run was told to end."""
    options = ("--timeout", "3s", "--grace", "5s", "--retries", 3, *SOON)
    firing = host.fire(
        "k", "--tick", "one", *options, "--", *job(journal, "--ignore-term", "--sleep", 60)
    )
    journal.wait_for("signal")
    os.kill(firing.process.pid, signal.SIGTERM)
    assert firing.wait().status == 124
    assert [row[:2] for row in attempts(any_store)] == [(1, "timed-out")]


@pytest.mark.turns(1)
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_a_signal_in_the_delay_ends_the_retries(
    any_store: Store, host: Oncecron, name: str
) -> None:
    """The status is that of the last attempt; the record says why; the key is free."""
    firing = in_the_delay(any_store, host)
    os.kill(firing.process.pid, getattr(signal, f"SIG{name}"))
    assert firing.wait().status == 3
    [record] = any_store.executions("k")
    assert (record.outcome, record.note) == ("failed", f"after SIG{name} to oncecron")
    assert any_store.heartbeat("k") is None
    told = host.run("k", "--tick", "one", "--failover", "--skip-exit", 9, "--", "echo", "no")
    assert told == Ended(9, b"", "")


@pytest.mark.own_log
def test_the_death_of_the_wrapper_in_the_delay_ends_the_retries(
    store: Store, host: Oncecron
) -> None:
    """The guard releases the lease, and says why."""
    firing = in_the_delay(store, host)
    guard = firing.guard()
    os.kill(firing.process.pid, signal.SIGKILL)
    firing.wait()
    eventually(lambda: not guard.alive())
    [record] = store.executions("k")
    assert record.outcome == "failed"
    assert "was killed" in (record.note or "")
    assert store.heartbeat("k") is None


def test_the_death_of_the_guard_in_the_delay_leaves_the_record_alone(
    any_store: Store, host: Oncecron
) -> None:
    """Nothing ran: what was recorded of the last attempt stays true, and the wrapper leaves with 75."""
    firing = in_the_delay(any_store, host)
    send([firing.guard()], signal.SIGKILL)
    told = firing.wait()
    assert told.status == 75
    assert "guard was killed; no command is running" in told.err
    assert host("flush").out == b""
    assert attempts(any_store) == [(1, "failed", 3)]
