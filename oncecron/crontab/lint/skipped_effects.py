"""What of a line the hosts that lose pass over: there a guard succeeds, so that `||` behind it is for failures alone.

The simple commands are gone through as a shell would on such a host. How guards end is known; what comes before them
may end either way, and what is behind them is taken to succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from oncecron.crontab.lint.simple_commands import SimpleCommand

_OPENING = frozenset(("(", "{", "then", "else", "do"))
_CLOSING = frozenset((")", "}", "fi", "done", "else", "elif"))
_JOINED = {"then": "&&", "do": "&&", "else": "||", "elif": "||"}
_NEGATING = frozenset(("!", "until"))


def skipped_by_losers(commands: Sequence[SimpleCommand], guarded: Container[int]) -> set[int]:
    """Return the numbers of the parts that hosts that lose do not run; `guarded` are those with a guard."""
    found: set[int] = set()
    opened: list[bool | None] = []
    """Whether what stands before each open bracket succeeded; None: nobody knows."""
    success: bool | None = None
    outside: int | None = None
    """How many brackets were open where something began that is passed over."""
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
            operator = "|"  # the redirection of the brackets that end here
        within = outside is not None and len(opened) >= outside + (operator != "|")
        if not within:
            passed = (operator, success) in (("||", True), ("&&", False))
            outside = len(opened) if passed else None
        opened += [success] * opening
        if outside is not None:
            found.add(number)
        elif number in guarded:
            success = not negated
        elif success is not None:  # grep alone, of what may stand behind a guard, fails on no input
            success = None if "grep" in simple.text else success or operator != "|"
    return found
