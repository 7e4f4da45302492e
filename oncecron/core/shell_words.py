r"""The words of a shell command: one tokenizer, and what the words say about the command.

`tokens` divides a command as a Bourne shell does, and keeps every byte: the texts of the tokens, joined, are the
command. `cd /srv && ./bill 'a b' >>log` has the words `cd`, `/srv`, `./bill`, `a b` and `log`, the operator `&&`, the
redirection `>>`, and blanks between them. Nothing is expanded: `$X` and `$(date)` stay in a word as they are written,
and a substitution is not divided. There are no here-documents, because they need lines of their own.

`oncecron-shell` imports this module for every line of its crontab, so it is small and does not import `re` or `shlex`.
"""

from __future__ import annotations

from oncecron.core.light_typing import NamedTuple

BLANK, COMMENT, OPERATOR, REDIRECTION, WORD = "blank", "comment", "operator", "redirection", "word"
"""Kinds of tokens."""

_BLANKS = b" \t"
_END_OF_WORD = frozenset(b" \t\n;&|()<>")
_OPERATORS = (b"&&", b"||", b";;", b"|&", b"\n", b";", b"|", b"&", b"(", b")")
_REDIRECTIONS = (b"&>>", b"&>", b"<<<", b"<<-", b"<<", b"<>", b"<&", b"<", b">>", b">|", b">&", b">")  # fmt: skip
_SUBSTITUTIONS = {b"$(": b")", b"${": b"}"}
_DIGITS = b"0123456789"
_PLAIN = frozenset(_DIGITS + b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_./:,@+=%-")
_ESCAPED_IN_QUOTES = frozenset(b'$`"\\')  # before these a backslash in double quotes escapes
_NOT_PLAIN_IN_QUOTES = frozenset(b"$`\\!\n\0")  # special within double quotes
_SIGNS = b" \t\n;&|()<>{}'\"`!"
_SIGNS_TO_BLANKS = bytes.maketrans(_SIGNS, b" " * len(_SIGNS))
_BOURNE_SHELLS = frozenset(
    b"sh bash dash ash ksh ksh93 mksh lksh pdksh yash zsh posh jailshell".split()
)
"""`jailshell` is the bash of cPanel's users."""
SHELL_BUILTINS = frozenset(
    b"""
    . : [ [[ alias autoload bg bind break builtin bye caller case cd chdir command compgen complete compopt continue
    coproc declare dirs disown do done echo echotc elif else emulate enable end esac eval exec exit export false fc fg
    fi for foreach function getopts hash hist history if in integer jobs kill let limit local log logout mapfile nameref
    newgrp nocorrect noglob popd print printf pushd pwd r read readarray readonly rehash repeat return sched select set
    setopt shift shopt sleep source stop suspend test then time times trap true type typeset ulimit umask unalias
    unfunction unhash unlimit unset unsetopt until vared wait whence where which while zmodload
    """.split()
)
"""Keywords and builtins of the shells above: a program with such a name may behave differently."""
PREPARING_BUILTINS = frozenset(b". cd chdir export set source ulimit umask".split())
"""Builtins that change only the shell itself, for the commands behind them."""


class Token(NamedTuple):
    """A token of a command."""

    kind: str
    """`BLANK`, `COMMENT`, `OPERATOR`, `REDIRECTION` or `WORD`."""
    text: bytes
    """As it is written."""
    value: bytes
    """A word as the shell passes it on, without quotes; a redirection without the number of its descriptor."""
    plain: bool = False
    """Whether it is a word of plain letters and closed quotes: every Bourne shell reads it in the same way."""


class UnclosedError(ValueError):
    """A quote or a substitution is not closed."""


def tokens(command: bytes) -> list[Token]:
    """Divide a command. Raises `UnclosedError`."""
    found: list[Token] = []
    at = 0
    target = False  # after a redirection `#` and digits are its target
    while at < len(command):
        token = (
            _read_blanks(command, at)
            or (None if target else _read_comment(command, at))
            or _read_redirection(command, at, numbered=not target)
            or _read_operator(command, at)
            or _read_word(command, at)
        )
        found.append(token)
        target = token.kind == REDIRECTION or (target and token.kind == BLANK)
        at += len(token.text)
    return found


def _read_blanks(command: bytes, at: int) -> Token | None:
    text = command[at : _end_of_run(command, at, _BLANKS)]
    return Token(BLANK, text, text) if text else None


def _read_comment(command: bytes, at: int) -> Token | None:
    text = command[at:].partition(b"\n")[0]
    return Token(COMMENT, text, text) if text.startswith(b"#") else None


def _read_redirection(command: bytes, at: int, *, numbered: bool) -> Token | None:
    start = _end_of_run(command, at, _DIGITS) if numbered else at
    sign = next((sign for sign in _REDIRECTIONS if command.startswith(sign, start)), None)
    if sign is None or (start > at and sign.startswith(b"&")):  # in `2&>x` the 2 is a word
        return None
    return Token(REDIRECTION, command[at : start + len(sign)], sign)


def _read_operator(command: bytes, at: int) -> Token | None:
    sign = next((sign for sign in _OPERATORS if command.startswith(sign, at)), None)
    return Token(OPERATOR, sign, sign) if sign else None


def _read_word(command: bytes, at: int) -> Token:
    start, value = at, bytearray()
    plain = not command.startswith(b"=", at)  # zsh looks for a program then
    while at < len(command) and command[at] not in _END_OF_WORD:
        sign = command[at : at + 1]
        end = _end_of_run(command, at, _PLAIN) if command[at] in _PLAIN else _end_of(command, at)
        inside = command[at + 1 : end - 1]
        if sign == b"'":
            value += inside
            plain = plain and b"\n" not in inside
        elif sign == b'"':
            value += _unescaped(inside)
            plain = plain and not _NOT_PLAIN_IN_QUOTES.intersection(inside)
        else:
            value += command[at + 1 : end] or sign if sign == b"\\" else command[at:end]
            plain = plain and command[at] in _PLAIN
        at = end
    return Token(WORD, command[start:at], bytes(value), plain)


def _end_of_run(text: bytes, at: int, letters: bytes | frozenset[int]) -> int:
    return next((end for end in range(at, len(text)) if text[end] not in letters), len(text))


def _end_of(text: bytes, at: int) -> int:
    """Return the end of the quote, substitution, escape or letter that begins here. Raises `UnclosedError`."""
    closings: list[bytes] = []
    """The closing signs of all open quotes and brackets, the innermost last."""
    while at < len(text):
        sign, closing = text[at : at + 1], closings[-1] if closings else b""
        opened = b"" if closing in (b"'", b"`") else _closing(text, at, closing)
        if sign == closing:
            closings.pop()
            at += 1
        elif sign == b"\\" and closing != b"'":
            at = min(at + 2, len(text))
        elif opened:
            closings.append(opened)
            at += 2 if sign == b"$" else 1
        else:
            at += 1
        if not closings:
            return at
    raise UnclosedError


def _closing(text: bytes, at: int, within: bytes) -> bytes:
    """Return the closing sign of what opens here, empty if nothing opens; `within`: the one of the text around it."""
    sign = text[at : at + 1]
    if sign == b"`" or (sign in (b"'", b'"') and within != b'"'):
        return sign
    if sign == b"(" and within == b")":
        return b")"
    return _SUBSTITUTIONS.get(text[at : at + 2], b"")


def _unescaped(text: bytes) -> bytes:
    value = bytearray()
    at = 0
    while at < len(text):
        sign, end = text[at], at + 1
        if sign in b"$`":
            end = _end_of(text, at)
        elif sign == ord("\\") and text[end : end + 1] and text[end] in _ESCAPED_IN_QUOTES:
            at, end = end, end + 1
        value += text[at:end]
        at = end
    return bytes(value)


def quoted(text: bytes) -> bytes:
    """Return a text as one word for a Bourne shell, and a plain one: its quotes are closed."""
    if text and _PLAIN.issuperset(text) and not text.startswith(b"="):
        return text
    return b"'" + text.replace(b"'", b"'\"'\"'") + b"'"


# What the words say about a command


def simple_words(command: bytes) -> list[bytes] | None:
    """Return the words of a command that needs no shell, None if it needs one.

    Strict on purpose: every Bourne shell reads plain words and closed quotes in the same way, so `oncecron run ... --
    COMMAND` can replace the shell. Any other command is passed to a shell unchanged.
    """
    try:
        found = [token for token in tokens(command) if token.kind != BLANK]
    except UnclosedError:
        return None
    if not (found and all(token.plain for token in found) and _is_program(found[0])):
        return None
    return [token.value for token in found]


def _is_program(word: Token) -> bool:
    name = word.text
    bare = name == word.value  # a command with a quoted first word is left to the shell
    return bare and b"=" not in name and name[:1] not in b"-%+" and name not in SHELL_BUILTINS


def canonical(command: bytes) -> bytes:
    """Return a command in canonical form: equal commands give equal texts, whatever the blanks between their words.

    Nor do quotes count where no shell is needed. Derived keys depend on it, so this rule never changes.
    """
    words = simple_words(command)
    if words is not None:
        return b" ".join(map(quoted, words))
    command = command.strip(b" \t\n")
    try:
        found = tokens(command)
    except UnclosedError:
        return command
    return b"".join(b" " if token.kind == BLANK else token.text for token in found)


def fragments(command: bytes) -> list[bytes]:
    """Return everything that looks like a word, also within quotes and substitutions: for guessing, not for running.

    Derived keys of commands with an open quote depend on these. It is not a tokenizer: it ignores quotes.
    """
    return command.translate(_SIGNS_TO_BLANKS).split()


def is_bourne_shell(shell: bytes) -> bool:
    """Return whether a program is a shell that reads quotes like sh."""
    return shell.rpartition(b"/")[2] in _BOURNE_SHELLS
