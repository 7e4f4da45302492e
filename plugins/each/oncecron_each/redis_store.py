"""The items of a firing on Redis: each step is one Lua script and one round trip."""

from __future__ import annotations

import json

from oncecron.core.errors import RecordRefusedError, StoreRefusesError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import recordable
from oncecron.stores import steadied
from oncecron.stores.redis import scripts
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.lease_store import RedisSession
from oncecron_each.item_model import (
    Drawn,
    DrawnItem,
    ItemCounts,
    ItemList,
    Loaded,
    item_ids,
    out_of_turn,
)
from oncecron_each.redis_views import short_id, texts_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oncecron.core.model import Lease
    from oncecron.stores.address import Address
    from oncecron_each.item_model import Chunk, Draw, Item


class RedisItemStore(RedisSession):
    """The items of a firing; see `oncecron_each.store.ItemStore`."""

    _drawn_from: tuple[str, str, int] | None = None
    _keys: Sequence[str] = ()
    """Of its draws, which are all of one list."""

    @steadied
    def load(
        self, lease: Lease, items_of: ItemList, chunk: Chunk, *, deadline: float
    ) -> Loaded | None:
        shard = scripts.shard_of(lease.key, lease.shard)
        names = item_ids(items_of, (item.identity for item in chunk.items))
        items = [
            [short_id(name), _value(item)] for name, item in zip(names, chunk.items, strict=True)
        ]
        values: dict[str, str | int | float | None] = {
            **_lease_fields(lease),
            "list": scripts.list_of(items_of),
            "number": chunk.number,
            "items": json.dumps(items, ensure_ascii=False),
            "is_last": chunk.is_last,
            "keep": chunk.keep,
        }
        keys = self._names.of_list(shard, scripts.list_of(items_of), 0)
        answer: Any = [b"again"]
        while answer[0] == b"again":  # a step removes a part of what another load has left
            answer = self._run("each/load", shard, keys, values, deadline)
        if answer[0] == b"turn":
            raise RecordRefusedError(out_of_turn(chunk.number, answer[1]))
        if answer[0] == b"gone":
            return None
        if chunk.is_last and (error := self._missing_replicas("the items", deadline)):
            raise error
        return Loaded(*answer[1:])

    @steadied
    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        if lease.tick is None:
            return Drawn([])
        shard = scripts.shard_of(lease.key, lease.shard)
        values: dict[str, str | int | float | None] = {
            **_lease_fields(lease),
            "shard": str(lease.shard),
            "number": draw.number,
            "results": json.dumps(
                [result._asdict() for result in draw.results], ensure_ascii=False
            ),
            "wanted": draw.wanted,
            "slots": draw.slots,
            "redraw_below": draw.redraw_below,
            "is_replicated": self._target.wait > 0,
        }
        items_of = ItemList(lease.key, lease.tick)
        wanted = shard, scripts.list_of(items_of), draw.slots
        if wanted != self._drawn_from:
            self._drawn_from, self._keys = wanted, self._names.of_list(*wanted)
        answer: Any = self._run("each/draw", shard, self._keys, values, deadline)
        if answer[0] == b"gone":
            return None
        if answer[0] == b"forgotten":
            raise _forgotten_error(self._target.shown, items_of)
        if error := self._missing_replicas("the items", deadline):
            raise error
        _, wait, others, stopped, flat, first, texts = answer
        items = [
            DrawnItem._make((place, *texts_of(value), 1))
            for place, value in enumerate(
                json.loads(texts.decode("utf-8", "replace")), int(first or 1)
            )
        ]
        if flat:
            marked = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            items += (
                DrawnItem(int(place), *texts_of(value.decode("utf-8", "replace")), int(tries))
                for place, value, tries in marked
            )
            items.sort()
        return Drawn(items, float(wait) if wait else None, others, stopped.decode() or None)

    @steadied
    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        shard = scripts.shard_of(items_of.key, 0)
        name = self._names.of_shard("list", scripts.list_of(items_of))
        slots: Any = self._ask(deadline, "HGET", name, "slots")
        keys = self._names.of_list(shard, scripts.list_of(items_of), int(slots or 0))
        answer: Any = self._run("each/progress", shard, keys, {}, deadline)
        return ItemCounts(*map(int, answer[:7])) if answer else None


def _value(item: Item) -> str:
    identity, payload = recordable(item.identity), recordable(item.payload)
    return identity if payload == identity else f"{identity}\0{payload}"


def _lease_fields(lease: Lease) -> dict[str, str | int | float | None]:
    return {"execution_id": lease.execution_id, "owner": lease.owner}


def _forgotten_error(shown: str, of_list: ItemList) -> StoreRefusesError:
    return StoreRefusesError(
        f"Redis {shown}: key {of_list.key}, tick {of_list.tick}: the server may have forgotten which items were drawn, "
        "because it has restarted without `appendonly yes`, or a replica was promoted; load what is left under another "
        "tick"
    )


def open_items(address: Address, namespace: str, ttl: float) -> RedisItemStore:
    """See `oncecron_each.store.open_item_store`."""
    target = parse(address.target, address.options)
    return RedisItemStore(target, namespace=namespace, ttl=ttl)
