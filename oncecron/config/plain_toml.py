"""Read the plain part of TOML, in which most configuration files are written, without `tomllib`.

Every firing reads the file, and `tomllib` costs it 10 ms, mostly by `re`. What is read here: tables, arrays of tables,
and on one line each a string without escapes, a whole number, a boolean, or an array of these. Anything else, and
anything wrong, is left to `tomllib`: a text is read here as it is read there, or not at all.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_BLANK = " \t"
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_MOST_DIGITS = 18
"""Of a number, which has 64 bits in TOML."""


class _NotPlainError(Exception):
    """The text has something that is not read here."""


def read_plain(text: str) -> dict[str, Any] | None:
    """Return what `tomllib.loads` returns; None if that has to read the text."""
    if not text.replace("\n", "").replace("\t", "").isprintable():
        return None  # tomllib names the control character, and reads the line ends of Windows
    try:
        return _read(text)
    except _NotPlainError:
        return None


def _read(text: str) -> dict[str, Any]:
    text = f"\n{text}"  # so that a heading on the first line is one, too
    if "\n " in text or "\n\t" in text:
        text = "\n".join([line.strip(_BLANK) for line in text.split("\n")])
    first, *sections = text.split("\n[")
    root: dict[str, Any] = {}
    _fill(root, _pairs(first))
    declared = set[tuple[str, ...]]()
    known: dict[str, list[tuple[str, Any]]] = {}
    for section in sections:
        heading, _, lines = section.partition("\n")
        pairs = known.get(lines)  # the lines of many sections are alike
        if pairs is None:
            pairs = known[lines] = _pairs(lines)
        _fill(_open_table(root, f"[{heading}", declared), pairs)
    return root


def _fill(table: dict[str, Any], pairs: Iterable[tuple[str, Any]]) -> None:
    for name, value in pairs:
        if name in table:
            raise _NotPlainError
        table[name] = value.copy() if type(value) is list else value


def _pairs(lines: str) -> list[tuple[str, Any]]:
    """Return the names and values of lines without a heading. No line begins with a blank."""
    return [_pair(line) for line in lines.split("\n") if line and not line.startswith("#")]


def _pair(line: str) -> tuple[str, Any]:
    name, at = _name(line, 0)
    at = _expect(line, _after_blanks(line, at), "=")
    at = _after_blanks(line, at)
    value, at = _array(line, at + 1) if line.startswith("[", at) else _scalar(line, at)
    _expect_end(line, at)
    return name, value


def _open_table(root: dict[str, Any], line: str, declared: set[tuple[str, ...]]) -> dict[str, Any]:
    is_array = line.startswith("[[")
    names = _plain_heading(line)
    if names is None:
        names, at = _names(line, 2 if is_array else 1)
        _expect_end(line, _expect(line, at, "]]" if is_array else "]"))
    place: Any = root
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if type(place) is not dict:
            raise _NotPlainError
    last, is_new = names[-1], names not in declared
    declared.add(names)
    table: dict[str, Any] = {}
    if is_array:
        if is_new == (last in place):
            raise _NotPlainError
        tables = place.setdefault(last, [])
        if type(tables) is not list:
            raise _NotPlainError
        tables.append(table)
        return table
    table = place.setdefault(last, table)
    # [a] may stand below [a.b], which has made it, but not twice.
    if not is_new or type(table) is not dict:
        raise _NotPlainError
    return table


def _plain_heading(line: str) -> tuple[str, ...] | None:
    if not line.endswith("]"):
        return None
    before, quote, last = line[1:-1].partition('"')
    if quote:
        if not (before.endswith(".") and last.endswith('"')) or "\\" in last or '"' in last[:-1]:
            return None
        before, last = before[:-1], last[:-1]
    names = before.split(".")
    if "" in names or not _BARE.issuperset("".join(names)):
        return None
    return (*names, last) if quote else tuple(names)


def _names(line: str, at: int) -> tuple[tuple[str, ...], int]:
    name, at = _name(line, _after_blanks(line, at))
    names, at = [name], _after_blanks(line, at)
    while line.startswith(".", at):
        name, at = _name(line, _after_blanks(line, at + 1))
        names, at = [*names, name], _after_blanks(line, at)
    return tuple(names), at


def _name(line: str, at: int) -> tuple[str, int]:
    if line.startswith(('"', "'"), at):
        return _string(line, at)
    end = at
    while end < len(line) and line[end] in _BARE:
        end += 1
    if end == at:
        raise _NotPlainError
    return line[at:end], end


def _string(line: str, at: int) -> tuple[str, int]:
    quote = line[at]
    end = line.find(quote, at + 1)
    text = line[at + 1 : end]
    if end < 0 or (quote == '"' and "\\" in text):
        raise _NotPlainError
    return text, end + 1


def _array(line: str, at: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _after_blanks(line, at)
    while not line.startswith("]", at):
        value, at = _scalar(line, at)
        values.append(value)
        at = _after_blanks(line, at)
        if not line.startswith("]", at):
            at = _after_blanks(line, _expect(line, at, ","))
    return values, at + 1


def _scalar(line: str, at: int) -> tuple[Any, int]:
    word, end = _name(line, at)
    if line.startswith(('"', "'"), at):
        return word, end
    if word in ("true", "false"):
        return word == "true", end
    if not word.isdigit() or len(word) > _MOST_DIGITS or (word.startswith("0") and word != "0"):
        raise _NotPlainError
    return int(word), end


def _after_blanks(line: str, at: int) -> int:
    while at < len(line) and line[at] in _BLANK:
        at += 1
    return at


def _expect(line: str, at: int, text: str) -> int:
    if not line.startswith(text, at):
        raise _NotPlainError
    return at + len(text)


def _expect_end(line: str, at: int) -> None:
    at = _after_blanks(line, at)
    if at < len(line) and line[at] != "#":
        raise _NotPlainError
