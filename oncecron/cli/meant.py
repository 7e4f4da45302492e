"""What people type that is not what the command line takes, and what they meant."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from oncecron.core.errors import UsageError
from oncecron.log.time_span import is_time_of_day

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_TIMES = ("since", "until", "tick")
"""The options that take a time."""


def refuse_times(
    args: Sequence[str], words: Collection[str], options: Collection[str], typed: Mapping[str, str]
) -> None:
    """Raise `UsageError` for `02:00` among the words: in --since 2026-11-28 02:00, the shell parts it from its day."""
    times = [name for name in _TIMES if name in options]
    for before, word in pairwise(["", *args]) if times else ():
        if word not in words or not is_time_of_day(word):
            continue
        day = before.rpartition("=")[2]
        of_day = next((name for name in times if day and typed.get(name) == day), None)
        if of_day:
            raise UsageError(
                f"{word} is not a KEY; quote a time with its day: --{of_day} '{day} {word}'"
            )
        raise UsageError(f"{word} is not a KEY; did you mean --{times[0]} {word}?")
