"""What the guard makes of a store that grants and then falls silent."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from oncecron.config.run_parser import ParsedRun
from oncecron.core import clock
from oncecron.core.errors import OncecronError, StoreUnavailable
from oncecron.core.model import Ending, Lease
from oncecron.run import firing_states, process_tree
from oncecron.run.firing_states import State
from oncecron.run.guard import Guard
from oncecron.run.job import Trust
from oncecron.run.spec import make_spec


class Silent:
    """A store that is asked and does not answer before the test lets it."""

    lease_clock = clock.MONOTONIC

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.was_asked = threading.Event()
        self.may_answer = threading.Event()

    def claim(self, firing: Any, **_: Any) -> Any:
        self.asked.append(firing.shard)
        self.was_asked.set()
        self.may_answer.wait(30)
        raise AssertionError("nobody waits for this answer")

    def close(self) -> None:
        """Say nothing."""


class Slow:
    """A store that grants too slowly to start with, and is renewed as the test says."""

    lease_clock = clock.MONOTONIC

    def __init__(self, failures: float) -> None:
        self.failures = failures
        self.finished: list[Ending] = []

    def claim(self, firing: Any, **_: Any) -> Lease:
        return self._lease(firing.owner, clock.lease_time(self.lease_clock))

    def renew(self, lease: Lease, *, deadline: float, place: bytes | None) -> Lease:
        """Be away so many times."""
        self.failures -= 1
        if self.failures >= 0:
            raise StoreUnavailable("black hole")
        return self._lease(lease.owner, clock.lease_time(self.lease_clock) + lease.ttl)

    def finish(self, lease: Lease, ending: Ending, *_: Any, deadline: float) -> bool:
        self.finished.append(ending)
        return True

    def close(self) -> None:
        """Say nothing."""

    def _lease(self, owner: str, trusted_until: float) -> Lease:
        return Lease("k", 0, "t", owner, 1, 42, 9, 60.0, 0.0, trusted_until)


class Buggy(Slow):
    """A store with a bug of ours."""

    def __init__(self, bug: Exception) -> None:
        super().__init__(failures=0)
        self.bug = bug

    def renew(self, lease: Lease, *, deadline: float, place: bytes | None) -> Lease:
        """Fail as nobody foresaw."""
        raise self.bug


class NoSignals:
    """Signals of a process that gets none."""

    mask_before: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)

    def read(self) -> list[Any]:
        return []


NO_SIGNALS = cast("process_tree.Signals", NoSignals())


def run(guard: Guard) -> int:
    """Let the guard do its work, up to the start of a job; return its status."""
    os.set_blocking(guard.pipes[0], False)
    return guard.run(NO_SIGNALS, 0, firing_states.Claiming)


def leave_without_an_answer(guard: Guard) -> None:
    """End the firing while the store is asked, and let the time for its answer pass."""
    firing_states.Claiming(guard).lose_wrapper().judge(float("inf"))


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the guard leave instead, with the end of trust for a status, or 0 without a lease."""

    def start(guard: Guard, lease: Lease | None) -> State:
        return firing_states.Over(guard, int(lease.trusted_until) if lease else 0)

    monkeypatch.setattr(firing_states, "_start", start)
    monkeypatch.setattr(
        process_tree.Tree, "kill_all", lambda *_: True
    )  # or an error would end our servers


@pytest.fixture
def new_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Guard]]:
    """Give a function that makes the guard of a firing with a store and options."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pipes: list[int] = []

    def make(store: Any, **given: str) -> Guard:
        options = {name.replace("_", "-"): value for name, value in given.items()}
        told = {"key": "k", "tick": "t", "store": "local", **options}
        spec = make_spec(ParsedRun(told, ["true"]))
        pipes.extend(os.pipe())
        return Guard(spec, Trust(), pipes[-2], pipes[-1], lambda: store)

    yield make
    for pipe in pipes:
        os.close(pipe)


def test_who_leaves_without_an_answer_tells_of_the_part_that_was_asked_for(
    new_guard: Callable[..., Guard],
) -> None:
    """It may have been granted; no other part can have been."""
    store = Silent()
    guard = new_guard(store, shards="64")
    guard.store_thread.start()
    assert store.was_asked.wait(60)
    leave_without_an_answer(guard)
    store.may_answer.set()
    told = [record for _, record in guard.spec.spool.pending("k")]
    assert [record["kind"] for record in told] == ["execution", "skip"]
    assert [record["shard"] for record in told] == store.asked * 2


def test_who_has_not_asked_tells_of_no_attempt(new_guard: Callable[..., Guard]) -> None:
    """The store was away before any claim: the firing is on record, and why it ended."""
    guard = new_guard(Silent())
    leave_without_an_answer(guard)
    [(_, record)] = guard.spec.spool.pending("k")
    assert (record["kind"], record["reason"]) == ("skip", "interrupted")
    assert record["detail"] == "the oncecron process that cron started was killed"


def test_a_lease_that_cannot_be_renewed_before_the_start_is_given_back(
    new_guard: Callable[..., Guard],
) -> None:
    """After --connect-timeout, as a claim that is not answered."""
    store = Slow(failures=float("inf"))
    guard = new_guard(store, connect_timeout="1s")
    began = clock.lease_time(clock.MONOTONIC)
    assert run(guard) == 69
    assert clock.lease_time(clock.MONOTONIC) - began < 20
    assert [(end.outcome, end.note) for end in store.finished] == [("not-started", "black hole")]


def test_a_job_that_starts_late_has_a_lease_that_was_renewed(
    new_guard: Callable[..., Guard],
) -> None:
    """The store was away for less than --connect-timeout."""
    store = Slow(failures=2)
    now = clock.lease_time(clock.MONOTONIC)
    assert run(new_guard(store, connect_timeout="10s")) >= int(now) + 60
    assert store.finished == []


@pytest.mark.parametrize("bug", [ZeroDivisionError("a bug"), OncecronError("a bug")])
def test_a_bug_in_the_store_thread_is_the_guards_while_nothing_runs(
    new_guard: Callable[..., Guard], bug: Exception
) -> None:
    """It is reported as one, and nobody waits for the thread; also if it is an error of our own tree."""
    with pytest.raises(type(bug), match="a bug"):
        run(new_guard(Buggy(bug)))
