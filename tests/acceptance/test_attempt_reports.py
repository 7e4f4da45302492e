"""What `why`, `jobs`, `audit` and `history` tell of retries, takeovers, parts and dead letters, on every store."""

import json
import signal
from collections.abc import Callable

import pytest
from answers import answer
from log_of import Store
from servers import Journal, eventually, job
from servers.oncecron import SHORT_TTL, Oncecron
from servers.process import kill_tree
from test_audit import Ticks, kinds
from test_why import told, told_with, why

Hosts = Callable[..., Oncecron]
TTL = SHORT_TTL
QUICK = ("--retry-delay", "0s..0s")


@pytest.fixture
def ticks(store: Store, host: Oncecron) -> Ticks:
    """Give a clean log of three ticks."""
    return Ticks(store, host)


def ends(store: Store, *wanted: str) -> None:
    """Wait for these outcomes, the oldest first: a log beside the store is told later."""
    eventually(lambda: [each.outcome for each in store.executions("billing")] == list(wanted))


# Retries


def test_a_tick_that_was_given_up(store: Store, host: Oncecron) -> None:
    """Its last attempt is the dead letter."""
    host.run("billing", "--tick", "t0", "--", "true")
    host.run("billing", "--retries", 1, *QUICK, "--tick", "t1", "--", "sh", "-c", "exit 3")
    ends(store, "succeeded", "failed", "failed")
    [letter] = answer(host, "history", "--exhausted")
    assert (letter["tick"], letter["attempt"], letter["exit_code"]) == ("t1", 2, 3)
    assert answer(host, "history", "--exhausted", "billing", "--tick", "t0") == []
    text = told(host, "billing")
    assert text.startswith("Tick t1 of key billing failed on host-a; given up after 2 attempts.\n")
    assert text.count("No further attempt follows.") == 1
    assert text.count("`oncecron history --exhausted billing`") == 1
    assert why(host, "billing")["verdict"] == "failed"
    assert kinds(host) == []
    [row] = answer(host, "jobs")
    assert (row["outcome"], row["exit_code"], row["failures"]) == ("failed", 3, 1)


def test_a_tick_between_two_attempts(store: Store, host: Oncecron) -> None:
    """It has failed and goes on: neither given up nor at an end."""
    host.run("billing", "--tick", "t0", "--", "true")
    firing = host.fire(
        "billing", "--retries", 1, "--retry-delay", "300s..300s", "--tick", "t1", "--", "false"
    )
    text = told_with("another attempt follows", host, "billing")
    assert "host-a keeps the lease and retries after the delay." in text
    assert answer(host, "history", "--exhausted") == []
    [row] = answer(host, "jobs")
    assert (row["outcome"], row["running_on"]) == ("succeeded", ["host-a"])
    assert kinds(host) == []
    firing.process.send_signal(signal.SIGTERM)
    firing.wait()


# Takeovers


def test_a_takeover(store: Store, new_host: Hosts, journal: Journal) -> None:
    """By whom, from whom, and why; the loss itself is a finding, the second start is none."""
    a, b = new_host("host-a"), new_host("host-b")
    words = ("billing", "--failover", "--tick", "t1")
    lost = a.fire(*words, "--ttl", TTL, "--", *job(journal, "--sleep", 120))
    journal.wait_for("start")
    standby = b.fire(*words, "--", "true")
    told_with("was running it", b, "billing")
    kill_tree(lost.process.pid)
    lost.wait()
    assert standby.wait().status == 0
    ends(store, "lost", "succeeded")
    text = told(b, "billing")
    assert text.startswith("Tick t1 of key billing succeeded on host-b.\n")
    assert "host-b took over from host-a with attempt 2 (pid " in text
    assert "the key's next run" not in text
    found = json.loads(b("audit", "--json").out)
    assert [each["finding"] for each in found] == ["no-end"], found
    [row] = answer(b, "jobs")
    assert (row["outcome"], row["successes"]) == ("succeeded", 1)


# Shards


def test_a_shard_without_a_start_is_found(ticks: Ticks) -> None:
    """Where another shard of its tick had one, a while ago."""
    ticks.alter(2, shards=3)
    found = json.loads(ticks.host("audit", "--json").out)
    assert [(each["finding"], each["tick"], each["shard"]) for each in found] == [
        *(("no-run", "t2", 1), ("no-run", "t2", 2))
    ]
    assert found[0]["reason"].startswith("shard 1/3 not started, and no skip is on record")
    facts = why(ticks.host, "billing", "--tick", "t2")
    assert facts["verdict"] == "incomplete"
    assert facts["account"][0].endswith("3 shards: 1 succeeded (0), 2 not started (1-2).")
