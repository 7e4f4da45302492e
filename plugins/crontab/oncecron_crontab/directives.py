"""Directives in a crontab's own comments: `# oncecron: key=billing-nightly timeout=1h` or `# oncecron: off`.

One or more directives may be directly above a line. The words of a directive are options of `oncecron run`: a flag, or
`name=value` without blanks. `off` leaves the line unchanged. A directive without a command below it is an error,
because it may belong to a line that was commented out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.options import AUTO_KEY, KEY_RULE, RUN_OPTION, convert, is_key, values_of
from oncecron.config.rules import conflicts
from oncecron.core.suggestion import unknown
from oncecron_crontab.scanner import Comment, Entry, InvalidLine, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.config.options import Option
    from oncecron_crontab.scanner import Crontab

_MARKER = b"oncecron:"
DIFFERENT = (
    "the line does not match the `# oncecron:` comment above it; to apply the comment, use `oncecron crontab unwrap`, "
    "then `oncecron crontab wrap`"
)
_REMOVE_IT = "remove it: it comes from the line itself"
_NOT_ALLOWED = {
    "schedule": _REMOVE_IT,
    "tz": "use `oncecron crontab wrap --tz ZONE`",
    "shell": _REMOVE_IT,
    "tick": "remove it: the tick comes from the schedule of the line (for none, write no-tick)",
    "again": "remove it: every host would run every tick",
}


class Directives(NamedTuple):
    """The directives above one line, combined."""

    off: bool
    options: dict[str, str]
    """Texts by name; flags are `true`. Includes `key` if it is given."""

    def differ_from(self, options: Mapping[str, str]) -> bool:
        """Return whether they require other options than `options` of the prefix that is already there."""
        not_asked = {"schedule", "tz", "key"} - self.options.keys()
        there = {name: text for name, text in options.items() if name not in not_asked}
        return self.off or bool(self.options and self.options != there)


def read_directives(crontab: Crontab) -> tuple[dict[int, Directives], list[Problem]]:
    """Return the directives by the number of the line below them, and the invalid ones as problems."""
    found: dict[int, Directives] = {}
    problems: list[Problem] = []
    pending: list[tuple[int, bytes]] = []
    for line in crontab.lines:
        words = _marked_text(line) if isinstance(line, Comment) else None
        if words is not None:
            pending.append((line.number, words))
            continue
        if isinstance(line, Entry | InvalidLine) and pending:
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
        "no command follows this `# oncecron:` comment; put it directly above its line, or remove it",
    )


def _marked_text(comment: Comment) -> bytes | None:
    text = comment.text.strip()
    return text[len(_MARKER) :] if text.startswith(_MARKER) else None


def _read(words: list[bytes]) -> Directives:
    if words == [b"off"]:
        return Directives(off=True, options={})
    options: dict[str, str] = {}
    for word in words:
        name, equals, value = word.decode("utf-8", "backslashreplace").partition("=")
        option = _find_option(name.replace("_", "-"))
        if option.name in options:
            raise ValueError(f"{option.name} is given twice; remove one of them")
        if option.takes_value != bool(equals):
            raise ValueError(
                f"{option.name} needs a value; write {option.name}=VALUE"
                if option.takes_value
                else f"{option.name} takes no value; write {option.name} alone"
            )
        options[option.name] = value if equals else "true"
        _check(option, options[option.name])
    if not options:
        raise ValueError("the comment has no options; write key=NAME or off")
    rule = {} if "no-tick" in options else {"schedule": "@daily"}  # in place of the line's
    values = values_of({**options, **rule})
    conflict = next(conflicts(values.get, options.__contains__), None)
    if conflict:
        raise ValueError(str(conflict))
    return Directives(off=False, options=options)


def _find_option(name: str) -> Option:
    if name == "off":
        raise ValueError("off cannot be combined with options; write off alone")
    if name in _NOT_ALLOWED:
        raise ValueError(f"{name} is not allowed here; {_NOT_ALLOWED[name]}")
    option = RUN_OPTION.get(name)
    if option is None or option.kind == "count":
        usable = [each for each in RUN_OPTION if each not in _NOT_ALLOWED]
        every = "use an option of `oncecron run`, or off"
        raise ValueError(unknown("option", name, usable, otherwise=every))
    return option


def _check(option: Option, value: str) -> None:
    if option.name == "key" and not is_key(value):
        raise ValueError(f"key {value!r}: {KEY_RULE}")
    if option.name == "key" and value == AUTO_KEY:
        raise ValueError(
            f"key {value}: without a key, it is derived from the command; leave it out"
        )
    if not value.isprintable():
        raise ValueError(
            f"{option.name}: {value!r} has characters that cannot be printed; remove them"
        )
    try:
        convert(option, value)
    except ValueError as error:
        raise ValueError(f"{option.name}: {error}") from error
