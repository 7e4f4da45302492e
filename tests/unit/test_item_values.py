"""What an item may be, its id, its state, and what follows a failure."""

from __future__ import annotations

import sys

import pytest

from oncecron.core.retry import RetryPolicy
from oncecron.each.values import (
    LARGEST_ITEM,
    DrawnItem,
    Item,
    ItemCounts,
    ItemError,
    ItemList,
    ItemResult,
    after_failure,
    item_id,
    item_of_json,
    item_of_line,
)

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


@pytest.mark.parametrize("line", ["a", " a b ", "{}", "\t", "é", "x" * LARGEST_ITEM, "a\nb"])
def test_a_line_is_an_item_as_it_is(line: str) -> None:
    """Identity and payload are the same."""
    assert item_of_line(line.encode(), 1) == Item(line, line)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"x" * 4097, "item 7 has 4097 bytes, and an item may have 4096; list a name or an id,"),
        ("é".encode() * 2049, "item 7 has 4098 bytes"),
        (b"a\0b", "item 7 contains a NUL; use -0 for a list that NULs separate"),
        (b"ab\xff", "item 7 is not valid UTF-8 (byte 3)"),
        ("\ud800".encode("utf-8", "surrogatepass"), "item 7 is not valid UTF-8 (byte 1)"),
    ],
)
def test_a_line_that_is_no_item_is_refused(line: bytes, sentence: str) -> None:
    """By its number, and with what to do."""
    for read in (item_of_line, item_of_json):
        with pytest.raises(ItemError) as refused:
            read(line, 7)
        assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("line", "identity"),
    [
        ('{"id": 7}', "7"),
        ('{"id": -7, "a": [1]}', "-7"),
        ('{"id": "7", "to": "é"}', "7"),
        ('{"id": " "}', " "),
        ('{"id": "\\u00e9"}', "é"),
        (f'{{"id": {10**30}}}', str(10**30)),
    ],
)
def test_the_id_of_an_object_is_its_identity(line: str, identity: str) -> None:
    """The payload is the line as it is; a number and its digits are the same."""
    assert item_of_json(line.encode(), 1) == Item(identity, line)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "item 1 is not JSON: "),
        ("{", "item 1 is not JSON: "),
        ("[" * 4000, "item 1 is not JSON: "),
        ("7", "item 1 has no id; each line must be an object with an `id`"),
        ('["id"]', "item 1 has no id"),
        ("{}", "item 1 has no id"),
        *((f'{{"id": {value}}}', "item 1 has no id") for value in ("null", "true", "1.5", '""', "[]")),
        ('{"id": "a\\u0000b"}', "item 1 contains a NUL"),
        ('{"id": "\\ud800"}', "item 1 is not valid UTF-8"),
    ],
)  # fmt: skip
def test_an_object_without_an_id_is_refused(line: str, sentence: str) -> None:
    """And what is no object."""
    with pytest.raises(ItemError) as refused:
        item_of_json(line.encode(), 1)
    assert str(refused.value).startswith(sentence)


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


def test_what_has_ended_is_not_drawn_again_by_itself() -> None:
    """Done, in doubt and dead."""
    assert ItemCounts(21, queued=1, taken=2, done=3, failed=4, lost=5, dead=6).ended == 14
