"""The five time fields of a crontab line as Debian's cron reads them: what it accepts, and which values match.

Follows entry.c of cron 3.0pl1-162: `get_list`, `get_range` and `get_number`. Cron accepts more than its manual says. It
ignores text after a number or a star up to the next blank (`5#2` is 5). A falling range is empty (`22-2` never
matches). A step may be larger than the range (`*/100`). Digits overflow as in atoi(3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("minute", "hour", "day-of-month", "month", "day-of-week")
NICKNAMES = ("yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly")
"""The nicknames with a schedule; cron also has `@reboot`."""

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec")  # fmt: skip
_DAYS = (b"sun", b"mon", b"tue", b"wed", b"thu", b"fri", b"sat")
_WORDS: tuple[tuple[bytes, ...], ...] = ((), (), (), _MONTHS, _DAYS)
_DAY, _WEEKDAY = 2, 4
_LONGEST_NUMBER = 999
_EOF = b"\xff"  # entry.c keeps it in a char, which is then EOF
_ALNUM = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


class Field(NamedTuple):
    """One field."""

    written: str
    """As it is written in the line."""
    text: str
    """The same field for `tick`; empty if it matches no value, as a falling range."""
    values: frozenset[int]
    """The values that match, in the field's own range; day-of-week 0 and 7 are both Sunday."""
    has_star: bool
    """Whether it begins with `*`: then cron handles clock changes, or the two day fields, in another way."""


def either_day(day: Field, weekday: Field) -> bool:
    """Return whether a day matches by either of the two fields, not only by both."""
    return not (day.has_star or weekday.has_star)


def is_step_beside_day(fields: Sequence[Field]) -> bool:
    """Return whether both day fields leave out days, and one of them is a step such as `*/2`."""
    day, weekday = fields[_DAY], fields[_WEEKDAY]
    weekdays = {value % 7 for value in weekday.values}
    partial = 0 < len(day.values) < 31 and 0 < len(weekdays) < 7  # noqa: PLR2004 - days of a month and of a week
    return partial and not either_day(day, weekday)


def without_empty_day(fields: Sequence[Field]) -> list[Field]:
    """Return five fields with `*` for one that has no day, if cron then goes by the other one alone."""
    day, weekday = fields[_DAY], fields[_WEEKDAY]
    settled = list(fields)
    if either_day(day, weekday) and bool(day.values) != bool(weekday.values):
        empty = _WEEKDAY if day.values else _DAY
        low, high = _RANGES[empty]
        settled[empty] = Field("*", "*", frozenset(range(low, high + 1)), has_star=True)
    return settled


def read_field(position: int, field: bytes) -> Field | None:
    """Read one field, without blanks; None if cron rejects it."""
    values: set[int] = set()
    terms: list[str] = []
    rest, clean, more = field, True, True
    while more:
        read = _read_range(position, rest)
        if read is None:
            return None
        found, text, exact, rest = read
        values.update(found)
        terms += [text] if found else []
        clean = clean and exact and bool(found)
        more = rest.startswith(b",")
        rest = rest[1:] if more else rest
    if rest.startswith(_EOF):
        return None
    written = field.decode(errors="replace")
    text = written if clean and not rest else ",".join(terms)
    return Field(written, text, frozenset(values), field.startswith(b"*"))


def _read_range(position: int, text: bytes) -> tuple[range, str, bool, bytes] | None:
    """Return the values, their text, whether they are written exactly so, and the text after them."""
    low, high = _RANGES[position]
    exact = True
    if text.startswith(b"*"):
        first, last, rest, shown = low, high, text[1:], "*"
    else:
        one = _read_number(position, text)
        if one is None:
            return None
        first, exact, rest = one
        last, shown = first, str(first)
        if not rest.startswith(b"-"):
            outside = rest.startswith(b"/") or not low <= first <= high
            return None if outside else (range(first, first + 1), shown, exact, rest)
        two = _read_number(position, rest[1:])
        if two is None:
            return None
        last, also_exact, rest = two
        exact, shown = exact and also_exact, f"{first}-{last}"
    step = 1
    if rest.startswith(b"/"):
        stride = _read_number(0, rest[1:])
        if stride is None or stride[0] <= 0:
            return None
        step, also_exact, rest = stride
        exact, shown = exact and also_exact, f"{shown}/{step}"
    if not (low <= first <= high and low <= last <= high):
        return None
    return range(first, last + 1, step), shown, exact, rest


def _read_number(position: int, text: bytes) -> tuple[int, bool, bytes] | None:
    """Return a number or the number of a name, whether it did not overflow, and the text after it."""
    length = next((at for at, byte in enumerate(text) if byte not in _ALNUM), len(text))
    word, rest = text[:length], text[length:]
    if not 0 < length <= _LONGEST_NUMBER:
        return None
    if word.lower() in _WORDS[position]:
        return _WORDS[position].index(word.lower()) + _RANGES[position][0], True, rest
    if not word.isdigit():
        return None
    number = min(
        int(word), (1 << 63) - 1
    )  # strtol(3) stops there; atoi(3) keeps the lowest 32 bits
    kept = number & 0xFFFFFFFF
    kept -= (kept >> 31) << 32
    return kept, kept == int(word), rest
