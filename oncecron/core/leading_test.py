r"""The test of this host with which many lines begin: `[ -x /opt/index ] && /opt/index --all`.

A guard that runs the whole line claims the tick first and tests later: a host without the program uses the tick up.
So the test belongs into `--only-if`, which asks before the claim. A test here asks for programs and files:

    [ -x P ]   test -d P   [[ -f P ]]   also with `!`, `-a` and `-o`
    command -v P   which P   type P   hash P
    one of these && another

It is moved or copied there:

    TEST && REST                    moved: REST is left. The blanks are exactly these, so the line can be restored
    TEST&&REST and other blanks     copied: the command keeps it
    if TEST; then ...; fi           copied
    TEST || exit 0; ...             copied

In the first three, nothing may happen beside the test and what depends on it: REST has no `;`, `||` or `&` of its own,
and the `if` no `else`. A test with a quote, a backslash or a percent sign, which an option in a crontab cannot hold,
stays where it is. `remaining_test` finds it. It also finds the test of a program before other commands:

    [ -x P ] && P || true           the other command does nothing
    [ -x P ] && P; other            a file is often tested before some preparation, so tests of files do not count
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.shell_words import (
    BLANK,
    OPERATOR,
    REDIRECTION,
    WORD,
    Token,
    UnclosedError,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_JOINT = b" && "
_NOT_IN_TEST = frozenset(b"'\\%\n")
_ASKING = (b"-x", b"-f", b"-e", b"-d", b"-r", b"-L", b"-h")
_COMMANDS = ((b"command", b"-v"), (b"which",), (b"type",), (b"hash",))
_CLOSING = {b"[": b"]", b"[[": b"]]"}
_OPENING = frozenset((b"if", b"{", b"while", b"until", b"for", b"select"))
_ENDING = frozenset((b"fi", b"}", b"done"))
_BEFORE_COMMAND = frozenset((b"then", b"do", b"else", b"elif", b"!", b"time", *_OPENING))
_SUBSTITUTIONS = (b"$(", b"`")
_IDLE = frozenset((b"true", b":", b"false", b"exit", b"echo", b"printf", b"logger"))
"""Commands in the place of the job on a host that has no program for it."""
_BRANCHES = frozenset((b"else", b"elif"))


class LeadingTest(NamedTuple):
    """The test with which a command begins."""

    test: bytes
    rest: bytes | None
    """The command after `TEST && `; None: the test is also a part of the command."""


def leading_test(command: bytes) -> LeadingTest | None:
    """Return the test of a command, None if it begins with none. The text after cron's `%` is not a part of it."""
    try:
        found = tokens(command)
    except UnclosedError:
        return None
    test = _any_form(found, command)
    if test is None or not test.test.isascii() or _NOT_IN_TEST.intersection(test.test):
        return None
    if test.rest is not None:
        further = leading_test(test.rest)
        if further and further.test == test.test:
            return None  # it could not be told from a test that was copied
    return test


def whole_command(test: bytes, command: bytes) -> bytes:
    """Return the command that `leading_test` has divided into a test and this command."""
    there = leading_test(command)
    if there and there == (test, None):
        return command
    return test + _JOINT + command


def remaining_test(command: bytes) -> bytes | None:
    """Return the test of this host that stays in a command alone, although the job depends on it; None without one.

    A test with a substitution asks for a day or for data, so it is not a test of the host.
    """
    try:
        found = tokens(command)
    except UnclosedError:
        return None
    if leading_test(command):
        return None
    there = _any_form(found, command)
    test = there.test if there else _before_others(found)
    return None if test is None or any(each in test for each in _SUBSTITUTIONS) else test


# The three forms


def _any_form(found: list[Token], command: bytes) -> LeadingTest | None:
    return _in_list(found, command) or _in_if(found) or _before_exit(found)


def _in_list(found: list[Token], command: bytes) -> LeadingTest | None:
    end = _end_of_tests(found, 0)
    at = _skip_blanks(found, end)
    if not end or not _is(found, at, b"&&") or not _is_one_list(found[at + 1 :]):
        return None
    text = _text(found[:end])
    moved = command.startswith(text + _JOINT) and not command.startswith(
        (b" ", b"\t"), len(text) + 4
    )
    return LeadingTest(text, command[len(text) + len(_JOINT) :] if moved else None)


def _in_if(found: list[Token]) -> LeadingTest | None:
    if not found or found[0].text != b"if":
        return None
    start = _skip_blanks(found, 1)
    end = _end_of_tests(found, start)
    at = _skip_blanks(found, end)
    depends = _is(found, at, b"&&") or _is(found, at, b";")
    if end == start or not depends or not _is_one_if(found):
        return None
    return LeadingTest(_text(found[start:end]), None)


def _before_exit(found: list[Token]) -> LeadingTest | None:
    end = _end_of_tests(found, 0)
    words = [token.text for token in found[end:] if token.kind != BLANK]
    status = words[2:3] if len(words) > 2 and words[2].isdigit() else []  # noqa: PLR2004 - `|| exit 0`
    if not end or words[:2] != [b"||", b"exit"] or words[2 + len(status) :][:1] != [b";"]:
        return None
    return LeadingTest(_text(found[:end]), None)


