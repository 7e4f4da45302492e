"""The items of a tick on Redis alone: a server that may have forgotten what was drawn."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hosts import KEY, Host
from item_hosts import CAMPAIGN, LIST, LOADER, Slot, deadline, many, put

from oncecron.core.errors import StoreRefusesError
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.lease_store import RedisLeaseStore
from oncecron_each.item_model import Chunk, Draw
from oncecron_each.redis_store import RedisItemStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import RedisServer

TTL = 60.0


class Draws:
    """The slots of a test, whose connections it closes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def slot(self, server: RedisServer, key: str) -> Slot:
        """Claim a slot, or the right to load, on a server."""
        target = parse(server.url(), {})
        leases = RedisLeaseStore(target, namespace="oncecron", ttl=TTL)
        store = RedisItemStore(target, namespace="oncecron", ttl=TTL)
        self._stack.callback(leases.close)
        self._stack.callback(store.close)
        host = Host(leases, "a.example")
        return Slot(host, store, host.win(CAMPAIGN, key=key))

    def begin(self, server: RedisServer) -> Slot:
        """Load a list on a server, and draw from it."""
        assert put(self.slot(server, LOADER), Chunk(0, many(9), is_last=True))
        slot = self.slot(server, KEY)
        assert len(slot.names(2)) == 2
        return slot


@pytest.fixture
def draws() -> Iterator[Draws]:
    """Close what was opened."""
    with ExitStack() as stack:
        yield Draws(stack)


def test_a_restart_with_its_log_of_writes_goes_on(
    draws: Draws, new_redis: Callable[..., RedisServer]
) -> None:
    """Nothing that was drawn is forgotten, and the same draw returns the same batch."""
    server = new_redis(aof=True)
    slot = draws.begin(server)
    before = slot.ask(Draw(1, (), 2))
    server.restart()
    slot.store.close()
    assert slot.ask(Draw(1, (), 2)) == before
    assert slot.names(2) == ["user-3@example.com", "user-4@example.com"]


def test_a_restart_from_a_snapshot_draws_nothing_more(
    draws: Draws, new_redis: Callable[..., RedisServer]
) -> None:
    """What was drawn after the snapshot would be drawn again."""
    server = new_redis(aof=True)
    slot = draws.begin(server)
    with server.connect() as client:
        client.save()
    assert slot.names(2)
    server.kill()
    server.settings["appendonly"] = "no"
    server.start()
    slot.store.close()
    slot.number = 1
    with pytest.raises(
        StoreRefusesError, match="the server may have forgotten which items were drawn"
    ):
        slot.ask(Draw(2, (), 2))
    counts = slot.store.progress(LIST, deadline=deadline(slot.store))
    assert counts is not None
    assert (counts.queued, counts.taken) == (7, 2)
