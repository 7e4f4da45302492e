"""The items of `each` in the store in memory: each item is a row, each step is atomic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncecron.core import clock
from oncecron.core.errors import RecordRefusedError
from oncecron.core.facts import stop_of
from oncecron.core.model import recordable
from oncecron.each.reports import ItemRow
from oncecron.each.values import (
    ITEM_STATES,
    LARGEST_BATCH,
    LARGEST_CHUNK,
    Drawn,
    DrawnItem,
    ItemCounts,
    Loaded,
    out_of_turn,
)
from oncecron.each.values import (
    item_ids as ids_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_store import Memory, Row

    from oncecron.core.log_rows import Mending
    from oncecron.core.model import Lease
    from oncecron.each.values import Chunk, Draw, ItemList, ItemResult


class MemoryItems:
    """`ItemStore` of one worker."""

    lease_clock = clock.BOOTTIME

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def load(
        self, lease: Lease, items_of: ItemList, chunk: Chunk, *, deadline: float
    ) -> Loaded | None:
        with self._memory.lock:
            return load(self._memory, lease, items_of, chunk)

    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        with self._memory.lock:
            return draw_items(self._memory, lease, draw)

    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        with self._memory.lock:
            found = self._memory.lists.get(items_of)
            is_loaded = found and found["loaded_at"] is not None
            return _counts(self._memory, items_of[0], found) if is_loaded else None

    def readdress(self, address: object) -> None:
        return

    def close(self) -> None:
        return


def _execution(memory: Memory, lease: Lease) -> Row | None:
    """Return the execution of a lease that lives."""
    place = (lease.key, lease.shard)
    part = memory.known(place)
    row = part.row(lease.execution_id)
    is_own = row and part.lease and part.lease["owner"] == lease.owner
    is_held = is_own and memory.is_living(place, lease.execution_id)
    return row if is_held and row["outcome"] == "running" else None


def load(memory: Memory, lease: Lease, items_of: ItemList, chunk: Chunk) -> Loaded | None:
    """Take a step of a load."""
    if _execution(memory, lease) is None:
        return None
    found = memory.lists.get(items_of)
    if found is None or found["loading_execution"] != lease.execution_id:
        if chunk.number > 0:
            return None
        new = {"total": 0, "next": 1, "loaded_at": None, "keep": 0.0, "items": [], "slots": {}}
        found = memory.lists.setdefault(tuple(items_of), found or new)
        del found["items"][found["total"] :]
        found["places"] = {row["item_id"]: row["position"] for row in found["items"]}
        found |= {"from": found["total"], "known": 0, "repeated": 0, "number": -1}
        found["loading_execution"] = lease.execution_id
        found["loading_place"] = (lease.key, lease.shard)
    if chunk.number not in (found["number"], found["number"] + 1):
        raise RecordRefusedError(out_of_turn(chunk.number, found["number"]))
    if chunk.number > found["number"]:
        found["number"] = chunk.number
        _add(found, items_of, chunk)
        if chunk.is_last:
            found |= {"total": len(found["items"]), "loaded_at": memory.now()}
            found["keep"] = max(found["keep"], chunk.keep or 0.0)
    until = len(found["items"])
    return Loaded(until - found["from"], found["known"], found["repeated"], until)


def _add(found: Row, items_of: ItemList, chunk: Chunk) -> None:
    items = chunk.items[:LARGEST_CHUNK]
    for item, name in zip(items, ids_of(items_of, (each.identity for each in items)), strict=True):
        if place := found["places"].get(name):
            found["known" if place <= found["from"] else "repeated"] += 1
            continue
        position = found["places"][name] = len(found["items"]) + 1
        named = (*items_of, position, recordable(item.identity), name)
        values = (*named, "queued", 0, None, None, None, None, recordable(item.payload))
        found["items"].append(dict(zip(ItemRow._fields, values, strict=True)) | {"shard": None})


def draw_items(memory: Memory, lease: Lease, draw: Draw) -> Drawn | None:
    """Settle the last batch of an execution, and take the next one."""
    execution = _execution(memory, lease)
    if execution is None:
        return None
    found = memory.lists.get((lease.key, execution["tick"]))
    if found is None or found["loaded_at"] is None:
        return Drawn([])
    slot = found["slots"].get(lease.shard)
    if slot is None or slot["execution_id"] != lease.execution_id:
        slot = {"execution_id": lease.execution_id, "number": 0, "batch": []}
        found["slots"][lease.shard] = slot
    if draw.number not in (slot["number"], slot["number"] + 1):
        return None
    stopped = None
    if draw.number > slot["number"]:
        _settle(memory, slot, draw.results)
        stop = stop_of(memory.stop_of(lease.key, execution["host"]))
        stopped = stop and stop.refusal
        slot["batch"] = [] if stopped else _take(memory, found, lease, draw)
        slot["number"] = draw.number if slot["batch"] else slot["number"]
    items = [
        DrawnItem(row["position"], row["item"], row["payload"], row["attempts"])
        for row in (slot["batch"] if draw.wanted > 0 else ())
        if row["state"] == "taken"
    ]
    if items or stopped:
        return Drawn(items, stopped=stopped)
    waiting = [row["not_before"] for row in found["items"] if row["not_before"] is not None]
    wait = max(min(waiting) - memory.now(), 0.001) if waiting else None
    others = [row for row in found["items"] if _state(memory, lease.key, row) == "taken"]
    return Drawn(items, wait, sum(row["execution_id"] != lease.execution_id for row in others))


def _settle(memory: Memory, slot: Row, results: Iterable[ItemResult]) -> None:
    """Record how the last batch has ended."""
    named, now = {each.position: each for each in results}, memory.now()
    for row in slot["batch"]:
        if row["state"] == "taken" and row["execution_id"] == slot["execution_id"]:
            result = named.get(row["position"])
            row |= {"state": result.state if result else "done", "since": now}
            if result:
                failed = result.state == "failed"
                row["not_before"] = now + (result.delay or 0.0) if failed else None
                row["reason"] = result.reason and recordable(result.reason)


def _take(memory: Memory, found: Row, lease: Lease, draw: Draw) -> list[Row]:
    """Take what is due, and then what comes next in the list; return it by position."""
    wanted, now = min(draw.wanted, LARGEST_BATCH), memory.now()
    if not wanted:
        return []
    drawn = found["items"][: found["next"] - 1]
    for row in drawn:
        if row["attempts"] < draw.redraw_below and _state(memory, lease.key, row) == "lost":
            row |= {"state": "queued", "not_before": now}
    due = [row for row in drawn if row["not_before"] is not None and row["not_before"] <= now]
    batch = sorted(due, key=lambda row: row["not_before"])[:wanted]
    begin = found["next"] - 1
    fresh = found["items"][begin : min(begin + wanted - len(batch), found["total"])]
    found["next"] += len(fresh)
    for row in (batch := batch + fresh):
        row |= {"state": "taken", "not_before": None, "attempts": row["attempts"] + 1, "since": now}
        row |= {"execution_id": lease.execution_id, "shard": lease.shard}
    return sorted(batch, key=lambda row: row["position"])


def _state(memory: Memory, key: str, row: Row) -> str:
    is_lost = row["state"] == "taken" and not memory.is_living(
        (key, row["shard"]), row["execution_id"]
    )
    return "lost" if is_lost else row["state"]


def _counts(memory: Memory, key: str, found: Row) -> ItemCounts:
    states = [_state(memory, key, row) for row in found["items"][: found["total"]]]
    return ItemCounts(found["total"], *(states.count(state) for state in ITEM_STATES))


def list_rows(memory: Memory) -> Iterator[tuple[Any, ...]]:
    """Yield the lists as people see them."""
    for (key, tick), found in memory.lists.items():
        if found["loaded_at"] is not None:
            yield key, tick, *_counts(memory, key, found), found["loaded_at"]


def item_rows(
    memory: Memory, items_of: tuple[str, str], item_ids: list[str] | None
) -> Iterator[tuple[Any, ...]]:
    """Yield the items of a list as people see them."""
    found = memory.lists.get(items_of, {"items": [], "total": 0})
    for row in found["items"][: found["total"]]:
        if item_ids is None or row["item_id"] in item_ids:
            shown = row | {"state": _state(memory, items_of[0], row)}
            shown["not_before"] = row["not_before"] if row["state"] == "failed" else None
            yield tuple(shown[name] for name in ItemRow._fields)


def mend(memory: Memory, mending: Mending) -> int:
    """Put the items in some states into another one; return how many."""
    found = memory.lists.get((mending.key, mending.tick), {"items": []})
    wanted = [
        row
        for row in found["items"]
        if mending.item_ids is None or row["item_id"] in mending.item_ids
        if _state(memory, mending.key, row) in mending.states
    ]
    for row in wanted:
        row |= {"state": mending.state, "since": memory.now(), "reason": mending.reason}
        row["not_before"] = memory.now() if mending.state == "queued" else None
    return len(wanted)
