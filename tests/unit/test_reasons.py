"""No message has the words of the interpreter: a file, a row or an item is what is wrong."""

import json
import re
from typing import Any

import pytest

from oncecron.config.options import Option, values_of
from oncecron.core.errors import UNREADABLE, reason_of
from oncecron.core.schedule_fields import read_schedule
from oncecron_each.loader import ItemError, item_of_json, item_of_line

OF_PYTHON = re.compile(
    r"recursion|4300|sys\.|int\(\)|unpack|NoneType|subscript|indices|codec|Errno|None|__|utf-8-sig"
)
DIGITS = "1" * 5000
NOTHING: Any = None
EMPTY: Any = []
RAISING = {
    "a number": lambda: int(DIGITS), "a word": lambda: int("x"), "a time": lambda: float("x"),
    "two of one": lambda: [a for a, b in ["x"]], "no table": lambda: NOTHING["a"],
    "no list": lambda: EMPTY["b"], "no such place": lambda: EMPTY[1], "no such name": lambda: NOTHING.a,
    "a large number": lambda: float(10**400), "deep": lambda: json.loads("[" * 100_000),
    "digits": lambda: json.loads(DIGITS), "a mark": lambda: json.loads("\ufeff{}"), "bytes": b"\xff".decode,
    "a surrogate": "\ud800".encode, "a missing name": lambda: {}["host"],
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(RAISING))
def test_what_python_raises_is_told_in_plain_words(case: str) -> None:
    """Whatever a conversion raises; a missing field is named."""
    with pytest.raises(UNREADABLE) as caught:
        RAISING[case]()
    reason = reason_of(caught.value)
    assert not OF_PYTHON.search(reason), reason
    assert len(reason) > 10


@pytest.mark.parametrize("name", ["--id", "--codes"])
def test_an_option_with_too_many_digits_is_too_large(name: str) -> None:
    """As one with a few digits more than it may have."""
    kinds = {"--id": "integer", "--codes": "codes"}
    option = Option(name[2:], kinds[name], "", maximum=255)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is too large; the maximum is 255"):
        values_of({option.name: DIGITS}, [option])


@pytest.mark.parametrize("field", [DIGITS, f"*/{DIGITS}", f"1-{DIGITS}"])
def test_a_schedule_with_too_many_digits_is_out_of_range(field: str) -> None:
    """Zeros in front are read as cron reads them."""
    with pytest.raises(ValueError, match="invalid minute"):
        read_schedule(f"{field} * * * *")
    assert read_schedule("0000000007 * * * *")


def test_a_list_that_begins_with_a_mark_is_refused() -> None:
    """The mark would be part of the first name: mail to it goes nowhere."""
    for item_of in (item_of_line, item_of_json):
        with pytest.raises(ItemError, match=r"item 1 begins with a byte order mark \(BOM\)"):
            item_of(b'\xef\xbb\xbf{"id": 1}', 1)
    assert item_of_line(b"\xef\xbb\xbf", 2).identity == "\ufeff"
