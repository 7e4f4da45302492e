"""What somebody asks of a holder, as the holder obeys it."""

import signal
from contextlib import closing
from typing import Literal

import pytest
from log_of import Store
from servers import Journal, eventually, job
from servers.oncecron import Ended, Firing, Oncecron

from oncecron.core.errors import StoreError
from oncecron.core.model import Request
from oncecron.stores import open_reader
from oncecron.stores.address import parse_address

WHO = "eve@desk"
STOPPED = f"oncecron: key k: the command was stopped: {WHO} asked for it\n"
TTL = ("--ttl", 12)
"""A heartbeat comes every two seconds."""


def ask(
    store: Store,
    number: int = signal.SIGTERM,
    grace: float | None = None,
    kind: Literal["stop", "release"] = "stop",
) -> None:
    """Ask the holder of the key's newest execution."""
    newest = eventually(lambda: store.executions("k")[-1].execution_id, 20, IndexError)
    with closing(open_reader(parse_address(store.operator_url), "oncecron")) as people:
        assert people.request("k", 0, newest, Request(kind, WHO, int(number), grace))


def running(host: Oncecron, journal: Journal, *options: object) -> Firing:
    """Fire a job and wait until it runs."""
    firing = host.fire("k", "--tick", "one", *TTL, "--", *job(journal, "--beats", *options))
    journal.wait_for("start")
    return firing


@pytest.mark.parametrize("shards", [3])
def test_a_request_ends_the_firing_and_not_only_a_part(
    any_store: Store, host: Oncecron, journal: Journal, shards: int
) -> None:
    """Who was asked to stop takes no other part."""
    command = job(journal, "--beats", "--sleep", 60)
    firing = host.fire("k", "--tick", "one", *TTL, "--shards", shards, "--", *command)
    [start] = journal.wait_for("start")
    newest = any_store.executions("k")[-1].execution_id
    with closing(open_reader(parse_address(any_store.url), "oncecron")) as people:
        request = Request("stop", WHO, int(signal.SIGTERM), None)
        assert people.request("k", int(start.shard), newest, request)
    assert firing.wait().status == 143
    assert len(journal.starts()) == 1


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("kind", "number", "grace", "why"),
    [
        ("stop", 9999, None, "signal 9999 is not one of TERM, INT, HUP"),
        ("stop", -1, None, "signal -1 is not one of"),
        ("release", int(signal.SIGSTOP), 5, "signal 19 is not one of"),
        ("stop", 15, -1, "a grace of -1s is not 0 to 3653d"),
        ("stop", 15, float("inf"), "a grace of inf is not 0 to 3653d"),
    ],
)
def test_a_wrong_request_in_the_store_harms_no_job(
    store: Store, host: Oncecron, journal: Journal, kind: str, number: int, grace: float, why: str
) -> None:
    """It is ignored, with one line however often it is told; a good one in its place is obeyed."""
    firing = running(host, journal, "--sleep", 60)
    eventually(lambda: store.executions("k")[-1], 20, IndexError)
    store.plant_request("k", kind, number, grace)
    told = store.heartbeat("k") or 0
    eventually(lambda: (store.heartbeat("k") or 0) > told + 3)
    ask(store, signal.SIGINT)
    ended = firing.wait()
    assert (ended.status, ended.out) == (130, b"INT\n")
    assert ended.err.count("a request in the store is ignored: ") == 1
    assert ended.err.startswith("oncecron: key k: a request in the store is ignored: ")
    assert why in ended.err
    assert journal.runs()[0].signals == ["INT"]


@pytest.mark.turns(1)
@pytest.mark.parametrize(("number", "grace"), [(9999, None), (0, None), (15, -1.0), (15, 1e12)])
def test_no_store_takes_a_wrong_request(
    store: Store, host: Oncecron, journal: Journal, number: int, grace: float | None
) -> None:
    """Whoever may ask could send anything; the job is not told of it."""
    firing = running(host, journal, "--sleep", 60)
    with pytest.raises(StoreError):
        ask(store, number, grace)
    ask(store)
    assert firing.wait() == Ended(143, b"TERM\n", STOPPED)
