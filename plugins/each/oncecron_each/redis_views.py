"""The lists of items on Redis for people: plain rows of them, and how they are mended."""

from __future__ import annotations

import base64
import bisect
import json

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.redis import scripts
from oncecron_each.item_model import ItemList

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from oncecron.stores.api import Row
    from oncecron.stores.reader import Reader
    from oncecron.stores.redis.people_client import PeopleClient

    Step = dict[str, Any]

_PAGE = 500
_ID_LENGTH = 22
"""Of an item's id in base 64: a third shorter than as hexadecimal digits, twice for each item."""


def short_id(name: str) -> str:
    """Return an `item_id` as the server has it."""
    return base64.b64encode(bytes.fromhex(name)).decode().rstrip("=")


def texts_of(value: str) -> tuple[str, str]:
    """Return the identity and the payload of a stored item."""
    identity, _, payload = value[_ID_LENGTH:].partition("\0")
    return identity, payload or identity


def item_lists(
    client: PeopleClient, reader: Reader, key: str | None, tick: str | None
) -> Iterator[Row]:
    """Yield the lists of a key, or of all keys, with their counts."""
    [members] = client.ask([("ZREVRANGE", client.names.of_namespace("lists"), 0, -1)])
    for member in members:
        items_of = reader.readable("the items {0!r}", list_named, member)
        if items_of and key in (None, items_of.key) and tick in (None, items_of.tick):
            row = reader.readable("the items of key {1} and tick {2}", _counted, client, *items_of)
            if row:
                yield row


def list_named(member: bytes) -> ItemList:
    """Return the list of a name. Raises `ValueError`: oncecron uses no other names."""
    key, sign, tick = member.decode().partition("#")
    if not sign:
        raise ValueError("the name is not KEY#TICK")
    return ItemList(key, tick)


def _counted(client: PeopleClient, key: str, tick: str) -> tuple[Any, ...]:
    """Return a list with its counts; nothing if retention is removing it. It runs no script, which a reader may not."""
    found = _Reader(client, ItemList(key, tick))
    return found.view() if found.is_loaded else ()


def mend_items(
    client: PeopleClient,
    key: str,
    tick: str,
    item_ids: Sequence[str] | None,
    states: Sequence[str],
    **values: Any,
) -> int:
    """Queue items again, or mark them as done; with the first shard of their key."""
    values |= {"identities": None, "states": json.dumps(states), "part": scripts.shard_of(key, 0)}
    if item_ids is not None:
        values["ids"] = json.dumps([*map(short_id, item_ids)])
    name = scripts.list_of((key, tick))
    [slots] = client.ask([("HGET", client.names.of_shard("list", name), "slots")])
    keys = client.names.of_list(values["part"], name, int(slots or 1))
    return int(client.step_of_keys("each/mend", keys, values))


def items(
    client: PeopleClient,
    reader: Reader,
    key: str,
    tick: str,
    item_ids: Sequence[str] | None,
    **_: Any,
) -> Iterator[Row]:
    """Yield the items of one list, in the order of the list."""
    found = _Reader(client, ItemList(key, tick))
    for place, value, mark in found.rows(item_ids):
        row = reader.readable("item {0} of key {1}", found.row, place, key, value, mark)
        if row:
            yield row


