"""The key that is derived from a command where no key is given: `bill.sh-3fa92c1b`.

Every host must derive the same key: `crontab wrap` from the line, `oncecron-shell` from the command that cron passes to
it, `run --key auto` from its arguments. So the key depends only on the command as the shell gets it (without the first
`%` and the text after it) and, for some commands, on the user. This rule never changes, because hosts are upgraded in
any order, and another key is another job.

    user     with a dot behind it, in front of a command that means another thing for each user: it has `~`, `$HOME`,
             `$USER` or `$LOGNAME` in it, or starts a program below the home directory, such as `bin/sync` without
             `cd /srv &&` before it. `ONCECRON_KEY_PREFIX` takes its place, also for all other commands
    name     the file name of the first program, without launchers (`nice`, `sudo -u USER`, `flock FILE`, `docker exec
             CONTAINER`, `bash -c`, `php`...) and builtins (`cd DIRECTORY`, `[ ... ]`, `sleep 9`...). After a console
             come the words that say what it does: `artisan-schedule-run`. `launchers` has the list. Other letters
             than A-Z a-z 0-9 . _ become `-`; at most 40 letters; `job` if nothing is left. It is never a part of the
             value of a variable: `PGPASSWORD='a b' pg_dump` gives `pg_dump`
    digest   CRC-32 of the command in its canonical form (`words.canonical`), eight hexadecimal digits
"""

from __future__ import annotations

import binascii
import os

