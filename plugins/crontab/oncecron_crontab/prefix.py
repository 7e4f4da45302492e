r"""The prefix of a line: `crontab wrap` writes it before a command, and `crontab unwrap` removes it again.

    /usr/bin/oncecron run --key KEY --schedule 'FIELDS' --tz ZONE [OPTION...] -- COMMAND
    /usr/bin/oncecron run --key KEY --schedule 'FIELDS' --tz ZONE [OPTION...] --shell 'COMMAND'

`--no-tick` may replace schedule and zone. A test at the beginning of the command is copied into the last option,
`--only-if 'TEST'` (`leading_test`). That has a blank, so it is never the option of a comment, which has none.

The first form is for commands that need no shell: the command is unchanged. In the second form every `'` of the command
becomes `'\''`. In both forms the `%` that ends the command for this cron (`percent_sign`) is where it was, the text
after it stays outside the quotes, and no backslash is added or removed. So the original is restored byte for byte,
whatever the rule: a text that wrap writes by two of the rules comes from one command. A prefix that is not written
exactly in this way was written by hand, and is not touched.
"""

from __future__ import annotations

from typing import NamedTuple

from oncecron.config.options import RUN_OPTIONS
from oncecron.config.run_parser import is_option
from oncecron.core.masking import masked_words
from oncecron.core.shell_words import Token, quoted, simple_words, tokens
from oncecron_crontab.leading_test import leading_test
from oncecron_crontab.percent_sign import DEBIAN, RULES, PercentRule, shell_command, split_command

_COMMAND = b"--"
_STRING = b"--shell"
_ONLY_IF = "only-if"
_PIPEFAIL = "pipefail"
# Both cron and the shell read these, so they would need escaping twice.
_NOT_IN_WORDS = frozenset(b"'\\%")
_FLAGS = frozenset(option.name for option in RUN_OPTIONS if not option.takes_value)


class Prefix(NamedTuple):
    """A prefix that wrap has written, and the command after it."""

    program: bytes
    """The path of oncecron."""
    options: dict[str, str]
    """Texts by name, in order; flags are `true`."""
    command: bytes
    """The original command, as it was in the crontab."""


def with_prefix(
    program: bytes, options: dict[str, str], command: bytes, rule: PercentRule = DEBIAN
) -> bytes:
    """Return a command with a prefix. Raises `ValueError` for a path or a value that a crontab cannot contain."""
    before, _ = split_command(command, rule)
    test = None if _ONLY_IF in options else leading_test(before)
    if test:
        options = {**options, _ONLY_IF: test.decode()}
    begin = _render(program, options)
    if rule.ends and rule.mark in begin:
        raise ValueError(
            f"{chr(rule.mark)!r} ends the command for this cron; set the option in the configuration file"
        )
    if simple_words(shell_command(command, rule)) and _PIPEFAIL not in options:
        return begin + _COMMAND + b" " + command
    _refuse_option("the command", before.decode(errors="replace"))
    string = b"'" + before.replace(b"'", b"'\\''") + b"'"
    return begin + _STRING + b" " + string + command[len(before) :]


def prefix_alone(program: bytes, options: dict[str, str]) -> bytes:
    """Return a prefix for a command that is in the configuration file."""
    return _render(program, options).rstrip(b" ")


def _render(program: bytes, options: dict[str, str]) -> bytes:
    words = [program, b"run"]
    for name, value in options.items():
        _refuse_option(name, value)
        words += [b"--" + name.encode()] + ([] if name in _FLAGS else [value.encode()])
    for word in words:
        if _NOT_IN_WORDS.intersection(word):
            [shown] = masked_words([word.decode(errors="replace")])
            raise ValueError(
                f"{shown!r} has a quote, a backslash or a percent sign, which cannot be "
                "written in a crontab; set it in the configuration file"
            )
    return b"".join(quoted(word) + b" " for word in words)


def _refuse_option(name: str, value: str) -> None:
    if is_option(value, RUN_OPTIONS):
        raise ValueError(
            f"{name} is {value!r}, which `oncecron run` takes for an option; "
            "set it in the configuration file"
        )


def read_prefix(command: bytes) -> Prefix | None:
    """Return the prefix of a command in a crontab; None if wrap has not written it, for any cron."""
    return next(filter(None, (_read(command, rule) for rule in RULES)), None)


def _read(command: bytes, rule: PercentRule) -> Prefix | None:
    before, _ = split_command(command, rule)
    try:
        prefix = _parse(tokens(before), command[len(before) :])
        # A prefix that wrap would write in another way is not from wrap.
        same = prefix and command == with_prefix(
            prefix.program, prefix.options, prefix.command, rule
        )
    except ValueError:  # an open quote, or a value that wrap rejects
        return None
    return prefix if same else None


def _parse(found: list[Token], behind: bytes) -> Prefix | None:
    words = [token.value for token in found[::2]]  # wrap writes one blank between
    program, run = (*words, b"", b"")[:2]
    if program.rpartition(b"/")[2] != b"oncecron" or run != b"run":
        return None
    options: dict[str, str] = {}
    at = 2
    while at < len(words) and words[at] not in (_COMMAND, _STRING):
        name = words[at].decode(errors="replace").removeprefix("--")
        value = [b"true"] if name in _FLAGS else words[at + 1 : at + 2]
        options[name] = b"".join(value).decode(errors="replace")
        at += 1 if name in _FLAGS else 2
    if words[at : at + 1] == [_COMMAND]:
        original = b"".join(token.text for token in found[2 * at + 1 :])[1:]
    else:
        original = b"".join(words[at + 1 : at + 2])
    if " " in options.get(_ONLY_IF, ""):
        del options[_ONLY_IF]
    names = list(options)
    wraps = names[:3] == ["key", "schedule", "tz"] or names[:2] == ["key", "no-tick"]
    return Prefix(program, options, original + behind) if wraps else None
