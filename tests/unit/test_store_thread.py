"""The heartbeats of the store thread: when the first one comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncecron.core import clock
from oncecron.run.store_thread import StoreThread

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
