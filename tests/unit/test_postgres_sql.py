"""The SQL files of PostgreSQL: what must hold for each statement and function in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncecron.stores.postgres import rows, schema

FILES = sorted(Path(schema.__file__).with_name("sql").glob("*.sql"))
TEXT = "\n".join(path.read_text() for path in FILES if path.name != "inspector.sql")
FUNCTIONS = dict(
    re.findall(r"^create function \{ns\}\.(\w+)(.*?\$\$.*?\$\$;)", TEXT, re.DOTALL | re.MULTILINE)
)
MOST_LINES = 80


def test_every_update_of_the_hot_row_sets_its_version() -> None:
    """A grant compares it: an update that did not set it could be overlooked."""
    updates = re.findall(r"update \{ns\}\.job_key (\w+)\s+set (.*)", TEXT)
    assert len(updates) == len(re.findall(r"update \{ns\}\.job_key\b", TEXT)) > 10
    for alias, assignments in updates:
        assert assignments.startswith(f"version = {{ns}}.next_number({alias}.version), ")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_is_long(name: str) -> None:
    """Each has one thing to do."""
    assert FUNCTIONS[name].count("\n") <= MOST_LINES


@pytest.mark.parametrize(
    ("function", "row"),
    [
        ("look_v1", rows.KeyRow),
        ("look_at_log_v1", rows.LogRow),
        ("grant_v1", rows.GrantRow),
        ("renew_v1", rows.RenewRow),
        ("retry_v1", rows.RetryRow),
    ],
)
def test_the_columns_have_the_names_of_the_server(function: str, row: type) -> None:
    """They are read in this order."""
    declared = re.findall(r"\bout (\w+) ", FUNCTIONS[function])
    assert [name.removeprefix("request_") for name in declared] == [
        name.removeprefix("request_")
        for name in row._fields  # type: ignore[attr-defined]
    ]


def test_a_look_at_a_tick_has_the_first_columns_of_one_at_the_log() -> None:
    """The rest tells about the own execution."""
    declared = re.findall(r"\bout (\w+) ", FUNCTIONS["look_at_tick_v1"])
    rest = list(rows.LogRow._fields[len(declared) :])
    assert [*declared, *rest] == list(rows.LogRow._fields)
    assert all(name.startswith("own_") for name in rest)
