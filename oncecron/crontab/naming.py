"""The key that is derived from a command, where nobody named one: `bill.sh-3fa92c1b`.

It must be the same on every host, whoever derives it: `crontab wrap` from the line, `oncecron-shell` from what cron
gives it. So it is made of the command alone, as the shell gets it (`%` and what follows it are cron's), and the rule
never changes: hosts are upgraded in any order, and another key is another job.

    name     of the first program that is no launcher (`nice`, `env`, `flock FILE`, `cd DIRECTORY`, `bash -c`,
             `php`...): the last part of its path, other letters than A-Z a-z 0-9 . _ made `-`, at most 40; else `job`
    digest   CRC-32 of the command without the blanks around it, eight hexadecimal digits
"""

from __future__ import annotations

import binascii

from oncecron.crontab.words import loose_words

PREFIX_VARIABLE = "ONCECRON_KEY_PREFIX"
"""Whose value comes first in derived keys: for users whose commands are alike."""
_LONGEST_NAME = 40
_WORD_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
# Launchers by how many words of theirs come before the program, and which of their options take a word.
_LAUNCHERS: dict[bytes, tuple[int, bytes]] = {
    b"cd": (1, b""),
    b"flock": (1, b"wE"),
    b"timeout": (1, b"sk"),
    b"sleep": (1, b""),
    b"chroot": (1, b""),
    b"runuser": (0, b"ug"),
    b"sudo": (0, b"ugCDRT"),
    b"nice": (0, b"n"),
    b"ionice": (0, b"cn"),
    b"chrt": (1, b"T"),
    b"env": (0, b"uCS"),
    b"test": (0, b""),
}
_SKIPPED = frozenset(
    b"""
    if then else while do exec command time eval nohup setsid source true chronic cronic eatmydata systemd-cat
    systemd-inhibit
    stdbuf unbuffer sh bash dash ash ksh zsh python python2 python3 perl ruby php node java Rscript bundle
    """.split()
)


def derived_key(command: bytes, prefix: str = "") -> str:
    """Return the key of a command as the shell gets it; `prefix` comes first."""
    return f"{prefix}{_name(command)}-{digest(command)}"


def digest(text: bytes) -> str:
    """Return eight hexadecimal digits that stand for a text, without the blanks around it."""
    return f"{binascii.crc32(text.strip()):08x}"


def _name(command: bytes) -> str:
    last = _program(command).rstrip(b"/").rpartition(b"/")[2]
    letters = bytes(byte if byte in _WORD_LETTERS else ord("-") for byte in last)
    return letters.strip(b"-._").decode("ascii")[:_LONGEST_NAME] or "job"


def _program(command: bytes) -> bytes:
    """Return the first word that is neither a launcher nor what belongs to one."""
    options, ahead, skip = b"", 0, False
    for word in loose_words(command):
        name = word.rpartition(b"/")[2]
        if skip:
            skip = False
        elif word.startswith(b"-"):
            skip = len(word) == 2 and word[1:] in options  # noqa: PLR2004 - a dash and a letter
        elif ahead:
            ahead -= 1
        elif name in _LAUNCHERS:
            ahead, options = _LAUNCHERS[name]
        elif not _is_no_program(word, name):
            return word
    return b""


def _is_no_program(word: bytes, name: bytes) -> bool:
    number = word.rstrip(b"smhd").isdigit()
    variable = b"=" in word or (word.startswith(b"$") and b"/" not in word)
    return number or variable or name in _SKIPPED or name == b"."
