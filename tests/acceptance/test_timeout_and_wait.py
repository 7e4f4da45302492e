"""Running too long, waiting for one's turn, and running a tick once more by hand."""

import os
import re
import signal
import time
from collections.abc import Callable

import pytest
from log_of import Store
from servers import Journal, assert_exclusive, assert_tokens_rise, eventually, job
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron
from terminals import answered

Hosts = Callable[..., Oncecron]
SILENT_SUCCESS = Ended(0, b"", "")


def wait_until_refused(store: Store, key: str, host: str, count: int = 1) -> None:
    """Wait until the store has refused a host as often as that."""
    eventually(lambda: sum(s.count for s in store.skips(key) if s.host == host) >= count, 20)


# --timeout


def test_a_command_that_takes_too_long_is_told_to_end(
    store: Store, host: Oncecron, journal: Journal
) -> None:
    """After --timeout it gets TERM; that it obeys makes it no less `timed-out`, 124."""
    firing = host.fire("k", "--timeout", "2s", "--", *job(journal, "--sleep", 60))
    ended = firing.wait()
    assert ended.status == 124
    assert re.fullmatch(
        r"oncecron: key k: --timeout ended the command after [0-9.]+ s\n", ended.err
    )
    [run] = journal.runs()
    assert run.signals == ["TERM"]
    assert 0.3 < run.last_sign - run.started < 10
    [record] = store.executions("k")
    assert (record.outcome, record.signal, record.note) == (
        "timed-out",
        signal.SIGTERM,
        "after 2 s",
    )


@pytest.mark.turns(1)
@pytest.mark.parametrize("grace", [0.0, 1.5])
def test_a_command_that_ignores_its_end_is_killed_after_the_grace(
    any_store: Store, host: Oncecron, journal: Journal, grace: float
) -> None:
    """--grace is the time from TERM to KILL, for everything that it has started."""
    options = ("--beats", "--ignore-term", "--setsid-grandchild", "--sleep", 60)
    firing = host.fire(
        "k", "--timeout", "3s", "--grace", f"{grace}s", "--", *job(journal, *options)
    )
    assert firing.wait().status == 124
    [record] = any_store.executions("k")
    assert (record.outcome, record.signal) == ("timed-out", signal.SIGKILL)
    [run] = journal.runs()
    asked = [line.time for line in run.lines if line.kind == "signal"]
    assert grace <= 0 or grace - 0.2 < run.last_sign - asked[0] < grace + 8
    assert len({line.pid for line in run.lines if line.kind == "beat"}) == 2


def test_the_time_of_waiting_for_the_lease_is_not_the_commands(
    new_host: Hosts, journal: Journal
) -> None:
    """--timeout counts from the start of the command, not from the start of the firing."""
    holder = new_host().fire("k", "--tick", "one", "--", *job(journal, "--sleep", 5.5))
    journal.wait_for("start")
    waiting = new_host("host-b").fire(
        *("k", "--tick", "two", "--wait", "30s", "--timeout", "5s"),
        "--",
        *job(journal, "--sleep", 0.5),
    )
    assert holder.wait().status == 0
    assert waiting.wait().status == 0
    assert_exclusive(journal)


# --wait


@pytest.mark.own_log
def test_who_waits_runs_when_the_holder_has_ended(
    store: Store, new_host: Hosts, journal: Journal
) -> None:
    """Another tick waits for the key: it starts after the holder's end, on the host that waited."""
    holder = new_host().fire("k", "--tick", "one", "--", *job(journal, "--beats", "--sleep", 60))
    journal.wait_for("start")
    waiting = new_host("host-b").fire(
        *("k", "--tick", "two", "--wait", "60s"), "--", *job(journal, "--beats", "--sleep", 0.2)
    )
    wait_until_refused(store, "k", "host-b")
    assert len(journal.starts()) == 1
    os.kill(holder.process.pid, signal.SIGTERM)
    assert holder.wait().status == 143
    assert waiting.wait() == Ended(0, b"", "")
    assert_exclusive(journal)
    assert_tokens_rise(journal)
    assert [(r.tick, r.outcome) for r in store.executions("k")] == [
        ("one", "stopped"),
        ("two", "succeeded"),
    ]


