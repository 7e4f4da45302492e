"""The time fields of a crontab line as a cron reads them: what it accepts, and which values match.

Debian's cron accepts more than its manual says, so it is followed step by step (entry.c of cron 3.0pl1-162: `get_list`,
`get_range` and `get_number`). It ignores text after a number or a star up to the next blank (`5#2` is 5). A falling
range is empty (`22-2` never matches). A step may be larger than the range (`*/100`). Digits overflow as in atoi(3).

The other crons read a list of terms: a star, a number, a name or a range, with a step. `Rules` are what they differ in;
the table of them is in `crons`.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAMES = ("minute", "hour", "day-of-month", "month", "day-of-week", "second", "year")
FIVE = (0, 1, 2, 3, 4)
"""The positions of the fields that every cron has."""

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec")  # fmt: skip
_DAYS = (b"sun", b"mon", b"tue", b"wed", b"thu", b"fri", b"sat")
_WORDS: tuple[tuple[bytes, ...], ...] = ((), (), (), _MONTHS, _DAYS)
_DAY, _WEEKDAY, _YEAR = 2, 4, 6
_EOF = b"\xff"  # entry.c keeps it in a char, which is then EOF


THREE = (b"|".join(_MONTHS), b"|".join(_DAYS))
"""The names of months and weekdays that every cron with names takes."""
_LONG_MONTHS = (
    rb"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:tember)?"
    rb"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_LONG_DAYS = (
    rb"sun(?:day)?|mon(?:day)?|tue(?:sday)?|wed(?:nesday)?|thu(?:rsday)?|fri(?:day)?|sat(?:urday)?"
)
LONG = (_LONG_MONTHS, _LONG_DAYS)
"""The same with the names written out."""
NOTHING = rb"(?!)"
"""A pattern that matches nowhere."""


class Rules(NamedTuple):
    """What a cron takes in a field. Patterns match in any case, from their beginning."""

    firsts: tuple[int, ...] = (0, 0, 1, 1, 0, 0, 1970)
    """The first value of each field: a step counts from it."""
    lasts: tuple[int, ...] = (59, 23, 31, 12, 7, 59, 2099)
    names: tuple[bytes, bytes] = THREE
    """Patterns of the names of months and weekdays."""
    stars: bytes = rb"\*"
    step: bytes = rb"\d+"
    commas: tuple[bytes, bytes, bytes] = (rb"", rb",", rb"")
    """What may be before the first term, between two, and behind the last one."""
    number_with_step: str = "refused"
    """What `5/10` is: `refused`, `number` (the step has no effect), or `rest` (up to the last value)."""
    falling: str = "refused"
    """What `22-2` is: `refused`, `empty`, or `round` (on from the first value)."""
    cuts: bool = False
    """Whether values beyond the last one are left out; else they are refused."""
    to_sunday: bytes = NOTHING
    """A pattern for a Sunday that ends a falling range as the last day of the week."""
    lone_sunday: bytes = NOTHING
    """A pattern for a Sunday that alone is the whole week."""
    seven_is_zero: bool = False
    """Whether 7 is 0 also where a range begins or ends with it."""
    small_steps: bool = False
    """Whether a step must not be larger than the last value."""
    every_day: str = "star"
    """When a day field leaves the days to the other one: it begins with a `star`, has a `bare` star, or `all` days."""
    foreign: tuple[bytes, ...] = (NOTHING,) * 7
    """Patterns of terms that the cron takes, and that --schedule cannot mean."""


class Field(NamedTuple):
    """One field."""

    written: str
    """As it is written in the line."""
    text: str
    """The same field for `tick`; empty if it matches no value, as a falling range."""
    values: frozenset[int]
    """The values that match, in the field's own range; day-of-week 0 and 7 are both Sunday."""
    has_star: bool
    """Whether cron handles clock changes, or the two day fields, in another way because of a `*`."""
    foreign: str = ""
    """The term that --schedule cannot mean; empty if there is none."""


def either_day(day: Field, weekday: Field) -> bool:
    """Return whether a day matches by either of the two fields, not only by both."""
    return not (day.has_star or weekday.has_star)


