"""One reading for all who look at a page: however many have it open, the store is asked once.

A reading is kept longer than a second for each question that it has asked, so a page that twenty people watch costs the
store one query per second at most.
One thread reads, one page after the other: the store has one connection of this process, and a question that hangs is
waited for by everybody and asked by nobody else.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.core import clock
from oncecron.core.errors import (
    NotFoundError,
    OncecronError,
    UsageError,
    reason_of,
    shortage_of,
)
from oncecron.core.stderr import complain, show_trace
from oncecron.core.timing import (
    PAGE_AWAY_WITHIN,
    PAGE_ERROR_KEPT,
    PAGE_KEPT,
    PAGE_KEPT_TIMES,
    PAGE_PER_QUERY,
    PAGE_WITHIN,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

MOST_KEPT = 64
"""Readings in memory, whatever addresses are asked for."""
MOST_WAITING = 16
"""Readings that wait for their turn; an address beyond them is asked for again later."""


class Found(NamedTuple):
    """What a reading has found."""

    contents: Any
    queries: int
    """How many questions the store has answered for it."""


class AwayError(OncecronError):
    """The store does not answer."""

    def __init__(self, reason: str, since: float | None) -> None:
        """`since`: when it was first asked in vain; None: it is only busy."""
        super().__init__(reason)
        self.since = since


class _Reading:
    def __init__(self, read: Callable[[], Found]) -> None:
        self.read = read
        self.answer: Future[Found] = Future()
        self.kept_until: float | None = None
        """None: it is under way."""

    def is_over(self, now: float) -> bool:
        """Return whether the next one who looks needs another one."""
        return self.kept_until is not None and self.kept_until < now


class SharedReadings:
    """The last readings by name, each of them shared."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Reading] = OrderedDict()
        self._turns: queue.SimpleQueue[_Reading] = queue.SimpleQueue()
        self._waiting = 0
        self._is_started = False
        self._away: AwayError | None = None

    def get(self, name: Hashable, read: Callable[[], Found]) -> Any:
        """Return what was read by this name a moment ago, or what `read` finds now.

        Raises `AwayError` where the store does not answer in time, and what `read` raises of names and times.
        """
        reading = self._shared(name, read)
        patience = PAGE_WITHIN if self._away is None else PAGE_AWAY_WITHIN
        try:
            return reading.answer.result(patience).contents
        except TimeoutError:
            silence = f"no answer from the store within {PAGE_WITHIN:g} s"
            raise self._away or self._note_failure(silence) from None

    def _shared(self, name: Hashable, read: Callable[[], Found]) -> _Reading:
        with self._lock:
            reading = self._kept.get(name)
            if reading is None or reading.is_over(self._now()):
                reading = self._begin(name, read)
            self._kept.move_to_end(name)
            return reading

    def _begin(self, name: Hashable, read: Callable[[], Found]) -> _Reading:
        if self._waiting >= MOST_WAITING:
            raise self._away or AwayError("too many pages are asked for at once", None)
        if not self._is_started:  # not before a request: a server may fork after it has loaded this
            threading.Thread(target=self._work, daemon=True).start()
            self._is_started = True
        reading = self._kept[name] = _Reading(read)
        self._waiting += 1
        self._turns.put(reading)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return reading

    def _work(self) -> None:
        while True:
            reading = self._turns.get()
            began = self._now()
            try:
                found = reading.read()
            except Exception as error:  # noqa: BLE001 - the thread has to outlive a bug
                self._end(reading, PAGE_ERROR_KEPT, self._failure(error))
            else:
                self._note_answer()
                lasted = self._now() - began
                seconds = max(PAGE_KEPT, found.queries * PAGE_PER_QUERY, lasted * PAGE_KEPT_TIMES)
                self._end(reading, seconds, found)

    def _failure(self, error: Exception) -> Exception:
        """Return what those who wait get; a name that is unknown is an answer of the store."""
        if isinstance(error, NotFoundError | UsageError):
            self._note_answer()
            return error
        known = error if isinstance(error, OncecronError) else shortage_of(error)
        if known is None and isinstance(error, OSError):
            known = OncecronError(reason_of(error))
        if known is None:
            show_trace()
            return error
        return self._note_failure(str(known))

    def _end(self, reading: _Reading, kept_for: float, outcome: Found | Exception) -> None:
        with self._lock:
            self._waiting -= 1
            reading.kept_until = self._now() + kept_for
        if isinstance(outcome, Exception):
            reading.answer.set_exception(outcome)
        else:
            reading.answer.set_result(outcome)

    def _note_failure(self, reason: str) -> AwayError:
        """Return the error of a store that is away; say it once on standard error."""
        with self._lock:
            before = self._away
            away = self._away = AwayError(reason, before.since if before else clock.wall())
        if before is None:
            complain(reason)
        return away

    def _note_answer(self) -> None:
        with self._lock:
            before, self._away = self._away, None
        if before is not None:
            complain("the store answers again")
