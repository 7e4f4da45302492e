"""Decide which rows of a store can be read, and name those that cannot.

A row may be damaged, or written by another program: an infinite time, a year beyond 9999, a text instead of a number, a
field that is missing. Such a row is named on standard error and passed over, and the command exits with 1. So one bad
row hides itself alone, and what is printed is always what the formats promise.
"""

from __future__ import annotations

from oncecron.core.clock import is_time
from oncecron.core.errors import UNREADABLE, reason_of
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import Pause
from oncecron.core.model import OUTCOMES, is_key
from oncecron.core.stderr import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    Value = TypeVar("Value")

_NAMED = 10
"""The number of rows that are named; there may be millions."""
_LONGEST_NAME = 200
_MOST_SHARDS = 1000
"""As for --shards: reports count the shards of a tick one by one."""


class Unreadable:
    """The rows that the queries of one store have passed over."""

    def __init__(self) -> None:
        self._rows: set[str] = set()

    def __bool__(self) -> bool:
        """Return whether a row was passed over."""
        return bool(self._rows)

    def read(self, name: str, convert: Callable[..., Value], *given: Any) -> Value | None:
        """Return the row that `convert` makes of what is given, or None after naming it on standard error."""
        try:
            row = convert(*given)
            check(row)
        except UNREADABLE as error:
            self._pass_over(name, reason_of(error))
            return None
        return row

    def _pass_over(self, name: str, why: str) -> None:
        if name in self._rows:
            return
        self._rows.add(name)
        if len(self._rows) <= _NAMED:
            complain(f"{name:.{_LONGEST_NAME}} cannot be read and is left out: {why}")
        elif len(self._rows) == _NAMED + 1:
            complain("more rows cannot be read and are left out")


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "str": (str,),
    "tuple": (tuple,),
}
_ALLOWED: dict[str, Callable[[Any], bool]] = {
    "float": is_time,  # every float is a time, or a difference of two
    "key": is_key,
    "outcome": OUTCOMES.__contains__,
    "shard": range(_MOST_SHARDS).__contains__,
    "shards": range(1, _MOST_SHARDS + 1).__contains__,
}
"""What a value of a type, or of a field, must be."""
_rules: dict[type, list[Rule]] = {}
_places: dict[tuple[type, ...], list[tuple[int, str, Callable[[Any], bool]]]] = {}
"""What is still to be checked in a row of these types; reports read tens of thousands of rows of few types."""


class Rule(NamedTuple):
    """What a field may hold."""

    name: str
    types: frozenset[type]
    """None for a field that is always a row itself."""
    allowed: Callable[[Any], bool] | None


def check(row: Any) -> None:
    """Raise `ValueError` if a field of a row, or of a row in it, does not fit its annotation."""
    kinds = (type(row), *map(type, row))
    if kinds not in _places:
        _places[kinds] = list(_checked_places(row))
    for place, name, allowed in _places[kinds]:
        if not allowed(row[place]):
            raise _misfit(name, row[place])


def _checked_places(row: Any) -> Iterator[tuple[int, str, Callable[[Any], bool]]]:
    """Yield the fields whose types do not say enough. Raises `ValueError` for a type that does not fit."""
    for place, ((name, types, allowed), value) in enumerate(
        zip(_rules_of(type(row)), row, strict=True)
    ):
        if hasattr(value, "_fields"):
            yield place, name, _is_well
        elif type(value) not in types:
            raise _misfit(name, value)
        elif allowed and value is not None:
            yield place, name, allowed


def _is_well(row: Any) -> bool:
    check(row)
    return True


def _misfit(name: str, value: Any) -> ValueError:
    return ValueError(f"{name} is {value!r:.60}")


def _rules_of(row: type) -> list[Rule]:
    if row not in _rules:
        _rules[row] = [_rule(*field) for field in row.__annotations__.items()]
        if row is Pause:  # its first field is a key or `ALL_KEYS`
            _rules[row][0] = _rules[row][0]._replace(allowed=None)
    return _rules[row]


def _rule(name: str, annotation: str) -> Rule:
    kind, _, absent = annotation.partition(" | ")
    types = _TYPES.get(kind.partition("[")[0], ())
    allowed = _ALLOWED.get(name, _ALLOWED.get(kind))
    return Rule(name, frozenset((*types, type(None)) if absent else types), allowed)