def without_empty_day(fields: Sequence[Field], *, either: bool) -> list[Field]:
    """Return five fields with `*` for one that has no day, if cron then goes by the other one alone."""
    day, weekday = fields[_DAY], fields[_WEEKDAY]
    settled = list(fields)
    if either and bool(day.values) != bool(weekday.values):
        empty = _WEEKDAY if day.values else _DAY
        low, high = _RANGES[empty]
        settled[empty] = Field("*", "*", frozenset(range(low, high + 1)), has_star=True)
    return settled


def for_schedule(fields: Sequence[Field], *, either: bool) -> str:
    """Return the five fields for --schedule, which has the same meaning; empty: they never match.

    Raises ValueError if no --schedule has this meaning.
    """
    foreign = next((field for field in fields if field.foreign), None)
    if foreign:
        raise ValueError(f"--schedule has no {foreign.foreign!r}")
    settled = without_empty_day(fields, either=either)
    either = either and either_day(settled[_DAY], settled[_WEEKDAY])
    texts = [field.text for field in settled]
    stars = [at for at in (_DAY, _WEEKDAY) if texts[at].startswith("*")]
    every = [at for at in (_DAY, _WEEKDAY) if _is_every(at, settled[at].values)]
    if either:
        for at in stars:
            texts[at] = _listed(settled[at].values)
    elif every and not stars:
        texts[every[0]] = "*"
    elif not stars and all(texts):
        raise ValueError("--schedule cannot ask for days that match both day fields")
    return " ".join(texts) if all(texts) else ""


def _is_every(position: int, values: frozenset[int]) -> bool:
    low, high = _RANGES[position]
    return _as_days(position, values) == _as_days(position, range(low, high + 1))


def _listed(values: frozenset[int]) -> str:
    ordered = sorted(values)
    firsts = [each for before, each in pairwise([-2, *ordered]) if each != before + 1]
    lasts = [each for each, after in pairwise([*ordered, 10**6]) if after != each + 1]
    both = zip(firsts, lasts, strict=True)
    return ",".join(f"{one}-{other}" if one < other else f"{one}" for one, other in both)


def read_field(position: int, field: bytes, rules: Rules | None = None) -> Field | None:
    """Read one field, without blanks; None if cron rejects it. Without rules: Debian's cron."""
    return _read_debian(position, field) if rules is None else _read_terms(position, field, rules)


def _read_terms(position: int, field: bytes, rules: Rules) -> Field | None:
    before, between, behind = rules.commas
    term, foreign = _patterns(position, rules)
    values: set[int] = set()
    own, bare = "", False
    at = _end(before, field, 0)
    while True:
        other = foreign.match(field, at)
        found = other or term.match(field, at)
        if found is None:
            return None
        if other:
            own = own or other[0].decode(errors="replace")
        else:
            more = _values_of(position, found, rules)
            if more is None:
                return None
            values.update(more)
            bare = bare or bool(found["star"] and not found["step"])
        at = found.end()
        if at + _end(behind, field[at:], 0) == len(field):
            break
        at = _end(between, field, at) if re.match(between, field[at:]) else -1
        if at < 0:
            return None
    has_star = field.startswith(b"*")
    if position in (_DAY, _WEEKDAY, _YEAR) and rules.every_day != "star":
        size = rules.lasts[position] - rules.firsts[position] + 1
        has_star = bare if rules.every_day == "bare" else len(values) == size
    found_values = frozenset(values - {0} if position == _DAY else values)
    text = _text(position, field, found_values) if position in FIVE else ""
    return Field(field.decode(errors="replace"), text, found_values, has_star, own)


@cache
def _patterns(position: int, rules: Rules) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    names = {3: rules.names[0], 4: rules.names[1]}.get(position, NOTHING)
    value = rb"(?:\d+|" + names + rb")"
    term = rb"(?:(?P<star>%b)|(?P<first>%b)(?:-(?P<last>%b))?)(?:/(?P<step>%b))?" % (
        rules.stars,
        value,
        value,
        rules.step,
    )
    return re.compile(term, re.IGNORECASE), re.compile(
        rb"(?:%b)(?=,|\Z)" % rules.foreign[position], re.IGNORECASE
    )


def _end(pattern: bytes, text: bytes, at: int) -> int:
    found = re.compile(pattern).match(text, at)
    return found.end() if found else at