def _before_others(found: list[Token]) -> bytes | None:
    """Return the test of a program that is started behind `&&`, with other commands behind that."""
    end = _end_of_tests(found, 0)
    at = _skip_blanks(found, end)
    if not end or not _is(found, at, b"&&"):
        return None
    last = next((n for n in range(at, len(found)) if found[n].text in (b"||", b";")), len(found))
    programs = _programs(found[:end])
    started = {token.value for token in found[at:last] if token.kind == WORD}
    other = [token.value for token in found[last + 1 :] if token.kind == WORD]
    idle = _is(found, last, b"||") and bool(_IDLE.intersection(other[:1]))
    return _text(found[:end]) if programs & started and (idle or _is(found, last, b";")) else None


def _programs(found: list[Token]) -> set[bytes]:
    """Return the words of tests that may name a program; empty if they ask for no program."""
    words = [token.value for token in found if token.kind == WORD]
    asks = b"-x" in words or any(tuple(words[: len(each)]) == each for each in _COMMANDS)
    signs = {b"test", *_CLOSING, *_CLOSING.values()}
    return {word for word in words if word[:1] != b"-"} - signs if asks else set()


# Tests


def _end_of_tests(found: list[Token], start: int) -> int:
    """Return where the tests that are joined by `&&` end; `start` if there is none."""
    end = _end_of_test(found, start)
    while end > start:
        at = _skip_blanks(found, end)
        following = _skip_blanks(found, at + 1)
        further = _end_of_test(found, following) if _is(found, at, b"&&") else following
        if further == following:
            break
        end = further
    return end


def _end_of_test(found: list[Token], start: int) -> int:
    """Return where the test that begins here ends; `start` if none does."""
    at, words, is_quiet = start, [], False
    while at < len(found) and found[at].kind in (WORD, BLANK, REDIRECTION):
        if found[at].kind == REDIRECTION:
            is_quiet = is_quiet or found[at].text in (b">", b"1>", b"&>", b">&")
            at = _skip_blanks(found, at + 1)
            if not _is_discarding(found[at : at + 1]):
                return start
        elif found[at].kind == WORD:
            words.append(found[at])
        at += 1
    while at > start and found[at - 1].kind == BLANK:
        at -= 1
    return at if _is_test(words, is_quiet=is_quiet) else start


def _is_discarding(target: list[Token]) -> bool:
    """Return whether a redirection leads nowhere, or to another descriptor."""
    return bool(target) and (target[0].text == b"/dev/null" or target[0].text.isdigit())


def _is_test(words: Sequence[Token], *, is_quiet: bool) -> bool:
    """Return whether words are a test that prints nothing: cron mails what a test inside the command prints."""
    if not words:
        return False
    values = [word.value for word in words]
    if tuple(values[:-1]) in _COMMANDS:
        return is_quiet or values[0] == b"hash"
    closing = _CLOSING.get(values[0])
    if closing and values[-1] == closing:
        return _asks(values[1:-1])
    return values[0] == b"test" and _asks(values[1:])


def _asks(words: list[bytes]) -> bool:
    """Return whether the words between the brackets ask for files alone."""
    if words[:1] == [b"!"]:
        words = words[1:]
    if len(words) < 2 or words[0] not in _ASKING:  # noqa: PLR2004 - an operator and its file
        return False
    more = words[2:]
    return not more or (more[0] in (b"-a", b"-o") and _asks(more[1:]))


# The rest of the command


def _is_one_list(found: list[Token]) -> bool:
    """Return whether tokens are commands that are joined by `&&` and `|` alone, but within brackets and loops."""
    depths = _depths(found)
    outside = (token for token, depth in zip(found, depths or (), strict=False) if depth == 0)
    return depths is not None and all(
        token.kind != OPERATOR or token.text in (b"&&", b"|", b"|&", b")") for token in outside
    )


def _is_one_if(found: list[Token]) -> bool:
    """Return whether tokens are an `if` without an `else`, and no other command."""
    depths = _depths(found)
    if depths is None or any(token.text in _BRANCHES for token in found):
        return False
    outside = (token for token, depth in zip(found, depths, strict=True) if depth == 0)
    return all(token.kind != OPERATOR for token in outside)


def _depths(found: list[Token]) -> list[int] | None:
    """Return in how many brackets and loops each token is; its closing one is outside.

    None if they do not match, if there is no command, and for `case`, whose brackets do not match.
    """
    depths, depth, first = [], 0, True
    for token in found:
        if token.kind == WORD:
            if first and token.text == b"case":
                return None
            depth += first * ((token.text in _OPENING) - (token.text in _ENDING))
            first = first and token.text in _BEFORE_COMMAND
        elif token.kind == OPERATOR:
            depth += (token.text == b"(") - (token.text == b")")
            first = True
        depths.append(depth)
    commands = any(token.kind == WORD for token in found)
    return depths if commands and not depth and min(depths) >= 0 else None


def _is(found: list[Token], at: int, operator: bytes) -> bool:
    return at < len(found) and (found[at].kind, found[at].text) == (OPERATOR, operator)


def _skip_blanks(found: list[Token], at: int) -> int:
    return at + (at < len(found) and found[at].kind == BLANK)


def _text(found: list[Token]) -> bytes:
    return b"".join(token.text for token in found)
