"""Stopping and releasing by the installed console script: a holder that runs, is frozen, is cut off, or is dead."""

import getpass
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from answers import answer, refused
from breakable import start_breakable
from log_of import LoggedRedis, Store
from servers import Journal, assert_exclusive, eventually, job
from servers.journal import assert_tokens_rise
from servers.oncecron import SHORT_TTL, Ended, Firing, Oncecron
from servers.process import Process, kill_tree, send

TTL = SHORT_TTL
ME = f"{getpass.getuser()}@host-a"


class Running(NamedTuple):
    """A firing whose job has started."""

    firing: Firing
    journal: Journal
    job: Process

    def is_over(self) -> None:
        """Check that the job does not live any more, at this moment."""
        assert not self.job.alive()

    def freeze(self) -> None:
        """Stop the guard, which alone talks to the store."""
        send([self.firing.guard()], signal.SIGSTOP)

    def die(self) -> None:
        """Kill everything at once, as when the host loses its power."""
        kill_tree(self.firing.process.pid)
        self.firing.wait()


Start = Callable[..., Running]


@pytest.fixture
def start(host: Oncecron, journal: Journal) -> Start:
    """Give a function that fires on host-a: options of `run`; `of_job`: options of the job."""

    def begin(*options: object, of_job: tuple[object, ...] = ()) -> Running:
        command = job(journal, "--beats", "--sleep", 120, *of_job)
        ttl = () if "--ttl" in options else ("--ttl", 12)
        firing = host.fire("k", "--tick", "t1", *ttl, *options, "--", *command)
        journal.wait_for("start")
        return Running(firing, journal, firing.job())

    return begin


def ended(command: Ended, status: int = 0) -> str:
    """Return what a command says on standard output."""
    assert command.status == status, command
    return command.out.decode()


def outcomes(store: Store, number: int = 1) -> list[str]:
    """Wait until so many executions have ended, as a log beside the store is told later; return how."""

    def look() -> list[str]:
        found = [each.outcome for each in store.executions("k")]
        assert len(found) == number
        assert "running" not in found
        return found

    return eventually(look)


def wait_for_the_lease_s_end(host: Oncecron) -> None:
    """Wait until the only lease, which nobody renews any more, is over."""
    [lease] = answer(host, "locks")
    end = datetime.fromisoformat(lease["expires_at"]).timestamp()
    eventually(lambda: end < time.time(), 20)


def next_tick_runs(host: Oncecron, journal: Journal) -> None:
    """Check that nothing is in the way of another tick, and that no two jobs ever lived together."""
    command = job(journal)
    assert host.run("k", "--tick", "t2", "--", *command).status == 0
    assert journal.runs()[-1].first.tick == "t2"
    assert_exclusive(journal)
    assert_tokens_rise(journal)


# stop


@pytest.mark.quick
def test_a_running_job_is_stopped(
    store: Store, host: Oncecron, operator: Oncecron, start: Start
) -> None:
    """It gets the signal, its end is waited for, and the log says who asked; the next tick runs."""
    running = start("--retries", 3)
    done = operator("stop", "k")
    running.is_over()
    out = ended(done)
    assert out.startswith("k: execution ")
    assert "on host-a (pid " in out
    assert " has ended: stopped" in out
    assert f"oncecron: asked host-a (pid {running.firing.process.pid}) to stop k\n" in done.err
    assert done.err.endswith("oncecron: k on host-a ended: stopped\n")
    assert running.journal.runs()[0].signals == ["TERM"]
    asked = f"oncecron: key k: the command was stopped: {ME} asked for it\n"
    assert running.firing.wait().err == asked
    assert outcomes(store) == ["stopped"]
    [record] = store.executions("k")
    assert (record.request, record.requested_by) == ("stop", ME)
    assert f", as {ME} had asked" in host("why", "k").out.decode()
    next_tick_runs(host, running.journal)


