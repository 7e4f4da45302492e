"""Sizes: from what people write (`4096`, `64k`, `1M`) to bytes."""

from __future__ import annotations

LARGEST = 1 << 20
"""The largest size accepted, in bytes: what is captured goes into a row of the log."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
_EXPECTED = "expected a number of bytes, or one with k or M, such as 4096, 64k or 1M; 0 is none"


def parse_size(text: str) -> int:
    """Return the bytes that `text` stands for; k is 1024, M is 1024 k, in either case of letter.

    Raises ValueError, saying what was found and what is expected.
    """
    if not text:
        raise ValueError(f"empty size (an unset variable?): {_EXPECTED}")
    digits = text.rstrip("kKmM")
    unit = _UNITS.get(text[len(digits) :].lower())
    if unit is None or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"bad size {text!r}: {_EXPECTED}")
    size = int(digits[:20]) * unit  # longer ones are too large anyway, and slow to convert
    if len(digits) > 20 or size > LARGEST:  # noqa: PLR2004
        raise ValueError(f"size {text!r} is larger than 1M: expected at most 1M")
    return size
