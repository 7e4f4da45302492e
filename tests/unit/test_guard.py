"""What the guard makes of a store that grants and then falls silent."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncecron import clock
from oncecron.firing import make_plan
from oncecron.guard import Guard
from oncecron.options import ParsedRun
from oncecron.trust import Trust


class Silent:
    """A store that is asked and does not answer before the test lets it."""

    lease_clock = clock.MONOTONIC

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.was_asked = threading.Event()
        self.may_answer = threading.Event()

    def claim(self, firing: Any, **_: Any) -> Any:
        """Note for which part."""
        self.asked.append(firing.shard)
        self.was_asked.set()
        self.may_answer.wait(30)
        raise AssertionError("nobody waits for this answer")

    def close(self) -> None:
        """Say nothing."""


@pytest.fixture
def new_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Guard]]:
    """Give a function that makes the guard of a firing with a store and options."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pipes: list[int] = []

    def make(store: Any, **given: str) -> Guard:
        options = {name.replace("_", "-"): value for name, value in given.items()}
        told = {"key": "k", "tick": "t", "store": "local", **options}
        plan = make_plan(ParsedRun(told, ["true"]))
        pipes.extend(os.pipe())
        return Guard(plan, Trust(), *pipes[-2:], lambda: store)

    yield make
    for pipe in pipes:
        os.close(pipe)


def test_who_leaves_without_an_answer_tells_of_the_part_that_was_asked_for(
    new_guard: Callable[..., Guard],
) -> None:
    """It may have been granted; no other part can have been."""
    store = Silent()
    guard = new_guard(store, shards="64")
    guard._heartbeat.start()
    assert store.was_asked.wait(10)
    guard._gave_up()
    store.may_answer.set()
    told = [record["shard"] for _, record in guard._plan.spool.pending("k")]
    assert told == store.asked


def test_who_has_not_asked_tells_of_nothing(new_guard: Callable[..., Guard]) -> None:
    """The store was away before any claim."""
    guard = new_guard(Silent())
    guard._gave_up()
    assert list(guard._plan.spool.pending("k")) == []
