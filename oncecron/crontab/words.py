"""The words of a command: whether it needs a shell, and whether it is one of each host's own.

`simple_words` is strict on purpose. A command of plain words and whole quotes is the same to every Bourne shell, and
`oncecron run ... -- COMMAND` may stand for it; whatever else, also what only might differ, goes to a shell as it is.
"""

from __future__ import annotations

from itertools import pairwise

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_PLAIN = frozenset(_LETTERS + b"_./:,@+=%-")
_BETWEEN = b" \t\n;&|()<>{}'\"`!"
_SPLIT = bytes.maketrans(_BETWEEN, b" " * len(_BETWEEN))
_OFF = (b"ONCECRON=off ", b"ONCECRON=off\t", b"ONCECRON=off;")
_OF_EACH_HOST = (b"run-parts", b"anacron")
_NOT_QUOTED = frozenset(b"$`\\!\n\0")  # within double quotes they may mean more than themselves
_SHELLS = frozenset(
    (b"sh", b"bash", b"dash", b"ash", b"ksh", b"ksh93", b"mksh", b"lksh", b"pdksh", b"yash", b"zsh", b"posh")
)  # fmt: skip
OF_THE_SHELL = frozenset(
    b"""
    . : [ [[ alias autoload bg bind break builtin bye caller case cd chdir command compgen complete compopt continue
    coproc declare dirs disown do done echo echotc elif else emulate enable end esac eval exec exit export false fc fg
    fi for foreach function getopts hash hist history if in integer jobs kill let limit local log logout mapfile nameref
    newgrp nocorrect noglob popd print printf pushd pwd r read readarray readonly rehash repeat return sched select set
    setopt shift shopt sleep source stop suspend test then time times trap true type typeset ulimit umask unalias
    unfunction unhash unlimit unset unsetopt until vared wait whence where which while zmodload
    """.split()
)
"""Keywords and builtins of the shells above: a program of that name, if there is one, may do otherwise."""


def simple_words(command: bytes) -> list[bytes] | None:
    """Return the words of a command that needs no shell, None if it needs one."""
    words: list[bytes] = []
    at = 0
    while at < len(command):
        if command[at] in b" \t":
            at += 1
            continue
        read = _read_word(command, at, bare=not words)
        if read is None:
            return None
        word, at = read
        words.append(word)
    return words if words and _is_program(words[0]) else None


def _read_word(command: bytes, at: int, *, bare: bool) -> tuple[bytes, int] | None:
    """Return a word and where it ends, None if it is not plain; `bare`: nor may it have quotes."""
    word = bytearray()
    if command[at] == ord("="):  # zsh looks for a program then
        return None
    while at < len(command) and command[at] not in b" \t":
        byte = command[at]
        if byte in b"'\"" and not bare:
            end = command.find(byte, at + 1)
            part = command[at + 1 : end]
            if end < 0 or (byte == ord('"') and _NOT_QUOTED.intersection(part)) or b"\n" in part:
                return None
            word += part
            at = end + 1
        elif byte in _PLAIN:
            word.append(byte)
            at += 1
        else:
            return None
    return bytes(word), at


def _is_program(word: bytes) -> bool:
    return b"=" not in word and word[:1] not in (b"-", b"%", b"+") and word not in OF_THE_SHELL


def loose_words(command: bytes) -> list[bytes]:
    """Return what looks like a word, without quotes and signs; for guessing, not for running."""
    return command.translate(_SPLIT).split()


def is_off(command: bytes) -> bool:
    """Return whether a command says in front that every host is to run it."""
    return command.lstrip().startswith(_OFF)


def is_guarded(command: bytes) -> bool:
    """Return whether `oncecron run` stands anywhere in a command: then it has been thought of by hand."""
    words = [word.rpartition(b"/")[2] for word in loose_words(command)]
    return (b"oncecron", b"run") in pairwise(words)


def of_each_host(command: bytes) -> str | None:
    """Return the program that makes a command one of each host's own, None if there is none."""
    names = [word.rpartition(b"/")[2] for word in loose_words(command)]
    if names[:1] == [b"oncecron"]:
        return "oncecron"  # such as `flush`, which delivers what this host has
    return next((name.decode() for name in _OF_EACH_HOST if name in names), None)


def is_bourne(shell: bytes) -> bool:
    """Return whether a program is a shell that reads quotes as sh does."""
    return shell.rpartition(b"/")[2] in _SHELLS


def quoted(text: bytes) -> bytes:
    """Return a text as one word for such a shell."""
    if text and _PLAIN.issuperset(text) and not text.startswith(b"="):
        return text
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def unquoted(text: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the word that `quoted` has written at a place, and where it ends; None if it has not."""
    if text[at : at + 1] != b"'":
        end = next((end for end in range(at, len(text)) if text[end] not in _PLAIN), len(text))
        return (text[at:end], end) if end > at else None
    word = bytearray()
    start = at + 1
    while True:
        end = text.find(b"'", start)
        if end < 0:
            return None
        word += text[start:end]
        if text[end : end + 4] != b"'\\''":
            return bytes(word), end + 1
        word += b"'"
        start = end + 4
