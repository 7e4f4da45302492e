"""The items of a firing on PostgreSQL: each step is one statement and one round trip."""

from __future__ import annotations

import json

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores import steadied
from oncecron.stores.postgres.session import PostgresSession
from oncecron_each.item_model import Drawn, DrawnItem, ItemCounts, Loaded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from oncecron.core.model import Lease
    from oncecron.stores.address import Address
    from oncecron.stores.postgres.session import Values
    from oncecron_each.item_model import Chunk, Draw, ItemList


STOPPED: dict[str | None, Literal["paused", "drained"]] = {"paused": "paused", "drained": "drained"}


class PostgresItemStore(PostgresSession):
    """The items of a firing; see `oncecron_each.store.ItemStore`."""

    @steadied
    def load(
        self, lease: Lease, items_of: ItemList, chunk: Chunk, *, deadline: float
    ) -> Loaded | None:
        differ = any(item.payload != item.identity for item in chunk.items)
        payloads = _array(item.payload for item in chunk.items) if differ else None
        values: Values = {
            "execution_id": lease.execution_id,
            "owner": lease.owner,
            "key": items_of.key,
            "tick": items_of.tick,
            "number": chunk.number,
            "identities": _array(item.identity for item in chunk.items),
            "payloads": payloads,
            "is_last": chunk.is_last,
            "keep": chunk.keep,
        }
        while True:
            row = self._call("load_items_v1", values, deadline)
            if row.get("is_held") != "t":
                return None
            if row.get("again") != "t":
                return Loaded(*(int(row.get(name, 0)) for name in Loaded._fields))

    @steadied
    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        values: Values = {
            "execution_id": lease.execution_id,
            "owner": lease.owner,
            "number": draw.number,
            "results": json.dumps([each._asdict() for each in draw.results], allow_nan=False),
            "wanted": draw.wanted,
            "redraw_below": draw.redraw_below,
        }
        row = self._call("draw_v1", values, deadline)
        if row.get("is_held") != "t":
            return None
        return Drawn(
            _items(row),
            float(row["wait"]) if "wait" in row else None,
            int(row.get("others", 0)),
            STOPPED.get(row.get("stopped")),
        )

    @steadied
    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        row = self._call("progress_v1", items_of._asdict(), deadline)
        if "total" not in row:
            return None
        return ItemCounts(*(int(row.get(name, 0)) for name in ItemCounts._fields))


def _items(row: dict[str, str]) -> list[DrawnItem]:
    found = [(*item, 1) for item in json.loads(row.get("items", "[]"))]
    if "marked" in row:
        found = sorted([*found, *map(tuple, json.loads(row["marked"]))])
    return [
        DrawnItem._make((place, name, name if payload is None else payload, attempt))
        for place, name, payload, attempt in found
    ]


def _array(texts: Iterable[str]) -> str:
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def open_items(address: Address, namespace: str, ttl: float) -> PostgresItemStore:
    """See `oncecron_each.store.open_item_store`."""
    return PostgresItemStore(address.target, namespace=namespace, ttl=ttl)
