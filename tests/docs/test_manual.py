"""The manual is what `tools/manual.py` makes of docs/ and the option tables, complete, and free of warnings."""

import subprocess
import sys
import tomllib
from pathlib import Path

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
    """By the distribution that has the command, where man looks for it, of the wheel's own prefix."""
    pages = {page.name: page for page in manual_pages()}
    package = {
        f"oncecron-{name.replace(' ', '-')}.1": command._use.__module__.partition(".")[0]
        for name, command in every_command().items()
        if command.callback
    }
    for path in ("", "plugins/drill/", "plugins/web/"):
        project = tomllib.loads((ROOT / path / "pyproject.toml").read_text(encoding="utf-8"))
        wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
        packages = [Path(each).name for each in wheel["packages"]]
        shared = wheel["shared-data"].items()
        assert {source: to for source, to in shared if source.startswith("man/")} == {
            f"man/{name}": f"share/man/man{page.suffix[1:]}/{name}"
            for name, page in pages.items()
            if package.get(name, "oncecron") in packages
        }


@pytest.mark.parametrize(
    "check",
    [["man", "--warnings", "-l", "-E", "UTF-8", "-Tutf8", "-Z"], ["groff", "-man", "-ww", "-z"]],
    ids=lambda check: str(check[0]),
)
def test_the_manual_pages_are_free_of_warnings(check: list[str]) -> None:
    """As lintian asks man, and with all warnings of groff."""
    command = [program(check[0]), *check[1:], *map(str, manual_pages())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No such file or directory" in ended.stderr and "groff" in ended.stderr:
        not_proven(f"man without groff: {ended.stderr.strip()}")
    assert (ended.returncode, ended.stderr) == (0, "")
