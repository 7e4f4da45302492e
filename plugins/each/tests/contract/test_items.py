"""The items of a tick: loaded once, drawn by one slot each, and in doubt where nobody said how they ended."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from item_hosts import LIST, Field, deadline, items, many, positions, put

from oncecron.core.errors import StoreError
from oncecron_each.item_model import (
    Chunk,
    Draw,
    Drawn,
    DrawnItem,
    Item,
    ItemCounts,
    ItemList,
    ItemResult,
    Loaded,
    item_id,
)
from oncecron_each.reports import ItemQuery, item_lists, mend_items

if TYPE_CHECKING:
    from contract_stores import StoreKind

ANN = "ann@desk"


@pytest.fixture
def field(store: StoreKind) -> Field:
    """Open the list as hosts and people see it."""
    return Field(store)


def counts(total: int, **states: int) -> ItemCounts:
    """Return counts; those that are not named are 0."""
    named = dict.fromkeys(ItemCounts._fields, 0) | {"total": total} | states
    return ItemCounts(**named)


# Load


def test_a_list_is_drawn_in_order_and_once(field: Field) -> None:
    """Each item comes with its payload, its place and its first attempt."""
    assert field.load([Item("7", '{"id": 7}'), *items("b", "c")]) == Loaded(3, 0, 0, 3)
    slot = field.slot()
    drawn = slot.draw(2)
    assert drawn == Drawn([DrawnItem(1, "7", '{"id": 7}', 1), DrawnItem(2, "b", "b", 1)])
    assert slot.names(2) == ["c"]
    assert slot.draw(2) == Drawn([])
    assert field.counts() == counts(3, done=3)


def test_a_second_load_adds_only_what_is_new(field: Field) -> None:
    """In the order of the list. An item that comes twice counts once, and the first one stays as it was."""
    assert field.load(items("a", "b", "a")) == Loaded(2, 0, 1, 2)
    given = [*items("z", "b", "y", "z", "c"), Item("a", "other"), Item("y", "other"), *items("x")]
    assert field.load(given) == Loaded(4, 2, 2, 6)
    assert field.slot().names(9) == ["a", "b", "z", "y", "c", "x"]
    assert [row.payload for row in field.rows()] == ["a", "b", "z", "y", "c", "x"]


def test_an_empty_list_is_loaded(field: Field) -> None:
    """There is a difference between no list and a list without items."""
    store = field.store.items()
    assert store.progress(LIST, deadline=deadline(store)) is None
    assert field.load([]) == Loaded(0, 0, 0, 0)
    assert field.counts() == counts(0)
    assert field.slot().draw() == Drawn([])


def test_a_load_is_invisible_until_its_last_chunk(field: Field) -> None:
    """A load that is cut off leaves nothing, and the next one takes its place."""
    field.load(items("a"))
    cut = field.loader()
    assert put(cut, Chunk(0, items("b", "c"), is_last=False)) == Loaded(2, 0, 0, 3)
    assert put(cut, Chunk(1, items("d", "a"), is_last=False)) == Loaded(3, 1, 0, 4)
    assert field.named() == ["a"]
    assert field.slot().names(9) == ["a"]
    field.die(cut)
    assert put(cut, Chunk(2, items("e"), is_last=True)) is None
    assert field.load(items("c", "x")) == Loaded(2, 0, 0, 3)
    assert field.named() == ["a", "c", "x"]


def test_a_step_of_a_load_whose_answer_was_lost_is_repeated(field: Field) -> None:
    """The same step has the same answer, also the last one; one out of turn is refused."""
    loader = field.loader()
    first, last = Chunk(0, items("a", "b"), is_last=False), Chunk(1, items("b", "c"), is_last=True)
    for _ in range(2):
        assert put(loader, first) == Loaded(2, 0, 0, 2)
    for _ in range(2):
        assert put(loader, last) == Loaded(3, 0, 1, 3)
    with pytest.raises(StoreError, match="step 5 of a load does not follow step 1"):
        put(loader, Chunk(5, items("z"), is_last=True))
    assert field.named() == ["a", "b", "c"]


def test_a_load_ends_the_one_before(field: Field) -> None:
    """Whoever loads now has the list; the other one adds nothing more."""
    one, other = field.loader(), field.slot(5)
    assert put(one, Chunk(0, items("a"), is_last=False))
    assert put(other, Chunk(0, items("b"), is_last=False))
    assert put(one, Chunk(1, items("c"), is_last=True)) is None
    assert put(other, Chunk(1, items("d"), is_last=True)) == Loaded(2, 0, 0, 2)
    assert field.named() == ["b", "d"]


def test_lists_of_keys_and_ticks_are_apart(field: Field) -> None:
    """The same item has another id in each, and is drawn in each."""
    others = [ItemList("weekly", LIST.tick), ItemList(LIST.key, "campaign-43")]
    for items_of in (LIST, *others):
        field.load(items("a"), items_of)
    assert field.slot().names() == ["a"]
    assert field.counts() == counts(1, taken=1)
    assert [field.counts(items_of) for items_of in others] == [counts(1, queued=1)] * 2
    assert len({item_id(items_of, "a") for items_of in (LIST, *others)}) == 3


@pytest.mark.parametrize(
    "text",
    ['"', "\\", "{}", "{a,b}", "NULL", "null", "a b", " ", "é移動\U0001f40d", "%s", "'; --", "\t", "$1", "x" * 4096],
)  # fmt: skip
def test_an_item_is_any_text(field: Field, text: str) -> None:
    """It comes back as it was, and so does its payload; people see its id."""
    field.load([Item(text, text), Item("0", text)])
    drawn = field.slot().draw(2)
    assert [(item.identity, item.payload) for item in drawn.items] == [(text, text), ("0", text)]
    [row, _] = field.rows("taken")
    assert (row.item, row.payload, row.item_id) == (text, text, item_id(LIST, text))
    assert [row.position for row in field.rows(identities=[text])] == [1]


def test_a_large_list_comes_in_full_batches(field: Field) -> None:
    """Many chunks, and more items than a store keeps together: all are drawn, in their order."""
    given = many(12_000)
    loader = field.loader()
    for number in range(3):
        chunk = given[number * 4000 : number * 4000 + 4000]
        assert put(loader, Chunk(number, chunk, is_last=number == 2))
    slot = field.slot()
    sizes = Counter()
    drawn = []
    while names := slot.names(80):
        drawn += names
        sizes[len(names)] += 1
    assert sizes == {80: 150}
    assert drawn == [item.identity for item in given]
    assert field.counts() == counts(12_000, done=12_000)


def test_a_large_list_is_loaded_again(field: Field) -> None:
    """A load that knows most items looks each of them up: it does not compare all with all."""
    given = many(15_000)
    for last, expected in (
        (14_999, Loaded(14_999, 0, 0, 14_999)),
        (15_000, Loaded(1, 14_999, 0, 15_000)),
    ):
        loader = field.loader()
        for number, first in enumerate(range(0, last, 5000)):
            chunk = given[first : min(first + 5000, last)]
            loaded = put(loader, Chunk(number, chunk, is_last=number == 2))
        assert loaded == expected
        loader.host.finish(loader.lease)


# Draw and settle


def test_a_draw_whose_answer_was_lost_returns_the_same_batch(field: Field) -> None:
    """Also after a retry came due, and with other wishes; the results are not settled twice."""
    field.load(many(10))
    slot = field.slot()
    first = slot.draw(2)
    failed = ItemResult(1, "failed", delay=0.0)
    second = slot.draw(3, failed)
    assert positions(second) == [1, 3, 4]
    assert [item.attempt for item in second.items] == [2, 1, 1]
    for wanted in (3, 9):
        assert slot.ask(Draw(2, (failed,), wanted)) == second
    assert field.counts() == counts(10, queued=6, taken=3, done=1)
    assert first.items[0]._replace(attempt=2) == second.items[0]


def test_a_late_or_early_number_is_refused(field: Field) -> None:
    """A call that was stuck on its way settles and takes nothing; nor does one after a batch that the store forgot."""
    field.load(many(10))
    slot = field.slot()
    for _ in range(3):
        slot.draw(1)
    before = field.counts()
    assert slot.ask(Draw(2, (ItemResult(1, "dead"),), 5)) is None
    assert slot.ask(Draw(5, (), 5)) is None
    assert field.counts() == before


def test_results_are_for_the_last_batch_alone(field: Field) -> None:
    """Positions that the slot has not drawn, or has settled before, stay as they are."""
    field.load(many(6))
    slot, other = field.slot(0), field.slot(1)
    slot.draw(1)
    other.draw(1)
    slot.draw(1)
    strange = [ItemResult(place, "dead") for place in (0, 1, 2, 4, 6, 99)]
    slot.settle(*strange)
    assert field.counts() == counts(6, queued=3, taken=1, done=2)


def test_results_decide_the_state_of_each_item(field: Field) -> None:
    """Those that are not named are done; people see the reason and when the retry is due."""
    field.load(items("a", "b", "c", "d"))
    slot = field.slot()
    slot.draw(4)
    slot.settle(
        ItemResult(1, "failed", 3600.0, "exit status 75"),
        ItemResult(2, "dead", reason="no such user"),
        ItemResult(4, "lost"),
    )
    assert field.counts() == counts(4, failed=1, dead=1, done=1, lost=1)
    rows = {row.item: row for row in field.rows()}
    assert [rows[name].state for name in "abcd"] == ["failed", "dead", "done", "lost"]
    assert rows["a"].reason == "exit status 75"
    assert rows["b"].reason == "no such user"
    assert all(row.execution_id == slot.lease.execution_id for row in rows.values())
    assert [row.attempts for row in rows.values()] == [1, 1, 1, 1]
    not_before, since = rows["a"].not_before, rows["a"].since
    assert not_before is not None
    assert since is not None
    assert 3590 < not_before - since < 3610
    assert [row.not_before for row in field.rows("dead", "done", "lost")] == [None] * 3


def test_a_failed_item_waits_for_its_retry(field: Field) -> None:
    """It is drawn again when it is due, before new items, by any slot; until then the others are drawn."""
    field.load(many(3))
    slot, other = field.slot(0), field.slot(1)
    slot.draw(1)
    assert positions(slot.draw(1, ItemResult(1, "failed", 300.0))) == [2]
    assert positions(other.draw(1)) == [3]
    slot.settle()
    waiting = slot.draw(5)
    assert waiting.items == []
    assert waiting.wait is not None
    assert 270 < waiting.wait <= 300
    assert waiting.others == 1
    field.store.age(290)
    field.store.age(11)
    assert slot.host.renew(slot.lease) is not None
    again = slot.draw(5)
    assert [(item.position, item.attempt) for item in again.items] == [(1, 2)]
    slot.settle(ItemResult(1, "dead", reason="spent"))
    assert [(row.attempts, row.reason) for row in field.rows("dead")] == [(2, "spent")]


def test_more_than_a_batch_of_retries_is_drawn_in_turn(field: Field) -> None:
    """Each once."""
    field.load(many(10))
    slot = field.slot()
    drawn = slot.draw(10)
    again = slot.draw(4, *(ItemResult(place, "failed", 0.0) for place in positions(drawn)))
    rest = [*slot.names(4), *slot.names(4)]
    assert len({*(item.identity for item in again.items), *rest}) == 10
    slot.settle()
    assert field.counts() == counts(10, done=10)


def test_who_has_no_lease_draws_and_settles_nothing(field: Field) -> None:
    """An expired one, one that was taken over, one that ended, and one that was never granted."""
    field.load(many(9))
    slot = field.slot(0)
    slot.draw(2)
    field.store.expire(slot.lease.key, 0)
    assert slot.ask(Draw(2, (), 2)) is None
    assert field.counts() == counts(9, queued=7, lost=2)
    heir = field.slot(0, again=True)
    assert slot.ask(Draw(2, (), 2)) is None
    assert field.counts() == counts(9, queued=7, lost=2)
    assert positions(heir.draw(2)) == [3, 4]
    heir.settle()
    heir.host.finish(heir.lease)
    assert heir.ask(Draw(2, (), 2)) is None
    other = field.slot(1)
    stranger = other.lease._replace(owner="00000000-0000-0000-0000-000000000000")
    other.lease = stranger
    assert other.ask(Draw(1, (), 2)) is None
    assert field.counts() == counts(9, queued=5, lost=2, done=2)


@pytest.mark.parametrize("stop", ["paused", "drained"])
def test_a_pause_or_a_drain_leaves_the_rest(field: Field, stop: str) -> None:
    """The last batch is settled all the same."""
    field.load(many(4))
    slot = field.slot()
    slot.draw(1)
    if stop == "paused":
        field.people.pause("*", author="ann", reason=None, seconds=None)
    else:
        field.people.drain(slot.host.holder.host, author="ann")
    assert slot.draw(1) == Drawn([], stopped=stop)  # type: ignore[arg-type]
    assert field.counts() == counts(4, queued=3, done=1)


# In doubt


def test_what_the_dead_had_taken_is_in_doubt_and_not_drawn_again(field: Field) -> None:
    """By whom and when it was taken stays known."""
    field.load(many(6))
    dead = field.slot(0)
    dead.draw(2)
    dead.draw(2)
    field.die(dead)
    assert field.counts() == counts(6, queued=2, done=2, lost=2)
    heir = field.slot(0, again=True)
    assert positions(heir.draw(9)) == [5, 6]
    assert field.slot(1).names(9) == []
    heir.settle()
    assert field.counts() == counts(6, done=4, lost=2)
    lost = field.rows("lost")
    assert [row.position for row in lost] == [3, 4]
    assert {row.execution_id for row in lost} == {dead.lease.execution_id}
    assert {row.attempts for row in lost} == {1}


def test_in_doubt_retry_draws_them_again(field: Field) -> None:
    """Those of a slot that nobody has claimed since, retries, and those that a result left in doubt."""
    field.load(many(8))
    dead, alive = field.slot(0), field.slot(1)
    dead.draw(2)
    dead.draw(2, ItemResult(2, "failed", 0.0))  # 2 and 3
    alive.draw(1)  # 4
    alive.draw(1, ItemResult(4, "lost"))  # 5
    field.store.expire(dead.lease.key, 0)
    assert field.counts() == counts(8, queued=3, taken=1, done=1, lost=3)
    drawn = alive.draw(9, redraw_below=5)
    assert sorted((item.position, item.attempt) for item in drawn.items) == [
        *((2, 3), (3, 2), (4, 2)),
        *((6, 1), (7, 1), (8, 1)),
    ]
    alive.settle()
    assert field.counts() == counts(8, done=8)


def test_an_item_in_doubt_is_drawn_again_so_often(field: Field) -> None:
    """One that kills its host each time stays in doubt after that."""
    field.load(items("poison"))
    for number in range(3):
        slot = field.slot(0, again=number > 0)
        assert slot.names(1, redraw_below=3) == ["poison"]
        field.die(slot)
    last = field.slot(0, again=True)
    assert last.draw(1, redraw_below=3) == Drawn([])
    assert [(row.state, row.attempts) for row in field.rows()] == [("lost", 3)]


def test_those_of_the_living_are_not_drawn_again(field: Field) -> None:
    """Whoever waits for them knows how many there are."""
    field.load(many(4))
    one, other = field.slot(0), field.slot(1)
    one.draw(2)
    other.draw(1)
    other.draw(1, ItemResult(3, "failed", 0.0))
    other.draw(1)
    waiting = field.slot(2).draw(5, redraw_below=9)
    assert waiting == Drawn([], others=3)


# People


def test_people_queue_items_again(field: Field) -> None:
    """Those in doubt, the dead ones, those that wait; by name too. They are drawn at once, with the next attempt."""
    field.load(many(8))
    slot = field.slot(0)
    slot.draw(6)
    slot.settle(
        ItemResult(1, "dead"),
        ItemResult(2, "dead"),
        ItemResult(3, "failed", 9000.0),
        ItemResult(4, "lost"),
    )
    slot.draw(1)  # 7
    field.die(slot)
    assert field.counts() == counts(8, queued=1, done=2, failed=1, dead=2, lost=2)
    queue = partial(mend_items, field.people, state="queued", author=ANN)
    assert queue(ItemQuery(LIST, ("dead",), ["user-2@example.com"])) == 1
    assert queue(ItemQuery(LIST, ("dead",), ["user-8@example.com"])) == 0
    assert queue(ItemQuery(LIST, ("dead", "lost", "failed"), [])) == 0
    assert queue(ItemQuery(LIST, ("lost", "failed"))) == 3
    assert queue(ItemQuery(LIST, ("done", "queued", "taken"))) == 0
    assert queue(ItemQuery(ItemList("weekly", "x"), ("lost",))) == 0
    assert field.counts() == counts(8, queued=5, done=2, dead=1)
    heir = field.slot(0, again=True)
    drawn = heir.draw(9)
    assert sorted((item.position, item.attempt) for item in drawn.items) == [
        *((2, 2), (3, 2), (4, 2)),
        *((7, 2), (8, 1)),
    ]
    heir.settle()
    assert field.counts() == counts(8, done=7, dead=1)
    reasons = {row.position: row.reason for row in field.rows()}
    assert reasons[2] == reasons[7] == f"queued again by {ANN}"
    assert reasons[8] is None


def test_people_mark_items_as_done(field: Field) -> None:
    """Those that were done all the same, by name or by state: they are drawn no more, and who said so is on record."""
    field.load(many(9))
    slot = field.slot(0)
    slot.draw(6)
    slot.settle(
        ItemResult(1, "dead", reason="exit status 1"),
        ItemResult(2, "dead"),
        ItemResult(3, "failed", 0.0),
        ItemResult(4, "lost"),
    )
    slot.draw(2)  # 3 again, and 7
    field.die(slot)
    other = field.slot(1)
    other.draw(1)  # 8
    assert field.counts() == counts(9, queued=1, taken=1, done=2, dead=2, lost=3)
    done = partial(mend_items, field.people, state="done", author=ANN)
    assert done(ItemQuery(LIST, ("lost",), ["user-4@example.com"])) == 1
    assert done(ItemQuery(LIST, ("lost",), ["user-4@example.com"])) == 0
    assert done(ItemQuery(LIST, ("done", "queued", "taken"))) == 0
    two = ["user-7@example.com", "nobody", "user-1@example.com", "user-2@example.com"]
    assert [row.position for row in field.rows("lost", "dead", identities=two)] == [1, 2, 7]
    assert done(ItemQuery(LIST, ("lost", "dead"), two[:3])) == 2
    assert done(ItemQuery(LIST, ("lost", "dead"))) == 2
    assert done(ItemQuery(ItemList("weekly", "x"), ("lost",))) == 0
    assert field.counts() == counts(9, queued=1, taken=1, done=7)
    heir = field.slot(0, again=True)
    assert heir.names(9, redraw_below=9) == ["user-9@example.com"]
    heir.settle()
    other.settle()
    assert field.counts() == counts(9, done=9)
    by_hand = {row.position for row in field.rows() if row.reason == f"marked done by {ANN}"}
    assert by_hand == {1, 2, 3, 4, 7}


def test_the_newest_list_comes_first(field: Field) -> None:
    """Of all keys, or of one."""
    weekly = ItemList("weekly", "x")
    field.load(items("a"))
    field.store.age(60)
    field.load(items("a", "b"), weekly)
    lists = item_lists(field.people)
    assert [(each.items_of, each.counts.total) for each in lists] == [(weekly, 2), (LIST, 1)]
    assert [each.items_of for each in item_lists(field.people, LIST.key)] == [LIST]
    assert 50 < lists[0].loaded_at - lists[1].loaded_at < 90
