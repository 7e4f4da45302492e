"""Pausing and draining by the installed console script: on every store."""

import getpass
from collections.abc import Callable
from pathlib import Path

from answers import answer, refused
from log_of import LoggedRedis, Store
from servers import RedisServer
from servers.oncecron import Oncecron

ME = f"{getpass.getuser()}@host-a"


def said(host: Oncecron, *words: object) -> str:
    """Return what a command that succeeds says, and nothing on standard error."""
    ended = host(*words)
    assert (ended.status, ended.err) == (0, "")
    return ended.out.decode()


def reasons(store: Store) -> list[tuple[str, str]]:
    return [(skip.tick, skip.reason) for skip in store.skips("k")]


def test_pause_and_resume(store: Store, host: Oncecron, operator: Oncecron) -> None:
    """Nothing runs and nothing is said to cron; who and why is in the log; the next tick runs."""
    host.run("k", "--tick", "t1", "--", "true")
    told = said(operator, "pause", "k", "--for", "2h", "--reason", "moving house")
    assert told.startswith("paused k until 2")
    ended = host.run("k", "--tick", "t2", "--", "echo", "ran")
    assert (ended.status, ended.out, ended.err) == (0, b"", "")
    loud = host.run("k", "-v", "--tick", "t2", "--", "echo", "ran")
    assert f"by {ME}: moving house; resume it: `oncecron resume k --store " in loud.err
    assert said(operator, "resume", "k").startswith(f"resumed k; it was paused by {ME} since ")
    assert said(operator, "resume", "k") == "k was not paused\n"
    refused(operator("pause", "j"), 66, "no host has fired key j", "`oncecron pause j --new")
    assert said(operator, "resume", "--all") == "there is no pause of all keys to end\n"
    assert host.run("k", "--tick", "t3", "--", "echo", "ran").out == b"ran\n"
    assert reasons(store) == [("t2", "paused")]
    assert [row.tick for row in store.executions("k")] == ["t1", "t3"]
    if not isinstance(store, LoggedRedis):
        [skip] = answer(host, "history", "--skips")
        assert (skip["reason"], skip["detail"]) == ("paused", f"by {ME}: moving house")


def test_pauses_live_in_the_store_alone(store: Store, host: Oncecron, operator: Oncecron) -> None:
    """Where there is a log beside it, its copies of refusals tell who and why."""
    host.run("k", "--tick", "t1", "--", "true")
    said(operator, "pause", "k", "--reason", "moving")
    host.run("k", "--tick", "t2", "--", "true")
    [skip] = answer(host, "history", "--skips")
    assert (skip["reason"], skip["detail"]) == ("paused", f"by {ME}: moving")
    if isinstance(store, LoggedRedis):
        log = Oncecron(host.environment["ONCECRON_LOG"], Path(host.environment["HOME"]))
        assert answer(log, "locks", "--pauses") == []


def test_drain_and_undrain(
    store: Store, host: Oncecron, operator: Oncecron, new_host: Callable[..., Oncecron]
) -> None:
    """The host itself or a named one; the others run its ticks."""
    other = new_host("host-b")
    host.run("k", "--tick", "t1", "--", "true")
    assert said(operator, "drain").startswith("drained host-a until `oncecron undrain host-a")
    told = said(operator, "drain", "--until", "tomorrow 06:00", "--reason", "new disk")
    assert told.startswith("drained host-a until 2")
    assert "06:00:00" in told
    assert f"; it was drained by {ME} since " in told
    refused(
        operator("drain", "host-c"), 66, "host-c has fired no key", "`oncecron drain host-c --new"
    )
    assert operator("drain", "host-c", "--new").status == 0
    assert [each["host"] for each in answer(operator, "locks", "--pauses")] == ["host-a", "host-c"]
    assert host.run("k", "--tick", "t2", "--", "echo", "ran").out == b""
    assert other.run("k", "--tick", "t2", "--", "echo", "ran").out == b"ran\n"
    told = said(operator, "undrain")
    assert told.startswith(f"undrained host-a; it was drained by {ME} since ")
    assert told.endswith(": new disk\n")
    assert said(operator, "undrain", "host-d") == "host-d was not drained; did you mean host-c?\n"
    assert host.run("k", "--tick", "t3", "--", "echo", "ran").out == b"ran\n"
    assert reasons(store) == [("t2", "drained")]


def test_the_end_is_told_in_one_way(operator: Oncecron) -> None:
    """And it is to come."""
    refused(operator("pause", "k", "--for", "1h", "--until", "06:00"), 64, "leave one out")
    refused(operator("drain", "--until", "2020-01-01"), 64, "is over; write a time to come")


def test_a_store_that_is_not_there_is_not_made(host: Oncecron) -> None:
    """Nobody can pause in a store without a schema."""
    refused(host("pause", "k"), 78, "oncecron init")


def test_a_pause_that_no_replica_has_is_told(redis_server: RedisServer, public_path: Path) -> None:
    """A failover would forget it: 69, and what to do."""
    host = Oncecron(f"{redis_server.url()}?wait=1", public_path)
    refused(
        host("pause", "k", "--new"),
        69,
        "only 0 of 1 replicas (?wait=) have it",
        "run the command again",
    )
    assert [each["key"] for each in answer(host, "locks", "--pauses")] == ["k"]
