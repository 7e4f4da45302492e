"""The pulse records what took too long, and nothing else."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from servers import eventually

from oncecron.core.errors import StoreError
from oncecron.stores.address import parse_address
from oncecron_drill.place import Place
from oncecron_drill.pulse import SLOW, Pulse
from oncecron_drill.run_under_faults import Run
from oncecron_drill.store_watch import Watch
from oncecron_drill.stores import open_drilled
from oncecron_drill.wanted import Wanted

LONGEST = 0.3


def beating() -> tuple[Pulse, threading.Event]:
    """Return a pulse whose first beat has begun, and what ends it."""
    begun, may_end = threading.Event(), threading.Event()

    def beat() -> None:
        begun.set()
        may_end.wait()

    pulse = Pulse(beat, LONGEST)
    begun.wait()
    return pulse, may_end


def test_a_beat_that_waits_is_a_fault() -> None:
    """From its begin until it is answered."""
    pulse, may_end = beating()
    timer = threading.Timer(2 * LONGEST, may_end.set)
    timer.start()
    [fault] = eventually(lambda: list(pulse.slow()) or None)
    pulse.stop()
    assert (fault.kind, fault.target) == (SLOW, "store")
    assert fault.healed is not None
    assert fault.healed - fault.at > LONGEST


def test_a_store_that_refuses_is_away_until_it_answers() -> None:
    """One fault, however often it was asked."""
    answers = threading.Event()
    asked = threading.Semaphore(0)

    def beat() -> None:
        asked.release()
        if not answers.is_set():
            raise ConnectionError

    pulse = Pulse(beat, LONGEST)
    for _ in range(4):
        asked.acquire()
    answers.set()
    [fault] = eventually(lambda: list(pulse.slow()) or None)
    pulse.stop()
    assert fault.healed is not None
    assert fault.healed - fault.at > LONGEST


def test_a_beat_that_never_ends_is_a_fault_that_lasts() -> None:
    """As when the store is stopped."""
    pulse, may_end = beating()
    pulse.stop()
    [fault] = pulse.slow()
    may_end.set()
    assert fault.healed is None


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_beat_passes_a_proxy_as_a_heartbeat_does(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A shorter way to the store would not see a machine on which the proxies get no time."""
    server: Any = request.getfixturevalue("database" if kind == "postgres" else "redis_server")
    address = parse_address(server.url("owner") if kind == "postgres" else server.url())
    if kind == "postgres":
        with server.connect("owner") as connection:
            connection.execute("create schema oncecron_drill_beats")
    store = open_drilled(address, "oncecron_drill_beats")
    store.prepare()
    place = Place(store, Watch(store), address, "oncecron_drill_beats")
    try:
        place.stand_between(["drill-2"], tmp_path)
        place.beat()
        for proxy in place.proxies["drill-2"]:
            proxy.close()
        place.beat()
        place.close()
        with pytest.raises(StoreError):
            place.beat()
    finally:
        store.remove()
        store.close()


class Interrupted(Run):
    """A run that a person ends at its first firing."""

    def begin(self) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_run_beats_no_more(tmp_path: Path) -> None:
    """A beat after the store was cleaned would leave there what it writes."""
    before = set(threading.enumerate())
    store = SimpleNamespace(faults=(), proxies={}, beat=lambda: None)
    wanted = Wanted("redis", 1, 1.0, tmp_path, ["oncecron"], keys=(), item_keys=())
    with ThreadPoolExecutor(1) as operator:
        run = Interrupted(wanted, [], cast("Any", store), operator)
        with pytest.raises(KeyboardInterrupt):
            run.strike()
        run.close()
    eventually(lambda: set(threading.enumerate()) <= before)
