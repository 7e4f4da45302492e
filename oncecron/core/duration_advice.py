"""What to write instead of a duration or size in words, such as `5 minutes`, `1,5h` or `64 KB`: for messages alone."""

from __future__ import annotations

import re

from oncecron.core.units import LONGEST_DURATION, parse_duration, typed_duration

_NAMES = {
    "1ms": "ms msec msecs millisecond milliseconds",
    "1s": "s sec secs second seconds",
    "1m": "m min mins minute minutes",
    "1h": "h hr hrs hour hours",
    "1d": "d day days",
    "7d": "w wk wks week weeks",
}
_SECONDS = {name: parse_duration(one) for one, names in _NAMES.items() for name in names.split()}
_BYTES = ("k", "kb", "kib", "m", "mb", "mib", "b", "byte", "bytes")
_SIZE = re.compile(
    r"(\d+(?:[.,]\d+)?|[.,]\d+)\s*([km]?)(?:i?b|bytes?|ilobytes?|egabytes?)?", re.ASCII
)
_PART = re.compile(r"(\d+(?:[.,]\d+)?|[.,]\d+)\s*([a-z]+)\.?(?:\s+and\b|\s+ago\b)?,?\s*", re.ASCII)


def is_unit(word: str) -> bool:
    """Return whether a word is the name of a unit of time."""
    return word.lower() in _SECONDS


def is_unit_of_size(word: str) -> bool:
    """Return whether a word is the name of a unit of size."""
    return word.lower() in _BYTES


def meant_duration(text: str) -> str | None:
    """Return a duration as it is written here; None if it is not clear what is meant."""
    rest, total = text.strip().lower(), 0.0
    if rest.isascii() and rest.isdigit():
        return f"{rest}s"
    while part := _PART.match(rest):
        if part[2] not in _SECONDS:
            return None
        total += float(part[1].replace(",", ".")) * _SECONDS[part[2]]
        rest = rest[part.end() :]
    if rest or not total or total > LONGEST_DURATION:
        return None
    return typed_duration(total)


def meant_size(text: str) -> str | None:
    """Return a size as it is written here; None if it is not clear what is meant."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        return None
    number, unit = float(found[1].replace(",", ".")), found[2]
    while not number.is_integer() and unit:
        number, unit = number * 1024, "k" if unit == "m" else ""
    return f"{number:.0f}{unit.replace('m', 'M')}" if number.is_integer() else None
