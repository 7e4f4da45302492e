"""Rows that no store can have made: those of a store itself, each with one value changed.

Another program or a damaged file may have it so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oncecron.core.errors import StoreRefusesError
from oncecron.core.text import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncecron.stores.reader import Reader

    Question = Callable[[Reader], Any]

HOSTILE: list[Any] = [
    None, True, 0, -1, 1 << 31, 1 << 63, -(1 << 63), 10**400, 10**5000,
    float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 253402300801.0,
    "", "x", "0", "9" * 5000, "\0", "\udcff", "a\nb", "x" * 100_000, "2026-01-01T00:00Z",
    b"", b"\xff", [], [[]], {}, (), (None,), object(),
]  # fmt: skip


def judge(store: Reader, view: str, ask: Question) -> None:
    """Ask a question that reads a view, of whose rows each has such a value in turn, or another length."""
    found = _rows_of(store, view, ask)
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
                _shown(ask(store))
            except StoreRefusesError as error:  # what is one answer, and not one of many rows
                assert "cannot be read" in str(error)  # noqa: PT017
            finally:
                del store.rows  # type: ignore[method-assign]


def _rows_of(store: Reader, view: str, ask: Question) -> list[Any]:
    asked: list[Any] = []
    real = store.rows

    def rows(named: str, **bounds: Any) -> Iterator[Any]:
        found = list(real(named, **bounds))
        if named == view:
            asked.extend(found)
        return iter(found)

    store.rows = rows  # type: ignore[method-assign]
    try:
        ask(store)
    finally:
        del store.rows  # type: ignore[method-assign]
    return asked


def _shown(answer: Any) -> None:
    clock = Clock(utc=True)
    for row in answer if isinstance(answer, list) else [answer]:
        for name, value in getattr(row, "_asdict", dict)().items():
            json.dumps(value, allow_nan=False)
            if isinstance(value, float) and name.endswith(("_at", "since", "until")):
                clock.exactly(value)
