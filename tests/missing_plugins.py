"""Which files of tests need a plugin that is not there, by what they import: they are left out.

A test of several plugins stands in tests/, and goes with any of them.
"""

import ast
import functools
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PLUGINS = frozenset(
    f"oncecron_{name}" for name in ("crontab", "drill", "each", "notify", "web")
    if importlib.util.find_spec(f"oncecron_{name}") is None
)  # fmt: skip
"""The packages of those that are not there."""


def names_missing_command(texts: Iterable[object]) -> bool:
    """Return whether one of the parameters of a test is a line with a command of a plugin that is not there."""
    from oncecron.cli.main import ONCECRON

    missing = [name for name, listed in ONCECRON.names.items() if not listed.is_installed]
    found = re.compile(rf"(?:^|oncecron )(?:{'|'.join(missing)})(?: |$)", re.MULTILINE)
    return bool(missing) and any(isinstance(text, str) and found.search(text) for text in texts)


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


def _files(name: str, beside: Path) -> Iterator[Path]:
    relative = name.replace(".", "/")
    for folder in (beside, TESTS, *(TESTS / each for each in _FOLDERS)):
        for file in (folder / f"{relative}.py", folder / relative / "__init__.py"):
            if file.is_file():
                yield file
                return


_FOLDERS = ("acceptance", "browser", "contract", "docs", "proof", "simulation", "unit")
