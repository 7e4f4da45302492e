"""Which commands of a line a host that skips does not run: there oncecron succeeds, so `||` after it is not run.

The simple commands are followed as the shell of such a host follows them. How oncecron ends is known. Commands
before it may end either way, and commands after it are assumed to succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from oncecron.crontab.simple_commands import SimpleCommand

_OPENING = frozenset(("(", "{", "then", "else", "do"))
_CLOSING = frozenset((")", "}", "fi", "done", "else", "elif"))
_JOINED = {"then": "&&", "do": "&&", "else": "||", "elif": "||"}
_NEGATING = frozenset(("!", "until"))


def not_run_on_skip(commands: Sequence[SimpleCommand], guarded: Container[int]) -> set[int]:
    """Return the numbers of the commands that a host that skips does not run; `guarded`: those with oncecron."""
    found: set[int] = set()
    opened: list[bool | None] = []
    """Whether the command before each open bracket succeeded; None: unknown."""
    success: bool | None = None
    outside: int | None = None
    """How many brackets were open at the start of commands that are not run."""
    for number, simple in enumerate(commands):
        operator, opening, negated = simple.joined_by, 0, False
        for word in simple.keywords:
            if word in _CLOSING and opened:
                before = opened.pop()
                success = before if word in _JOINED else success
            operator = _JOINED.get(word, operator)
            opening += word in _OPENING
            negated ^= word in _NEGATING
        if not simple.words and _CLOSING.intersection(simple.keywords):
            operator = "|"  # the redirection of the brackets that close here
        within = outside is not None and len(opened) >= outside + (operator != "|")
        if not within:
            passed = (operator, success) in (("||", True), ("&&", False))
            outside = len(opened) if passed else None
        opened += [success] * opening
        if outside is not None:
            found.add(number)
        elif number in guarded:
            success = not negated
        elif success is not None:  # of the commands that may follow, only grep fails without input
            success = None if "grep" in simple.text else success or operator != "|"
    return found
