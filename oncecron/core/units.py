"""Convert durations (`15m`, `1h30m`, `500ms`) to seconds and sizes (`64k`, `1M`) to bytes, and back.

Every firing imports this module, so it imports nothing that a bare interpreter has not loaded.
"""

from __future__ import annotations

MINUTE = 60
HOUR = 3600
DAY = 86400
"""A day in seconds."""

LONGEST_DURATION = 3653.0 * DAY
"""The longest duration accepted, in seconds: ten years, with three leap days."""

# From long to short: the order of units in a combined duration.
_UNITS = {"d": float(DAY), "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_INFINITE = float("inf")
# Below these, rounding does not yet give the first value of the next form, 0.1s and 10s.
_MILLISECONDS_BELOW = 0.0995
_TENTHS_BELOW = 9.95
# Units shown together, the count of the smaller one at which the next pair begins, and its digits.
_PAIRS = (("m", "s", 3600, 2), ("h", "m", 1440, 2), ("d", "h", _INFINITE, 1))
_DURATION_EXPECTED = "expected a number and a unit (ms, s, m, h, d), such as 90s, 15m or 1h30m"
LARGEST_SIZE = 1 << 20
"""The largest size accepted, in bytes (`--capture`): captured output goes into a row of the log."""

_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
_SIZE_EXPECTED = (
    "expected a number of bytes, or one with k or M, such as 4096, 64k or 1M; 0 is none"
)


def parse_duration(text: str) -> float:
    """Return the seconds that `text` stands for.

    A bare number is in seconds. Otherwise numbers have units, from long to short, each at most once:
    `0.5s`, `500ms`, `15m`, `1h30m`, `1d`. Zero is a duration.

    Raises ValueError with what was found and what is expected.
    """
    if not text:
        raise ValueError(f"empty duration (an unset variable?): {_DURATION_EXPECTED}")
    if text.startswith("-"):
        raise ValueError(f"negative duration {text!r}: {_DURATION_EXPECTED}")
    total = 0.0
    longest_next = list(_UNITS)
    rest = text
    while rest:
        number, unit, rest = _first_part(text, rest)
        if unit not in longest_next:
            raise ValueError(
                f"bad duration {text!r}, units go from long to short, each once: {_DURATION_EXPECTED}"
            )
        longest_next = longest_next[longest_next.index(unit) + 1 :]
        total += number * _UNITS[unit]
    if total > LONGEST_DURATION:
        raise ValueError(f"duration {text!r} is longer than 10 years: expected at most 3653d")
    return total


def parse_range(text: str) -> tuple[float, float]:
    """Return both ends of a range such as `5s..5m` in seconds; one duration is both ends. Raises ValueError."""
    first, dots, second = text.partition("..")
    try:
        shortest = parse_duration(first)
        longest = parse_duration(second) if dots else shortest
    except ValueError as error:
        raise ValueError(f"{error}; or two of them, such as 5s..5m") from error
    if longest < shortest:
        raise ValueError(
            f"range {text!r} is reversed: expected the shorter duration first, {second}..{first}"
        )
    return shortest, longest


def _first_part(text: str, rest: str) -> tuple[float, str, str]:
    """Split `rest`, the unread end of `text`, into its first number, that number's unit, and what follows."""
    tail = rest.lstrip("0123456789.")
    digits = rest[: len(rest) - len(tail)]
    after = tail.lstrip("abcdefghijklmnopqrstuvwxyz")
    unit = tail[: len(tail) - len(after)]
    whole, dot, fraction = digits.partition(".")
    if not whole or "." in fraction or (dot and not fraction):
        raise ValueError(f"bad duration {text!r}, no number at {rest!r}: {_DURATION_EXPECTED}")
    if not unit and rest == text and not after:
        unit = "s"
    if unit not in _UNITS:
        found = f"unknown unit {unit!r}" if unit else f"no unit after {digits!r}"
        raise ValueError(f"bad duration {text!r}, {found}: {_DURATION_EXPECTED}")
    return float(digits), unit, after


def format_duration(seconds: float) -> str:
    """Return `seconds` for people, two units at most: `20ms`, `0.1s`, `42s`, `3m12s`, `2h05m`, `3d4h`."""
    size = abs(seconds)
    if not size < _INFINITE:  # infinite, or not a number
        return str(seconds)
    sign = "-" if seconds < 0 else ""
    if size < _TENTHS_BELOW:
        return sign + _format_small(size)
    # Rounded to the smaller unit shown, so that 59.7 becomes 1m00s and never 60s.
    large, small, _, width = next(
        pair for pair in _PAIRS if round(size / _UNITS[pair[1]]) < pair[2]
    )
    count = round(size / _UNITS[small])
    ratio = round(_UNITS[large] / _UNITS[small])
    if count < ratio:
        return f"{sign}{count}{small}"
    return f"{sign}{count // ratio}{large}{count % ratio:0{width}d}{small}"


def plain_duration(seconds: float) -> str:
    """Return whole minutes for people: `15m`, `2h`, `2h05m`, `3d4h`."""
    return format_duration(seconds).removesuffix("00s").removesuffix("00m")


def typed_duration(seconds: float) -> str:
    """Return `seconds`, to the millisecond, as `parse_duration` reads it: `7d`, `36h`, `90s`, `0.5s`."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds:.3f}".rstrip("0").removesuffix(".") + "s"


def _format_small(size: float) -> str:
    if 0 < size < _MILLISECONDS_BELOW:
        return f"{max(1, round(size * 1000))}ms"
    return f"{size:.1f}".removesuffix(".0") + "s"


def parse_size(text: str) -> int:
    """Return the bytes that `text` stands for; k is 1024, M is 1024 k, in upper or lower case.

    Raises ValueError with what was found and what is expected.
    """
    if not text:
        raise ValueError(f"empty size (an unset variable?): {_SIZE_EXPECTED}")
    digits = text.rstrip("kKmM")
    unit = _SIZE_UNITS.get(text[len(digits) :].lower())
    if unit is None or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"bad size {text!r}: {_SIZE_EXPECTED}")
    size = int(digits[:20]) * unit  # longer ones are too large anyway, and slow to convert
    if len(digits) > 20 or size > LARGEST_SIZE:  # noqa: PLR2004
        raise ValueError(f"size {text!r} is larger than 1M: expected at most 1M")
    return size
