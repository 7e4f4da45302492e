"""What the lists of items say of keys and leases: how far a tick is, what is in doubt, and what was left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.log_rows import Execution, LeaseView, ListView


def newest_lists(lists: Iterable[ListView]) -> dict[str, ListView]:
    """Return the newest list of each key."""
    newest: dict[str, ListView] = {}
    for view in lists:
        if view.key not in newest or newest[view.key].loaded_at < view.loaded_at:
            newest[view.key] = view
    return newest


def with_items(leases: Iterable[LeaseView], lists: Iterable[ListView]) -> Iterator[LeaseView]:
    """Yield leases with how far the list of their tick is."""
    known = {(view.key, view.tick): view.counts for view in lists}
    for lease in leases:
        counts = known.get((lease.key, lease.tick or ""))
        if counts is None:
            yield lease
        else:
            yield lease._replace(items_ended=counts.ended, items_total=counts.total)


def in_doubt(view: ListView) -> str:
    """Return the sentence about the items in doubt of a list."""
    return f"{view.lost} of {_items(view.total)} of the tick {view.tick} in doubt"


def is_settled(ended: Execution, lists: Iterable[ListView]) -> bool:
    """Return whether an execution is of a slot that did not succeed, and all items of its tick are done by now.

    A person has marked as done what its commands had left, or another slot has run it: nothing is left to do. The load
    of a list, the last shard, is another matter: it may have left out items that no list has.
    """
    return (
        ended.outcome != "succeeded"
        and ended.shard != ended.shards - 1
        and any(
            view.items_of == (ended.key, ended.tick) and view.done == view.total for view in lists
        )
    )


def left_behind(lists: Sequence[ListView]) -> Iterator[tuple[ListView, int, str]]:
    """Yield the lists with items that no newer tick of their key will run: how many, and the sentence about them."""
    newest = newest_lists(lists)
    for view in lists:
        left = view.queued + view.failed
        if left and view.tick != newest[view.key].tick:
            yield (
                view,
                left,
                f"{_items(left)} of the tick {view.tick} left, and a newer tick has begun",
            )


def _items(count: int) -> str:
    return f"{count} item{'s' * (count != 1)}"
