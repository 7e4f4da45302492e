"""`oncecron jobs`: every key at a glance, by the installed console script."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from answers import answer, refused
from log_of import Store
from servers import eventually
from servers.oncecron import Oncecron
from servers.process import kill_tree
from terminals import on_a_terminal

Hosts = Callable[..., Oncecron]
JOB = [
    *("key", "outcome", "exit_code", "signal", "started_at", "succeeded_at", "failed_at"),
    *(
        *("running_on", "running_since", "successes", "failures", "usual_duration", "next_at"),
        *("overdue", "missed"),
    ),
    *("first_missed", "last_missed", "overruns", "silent_since", "paused_by", "paused_until"),
    *("paused_reason", "schedule", "zone", "progress", "settled", "state"),
    *("forgotten_at", "forgotten_by", "retired", "stopped_by", "host", "lease", "slow"),
    *("tick", "catching_up", "first_caught_up", "place"),
]


@pytest.fixture
def cluster(store: Store, new_host: Hosts) -> Oncecron:
    """Three keys with a little past."""
    a, b = new_host("host-a"), new_host("host-b")
    for number, command in enumerate(("true", "false", "false")):
        a.run("billing", "--tick", f"t{number}", "--", command)
        b.run("billing", "--tick", f"t{number}", "--", command)
    a.run("report", "--schedule", "30 2 * * *", "--tz", "UTC", "--", "true")
    b.run("never", "--tick", "t", "--", "/no/such/program")
    eventually(lambda: [each.outcome for each in store.executions("report")] == ["succeeded"])
    eventually(lambda: len(store.executions("billing")) == 3)
    return a


@pytest.mark.quick
def test_every_key_is_told_at_a_glance(store: Store, cluster: Oncecron) -> None:
    """Every published field, on every store."""
    billing, never, report = answer(cluster, "jobs", "--utc")
    assert list(billing) == JOB
    assert [each["key"] for each in (billing, never, report)] == ["billing", "never", "report"]
    assert (billing["outcome"], billing["exit_code"], billing["failures"]) == ("failed", 1, 2)
    assert billing["succeeded_at"] < billing["started_at"]
    assert billing["next_at"] is None
    assert (report["outcome"], report["successes"], report["failures"]) == ("succeeded", 1, 0)
    assert (report["schedule"], report["zone"]) == ("30 2 * * *", "UTC")
    due = datetime.fromisoformat(report["next_at"])
    assert (due.hour, due.minute) == (2, 30)
    assert due > datetime.now(UTC)
    assert 0 <= report["usual_duration"] < 30
    assert all(value in ("never", None, 0, []) for value in never.values())
    assert [each["host"] for each in (billing, never, report)] == ["host-a", None, "host-a"]
    assert [each["state"] for each in (billing, never, report)] == ["failed", None, "ok"]
    assert answer(cluster, "jobs", "report", "billing", "--utc") == [billing, report]
    refused(
        cluster("jobs", "report", "repot"), 66, "no host has fired key repot; did you mean report?"
    )


def test_what_is_wrong_comes_first_for_a_person(cluster: Oncecron) -> None:
    """On a terminal, with a mark. In a pipe keys stay in their order, and so in JSON on a terminal."""
    cluster.run("zulu", "--tick", "t", "--", "false")
    seen = [
        line.split() for line in on_a_terminal(cluster, "jobs", NO_COLOR="1")[0].splitlines()[1:]
    ]
    assert [line[:3] for line in seen[:2]] == [["billing", "✗", "failed"], ["zulu", "✗", "failed"]]
    assert [line[:3] for line in seen[2:]] == [
        *(["never", "-", "-"], ["report", "✓", "ok"], ["times", "in", "Etc/UTC"]),
        ["2", "failed", "of"],
    ]
    piped = [line.split()[:2] for line in cluster("jobs").out.decode().splitlines()[1:]]
    assert piped == [["billing", "failed"], ["never", "-"], ["report", "ok"], ["zulu", "failed"]]
    shown, _ = on_a_terminal(cluster, "jobs", "--json")
    assert [each["key"] for each in json.loads(shown)] == [key for key, _ in piped]


def first_words(shown: str) -> list[str]:
    """Return what stands first in each line of a table and below it, without the heading."""
    return [line.split()[0] for line in shown.splitlines()[1:]]


def test_what_matters_most_stays_on_the_screen(cluster: Oncecron) -> None:
    """Where there are more keys than lines, it comes last. What comes first by time is another order."""
    cluster.run("zulu", "--schedule", "* * * * *", "--tz", "UTC", "--", "false")
    around = ["times", "2"]
    shown, _ = on_a_terminal(cluster, "jobs", NO_COLOR="1", lines=8)
    assert first_words(shown) == ["billing", "zulu", "never", "report", *around]
    shown, _ = on_a_terminal(cluster, "jobs", NO_COLOR="1", lines=7)
    assert first_words(shown) == ["never", "report", "billing", "zulu", *around]
    assert shown.splitlines()[-1] == "2 failed of 4 keys"
    shown, _ = on_a_terminal(cluster, "jobs", "--wrong", NO_COLOR="1", lines=7)
    assert first_words(shown) == ["billing", "zulu", *around]
    assert [each["key"] for each in answer(cluster, "jobs", "--wrong")] == ["billing", "zulu"]
    coming = ["zulu", "report", "billing", "never"]
    assert [each["key"] for each in answer(cluster, "jobs", "--next")] == coming
    shown, _ = on_a_terminal(cluster, "jobs", "--next", NO_COLOR="1", lines=7)
    assert shown.split()[0] == "NEXT"
    last = shown.splitlines()[4]
    assert " zulu " in last
    for command, other, few in (("timeline", "report", 7), ("check", "zulu", 4)):
        for lines, first in ((24, "billing"), (few, other)):
            shown, _ = on_a_terminal(cluster, command, NO_COLOR="1", lines=lines)
            names = [word for word in shown.split() if word in ("billing", other)]
            assert names[0] == first, shown


def test_that_nothing_runs_is_said_below_the_keys(new_host: Hosts) -> None:
    """At once, though each key is well, and with what ends it."""
    host = new_host("host-a")
    host.run("k", "--tick", "1", "--", "true")
    assert "the only host" not in on_a_terminal(host, "jobs")[0]
    assert host("drain", "--reason", "a move").status == 0
    for command in (("jobs",), ("jobs", "--wrong")):
        shown = " ".join(on_a_terminal(host, *command, NO_COLOR="1")[0].split())
        assert "the only host is drained by " in shown
        assert (
            ": a move; nothing runs; to end it: `oncecron undrain host-a` nothing else is wrong with 1 key"
            in shown
        )
    assert "drained" not in host("jobs").out.decode()


def test_what_a_dead_host_holds_does_not_run(store: Store, new_host: Hosts) -> None:
    """Until its lease ends, all say of it what `locks` says."""
    host = new_host("host-a")
    firing = host.fire("k", "--tick", "t", "--ttl", "15s", "--", "sleep", "60")
    firing.job()
    # A log beside the store is told later.
    eventually(lambda: [job["state"] for job in answer(host, "jobs")] == ["running"])
    kill_tree(firing.process.pid)
    firing.wait()
    eventually(lambda: answer(host, "locks")[0]["state"] != "held")
    eventually(lambda: say_all_the_same(host))  # the lease may end between two of them
    assert answer(host, "history")[0]["outcome"] == "running"  # what is on record


def say_all_the_same(host: Oncecron) -> bool:
    """Check that all commands say of a key with an abandoned lease what `locks` says of it."""
    [lease], [job] = answer(host, "locks"), answer(host, "jobs")
    assert lease["state"] in ("orphaned", "stale")
    assert (job["state"], job["lease"], job["outcome"]) == (lease["state"],) * 3
    why = json.loads(host("why", "k", "--json").out)
    assert why["verdict"] == lease["state"]
    assert f"and the lease is {lease['state']}: the host probably died" in why["account"][-1]
    [row] = answer(host, "timeline", "k")
    assert row["outcome"] == lease["state"]
    shown, _ = on_a_terminal(host, "history", NO_COLOR="1")
    assert f" {lease['state']} " in shown
    return True
