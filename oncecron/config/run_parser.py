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
        at += 1
        found = options_of(argument, table)
        if not found:
            return None
        for option, typed in found:
            value = typed
            if option.takes_value and typed is None:
                if at == len(arguments) or is_option(arguments[at], table.values()):
                    return None
                value = arguments[at]
                at += 1
            if not _note(given, option, value):
                return None
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


def options_of(word: str, table: Mapping[str, Option]) -> list[tuple[Option, str | None]]:
    """Return the options that a word gives, with their values: `--name=VALUE`, `-v`, `-vv`, `-vcSTRING`.

    Without its value, which is the next word, that of the last one is None. Empty: not all of them are in the table.
    """
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        option = table.get(name)
        if option is None or (equals and not option.takes_value):
            return []
        return [(option, value if equals else None)]
    found: list[tuple[Option, str | None]] = []
    for place, letter in enumerate(word[1:], 2):
        option = next((each for each in table.values() if each.short == letter), None)
        if option is None:
            return []
        if option.takes_value:
            return [*found, (option, word[place:] or None)]
        found.append((option, None))
    return found


def _note(given: dict[str, str], option: Option, value: str | None) -> bool:
    """Note an option; return False for a second value of one."""
    if option.kind == "count":
        given[option.name] = str(int(given.get(option.name, "0")) + 1)
        return True
    is_new = value is None or option.name not in given
    given[option.name] = "true" if value is None else value
    return is_new
