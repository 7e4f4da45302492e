"""`light_imports`: the modules of this package, as Python itself would import them."""

import importlib.util
import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncecron import light_imports

LOOK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from oncecron import light_imports
light_imports.install()
import oncecron.tried, oncecron.box, oncecron.box.inner
modules = [oncecron.tried, oncecron.box, oncecron.box.inner]
print(json.dumps([
    [m.ANSWER, type(m.__spec__.loader).__module__, m.__spec__.name, m.__file__, m.__spec__.cached,
     m.__spec__.submodule_search_locations, str(m.__spec__.parent), m.__spec__.loader.get_source(m.__name__)]
    for m in modules]))
"""
OURS, PYTHONS = "oncecron.light_imports", "_frozen_importlib_external"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a package of this name with the finder, and three modules that answer 1."""
    package = tmp_path / "oncecron"
    for directory in (package, package / "box"):
        directory.mkdir()
        (directory / "__init__.py").write_text("ANSWER = 1\n")
    (package / "light_imports.py").write_text(Path(light_imports.__file__).read_text())
    (package / "tried.py").write_text("ANSWER = 1\n")
    (package / "box" / "inner.py").write_text("ANSWER = 1\n")
    for path in package.rglob("*.py"):
        py_compile.compile(str(path), doraise=True)
    return tmp_path


def look(tree: Path, *options: str, **environment: str) -> list[list[Any]]:
    """Return what the three modules are in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-P", *options, "-c", LOOK, str(tree)],
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows: list[list[Any]] = json.loads(done.stdout)
    return rows


def test_a_module_is_what_it_would_be_without(tree: Path) -> None:
    """All that a module tells of itself is the same, but for the type of its loader."""
    ours = look(tree)
    assert [row.pop(1) for row in ours] == [OURS] * 3
    (tree / "oncecron/light_imports.py").write_text("def install(): pass\n")
    pythons = look(tree)
    assert [row.pop(1) for row in pythons] == [PYTHONS] * 3
    assert ours == pythons


def test_a_source_that_has_changed_counts(tree: Path) -> None:
    """By its size or by its time, as an editor or an upgrade leaves it."""
    (tree / "oncecron/tried.py").write_text("ANSWER = 22\n")
    inner = tree / "oncecron/box/inner.py"
    inner.write_text("ANSWER = 3\n")  # of the same size
    os.utime(inner, (1_000_000_000, 1_000_000_000))
    answers = [(row[0], row[1]) for row in look(tree)]
    assert answers == [(22, PYTHONS), (1, OURS), (3, PYTHONS)]


@pytest.mark.parametrize("broken", [b"", b"short", bytes(200)])
def test_a_file_that_is_no_bytecode_is_left_to_python(tree: Path, broken: bytes) -> None:
    """It may be cut, or of another Python."""
    Path(importlib.util.cache_from_source(str(tree / "oncecron/tried.py"))).write_bytes(broken)
    assert look(tree)[0][:2] == [1, PYTHONS]


def test_bytecode_of_another_python_is_left_to_python(tree: Path) -> None:
    """A pre-release has the name of its release, and other numbers at the beginning."""
    kept = Path(importlib.util.cache_from_source(str(tree / "oncecron/tried.py")))
    data = kept.read_bytes()
    kept.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert look(tree)[0][:2] == [1, PYTHONS]


def test_no_bytecode_is_left_to_python(tree: Path) -> None:
    """As after an installation that compiles nothing."""
    os.remove(importlib.util.cache_from_source(str(tree / "oncecron/tried.py")))
    assert look(tree)[0][:2] == [1, PYTHONS]


def test_bytecode_with_a_hash_is_left_to_python(tree: Path) -> None:
    """PEP 552: here Python reads the source too, and finds it changed."""
    source = tree / "oncecron/tried.py"
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    py_compile.compile(str(source), doraise=True, invalidation_mode=mode)
    kept = source.stat()
    source.write_text("ANSWER = 2\n")
    os.utime(source, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert look(tree)[0][:2] == [2, PYTHONS]


def test_other_kinds_of_bytecode_are_left_to_python(tree: Path) -> None:
    """-O has files of its own, and PYTHONPYCACHEPREFIX another place."""
    assert look(tree, "-O")[0][:2] == [1, PYTHONS]
    assert look(tree, PYTHONPYCACHEPREFIX=str(tree / "elsewhere"))[0][:2] == [1, PYTHONS]


def test_a_python_that_is_not_known_finds_modules_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the names that this stands on it is not installed, and a fault of it finds nothing."""
    finders = [*sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", [*finders])
    monkeypatch.setattr(light_imports, "IS_KNOWN", False)
    light_imports.install()
    assert sys.meta_path == finders
    monkeypatch.setattr(light_imports, "_spec", None)
    assert light_imports._Finder.find_spec("oncecron.core", ["/"]) is None
