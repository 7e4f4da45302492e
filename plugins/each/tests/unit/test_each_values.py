"""The id of an item, and what follows a failure."""

import sys

import pytest

from oncecron.core.retry import RetryPolicy
from oncecron_each.item_model import DrawnItem, ItemList, ItemResult, after_failure, item_id

LIST = ItemList("digest", "2026-11-20T02:00Z")
POLICY = RetryPolicy(retries=2, delay=(5.0, 300.0), permanent=frozenset({64}))


def test_the_id_of_an_item_never_changes() -> None:
    """A provider has it as its idempotency key: another release must send the same."""
    assert item_id(LIST, "ann@example.com") == "46f68b14091d29c09dcbefd2f00356a1"
    assert item_id(LIST, "é\n\U0001f40d") == item_id(LIST, "é\n\U0001f40d")


def test_a_python_with_only_openssl_computes_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution may build Python without its own SHA-256 (`--with-builtin-hashlib-hashes`)."""
    items_of = ItemList("digest", "2026-01-01T00:00:00Z")
    found = item_id(items_of, "user-1")
    for name in ("_sha256", "_sha2"):
        monkeypatch.setitem(sys.modules, name, None)
    assert item_id(items_of, "user-1") == found


def test_the_parts_of_an_id_cannot_be_shifted() -> None:
    """The end of a tick is not the beginning of an item."""
    ids = {
        item_id(ItemList(key, tick), identity)
        for key, tick, identity in [("a", "b", "c"), ("a", "bc", ""), ("ab", "c", ""), ("a", "b", "\nc")]
    }  # fmt: skip
    assert len(ids) == 4


def test_a_failed_item_is_retried_so_often() -> None:
    """With a delay between base and cap; then it is dead."""
    for attempt in (1, 2):
        item = DrawnItem(3, "a", "a", attempt)
        delays = {after_failure(item, POLICY, exit_code=1).delay for _ in range(50)}
        assert len(delays) > 1
        assert all(delay is not None and 5 <= delay <= 5 * 2**attempt for delay in delays)
    last = after_failure(DrawnItem(3, "a", "a", 3), POLICY, exit_code=1, reason="exit status 1")
    assert last == ItemResult(3, "dead", reason="exit status 1")


def test_a_permanent_exit_status_is_not_retried() -> None:
    """A signal is none."""
    item = DrawnItem(3, "a", "a", 1)
    assert after_failure(item, POLICY, exit_code=64).state == "dead"
    assert after_failure(item, POLICY, exit_code=None).state == "failed"
    assert after_failure(item, POLICY._replace(retries=0), exit_code=1).state == "dead"
