"""Find the smallest part of what a seed has that still shows what was found."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3600.0
Numbers = tuple[int, ...]


class Only(NamedTuple):
    """The numbers of the hosts, keys and faults of a seed that are played; None: all."""

    hosts: Numbers | None = None
    keys: Numbers | None = None
    faults: Numbers | None = None

    @staticmethod
    def of(numbers: Numbers | None, number: int) -> bool:
        """Return whether one is played."""
        return numbers is None or number in numbers


ALL = Only()


def smallest(
    found: Callable[[float, Only], float | None], hours: float, only: Only
) -> tuple[float, Only]:
    """Return fewer hours, faults, hosts and keys in which it is still `found`, which returns when, or None."""
    at = found(hours, only)
    for name in ("keys", "hosts", "faults", "hosts"):
        parts = [hours * part / 10 for part in range(1, 10)] + [at / HOUR if at else hours]
        shorter = sorted({math.ceil(each * 10) / 10 for each in parts if each < hours})
        hours = next((each for each in shorter if found(each, only) is not None), hours)
        fails = partial(_fails, found, hours, only, name)
        only = only._replace(**{name: fewest(getattr(only, name), fails)})
        at = None
    return hours, only


def _fails(found: Any, hours: float, only: Only, name: str, numbers: Numbers) -> bool:
    if not numbers and name != "faults":
        return False
    return found(hours, only._replace(**{name: numbers})) is not None


def fewest(numbers: Numbers, fails: Callable[[Numbers], bool]) -> Numbers:
    """Take out ever smaller parts while what is left `fails`."""
    size = max(1, len(numbers) // 2)
    while size:
        at = 0
        while at < len(numbers):
            fewer = numbers[:at] + numbers[at + size :]
            if fails(fewer):
                numbers = fewer
            else:
                at += size
        size //= 2
    return numbers
