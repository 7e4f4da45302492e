"""What somebody asks of a holder, as the holder obeys it."""

import signal
from collections.abc import Callable
from contextlib import closing
from typing import Literal

import pytest
from log_of import Store
from servers import Journal, eventually, job
from servers.oncecron import SHORT_TTL, Ended, Firing, Oncecron

from oncecron.core.model import Request
from oncecron.stores import open_inspector
from oncecron.stores.address import parse_address

WHO = "eve@desk"
TTL = ("--ttl", SHORT_TTL)


def ask(
    store: Store,
    number: int = signal.SIGTERM,
    grace: float | None = None,
    kind: Literal["stop", "release"] = "stop",
) -> None:
    """Ask the holder of the key's newest execution."""
    newest = eventually(lambda: store.executions("k")[-1].execution_id, 20, IndexError)
    with closing(open_inspector(parse_address(store.operator_url), "oncecron")) as people:
        assert people.request("k", 0, newest, Request(kind, WHO, int(number), grace))


def running(host: Oncecron, journal: Journal, *options: object) -> Firing:
    """Fire a job and wait until it runs."""
    firing = host.fire("k", "--tick", "one", *TTL, "--", *job(journal, "--beats", *options))
    journal.wait_for("start")
    return firing


def test_a_job_is_stopped_by_its_holder(store: Store, host: Oncecron, journal: Journal) -> None:
    """It gets the signal; the end is `stopped` by whoever asked, and the status the child's own."""
    firing = running(host, journal, "--sleep", 60)
    ask(store, signal.SIGINT)
    assert firing.wait(20) == Ended(130, b"INT\n", "")
    [record] = store.executions("k")
    assert (record.outcome, record.signal, record.note) == ("stopped", signal.SIGINT, None)
    assert (record.request, record.requested_by) == ("stop", WHO)
    assert journal.runs()[0].signals == ["INT"]
    assert host.run("k", "--tick", "one", "--failover", "--", "echo", "no") == Ended(0, b"", "")


def test_a_job_that_does_not_obey_is_killed_after_the_grace_asked_for(
    store: Store, host: Oncecron, journal: Journal
) -> None:
    """Not after the run's own."""
    firing = running(host, journal, "--ignore-term", "--sleep", 60)
    ask(store, grace=3)
    assert firing.wait(20).status == 137
    [record] = store.executions("k")
    assert (record.outcome, record.signal) == ("stopped", signal.SIGKILL)
    [run] = journal.runs()
    assert run.signals == ["TERM"]  # once, though each heartbeat tells it again
    asked = next(line.time for line in run.lines if line.kind == "signal")
    assert 2.5 < run.last_sign - asked < 8


def test_release_is_obeyed_like_stop(any_store: Store, host: Oncecron, journal: Journal) -> None:
    """And recorded under its own name."""
    firing = running(host, journal, "--sleep", 60)
    ask(any_store, kind="release")
    assert firing.wait(20).status == 143
    [record] = any_store.executions("k")
    assert (record.request, record.requested_by) == ("release", WHO)


@pytest.mark.own_log
def test_a_request_in_the_delay_ends_the_retries(store: Store, host: Oncecron) -> None:
    """The holder hears it while nothing runs; the status is that of the last attempt."""
    retried = ("--retries", 3, "--retry-delay", "60s")
    firing = host.fire("k", "--tick", "one", *TTL, *retried, "--", "sh", "-c", "exit 3")
    eventually(lambda: [r.outcome for r in store.executions("k")] == ["failed"], 20)
    ask(store)
    assert firing.wait(20).status == 3
    [record] = store.executions("k")
    assert (record.outcome, record.note) == ("failed", f"asked by {WHO}: stop")


def test_a_daemon_that_was_stopped_is_not_run_by_those_that_stand_by(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Somebody wanted it to end, everywhere."""
    daemon = ("--no-tick", "--failover", *TTL)
    command = job(journal, "--beats", "--sleep", 60)
    holder = new_host().fire("k", *daemon, "--", *command)
    journal.wait_for("start")
    waiting = new_host("host-b").fire("k", *daemon, "--", *command)
    eventually(lambda: "held" in {skip.reason for skip in store.skips("k")}, 20)
    ask(store)
    assert holder.wait(20).status == 143
    assert waiting.wait(20) == Ended(0, b"", "")
    assert len(journal.starts()) == 1


@pytest.mark.parametrize("shards", [3])
def test_a_request_ends_the_firing_and_not_only_a_part(
    any_store: Store, host: Oncecron, journal: Journal, shards: int
) -> None:
    """Who was asked to stop takes no other part."""
    command = job(journal, "--beats", "--sleep", 60)
    firing = host.fire("k", "--tick", "one", *TTL, "--shards", shards, "--", *command)
    [start] = journal.wait_for("start")
    newest = any_store.executions("k")[-1].execution_id
    with closing(open_inspector(parse_address(any_store.url), "oncecron")) as people:
        request = Request("stop", WHO, int(signal.SIGTERM), None)
        assert people.request("k", int(start.shard), newest, request)
    assert firing.wait(20).status == 143
    assert len(journal.starts()) == 1
