"""Whether another attempt follows one that failed, and after how long.

The count is the tick's, on all hosts together, because the number of an attempt is, also of one that did not start: a
job that kills its host cannot go round them for ever. A takeover (`--failover`) is an attempt like any other; the store
refuses what is too many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.backoff import retry_delay

if TYPE_CHECKING:
    from oncecron.model import Ending


class Retrying(NamedTuple):
    """What a firing does about a job that fails."""

    retries: int
    """How many further attempts it makes itself; takeovers may have a cap of their own."""
    delay: tuple[float, float]
    """Base and cap, in seconds."""
    permanent: frozenset[int]
    """Exit statuses of failures that no attempt would mend."""

    def wanted(self, ending: Ending, attempt: int) -> bool:
        """Return whether this end of an attempt would be followed by another, whatever its exit status."""
        return ending.outcome in ("failed", "timed-out") and attempt <= self.retries

    def seconds_after(self, attempt: int) -> float:
        """Return how long to wait before the next attempt."""
        return retry_delay(*self.delay, attempt)
