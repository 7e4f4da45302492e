"""What the lists of items say of keys and leases: how far a tick is, what is in doubt, and what was left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.core.job_summary import Remark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from oncecron.core.log_rows import Execution, LeaseView, ListView


def newest_lists(lists: Iterable[ListView]) -> dict[str, ListView]:
    """Return the newest list of each key."""
    newest: dict[str, ListView] = {}
    for view in lists:
        if view.key not in newest or newest[view.key].loaded_at < view.loaded_at:
            newest[view.key] = view
    return newest


def fields_of_jobs(
    lists: Sequence[ListView],
) -> Callable[[str, Execution | None], dict[str, Any]]:
    """Return what gives the fields of a `JobSummary`, by key and the execution that has its outcome."""
    newest = newest_lists(lists)

    def fields(key: str, ended: Execution | None) -> dict[str, Any]:
        if key not in newest:
            return {}
        counts = newest[key].counts
        settled = ended is not None and is_settled(ended, lists)
        return {"items_ended": counts.ended, "items_total": counts.total, "settled": settled}

    return fields


def with_items(leases: Iterable[LeaseView], lists: Iterable[ListView]) -> Iterator[LeaseView]:
    """Yield leases with how far the list of their tick is."""
    known = {(view.key, view.tick): view.counts for view in lists}
    for lease in leases:
        counts = known.get((lease.key, lease.tick or ""))
        if counts is None:
            yield lease
        else:
            yield lease._replace(items_ended=counts.ended, items_total=counts.total)


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


def items_in_doubt(lists: Iterable[ListView]) -> Iterator[Remark]:
    """Yield the lists with items of which nobody can tell whether they have been done."""
    for view in lists:
        if view.lost:
            text = f"{view.lost} of {_items(view.total)} of the tick {view.tick} in doubt"
            yield Remark(view.key, text, tick=view.tick, count=view.lost, at=view.loaded_at)


def items_left(lists: Sequence[ListView]) -> Iterator[Remark]:
    """Yield the lists with items that no newer tick of their key will run."""
    newest = newest_lists(lists)
    for view in lists:
        left = view.queued + view.failed
        if left and view.tick != newest[view.key].tick:
            text = f"{_items(left)} of the tick {view.tick} left, and a newer tick has begun"
            yield Remark(view.key, text, tick=view.tick, count=left)


def _items(count: int) -> str:
    return f"{count} item{'s' * (count != 1)}"
