"""Whatever happens to wrapper and guard: the whole tree is dead before anybody else starts.

Each fault is done to five kinds of tree at once, every one a key of its own, while another host fires newer
ticks of all of them. What lived when is judged by the lines that the processes of the trees wrote.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL

import pytest
from log_of import LoggedRedis, Record, Store
from servers import Journal, assert_exclusive, eventually, job
from servers.oncecron import Ended, Firing, Oncecron
from servers.process import process_table, read_process

pytestmark = pytest.mark.own_log  # a stopped or killed guard tells no log

TTL = 6
STORM = Path(__file__).resolve().parent.parent / "children" / "storm.py"
LIVE = ("--beats", "--ignore-term", "--sleep", 60)
PACE = 0.4  # between two firings of the other host: ten loops on two cores
TREES: dict[str, Callable[[Journal], list[str]]] = {
    "ignores-term": lambda journal: job(journal, *LIVE),
    "below-a-shell": lambda journal: ["sh", "-c", '"$@"; true', "sh", *job(journal, *LIVE)],
    "grandchild-left-the-session": lambda journal: job(journal, *LIVE, "--setsid-grandchild"),
    "forked-twice": lambda journal: job(journal, *LIVE, "--fork"),
    "fork-storm": lambda journal: [
        *(os.path.realpath(sys.executable), "-S", "-E"),
        *(str(STORM), str(journal.path), "60"),
    ],
}
PROCESSES = {"grandchild-left-the-session": 2, "forked-twice": 2, "fork-storm": 3}


class Trees:
    """One running firing for each kind of tree, on host-a."""

    def __init__(
        self, host: Oncecron, new_journal: Callable[[str], Journal], *options: object
    ) -> None:
        self.journals = {kind: new_journal(kind) for kind in TREES}
        self.firings: dict[str, Firing] = {}
        for kind, command in TREES.items():
            arguments = (
                "--ttl",
                TTL,
                "--tick",
                "one",
                *options,
                "--",
                *command(self.journals[kind]),
            )
            self.firings[kind] = host.fire(kind, *arguments)
        for kind, journal in self.journals.items():
            journal.wait_for("start", PROCESSES.get(kind, 1), 20)

    def send(self, number: int, to: str) -> None:
        """Send a signal to all wrappers or to all guards."""
        for firing in self.firings.values():
            process = firing.wrapper if to == "wrapper" else firing.guard()
            os.kill(process.pid, number)

    def ended(self) -> list[Ended]:
        return [firing.wait() for firing in self.firings.values()]


def overtake(host: Oncecron, journals: dict[str, Journal], deadline: float = 5 * TTL) -> None:
    """Fire newer ticks of all keys, as cron minute by minute, until each has run on this host."""
    waiting = dict(journals)
    firings: dict[str, tuple[Firing, float]] = {}
    number = 0
    end = time.monotonic() + deadline
    while waiting:
        assert time.monotonic() < end, f"no newer tick ran within {deadline} s: {set(waiting)}"
        for key, journal in list(waiting.items()):
            firing, since = firings.get(key, (None, 0.0))
            if firing and firing.process.poll() is not None:
                ended = firing.wait()
                assert (ended.status, ended.out, ended.err) == (0, b"", ""), key
                firing = None
                if host.environment["ONCECRON_HOST"] in {line.host for line in journal.starts()}:
                    del waiting[key]
                    continue
            if firing is None and time.monotonic() - since > PACE:
                number += 1
                command = job(journal, "--beats", "--sleep", 0.1)
                firing = host.fire(key, "--ttl", TTL, "--tick", f"next-{number}", "--", *command)
                firings[key] = firing, time.monotonic()
        time.sleep(0.02)  # between two looks at ten processes


def assert_nobody_overlapped(journals: dict[str, Journal]) -> None:
    """Fail if a line of a first tree was written after the other host's start, or is being written."""
    for journal in journals.values():
        assert_exclusive(journal)
        assert {run.first.host for run in journal.runs()} == {"host-a", "host-b"}


def first_records(store: Store) -> dict[str, Record]:
    """Return what the log says of the first execution of each key."""
    return {kind: store.executions(kind)[0] for kind in TREES}


