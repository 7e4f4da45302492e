"""Every message that the program can print on standard error, collected from its source by the syntax tree.

A message is a text given to an exception of the program, or to a function that writes to standard error. What is
computed at run time is `...` in it. A text in a variable, in a table or from a function of the program is followed
there; a text that comes from elsewhere (a driver, the system) is not ours.
"""

from __future__ import annotations

import ast
import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = Path(__file__).resolve().parents[2] / "oncecron"
HOLE = "..."
WRITERS = {
    **dict.fromkeys(("complain", "say", "_say", "tell", "_tell", "_fence"), 0),
    **dict.fromkeys(("Problem", "FileProblem", "Conflict", "wrong"), 1),
    **dict.fromkeys(("kind", "error"), 0),  # a variable that holds a class of errors
}
"""Functions that write to standard error, or keep what is written later, and which argument is the text. A function
that hands a parameter of its own to one of them is one too."""
TO_STANDARD_OUTPUT = {"output"}
"""`output.say` writes answers, not messages."""
FOREIGN = {
    "OSError",
    "TimeoutError",
    "NotImplementedError",
    "TypeError",
    "KeyError",
    "RuntimeError",
}
INTERNAL = {
    "ImpossibleEventError",
    "ProtocolError",
    "UnclosedError",
    "BrokenConninfoError",
    "LibpqError",
}
"""Caught where they are raised from, or a bug: `internal error: ...` is their message."""
NOT_SHOWN = {"core/light_typing.py", "run/process_tree.py"}
"""Raise for programmers alone."""
DEPTH = 5
MOST = 512
"""Forms of one message; more are not told apart."""
NAMES = {
    "help",
    "key",
    "oncecron",
    "postgresql",
    "redis",
    "schema",
    "see",
    "server",
    "store",
    "the",
    "tick",
}
"""Words that alone say nothing: a message has two others, or what fills its holes is looked up."""


class Message(NamedTuple):
    """A message and where it stands."""

    text: str
    place: str


class Scope(NamedTuple):
    """Where a name may have its value."""

    functions: dict[str, list[ast.FunctionDef]]
    module: dict[str, list[ast.expr]]
    local: dict[str, list[ast.expr]]
    writers: dict[str, int]
    fills: bool = False
    """Whether names within a text are looked up too."""


def messages() -> list[Message]:
    """Return the messages of the whole program, each once."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    functions = _functions(trees.values())
    writers = _writers(functions)
    shared: dict[str, list[ast.expr]] = {}
    for tree in trees.values():
        for name, values in _assigned(tree.body).items():
            shared.setdefault(name, []).extend(values)
    found: dict[str, Message] = {}
    for path, tree in sorted(trees.items()):
        name = str(path.relative_to(PACKAGE))
        if name not in NOT_SHOWN:
            own = {**functions, **_functions([tree])}
            scope = Scope(own, {**shared, **_assigned(tree.body)}, {}, writers)
            for message in _of_body(tree, name, scope):
                found.setdefault(message.text, message)
    return list(found.values())


def normal(text: str) -> str:
    """Return a text with single blanks, and one hole where several meet."""
    text = re.sub(r"(?:\.\.\.)(?:\s*\.\.\.)*", HOLE, text)
    return " ".join(text.split())


def hollow(text: str, least: int = 2) -> bool:
    """Return whether a text is only a frame for another one: it has fewer words of its own than `least`."""
    words = re.findall(r"[A-Za-z][A-Za-z'-]{2,}", text.replace(HOLE, " "))
    return len([word for word in words if word.lower() not in NAMES]) < least


def _of_body(body: ast.AST, name: str, scope: Scope) -> Iterator[Message]:
    """Yield the messages of a module or a function, those of inner functions with their own names."""
    for node in _own_nodes(body):
        if isinstance(node, ast.FunctionDef):
            local = {**scope.local, **_assigned(list(ast.walk(node)))}
            yield from _of_body(node, name, scope._replace(local=local))
        elif isinstance(node, ast.Return | ast.Call) and (text := _text_of(node, scope.writers)):
            for form in _texts(text, scope, DEPTH):
                filled = _texts(text, scope._replace(fills=True), DEPTH) if hollow(form) else {form}
                for one in filled:
                    if not hollow(one, least=1):
                        yield Message(normal(one), f"{name}:{node.lineno}")


def _own_nodes(body: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a body, functions in it as one node each."""
    for child in ast.iter_child_nodes(body):
        yield child
        if not isinstance(child, ast.FunctionDef):
            yield from _own_nodes(child)


