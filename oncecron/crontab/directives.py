"""Directives in a crontab's own comments: `# oncecron: key=billing-nightly timeout=1h` or `# oncecron: off`.

A directive stands directly above the line that it is for; several may stand there. Its words are options of
`run`, a flag alone or `name=value` without blanks. `off` leaves the line as it is. One that stands above no command is
an error, never passed over: it may have been meant for a line that has been commented out since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.convert import convert, run_values
from oncecron.config.options import KEY_RULE, RUN_OPTION, is_key
from oncecron.config.rules import conflicts
from oncecron.crontab.scanner import Comment, Entry, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.config.options import Option
    from oncecron.crontab.scanner import Crontab

_MARKER = b"oncecron:"
_FROM_THE_LINE = "it comes from the line itself"
_NOT_ALLOWED = {
    "schedule": _FROM_THE_LINE,
    "tz": "crontab wrap --tz names it",
    "shell": _FROM_THE_LINE,
    "tick": "the line's schedule names the tick; no-tick does without",
    "again": "it would run every tick on every host",
}


class Directives(NamedTuple):
    """What the directives above one line say together."""

    off: bool
    options: dict[str, str]
    """By their names, as text; flags are `true`. With `key`, if it is named."""

    def differ_from(self, options: Mapping[str, str]) -> bool:
        """Return whether they ask for other options than those of the prefix that is there already."""
        not_asked = {"schedule", "tz", "key"} - self.options.keys()
        there = {name: text for name, text in options.items() if name not in not_asked}
        return self.off or bool(self.options and self.options != there)


def read_directives(crontab: Crontab) -> tuple[dict[int, Directives], list[Problem]]:
    """Return the directives by the number of the line that they are for, and what is wrong with others."""
    found: dict[int, Directives] = {}
    problems: list[Problem] = []
    pending: list[tuple[int, bytes]] = []
    for line in crontab.lines:
        words = _marked_text(line) if isinstance(line, Comment) else None
        if words is not None:
            pending.append((line.number, words))
            continue
        if isinstance(line, Entry) and pending:
            number = pending[0][0]
            try:
                found[line.number] = _read([word for _, words in pending for word in words.split()])
            except ValueError as error:
                problems.append(Problem(number, f"# oncecron: {error}"))
        else:
            problems += [_stray(number) for number, _ in pending]
        pending = []
    return found, problems + [_stray(number) for number, _ in pending]


def _stray(number: int) -> Problem:
    return Problem(
        number,
        "this `# oncecron:` comment is above no command: put it directly above the line, or remove it",
    )


def _marked_text(comment: Comment) -> bytes | None:
    text = comment.text.strip()
    return text[len(_MARKER) :] if text.startswith(_MARKER) else None


def _read(words: list[bytes]) -> Directives:
    """Return what the words say. Raises `ValueError`."""
    if words == [b"off"]:
        return Directives(off=True, options={})
    options: dict[str, str] = {}
    for word in words:
        name, equals, value = word.decode("utf-8", "backslashreplace").partition("=")
        option = _find_option(name.replace("_", "-"))
        if option.name in options:
            raise ValueError(f"{option.name} is named twice")
        if option.takes_value != bool(equals):
            raise ValueError(
                f"write {option.name}=VALUE"
                if option.takes_value
                else f"{option.name} takes no value"
            )
        options[option.name] = value if equals else "true"
        _check(option, options[option.name])
    if not options:
        raise ValueError("nothing follows: write key=NAME or off")
    rule = {} if "no-tick" in options else {"schedule": "@daily"}  # the line's, whatever it is
    values = run_values({**options, **rule})
    conflict = next(conflicts(values.get, options.__contains__), None)
    if conflict:
        raise ValueError(str(conflict))
    return Directives(off=False, options=options)


def _find_option(name: str) -> Option:
    if name == "off":
        raise ValueError("off stands alone")
    if name in _NOT_ALLOWED:
        raise ValueError(f"{name} cannot be named here: {_NOT_ALLOWED[name]}")
    option = RUN_OPTION.get(name)
    if option is None or option.kind == "count":
        raise ValueError(f"{name!r} is no option of `run`, nor off")
    return option


def _check(option: Option, value: str) -> None:
    if option.name == "key" and not is_key(value):
        raise ValueError(f"key {value!r}: {KEY_RULE}")
    if not value.isprintable():
        raise ValueError(f"{option.name}: {value!r} holds what does not print")
    try:
        convert(option, value)
    except ValueError as error:
        raise ValueError(f"{option.name}: {error}") from error
