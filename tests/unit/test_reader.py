"""The Reader: a store may narrow what it answers or not, and what people get is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oncecron.core.decision import PLAIN_DONE, PLAIN_WINDOW
from oncecron.core.log_rows import Execution, HistoryQuery, SkipReason
from oncecron.core.tick import minute_tick
from oncecron.stores.reader import PackedSkips, Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.stores.api import Row

START = PLAIN_WINDOW * 1_000_000
"""A minute at which a window begins."""
AT = START * 60.0


class Lazy(Reader):
    """A store that answers each view with all its rows, whatever the bounds."""

    def __init__(self, **views: list[Row]) -> None:
        super().__init__()
        self.views = views

    def rows(self, view: str, **_bounds: Any) -> Iterator[Row]:
        return iter(self.views[view])


def lazy(**views: list[Row]) -> Lazy:
    """Return such a store, without what people change."""
    missing = dict.fromkeys(Lazy.__abstractmethods__, lambda: None)  # type: ignore[attr-defined]
    made: type[Lazy] = type("Whole", (Lazy,), missing)
    return made(**views)


def execution(number: int, host: str = "a", outcome: str = "failed", tick: str = "one") -> Row:
    known = (number, "k", 0, tick, 1, outcome, 1, None, host, 5, "ann", "x", AT + number)
    return (
        *known, None, None, 7, "0" * 16, None, 1, "schedule", None, None, None, None, None, None, None,
    )  # fmt: skip


def pause(key: str) -> Row:
    return (key, None, "ann@desk", None, AT, None)


def skip(at: Any, host: str = "b", reason: str = "held") -> Row:
    return ("k", 0, "one", reason, "a", 5, host, 6, at, 1, None, None)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (HistoryQuery(), [5, 4, 3, 2]), (HistoryQuery(limit=2), [5, 4]), (HistoryQuery(host="b"), [4]),
        (HistoryQuery(outcomes=["succeeded"]), [3]),
        (HistoryQuery(tick="two"), [2]), (HistoryQuery(since=AT + 4), [5, 4]),
    ],
)  # fmt: skip
def test_filters_and_limit_are_applied_once_more(query: HistoryQuery, found: list[int]) -> None:
    """And a row that cannot be read does not count."""
    rows = [execution(5), execution(4, host="b"), execution(3, outcome="succeeded")]
    store = lazy(executions=[*rows, execution(2, tick="two"), execution(1, outcome="exploded")])
    assert [each.execution_id for each in store.history(query)] == found
    assert store.unreadable == ({"execution 1"} if len(found) != query.limit else set())


def test_what_is_short_is_sorted() -> None:
    """The newest executions come without what may be long."""
    store = lazy(newest=[execution(1), execution(3)], pauses=[pause("b"), pause("a")])
    assert [(each.execution_id, each.command) for each in store.newest(2)] == [(3, ""), (1, "")]
    assert [each.key for each in store.pauses()] == ["a", "b"]


def test_packed_skips_come_among_the_others_by_their_time() -> None:
    """With the holder that the log has; they are named as a whole if they cannot be read."""
    words = (
        f"{(1 << 20) + 30_000:x}:9 {(1 << 20) + 31_000:x}:9 {(2 << 20 | PLAIN_DONE) + 30_000:x}:8 "
    )
    packed = PackedSkips("k", 0, "c", START, words)
    broken = PackedSkips("k", 0, "d", START, "no word")
    rows = [skip(AT + 1000), packed, broken, skip("never"), *[skip(AT + 100)] * 600, skip(AT)]
    store = lazy(
        skips=rows, holders=[(8, "a", 5, "failed")], reasons=[packed, ("k", "x", "b", "held", 0)]
    )
    found = list(store.skips(HistoryQuery(limit=None)))
    plain = [each for each in found if each.pid is None]
    assert [each.at - AT for each in plain] == [130.0, 71.0]
    assert [(each.reason, each.count, each.holder_host, each.detail) for each in plain] == [
        ("done", 1, "a", "failed"),
        ("held", 2, None, None),
    ]
    assert [each.at for each in found] == sorted((each.at for each in found), reverse=True)
    assert len(found) == 604
    assert store.unreadable == {"skips of key k by host d", "a skip of key k by host b"}
    first = minute_tick(AT + 120)
    assert list(store.reasons({"k": first})) == [
        SkipReason("k", str(first.text), "c", "done", 0),
        SkipReason("k", "x", "b", "held", 0),
    ]


def test_a_record_has_the_columns_of_its_view() -> None:
    """What is published is a prefix of what a store answers."""
    [traced] = lazy(timeline=[execution(1)]).timeline(None)
    assert len(traced.execution) == len(Execution._fields)
