"""`stores.sqlite.light_sqlite`: the `sqlite3` of everybody, without what it imports."""

import sqlite3
import subprocess
import sys

from oncecron.stores.sqlite import light_sqlite

ALONE = """
import sys
from oncecron.stores.sqlite.light_sqlite import sqlite3
assert not {"functools", "datetime", "sqlite3"} & {*sys.modules}, "imported"
database = sqlite3.connect(":memory:", cached_statements=2)
found = [database.execute(f"select {number % 3}").fetchone()[0] for number in range(9)]
assert found == [0, 1, 2] * 3, found
import functools, sqlite3 as public
assert functools.wraps and public.Error is sqlite3.Error
with public.connect(":memory:") as other:
    assert other.execute("select 1").fetchone() == (1,)
"""


def test_it_is_what_everybody_has() -> None:
    """The same errors and rows, so that it does not matter which of the two a module imports."""
    assert light_sqlite.sqlite3.Error is sqlite3.Error
    assert light_sqlite.sqlite3.Row is sqlite3.Row


def test_it_works_alone_and_leaves_the_others_alone() -> None:
    """Statements are cached without `functools`, and whoever imports that later gets the real one."""
    subprocess.run([sys.executable, "-P", "-c", ALONE], check=True)
