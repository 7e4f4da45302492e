"""The key that is derived from a command where no key is given: `bill.sh-3fa92c1b`.

`crontab wrap` derives it from the line, `oncecron-shell` from the command that cron passes to it, `run --key auto`
from its arguments: of the command as the shell gets it, without the first `%` and the text after it. This rule never
changes, because hosts are upgraded in any order, and another key is another job.

    NAME-DIGEST         the file name of the last path in the command, or its first word if it has no path; and the
                        CRC-32 of the command, whatever the blanks and the quotes around its words
    USER.NAME-DIGEST    where the command may mean another thing for each user: it has `~/`, `$HOME`, `$USER` or
                        `$LOGNAME`, a relative path without `cd /DIRECTORY` before it, or no path at all

A path begins with `/`, `./`, `../`, `~/` or `$`, and is no redirection and nothing in `/dev`. Other letters than
A-Z a-z 0-9 . _ become `-`; at most 40 letters; `job` if nothing is left. `ONCECRON_KEY_PREFIX` takes the place of
`USER.`, for all commands.
"""

from __future__ import annotations

import binascii
import os
from itertools import pairwise

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.shell_words import (
    BLANK,
    OPERATOR,
    REDIRECTION,
    WORD,
    Token,
    UnclosedError,
    canonical,
    fragments,
    quoted,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PREFIX_VARIABLE = "ONCECRON_KEY_PREFIX"
"""The variable whose value is put in front of derived keys, in the place of the user."""
_LONGEST_NAME = 40
_DEEPEST = 5  # strings with commands in one another
_NAME_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._")
_NOT_IN_PATH = frozenset(b"=:")  # an assignment, a path on another host, a URL
_OF_THE_USER = (b"~/", b"$HOME", b"$USER", b"$LOGNAME")


def derived_key(
    command: bytes, prefix: str | None = None, user: Callable[[], str] = lambda: ""
) -> str:
    """Return the key of a command as the shell gets it.

    `prefix` is the value of `PREFIX_VARIABLE`, None where it is not set; `user` names the user who runs the command.
    """
    words = list(_words(command))
    paths = [word for word in words if _starts_path(word) and word.strip(b"/")]
    # No value of a variable: it may be secret.
    first = next((word for word in words if b"=" not in word), b"")
    name = _file_name(paths[-1] if paths else first)
    if prefix is None:
        of_user = _file_name(user().encode("utf-8", "replace")) if _differs(command, words) else ""
        prefix = f"{of_user}." if of_user else ""
    return f"{prefix}{name or 'job'}-{digest(canonical(command))}"


def command_of(given: Mapping[str, str], words: Sequence[str]) -> bytes:
    """Return the command of the line for which wrap writes these options of `run` and these words."""
    string = given.get("shell")
    return os.fsencode(string) if string else b" ".join(quoted(os.fsencode(word)) for word in words)


def digest(text: bytes) -> str:
    """Return the CRC-32 of a text as eight hexadecimal digits."""
    return f"{binascii.crc32(text):08x}"


def _words(command: bytes, depth: int = 0) -> Iterator[bytes]:
    """Yield the words of a command without the targets of redirections; for `sh -c STRING` those of the string."""
    try:
        found = [token for token in tokens(command) if token.kind != BLANK]
    except UnclosedError:
        yield from fragments(command)[:1]
        return
    for before, token in pairwise([Token(OPERATOR, b"", b""), *found]):
        if token.kind != WORD or before.kind == REDIRECTION:
            continue
        if before.value[:1] == b"-" and before.value[-1:] == b"c" and depth < _DEEPEST:
            yield from _words(token.value, depth + 1)
        else:
            yield token.value


def _starts_path(word: bytes) -> bool:
    starts = word.startswith((b"/", b"./", b"../", b"~/", b"$")) and b"/" in word
    return starts and not word.startswith(b"/dev/")


def _file_name(path: bytes) -> str:
    name = path.rstrip(b"/").rpartition(b"/")[2]
    signs = bytes(byte if byte in _NAME_LETTERS else ord(" ") for byte in name)
    return b"-".join(signs.split()).strip(b"-._")[:_LONGEST_NAME].rstrip(b"-._").decode("ascii")


def _differs(command: bytes, words: Sequence[bytes]) -> bool:
    """Return whether a command may mean another thing for each user, because cron starts it in the home directory."""
    if any(sign in command.replace(b"{", b"") for sign in _OF_THE_USER):
        return True
    before, absolute = b"", False
    for word in words:
        if b"/" in word and word[:1] != b"-" and not _NOT_IN_PATH.intersection(word):
            if not word.startswith((b"/", b"$", b"`")):
                return True
            if before == b"cd":
                return False
            absolute = True
        before = word
    return not absolute
