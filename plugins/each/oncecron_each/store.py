"""The contract of a store for items, and how it is opened: each kind of store has a module here, with `open_items`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from oncecron.core.model import Lease
    from oncecron.stores.address import Address
    from oncecron_each.item_model import Chunk, Draw, Drawn, ItemCounts, ItemList, Loaded


class ItemStore(Protocol):
    """The items of a firing. One thread uses it at a time; it connects at the first call.

    `deadline` and errors are those of `LeaseStore`. Every call is idempotent: one whose answer was lost is repeated.
    """

    lease_clock: int
    """The clock of deadlines (a `time.CLOCK_*` constant)."""
    steadiness: Any
    """As of `LeaseStore`."""

    def load(
        self, lease: Lease, items_of: ItemList, chunk: Chunk, *, deadline: float
    ) -> Loaded | None:
        """Add the next items of a list under a lease of any key; None if the lease is lost: nothing was added.

        What a load adds is invisible until its last chunk, so a load that is cut off leaves nothing. Items that are
        known stay as they are. Raises `StoreRefusesError` for a number out of turn.
        """

    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        """Settle the last batch of an execution and take its next one, from the list of its key and tick.

        None if the execution does not hold its lease: nothing was settled, and nothing taken. No two draws take the
        same item. Items whose retry is due come first. A list that was not loaded is empty. None too if the store has
        forgotten a batch of this execution, or knows a later one: the execution must not go on.
        """

    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        """Return the counts of a list; None if it has not been loaded."""

    def readdress(self, address: Address) -> None:
        """Take another address of the same store for later connections."""

    def close(self) -> None:
        """Close the connection. Never raises, never waits."""


def open_item_store(address: Address, namespace: str, ttl: float) -> ItemStore:
    """Return the items of a firing; it connects at the first call. `ttl` is in seconds."""
    module = __import__(f"oncecron_each.{address.kind}_store", fromlist=("open_items",))
    store: ItemStore = module.open_items(address, namespace, ttl)
    return store