from oncecron.core.launchers import (
    LINE,
    NO_PROGRAMS,
    entry_of,
    follow_console,
    without_arguments,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.shell_words import (
    OPERATOR,
    REDIRECTION,
    WORD,
    UnclosedError,
    canonical,
    fragments,
    quoted,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncecron.core.launchers import Entry

PREFIX_VARIABLE = "ONCECRON_KEY_PREFIX"
"""The variable whose value is put in front of derived keys, in the place of the user."""
_LONGEST_NAME = 40
_DEEPEST = 5  # strings with commands in one another
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_NAME_LETTERS = frozenset(_LETTERS + _DIGITS + b"._")
_OF_THE_USER = (b"HOME", b"USER", b"LOGNAME")
# The words from the one to the other are a condition, or the words of a loop.
_SKIPPED_UNTIL = {
    b"[[": b"]]",
    b"for": b"do",
    b"select": b"do",
    b"while": b"do",
    b"until": b"do",
    b"case": b")",
}
_OPENING = frozenset(b" \t\n;&|()<>'\"=`")


def derived_key(
    command: bytes, prefix: str | None = None, user: Callable[[], str] = lambda: ""
) -> str:
    """Return the key of a command as the shell gets it.

    `prefix` is the value of `PREFIX_VARIABLE`, None where it is not set; `user` names the user who runs the command.
    """
    found = _Program()
    found.read(command)
    name = b"-".join(found.name or (found.launcher or found.builtin,))
    if prefix is None:
        of_user = found.is_relative or _names_user(command)
        named = _letters(user().encode("utf-8", "replace")) if of_user else ""
        prefix = f"{named}." if named else ""
    return f"{prefix}{_letters(name) or 'job'}-{digest(canonical(command))}"


def command_of(given: Mapping[str, str], words: Sequence[str]) -> bytes:
    """Return the command of the line for which wrap writes these options of `run` and these words."""
    string = given.get("shell")
    command = (
        os.fsencode(string) if string else b" ".join(quoted(os.fsencode(word)) for word in words)
    )
    test = given.get("only-if", "")
    if " " not in test:
        return command
    from oncecron.core.leading_test import whole_command  # noqa: PLC0415 - most lines have none

    return whole_command(os.fsencode(test), command)


def digest(text: bytes) -> str:
    """Return the CRC-32 of a text as eight hexadecimal digits."""
    return f"{binascii.crc32(text):08x}"


def _letters(text: bytes) -> str:
    """Return a text with only letters that a name may have."""
    signs = bytes(byte if byte in _NAME_LETTERS else ord(" ") for byte in text)
    return b"-".join(signs.split()).strip(b"-._")[:_LONGEST_NAME].rstrip(b"-._").decode("ascii")


def _names_user(command: bytes) -> bool:
    """Return whether a command has `~` or a variable in it that is another one for each user."""
    before, *parts = command.split(b"$")
    names = (part.removeprefix(b"{") for part in parts)
    if any(_name_at_start(name) in _OF_THE_USER for name in names):
        return True
    before, *parts = command.split(b"~")
    for after in parts:
        if (not before or before[-1] in _OPENING) and (
            not after or after[0] in b"/" + bytes(_OPENING)
        ):
            return True
        before = after or b"~"
    return False


def _name_at_start(text: bytes) -> bytes:
    end = next(
        (at for at, byte in enumerate(text) if byte not in _LETTERS + _DIGITS + b"_"), len(text)
    )
    return text[:end]


class _Program:
    """What a command runs."""

    def __init__(self) -> None:
        self.name: tuple[bytes, ...] = ()
        """Of the first program, with the words of a console."""
        self.launcher = b""
        """The first launcher without a program, such as `python -c`."""
        self.builtin = b""
        self.is_relative = False
        """Whether a program, or the first directory, is found by way of the home directory."""
        self._has_moved = False

    def read(self, command: bytes, depth: int = 0) -> None:
        """Look through a command; `depth`: how many strings it is in."""
        for words in _simple_commands(command) if depth < _DEEPEST else ():
            self._read_words(words, depth)

    def _read_words(self, words: list[bytes], depth: int) -> None:
        entry, launcher = LINE, b""
        while True:
            words, is_string = without_arguments(entry, words)
            if not words:
                self.launcher = self.launcher or launcher
                return
            word, *words = words
            if is_string or (launcher and b" " in word and not word.startswith((b"$", b"`"))):
                self.read(word, depth + 1)
                return
            name = word.rstrip(b"/").rpartition(b"/")[2]
            if name in NO_PROGRAMS:
                self._note_builtin(name, words)
                return
            self._note_place(word, entry)
            inner = entry_of(name)
            path: tuple[bytes, ...] = (name,)
            if inner and inner.is_console:
                path, inner, words = follow_console(name, inner, words)
            if inner is None:
                self.name = self.name or path
                return
            entry, launcher = inner, name
            self._has_moved = self._has_moved or entry.is_elsewhere

    def _note_builtin(self, name: bytes, words: list[bytes]) -> None:
        self.builtin = self.builtin or name
        if name in (b"cd", b"chdir", b"pushd") and not self._has_moved:
            [directory] = [word for word in words if not word.startswith(b"-")][:1] or [b""]
            self._has_moved = directory.startswith((b"/", b"$", b"`"))
            self.is_relative = self.is_relative or not self._has_moved

    def _note_place(self, word: bytes, entry: Entry) -> None:
        by_path = b"/" in word or entry.is_interpreter
        if by_path and not word.startswith((b"/", b"$", b"`", b"~")) and not self._has_moved:
            self.is_relative = True


def _simple_commands(command: bytes) -> Iterator[list[bytes]]:
    """Yield the words of each simple command, without the targets of redirections, conditions and words of loops."""
    try:
        found = tokens(command)
    except UnclosedError:
        yield fragments(command)
        return
    words: list[bytes] = []
    skip_until = b""
    target = False
    for token in found:
        if skip_until:
            skip_until = b"" if token.text == skip_until else skip_until
        elif token.kind == REDIRECTION:
            target = True
        elif token.kind == OPERATOR:
            yield words
            words = []
        elif token.kind == WORD:
            if target:
                target = False
            elif not words and token.text in _SKIPPED_UNTIL:
                skip_until = _SKIPPED_UNTIL[token.text]
            else:
                words.append(token.value)
    yield words
