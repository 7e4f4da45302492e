"""The manual is what `tools/manual.py` makes of docs/ and the option tables, complete, and free of warnings."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from command_tree import every_command
from documents import COMMANDS, ROOT, manual_pages
from servers.require import not_proven, program


def test_the_manual_is_as_it_would_be_made() -> None:
    """Options, synopses and manual pages follow the tables; `python tools/manual.py` makes them again."""
    check = [sys.executable, str(ROOT / "tools" / "manual.py"), "--check"]
    ended = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_every_command_has_a_page_that_is_filled() -> None:
    """With its synopsis and its options."""
    for name in every_command():
        page = (COMMANDS / f"{name.replace(' ', '-')}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# oncecron {name}\n")
        for kind in ("synopsis", "options"):
            assert page.count(f"<!-- {kind}: {name.replace(' ', '-')} -->") == 1, (name, kind)


def test_a_manual_page_is_named_after_its_command() -> None:
    """So that `man oncecron-crontab-wrap` shows `oncecron crontab wrap`."""
    wanted = {f"oncecron-{name.replace(' ', '-')}.1" for name in every_command()}
    others = {
        "oncecron.1", "oncecron-shell.1", "oncecron-records.7", "oncecron-guarantees.7", "oncecron-crons.7",
    }  # fmt: skip
    assert {page.name for page in manual_pages()} == wanted | others


def test_every_manual_page_is_installed() -> None:
    """Where man looks for it, of the wheel's own prefix."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    installed = {source: to for source, to in shared.items() if source.startswith("man/")}
    assert installed == {
        f"man/{page.name}": f"share/man/man{page.suffix[1:]}/{page.name}" for page in manual_pages()
    }


@pytest.mark.parametrize(
    "check",
    [
        ["man", "--warnings", "-l", "-E", "UTF-8", "-Tutf8", "-Z"],
        ["groff", "-man", "-ww", "-z"],
    ],
    ids=lambda check: str(check[0]),
)
def test_the_manual_pages_are_free_of_warnings(check: list[str]) -> None:
    """As lintian asks man, and with all warnings of groff."""
    command = [program(check[0]), *check[1:], *map(str, manual_pages())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No such file or directory" in ended.stderr and "groff" in ended.stderr:
        not_proven(f"man without groff: {ended.stderr.strip()}")
    assert (ended.returncode, ended.stderr) == (0, "")
