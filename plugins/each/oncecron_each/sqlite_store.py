"""The items of a firing on SQLite: each step is one transaction."""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.errors import RecordRefusedError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import recordable
from oncecron.host.names import boot_id
from oncecron.stores import steadied
from oncecron.stores.sqlite.connection import Handle, file_of
from oncecron.stores.sqlite.lease_store import find_stop, moment
from oncecron_each.item_model import (
    LARGEST_BATCH,
    LARGEST_CHUNK,
    Drawn,
    DrawnItem,
    ItemCounts,
    Loaded,
    item_ids,
    out_of_turn,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from oncecron.core.model import Lease
    from oncecron.stores import Steadiness
    from oncecron.stores.address import Address
    from oncecron.stores.sqlite.connection import Connection
    from oncecron.stores.sqlite.lease_store import Values
    from oncecron_each.item_model import Chunk, Draw, ItemList, ItemResult

    _Row = tuple[Any, ...]

_LEFTOVERS = 50_000
"""How many items of a load that was cut off one transaction removes."""


class SQLiteItemStore:
    """The items of a firing in a SQLite file; see `oncecron_each.store.ItemStore`."""

    lease_clock = clock.MONOTONIC
    steadiness: Steadiness | None = None

    def __init__(self, path: str, *, namespace: str) -> None:
        path = file_of(path, namespace)
        self._handle = Handle(path, create=True, statements=("firing", "items"), begun=True)
        self._boot = boot_id()

    @steadied
    def load(
        self, lease: Lease, items_of: ItemList, chunk: Chunk, *, deadline: float
    ) -> Loaded | None:
        while True:  # each turn removes a part of what another load has left
            with self._handle.until(deadline) as store, store.writing(durable=True):
                now = moment(self._boot)
                if store.one("held", **lease._asdict(), **now) is None:
                    return None
                found = _begin_load(store, lease, items_of, chunk)
                if found is None:
                    return None
                if found["loading_execution"] is not None:
                    return _add(store, found, items_of, chunk, now["now"])

    @steadied
    def draw(self, lease: Lease, draw: Draw, *, deadline: float) -> Drawn | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = moment(self._boot)
            found = store.one("find_drawing", **lease._asdict(), **now)
            if found is None:
                return None
            if found["loaded_at"] is None:
                return Drawn([])
            return _Slot(store, found, lease, now).draw(draw, found["host"])

    @steadied
    def progress(self, items_of: ItemList, *, deadline: float) -> ItemCounts | None:
        with self._handle.until(deadline) as store, store.reading():
            row = store.one("item_lists", **items_of._asdict(), **moment(self._boot))
        return None if row is None else ItemCounts(*tuple(row)[2:-1])

    def readdress(self, address: Address) -> None:
        """Do nothing: a file has no login, and another file is another store."""

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def _begin_load(store: Connection, lease: Lease, items_of: ItemList, chunk: Chunk) -> Any:
    """Return the list for a step of a load; without `loading_execution` it has leftovers of another load yet."""
    found = store.one("find_list", **items_of._asdict())
    if found is not None and found["loading_execution"] == lease.execution_id:
        return found
    if chunk.number > 0:
        return None
    if found is None:
        store.execute("make_list", **items_of._asdict())
        found = store.one("find_list", **items_of._asdict())
    until = max(found["total"], found["loading_until"] - _LEFTOVERS)
    store.execute(
        "remove_leftovers",
        list_id=found["list_id"],
        position=until,
        loading_until=found["loading_until"],
    )
    store.execute(
        "begin_load",
        list_id=found["list_id"],
        loading_until=until,
        loading_execution=lease.execution_id if until == found["total"] else None,
    )
    return store.one("find_list", **items_of._asdict())


def _add(store: Connection, found: Any, items_of: ItemList, chunk: Chunk, now: float) -> Loaded:
    list_id, until = found["list_id"], found["loading_until"]
    known, repeated = found["loading_known"], found["loading_repeated"]
    if chunk.number not in (found["loading_number"], found["loading_number"] + 1):
        raise RecordRefusedError(out_of_turn(chunk.number, found["loading_number"]))
    if chunk.number > found["loading_number"]:
        rows = _rows(list_id, until, items_of, chunk)
        if store.execute_many("put_items", rows) == len(rows):
            until += len(rows)
        else:
            store.execute(
                "remove_leftovers", list_id=list_id, position=until, loading_until=until + len(rows)
            )
            new, more_known = _new(store, rows, until, found["loading_from"])
            store.execute_many("put_items", new)
            until += len(new)
            known, repeated = known + more_known, repeated + len(rows) - len(new) - more_known
        store.execute(
            "end_step",
            list_id=list_id,
            number=chunk.number,
            loading_until=until,
            loading_known=known,
            loading_repeated=repeated,
        )
        if chunk.is_last:
            store.execute("end_load", list_id=list_id, now=now, keep=chunk.keep or 0.0)
    return Loaded(until - found["loading_from"], known, repeated, until)


def _rows(list_id: int, until: int, items_of: ItemList, chunk: Chunk) -> list[_Row]:
    rows = []
    items = chunk.items[:LARGEST_CHUNK]
    names = item_ids(items_of, (item.identity for item in items))
    for position, (item, name) in enumerate(zip(items, names, strict=True), until + 1):
        identity, payload = recordable(item.identity), recordable(item.payload)
        more = None if payload == identity else payload
        rows.append((list_id, position, bytes.fromhex(name), identity, more))
    return rows


def _new(
    store: Connection, rows: list[_Row], until: int, loading_from: int
) -> tuple[list[_Row], int]:
    """Return those rows that are new, without gaps, and how many are known from an earlier load."""
    new: dict[bytes, _Row] = {}
    known = 0
    for list_id, _, digest, *texts in rows:
        place = store.one("position_of", list_id=list_id, item_id=digest)
        if place is None:
            new.setdefault(digest, (list_id, until + len(new) + 1, digest, *texts))
        elif place[0] <= loading_from:
            known += 1
    return [*new.values()], known


class _Slot:
    """A slot of a list that an execution draws for; what its last execution has taken and not settled is in doubt."""

    def __init__(self, store: Connection, found: Any, lease: Lease, now: Values) -> None:
        self._store = store
        self._list = found
        self._now = now
        part = {"list_id": found["list_id"], "shard": lease.shard}
        batch = {name: found[name] for name in ("first", "size", "taken_at")}
        is_own = found["execution_id"] == lease.execution_id
        if not is_own:
            if found["first"] is not None:
                doubt(
                    store,
                    {**part, **batch, "execution_id": found["execution_id"]},
                    "lost",
                    now["now"],
                )
            batch = dict.fromkeys(batch)
        self._number: int = found["number"] if is_own else 0
        self._batch = {**part, "execution_id": lease.execution_id, **batch}
        """The batch that is not settled, as the statements have it."""

    def draw(self, draw: Draw, host: str) -> Drawn | None:
        """Return the answer to a draw."""
        if draw.number not in (self._number, self._number + 1):
            return None
        stopped = None
        if draw.number > self._number:
            self._settle(draw.results)
            place = {"key": self._list["key"], "host": host}
            stop = find_stop(self._store, {**place, **self._now})
            stopped = stop and stop.refusal
            due = 0 if stopped else self._take(draw)
            number = draw.number if due or self._batch["first"] is not None else self._number
            self._store.execute("put_slot", **self._batch, number=number, now=self._now["now"])
        rows = self._store.execute("taken_items", **self._batch) if draw.wanted > 0 else ()
        items = [DrawnItem._make(row) for row in rows]
        if items or stopped:
            return Drawn(items, stopped=stopped)
        return Drawn(
            items, self._wait(), self._store.one("taken_by_others", **self._batch, **self._now)[0]
        )

    def _settle(self, results: Iterable[ItemResult]) -> None:
        batch, now = self._batch, self._now["now"]
        for result in results:
            known = {**batch, **result._asdict(), "now": now}
            if self._is_in_batch(result.position) or self._store.one("is_taken", **known):
                known["not_before"] = (
                    now + (result.delay or 0.0) if result.state == "failed" else None
                )
                self._store.execute("put_result", **known)
        self._store.execute("settle_rest", **batch, now=now)
        if batch["first"] is not None:
            self._store.execute("put_batch", **batch, now=now)
        batch["first"] = batch["size"] = None

    def _is_in_batch(self, position: int) -> bool:
        first, size = self._batch["first"], self._batch["size"]
        return first is not None and first <= position < first + size

    def _take(self, draw: Draw) -> int:
        """Take what is due, and then what comes next in the list; return how many were due."""
        wanted = min(draw.wanted, LARGEST_BATCH)
        if not wanted:
            return 0
        if draw.redraw_below:
            redraw(self._store, self._list["list_id"], draw.redraw_below, self._now)
        due = self._store.execute("take_due", **self._batch, **self._now, wanted=wanted).rowcount
        size = min(wanted - due, self._list["total"] - self._list["next"] + 1)
        if size > 0:
            self._batch |= {"first": self._list["next"], "size": size}
            self._store.execute("take_next", **self._batch)
        return due

    def _wait(self) -> float | None:
        due = self._store.one("next_retry", list_id=self._list["list_id"])[0]
        return None if due is None else max(due - self._now["now"], 0.001)


def doubt(store: Connection, slot: Any, state: str, now: float) -> None:
    """Turn the batch of a slot whose execution is dead into items of their own, `lost` or `queued`."""
    batch = dict(slot)
    store.execute("doubt_items", **batch, state=state, now=now)
    store.execute("put_batch", **batch, now=now)
    store.execute("clear_slot", **batch)


def redraw(store: Connection, list_id: int, below: int, now: Values) -> None:
    """Queue the items in doubt again that were drawn fewer times than this."""
    if below > 1:
        for slot in store.execute("dead_slots", list_id=list_id, **now).fetchall():
            doubt(store, slot, "queued", now["now"])
    store.execute("redraw_items", list_id=list_id, redraw_below=below, **now)


def open_items(address: Address, namespace: str, ttl: float) -> SQLiteItemStore:
    """See `oncecron_each.store.open_item_store`."""
    del ttl
    return SQLiteItemStore(address.target, namespace=namespace)
