"""Each mutation finds its place in the product, and a copy runs its own code."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import mutations
import patched
import pytest
from servers.oncecron import CONSOLE_SCRIPT
from servers.process import public_directory, remove_directory


@pytest.fixture
def directory() -> Iterator[Path]:
    """Make a directory for a copy, which other users can enter."""
    path = public_directory("mutation")
    yield path
    remove_directory(path)


@pytest.mark.parametrize("name", [*mutations.ALL, *mutations.SIMULATED])
def test_each_change_finds_its_place(name: str) -> None:
    """Seen at once, and not only where it is attacked."""
    for change in {**mutations.ALL, **mutations.SIMULATED}[name].changes:
        assert (patched.INSTALLED / change.file).read_text().count(change.old) == 1, change


@pytest.mark.parametrize("name", mutations.ALL)
def test_each_mutation_says_what_it_takes(name: str) -> None:
    """Where it applies, and which faults make it show."""
    mutation = mutations.ALL[name]
    assert set(mutation.stores) <= set(mutations.EVERYWHERE)
    assert all((mutation.stores, mutation.changes))
    assert mutation.breaks.endswith(".")


VERSION = mutations.Change("__init__.py", '__version__ = "', '__version__ = "mutated-')


def _mutation(*changes: mutations.Change) -> mutations.Mutation:
    return mutations.Mutation("some", "Something.", (), (), changes)


def test_a_copy_runs_its_own_code(directory: Path) -> None:
    """Its console script imports the copy, bytecode included, and nothing else differs from the installed one."""
    script = mutations.copy(_mutation(VERSION), directory / "copy")
    version = subprocess.run([script, "--version"], check=True, capture_output=True, text=True)
    assert version.stdout.startswith("oncecron mutated-")
    installed_lines = CONSOLE_SCRIPT.read_text().splitlines()
    lines = script.read_text().splitlines()
    added = ["import sys", f"sys.path.insert(0, {str(directory / 'copy')!r})"]
    at = lines.index(added[1])
    assert lines[at - 1 : at + 1] == added
    assert lines[: at - 1] + lines[at + 1 :] == installed_lines
    package = directory / "copy" / "oncecron"
    compiled = {path.stem.split(".")[0] for path in package.glob("__pycache__/*.pyc")}
    assert compiled == {path.stem for path in package.glob("*.py")}
    assert "mutated-" not in (patched.INSTALLED / "__init__.py").read_text()


@pytest.mark.parametrize(
    "change",
    [
        mutations.Change("run/guard.py", "nobody has ever written this", ""),
        mutations.Change("run/guard.py", "self._state", ""),
        mutations.Change("no_such_file.py", "x", ""),
    ],
    ids=["the text is gone", "the text is there twice", "the file is gone"],
)
def test_a_change_that_no_longer_applies_is_an_error(
    directory: Path, change: mutations.Change
) -> None:
    """It names the file, so that nobody takes the product itself for a mutation."""
    with pytest.raises(mutations.DoesNotApplyError, match=change.file):
        mutations.copy(_mutation(VERSION, change), directory / "copy")
