r"""How cron divides a command: the text for the shell, and the text that becomes its standard input.

Each cron has one of five rules (`crons` says which):

    DEBIAN    The first `%` without a backslash ends the command; a backslash protects the character after it. Before
              it, `\%` is `%` and `\\` is one backslash. (do_command.c of cron 3.0pl1-162)
    CRONIE    The same, but `\\` stays two backslashes. (do_command.c of cronie 1.7.2)
    SYSTEMD   The first `%` that is not directly behind a backslash ends the command. Every `\%` is `%`.
              (systemd-crontab-generator of systemd-cron 2.4 and newer)
    HASH      The first `#` ends the command, also within quotes, and begins a comment. (parse_config.c of busybox)
    LETTER    `%` and the backslash are letters like any other: the shell gets the whole text.

After the first `%`, `\%` is `%`, and every other `%` is a newline.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from oncecron_crontab.simple_commands import simple_commands


class PercentRule(NamedTuple):
    """What `%` and the backslash mean to a cron."""

    ends: bool
    """Whether a `%` ends the command."""
    pairs: bool
    """Whether a backslash protects the character after it; else it only protects a `%`, behind any backslash."""
    unescaped: bytes
    """Before these a backslash is removed."""
    mark: int = ord("%")
    """The character that ends the command."""


DEBIAN = PercentRule(ends=True, pairs=True, unescaped=b"%\\")
CRONIE = PercentRule(ends=True, pairs=True, unescaped=b"%")
SYSTEMD = PercentRule(ends=True, pairs=False, unescaped=b"%")
HASH = PercentRule(ends=True, pairs=False, unescaped=b"", mark=ord("#"))
LETTER = PercentRule(ends=False, pairs=False, unescaped=b"")
RULES = (DEBIAN, CRONIE, SYSTEMD, HASH, LETTER)


def split_command(command: bytes, rule: PercentRule = DEBIAN) -> tuple[bytes, bytes | None]:
    """Return the text before and the text after the `%` that ends a command; None for the second without a `%`."""
    escaped = False
    for at, byte in enumerate(command if rule.ends else b""):
        if byte == rule.mark and not escaped:
            return command[:at], command[at + 1 :]
        escaped = byte == ord("\\") and rule.mark in rule.unescaped and not (escaped and rule.pairs)
    return command, None


def shell_command(command: bytes, rule: PercentRule = DEBIAN) -> bytes:
    """Return the command that cron passes to `$SHELL -c`."""
    before, _ = split_command(command, rule)
    found = bytearray()
    escaped = False
    for byte in before:
        if escaped and byte in rule.unescaped:
            found[-1] = byte
            escaped = False
            continue
        escaped = byte == ord("\\") and not (escaped and rule.pairs)
        found.append(byte)
    return bytes(found)


def standard_input(command: bytes, rule: PercentRule = DEBIAN) -> bytes:
    """Return what cron writes to the standard input of a command: of one without a `%` nothing."""
    _, behind = split_command(command, rule)
    if not behind or rule.mark != ord("%"):
        return b""
    lines = behind.replace(b"\\%", b"\0").replace(b"%", b"\n").replace(b"\0", b"%")
    ended = lines.rstrip(b"\\")  # cron looks no further than to what is no backslash
    return lines + (b"\n" if ended and not ended.endswith(b"\n") else b"")


CUT = "a % without a backslash ends the command here: cron passes the rest to its standard input"
CUT_CURE = "write \\% for a percent sign"
_FORMAT = re.compile(r"(?:^|\s)\+\S*$")
"""The beginning of a format of date(1), the last word of a command."""


def is_cut(command: bytes, rule: PercentRule) -> bool:
    """Return whether a `%` ends a command where nobody means it: within quotes or brackets, or in a format of date(1).

    Elsewhere it may begin the standard input, as in `mail root%The disk is full`.
    """
    before, behind = split_command(command, rule)
    if behind is None or rule.mark != ord("%"):
        return False
    text = before.decode("utf-8", "surrogateescape")
    return simple_commands(text) is None or bool(_FORMAT.search(text))


def depends_on_cron(command: bytes) -> bool:
    """Return whether two crons could pass different commands to the shell."""
    return len({(split_command(command, rule), shell_command(command, rule)) for rule in RULES}) > 1
