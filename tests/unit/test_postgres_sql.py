"""The SQL files of PostgreSQL: what must hold for each statement and function in them."""

import re
from pathlib import Path

from oncecron.stores.postgres import schema

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


WARM = Path(schema.__file__).with_name("sql") / "warm.sql"
TWINS = set(re.findall(r"'(\w+)'", WARM.read_text().partition("v_names")[2].partition(";")[0]))


def test_each_function_that_a_firing_calls_by_its_door_has_a_twin_for_the_same_role() -> None:
    """`PostgresSession._door` gives one of the two names."""
    source = Path(schema.__file__).with_name("lease_store.py").read_text()
    doors = set(re.findall(r"""_door\(["'](\w+)["'],""", source))
    assert len(doors) == source.count("_door(") == 8
    assert doors < TWINS
    [granted] = re.findall(r"(?s)-- name: run\n(.*?)\n\n", (WARM.parent / "grants.sql").read_text())
    functions = set(re.findall(r"\{ns\}\.(\w+_v\d+)", granted))
    assert {f"warm_{name}" for name in doors} == {name for name in functions if "warm_" in name}
    assert doors < functions


def test_each_twin_is_made_of_one_statement_of_sql() -> None:
    """Its text becomes a SELECT or an UPDATE INTO the variables of PL/pgSQL."""
    for name in TWINS:
        assert "language sql" in FUNCTIONS[name]
        assert re.sub(r"--.*", "", FUNCTIONS[name]).count(";") == 1, name
        assert "returns setof" not in FUNCTIONS[name]


def test_what_twins_call_has_twins_or_is_inlined_or_rare() -> None:
    """A function with a setting is not inlined, and in a session of a pooler it would be planned at each call."""
    called = {name for twin in TWINS for name in re.findall(r"\{ns\}\.(\w+)\(", FUNCTIONS[twin])}
    sql = {name for name in called if "language sql" in FUNCTIONS[name]}
    planned = {name for name in sql if "set search_path" in FUNCTIONS[name]} - TWINS
    assert planned == {
        "set_up_session_v1",  # never in the session of a pooler
        "channel_v1",  # only if somebody listens
        "put_away_v1",  # one skip of 240
        "lock_state_of_v1", "lock_state_v1", "microseconds",  # only if a claim looks closely
    }  # fmt: skip
