"""A host of the contract suite that draws items: a lease, and the connection of its worker."""

from collections.abc import Sequence
from typing import Any

from contract_stores import StoreKind
from hosts import KEY, Host

from oncecron.core import clock
from oncecron.core.model import Lease
from oncecron.core.tick import Tick, named_tick
from oncecron_each import reports
from oncecron_each.item_model import (
    Chunk,
    Draw,
    Drawn,
    Item,
    ItemCounts,
    ItemList,
    ItemResult,
    Loaded,
)
from oncecron_each.reports import ItemQuery, ItemRow
from oncecron_each.store import ItemStore

CAMPAIGN = named_tick("campaign-42")
LIST = ItemList(KEY, "campaign-42")
LOADER = f"{KEY}:load"
PATIENCE = 30.0


def items(*names: str | int) -> list[Item]:
    return [Item(str(name), str(name)) for name in names]


def many(count: int, first: int = 1) -> list[Item]:
    return items(*(f"user-{number}@example.com" for number in range(first, first + count)))


class Slot:
    """One slot of one host: a lease for a shard of the key, and what it draws."""

    def __init__(self, host: Host, store: ItemStore, lease: Lease) -> None:
        self.host = host
        self.store = store
        self.lease = lease
        self.number = 0

    def ask(self, draw: Draw) -> Drawn | None:
        return self.store.draw(self.lease, draw._replace(slots=8), deadline=deadline(self.store))

    def draw(self, wanted: int = 1, *results: ItemResult, **parts: Any) -> Drawn:
        drawn = self.ask(Draw(self.number + 1, results, wanted, **parts))
        assert drawn is not None
        self.number += bool(drawn.items)
        return drawn

    def names(self, wanted: int = 1, *results: ItemResult, **parts: Any) -> list[str]:
        """Draw the next batch; return its items."""
        return [item.identity for item in self.draw(wanted, *results, **parts).items]

    def settle(self, *results: ItemResult) -> None:
        """Settle the last batch, and take nothing."""
        assert self.names(0, *results) == []


class Field:
    """The hosts of one list."""

    def __init__(self, store: StoreKind) -> None:
        self.store = store
        self.people = store.people()

    def slot(self, shard: int = 0, tick: Tick = CAMPAIGN, **parts: Any) -> Slot:
        """Claim a slot on a host of its own."""
        host = Host(self.store.firing(), f"host{shard}.example")
        lease = host.win(tick, shard=shard, shards=8, **parts)
        return Slot(host, self.store.items(), lease)

    def die(self, slot: Slot) -> None:
        """Let the lease of a slot expire, as when its host died."""
        slot.store.close()
        self.store.expire(slot.lease.key, slot.lease.shard)

    def loader(self) -> Slot:
        host = Host(self.store.firing(), "loader.example")
        return Slot(host, self.store.items(), host.win(CAMPAIGN, key=LOADER, again=True))

    def load(self, given: Sequence[Item], items_of: ItemList = LIST, **parts: Any) -> Loaded:
        loader = self.loader()
        loaded = put(loader, Chunk(0, given, is_last=True, **parts), items_of)
        assert loaded is not None
        loader.host.finish(loader.lease)
        return loaded

    def counts(self, items_of: ItemList = LIST) -> ItemCounts:
        """Return what a firing sees of the list; people see the same."""
        store = self.store.items()
        counts = store.progress(items_of, deadline=deadline(store))
        assert counts is not None
        [shown] = [each for each in reports.item_lists(self.people) if each.items_of == items_of]
        assert shown.counts == counts
        return counts

    def rows(self, *states: str, **parts: Any) -> list[ItemRow]:
        return list(reports.items(self.people, ItemQuery(LIST, states, **parts)))

    def named(self, *states: str) -> list[str]:
        return [row.item for row in self.rows(*states)]


def put(loader: Slot, chunk: Chunk, items_of: ItemList = LIST) -> Loaded | None:
    return loader.store.load(loader.lease, items_of, chunk, deadline=deadline(loader.store))


def deadline(store: ItemStore) -> float:
    return clock.lease_time(store.lease_clock) + PATIENCE


def positions(drawn: Drawn) -> list[int]:
    return [item.position for item in drawn.items]
