"""When a slot that did not succeed leaves nothing to do: by the list of its tick."""

import pytest

from oncecron.core.log_rows import Execution
from oncecron_each.reports import Lists, ListView

SLOT = Execution(
    *(1, "k", 0, "one", 1, "failed", 1, None, "web1", 5, "ann", "send", 100.0, 110.0, 10.0, 7),
    owner="o",
    note=None,
    shards=3,
)


def view(done: int, *, tick: str = "one", key: str = "k", **states: int) -> ListView:
    """Return a list of three items."""
    counts = {"queued": 0, "taken": 0, "failed": 0, "lost": 0, "dead": 0, **states}
    return ListView(key, tick, 3, done=done, loaded_at=90.0, **counts)


@pytest.mark.parametrize(
    ("ended", "lists", "settled"),
    [
        (SLOT, [view(3)], True),
        (SLOT._replace(outcome="lost", exit_code=None), [view(3)], True),
        (SLOT, [view(3, tick="two"), view(2, lost=1)], False),
        (SLOT, [view(2, dead=1)], False),
        (SLOT, [view(2, queued=1)], False),
        (SLOT, [view(3, key="l")], False),
        (SLOT, [], False),
        (SLOT._replace(shard=2), [view(3)], False),  # the load
        (SLOT._replace(shard=1), [view(3)], True),
        (SLOT._replace(outcome="succeeded"), [view(3)], False),
    ],
)
def test_all_items_of_its_tick_are_done(
    ended: Execution, lists: list[ListView], *, settled: bool
) -> None:
    """Of a slot, not of the load, which may have left items out; and there is something to settle."""
    assert Lists(lists).is_settled(ended) is settled
