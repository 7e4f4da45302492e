"""Say what is wrong with a line that is not TOML, and what to write: for error messages alone.

`tomllib` says "Invalid value (at line 1, column 9)". A value is repeated only if it cannot be a secret.
"""

from __future__ import annotations

import re

from oncecron.config.options import RUN_OPTIONS, is_key
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from collections.abc import Callable

_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")
_PAIR = re.compile(
    r"""\s*(?P<name>[A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*(?P<sign>[=:]?)\s*(?P<value>.*?)\s*$"""
)
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "‚": "'"})
_FLAGS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_OPTIONS = {option.name: option for option in RUN_OPTIONS}
_ADDRESSES = ("store", "log")
_SHORT = 60


def advice(text: str, error: str) -> str:
    """Return the line of an error of `tomllib`, with what is wrong there and what to write."""
    lines = text.split("\n")
    if place := _PLACE.search(error):
        number, what = int(place[1]), error[: place.start()]
    else:  # at end of document
        number, what = _unclosed(lines), error.partition(" (at ")[0]
    line = lines[number - 1].strip()
    found = next(filter(None, (judge(line, what) for judge in _JUDGES)), None)
    return f"line {number}: {found or what}"


def _unclosed(lines: list[str]) -> int:
    numbers = range(1, len(lines) + 1)
    blocks = (n for n in numbers if any(lines[n - 1].count(mark) % 2 for mark in ('"""', "'''")))
    open_ones = (n for n in numbers if _is_open(lines[n - 1]))
    return next(blocks, next(open_ones, len(lines)))


def _is_open(line: str) -> bool:
    _, _, value = line.partition("=")
    quote = value.strip()[:1]
    return quote in ("'", '"') and quote not in value.strip()[1:]


def _of_heading(line: str, _what: str) -> str | None:
    if not line.startswith("["):
        return None
    table, dot, key = line.partition("#")[0].strip().strip("[]").partition(".")
    key = key.strip().strip("\"'")
    if dot and not key:
        return f"the heading has no name; write [{table}.KEY]"
    if any(sign.isspace() for sign in key):
        return f"a key has no blanks; write the KEY of --key, such as [{table}.{'-'.join(key.split())}]"
    if dot and is_key(key) and not re.fullmatch(r"[\w-]+", key):
        return f'a name with such a sign needs quotes; write [{table}."{key}"]'
    if line.count("[") == line.count("]"):
        return None
    opening = len(line) - len(line.lstrip("["))
    return f"the bracket is not closed; write {'[' * opening}{table}{dot}{key}{']' * opening}"


def _of_repetition(line: str, what: str) -> str | None:
    if what.startswith("Cannot overwrite"):
        return f"{line.partition('=')[0].strip()} is set twice; remove one of the two lines"
    if what.startswith("Cannot declare"):
        return f"{line} is there twice; write its lines below one heading"
    return None


def _of_no_pair(line: str, _what: str) -> str | None:
    if line.startswith(("//", ";", "--", "/*")):
        return "a comment begins with #"
    pair = _PAIR.match(line)
    if pair and pair["sign"] == "=":
        return None
    pair = _PAIR.match(line.removeprefix("export "))
    if pair and pair["value"] and pair["name"].replace("_", "-") in (*_OPTIONS, "store-file"):
        return f"write NAME = VALUE, such as {_example(pair['name'], pair['value'])}"
    return "write NAME = VALUE, or a heading such as [job.KEY]"


def _of_value(line: str, what: str) -> str | None:
    pair = _PAIR.match(line)
    if pair is None:
        return None
    name, value = pair["name"], re.split(r"\s+#", pair["value"])[0].strip()
    if not value or value.startswith("#"):
        return f"the value is missing; write {_example(name, '')}"
    if value[0] in "\"'":
        return _of_text(name, value, what)
    if value[0] in "[{":
        return "each text in the brackets needs quotes" if "Invalid value" in what else None
    return _of_bare(name, value)


def _of_bare(name: str, value: str) -> str:
    plain = value.translate(_QUOTES)
    if plain != value:
        return f"these quotes are not plain ones; write {_example(name, plain)}"
    word = value.lower()
    if word in ("true", "false", *_FLAGS):
        return f"write {name} = {_FLAGS.get(word, word)}, in lower case and without quotes"
    kind = _OPTIONS[name.replace("_", "-")].kind if name.replace("_", "-") in _OPTIONS else "text"
    if kind == "integer" or value.isdigit():
        digits = value.lstrip("0")
        return f"{name} is a whole number; write {name} = {digits if digits.isdigit() else 3}"
    if kind == "flag":
        return f"write {name} = true, or {name} = false"
    return f"a text needs quotes: {_example(name, value)}"


def _of_text(name: str, value: str, what: str) -> str | None:
    quote, inner = value[0], value[1:].partition(value[0])[0]
    if value[:3] == 3 * quote:
        return "the text behind three quotes does not end; write three quotes behind it"
    if quote not in value[1:]:
        return f"the quote is not closed; write {_example(name, inner)}"
    if "\\" in value and "scape" in what:
        return "a backslash in double quotes is an escape; put the text in single quotes"
    return "remove what stands behind the value" if what.startswith("Expected newline") else None


_JUDGES: tuple[Callable[[str, str], str | None], ...] = (
    *(_of_heading, _of_repetition, _of_no_pair, _of_value),
)


def _example(name: str, value: str) -> str:
    """Return a right line, with the value where it is one of ours that no secret can be in."""
    option = name.replace("_", "-")
    value = value.strip("\"',;")
    if option in _ADDRESSES:
        shown = masked(value)
    elif option in _OPTIONS and option != "only-if" and len(value) < _SHORT:
        shown = value
    else:
        shown = ""
    return f'{name} = "{shown or "..."}"' if '"' not in shown else f"{name} = '{shown}'"
