"""What people read, by the installed console script: history and locks."""

import itertools
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from answers import answer, refused
from log_of import Store
from servers import Database, Journal, eventually, job, skewed
from servers.oncecron import CONSOLE_SCRIPT, Ended, Firing, Oncecron
from terminals import on_a_terminal

from oncecron.core.model import owner_digest

# As the manual publishes them.
EXECUTION = [
    *("execution_id", "key", "shard", "tick", "attempt", "outcome", "exit_code", "signal", "host"),
    *("pid", "user", "command", "started_at", "finished_at", "duration", "fencing_token"),
    *("owner", "note", "shards", "cause", "lost_reason", "request", "requested_by", "place"),
]


# history


def test_history_tells_what_was_run_the_newest_first(past: Oncecron) -> None:
    """Every published field, on every store."""
    killed, failed, succeeded = answer(past, "history")
    assert list(killed) == EXECUTION
    assert succeeded["outcome"] == "succeeded"
    assert failed["outcome"] == killed["outcome"] == "failed"
    assert (failed["exit_code"], failed["signal"]) == (3, None)
    assert (killed["exit_code"], killed["signal"]) == (None, 9)
    assert (failed["host"], failed["tick"], failed["attempt"]) == ("host-b", "t2", 1)
    assert shlex.split(failed["command"]) == ["sh", "-c", "exit 3", "two words"]
    started, finished = (datetime.fromisoformat(failed[n]) for n in ("started_at", "finished_at"))
    assert started.tzinfo is not None
    assert abs(time.time() - started.timestamp()) < 100
    assert 0 <= failed["duration"] <= (finished - started).total_seconds() + 1
    assert killed["fencing_token"] > 0


