"""Parse the arguments of `run` without click, whose import costs each firing 22 ms; for lint those of `each` too."""

from __future__ import annotations

from oncecron.config.options import RUN_OPTION, Option
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DASHES = tuple("\u2010\u2011\u2012\u2013\u2014\u2015\u2212")
"""What word processors, chats and wikis make of `-` and `--`."""


class ParsedRun(NamedTuple):
    """The arguments of `run` as they were typed."""

    given: dict[str, str]
    """Values by name; flags are 'true', counts digits."""
    command: list[str]


def parse_run(arguments: list[str], table: Mapping[str, Option] = RUN_OPTION) -> ParsedRun | None:
    """Parse well-formed arguments of `run`. Return None for others: click then says what is wrong.

    `table`: the options by name; those of `run` unless others are given.
    An option that takes a value may be given once: nobody would be told which of two values counts. What looks like the
    next option is no value (`is_option`).
    """
    given: dict[str, str] = {}
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if argument == "--":
            at += 1
            break
        if not argument.startswith("-"):
            if argument.startswith(_DASHES):
                return None
            break
        read = _read_long if argument.startswith("--") else _read_short
        after = read(table, given, arguments, at)
        if after is None:
            return None
        at = after
    return ParsedRun(given, arguments[at:])


def is_option(word: str, table: Iterable[Option]) -> bool:
    """Return whether a word cannot be the value of the option before it, but must be written --OPTION=VALUE.

    In `--key $UNSET -- job` and `--key $UNSET -v -- job` the shell leaves the next word in its place, and all such
    lines would share one key.
    """
    if word.startswith(_DASHES):
        name = _without_dashes(word).partition("=")[0]
        return not name or name in {option.name for option in table}
    if not word.startswith("-") or word == "-":
        return False
    shorts = {option.short for option in table}
    return word.startswith("--") or shorts.issuperset(word[1:])


def wrong_dash(word: str) -> str | None:
    """Return what to type for a word that begins with a dash other than `-`; None for any other word."""
    rest = _without_dashes(word)
    dashes = word[: len(word) - len(rest)]
    name = rest.partition("=")[0]  # the value may be a password
    if dashes.isascii() or any(sign.isspace() for sign in name):
        return None
    from unicodedata import name as name_of  # noqa: PLC0415 - for such a word alone

    sign = next(sign for sign in dashes if not sign.isascii())
    meant = ("-" if name and len({*name}) == 1 else "--") + name
    found = f"{dashes}{name}"
    return f"{found!r} is written with U+{ord(sign):04X} ({name_of(sign).lower()}); type {meant!r}"


def _without_dashes(word: str) -> str:
    return word.lstrip("-" + "".join(_DASHES))


def _read_long(
    table: Mapping[str, Option], given: dict[str, str], arguments: list[str], at: int
) -> int | None:
    """Take one `--name` and its value; return the index of the next argument, None for an error."""
    name, equals, value = arguments[at][2:].partition("=")
    option = table.get(name)
    if option is None or (equals and not option.takes_value) or _is_repeated(given, option):
        return None
    if option.takes_value and not equals:
        at += 1
        if at == len(arguments) or is_option(arguments[at], table.values()):
            return None
        value = arguments[at]
    _take(given, option, value)
    return at + 1


def _read_short(
    table: Mapping[str, Option], given: dict[str, str], arguments: list[str], at: int
) -> int | None:
    letters = arguments[at][1:]
    if not letters:
        return None
    for place, letter in enumerate(letters, 1):
        option = next((each for each in table.values() if each.short == letter), None)
        if option is None or _is_repeated(given, option):
            return None
        if option.takes_value:
            value = letters[place:]
            if not value:
                at += 1
                if at == len(arguments) or is_option(arguments[at], table.values()):
                    return None
                value = arguments[at]
            _take(given, option, value)
            break
        _take(given, option, "")
    return at + 1


def _is_repeated(given: dict[str, str], option: Option) -> bool:
    return option.takes_value and option.name in given


def _take(given: dict[str, str], option: Option, value: str) -> None:
    if option.kind == "count":
        value = str(int(given.get(option.name, "0")) + 1)
    given[option.name] = value if option.takes_value or option.kind == "count" else "true"
