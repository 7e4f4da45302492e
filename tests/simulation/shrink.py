"""Find the fewest faults that still show what a seed has found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults import Fault


def shrink(faults: list[Fault], fails: Callable[[list[Fault]], bool]) -> list[Fault]:
    """Take out ever smaller parts of the faults while what is left `fails`."""
    size = max(1, len(faults) // 2)
    while size:
        at = 0
        while at < len(faults):
            fewer = faults[:at] + faults[at + size :]
            if fails(fewer):
                faults = fewer
            else:
                at += size
        size //= 2
    return faults
