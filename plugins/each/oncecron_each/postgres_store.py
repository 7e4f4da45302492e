"""The items of a firing on PostgreSQL: each step is one statement and one round trip."""

from __future__ import annotations

import json

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.stores import steadied
from oncecron.stores.postgres.session import PostgresSession
from oncecron_each.item_model import Drawn, DrawnItem, ItemCounts, Loaded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from oncecron.core.model import Lease
    from oncecron.stores.address import Address
    from oncecron.stores.postgres.libpq import Column
    from oncecron_each.item_model import Chunk, Draw, ItemList


STOPPED: dict[Column, Literal["paused", "drained"]] = {b"paused": "paused", b"drained": "drained"}


class LoadRow(NamedTuple):
    """The columns of load_items_v1."""

    is_held: Column
    again: Column
    added: Column
    known: Column
    repeated: Column
    total: Column


class DrawRow(NamedTuple):
    """The columns of draw_v1."""

    is_held: Column
    items: Column
    marked: Column
    wait: Column
    others: Column
    stopped: Column


class PostgresItemStore(PostgresSession):
    """The items of a firing; see `oncecron_each.store.ItemStore`."""

    @steadied
    def load(
        self, lease: Lease, items_of: ItemList, chunk: Chunk, *, deadline: float
    ) -> Loaded | None:
        differ = any(item.payload != item.identity for item in chunk.items)
        payloads = _array(item.payload for item in chunk.items) if differ else None
        values = (
            *(lease.execution_id, lease.owner, *items_of, chunk.number),
            _array(item.identity for item in chunk.items),
            payloads,
            *(chunk.is_last, chunk.keep),
        )
        while True:
            row = LoadRow(*self._call("load_items_v1", values, deadline))
            if row.is_held != b"t":
                return None
            if row.again != b"t":
                return Loaded(*(int(value or 0) for value in row[2:]))

    @steadied
    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        results = json.dumps([result._asdict() for result in draw.results], allow_nan=False)
        values = (
            *(lease.execution_id, lease.owner, draw.number, results),
            *(draw.wanted, draw.redraw_below),
        )
        row = DrawRow(*self._call("draw_v1", values, deadline))
        if row.is_held != b"t":
            return None
        return Drawn(
            _items(row),
            None if row.wait is None else float(row.wait),
            int(row.others or 0),
            STOPPED.get(row.stopped),
        )

    @steadied
    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        row = self._call("progress_v1", tuple(items_of), deadline)
        return None if row[0] is None else ItemCounts(*(int(value or 0) for value in row))


def _items(row: DrawRow) -> list[DrawnItem]:
    found = [] if row.items is None else [(*item, 1) for item in json.loads(row.items)]
    if row.marked is not None:
        found = sorted([*found, *map(tuple, json.loads(row.marked))])
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
