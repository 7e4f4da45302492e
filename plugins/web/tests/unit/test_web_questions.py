"""What `oncecron web` asks the store for a page: each question once, and no more of an answer than is read."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from oncecron_web.source import _Count

if TYPE_CHECKING:
    from collections.abc import Iterator


class Store:
    """A store with endless answers, which counts what is taken of them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.taken = 0

    def rows(self, view: str, **_bounds: Any) -> Iterator[tuple[int]]:
        """Yield rows without end."""
        self.asked.append(view)
        for number in itertools.count():
            self.taken += 1
            yield (number,)


def first(rows: Iterator[tuple[int]], many: int) -> list[int]:
    """Return the first rows."""
    return [number for (number,) in itertools.islice(rows, many)]


@pytest.mark.parametrize(("view", "bounds"), [("executions", {"limit": 50}), ("keys", {})])
def test_what_is_asked_again_is_known(view: str, bounds: dict[str, int]) -> None:
    """As far as it was read, whoever reads further: a key may have a million runs."""
    store, count = Store(), _Count()
    count.add(store)  # type: ignore[arg-type]
    one, other = store.rows(view, **bounds), store.rows(view, **bounds)
    assert (first(one, 3), first(other, 5), first(one, 4)) == ([0, 1, 2], [*range(5)], [3, 4, 5, 6])
    assert first(store.rows(view, **bounds), 2) == [0, 1]
    assert (store.asked, store.taken, count.queries) == ([view], 7, 2)


def test_what_may_be_long_is_not_kept() -> None:
    """It is asked for again."""
    store, count = Store(), _Count()
    count.add(store)  # type: ignore[arg-type]
    for bounds in ({"limit": 1000}, {"limit": None}, {}):
        assert first(store.rows("executions", **bounds), 2) == [0, 1]
        assert first(store.rows("executions", **bounds), 2) == [0, 1]
    assert (len(store.asked), count.queries) == (6, 7)


def test_nothing_is_kept_of_a_reading() -> None:
    """Also where no cycle is collected: `web` does that after a hundred thousand objects, and a few may be large."""
    store, count = Store(), _Count()
    forget = count.add(store)  # type: ignore[arg-type]
    gone = weakref.ref(store)
    gc.disable()
    try:
        assert first(store.rows("keys"), 3) == [0, 1, 2]
        forget()
        del store, forget
        assert gone() is None
    finally:
        gc.enable()
