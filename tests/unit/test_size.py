"""How much one has to read: the table of `docs/contributing.md`.

`ONCECRON_TEST_RENEW=1 tests/run tests/unit/test_size.py` writes it anew.
"""

import ast
import copy
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

from test_layers import (
    FIRING,
    floor,
    imported,
    loaded_by,
    modules,
    name_of,
    names,
    paths,
    within_reach,
)

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"
HEAD = "| what | size |\n|---|--:|\n"
STORES = {"postgres": "PostgreSQL", "redis": "Redis", "sqlite": "SQLite"}
MORE = 1.02
"""How far a figure may be above that of the table."""


class _Running(ast.NodeTransformer):
    """Leaves out what is for types alone."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else node


def within_firing() -> set[str]:
    """Return the modules that a firing can import, whatever happens: on any store, in functions too."""
    of_people = {name for name in names() if floor(name) in ("cli", "plugins")}
    of_people |= {f"oncecron.stores.{kind}.reader" for kind in STORES}
    imports = {
        name: {*imported(_Running().visit(copy.deepcopy(tree))), name.rpartition(".")[0]}
        & names() - of_people
        for name, tree in modules()
    }
    starts = {
        name for kind in STORES for name in re.findall(r"oncecron[\w.]+", FIRING.format(kind))
    }
    return starts.union(*(within_reach(start, imports) for start in starts))


def sizes() -> Iterator[tuple[str, int, bool]]:
    """Yield what is measured, how large it is, and whether these are lines."""
    lines = {name_of(path): len(path.read_text().splitlines()) for path in paths()}
    yield "lines that a firing can reach", sum(lines[name] for name in within_firing()), True
    for kind, shown in STORES.items():
        loaded = {name for name in loaded_by(FIRING.format(kind)) if name.startswith("oncecron")}
        yield f"modules that a firing loads on {shown}", len(loaded), False
    parts: dict[str, int] = {}
    for name, count in lines.items():
        part = floor(name) if name.startswith("oncecron_") else "the core"
        parts[part] = parts.get(part, 0) + count
    for part, count in parts.items():
        shown = part if part == "the core" else f"`{part}`"
        yield f"lines of {shown}", count, True


def test_what_one_has_to_read_does_not_grow_unseen() -> None:
    """A figure in the table may be too large, for it is written anew from time to time; it may not be too small."""
    found = [*sizes()]
    page = PAGE.read_text()
    table = page.partition(HEAD)[2].partition("\n\n")[0]
    if "ONCECRON_TEST_RENEW" in os.environ:
        new = "\n".join(
            f"| {what} | {math.ceil(size / 100) * 100 if is_lines else size:,} |"
            for what, size, is_lines in found
        )
        PAGE.write_text(page.replace(table, new))
        table = new
    written = {
        what: int(size.replace(",", ""))
        for what, size in re.findall(r"^\| (.*) \| ([\d,]+) \|$", table, re.MULTILINE)
    }
    grown = {what: f"{size:,}" for what, size, _ in found if size > written.get(what, 0) * MORE}
    assert grown == {}
