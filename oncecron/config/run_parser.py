"""Parse the arguments of `run` without click, whose import costs each firing 22 ms; for lint those of `each` too."""

from __future__ import annotations

from oncecron.config.options import RUN_OPTION, Option
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
    if not word.startswith("-") or word == "-":
        return False
    shorts = {option.short for option in table}
    return word.startswith("--") or shorts.issuperset(word[1:])


def _read_long(
    table: Mapping[str, Option], given: dict[str, str], arguments: list[str], at: int
) -> int | None:
    """Take one `--name` and its value; return the index of the next argument, None for an error."""
    name, equals, value = arguments[at][2:].partition("=")
    option = table.get(name)
    if option is None or (equals and not option.takes_value):
        return None
    return _take(table, given, option, value if equals else None, arguments, at)


def _read_short(
    table: Mapping[str, Option], given: dict[str, str], arguments: list[str], at: int
) -> int | None:
    """Do the same for `-v`, `-vv`, `-c STRING` and `-vcSTRING`."""
    letters = arguments[at][1:]
    after = None
    for place, letter in enumerate(letters, 1):
        option = next((each for each in table.values() if each.short == letter), None)
        if option is None:
            return None
        after = _take(table, given, option, letters[place:] or None, arguments, at)
        if after is None or option.takes_value:
            break
    return after


def _take(
    table: Mapping[str, Option],
    given: dict[str, str],
    option: Option,
    value: str | None,
    arguments: list[str],
    at: int,
) -> int | None:
    """Note an option; without its value, that is the next argument."""
    if option.kind == "count":
        given[option.name] = str(int(given.get(option.name, "0")) + 1)
    elif not option.takes_value:
        given[option.name] = "true"
    else:
        if value is None:
            at += 1
            if at == len(arguments) or is_option(arguments[at], table.values()):
                return None
            value = arguments[at]
        if option.name in given:
            return None
        given[option.name] = value
    return at + 1
