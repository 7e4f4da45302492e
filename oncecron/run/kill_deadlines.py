"""Decide when the job is killed while the lease cannot be renewed: before its trust ends.

    a quarter of the ttl before the end   the guard sends TERM
    a twelfth                             the guard sends KILL
    a twentieth                           the wrapper kills the job and the guard, which is stopped or hung

The end of trust is the one number that wrapper and guard share. It is in a page of shared memory, and each reads it
when it decides, so neither has to read a pipe before a kill. Only the guard writes it. Local time may only end trust,
never extend it.
"""

from __future__ import annotations

import mmap

from oncecron.core.timing import GUARD_KILLS_BEFORE, TERM_BEFORE, WRAPPER_KILLS_BEFORE

NOTHING_TO_FENCE = 0.0
"""No job runs: it has not started, or its tree is gone."""


def term_at(trusted_until: float, ttl: float) -> float:
    """Return when the guard sends TERM (lease clock)."""
    return trusted_until - ttl * TERM_BEFORE


def guard_kills_at(trusted_until: float, ttl: float) -> float:
    """Return when the guard sends KILL (lease clock)."""
    return trusted_until - ttl * GUARD_KILLS_BEFORE


def wrapper_kills_at(trusted_until: float, ttl: float) -> float:
    """Return when the wrapper kills all (lease clock)."""
    return trusted_until - ttl * WRAPPER_KILLS_BEFORE


class Trust:
    """The time on the lease clock at which the job must be dead, shared by wrapper and guard."""

    def __init__(self) -> None:
        """Make a page of memory that forked processes share."""
        self._page = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")

    @property
    def until(self) -> float:
        """The end of trust, or `NOTHING_TO_FENCE`."""
        return float(self._page[0])

    @until.setter
    def until(self, value: float) -> None:
        self._page[0] = value  # eight aligned bytes: written in one step