def _text_of(node: ast.AST, writers: dict[str, int]) -> ast.expr | None:
    """Return what is a message in a call, or the text in an answer with `False`: it is not as it was asked for."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        match node.value.elts:
            case [ast.Constant(value=False), *_, text]:
                return text
        return None
    if not isinstance(node, ast.Call):
        return None
    name, of, at = _name(node.func), None, 0
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        of = node.func.value.id
    if name in writers:
        at = writers[name]
        if of in TO_STANDARD_OUTPUT:
            return None
    elif not name.endswith(("Error", "StoreUnavailable")) or name in FOREIGN | INTERNAL:
        return None
    return node.args[at] if len(node.args) > at else None


def _writers(functions: dict[str, list[ast.FunctionDef]]) -> dict[str, int]:
    """Return the functions that write a text, with those that hand a parameter on."""
    found = dict(WRITERS)
    for name, all_of_them in functions.items():
        for function in all_of_them:
            parameters = [a.arg for a in function.args.args if a.arg != "self"]
            for node in ast.walk(function):
                text = _text_of(node, WRITERS) if isinstance(node, ast.Call) else None
                if (
                    isinstance(text, ast.Name)
                    and text.id in parameters
                    and name not in ("__init__", "say")
                ):
                    found.setdefault(name, parameters.index(text.id))
    return found


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _functions(trees: Iterable[ast.Module]) -> dict[str, list[ast.FunctionDef]]:
    """Return the functions of modules by name."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
    return found


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return what is assigned to names in these nodes."""
    found: dict[str, list[ast.expr]] = {}
    for target, value in _bindings(nodes):
        if isinstance(target, ast.Tuple) and not isinstance(value, ast.Tuple):
            target = target.elts[-1]  # noqa: PLW2901 - the text of a pair comes last
        if isinstance(target, ast.Name):
            found.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=False):
                if isinstance(one, ast.Name):
                    found.setdefault(one.id, []).append(its)
    return found


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is bound in these nodes, and to what; a loop binds its last name to a row."""
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((target, value) for target in targets)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield target, value
            case ast.NamedExpr(target=target, value=value):
                yield target, value
            case ast.For(target=target, iter=table) | ast.comprehension(target=target, iter=table):
                last = target.elts[-1] if isinstance(target, ast.Tuple) else target
                yield last, _row_of(table)


def _row_of(table: ast.expr) -> ast.expr:
    """Return an expression for what a loop takes from a table."""
    if isinstance(table, ast.Call) and _name(table.func) in ("items", "values"):
        table = table.func.value  # type: ignore[attr-defined]
    return ast.Subscript(value=table, slice=ast.Constant(0), ctx=ast.Load())


def _texts(node: ast.expr, scope: Scope, depth: int) -> set[str]:  # noqa: C901, PLR0911 - one line for each kind
    """Return the forms that a text can have; none where it is not ours."""
    if depth <= 0:
        return set()
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Tuple(elts=[*_, last]):
            return _texts(last, scope, depth)
        case ast.JoinedStr(values=values):
            return _joined(values, scope)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            both = _texts(left, scope, depth) or {HOLE}, _texts(right, scope, depth) or {HOLE}
            return {a + b for a, b in product(*both)}
        case ast.IfExp(body=body, orelse=orelse):
            return _texts(body, scope, depth) | _texts(orelse, scope, depth)
        case ast.BoolOp(values=values):
            return _union(values, scope, depth)
        case ast.Name(id=name):
            known = scope.local.get(name) or scope.module.get(name) or []
            within = scope if name in scope.local else scope._replace(local={})
            each = [_texts(value, within, depth - 1) for value in known]
            return set().union(*(texts or {HOLE} for texts in each)) if any(each) else set()
        case ast.Subscript(value=value):
            return _of_table(value, scope, depth)
        case ast.Call():
            return _called(node, scope, depth)
    return set()


def _joined(values: list[ast.expr], scope: Scope) -> set[str]:
    """Return the forms of an f-string; a choice of two texts in it gives two."""
    parts: list[set[str]] = []
    for value in values:
        if isinstance(value, ast.Constant):
            parts.append({str(value.value)})
        elif isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.IfExp):
            parts.append(_texts(value.value, scope, 1) or {HOLE})
        elif isinstance(value, ast.FormattedValue) and scope.fills:
            inner = scope._replace(fills=False)
            parts.append(_texts(value.value, inner, DEPTH - 1) or {HOLE})
        else:
            parts.append({HOLE})
    forms = 1
    for part in parts:
        forms *= len(part)
    return {"".join(p) for p in product(*parts)} if forms <= MOST else {HOLE}


def _union(nodes: Iterable[ast.expr], scope: Scope, depth: int) -> set[str]:
    return {text for node in nodes for text in _texts(node, scope, depth)}


def _of_table(table: ast.expr, scope: Scope, depth: int) -> set[str]:
    """Return the texts of a dictionary, written there or under a name."""
    tables = [table]
    if isinstance(table, ast.Name):
        tables = scope.local.get(table.id) or scope.module.get(table.id) or []
    found: set[str] = set()
    for one in tables:
        if isinstance(one, ast.Dict):
            found |= _union(one.values, scope, depth - 1)
        elif isinstance(one, ast.Tuple | ast.List):
            rows = (row.elts[-1] for row in one.elts if isinstance(row, ast.Tuple) and row.elts)
            found |= _union(rows, scope, depth - 1)
    return found


def _called(call: ast.Call, scope: Scope, depth: int) -> set[str]:
    """Return what a function of the program returns as text, or a text with its holes filled."""
    name = _name(call.func)
    if isinstance(call.func, ast.Attribute) and name == "format":
        return {re.sub(r"\{[^{}]*\}", HOLE, text) for text in _texts(call.func.value, scope, depth)}
    if isinstance(call.func, ast.Attribute) and name == "get":
        return _of_table(call.func.value, scope, depth) | _union(call.args[1:], scope, depth)
    found: set[str] = set()
    for function in scope.functions.get(name, ()):
        nodes = list(ast.walk(function))
        own = scope._replace(local=_assigned(nodes))
        returned = (n.value for n in nodes if isinstance(n, ast.Return) and n.value is not None)
        found |= _union(returned, own, depth - 1)
    return found


if __name__ == "__main__":
    for one in messages():
        print(f"{one.place}\t{one.text}")
