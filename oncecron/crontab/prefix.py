r"""The guard of a line: what `crontab wrap` writes before a command, and how it is taken off again.

    /usr/bin/oncecron run --key KEY --schedule 'FIELDS' --tz ZONE [OPTION...] -- COMMAND
    /usr/bin/oncecron run --key KEY --schedule 'FIELDS' --tz ZONE [OPTION...] --shell 'COMMAND'

(`--no-tick` may stand for schedule and zone.) The first form, for commands that need no shell, keeps the command as it
is. In the second every `'` of the command is `'\''`. Either way cron finds the first bare `%` where it was, and what
follows stays outside the quotes; backslashes are nowhere added or taken. So the original is read back byte for byte.
A guard that is not spelt exactly so was written by hand, and is left alone.
"""

from __future__ import annotations

from typing import NamedTuple

from oncecron.config.options import RUN_OPTIONS
from oncecron.crontab.reading import shell_command, split_command
from oncecron.crontab.words import quoted, simple_words, unquoted

_COMMAND = b"-- "
_SHELL = b"--shell '"
_NOT_IN_WORDS = frozenset(b"'\\%")  # which cron or a shell would have to be told twice
_FLAGS = frozenset(option.name for option in RUN_OPTIONS if not option.takes_value)


class Guard(NamedTuple):
    """The guard that wrap has written, and the command behind it."""

    program: bytes
    """The path of oncecron."""
    options: dict[str, str]
    """By their names, in their order; flags are `true`."""
    command: bytes
    """The original, as it stood in the crontab."""


def guarded(program: bytes, options: dict[str, str], command: bytes) -> bytes:
    """Return a command with its guard. Raises `ValueError` for a path or a value that cannot stand in a crontab."""
    if simple_words(shell_command(command)):
        return _prefix(program, options) + _COMMAND + command
    before, behind = split_command(command)
    shown = _prefix(program, options) + _SHELL + before.replace(b"'", b"'\\''") + b"'"
    return shown if behind is None else shown + b"%" + behind


def without_command(program: bytes, options: dict[str, str]) -> bytes:
    """Return a guard whose command is in the configuration file."""
    return _prefix(program, options).rstrip(b" ")


def _prefix(program: bytes, options: dict[str, str]) -> bytes:
    words = [program, b"run"]
    for name, value in options.items():
        words += [b"--" + name.encode()] + ([] if name in _FLAGS else [value.encode()])
    for word in words:
        if _NOT_IN_WORDS.intersection(word):
            raise ValueError(
                f"{word.decode(errors='replace')!r} holds a quote, a backslash or a percent sign, "
                "which a crontab cannot hold here: put it into the configuration file"
            )
    return b"".join(quoted(word) + b" " for word in words)


def read_guard(command: bytes) -> Guard | None:
    """Return the guard of a command as it stands in a crontab; None if wrap has not written it."""
    before, _ = split_command(command)
    read = _read_prefix(before)
    if read is None:
        return None
    program, options, at = read
    rest = command[at:]
    original = rest[len(_COMMAND) :] if rest.startswith(_COMMAND) else _read_quoted(rest)
    if original is None or not _is_wraps(list(options)):
        return None
    # Whatever is not spelt as wrap spells it, is not wrap's.
    return (
        Guard(program, options, original)
        if guarded(program, options, original) == command
        else None
    )


def _is_wraps(names: list[str]) -> bool:
    return names[:3] == ["key", "schedule", "tz"] or names[:2] == ["key", "no-tick"]


def _read_prefix(text: bytes) -> tuple[bytes, dict[str, str], int] | None:
    """Return program, options, and where what is guarded begins."""
    program, at = _read_word(text, 0)
    if program.rpartition(b"/")[2] != b"oncecron" or not text.startswith(b"run --", at):
        return None
    at += len(b"run ")
    options: dict[str, str] = {}
    while not text.startswith((_COMMAND, _SHELL), at):
        word, at = _read_word(text, at)
        name = word.decode(errors="replace").removeprefix("--")
        value = b"true"
        if at and name not in _FLAGS:
            value, at = _read_word(text, at)
        if not at:
            return None
        options[name] = value.decode(errors="replace")
    return program, options, at


def _read_word(text: bytes, at: int) -> tuple[bytes, int]:
    """Return a word and where the next one begins; 0 if there is none."""
    word, end = unquoted(text, at) or (b"", 0)
    if not end or text[end : end + 1] != b" " or _NOT_IN_WORDS.intersection(word):
        return b"", 0
    return word, end + 1


def _read_quoted(rest: bytes) -> bytes | None:
    read = unquoted(rest, len(_SHELL) - 1)
    if not rest.startswith(_SHELL) or read is None:
        return None
    before, end = read
    return before + rest[end:] if rest[end:][:1] in (b"", b"%") else None
