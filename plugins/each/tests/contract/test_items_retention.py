"""Lists of items go with their tick, or stay as long as they asked for: a list keeps its items from a second run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosts import KEY, Host, minute
from item_hosts import LIST, Field, Slot, many, put
from test_items import counts

from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Retention
from oncecron_each.item_model import Chunk, ItemList, ItemResult, Loaded
from oncecron_each.reports import item_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract_stores import StoreKind

DAY = 86400.0
OLD = Retention(executions=30 * DAY, skips=1e9)
INSTANT = minute(1)


@pytest.fixture
def field(store: StoreKind) -> Field:
    """Open the list as hosts and people see it."""
    return Field(store)


def instant_list() -> ItemList:
    """Return the list of a tick that is an instant: its executions go by age alone."""
    assert INSTANT.text is not None
    return ItemList(KEY, INSTANT.text)


def drawn_list(field: Field, **parts: float) -> Slot:
    """Load a list, draw some of it, and end the slot."""
    field.load(many(30), instant_list(), **parts)
    slot = field.slot(tick=INSTANT)
    slot.draw(10)
    slot.draw(5, ItemResult(1, "dead"), ItemResult(2, "lost"), ItemResult(3, "failed", 60.0))
    slot.settle()
    assert slot.host.finish(slot.lease)
    return slot


def test_a_list_is_pruned_with_its_tick(field: Field) -> None:
    """Not before, and not another one; loaded again it is a new list."""
    drawn_list(field)
    field.load(many(3))
    field.people.prune(OLD)
    assert len(item_lists(field.people)) == 2
    field.store.age(31 * DAY)
    field.load(many(4))
    field.people.prune(OLD)
    assert [each.items_of for each in item_lists(field.people)] == [LIST]
    assert field.counts() == counts(4, queued=4)
    assert field.load(many(30), instant_list()) == Loaded(30, 0, 0, 30)
    assert field.counts(instant_list()) == counts(30, queued=30)


def test_the_list_of_a_name_stays_with_its_name(field: Field) -> None:
    """A name stays in the log however old it is, and so does what was done under it."""
    field.load(many(3))
    slot = field.slot()
    slot.draw(3)
    slot.settle()
    assert slot.host.finish(slot.lease)
    field.store.age(400 * DAY)
    field.people.prune(OLD)
    assert field.counts() == counts(3, done=3)
    assert field.load(many(4)) == Loaded(1, 3, 0, 4)


def test_a_kept_item_is_not_run_again_when_its_tick_is_forgotten(field: Field) -> None:
    """A second load adds only what is new, as long as the list asked for; after that it is a new list."""
    drawn_list(field, keep=100 * DAY)
    field.store.age(99 * DAY)
    field.people.prune(OLD)
    assert list(field.people.history(HistoryQuery(key=KEY))) == []
    assert field.load(many(31), instant_list()) == Loaded(1, 30, 0, 31)
    again = field.slot(tick=INSTANT, again=True)
    names = again.names(50)
    assert "user-31@example.com" in names
    assert not {f"user-{number}@example.com" for number in range(1, 16)}.intersection(names) - {
        "user-3@example.com"  # its retry is due
    }
    again.settle()
    assert again.host.finish(again.lease)
    field.store.age(99 * DAY)  # a load without a wish does not shorten it, and begins it anew
    field.people.prune(OLD)
    assert field.counts(instant_list()).total == 31
    field.store.age(2 * DAY)
    field.people.prune(OLD)
    assert field.load(many(31), instant_list()) == Loaded(31, 0, 0, 31)
    anew = field.slot(tick=INSTANT, again=True)
    assert len(anew.names(50)) == 31


def test_an_end_removes_expired_lists(field: Field) -> None:
    """A few rows at each end, so no prune is needed."""
    drawn_list(field)
    field.store.age(31 * DAY)
    assert ends_until(field, []) == []


def test_ends_keep_the_list_of_a_name(field: Field) -> None:
    """They go past it to those that have expired, and know it by any of its slots."""
    field.load(many(3))
    slot = field.slot(shard=1)
    slot.draw(3)
    slot.settle()
    assert slot.host.finish(slot.lease)
    drawn_list(field)
    field.store.age(31 * DAY)
    assert ends_until(field, [LIST]) == [LIST]
    field.people.prune(OLD)
    assert field.load(many(4)) == Loaded(1, 3, 0, 4)


def ends_until(field: Field, left: list[ItemList]) -> list[ItemList]:
    """End executions of another key until only these lists are left; return those that are."""
    for _ in ends(field):
        if [each.items_of for each in item_lists(field.people)] == left:
            break
    return [each.items_of for each in item_lists(field.people)]


def ends(field: Field) -> Iterator[None]:
    """End executions of another key, fifty of them.

    An end looks at its own key, and at another one that is drawn on some stores.
    """
    host = Host(field.store.firing(), "other.example")
    for number in range(2, 52):
        field.store.age(0.0)  # on PostgreSQL, not every end removes
        lease = host.win(minute(number), key="weekly")
        assert host.finish(lease, retention=OLD)
        yield


def test_a_list_of_many_chunks_goes_completely(field: Field) -> None:
    """What is left of it would be found by the next load."""
    field.load(many(5000), instant_list())
    field.load(many(9000)[5000:], instant_list())
    field.store.age(31 * DAY)
    field.people.prune(OLD)
    assert item_lists(field.people) == []
    assert field.load(many(9)[4:], instant_list()) == Loaded(5, 0, 0, 5)
    assert field.slot(tick=INSTANT).names(9) == [item.identity for item in many(9)[4:]]


def test_what_a_cut_off_load_has_left_goes_at_once(field: Field) -> None:
    """Nobody sees it, and no list will be known by it; a load that goes on keeps what it has sent."""
    going, cut, failed = field.loader(), field.slot(5), field.slot(6)
    lists = LIST, ItemList("weekly", LIST.tick), ItemList("daily", LIST.tick)
    for number, (loader, items_of) in enumerate(zip((going, cut, failed), lists, strict=True), 1):
        assert put(loader, Chunk(0, many(number), is_last=False), items_of)
    field.people.prune(OLD)
    assert field.store.stored_items() == 6
    assert failed.host.finish(failed.lease)
    field.people.prune(OLD)
    assert field.store.stored_items() == 3
    field.die(cut)
    next(end for end in ends(field) if field.store.stored_items() == 1)
    assert put(cut, Chunk(1, many(4), is_last=True), lists[1]) is None
    assert put(going, Chunk(1, many(3), is_last=True)) == Loaded(3, 0, 1, 3)
    field.people.prune(OLD)
    assert field.store.stored_items() == 3
    assert field.counts() == counts(3, queued=3)


def test_a_load_may_begin_while_retention_removes_its_list(field: Field) -> None:
    """It is a new list, of which retention removes nothing."""
    field.load(many(5000))
    field.load(many(10000, 5001)[:5000])
    field.store.age(31 * DAY)
    some = ends(field)
    next(end for end in some if not item_lists(field.people))
    loader = field.loader()
    assert put(loader, Chunk(0, many(50), is_last=False)) == Loaded(50, 0, 0, 50)
    for _ in some:
        pass
    assert put(loader, Chunk(1, many(50, 51), is_last=True)) == Loaded(100, 0, 0, 100)
    assert field.counts() == counts(100, queued=100)
    assert field.store.stored_items() == 100


def test_a_host_that_has_died_keeps_no_list(field: Field) -> None:
    """Its execution stays `running` until its key is claimed again, which may be never. One that lives keeps it."""
    field.load(many(30), instant_list())
    slot = field.slot(shard=1, tick=INSTANT)
    slot.draw(10)
    field.store.age(31 * DAY)
    assert slot.host.renew(slot.lease)
    field.people.prune(OLD)
    assert field.counts(instant_list()) == counts(30, queued=20, taken=10)
    field.die(slot)
    next(end for end in ends(field) if not item_lists(field.people))
    field.people.prune(OLD)
    assert field.store.stored_items() == 0
