"""Lockers in front of a command, and random delays: what a line needs no longer when it runs through oncecron.

A locker counts here if it gives up at once while the lock is held, as oncecron does: `flock -n FILE`,
`setlock -n FILE`, `lckdo FILE`, `run-one`, `lockrun --lockfile=FILE --`, `solo -port=PORT`.
One that waits for the lock does more than oncecron without `--wait`, so it stays. So does one with other options, and
one with quotes or variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.shell_words import BLANK, OPERATOR, REDIRECTION, WORD, UnclosedError, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.core.shell_words import Token


class _Form(NamedTuple):
    """How a locker is called."""

    options: frozenset[bytes]
    """Those that change nothing here; with `=` if they have a value."""
    needed: frozenset[bytes] = frozenset()
    """One of these makes it give up at once; empty if it always does."""
    file: bool = True
    """Whether the lock is the word before the program."""


_FORMS = {
    b"flock": _Form(
        frozenset(
            b"-x -e --exclusive --verbose -o --close -F --no-fork -E= --conflict-exit-code=".split()
        ),
        frozenset((b"-n", b"--nb", b"--nonblock")),
    ),
    b"setlock": _Form(frozenset((b"-x", b"-X")), frozenset((b"-n",))),
    b"lckdo": _Form(frozenset(b"-e -E= -x -q -Q".split())),
    b"run-one": _Form(frozenset(), file=False),
    b"lockrun": _Form(
        frozenset(b"--quiet -q --lockfile=".split()), frozenset((b"--lockfile",)), file=False
    ),
    b"solo": _Form(frozenset((b"-port=", b"-silent=")), frozenset((b"-port",)), file=False),
}
_RANDOM = (b"RANDOM", b"shuf", b"rand(", b"rand ")


class Locker(NamedTuple):
    """A locker in a command."""

    start: int
    end: int
    """Where the program, or `-c STRING`, begins."""
    text: bytes
    """As it is written."""
    lock: bytes
    """The word that names the lock; empty if there is none."""
    has_string: bool
    """Whether `-c STRING` follows: the string is for a shell."""


def find_lockers(command: bytes) -> list[Locker]:
    """Return the lockers at the beginning of simple commands; `command`: as it stands in the crontab."""
    found = (_locker(words) for words in _simple_commands(command))
    return [locker for locker in found if locker]


def without_lockers(command: bytes, found: Sequence[Locker], shell: bytes) -> bytes:
    """Return a command without some of its lockers; `shell` runs their strings."""
    for locker in sorted(found, reverse=True):
        instead = shell + b" " if locker.has_string else b""
        command = command[: locker.start] + instead + command[locker.end :]
    return command


def tests_failure(command: bytes) -> bool:
    """Return whether a command has `||`, so that something may run because a lock is held."""
    return any(token.value == b"||" for token in tokens(command) if token.kind == OPERATOR)


def random_delay(command: bytes) -> bytes:
    """Return the first simple command that waits for a random time, empty if there is none."""
    for words in _simple_commands(command):
        text = b" ".join(word.text for _, word in words)
        if b"sleep" in text and any(sign in text for sign in _RANDOM):
            return text
    return b""


def _simple_commands(command: bytes) -> Iterator[list[tuple[int, Token]]]:
    """Yield the words of each simple command with their places, none for an open quote."""
    try:
        all_tokens = tokens(command)
    except UnclosedError:
        return
    words: list[tuple[int, Token]] = []
    at, target = 0, False
    for token in all_tokens:
        if token.kind == OPERATOR:
            yield words
            words = []
        elif token.kind == WORD and not target:
            words.append((at, token))
        target = token.kind == REDIRECTION or (target and token.kind == BLANK)
        at += len(token.text)
    yield words


def _locker(words: list[tuple[int, Token]]) -> Locker | None:
    form = _FORMS.get(words[0][1].text.rpartition(b"/")[2]) if words else None
    if form is None:
        return None
    end = _end_of_options(form, words)
    if end is None:
        return None
    lock = words[end][1].text if form.file and end < len(words) else b""
    end += form.file
    if any(not word.plain for _, word in words[:end]) or end >= len(words):
        return None
    has_string = words[end][1].text in (b"-c", b"--command")
    if words[end][1].text.startswith(b"-") and not has_string:
        return None
    start, place = words[0][0], words[end][0]
    text = b" ".join(word.text for _, word in words[:end])
    return Locker(start, place, text, lock, has_string)


def _end_of_options(form: _Form, words: list[tuple[int, Token]]) -> int | None:
    """Return how many words the locker and its options are, None if it does anything else."""
    gives_up = not form.needed
    at = 1
    while at < len(words) and words[at][1].text.startswith(b"-"):
        option = words[at][1].text
        at += 1
        if option == b"--":
            break
        name, equals, _ = option.partition(b"=")
        letters = (
            [name] if equals or option[:2] == b"--" else [bytes((45, one)) for one in option[1:]]
        )
        for letter in letters:
            gives_up = gives_up or letter in form.needed
            if letter + b"=" in form.options:
                at += not equals
            elif letter not in form.options | form.needed:
                return None
    return at if gives_up else None
