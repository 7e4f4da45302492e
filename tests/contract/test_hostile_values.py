"""Values that no store can have made, in every column of every view: named and left out, and no error of the program.

The rows are those of the store itself, each with one value changed, as another program or a damaged file may have it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hosts import EVERYTHING, KEY, Host, ending, minute
from item_hosts import LIST, Field, items

from oncecron.core.errors import StoreRefusesError
from oncecron.core.log_rows import HistoryQuery, Notice
from oncecron.core.model import Output
from oncecron.core.text import Clock
from oncecron_each import reports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Log
    from contract_stores import StoreKind

    from oncecron.stores.reader import Reader

HOSTILE: list[Any] = [
    None, True, 0, -1, 1 << 31, 1 << 63, -(1 << 63), 10**400, 10**5000,
    float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 253402300801.0,
    "", "x", "0", "9" * 5000, "\0", "\udcff", "a\nb", "x" * 100_000, "2026-01-01T00:00Z",
    b"", b"\xff", [], [[]], {}, (), (None,), object(),
]  # fmt: skip
EVERY = HistoryQuery(limit=None)
QUESTIONS: dict[str, Callable[[Reader], Any]] = {
    "executions": lambda store: list(store.traced(EVERY)),
    "execution": lambda store: store.execution(1),
    "newest": lambda store: store.newest(5),
    "timeline": lambda store: list(store.timeline(None)),
    "runs": lambda store: list(store.runs(0.0)),
    "output": lambda store: store.output(1),
    "skips": lambda store: list(store.traced_skips(EVERY)),
    "reasons": lambda store: list(store.reasons({KEY: minute(1)})),
    "keys": lambda store: store.job_keys(),
    "key_hosts": lambda store: store.key_hosts(),
    "host_ticks": lambda store: store.host_ticks(),
    "leases": lambda store: store.leases(),
    "pauses": lambda store: store.pauses(),
    "notices": lambda store: store.notices(["ops"]),
    "namespaces": lambda store: list(store.namespaces()),
    "least_retention": lambda store: store.least_retention(),
    "each/item_lists": lambda store: list(reports.item_lists(store)),
    "each/items": lambda store: list(reports.items(store, reports.ItemQuery(LIST))),
}


@pytest.fixture
def full(store: StoreKind, a: Host, b: Host, log: Log) -> Log:
    """Give a store with a row in each view."""
    schedule = {"schedule": "* * * * *", "zone": "Europe/Berlin"}
    lease = a.win(minute(1), **schedule)
    told = ending("succeeded", "a note", Output("printed", 3))
    a.store.finish(lease, told, EVERYTHING, deadline=a.deadline())
    a.store.close()
    for tick in (minute(1), minute(2)):
        if tick != minute(1):
            a.win(tick)
        b.lose(tick)
    log.people.pause("other", author="ann@desk", reason="why", seconds=60.0)
    log.people.drain("host-c", author="ann@desk")
    log.people.put_notice(Notice("ops", 0, "{}"))
    Field(store).load([*items("a", "b")])
    return log


def rows_of(store: Reader, view: str) -> list[Any]:
    """Return the rows that a question gets of a view."""
    asked: list[Any] = []
    real = store.rows

    def rows(named: str, **bounds: Any) -> Iterator[Any]:
        found = list(real(named, **bounds))
        if named == view:
            asked.extend(found)
        return iter(found)

    store.rows = rows  # type: ignore[method-assign]
    try:
        QUESTIONS[view](store)
    finally:
        del store.rows  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("view", QUESTIONS)
def test_a_value_that_no_store_can_have_made(full: Log, view: str) -> None:
    """Of each column of a row, and of each length of a row."""
    store = full.people
    found = rows_of(store, view)
    assert found or view == "namespaces"
    kinds = {type(row): row for row in found}
    real = store.rows
    for row in kinds.values():
        columns = list(row)
        changed = [[*columns[:at], value, *columns[at + 1 :]]
                   for at in range(len(columns)) for value in HOSTILE]  # fmt: skip
        for each in [*changed, columns[:-1], [*columns, None], []]:
            if hasattr(row, "_make"):  # the store has packed or unpacked it itself
                if len(each) != len(columns):
                    continue
                each = type(row)._make(each)  # noqa: PLW2901 - the same row

            def rows(named: str, each: Any = each, **bounds: Any) -> Iterator[Any]:
                return iter([each]) if named == view else real(named, **bounds)

            store.rows = rows  # type: ignore[method-assign]
            try:
                shown(QUESTIONS[view](store))
            except StoreRefusesError as error:  # what is one answer, and not one of many rows
                assert "cannot be read" in str(error)  # noqa: PT017
            finally:
                del store.rows  # type: ignore[method-assign]


def shown(answer: Any) -> None:
    """Show an answer as commands do: JSON, and times."""
    clock = Clock(utc=True)
    for row in answer if isinstance(answer, list) else [answer]:
        for name, value in getattr(row, "_asdict", dict)().items():
            json.dumps(value, allow_nan=False)
            if isinstance(value, float) and name.endswith(("_at", "since", "until")):
                clock.exactly(value)
