"""A list is read item by item, and sent in chunks of which the last one makes it visible."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron_each.item_model import LARGEST_CHUNK, LARGEST_ITEM, Item
from oncecron_each.loader import ItemError, chunks, item_of_json, item_of_line, items_in


def read(*blocks: bytes, null: bool = False, json: bool = False) -> list[str]:
    """Return what identifies the items of a stream."""
    return [item.identity for item in items_in(iter(blocks), null=null, json=json)]


def test_lines() -> None:
    """Empty ones are none, and the last one needs no end."""
    assert read(b"a\n\nb c\n  d") == ["a", "b c", "  d"]
    assert read() == []
    assert read(b"\n\n") == []


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), min_size=1)),
       st.lists(st.integers(1, 9)))  # fmt: skip
def test_blocks_end_anywhere(lines: list[str], sizes: list[int]) -> None:
    """Also in the middle of a letter."""
    data, blocks = "".join(f"{line}\n" for line in lines).encode(), []
    for size in sizes:
        blocks.append(data[:size])
        data = data[size:]
    assert read(*blocks, data) == lines


def test_a_wrong_item_is_named_by_the_number_of_its_line() -> None:
    """Empty lines count."""
    with pytest.raises(ItemError, match=r"item 3 .*NUL"):
        read(b"a\n\n", b"a\0b")


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    """It is refused before it has been read."""

    def endless() -> Iterator[bytes]:
        for _ in range(3):
            yield b"x" * LARGEST_ITEM
        raise AssertionError("read on")

    with pytest.raises(ItemError, match="4096"):
        list(items_in(endless(), null=False, json=False))


@pytest.mark.parametrize("count", [0, 1, LARGEST_CHUNK, LARGEST_CHUNK + 1, 3 * LARGEST_CHUNK])
def test_only_the_last_chunk_says_that_it_is_the_last(count: int) -> None:
    """Every list has one, also an empty one; each holds at most what a store takes at once."""
    items = (Item(str(number), "") for number in range(count))
    sent = list(chunks(items, lambda: None, 86400.0))
    assert [chunk.number for chunk in sent] == list(range(len(sent)))
    assert [chunk.is_last for chunk in sent] == [False] * (len(sent) - 1) + [True]
    assert sent[-1].keep == 86400.0
    assert max(len(chunk.items) for chunk in sent) <= LARGEST_CHUNK
    assert [item.identity for chunk in sent for item in chunk.items] == [
        str(n) for n in range(count)
    ]


# What an item may be


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
        ('{"id": 7}', "7"), ('{"id": -7, "a": [1]}', "-7"), ('{"id": "7", "to": "é"}', "7"),
        ('{"id": " "}', " "), ('{"id": "\\u00e9"}', "é"), (f'{{"id": {10**30}}}', str(10**30)),
    ],
)  # fmt: skip
def test_the_id_of_an_object_is_its_identity(line: str, identity: str) -> None:
    """The payload is the line as it is; a number and its digits are the same."""
    assert item_of_json(line.encode(), 1) == Item(identity, line)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "item 1 is not JSON: "), ("{", "item 1 is not JSON: "), ("[" * 4000, "item 1 is not JSON: "),
        ("7", "item 1 has no id; each line must be an object with an `id`"),
        ('["id"]', "item 1 has no id"), ("{}", "item 1 has no id"),
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