def test_signal_and_grace_are_chosen(store: Store, operator: Oncecron, start: Start) -> None:
    """Not the run's own: what does not end by the signal is killed after the grace."""
    running = start("--grace", "100s", of_job=("--ignore-term",))
    done = operator("stop", "k", "--signal", "INT", "--grace", "2s")
    running.is_over()
    assert " has ended: stopped, by SIGKILL\n" in ended(done)
    assert "oncecron: acknowledged by host-a\n" in done.err
    assert running.journal.runs()[0].signals == ["INT"]
    running.firing.wait()


def test_what_is_not_running_is_no_fault(host: Oncecron) -> None:
    """Of a key that was never fired, which may be a wrong name, it is."""
    host.run("k", "--tick", "t1", "--", "true")
    for command, told in (
        ("stop", b"k is not running\n"),
        ("release", b"nothing to release: no host holds k\n"),
    ):
        done = host(command, "k")
        assert (done.status, done.out, done.err) == (0, told, "")
        refused(host(command, "kk"), 66, "no host has fired key kk", "did you mean k?")
        refused(host(command, ""), 64, "the key is empty")
        refused(host(command, "k", "--shard", "-1"), 64, "--shard")
    assert host("stop", "k", "--shard", 3).out == b"k shard 3 is not running\n"
    refused(host("stop", "k", "--signal", "STOP"), 64, "--signal")


def test_a_frozen_holder_is_waited_for(
    store: Store, host: Oncecron, operator: Oncecron, start: Start
) -> None:
    """It cannot hear; that is said, and its command is dead when its lease ends."""
    running = start("--ttl", TTL)
    running.freeze()
    done = operator("stop", "k")
    running.is_over()
    assert "oncecron: host-a has not renewed its lease since 2" in done.err
    assert ", and by then its command is dead unless both " in done.err
    assert "is lost: its lease expired at 2" in ended(done)
    next_tick_runs(host, running.journal)


def test_a_frozen_wrapper_does_not_matter(store: Store, operator: Oncecron, start: Start) -> None:
    """The guard hears and obeys."""
    running = start()
    send([running.firing.wrapper], signal.SIGSTOP)
    assert " has ended: stopped" in ended(operator("stop", "k"))
    running.is_over()
    send([running.firing.wrapper], signal.SIGCONT)
    running.firing.wait()


def test_a_dead_holder_is_told_and_released(
    store: Store, host: Oncecron, operator: Oncecron, start: Start
) -> None:
    """Not while its lease lives; then it is declared lost, by whom is recorded."""
    running = start("--ttl", 12)
    running.die()
    refused(operator("release", "k", "--force"), 75, "host-a", "--force needs an expired lease")
    done = operator("release", "k")
    assert (done.status, done.out) == (75, b"")
    assert "k is not released: host-a" in done.err
    assert "has not acknowledged the request; its lease lasts until 2" in done.err
    wait_for_the_lease_s_end(host)
    done = operator("stop", "k")
    assert "is gone: its lease expired at 2" in ended(done)
    assert "to release it now: `oncecron release k`" in done.out.decode()
    done = operator("release", "k")
    assert f"is recorded as lost by {ME}; its fencing token has risen\n" in ended(done)
    assert answer(host, "locks") == []
    if not isinstance(store, LoggedRedis):  # a log beside the store is not told of it
        assert outcomes(store) == ["lost"]
        [record] = store.executions("k")
        assert (record.lost_reason, ME in (record.note or "")) == ("released", True)
    next_tick_runs(host, running.journal)


def test_a_running_job_is_released(
    store: Store, host: Oncecron, operator: Oncecron, start: Start
) -> None:
    """Its holder is asked, and gives it back."""
    running = start()
    done = operator("release", "k")
    running.is_over()
    out = ended(done)
    assert out.startswith("released k: execution ")
    assert " has ended: stopped" in out
    assert out.endswith("; its fencing token has risen\n")
    running.firing.wait()
    assert outcomes(store) == ["stopped"]
    [record] = store.executions("k")
    assert (record.request, record.requested_by) == ("release", ME)
    next_tick_runs(host, running.journal)


