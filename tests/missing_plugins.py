"""Which tests need a plugin that is not there, by what they import and which commands they call: they are left out.

A test of several plugins stands in tests/, and goes with any of them.
"""

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PLUGINS = frozenset(
    f"oncecron_{name}" for name in ("crontab", "drill", "each", "notify", "web")
    if importlib.util.find_spec(f"oncecron_{name}") is None
)  # fmt: skip
"""The packages of those that are not there."""


def needs_missing(item: pytest.Item) -> bool:
    """Return whether a test needs a plugin that is not there: by a parameter, by its text or that of its fixtures."""
    if not _missing():
        return False
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    lines = (" ".join(map(str, each)) if isinstance(each, list | tuple) else each for each in given)
    if any(isinstance(line, str) and _line().search(line) for line in lines):
        return True
    tops, seen = _tops(item.path), set()
    waiting = [getattr(item, "originalname", item.name), *getattr(item, "fixturenames", ())]
    for name in waiting:  # grows while it is walked
        if name in tops and name not in seen:
            seen.add(name)
            names, is_needed = _read(tops[name])
            if is_needed:
                return True
            waiting += names
    return False


@functools.cache
def _missing() -> list[str]:
    """Return the commands of the plugins that are not there."""
    from oncecron.cli.main import ONCECRON

    return [name for name, listed in ONCECRON.names.items() if not listed.is_installed]


@functools.cache
def _line() -> re.Pattern[str]:
    """Return what a command of such a plugin, a table of it in the file, its package or its program looks like."""
    commands, packages = "|".join(_missing()), "|".join(PLUGINS)
    tables = rf"\[(?:job\..*\.)?(?:{commands})[].]"
    found = rf"(?:^|oncecron )(?:{commands})(?: |$)|{tables}|\b(?:{packages})\b"
    shell = "|oncecron-shell" * ("oncecron_crontab" in PLUGINS)
    return re.compile(found + shell, re.MULTILINE)


@functools.cache
def _tops(path: Path) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(path.read_text()).body:
        names = [node] if isinstance(node, _NAMED) else getattr(node, "targets", ())
        found |= {getattr(each, "name", getattr(each, "id", "")): node for each in names}
    return found


_NAMED = (ast.FunctionDef, ast.ClassDef)


@functools.cache
def _read(top: ast.stmt) -> tuple[list[str], bool]:
    """Return the names in a definition, and whether it imports what is missing, or has a line of words that needs it.

    What stands in front of a function are parameters, each for a test of its own.
    """
    body = top.body if isinstance(top, _NAMED) else [top]
    nodes = [node for each in body for node in ast.walk(each)]
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    lines = (text for node in nodes for text in _lines(node))
    modules = (node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))
    needed = any(module.partition(".")[0] in PLUGINS for module in modules)
    return names, needed or any(map(_line().search, lines))


def _lines(node: ast.AST) -> Iterator[str]:
    """Yield what may be a line of words, or begin one: the first of several, or a text with blanks."""
    words = getattr(node, "elts", ())
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") != "run":  # that takes a key
        words = node.args
    for text in (*words[:1], node):
        value = getattr(text, "value", None)
        if isinstance(value, str) and (text is not node or not value.isalpha()):
            yield value
    if isinstance(node, ast.JoinedStr):  # a path of the console script may be in it
        yield "".join(
            str(getattr(each, "value", "")) if isinstance(each, ast.Constant) else "oncecron"
            for each in node.values
        )


def needed_by(path: Path) -> set[str]:
    """Return what of the missing plugins a file needs, itself or by what it imports of the tests."""
    waiting, seen = [path], set()
    found: set[str] = set()
    for each in waiting:  # grows while it is walked
        if each not in seen:
            seen.add(each)
            for name in _imported(each):
                found |= PLUGINS & {name.partition(".")[0]}
                waiting += _files(name, each.parent)
    return found


@functools.cache
def _imported(path: Path) -> list[str]:
    """Return what a file imports when it is imported itself: at the top, and not for types."""
    names: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module or ""] * bool(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@functools.cache
def _files(name: str, beside: Path) -> tuple[Path, ...]:
    """Return the file of a module of the tests, if it is one."""
    relative = name.replace(".", "/")
    for folder in (beside, TESTS, *(TESTS / each for each in _FOLDERS)):
        for file in (folder / f"{relative}.py", folder / relative / "__init__.py"):
            if file.is_file():
                return (file,)
    return ()


_FOLDERS = ("acceptance", "browser", "contract", "docs", "proof", "simulation", "unit")