def test_a_wait_ends_in_time_and_is_recorded(
    store: Store, new_host: Hosts, journal: Journal
) -> None:
    """After --wait it is refused as if it had not waited, with --skip-exit for whoever wants to know."""
    holder = new_host().fire("k", "--tick", "one", "--", *job(journal, "--sleep", 60))
    journal.wait_for("start")
    began = time.monotonic()
    ended = new_host("host-b").run(
        *("k", "--tick", "two", "--wait", "2s", "--skip-exit", 99), "--", "echo", "ran"
    )
    assert ended == Ended(99, b"", "")
    assert 1.9 < time.monotonic() - began < 30  # and not as long as the job runs
    [skip] = [skip for skip in store.skips("k") if skip.host == "host-b"]
    assert (skip.reason, skip.holder_host) == ("held", "host-a")
    os.kill(holder.process.pid, signal.SIGKILL)
    holder.wait()


# --skip-exit


def test_skip_exit_is_the_status_of_every_refusal(store: Store, new_host: Hosts) -> None:
    """A tick that is done exits 0, or what --skip-exit says; a run is not touched by it."""
    first, second = new_host(), new_host("host-b")
    assert first.run("k", "--tick", "one", "--skip-exit", 7, "--", "true") == SILENT_SUCCESS
    assert second.run("k", "--tick", "one", "--skip-exit", 7, "--", "true") == Ended(7, b"", "")
    assert second.run("k", "--tick", "one", "--", "true") == SILENT_SUCCESS
    assert second.run("k", "--tick", "one", "--skip-exit", 256, "--", "true").status == 64
    [skip] = store.skips("k")
    assert (skip.reason, skip.host, skip.holder_host, skip.count) == ("done", "host-b", "host-a", 2)


# --again


@pytest.mark.own_log
def test_again_is_exclusive_all_the_same(store: Store, new_host: Hosts, journal: Journal) -> None:
    """While the tick runs, --again is refused as everybody is; with --wait it runs afterwards."""
    holder = new_host().fire("k", "--tick", "one", "--", *job(journal, "--beats", "--sleep", 60))
    journal.wait_for("start")
    second = new_host("host-b")
    refused = second.run("k", "--tick", "one", "--again", "--skip-exit", 9, "--", *job(journal))
    assert refused == Ended(9, b"", "")
    waiting = second.fire("k", "--tick", "one", "--again", "--wait", "60s", "--", *job(journal))
    wait_until_refused(store, "k", "host-b", 2)
    os.kill(holder.process.pid, signal.SIGTERM)
    assert waiting.wait().status == 0
    holder.wait()
    assert_exclusive(journal, attempts=True)
    assert [line.attempt for line in journal.starts()] == ["1", "2"]


def test_again_without_a_terminal_needs_a_named_tick(any_store: Store, host: Oncecron) -> None:
    """In a crontab it would run every tick on every host: 64, and nothing runs."""
    ended = host.run("k", "--again", "--", "echo", "ran")
    assert (ended.status, ended.out) == (64, b"")
    assert "--again" in ended.err
    assert any_store.executions("k") == []


def test_a_person_is_told_of_a_tick_that_is_done(store: Store, host: Oncecron) -> None:
    """On a terminal the refusal names the host that ran it, and --again, which then runs it."""
    yearly = ("--schedule", "0 0 1 1 *")
    assert host.run("k", *yearly, "--", "true").status == 0
    command = ("run", "--key", "k", *yearly)
    status, told = answered(host, *command, "--", "echo", "ran", answers="")
    assert (status, "ran" in told.split()) == (0, False)
    assert "host-a" in told
    assert "--again" in told
    status, told = answered(host, *command, "--again", "--", "echo", "ran", answers="")
    assert (status, told.split()) == (0, ["ran"])


# Within itself


def test_a_nested_run_of_the_same_key_is_a_usage_error(any_store: Store, host: Oncecron) -> None:
    """It would wait for itself: refused with 64 before it asks the store, through any shell between."""
    inner = f"{CONSOLE_SCRIPT} run --key k --wait 60s -- echo ran; echo $?"
    ended = host.run("k", "--", "sh", "-c", f"sh -c '{inner}'")
    assert (ended.status, ended.out) == (0, b"64\n")
    assert ended.err.startswith("oncecron: ")
    assert len(any_store.executions("k")) == 1
