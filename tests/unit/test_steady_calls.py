"""A store whose calls are retried where this host or an old address is the cause."""

import errno
import inspect
from importlib import import_module
from typing import Any

import pytest

from oncecron.core.errors import (
    ConfigurationError,
    RecordRefusedError,
    StoreError,
    StoreRefusesError,
    StoreUnavailable,
)
from oncecron.stores import steadied, steady
from oncecron.stores.address import Address, parse_address
from oncecron.stores.api import LeaseStore, Views
from oncecron.stores.claim_loop import ClaimLoop

OLD, NEW = (parse_address(f"postgresql://u:{word}@h/d") for word in ("old", "new"))


class Store:
    """A store that raises what it is told to, until it has a new address."""

    lease_clock = 1
    steadiness = None

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.closed = 0
        self.addresses: list[Address] = []

    @steadied
    def renew(self) -> str:
        """Answer at the new address alone."""
        if self.addresses:
            return "renewed"
        raise self.error

    def close(self) -> None:
        self.closed += 1

    def readdress(self, address: Address) -> None:
        self.addresses.append(address)


class Configured:
    """What is configured: an address, None or an error for each reading."""

    def __init__(self, *found: Address | Exception | None) -> None:
        self.found = list(found)

    def __call__(self) -> Address | None:
        first = self.found.pop(0)
        if isinstance(first, Exception):
            raise first
        return first


@pytest.mark.parametrize("kind", [StoreRefusesError, StoreUnavailable])
@pytest.mark.parametrize("unanswered", [True, False])
def test_a_new_address(kind: type[StoreError], unanswered: bool) -> None:
    """The failed call may be repeated, and goes there; whether the server had an answer stays known."""
    error = kind("no")
    error.unanswered = unanswered
    inner = Store(error)
    store = steady(inner, OLD, Configured(NEW))
    with pytest.raises(StoreUnavailable, match="no") as caught:
        store.renew()
    assert caught.value.unanswered is unanswered
    assert (inner.addresses, inner.closed) == ([NEW], 1)
    assert store.renew() == "renewed"
    assert store.lease_clock == 1


def test_what_leaves_the_old_address() -> None:
    """A file that is broken or refused, names the same, no store or another kind, or has a newer reader."""
    found = (
        *(ConfigurationError("mode"), OSError(errno.ENOENT, "gone"), MemoryError()),
        AttributeError("of a newer version"),
        *(OLD, None, parse_address("redis://h"), parse_address("sqlite:///d")),
    )
    inner = Store(StoreRefusesError("login"))
    configured = Configured(*found, NEW)
    store = steady(inner, OLD, configured)
    for _ in found:
        with pytest.raises(StoreRefusesError, match="login"):
            store.renew()
    assert inner.closed == 0
    with pytest.raises(StoreUnavailable):
        store.renew()
    assert store.renew() == "renewed"
    assert configured.found == []


def test_nothing_is_read_again_without_need() -> None:
    """A record that is refused says nothing of the address; a file has no login."""
    nothing = Configured()
    store = steady(Store(RecordRefusedError("record")), OLD, nothing)
    with pytest.raises(RecordRefusedError):
        store.renew()
    local = steady(Store(StoreUnavailable("locked")), parse_address("sqlite:///d"), nothing)
    with pytest.raises(StoreUnavailable, match="locked"):
        local.renew()
    without = steady(Store(StoreUnavailable("away")), OLD, None)
    with pytest.raises(StoreUnavailable, match="away"):
        without.renew()


def test_a_shortage_of_this_host() -> None:
    """It is an unreachable store, whose answer may have been lost."""
    store = steady(Store(OSError(errno.EMFILE, "many")), OLD, None)
    with pytest.raises(StoreUnavailable, match="too many open files") as caught:
        store.renew()
    assert caught.value.unanswered


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), TypeError(), RecursionError()])
def test_an_answer_that_cannot_be_read(error: Exception) -> None:
    """It is a refusal, and may have been a lease: no store makes an internal error."""
    store = steady(Store(error), OLD, None)
    with pytest.raises(StoreRefusesError, match="the store's answer cannot be read") as caught:
        store.renew()
    assert caught.value.unanswered


def methods(contract: type) -> dict[str, Any]:
    return {
        name: each
        for name, each in vars(contract).items()
        if inspect.isfunction(each) and name[0] != "_"
    }


@pytest.mark.parametrize("store", ["Postgres", "Redis", "SQLite"])
def test_no_call_of_a_store_is_left_out(store: str) -> None:
    """Each that may wait for an answer is made steady for a firing, and waited for in one place for people."""
    package = f"oncecron.stores.{store.lower()}"
    leases = getattr(import_module(f"{package}.lease_store"), f"{store}LeaseStore")
    reader = getattr(import_module(f"{package}.reader"), f"{store}Reader")
    asked = [
        name
        for name, each in methods(LeaseStore).items()
        if "deadline" in inspect.signature(each).parameters
    ]
    assert len(asked) == 11
    calls = {name: getattr(leases, name) for name in asked}
    idle = {ClaimLoop.listen, ClaimLoop.evict}  # for a store without a server
    assert [
        name
        for name, call in calls.items()
        if "steadied" not in call.__qualname__ and call not in idle
    ] == ["peek"]  # of a dry run
    bare = [name for name in methods(Views) if not hasattr(getattr(reader, name), "__wrapped__")]
    assert bare == ["stop_starts", "schema_sql", "close"]
