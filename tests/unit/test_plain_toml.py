"""The plain part of TOML: read as tomllib reads it, or not at all."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.config.plain_toml import read_plain

ROOT = Path(__file__).parents[2]

PLAIN = """\
# the stores
store = 'postgresql://oncecron@db/app'   # a comment
ttl = "30s"
verbose = 2
capture= "64k"

[job.billing-nightly]
schedule = "0 2 * * *"
timeout = "2h"
failover = true
no-retry-on = [64, 65 , 78,]

[ job . "a.b/c" ]
command = "echo # no comment"
[[ping]]
keys = [ "a", 'b*' ]
[[ping]]
keys = []
"""

PIECES = (
    *("a", "b-1", '"a b"', "'c'", "[", "]", "[[", "]]", "[a]", "[a.b]", "[[a]]", "[[a.b]]", ".", "="),
    *(" = ", "a = 1", "b = 'x'", '"', "'", '"""', "'''", "\\", "#", ",", " ", "\t", "\n", "\n", "\n", "0", "07"),
    *("-1", "1_0", "1.5", "1e3", "0x1", "true", "false", "inf", "nan", "2026-11-23", "{", "}", "é", "\u00a0"),
    *('[a."b.c"]', '[a."', '"]', "[a.'b']", '[[a."b"]]'),
    *("\r\n", "\x00", "\x7f", "\u2028", "9" * 19, "[1, 'a', true]", "[1", "a.b = 1", "x = [1, 2,]"),
)  # fmt: skip
LINES = (
    *("[a]", "[a.b]", "[[a]]", "[[a.b]]", "[b]", "[ 'a' ]", "[a.b.c]", "a = 1", "b = 'x'", "a = [1]", "b = {}"),
    *('[a."b"]', '[a."b".c]', '["a"."b"]', '[a."x.y"]', '[a."x\\ty"]', '[a."x"y"]', '[a ."b"]'),
    *("c = true # x", "a.b = 1", "", "# [a]", "[a] # x", "[a] x", 'b = ""', "b = ''", 'b = """"""'),
)  # fmt: skip


def loaded(text: str) -> Any:
    """Return what tomllib makes of it; None if it refuses."""
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def typed(value: Any) -> Any:
    """Return a value that differs from another one of another type: 1 is not True."""
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    return [typed(each) for each in value] if isinstance(value, list) else (type(value), value)


def agrees(text: str) -> bool:
    """Say whether it is read as tomllib reads it, or not at all."""
    found = read_plain(text)
    return found is None or typed(found) == typed(loaded(text))


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_pieces_are_read_as_by_tomllib(text: str) -> None:
    """Whatever is put together."""
    assert agrees(text)


@given(st.lists(st.sampled_from(LINES), max_size=8).map("\n".join))
def test_tables_are_read_as_by_tomllib(text: str) -> None:
    """Also where one is opened twice, or is a value already."""
    assert agrees(text)


@given(st.integers(0, len(PLAIN)), st.integers(0, 3), st.sampled_from(PIECES))
def test_a_mistake_in_a_file_is_left_to_tomllib(at: int, removed: int, put: str) -> None:
    """A few characters replaced in a file that was read."""
    assert agrees(PLAIN[:at] + put + PLAIN[at + removed :])


@pytest.mark.parametrize(
    "text",
    [
        *("a = [1]\n[[a]]", "[a]\n[[a]]", "[[a]]\n[a]", "[[a]]\n[a.b]", "a = 1\n[a.b]", "a = 1\n[a]", "[a]\n[a]"),
        *("[a.b]\na = 1\n[a]", "[a.b]\n[a]\nb = 1", "[a]\nb = 1\n[a.b]", "[[a.b]]\n[a]", "[[a]]\n[[a.b]]\n[[a]]"),
        *("a = 1\na = 1", "a = 07", "a = 00", "a = 0", f"a = {'9' * 5000}", 'a = "\\n"', "a = '\\n'", 'a = """b"""'),
        *('a = """', "a = 'b", "a = 1 2", "a 1", "= 1", "a =", "a.b = 1", "[a", "[]", "[a]]", "[[a]", "a = [1 2]"),
        "[ab",
        *("a = [,]", "a = [[1]]", "a = [1", "a = é", "é = 1", "a = 1\r\n", "a = '\x7f'", "a\u00a0= 1", "\ufeffa = 1"),
    ],
)  # fmt: skip
def test_a_hard_text_is_read_as_by_tomllib(text: str) -> None:
    """What opens a table twice, ends too early, or looks like a number."""
    assert agrees(text)


def examples() -> list[str]:
    """Return the configuration files in the documentation."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        re.findall(r"^```toml.*?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for page in pages
    ]
    return [block for found in blocks for block in found]


@pytest.mark.parametrize("text", examples())
def test_the_documented_files_are_read(text: str) -> None:
    """Nobody who writes as the documentation does pays for tomllib."""
    assert read_plain(text) == tomllib.loads(text)


def test_a_firing_with_a_usual_file_does_not_load_tomllib(tmp_path: Path) -> None:
    """But one with anything else does."""
    for text, loads in (("ttl = '30s' # x\n[job.a]\n", False), ("ttl = '''30s'''", True)):
        file = tmp_path / "oncecron.toml"
        file.write_text(text)
        code = f"from oncecron.config.file import read_file; read_file({str(file)!r}); import sys; print(*sys.modules)"
        command = [sys.executable, "-P", "-c", code]
        done = subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True)
        assert ("tomllib" in done.stdout.split()) == loads


def test_tables_with_the_same_lines_share_nothing() -> None:
    """A line is read once, but an array of one table is not that of another."""
    found = read_plain("[a]\nx = 1\ny = [1]\n[b]\nx = 1\ny = [1]\n[c]\n")
    assert found == {"a": {"x": 1, "y": [1]}, "b": {"x": 1, "y": [1]}, "c": {}}
    assert found["a"]["y"] is not found["b"]["y"]
