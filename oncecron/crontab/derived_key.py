"""The key that is derived from a command where no key is given: `bill.sh-3fa92c1b`.

Every host must derive the same key, with `crontab wrap` from the line as with `oncecron-shell` from the command that
cron passes to it. So the key depends only on the command as the shell gets it (without the first `%` and the text after
it). This rule never changes, because hosts are upgraded in any order, and another key is another job.

    name     the file name of the first program that is not a launcher (`nice`, `env`, `flock FILE`, `cd DIRECTORY`,
             `su USER -c`, `bash -c`, `php`, `[ ... ]`, `test -e FILE`...) and not a device; letters other than
             A-Z a-z 0-9 . _ become `-`; at most 40 letters; `job` if nothing is left. It is never a part of the value
             of a variable: `PGPASSWORD='a b' pg_dump` gives `pg_dump`
    digest   CRC-32 of the command without leading and trailing blanks, eight hexadecimal digits
"""

from __future__ import annotations

import binascii

from oncecron.crontab.words import SHELL_BUILTINS, fragments

PREFIX_VARIABLE = "ONCECRON_KEY_PREFIX"
"""The variable whose value is put in front of derived keys: for users with the same commands."""
_LONGEST_NAME = 40
_WORD_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_PLAIN_LAUNCHERS = SHELL_BUILTINS.difference((b"echo", b"printf", b"kill", b"r")).union(
    b"""
    nohup setsid chronic cronic eatmydata systemd-cat systemd-inhibit stdbuf unbuffer sh bash dash ash ksh zsh python
    python2 python3 perl ruby php node java Rscript bundle
    """.split()
)
LAUNCHERS: dict[bytes, tuple[int, bytes]] = {
    **dict.fromkeys(_PLAIN_LAUNCHERS, (0, b"")),
    **dict.fromkeys((b"cd", b".", b"source", b"export", b"sleep", b"chroot"), (1, b"")),
    b"chrt": (1, b"T"),
    b"env": (0, b"uCS"),
    b"flock": (1, b"wE"),
    b"ionice": (0, b"cn"),
    b"nice": (0, b"n"),
    b"runuser": (0, b"lug"),  # -l takes no value, but the user follows it
    b"set": (0, b"o"),
    b"su": (1, b"gGs"),
    b"sudo": (0, b"ugCDRT"),
    b"test": (0, b"bcdefghkLnprsSuwz"),  # not x: its file is usually the program itself
    b"timeout": (1, b"sk"),
}
"""Launchers: how many of their words come before the program, and which of their options take a value."""
_QUOTES = (b"'\\''", b'\\"', b"'", b'"')  # the first two within other quotes
_BLANK = frozenset(b" \t\n;&|()<>")
# The words between the two are a condition, or the words of a loop.
_SKIPPED_UNTIL = {
    b"[": b"]",
    b"[[": b"]]",
    b"for": b"do",
    b"while": b"do",
    b"until": b"do",
    b"case": b"in",
}


def derived_key(command: bytes, prefix: str = "") -> str:
    """Return the key of a command as the shell gets it; `prefix` is put in front."""
    return f"{prefix}{_name(command)}-{digest(command)}"


def digest(text: bytes) -> str:
    """Return the CRC-32 of a text without leading and trailing blanks, as eight hexadecimal digits."""
    return f"{binascii.crc32(text.strip()):08x}"


def _name(command: bytes) -> str:
    last = _program(command).rstrip(b"/").rpartition(b"/")[2]
    letters = bytes(byte if byte in _WORD_LETTERS else ord("-") for byte in last)
    return letters.strip(b"-._").decode("ascii")[:_LONGEST_NAME] or "job"


def _program(command: bytes) -> bytes:
    """Return the first word that is neither a launcher nor an argument of one."""
    options, arguments_left, skip_next, skip_until = b"", 0, False, b""
    for word in fragments(_without_quoted_values(command)):
        name = word.rpartition(b"/")[2]
        if skip_next or skip_until:
            skip_next = False
            skip_until = b"" if word == skip_until else skip_until
        elif word in _SKIPPED_UNTIL:
            skip_until = _SKIPPED_UNTIL[word]
        elif word.startswith(b"-"):
            skip_next = len(word) == 2 and word[1:] in options  # noqa: PLR2004 - a dash and a letter
            arguments_left = 0 if word == b"-c" else arguments_left  # a command is next
        elif arguments_left and word != b"$":
            arguments_left -= 1
        elif name in LAUNCHERS:
            arguments_left, options = LAUNCHERS[name]
        elif not _is_not_a_program(word):
            return word
    return b""


def _without_quoted_values(command: bytes) -> bytes:
    """Return a command in which a quoted value, or one with an escaped blank, is missing behind its `=`."""
    before, equals, rest = command.partition(b"=")
    kept = before + equals
    while equals:
        while quote := next(filter(rest.startswith, _QUOTES), b""):
            rest = rest[len(quote) :].partition(quote)[2]
        first, *more = rest.split(b"\\ ")
        while more and not _BLANK.intersection(first):
            first, *more = more
        before, equals, rest = b"\\ ".join((first, *more)).partition(b"=")
        kept += before + equals
    return kept


def _is_not_a_program(word: bytes) -> bool:
    number = not word.strip(b"0123456789.,:+-%$\\") or word[:-1].isdigit()  # also 60s
    variable = b"=" in word or (word.startswith(b"$") and b"/" not in word)
    return number or variable or word.startswith(b"/dev/")
