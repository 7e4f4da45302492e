"""The items of `each` in the store in memory: an item is a row, as people see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncecron.core import clock, facts
from oncecron.core.errors import RecordRefusedError
from oncecron.core.model import recordable
from oncecron_each import item_model
from oncecron_each.item_model import Drawn, DrawnItem, ItemCounts, Loaded
from oncecron_each.reports import ItemRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_store import Memory, Row

    from oncecron.core.model import Lease
    from oncecron_each.item_model import Chunk, Draw, ItemList, ItemResult


class MemoryItems:
    """`ItemStore` of one worker."""

    lease_clock = clock.BOOTTIME

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def load(
        self, lease: Lease, items_of: ItemList, chunk: Chunk, *, deadline: float
    ) -> Loaded | None:
        memory = self._memory
        if _execution(memory, lease) is None:
            return None
        found = memory.lists.get(items_of)
        if found is None or found["loader"][2] != lease.execution_id:
            if chunk.number > 0:
                return None
            found = memory.lists.setdefault(tuple(items_of), found or _no_list())
            del found["items"][found["total"] :]
            found["places"] = {row["item_id"]: row["position"] for row in found["items"]}
            found |= {"from": found["total"], "known": 0, "repeated": 0, "number": -1}
            found["loader"] = (lease.key, lease.shard, lease.execution_id)
        if chunk.number not in (found["number"], found["number"] + 1):
            raise RecordRefusedError(item_model.out_of_turn(chunk.number, found["number"]))
        if chunk.number > found["number"]:
            found["number"] = chunk.number
            _add(found, items_of, chunk)
            if chunk.is_last:
                found |= {"total": len(found["items"]), "loaded_at": memory.now()}
                found["keep"] = max(found["keep"], chunk.keep or 0.0)
        until = len(found["items"])
        return Loaded(until - found["from"], found["known"], found["repeated"], until)

    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        memory, execution = self._memory, _execution(self._memory, lease)
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
        stop = None
        if draw.number > slot["number"]:
            _settle(memory, slot, {each.position: each for each in draw.results})
            stop = facts.stop_of(memory.stop_of(lease.key, execution["host"]))
            slot["batch"] = [] if stop else _take(memory, found, lease, draw)
            slot["number"] = draw.number if slot["batch"] else slot["number"]
        return _drawn(memory, found, slot["batch"] if draw.wanted > 0 else [], lease, stop)

    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        lists = {(row[0], row[1]): row[2:-1] for row in list_rows(self._memory)}
        return ItemCounts(*lists[items_of]) if items_of in lists else None

    def readdress(self, address: object) -> None:
        return

    def close(self) -> None:
        return


def _execution(memory: Memory, lease: Lease) -> Row | None:
    part = memory.known(lease.key, lease.shard)
    row = part.row(lease.execution_id)
    is_held = memory.is_living(lease.key, lease.shard, lease.execution_id)
    is_own = is_held and part.lease["owner"] == lease.owner
    return row if is_own and row["outcome"] == "running" else None


def _no_list() -> Row:
    nothing = {"items": [], "slots": {}, "loaded_at": None, "loader": (None,) * 3}
    return nothing | {"total": 0, "next": 0, "keep": 0.0}


def loaded(items_of: ItemList, items: list[item_model.Item], now: float) -> Row:
    found = _no_list() | {"places": {}, "from": 0, "loaded_at": now}
    _add(found, items_of, item_model.Chunk(0, items, is_last=True))
    return found | {"total": len(items)}


def _add(found: Row, items_of: ItemList, chunk: Chunk) -> None:
    items = chunk.items[: item_model.LARGEST_CHUNK]
    ids = item_model.item_ids(items_of, (each.identity for each in items))
    for item, name in zip(items, ids, strict=True):
        if place := found["places"].get(name):
            found["known" if place <= found["from"] else "repeated"] += 1
            continue
        place = found["places"][name] = len(found["items"]) + 1
        row = dict.fromkeys(ItemRow._fields) | items_of._asdict() | {"position": place}
        row |= {"item": recordable(item.identity), "item_id": name, "state": "queued"}
        row |= {"payload": recordable(item.payload), "attempts": 0, "shard": None}
        found["items"].append(row)


def _settle(memory: Memory, slot: Row, results: dict[int, ItemResult]) -> None:
    now = memory.now()
    for row in slot["batch"]:
        result = results.get(row["position"])
        row |= {"state": result.state if result else "done", "since": now}
        if result:
            is_failed = result.state == "failed"
            row["not_before"] = now + (result.delay or 0.0) if is_failed else None
            row["reason"] = result.reason and recordable(result.reason)
    slot["batch"] = []


def _take(memory: Memory, found: Row, lease: Lease, draw: Draw) -> list[Row]:
    wanted, begin, now = min(draw.wanted, item_model.LARGEST_BATCH), found["next"], memory.now()
    for row in found["items"][:begin] if wanted else ():
        if row["attempts"] < draw.redraw_below and _state(memory, row) == "lost":
            row |= {"state": "queued", "not_before": now}
    due = [row for row in found["items"][:begin] if _due(row) <= now]
    due = sorted(due, key=_due)[:wanted]
    fresh = found["items"][begin : min(begin + wanted - len(due), found["total"])]
    found["next"] += len(fresh)
    taken = {"state": "taken", "not_before": None, "since": now, "shard": lease.shard}
    for row in (*due, *fresh):
        row.update(taken | {"attempts": row["attempts"] + 1, "execution_id": lease.execution_id})
    return sorted([*due, *fresh], key=lambda row: row["position"])


def _due(row: Row) -> float:
    return float("inf") if row["not_before"] is None else row["not_before"]


def _drawn(memory: Memory, found: Row, batch: list[Row], lease: Lease, stop: Any) -> Drawn:
    names = ("position", "item", "payload", "attempts")
    items = [DrawnItem(*(row[name] for name in names)) for row in batch]
    if items or stop:
        return Drawn(items, stopped=stop and stop.refusal)
    wait = min(map(_due, found["items"]), default=float("inf")) - memory.now()
    taken = [row for row in found["items"] if _state(memory, row) == "taken"]
    others = sum(row["execution_id"] != lease.execution_id for row in taken)
    return Drawn(items, None if wait == float("inf") else max(wait, 0.001), others)


def _state(memory: Memory, row: Row) -> str:
    named = (row["key"], row["shard"], row["execution_id"])
    return "lost" if row["state"] == "taken" and not memory.is_living(*named) else row["state"]


def list_rows(memory: Memory) -> Iterator[tuple[Any, ...]]:
    """Yield the lists as people see them."""
    for items_of, found in memory.lists.items():
        if found["loaded_at"] is not None:
            states = [_state(memory, row) for row in found["items"][: found["total"]]]
            counts = map(states.count, item_model.ITEM_STATES)
            yield *items_of, found["total"], *counts, found["loaded_at"]


def _visible(memory: Memory, key: str, tick: str, item_ids: list[str] | None) -> list[Row]:
    found = memory.lists.get((key, tick), _no_list())
    rows = found["items"][: found["total"]]
    return [row for row in rows if item_ids is None or row["item_id"] in item_ids]


def item_rows(
    memory: Memory, key: str, tick: str, item_ids: list[str] | None
) -> Iterator[tuple[Any, ...]]:
    """Yield the items of a list as people see them."""
    for row in _visible(memory, key, tick, item_ids):
        shown = row | {"state": _state(memory, row)}
        shown["not_before"] = row["not_before"] if row["state"] == "failed" else None
        yield tuple(shown[name] for name in ItemRow._fields)


def mend_items(
    memory: Memory, key: str, tick: str, item_ids: list[str] | None, states: list[str], state: str,
    reason: str, **_: Any,
) -> int:  # fmt: skip
    """Put the items in some states into another one; return how many."""
    rows, now = _visible(memory, key, tick, item_ids), memory.now()
    wanted = [row for row in rows if _state(memory, row) in states]
    for row in wanted:
        row |= {"state": state, "since": now, "reason": reason}
        row["not_before"] = now if state == "queued" else None
    return len(wanted)
