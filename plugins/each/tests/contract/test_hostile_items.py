"""Rows of items that no store can have made: named and left out, and no error of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hostile_rows import judge
from item_hosts import LIST, Field, items

from oncecron_each import reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract_stores import StoreKind

    from oncecron.stores.reader import Reader

QUESTIONS: dict[str, Callable[[Reader], Any]] = {
    "each/item_lists": reports.item_lists,
    "each/items": lambda store: list(reports.items(store, reports.ItemQuery(LIST))),
}


@pytest.mark.parametrize("view", QUESTIONS)
def test_a_value_that_no_store_can_have_made(store: StoreKind, view: str) -> None:
    """Of each column of a row, and of each length of a row."""
    field = Field(store)
    field.load(items("a", "b"))
    judge(field.people, view, QUESTIONS[view])