def _values_of(position: int, term: re.Match[bytes], rules: Rules) -> range | list[int] | None:
    low, high = rules.firsts[position], rules.lasts[position]
    step = int(term["step"] or 0) if term["step"] is not None else 1
    if rules.small_steps and not 0 < step <= high:
        return None
    if term["star"]:
        return range(low, high + 1, step or high + 1)
    first = _number_of(position, term["first"], rules)
    last = first if term["last"] is None else _number_of(position, term["last"], rules)
    if term["last"] is None and term["step"] is not None:
        if rules.number_with_step == "refused":
            return None
        last = high if rules.number_with_step == "rest" else first
    if rules.falling == "round":
        return _around(first, last, step, low, high)
    ends = rules.to_sunday if first > last else rules.lone_sunday
    if position == _WEEKDAY and re.fullmatch(ends, term["last"] or term["first"], re.IGNORECASE):
        last = high
    if rules.falling == "empty":
        if first > last:
            return range(0)
        last = range(first, last + 1, step or 1)[-1]  # a range may end where no step goes
    last = min(last, high) if rules.cuts else last
    return range(first, last + 1, step) if low <= first <= last <= high and step else None


def _around(first: int, last: int, step: int, low: int, high: int) -> list[int] | None:
    """Return the values from one to another, on from the first value after the last one."""
    size = high - low + 1
    if first < low or not low <= last <= high:
        return None
    start, length = first - low, (last - first) % size
    return [low + (start + each) % size for each in range(0, length + 1, step or size)]


def _number_of(position: int, text: bytes, rules: Rules) -> int:
    if not text.isdigit():
        return _WORDS[position].index(text[:3].lower()) + _RANGES[position][0]
    number = int(text)
    return (
        0
        if rules.seven_is_zero and position == _WEEKDAY and number == rules.lasts[_WEEKDAY] + 1
        else number
    )


def _text(position: int, field: bytes, values: frozenset[int]) -> str:
    same = _read_debian(position, field)
    if same and _as_days(position, same.values) == _as_days(position, values):
        return same.text
    return "*" if _is_every(position, values) else _listed(values)


def _as_days(position: int, values: Iterable[int]) -> set[int]:
    return {value % 7 for value in values} if position == _WEEKDAY else set(values)


def _read_debian(position: int, field: bytes) -> Field | None:
    (low, high), pattern = _RANGES[position], _of_debian(position)
    values: set[int] = set()
    terms: list[str] = []
    at, more, is_written = 0, True, not re.search(rb"\d{10}", field)
    while more:
        term = pattern.match(field, at)
        if term is None:
            return None
        first, last = low, high
        if term["first"]:
            first = _atoi(position, term["first"])
            last = _atoi(position, term["last"] or term["first"])
        step = _atoi(0, term["step"] or b"1")
        if step <= 0 or not (low <= first <= high and low <= last <= high):
            return None
        found = range(first, last + 1, step)
        values.update(found)
        shown = "*" if term["star"] else f"{first}-{last}" if term["last"] else str(first)
        terms += [shown + (f"/{step}" if term["step"] else "")] if found else []
        is_written = is_written and bool(found)
        more = field[term.end() :].startswith(b",")
        at = term.end() + more
    if field[at:].startswith(_EOF):
        return None
    written = field.decode(errors="replace")
    text = written if is_written and at == len(field) else ",".join(terms)
    return Field(written, text, frozenset(values), field.startswith(b"*"))


@cache
def _of_debian(position: int) -> re.Pattern[bytes]:
    names = b"|".join((b"[0-9]{1,999}", *_WORDS[position]))
    value = rb"(?:%b)(?![0-9a-z])" % names
    one = rb"(?P<first>%b)(?:-(?P<last>%b)|(?![-/]))" % (value, value)
    step = rb"(?:/(?P<step>[0-9]{1,999})(?![0-9a-z])|(?!/))"
    return re.compile(rb"(?:(?P<star>\*)|%b)%b" % (one, step), re.IGNORECASE)


def _atoi(position: int, text: bytes) -> int:
    if not text.isdigit():
        return _WORDS[position].index(text.lower()) + _RANGES[position][0]
    number = min(
        int(text), (1 << 63) - 1
    )  # where strtol(3) stops; atoi(3) keeps the lowest 32 bits
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