def test_no_command_shows_the_secret_of_a_lease(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Who knows the owner id of a living lease may end it."""
    host = new_host()
    firing = host.fire("k", "--tick", "one", "--", *job(journal, "--sleep", 30))
    journal.wait_for("start")
    running = eventually(lambda: store.executions("k")[0], retry_on=IndexError)
    shown = [
        host(command, *words, *how)
        for command, *words in (["history"], ["locks"], ["jobs"], ["why", "k"], ["audit"])
        for how in ((), ("--json",))
    ]
    assert running.owner not in "".join(ended.out.decode() + ended.err for ended in shown)
    [row] = answer(host, "history", "k")
    assert row["owner"] == owner_digest(running.owner)
    host("stop", "k", "--signal", "KILL")
    firing.wait()


def test_names_that_are_no_utf_8_are_shown_and_found(
    store: Store, new_host: Callable[..., Oncecron]
) -> None:
    r"""A host's name, a command, a filter: recorded with `\xff` for the byte."""
    host = new_host()
    host.environment["ONCECRON_HOST"] = os.fsdecode(b"h\xff")
    for _ in range(2):
        ended = host("run", "--key", "k", "--tick", "t", "--", "true", b"\xff")
        assert (ended.status, ended.out, ended.err) == (0, b"", "")
    [execution] = answer(host, "history", "--host", b"h\xff")
    assert (execution["host"], execution["command"]) == (r"h\xff", r"true '\xff'")
    [skip] = answer(host, "history", "--skips")
    assert (skip["host"], skip["holder_host"]) == (r"h\xff", r"h\xff")
    assert answer(host, "history", "--tick", r"\xff") == []
    refused(host("history", "--host", b"\xff"), 66, r"host \xff has fired no key")
    refused(host("history", b"\xff"), 64, "is not a valid key")


def test_a_tick_is_found_by_any_writing_of_its_instant(store: Store, host: Oncecron) -> None:
    """By the commands that run, list and explain it; what looks like a time and is none is refused by each."""
    first = ("2026-11-20T02:00:00Z", "2026-11-20T03:00:00+01:00", "2026-11-20 02:00Z")
    for name in first:
        host.run("k", "--tick", name, "--", "true")
        assert (
            host("each", "--key", "e", "--tick", name, "--items", "seq 2", "--", "true").status == 0
        )
    [execution] = answer(host, "history", "k", "--tick", first[1])
    assert execution["tick"] == "2026-11-20T02:00Z"
    [skip] = answer(host, "history", "--skips", "k", "--tick", first[2])
    assert (skip["reason"], skip["count"]) == ("done", 2)
    assert len(answer(host, "items", "e", "--tick", first[2])) == 2
    told = answer(host, "why", "k", "--tick", first[0])
    assert (told["tick"], told["verdict"]) == ("2026-11-20T02:00Z", "succeeded")
    for words in (("history",), ("items", "e"), ("run", "--key", "k"), ("each", "--key", "e")):
        command = ("--", "true") if words[0] in {"run", "each"} else ()
        refused(host(*words, "--tick", "2026-13-40T02:00Z", *command), 64, "no instant")


# On a terminal


def test_a_terminal_is_told_that_there_is_more(any_store: Store, host: Oncecron) -> None:
    """On standard error too; a pipe is not."""
    for number in range(51):
        host.run("many", "--tick", f"n{number}", "--", "true")
    assert len(any_store.executions("many")) == 51
    assert "add --limit 0 to show all" in on_a_terminal(host, "history", "many")[1]
    assert host("history", "many").err == ""


# Where the answer goes


def test_a_reader_who_leaves_is_no_error(past: Oncecron) -> None:
    """`| head -1` is quiet, also in the middle of a long answer."""
    commands = ("history", "history --json", "--help", "history --help", "completion bash", "locks")
    for command in (*commands, "jobs", "why billing", "audit"):
        script = f"{CONSOLE_SCRIPT} {command} | true; echo ${{PIPESTATUS[0]}} >&2"
        done = subprocess.run(
            ["bash", "-c", script], env=past.environment, capture_output=True, check=False
        )
        assert done.stderr == b"0\n"


def test_an_answer_that_cannot_be_written_is_an_error(past: Oncecron) -> None:
    """A full disk, a closed standard output."""
    wheres = ((">/dev/full", b"No space left"), (">&-", b"standard output is closed"))
    commands = ("history", "--version", "run --help")
    for command, (where, told) in itertools.product(commands, wheres):
        script = f"exec {CONSOLE_SCRIPT} {command} {where}"
        done = subprocess.run(
            ["sh", "-c", script], env=past.environment, capture_output=True, check=False
        )
        assert done.returncode == 74
        assert told in done.stderr
        assert done.stderr.count(b"\n") == 1


# --follow


class Followed:
    """`history --follow --format ndjson`, line by line."""

    def __init__(self, host: Oncecron, *arguments: str) -> None:
        self.firing: Firing = host.start("history", "--follow", "--format", "ndjson", *arguments)

    def next(self) -> tuple[str, str, str]:
        """Wait for the next record: key, tick, outcome."""
        assert self.firing.process.stdout is not None
        record = json.loads(self.firing.process.stdout.readline())
        return record["key"], record["tick"], record["outcome"]

    def next_end(self) -> tuple[str, str, str]:
        """Wait for the next line that tells of an end: a short job may have been seen while it ran."""
        line = self.next()
        return self.next() if line[2] == "running" else line

    def end(self) -> Ended:
        self.firing.process.send_signal(signal.SIGINT)
        return self.firing.wait()


def test_follow_shows_what_comes_and_what_changes(
    past: Oncecron, new_host: Callable[..., Oncecron], journal: Journal
) -> None:
    """The oldest first; a start, its end, and nothing twice; Ctrl-C ends it quietly."""
    followed = Followed(past)
    assert [followed.next() for _ in range(3)] == [
        ("billing", "t1", "succeeded"),
        ("billing", "t2", "failed"),
        ("report", "t2", "failed"),
    ]
    firing = past.fire("slow", "--tick", "s1", "--", *job(journal, "--sleep", 60))
    assert followed.next() == ("slow", "s1", "running")
    other = new_host("host-b")
    other.run("quick", "--tick", "q1", "--", "true")
    assert followed.next_end() == ("quick", "q1", "succeeded")
    firing.process.send_signal(signal.SIGTERM)
    assert followed.next() == ("slow", "s1", "stopped")
    assert firing.wait().status != 0
    ended = followed.end()
    assert (ended.status, ended.out, ended.err) == (130, b"", "")


def test_follow_keeps_to_what_is_asked_for(past: Oncecron) -> None:
    """An outcome is shown when it comes about."""
    followed = Followed(past, "billing", "--outcome", "failed", "--limit", "1")
    assert followed.next() == ("billing", "t2", "failed")
    past.run("report", "--tick", "t9", "--", "false")
    past.run("billing", "--tick", "t8", "--", "true")
    past.run("billing", "--tick", "t9", "--", "sh", "-c", "sleep 1.5; exit 1")
    assert followed.next() == ("billing", "t9", "failed")
    assert followed.end().out == b""


def test_follow_goes_on_where_time_is_faked(past: Oncecron) -> None:
    """Under libfaketime 0.9.10 time.sleep() fails."""
    past.environment = skewed(90, past.environment)
    followed = Followed(past, "--limit", "1")
    assert followed.next() == ("report", "t2", "failed")
    past.run("quick", "--tick", "q1", "--", "true")
    assert followed.next_end() == ("quick", "q1", "succeeded")
    assert followed.end().err == ""


# locks


def test_a_lease_that_nobody_renews_is_stale_while_history_says_running(
    database: Database, public_path: Path, journal: Journal
) -> None:
    """What history says is settled by the next claim; `locks` says it now."""
    host = Oncecron(database.url(), public_path)
    firing = host.fire("slow", "--tick", "s1", "--ttl", "12s", "--", *job(journal, "--sleep", 60))
    eventually(lambda: journal.runs() != [])
    [lease] = answer(host, "locks")
    assert lease["backend_pid"] > 0
    assert lease["client_address"] == "127.0.0.1"
    guard = firing.guard().pid
    os.kill(guard, signal.SIGSTOP)  # or it may notice that the wrapper is gone
    for pid in (firing.wrapper.pid, guard):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: answer(host, "locks")[0]["state"] == "orphaned")
    eventually(lambda: answer(host, "locks")[0]["state"] == "stale")
    assert answer(host, "history")[0]["outcome"] == "running"
    host.run("slow", "--tick", "s2", "--", "true")
    assert [each["outcome"] for each in answer(host, "history")] == ["succeeded", "lost"]


def test_a_lock_without_a_lease_is_told_with_its_holder(
    database: Database, public_path: Path
) -> None:
    """By the name that the holder gave its connection: a claim that hangs half-way."""
    host = Oncecron(database.url(), public_path)
    host.run("k", "--tick", "t", "--", "true")
    with database.connect(application_name="oncecron host-z/77 k") as connection:
        connection.execute(
            "select pg_advisory_lock('oncecron.job_key'::regclass::oid::int4, key_id) from oncecron.job_key"
        )
        [lease] = answer(host, "locks")
    assert (lease["state"], lease["host"], lease["pid"]) == ("stale", "host-z", 77)
    assert lease["execution_id"] is None
