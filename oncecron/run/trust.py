"""The one number that wrapper and guard share: until when the lease is trusted.

It stands in a page of shared memory and is read at the moment of judging, so that no pipe has to be
drained before a kill. Written by the guard alone. Local time may only end trust, never extend it.
"""

from __future__ import annotations

import mmap

NOTHING_TO_FENCE = 0.0
"""No job runs: it has not started, or its tree is gone."""


class Trust:
    """Seconds of the lease clock at which the child must be dead."""

    def __init__(self) -> None:
        """Make a page that a forked process shares."""
        self._page = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")

    @property
    def until(self) -> float:
        """The end of trust, or `NOTHING_TO_FENCE`."""
        return float(self._page[0])

    @until.setter
    def until(self, value: float) -> None:
        self._page[0] = value  # eight aligned bytes: one store
