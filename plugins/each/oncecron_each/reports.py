"""The lists of items as people read and mend them, and what they say of keys and leases.

That is how far a tick is, what is in doubt, and what was left behind.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import recordable
from oncecron_each.item_model import MENDABLE_STATES, ItemCounts, ItemList, item_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from oncecron.core.log_rows import Execution
    from oncecron.stores.reader import Reader
    from oncecron_each.item_model import MendedState


class ItemQuery(NamedTuple):
    """Which items of a list to return."""

    items_of: ItemList
    states: tuple[str, ...] = ()
    """None given: all."""
    identities: list[str] | None = None
    """Which of them; None: all. Those that are not in the list are ignored."""


class ItemRow(NamedTuple):
    """An item of a list, in the order of its published fields."""

    key: str
    tick: str
    position: int
    """Its place in the list, from 1."""
    item: str
    """Its identity."""
    item_id: str
    """`ONCECRON_ITEM_ID`."""
    state: str
    attempts: int
    """How often it has been drawn."""
    execution_id: int | None
    """The execution that drew it last."""
    since: float | None
    """When it was drawn last, or settled."""
    not_before: float | None
    """With `failed`: when its retry is due."""
    reason: str | None
    """Why it failed."""
    payload: str


class ListView(NamedTuple):
    """A list of items that was loaded, in the order of its published fields."""

    key: str
    tick: str
    total: int
    queued: int
    taken: int
    done: int
    failed: int
    lost: int
    dead: int
    loaded_at: float
    """When items were added last."""

    @property
    def items_of(self) -> ItemList:
        """Return what the list belongs to."""
        return ItemList(self.key, self.tick)

    @property
    def counts(self) -> ItemCounts:
        """Return how many items are in which state."""
        return ItemCounts(*self[2:9])


def item_lists(store: Reader, key: str | None = None) -> list[ListView]:
    """Return the lists of items of a key, or of all keys, with their counts; the newest first."""
    found = store.read("each/item_lists", ListView, "the items of key {0}", key=key, tick=None)
    wanted = (view for view in found if key in (None, view.key))
    return sorted(wanted, key=lambda view: (-view.loaded_at, view.items_of))


def items(store: Reader, query: ItemQuery) -> Iterator[ItemRow]:
    """Yield the items of one list, in the order of the list."""
    found = store.read("each/items", ItemRow, "item {2} of key {0}", **_bounds(query))
    return (item for item in found if not query.states or item.state in query.states)


def mend_items(store: Reader, query: ItemQuery, state: MendedState, *, author: str) -> int:
    """Put the `lost`, `dead` and `failed` items of a query into a state; return how many.

    `queued`: they are drawn at once. `done`: they are not drawn again. The author is recorded as their reason.
    """
    states = [each for each in query.states if each in MENDABLE_STATES]
    reason = f"{'queued again' if state == 'queued' else 'marked done'} by {author}"
    asked = {**_bounds(query), "states": states, "state": state, "reason": reason}
    return int(store.change("each/mend_items", "operate", **asked))


def _bounds(query: ItemQuery) -> dict[str, Any]:
    named = query.identities
    ids = None if named is None else [*item_ids(query.items_of, map(recordable, named))]
    return {**query.items_of._asdict(), "identities": named, "item_ids": ids}


class Lists:
    """How far the lists of items are: `oncecron.plugins.Work`."""

    def __init__(self, lists: Sequence[ListView]) -> None:
        self._of_tick = {(view.key, view.tick): view for view in lists}
        self._newest = newest_lists(lists)

    def newest(self, key: str) -> str | None:
        """Return how far the newest list of a key is."""
        return _progress(self._newest.get(key))

    def of_tick(self, key: str, tick: str) -> str | None:
        """Return how far the list of a tick is."""
        return _progress(self._of_tick.get((key, tick)))

    def is_settled(self, ended: Execution) -> bool:
        """Return whether an execution is of a slot that did not succeed, and all items of its tick are done by now.

        A person has marked as done what its commands had left, or another slot has run it: nothing is left to do. The
        load of a list, the last shard, is another matter: it may have left out items that no list has.
        """
        view = self._of_tick.get((ended.key, ended.tick or ""))
        is_slot = ended.outcome != "succeeded" and ended.shard != ended.shards - 1
        return is_slot and view is not None and view.done == view.total


def _progress(view: ListView | None) -> str | None:
    return None if view is None else f"{view.counts.ended:,}/{view.counts.total:,}"


def newest_lists(lists: Iterable[ListView]) -> dict[str, ListView]:
    """Return the newest list of each key."""
    newest: dict[str, ListView] = {}
    for view in lists:
        if view.key not in newest or newest[view.key].loaded_at < view.loaded_at:
            newest[view.key] = view
    return newest


def items_in_doubt(lists: Iterable[ListView]) -> Iterator[tuple[ListView, str]]:
    """Yield the lists with items of which nobody can tell whether they have been done, and a sentence about each."""
    for view in lists:
        if view.lost:
            text = f"{view.lost} of {_items(view.total)} of the tick {view.tick} in doubt"
            yield view, text


def items_left(lists: Sequence[ListView]) -> Iterator[tuple[ListView, int, str]]:
    """Yield the lists with items that no newer tick of their key will run, how many, and a sentence about each."""
    newest = newest_lists(lists)
    for view in lists:
        left = view.queued + view.failed
        if left and view.tick != newest[view.key].tick:
            text = f"{_items(left)} of the tick {view.tick} left, and a newer tick has begun"
            yield view, left, text


def _items(count: int) -> str:
    return f"{count} item{'s' * (count != 1)}"
