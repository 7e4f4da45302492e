"""The SQL files of PostgreSQL: what must hold for each statement and function in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncecron.stores.postgres import look, schema

FILES = sorted(Path(schema.__file__).with_name("sql").rglob("*.sql"))
TEXT = "\n".join(path.read_text() for path in FILES if path.name != "reader.sql")
FUNCTIONS = dict(
    re.findall(
        r"^create function \{ns\}\.(\w+)(.*?\$\$.*?\$\$;)",
        TEXT,
        re.DOTALL | re.MULTILINE,
    )
)


def test_every_update_of_the_hot_row_sets_its_version() -> None:
    """A grant compares it: an update that did not set it could be overlooked."""
    updates = re.findall(r"update \{ns\}\.job_key (\w+)\s+set (.*)", TEXT)
    assert len(updates) == len(re.findall(r"update \{ns\}\.job_key\b", TEXT)) > 10
    for alias, assignments in updates:
        assert assignments.startswith(f"version = {{ns}}.next_number({alias}.version), ")


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        ("look_v1", look.LOOK), ("look_at_log_v1", look.LOOK_AT_LOG),
        ("look_at_tick_v1", look.LOOK_AT_TICK),
        ("grant_v1", look.GRANT), ("renew_v1", look.RENEW), ("retry_v1", look.RETRY),
    ],
)  # fmt: skip
def test_the_columns_have_the_names_of_the_server(function: str, columns: tuple[str, ...]) -> None:
    """They are read in this order."""
    assert tuple(re.findall(r"\bout (\w+) ", FUNCTIONS[function])) == columns
