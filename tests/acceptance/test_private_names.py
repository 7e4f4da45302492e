"""Private names of CPython: whichever a new Python takes away or changes, a firing runs its job."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest
from documents import sources
from servers.oncecron import CONSOLE_SCRIPT

if TYPE_CHECKING:
    from pathlib import Path

    from log_of import Store
    from servers.oncecron import Oncecron

PRIVATE = {
    "_collections": "sqlite",
    "_ctypes": "sqlite postgres",
    "_functools": "sqlite",
    "_frozen_importlib": "sqlite",
    "_frozen_importlib_external": "sqlite",
    "_sha1": "redis",
    "_sha2": "sqlite",
    "_sha256": "sqlite",
    "_signal": "sqlite",
    "_socket": "redis",
    "_sqlite3": "sqlite",
}
"""Modules that the documentation of Python does not name, and the stores with which a firing is tried without."""
CHECKED = ("_collections", "_ctypes")
"""Those whose names are tried before they are used."""
CASES = [
    (store, name, way)
    for name, stores in PRIVATE.items()
    for store in stores.split()
    for way in ("missing", "empty", "changed")
    if way != "changed" or name in CHECKED
    if name != ("_sha256" if sys.version_info >= (3, 12) else "_sha2")
]
HIDING = """
import builtins, sys, types
real = builtins.__import__
def hiding(name, *rest, **named):
    importer = sys._getframe(1).f_globals["__name__"]
    if name != {name!r} or not importer.startswith("oncecron."):
        return real(name, *rest, **named)
    with open({tried!r}, "a") as file:
        file.write(importer + chr(10))
    if {way!r} == "missing":
        raise ImportError(name)
    module = types.ModuleType(name)
    if {way!r} == "changed":
        module.__getattr__ = lambda attribute: (
            object() if attribute.startswith("_") else getattr(real(name), attribute)
        )
    return module
builtins.__import__ = hiding
"""


def imported(tree: ast.Module) -> set[str]:
    """Return the modules that a source imports, but for the type checker."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    nodes = list(ast.walk(tree))
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return names | {  # of light_module("_signal", ...) and its like
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PRIVATE
    }


def test_each_private_name_is_tried_here() -> None:
    """What the sources import, or name to `light_module`; `_thread` is documented."""
    trees = [ast.parse(path.read_text()) for path in sources()]
    private = {name for tree in trees for name in imported(tree) if name.startswith("_")}
    assert private - {"__future__", "_thread"} == set(PRIVATE)


@pytest.mark.turns(4)
@pytest.mark.parametrize(("store", "name", "way"), CASES, indirect=["store"])
@pytest.mark.stores("all")
def test_a_firing_goes_on_without(
    store: Store, host: Oncecron, public_path: Path, name: str, way: str
) -> None:
    """It is not there; it has none of the names; those with an underscore are something else."""
    tried, host.script = public_path / "tried", public_path / "oncecron"
    tried.touch(mode=0o666)
    first, *rest = CONSOLE_SCRIPT.read_text().splitlines(keepends=True)
    hiding = HIDING.format(name=name, way=way, tried=str(tried))
    host.script.write_text("".join((first, hiding, *rest)))
    host.script.chmod(0o755)
    ended = host.run("k", "--tick", "one", "--timeout", "20s", "--", "echo", "done")
    assert ended == (0, b"done\n", "")
    assert tried.read_text()
