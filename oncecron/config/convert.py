"""Convert the text of an option to its value, or say what is expected instead."""

from __future__ import annotations

from oncecron.config.options import RUN_OPTIONS
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.units import parse_duration, parse_range, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from oncecron.config.options import Option


_DIGITS = 20
"""Of a number that count: one with more is too large for every option, and Python converts at most 4,300."""


def convert(option: Option, text: str) -> Any:
    """Return the value of an option's text. Raises `ValueError` that says what is expected."""
    if option.kind == "flag":
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text == "true"
    if option.kind == "choice" and text not in option.choices:
        raise ValueError(f"{text!r} is not one of {', '.join(option.choices)}")
    if option.kind in ("integer", "count"):
        return _bounded(option, text, _integer(text))
    if option.kind == "duration":
        return _bounded(option, text, parse_duration(text))
    if parse := {"size": parse_size, "range": parse_range}.get(option.kind):
        return parse(text)
    if option.kind == "codes":
        return frozenset(_bounded(option, code, _integer(code)) for code in text.split(","))
    if option.name == "only-if" and not text.strip():
        raise ValueError("the test is empty (an unset variable?)")
    return text


def values_of(texts: Mapping[str, str], options: Iterable[Option] = RUN_OPTIONS) -> dict[str, Any]:
    """Return every option, converted: from `texts`, else its default, else None. Without `options` those of `run`.

    Raises `ValueError` as `convert` does, with the option in front.
    """
    values = {}
    for option in options:
        text = texts.get(option.name, option.default)
        try:
            values[option.name] = None if text is None else convert(option, text)
        except ValueError as error:
            raise ValueError(f"--{option.name}: {error}") from error
    return values


def _integer(text: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdigit():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text[:_DIGITS])


def _bounded(option: Option, text: str, value: float) -> float:
    if option.minimum is not None and value < option.minimum:
        raise ValueError(f"{text!r} is too small; the minimum is {option.minimum:g}{_unit(option)}")
    if option.maximum is not None and value > option.maximum:
        raise ValueError(f"{text!r} is too large; the maximum is {option.maximum:g}{_unit(option)}")
    return value


def _unit(option: Option) -> str:
    return " s" if option.kind == "duration" else ""
