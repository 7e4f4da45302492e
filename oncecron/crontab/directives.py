"""What a crontab's own comments tell `crontab wrap`: `# oncecron: key=billing-nightly timeout=1h` or `# oncecron: off`.

Such a comment stands directly above the line that it speaks of; several may stand there. Its words are options of
`run`, a flag alone or `name=value` without blanks. `off` leaves the line as it is. One that stands above no command is
an error, never passed over: it may have been meant for a line that has been commented out since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.convert import convert, run_values
from oncecron.config.options import KEY_RULE, RUN_OPTION, is_key
from oncecron.config.rules import conflicts
from oncecron.crontab.scanner import Comment, Job, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.config.options import Option
    from oncecron.crontab.scanner import Crontab

_SIGN = b"oncecron:"
_OF_THE_LINE = "it comes from the line itself"
_NOT_HERE = {
    "schedule": _OF_THE_LINE,
    "tz": "crontab wrap --tz names it",
    "shell": _OF_THE_LINE,
    "tick": "the line's schedule names the tick; no-tick does without",
    "again": "it would run every tick on every host",
}


class Remark(NamedTuple):
    """What the comments above one line say."""

    off: bool
    options: dict[str, str]
    """By their names, as text; flags are `true`. With `key`, if it is named."""


def differs(remark: Remark, options: Mapping[str, str]) -> bool:
    """Return whether comments say otherwise than the options of the guard that is there already."""
    said = remark.options
    not_said = {"schedule", "tz", "key"} - said.keys()
    there = {name: text for name, text in options.items() if name not in not_said}
    return remark.off or bool(said and said != there)


def read_remarks(crontab: Crontab) -> tuple[dict[int, Remark], list[Problem]]:
    """Return the remarks by the number of the job's line, and what is wrong with others."""
    found: dict[int, Remark] = {}
    problems: list[Problem] = []
    open_ones: list[tuple[int, bytes]] = []
    for line in crontab.lines:
        words = _words_of(line) if isinstance(line, Comment) else None
        if words is not None:
            open_ones.append((line.number, words))
            continue
        if isinstance(line, Job) and open_ones:
            number = open_ones[0][0]
            try:
                found[line.number] = _read(
                    [word for _, words in open_ones for word in words.split()]
                )
            except ValueError as error:
                problems.append(Problem(number, f"# oncecron: {error}"))
        else:
            problems += [_stray(number) for number, _ in open_ones]
        open_ones = []
    return found, problems + [_stray(number) for number, _ in open_ones]


def _stray(number: int) -> Problem:
    return Problem(
        number,
        "this `# oncecron:` comment is above no command: put it directly above the line, or remove it",
    )


def _words_of(comment: Comment) -> bytes | None:
    text = comment.text.strip()
    return text[len(_SIGN) :] if text.startswith(_SIGN) else None


def _read(words: list[bytes]) -> Remark:
    """Return what the words say. Raises `ValueError`."""
    if words == [b"off"]:
        return Remark(off=True, options={})
    options: dict[str, str] = {}
    for word in words:
        name, equals, value = word.decode("utf-8", "backslashreplace").partition("=")
        option = _known(name.replace("_", "-"))
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
    return Remark(off=False, options=options)


def _known(name: str) -> Option:
    if name == "off":
        raise ValueError("off stands alone")
    if name in _NOT_HERE:
        raise ValueError(f"{name} cannot be named here: {_NOT_HERE[name]}")
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
