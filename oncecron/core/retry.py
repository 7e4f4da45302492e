"""Decide how long to wait before a retry, and whether another attempt follows a failure.

A delay is uniform(0, min(cap, base * 2**n)): full jitter, after Brooker, "Exponential Backoff And Jitter" (AWS
Architecture Blog, 2015). Of 300 clients that connected at once to a server with 100 connections, 140 to 203 were
refused without jitter, none with it.

Attempts are counted per tick across all hosts. An attempt that did not start counts too, so a job that crashes its
host cannot crash every host. A takeover (`--failover`) counts like any other attempt. The store refuses an attempt
above the limit.
"""

from __future__ import annotations

from oncecron.core import system
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oncecron.core.model import Ending

_FIRST_BACKOFF = 0.05
"""The first upper bound of the delay before a call is retried; it doubles each time, with full jitter."""
_LONGEST_BACKOFF = 2.0
"""The largest upper bound of that delay."""


def random_fraction() -> float:
    """Return a number in [0, 1); importing `random` costs a firing eight milliseconds."""
    return int.from_bytes(system.calls.urandom(7), "big") / (1 << 56)


def jittered(seconds: float) -> float:
    """Return between half and one and a half times the given seconds."""
    return seconds * (0.5 + random_fraction())


class Backoff:
    """The delays of one series of attempts, in seconds."""

    def __init__(self, base: float = _FIRST_BACKOFF, cap: float = _LONGEST_BACKOFF) -> None:
        self._base = self._bound = base
        self._cap = cap

    def delay(self) -> float:
        """Return the next delay."""
        # No power of a count: only a success resets it, and 2.0**1024 is out of range.
        self._bound = min(self._cap, self._bound * 2)
        return random_fraction() * self._bound

    def reset(self) -> None:
        """Start again with the shortest delay, after a success."""
        self._bound = self._base


class RetryPolicy(NamedTuple):
    """When a firing runs a failed job again."""

    retries: int
    """How many further attempts it makes itself; takeovers may have their own limit."""
    delay: tuple[float, float]
    """Base and cap, in seconds."""
    permanent: frozenset[int]
    """Exit statuses that are never retried (`--no-retry-on`)."""

    def wanted(self, ending: Ending, attempt: int) -> bool:
        """Return whether another attempt follows this one, if its exit status is not permanent."""
        return ending.outcome in ("failed", "timed-out") and attempt <= self.retries

    def seconds_after(self, attempt: int) -> float:
        """Return the seconds between a failed attempt (the first is 1) and the next one.

        uniform(base, min(cap, base * 2**attempt)): the full jitter of the same article, but from `base` instead of 0,
        because `--retry-delay 5s..5m` promises a pause of at least five seconds.
        """
        base, cap = self.delay
        longest = min(cap, base * 2.0 ** min(attempt, 60))
        return base + random_fraction() * (longest - base)
