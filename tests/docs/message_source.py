"""The texts of the program, and which of them it prints on standard error, collected from its source.

A message is given to an exception of the program, or to a function that writes to standard error, as a text or by
the name of one. It is taken in parts, between what is computed at run time.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from documents import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

WRITER = re.compile(
    r"(?<!output\.)\b(complain|_?say|_?tell|_fence|kind|error|Problem|FileProblem|Conflict|wrong"
    r"|\w+Error|StoreUnavailable)$"
)
INTERNAL = re.compile(
    r"\b(OS|Timeout|Type|Key|Runtime|NotImplemented|ImpossibleEvent|Protocol|Unclosed"
    r"|BrokenConninfo|Libpq)Error$"
)
"""Of Python, or caught where they are raised from, or a bug: `internal error: ...` is their message."""


def all_texts() -> str:
    """Return all texts of the program, messages or not, one a line."""
    nodes = (node for tree in _trees().values() for node in ast.walk(tree))
    return "\n".join(" ".join(text.split()) for node in nodes for text in _constants(node))


def parts_of_messages() -> dict[str, str]:
    """Return the parts of messages, and where each stands."""
    found: dict[str, str] = {}
    for path, tree in sorted(_trees().items()):
        named = _named_texts(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _writes(ast.unparse(node.func)):
                inner = [each for text in node.args for each in ast.walk(text)]
                names = [each.id for each in inner if isinstance(each, ast.Name)]
                for text in (*inner, *(each for name in names for each in named[name])):
                    for part in (part for word in _constants(text) for part in split(word)):
                        found.setdefault(part, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def split(text: str) -> list[str]:
    """Return the parts of a text between `...` or `{name}` that have three words: fewer say too little."""
    parts = (
        " ".join(part.split()).strip(" ;:,()`") for part in re.split(r"\.{3}|\{[^{}]*\}", text)
    )
    return [part for part in parts if len(re.findall(r"[A-Za-z]{2,}", part)) > 2 and " " in part]


def _writes(function: str) -> bool:
    return bool(WRITER.search(function)) and not INTERNAL.search(function)


def _trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources()}


def _named_texts(tree: ast.Module) -> dict[str, list[ast.AST]]:
    found: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_text(value):
                found[name] += ast.walk(value)
    return found


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            return _is_text(one) or _is_text(other)
    return isinstance(node, ast.JoinedStr) or bool(_constants(node))


def _constants(node: ast.AST) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
