"""The items of a tick on PostgreSQL alone: what a draw waits for, and who waits for a draw."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from item_hosts import Field, many, put
from servers import eventually

from oncecron_each.item_model import Chunk, ItemCounts, ItemResult

if TYPE_CHECKING:
    from postgres_stores import PostgresKind

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"])
DRAW = "select is_held, items from oncecron.draw_v1(%s, %s, %s, '[]', 1, 0)"
WAITING = "select 1 from pg_stat_activity where usename = 'runner' and wait_event_type = 'Lock'"


def test_a_draw_waits_for_the_last_lane(store: PostgresKind) -> None:
    """Where other draws have locked all lanes with items, it does not say that nothing is left."""
    field = Field(store)
    field.load(many(10))
    slot = field.slot()
    slot.names(2)
    with store.database.connect(autocommit=False) as other, ThreadPoolExecutor(1) as thread:
        other.execute("select from oncecron.item_lane for update")
        names = thread.submit(slot.names, 2)
        eventually(lambda: store.database.execute(WAITING) != [])
        other.execute("update oncecron.item_lane set next = 6 where lane = 0")
        other.commit()
        assert names.result(30) == ["user-6@example.com", "user-7@example.com"]


def test_slots_do_not_wait_for_each_others_commits(store: PostgresKind) -> None:
    """Though the list has fewer items than a large batch: what a draw has locked is a few batches."""
    field = Field(store)
    field.load(many(40))
    slots = [field.slot(shard) for shard in range(4)]
    slots[0].settle()
    assert field.counts() == ItemCounts(40, 40, 0, 0, 0, 0, 0)
    assert len(field.rows("queued")) == 40
    with contextlib.ExitStack() as stack:
        drawn = []
        for slot in slots:
            drawing = stack.enter_context(store.database.connect(autocommit=False))
            drawing.execute("set local lock_timeout = '5s'")
            lease = slot.lease.execution_id, slot.lease.owner
            if not drawn:  # the first draw of a list makes what the others lock
                drawing.execute(DRAW, (*lease, 1))
                drawing.commit()
            [[_, items]] = drawing.execute(DRAW, (*lease, 2 - bool(drawn)))
            drawn.append(json.loads(items)[0][0])
    assert drawn == [2, 9, 17, 25]


def test_no_step_is_compiled(store: PostgresKind) -> None:
    """Plans that may not read whole tables pass for so dear that a server with JIT would compile each: for 0.3 s."""
    field = Field(store)
    loader, slot = field.loader(), field.slot()
    for number in range(2):
        put(loader, Chunk(number, many(10), is_last=True))
    slot.names(2)
    slot.names(2, ItemResult(1, "failed", 0.0), redraw_below=2)
    sessions = store.database.execute(
        "select pid from pg_stat_activity where usename = 'runner' and datname = current_database()"
    )
    maps = [Path(f"/proc/{pid}/maps").read_text() for [pid] in sessions]
    assert maps
    assert not [each for each in maps if "llvm" in each]


@pytest.mark.parametrize("number", [1, 2])
def test_who_takes_the_lease_waits_for_a_draw(store: PostgresKind, number: int) -> None:
    """Until the draw has committed the key's row can be renewed, and not be taken: the batch is of one holder alone."""
    field = Field(store)
    field.load(many(10))
    slot = field.slot()
    for _ in range(1, number):
        slot.names(2)
    row = f"select from oncecron.job_key where execution_id = {slot.lease.execution_id}"
    with store.database.connect(autocommit=False) as drawing, store.database.connect() as other:
        drawn = drawing.execute(DRAW, (slot.lease.execution_id, slot.lease.owner, number))
        assert [(held, items is not None) for held, items in drawn] == [(True, True)]
        other.execute(f"{row} for no key update nowait")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(f"{row} for update nowait")
        drawing.commit()
        other.execute(f"{row} for update nowait")
