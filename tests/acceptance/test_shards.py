"""Parts of a tick, taken by several hosts side by side."""

import os
import signal
from collections.abc import Callable

import pytest
from log_of import Store
from servers import Journal, assert_exclusive, assert_tokens_rise, eventually, job
from servers.oncecron import Ended, Oncecron
from servers.process import kill_tree

Hosts = Callable[..., Oncecron]
FOUR = ("--shards", 4)
ROWS = 40


def parts(journal: Journal) -> list[str]:
    return sorted(line.shard for line in journal.starts())


def test_one_host_runs_all_parts_one_after_another(
    store: Store, host: Oncecron, journal: Journal
) -> None:
    """Each once, told which it is; then the tick is done."""
    script = 'echo "$ONCECRON_SHARD/$ONCECRON_SHARDS"'
    told = host.run("k", "--tick", "one", *FOUR, "--", "sh", "-c", script)
    assert (told.status, sorted(told.out.split())) == (0, [b"0/4", b"1/4", b"2/4", b"3/4"])
    assert [row.outcome for row in store.executions("k")] == ["succeeded"] * 4
    again = host.run("k", "--tick", "one", *FOUR, "--skip-exit", 9, "--", "echo", "no")
    assert again == Ended(9, b"", "")
    host.run("k", "--tick", "two", *FOUR, "--", *job(journal, "--beats", "--sleep", 0.1))
    runs = journal.runs()
    ends = [run.last_sign for run in runs]
    assert all(run.started > end for run, end in zip(runs[1:], ends, strict=False))


def test_each_part_has_the_same_input_or_is_left_to_others(store: Store, host: Oncecron) -> None:
    """The next one would find nothing in a pipe that the first one has read, and succeed."""
    reader, writer = os.pipe()
    os.write(writer, b"12345")
    counts = ("--", "sh", "-c", "cat | wc -c")
    run = ("run", "--key", "k", *FOUR)
    firing = host.start(*run, "--tick", "open", *counts, stdin=reader)
    firing.job()
    os.write(writer, b"6789")
    os.close(writer)
    told = firing.wait()
    assert (told.status, told.out) == (78, b"9\n")
    assert " is not started here: an earlier start may have read the " in told.err
    assert [row.outcome for row in store.executions("k")] == ["succeeded", "not-started"]
    assert host(*run, "--tick", "open", *counts).out == b"0\n" * 3  # of another input
    reader, writer = os.pipe()
    os.write(writer, b"12345")
    os.close(writer)
    assert host(*run, "--tick", "over", *counts, stdin=reader) == Ended(0, b"5\n" * 4, "")


@pytest.mark.quick
def test_hosts_share_the_parts(store: Store, new_host: Hosts, journal: Journal) -> None:
    """Four parts on three hosts: each is started once, and each row of mod(id, 4) is handled once."""
    names = ("host-a", "host-b", "host-c")
    rows = f"for i in $(seq 0 {ROWS - 1}); do [ $((i % $ONCECRON_SHARDS)) = $ONCECRON_SHARD ] && echo $i; done; "
    command = ("sh", "-c", rows + " ".join(job(journal, "--beats", "--sleep", 1.5)))
    firings = [new_host(name).fire("k", "--tick", "one", *FOUR, "--", *command) for name in names]
    told = [firing.wait(60) for firing in firings]
    assert [end.status for end in told] == [0, 0, 0]
    handled = sorted(int(row) for end in told for row in end.out.split())
    assert handled == list(range(ROWS))
    assert parts(journal) == ["0", "1", "2", "3"]
    assert len({line.host for line in journal.starts()}) > 1
    assert_exclusive(journal)
    assert_tokens_rise(journal)


def test_the_status_is_that_of_the_first_part_that_failed(any_store: Store, host: Oncecron) -> None:
    """A part that fails does not keep the others from running; those that follow do not change the status."""
    script = "echo; [ $ONCECRON_SHARD != 2 ] || exit 7"
    told = host.run("k", "--tick", "one", *FOUR, "--", "sh", "-c", script)
    assert (told.status, told.out) == (7, b"\n" * 4)
    outcomes = sorted(row.outcome for row in any_store.executions("k"))
    assert outcomes == ["failed", "succeeded", "succeeded", "succeeded"]


def test_a_signal_ends_the_firing_and_not_only_a_part(host: Oncecron, journal: Journal) -> None:
    """TERM means the whole run, also for a job that ends with 0 then; the other parts stay free."""
    script = "trap 'exit 0' TERM; " + " ".join(job(journal, "--sleep", 60)) + " & wait"
    firing = host.fire("k", "--tick", "one", *FOUR, "--", "sh", "-c", script)
    journal.wait_for("start")
    os.kill(firing.process.pid, signal.SIGTERM)
    firing.wait()
    assert len(journal.starts()) == 1
    assert host.run("k", "--tick", "one", *FOUR, "--", "echo", "ran").out == b"ran\n" * 3


def test_a_lost_part_is_taken_over_alone(store: Store, new_host: Hosts, journal: Journal) -> None:
    """A host dies in one part; the others are run once, that one twice."""
    options = ("--tick", "one", *FOUR, "--failover")
    command = job(journal, "--beats", "--sleep", 60)
    holder = new_host().fire("k", *options, "--ttl", 6, "--", *command)
    [lost] = journal.wait_for("start")
    others = [
        new_host(name).fire("k", *options, "--", *job(journal, "--beats", "--sleep", 0.2))
        for name in ("host-b", "host-c")
    ]
    journal.wait_for("end", 3, 40)
    eventually(
        lambda: {s.host for s in store.skips("k") if s.reason == "held"} == {"host-b", "host-c"}, 20
    )
    kill_tree(holder.process.pid)
    holder.wait()
    assert [firing.wait(40).status for firing in others] == [0, 0]
    assert parts(journal) == sorted(["0", "1", "2", "3", lost.shard])
    assert_exclusive(journal, attempts=True)
    assert_tokens_rise(journal)
    assert sorted(row.outcome for row in store.executions("k")) == ["lost", *["succeeded"] * 4]


def test_what_a_successful_part_has_left_is_no_part_of_the_next_ones(
    any_store: Store, host: Oncecron, journal: Journal
) -> None:
    """It lives on while others fail, are tried again and stopped, and none of them waits for it."""
    mark = f"{journal.path}.first"
    daemon = " ".join(job(journal, "--beats", "--sleep", 60))
    script = f"mkdir {mark} 2>/dev/null && {{ setsid {daemon} >/dev/null 2>&1 & exit 0; }}; exit 3"
    options = ("--retries", 1, "--retry-delay", "10ms", "--grace", "1h")
    told = host.run("k", "--tick", "one", *FOUR, *options, "--", "sh", "-c", script)
    assert told.status == 3
    outcomes = [row.outcome for row in any_store.executions("k")]
    assert outcomes == ["succeeded", *["failed"] * 6]
    [line] = journal.wait_for("start")
    os.kill(line.pid, signal.SIGKILL)
    assert "TERM" not in journal.runs()[0].signals
