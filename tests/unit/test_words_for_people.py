"""Small words of the commands for people: nothing found, names that may have been meant, columns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from oncecron.cli import history, output, pause, tables
from oncecron.config.settings import Settings
from oncecron.core.log_rows import Skip
from oncecron.core.text import Clock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "nothing is recorded of key a"),
        ({"limit": "3"}, "nothing is recorded of key a"),
        ({"outcome": "lost"}, "nothing like that is recorded of key a"),
        ({"host": "b"}, "nothing like that is recorded of key a"),
        ({"since": "2h"}, "nothing like that is recorded of key a"),
        ({"exhausted": "true"}, "nothing like that is recorded of key a"),
        ({"skips": "true"}, "nothing like that is recorded of key a"),
    ],
)
def test_nothing_found_by_a_filter_is_not_nothing(
    given: dict[str, str], told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a key that has other records."""
    (tmp_path / "empty.toml").touch()
    settings = Settings(history.OPTIONS, {**given, "config": str(tmp_path / "empty.toml")})
    history._tell_the_reader(settings, history._query(settings, ["a"]), 0)
    assert capfd.readouterr().err == f"oncecron: {told}\n"


def test_a_terminal_obeys_no_name_that_may_have_been_meant() -> None:
    """Hosts name themselves."""
    assert pause.near("web1", ["web1\x1b[2J"]) == r" (did you mean web1\x1b[2J?)"


def test_refusals_tell_the_part() -> None:
    """Before what may be cut."""
    skip = Skip(*("k", 3, "t1", "held", "host-a", 1, "host-b", 2, 0.0, 4, "detail"))
    table = io.StringIO()
    output.Writer(tables.SKIPS, output.Style("table", Clock(utc=True)), table).write([skip])
    heading, row = (line.split() for line in table.getvalue().splitlines())
    assert heading[-3:] == ["COUNT", "SHARD", "DETAIL"]
    assert row[-3:] == ["4", "3", "detail"]
