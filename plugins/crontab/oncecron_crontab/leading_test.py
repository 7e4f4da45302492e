"""The test of this host with which many lines begin: `[ -x /opt/index ] && /opt/index --all`.

A guard that runs the whole line claims the tick first and tests later: a host without the program uses the tick up. So
the test is copied into `--only-if`, which asks before the claim; the command keeps it. A test here asks for programs
and files, and prints nothing:

    [ -x P ]   test -d P   [[ -f P ]]   also with `!`, `-a` and `-o`
    command -v P   which P   type P   hash P
    one of these && another

Nothing may happen beside the test and what depends on it:

    TEST && REST                    REST has no `;`, `||` or `&` of its own, but `|| true` at the end
    if TEST; then ...; fi           without `else`
    TEST || exit 0; ...
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.shell_words import BLANK, OPERATOR, REDIRECTION, WORD, UnclosedError, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.shell_words import Token

_NOT_IN_OPTION = frozenset(b"'\\%\n")
_ASKING = (b"-x", b"-f", b"-e", b"-d", b"-r", b"-L", b"-h")
_COMMANDS = ((b"command", b"-v"), (b"which",), (b"type",), (b"hash",))
_CLOSING = {b"[": b"]", b"[[": b"]]"}
_OPENING = frozenset((b"if", b"{", b"while", b"until", b"for", b"select"))
_ENDING = frozenset((b"fi", b"}", b"done"))
_BEFORE_COMMAND = frozenset((b"then", b"do", b"else", b"elif", b"!", b"time", *_OPENING))
_SUBSTITUTIONS = (b"$(", b"`")
_IDLE = (b"true", b":")
_BRANCHES = frozenset((b"else", b"elif"))


def leading_test(command: bytes) -> bytes | None:
    """Return the test of a command that `--only-if` can ask, None if it begins with none.

    The text after cron's `%` is not a part of the command. An option in a crontab cannot hold a quote, a backslash or a
    percent sign.
    """
    test = _read(command)
    return test if test and _fits_option(test) else None


def remaining_test(command: bytes) -> bytes | None:
    """Return the test of this host that only the command asks, because it cannot be an option; None without one.

    A test with a substitution asks for a day or for data, so it is not a test of the host.
    """
    test = _read(command)
    if test is None or _fits_option(test):
        return None
    return None if any(each in test for each in _SUBSTITUTIONS) else test


def _fits_option(test: bytes) -> bool:
    return test.isascii() and not _NOT_IN_OPTION.intersection(test)


def _read(command: bytes) -> bytes | None:
    """Return the test with which a command begins if all the rest depends on it."""
    try:
        found = tokens(command)
    except UnclosedError:
        return None
    within_if = bool(found) and found[0].text == b"if"
    start = _skip_blanks(found, 1) if within_if else 0
    end = _end_of_tests(found, start)
    at = _skip_blanks(found, end)
    if within_if:
        depends = (_is(found, at, b"&&") or _is(found, at, b";")) and _is_one_if(found)
    else:
        depends = (_is(found, at, b"&&") and _is_one_list(found[at + 1 :])) or _exits(found[at:])
    return b"".join(token.text for token in found[start:end]) if end > start and depends else None


def _exits(found: list[Token]) -> bool:
    words = [token.text for token in found if token.kind != BLANK]
    status = [word for word in words[2:3] if word.isdigit()]
    return words[:2] == [b"||", b"exit"] and words[2 + len(status) :][:1] == [b";"]


# Tests


def _end_of_tests(found: list[Token], start: int) -> int:
    """Return where the tests that are joined by `&&` end; `start` if there is none."""
    end = start
    while (after := _end_of_test(found, start)) > start:
        end, at = after, _skip_blanks(found, after)
        if not _is(found, at, b"&&"):
            break
        start = _skip_blanks(found, at + 1)
    return end


def _end_of_test(found: list[Token], start: int) -> int:
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
    if words[:1] == [b"!"]:
        words = words[1:]
    if len(words) < 2 or words[0] not in _ASKING:  # noqa: PLR2004 - an operator and its file
        return False
    more = words[2:]
    return not more or (more[0] in (b"-a", b"-o") and _asks(more[1:]))


# The rest of the command


def _is_one_list(found: list[Token]) -> bool:
    words = [token.text for token in found if token.kind != BLANK]
    if words[-2:-1] == [b"||"] and words[-1] in _IDLE:
        found = found[: max(at for at, token in enumerate(found) if token.text == b"||")]
    depths = _depths(found)
    outside = (token for token, depth in zip(found, depths or (), strict=False) if depth == 0)
    return depths is not None and all(
        token.kind != OPERATOR or token.text in (b"&&", b"|", b"|&", b")") for token in outside
    )


def _is_one_if(found: list[Token]) -> bool:
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
