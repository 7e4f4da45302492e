"""Sizes, as people write them."""

import pytest

from oncecron.core.units import LARGEST_SIZE, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        ("4096", 4096),
        ("64k", 65536),
        ("64K", 65536),
        ("1M", LARGEST_SIZE),
        ("1m", LARGEST_SIZE),
        ("1024k", LARGEST_SIZE),
        ("1048576", LARGEST_SIZE),
        ("0064k", 65536),
    ],
)
def test_reads_sizes_as_people_write_them(text: str, size: int) -> None:
    """A bare number is bytes; k is 1024 of them, M is 1024 k."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "k", "-1", "+1", "1.5k", "64kb", "64kk", "1G", "64 k", " 64k", "64k ", "0x10", "٣", "²", "1e3"],
)  # fmt: skip
def test_refuses_the_rest(text: str) -> None:
    """And says what is expected."""
    with pytest.raises(ValueError, match="such as 4096, 64k or 1M"):
        parse_size(text)


@pytest.mark.parametrize("text", ["2M", "1025k", "1048577", "9" * 30, "1" + "0" * 5000])
def test_more_than_a_row_of_the_log_takes_is_refused(text: str) -> None:
    """A megabyte is the most, however large the number."""
    with pytest.raises(ValueError, match="larger than 1M"):
        parse_size(text)
