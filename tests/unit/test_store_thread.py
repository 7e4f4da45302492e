"""The heartbeats of the store thread: when the first one comes; and a store that is away for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from servers.kept import assert_nothing_kept

from oncecron.core import clock
from oncecron.core.errors import StoreUnavailable
from oncecron.core.model import Ending
from oncecron.run.store_thread import StoreThread
from oncecron.stores import steady
from oncecron.stores.address import parse_address

TTL = 60.0
INTERVAL = 10.0


def first_heartbeat(*, holds: bool) -> float:
    """Return after how many seconds a job that begins now renews its lease for the first time."""
    spec: Any = SimpleNamespace(firing=SimpleNamespace(ttl=TTL), verbose=0)
    thread: Any = StoreThread(spec, lambda: pytest.fail("nothing is claimed"))
    thread._connection = SimpleNamespace(store=SimpleNamespace(holds_connection=holds))
    thread._clock = clock.BOOTTIME
    thread._others_spooled = False
    began = thread._now()
    thread._begin()
    return float(thread._renew_at - began)


def test_jobs_that_begin_together_do_not_connect_together() -> None:
    """Without a held connection, first heartbeats are spread over the whole interval."""
    seconds = sorted(first_heartbeat(holds=False) for _ in range(200))
    assert 0 <= seconds[0] < INTERVAL / 4
    assert INTERVAL * 3 / 4 < seconds[-1] < INTERVAL + 1


def test_on_a_held_connection_it_comes_after_the_interval() -> None:
    """It disturbs nobody."""
    assert INTERVAL <= first_heartbeat(holds=True) < INTERVAL + 1


class Away:
    """A store that is away, in a frame that refers to the error that it raises."""

    lease_clock = clock.BOOTTIME
    holds_connection = True

    def renew(self, *_: object, **__: object) -> None:
        """Fail."""
        error = StoreUnavailable("away")
        raise error

    keep = retry = finish = renew

    def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize("order", ["_renew", "_keep", "_retry", "_record"])
def test_a_store_that_is_away_for_long(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of the calls that fail: this process collects no cycles."""
    monkeypatch.setattr("oncecron.run.store_thread.RECORD_TIMEOUT", 0.0)
    firing = SimpleNamespace(ttl=TTL, key="k")
    spec: Any = SimpleNamespace(firing=firing, verbose=0, connect_timeout=0.0, retention=None)
    spec.firing_of = lambda _lease: firing
    thread: Any = StoreThread(spec, lambda: pytest.fail("nothing is claimed"))
    store: Any = steady(Away(), parse_address("redis://h"), None)
    thread._connection = SimpleNamespace(store=store, close=lambda: None)
    thread._clock = clock.BOOTTIME
    thread._lease = SimpleNamespace()
    thread._backoff = SimpleNamespace(delay=lambda: 0.0)
    given = () if order in ("_renew", "_retry") else (Ending("failed", 1, None, 1.0, None, None),)

    def step() -> None:
        getattr(thread, order)(*given)
        thread.events()

    assert_nothing_kept(step)