@pytest.mark.turns(2, "trees")
@pytest.mark.quick
def test_a_killed_wrapper_takes_its_tree_along(
    store: Store, new_host: Callable[..., Oncecron], new_journal: Callable[[str], Journal]
) -> None:
    """Kill -9 of the wrapper: TERM, KILL after the grace, `stopped`, and only then the next tick."""
    trees = Trees(new_host(), new_journal, "--grace", "3s")
    trees.send(signal.SIGKILL, "wrapper")
    overtake(new_host("host-b"), trees.journals)
    assert_nobody_overlapped(trees.journals)
    for kind, record in first_records(store).items():
        assert record.outcome == "stopped", kind
        assert record.note == "the oncecron process that cron started was killed"
    assert trees.journals["ignores-term"].runs()[0].signals == ["TERM"]
    for kind in ("grandchild-left-the-session", "forked-twice"):
        told = {line.pid for line in trees.journals[kind].lines() if line.detail == "TERM"}
        assert told >= _left_behind(trees.journals[kind])
    assert [ended.status for ended in trees.ended()] == [-signal.SIGKILL] * len(TREES)


@pytest.mark.turns(2, "trees")
def test_a_killed_guard_leaves_no_process_and_a_lease_that_expires(
    store: Store, new_host: Callable[..., Oncecron], new_journal: Callable[[str], Journal]
) -> None:
    """Kill -9 of the guard: the wrapper kills the tree at once, 75; the lease keeps others out to its end."""
    trees = Trees(new_host(), new_journal)
    renewed = {kind: eventually(lambda k=kind: store.heartbeat(k)) for kind in TREES}
    killed_at = time.monotonic()
    trees.send(signal.SIGKILL, "guard")
    for ended in trees.ended():
        assert ended.status == 75
        assert ended.err.count("\n") == 1
        assert "the oncecron guard was killed; the command was killed" in ended.err
    for journal in trees.journals.values():
        assert journal.runs()[0].last_sign < killed_at + TTL * 0.7, "it lived to its lease's end"
    overtake(new_host("host-b"), trees.journals)
    assert_nobody_overlapped(trees.journals)
    for kind, journal in trees.journals.items():
        rival = journal.runs()[-1].started - time.monotonic() + time.time()
        assert rival > renewed[kind] + TTL - 0.5, "not before the lease had ended"
    _assert_delivered_as_lost(
        store, new_host(), "guard-killed", "the oncecron guard was killed: the command was killed"
    )


@pytest.mark.turns(2, "trees")
def test_a_stopped_guard_is_ended_before_its_lease(
    store: Store, new_host: Callable[..., Oncecron], new_journal: Callable[[str], Journal]
) -> None:
    """SIGSTOP of the guard beyond the ttl: the wrapper kills guard and tree before trust ends, 75, `lost`."""
    trees = Trees(new_host(), new_journal)
    trees.send(signal.SIGSTOP, "guard")
    stopped_at = time.monotonic()
    overtake(new_host("host-b"), trees.journals)
    assert_nobody_overlapped(trees.journals)
    for ended in trees.ended():
        assert ended.status == 75
        assert (
            "the oncecron guard did not stop the command in time; the command was killed"
            in ended.err
        )
    for journal in trees.journals.values():
        assert journal.runs()[0].last_sign < stopped_at + TTL
        assert journal.runs()[0].signals == []
    _assert_delivered_as_lost(
        store,
        new_host(),
        "guard-hung",
        "the oncecron guard did not stop the command in time: the command was killed",
    )


@pytest.mark.turns(2, "trees")
def test_a_stopped_wrapper_does_not_disturb_its_tree(
    store: Store, new_host: Callable[..., Oncecron], new_journal: Callable[[str], Journal]
) -> None:
    """SIGSTOP of the wrapper beyond the ttl: the guard renews, keeps others out, and ends what timed out."""
    trees = Trees(new_host(), new_journal, "--timeout", "16s", "--grace", "0.5s")
    trees.send(signal.SIGSTOP, "wrapper")
    stopped_at = time.monotonic()
    overtake(new_host("host-b"), trees.journals, deadline=40)
    assert_nobody_overlapped(trees.journals)
    for kind, journal in trees.journals.items():
        assert journal.runs()[0].last_sign > stopped_at + TTL, kind
        assert {skip.reason for skip in store.skips(kind)} == {"held"}
        assert {skip.holder_host for skip in store.skips(kind)} == {"host-a"}
    assert {record.outcome for record in first_records(store).values()} == {"timed-out"}
    trees.send(signal.SIGCONT, "wrapper")
    assert [ended.status for ended in trees.ended()] == [124] * len(TREES)


