"""A guarded command with other options: as cron runs a line, but by hand.

The line itself runs, by its shell: `cd`, variables, redirections and pipes around the guard stay as they are. Only the
options directly behind `oncecron run` are others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.config.run_parser import options_of
from oncecron.core.shell_words import BLANK, REDIRECTION, WORD, UnclosedError, quoted, tokens
from oncecron_crontab.guards import guard_in, is_guard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from oncecron.config.options import Option
    from oncecron.core.shell_words import Token


def with_options(
    command: bytes, added: Sequence[bytes], without: Collection[str], table: Mapping[str, Option]
) -> bytes | None:
    """Return a command whose guard has the words `added` first, and none of the options `without`.

    `table`: the options of the guard, by name. None: the command has no guard that is plain to see, or several.
    """
    try:
        found = tokens(command)
    except UnclosedError:
        return None
    guards = [*_guards(found)]
    if len(guards) == 1:
        [behind] = guards
        head = b"".join(token.text for token in found[:behind])
        words = b"".join(b" " + quoted(word) for word in added)
        return head + words + b"".join(_kept(found[behind:], without, table))
    strings = [at for at, token in enumerate(found) if token.plain and guard_in(token.value)]
    if guards or len(strings) != 1:
        return None
    [at] = strings  # as in sh -c 'oncecron run ...'
    inner = with_options(found[at].value, added, without, table)
    if inner is None:
        return None
    return b"".join(
        token.text
        for token in (*found[:at], found[at]._replace(text=quoted(inner)), *found[at + 1 :])
    )


def _guards(found: Sequence[Token]) -> Iterator[int]:
    """Yield where the words behind a guard begin; what is within its own command is none."""
    within = False
    for at, token in enumerate(found):
        within = within and token.kind in (WORD, BLANK, REDIRECTION)
        program, blank = found[at - 2 : at] if at > 1 else (token, token)
        is_pair = (program.kind, blank.kind, token.kind) == (WORD, BLANK, WORD)
        if is_pair and not within and is_guard(program.value, token.value):
            within = True
            yield at + 1


def _kept(
    found: Sequence[Token], without: Collection[str], table: Mapping[str, Option]
) -> Iterator[bytes]:
    """Yield the texts of the tokens behind a guard, but those of some options and the blank before each."""
    at, blank = 0, b""
    while at < len(found):
        token = found[at]
        if token.kind == BLANK:
            blank, at = token.text, at + 1
            continue
        is_option = token.kind == WORD and token.value[:1] == b"-" and token.value != b"--"
        if not is_option and token.kind != REDIRECTION:
            break
        given = options_of(token.value.decode(errors="replace"), table) if is_option else []
        waits = any(option.takes_value and value is None for option, value in given)
        end = _behind_word(found, at + 1) if waits or not is_option else at + 1
        if not any(option.name in without for option, _ in given):
            yield blank + b"".join(each.text for each in found[at:end])
        at, blank = end, b""
    yield blank + b"".join(token.text for token in found[at:])


def _behind_word(found: Sequence[Token], at: int) -> int:
    return next((end + 1 for end in range(at, len(found)) if found[end].kind == WORD), len(found))
