"""Rows of Redis: whatever is in a value, it comes as every store keeps it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.model import recordable_values
from oncecron.stores.redis.rows import json_of

ODD = [
    "/bin/a", 'say "it"', "a\\b", "a\nb", "\0", "\x1b[1m", "\ud800", "ü", "\x85", "\u2028", "\\u0000",
]  # fmt: skip


@pytest.mark.parametrize("as_ascii", [True, False])
@given(st.dictionaries(st.sampled_from("ab"), st.one_of(st.text(), st.sampled_from(ODD))))
def test_a_value_is_read_as_every_store_keeps_it(as_ascii: bool, values: dict[str, str]) -> None:
    """With or without escapes, as cjson writes them: a slash too."""
    text = json.dumps(values, ensure_ascii=as_ascii).replace("/", "\\/")
    raw = text.encode("utf-8", "replace")
    assert json_of(raw) == recordable_values(json.loads(raw.decode()))