def test_both_killed_at_once(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal
) -> None:
    """The direct child dies with them, the lease keeps others out until it expires, then the next tick runs."""
    firing = new_host().fire("k", "--ttl", TTL, "--tick", "one", "--", *job(journal, *LIVE))
    journal.wait_for("start")
    renewed = eventually(lambda: store.heartbeat("k"))
    both = [firing.guard().pid, firing.wrapper.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: neither sees the other's end
        for pid in both:
            os.kill(pid, number)
    firing.wait()
    overtake(new_host("host-b"), {"k": journal})
    assert_exclusive(journal)
    first, second = journal.runs()
    assert second.started - time.monotonic() + time.time() > renewed + TTL - 0.5
    assert first.last_sign < second.started - 2, "it died with its guard, not with its lease"
    assert store.executions("k")[0].outcome == "lost"


@pytest.mark.turns(1)
@pytest.mark.parametrize("leaves", ["--fork", "--setsid-grandchild"])
def test_what_a_successful_command_leaves_running_is_left_alone(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal, leaves: str
) -> None:
    """A daemon that was started on purpose outlives the run, and the key is free."""
    command = job(journal, leaves, "--sleep", 0.3)
    firing = new_host().start(  # to no pipe, whose end would come with the survivor's
        *("run", "--key", "k", "--tick", "one", "--", *command), stdout=DEVNULL, stderr=DEVNULL
    )
    assert firing.process.wait(30) == 0
    [survivor] = [line for line in journal.wait_for("start", 2) if line.detail != "job"]
    after = time.monotonic()
    try:
        journal.wait_for("beat", where=lambda line: line.pid == survivor.pid and line.time > after)
        ended = new_host("host-b").run("k", "--tick", "two", "--", "true")
        assert (ended.status, ended.err) == (0, "")
        assert [record.outcome for record in store.executions("k")] == ["succeeded", "succeeded"]
        journal.wait_for("beat", where=lambda line: line.time > after + 0.5)
    finally:
        os.kill(survivor.pid, signal.SIGKILL)


@pytest.mark.turns(1)
@pytest.mark.parametrize("how", ["failed", "stopped", "timed-out"])
def test_what_a_failed_command_leaves_running_is_ended_first(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal, how: str
) -> None:
    """Its tree is TERMed, then KILLed, and only then is the lease released."""
    options = {"timed-out": ("--timeout", "4s")}.get(how, ())
    sleep = 0.3 if how == "failed" else 60
    command = job(journal, "--fork", "--setsid-grandchild", "--sleep", sleep, "--exit", 3)
    firing = new_host().fire("k", "--tick", "one", "--grace", "2s", *options, "--", *command)
    journal.wait_for("start", 3)
    if how == "stopped":
        os.kill(firing.wrapper.pid, signal.SIGTERM)
    ended_line = journal.wait_for("end")[0]
    overtake(new_host("host-b"), {"k": journal})
    assert_exclusive(journal)
    assert firing.wait().status == {"failed": 3, "stopped": 143, "timed-out": 124}[how]
    assert store.executions("k")[0].outcome == how
    told = [line for line in journal.lines() if line.kind == "signal" and line.host == "host-a"]
    assert {line.pid for line in told if line.detail == "TERM"} >= _left_behind(journal)
    last = journal.runs()[0].last_sign
    assert last > ended_line.time + 1, "what is left has had its grace"


def test_a_stopped_process_of_the_tree_is_ended_too(host: Oncecron, journal: Journal) -> None:
    """A job that was stopped by SIGSTOP gets its TERM, and a CONT behind it so that it can obey."""
    firing = host.fire("k", "--timeout", "4s", "--grace", "60s", "--", *job(journal, "--sleep", 60))
    job_line = journal.wait_for("start")[0]
    os.kill(job_line.pid, signal.SIGSTOP)
    eventually(lambda: (p := read_process(job_line.pid)) and p.state == "T")
    assert firing.wait().status == 124
    assert journal.runs()[0].end is not None


def test_nothing_is_left_when_oncecron_says_that_it_has_ended(
    host: Oncecron, new_journal: Callable[[str], Journal]
) -> None:
    """When the exit status of a job that timed out is there, no process of any tree is."""
    trees = Trees(host, new_journal, "--timeout", "4s", "--grace", "0.2s")
    trees.ended()
    written = {line.pid for journal in trees.journals.values() for line in journal.lines()}
    assert not [process for process in process_table() if process.pid in written]


def _left_behind(journal: Journal) -> set[int]:
    lines = [line for line in journal.lines() if line.host == "host-a"]
    return {line.pid for line in lines if line.kind == "start" and line.detail != "job"}


def _assert_delivered_as_lost(store: Store, host: Oncecron, reason: str, note: str) -> None:
    """Fail unless the loss is in the log, and its story too once its host has delivered it."""
    found_by = "superseded" if isinstance(store, LoggedRedis) else "expired"
    for kind, record in first_records(store).items():
        assert (record.outcome, record.lost_reason) == ("lost", found_by), kind
    for kind in TREES:
        assert host.run(kind, "--tick", "later", "--", "true") == Ended(0, b"", "")
    for kind, record in first_records(store).items():
        assert (record.outcome, record.lost_reason) == ("lost", reason), kind
        assert note in (record.note or ""), kind
        assert record.signal == signal.SIGKILL