def test_a_frozen_holder_keeps_its_key(
    store: Store, host: Oncecron, operator: Oncecron, start: Start
) -> None:
    """As long as its lease lives its command may run."""
    running = start("--ttl", 20)
    running.freeze()
    done = operator("release", "k")
    assert (done.status, done.out) == (75, b"")
    assert "retry after that" in done.err
    [lease] = answer(host, "locks")
    assert (lease["requested_by"], lease["request_acknowledged_at"]) == (ME, None)
    refusal = host.run("k", "--ttl", 20, "--tick", "t1", "--", *job(running.journal))
    assert (refusal.status, refusal.out) == (0, b"")
    send([running.firing.guard()], signal.SIGCONT)  # it hears now
    running.firing.wait()
    assert outcomes(store) == ["stopped"]
    assert_exclusive(running.journal)


def test_ctrl_c_leaves_the_request(
    any_store: Store, host: Oncecron, journal: Journal, start: Start
) -> None:
    """It is said, and the holder obeys when it hears."""
    running = start("--ttl", 20)  # it hears in time, on a busy machine too
    running.freeze()
    stopping = host.start("stop", "k")
    eventually(lambda: answer(host, "locks")[0]["requested_by"] == ME)
    stopping.process.send_signal(signal.SIGINT)
    done = stopping.wait()
    assert (done.status, done.out) == (130, b"")
    assert "no longer waiting; the request stays" in done.err
    send([running.firing.guard()], signal.SIGCONT)
    running.firing.wait()
    assert outcomes(any_store) == ["stopped"]


@pytest.mark.slow
def test_what_does_not_end_in_time_is_told(host: Oncecron, start: Start) -> None:
    """By its holder's own long grace; the request stays."""
    running = start("--grace", "100s", of_job=("--ignore-term",))
    stopping, releasing = host.start("stop", "k"), host.start("release", "k")
    refusal, released = stopping.wait(90), releasing.wait(90)
    assert (refusal.status, refusal.out) == (75, b"")
    assert "k has not ended: host-a (pid " in refusal.err
    assert "acknowledged the request at 2" in refusal.err
    assert "the request stays" in refusal.err
    assert (released.status, released.out) == (75, b"")
    assert "k is not released: host-a (pid " in released.err
    assert "acknowledged the request at 2" in released.err
    assert ended(host("stop", "k", "--signal", "KILL", "--grace", "0s")) != ""
    running.is_over()
    running.firing.wait()


# Cut off


@pytest.mark.stores("all")  # PostgreSQL has a session that can be ended, Redis has none
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_holder_that_is_cut_off(
    kind: str,
    new_postgres: Any,
    new_redis: Any,
    new_proxy: Any,
    public_path: Path,
    journal: Journal,
) -> None:
    """Behind a proxy whose kernel acknowledges for ever: stopped by its own deadline, and free at last."""
    at = start_breakable(kind, new_postgres, new_redis)
    proxy = new_proxy(at.server)
    command = job(journal, "--sleep", 120, "--beats", "--ignore-term")
    firing = Oncecron(at.url(via=proxy), public_path).fire(
        "k", "--ttl", TTL, "--tick", "t1", "--", *command
    )
    journal.wait_for("start")
    child = firing.job()
    proxy.deaf()
    here = Oncecron(at.log.operator_url, public_path, "host-b")
    done = here("stop", "k")
    out = ended(done)
    assert "host-a has not renewed its lease since" in done.err
    assert "is lost: its lease expired at" in out
    assert not child.alive()
    released = here("release", "k")
    if kind == "postgres":
        refused(released, 75, "backend pid ", "oncecron release --force k")
        refused(here("release", "k", "--force"), 78, "is another role's session")
        at.log._database.execute("grant runner to operator")
        released = here("release", "k", "--force")
    assert f"is recorded as lost by {getpass.getuser()}@host-b" in ended(released)
    assert firing.wait().status == 75
    next_tick_runs(Oncecron(at.url(), public_path, "host-c"), journal)
    eventually(lambda: at.leases() == 0)
