"""The table of docs/drill.md says what was measured, with the columns and rows that the tool has."""

import re
import sys
from pathlib import Path

from snippet_source import ROOT

sys.path.append(str(Path(__file__).parents[1] / "proof"))

import compare_locks  # found by the line above


def test_the_table_is_what_was_measured() -> None:
    """All of it: `compare_locks.py` prints the table."""
    page = (ROOT / "docs" / "drill.md").read_text()
    [shown] = re.findall(r"<!-- locks -->\n(.*?)<!-- end of locks -->", page, re.DOTALL)
    measured = compare_locks.known()
    assert shown.splitlines() == list(compare_locks.table(measured))
    assert list(measured["rows"]) == [lock.name for lock in compare_locks.LOCKS]


def test_its_words_are_those_of_what_was_measured() -> None:
    """The day, the seed, and each version."""
    page = (ROOT / "docs" / "drill.md").read_text()
    section = page.partition("### Eight locks, one seed")[2].partition("\n## ")[0]
    measured = compare_locks.known()
    days = {row["day"] for row in measured["rows"].values()}
    assert days == set(re.findall(r"\d{4}-\d\d-\d\d", section))
    assert f"seed {measured['seed']}" in section
    for name, version in measured["versions"].items():
        if name not in ("Linux", "CPUs"):
            assert f"{name} {version}" in section


def test_a_cause_has_its_column() -> None:
    """By what was done last to the first of two."""
    _, _, _, killed, cut, other, *_ = compare_locks.COLUMNS
    for kind, column in [
        ("kill the wrapper", killed),
        ("kill the wrapper of a new job", killed),
        ("a deaf proxy", cut),
        ("lose an answer", cut),
        ("sever the connections", cut),
        ("late answers, then silence", cut),
        ("stop the job", other),
    ]:
        assert compare_locks.cause(f"two at once; before that: {kind} (+1.5 s)") == column
    assert compare_locks.cause("two at once; nothing had been done to the first") == other