class _Reader:
    def __init__(self, client: PeopleClient, items_of: ItemList) -> None:
        self._client = client
        self._list = items_of
        names = ("list", "slots", "batches")
        (now, micros), *found = client.ask(
            [("TIME",), *(("HGETALL", self._name(name)) for name in names)]
        )
        known, slots, batches = found
        self.is_loaded = b"loaded_at" in known
        self._known = known
        self._total = int(known.get(b"total", 0)) if self.is_loaded else 0
        self._next = int(known.get(b"next", 1))
        self._slots: dict[str, Step] = {
            shard.decode(): json.loads(text) for shard, text in slots.items()
        }
        self._batches = sorted((int(first), json.loads(text)) for first, text in batches.items())
        self._holders = self._living(int(now) + int(micros) / 1e6)

    def _name(self, name: str) -> str:
        return self._client.names.of_shard(name, scripts.list_of(self._list))

    def _living(self, now: float) -> dict[str, str]:
        shards = list(self._slots)
        names = [scripts.shard_of(self._list.key, int(shard)) for shard in shards]
        leases = self._client.ask(
            [
                ("HMGET", self._client.names.of_shard("lease", name), "execution_id", "expires_at")
                for name in names
            ]
        )
        return {
            shard: lease[0].decode()
            for shard, lease in zip(shards, leases, strict=True)
            if lease[0] and float(lease[1]) > now
        }

    def view(self) -> tuple[Any, ...]:
        """Return the list with its counts, as progress.lua counts them."""
        queued, taken, done, failed, lost, dead = (
            int(self._known.get(f"marked_{state}".encode(), 0))
            for state in ("queued", "taken", "done", "failed", "lost", "dead")
        )
        marked = queued + taken + done + failed + lost + dead
        sizes = {shard: int(slot.get("size", 0)) for shard, slot in self._slots.items()}
        drawn = {
            shard: size + len(self._slots[shard].get("marks", ())) for shard, size in sizes.items()
        }
        held = sum(
            count
            for shard, count in drawn.items()
            if self._holders.get(shard) == self._slots[shard]["execution_id"]
        )
        return (
            *(*self._list, self._total, self._total - self._next + 1 + queued, held),
            *(self._next - 1 - sum(sizes.values()) - marked + done, failed),
            *(lost + sum(drawn.values()) - held, dead, float(self._known[b"loaded_at"])),
        )

    def rows(self, ids: Sequence[str] | None) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield position, value and mark of all items, or of some, in the order of the list."""
        places = range(1, self._total + 1) if ids is None else self._places(ids)
        for first in range(0, len(places), _PAGE):
            yield from self._page(places[first : first + _PAGE])

    def _places(self, item_ids: Sequence[str]) -> list[int]:
        ids = [*map(short_id, item_ids)]
        pages = [ids[first : first + _PAGE] for first in range(0, len(ids), _PAGE)]
        answers = self._client.ask([("HMGET", self._name("ids"), *page) for page in pages])
        found = {int(place) for answer in answers for place in answer if place}
        return sorted(place for place in found if place <= self._total)

    def _page(self, places: Any) -> Iterator[tuple[int, bytes, bytes | None]]:
        if places:
            names = self._name("items"), self._name("marks")
            values, marks = self._client.ask([("HMGET", name, *places) for name in names])
            found = zip(places, values, marks, strict=True)
            yield from ((place, value, mark) for place, value, mark in found if value is not None)

    def row(self, place: int, _key: str, value: bytes, mark: bytes | None) -> tuple[Any, ...]:
        """Return an item."""
        step = json.loads(mark) if mark else self._first_draw(place)
        state = step["state"]
        if state == "taken" and not self._is_held(step):
            state = "lost"  # the lease has gone, whether a claim has declared that or not
        since, not_before, execution = (
            step.get(field) for field in ("changed_at", "not_before", "execution_id")
        )
        name = base64.b64decode(value[:_ID_LENGTH] + b"==").hex()
        identity, payload = texts_of(value.decode("utf-8", "replace"))
        return (
            *(*self._list, place, identity, name, state, int(step["attempts"])),
            None if execution is None else int(execution),
            None if since is None else float(since),
            float(not_before) if state == "failed" and not_before else None,
            *(step.get("reason"), payload),
        )

    def _is_held(self, step: Step) -> bool:
        return self._holders.get(step.get("shard", "")) == step.get("execution_id")

    def _first_draw(self, place: int) -> Step:
        if place >= self._next:
            return {"state": "queued", "attempts": 0}
        for shard, slot in self._slots.items():
            first = int(slot.get("first", 0))
            if first and first <= place < first + int(slot["size"]):
                return _step_of(slot, "taken", slot["taken_at"], shard)
        at = bisect.bisect_right(self._batches, place, key=lambda batch: batch[0]) - 1
        if at < 0:
            return {"state": "done", "attempts": 1}
        batch = self._batches[at][1]
        return _step_of(batch, "done", batch["settled_at"], "")


def _step_of(row: Step, state: str, since: str, shard: str) -> Step:
    execution = row["execution_id"]
    known = {"state": state, "attempts": 1, "changed_at": since}
    return {**known, "execution_id": execution, "shard": shard}
