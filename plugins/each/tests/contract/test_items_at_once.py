"""Eight connections that draw from one list at the same time, and lose answers on the way."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from item_hosts import Field, Slot, deadline, many
from test_items import counts

from oncecron.core.errors import StoreUnavailable
from oncecron_each.item_model import Draw, Drawn, ItemResult

if TYPE_CHECKING:
    from contract_stores import StoreKind

SLOTS = 8
ITEMS = 600


def drawn_by_all(field: Field, draw: Draws) -> list[str]:
    """Let all slots draw until nothing is left; return every item as often as it was run to its end."""
    slots = [field.slot(shard) for shard in range(SLOTS)]
    start = threading.Barrier(SLOTS)

    def work(slot: Slot) -> list[str]:
        ended: list[str] = []
        start.wait(timeout=30)
        results: list[ItemResult] = []
        while items := draw.answer(slot, Draw(slot.number + 1, results, 7)).items:
            slot.number += 1
            failed = [each for each in items if each.position % 10 == 0 and each.attempt < 3]
            results = [ItemResult(each.position, "failed", 0.0) for each in failed]
            ended += [each.identity for each in items if each not in failed]
        return ended

    with ThreadPoolExecutor(SLOTS) as pool:
        return [name for ended in pool.map(work, slots) for name in ended]


class Draws:
    """How an answer gets to a slot."""

    def __init__(self, field: Field) -> None:
        self.field = field

    def answer(self, slot: Slot, draw: Draw) -> Drawn:
        """Return the answer to a draw."""
        drawn = slot.ask(draw)
        assert drawn is not None
        return drawn


class LostDraws(Draws):
    """Every third answer is lost, and the same draw is sent on another connection."""

    def answer(self, slot: Slot, draw: Draw) -> Drawn:
        """Return the second answer, which is the first one."""
        first = super().answer(slot, draw)
        if draw.number % 3 == 0 and first.items:
            slot.store = self.field.store.items()
            assert super().answer(slot, draw) == first
        return first


class CutDraws(Draws):
    """The connections of all are killed again and again; whoever has no answer asks again."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.failures = 0
        self.calls = 0
        self.lock = threading.Lock()

    def answer(self, slot: Slot, draw: Draw) -> Drawn:
        """Return the answer to one of the calls."""
        with self.lock:
            self.calls += 1
            if self.calls % 10 == 0:
                self.field.store.cut()
        end = deadline(slot.store)
        while True:
            try:
                drawn = slot.store.draw(slot.lease, draw._replace(slots=SLOTS), deadline=end)
            except StoreUnavailable:
                self.failures += 1
                continue
            assert drawn is not None
            return drawn


def test_each_item_ends_once(store: StoreKind) -> None:
    """Batches are disjoint; failed items are drawn again, by any slot."""
    field = Field(store)
    field.load(many(ITEMS))
    ended = Counter(drawn_by_all(field, Draws(field)))
    assert ended == Counter(item.identity for item in many(ITEMS))
    assert field.counts() == counts(ITEMS, done=ITEMS)
    assert {row.attempts for row in field.rows() if row.position % 10 == 0} == {3}


def test_a_lost_answer_loses_no_batch(store: StoreKind) -> None:
    """No item is in doubt, and none is run twice."""
    field = Field(store)
    field.load(many(ITEMS))
    ended = Counter(drawn_by_all(field, LostDraws(field)))
    assert ended == Counter(item.identity for item in many(ITEMS))
    assert field.counts() == counts(ITEMS, done=ITEMS)


def test_killed_connections_lose_no_batch(store: StoreKind) -> None:
    """A draw whose connection ended half-way has happened or not; the same draw again tells."""
    field = Field(store)
    field.load(many(ITEMS))
    draws = CutDraws(field)
    ended = Counter(drawn_by_all(field, draws))
    assert ended == Counter(item.identity for item in many(ITEMS))
    assert field.counts() == counts(ITEMS, done=ITEMS)
    assert (draws.failures == 0) == (not store.has_connections)
