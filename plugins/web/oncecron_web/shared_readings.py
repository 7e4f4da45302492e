"""One reading for all who look at a page: however many have it open, the store is asked once.

A reading is kept longer than a second for each question that it has asked, so a page that twenty people watch costs the
store one query per second at most.

One thread reads, one page after the other: the store has one connection of this process, and a question that hangs is
waited for by everybody and asked by nobody else. Pages are of lanes, which get their turns in rotation, and each has a
memory of its own. So who asks for a thousand addresses of one lane takes no turn and no memory of the others.

Whoever has to wait too long, or is one too many, gets what was read by this name before, or hears that the page is not
read yet. Only the store itself, by an error, is said to be away.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from collections import OrderedDict, deque
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
from oncecron.host.stderr import complain, show_trace
from oncecron_web.page_times import (
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
"""Readings of a lane in memory, whatever addresses are asked for."""
MOST_BYTES = 16 << 20
"""And what they have in memory together, unless one alone has more."""
_COLLECTED = 1 << 17
"""Of a reading that is larger, nothing is left to a collection by chance."""
MOST_WAITING = 16
"""Readings of a lane that wait for their turn."""
MOST_WATCHING = 48
"""Who waits at the same time, fewer than a server has threads: what is kept is there for all others at once."""


class Found(NamedTuple):
    """What a reading has found."""

    contents: Any
    queries: int
    """How many questions the store has answered for it."""
    number: int = 0
    """Of this reading, for those who keep something about it."""


class AwayError(OncecronError):
    """The store does not answer."""

    def __init__(self, reason: str, since: float) -> None:
        """`since`: when it was first asked in vain."""
        super().__init__(reason)
        self.since = since


class Silence:
    """Says on standard error once that the store does not answer, and once that it does again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.away: AwayError | None = None

    def begin(self, reason: str) -> AwayError:
        """Note that it does not; return the error."""
        with self._lock:
            before = self.away
            away = self.away = AwayError(reason, before.since if before else clock.wall())
        if before is None:
            complain(reason)
        return away

    def end(self) -> None:
        """Note that it does."""
        with self._lock:
            before, self.away = self.away, None
        if before is not None:
            complain("the store answers again")


class BusyError(OncecronError):
    """The page is not read yet: others are read first, or the log is long. Try again in a moment."""


class BrokenError(OncecronError):
    """The page cannot be read, by a bug that standard error shows."""


class _Reading:
    def __init__(self, read: Callable[[], Found], before: _Reading | None) -> None:
        self.read = read
        self.before = before.found() if before else None
        """What was found the last time, until there is more."""
        self.answer: Future[Found | OncecronError] = Future()
        self.kept_until: float | None = None
        """None: it is under way."""
        self.size: int = before.size if before else 0

    def found(self) -> Found | None:
        """Return what is there to show, if the last answer was no error."""
        answer = self.answer.result() if self.answer.done() else self.before
        return None if isinstance(answer, Exception) else answer

    def is_over(self, now: float) -> bool:
        """Return whether the next one who looks needs another one."""
        return self.kept_until is not None and self.kept_until < now


class _Lane:
    def __init__(self) -> None:
        self.kept: OrderedDict[Hashable, _Reading] = OrderedDict()
        self.turns: deque[_Reading] = deque()

    def make_room(self) -> None:
        """Forget what nobody has looked at for the longest time."""
        size = sum(each.size for each in self.kept.values())
        while len(self.kept) > 1 and (len(self.kept) > MOST_KEPT or size > MOST_BYTES):
            size -= self.kept.popitem(last=False)[1].size


class SharedReadings:
    """The last readings by name, each of them shared."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._lanes: OrderedDict[Hashable, _Lane] = OrderedDict()
        """Those that have had their turn last come last."""
        self._watching = 0
        self._numbers = itertools.count(1)
        self._is_started = False
        self._silence = Silence()

    def get(self, name: Hashable, read: Callable[[], Found], lane: Hashable = None) -> Found:
        """Return what was read by this name a moment ago, or what `read` finds now.

        Raises `AwayError` where the store does not answer, `BusyError` where it was not asked in time, `BrokenError`,
        and what `read` raises of names and times.
        """
        with self._changed:
            reading = self._shared(name, read, self._lanes.setdefault(lane, _Lane()))
            patience = self._patience()
            self._watching += 1
        try:
            found = reading.answer.result(patience)
        except TimeoutError:
            found = self._silence.away or reading.found() or BusyError()
        finally:
            with self._changed:
                self._watching -= 1
        if isinstance(found, Exception):
            raise found.with_traceback(None)  # else it grows with each who looks
        return found

    def _patience(self) -> float:
        if self._watching >= MOST_WATCHING:
            return 0.0
        return PAGE_WITHIN if self._silence.away is None else PAGE_AWAY_WITHIN

    def _shared(self, name: Hashable, read: Callable[[], Found], lane: _Lane) -> _Reading:
        reading = lane.kept.get(name)
        if reading is None or reading.is_over(self._now()):
            reading = self._begun(name, read, lane, reading)
        lane.kept.move_to_end(name)
        return reading

    def _begun(
        self, name: Hashable, read: Callable[[], Found], lane: _Lane, before: _Reading | None
    ) -> _Reading:
        if len(lane.turns) >= MOST_WAITING:
            if self._silence.away or before is None or before.found() is None:
                raise (self._silence.away or BusyError()).with_traceback(None)
            return before
        if not self._is_started:  # not before a request: a server may fork after it has loaded this
            threading.Thread(target=self._work, daemon=True).start()
            self._is_started = True
        reading = lane.kept[name] = _Reading(read, before)
        lane.turns.append(reading)
        lane.make_room()
        self._changed.notify()
        return reading

    def _work(self) -> None:
        while True:
            lane, reading = self._next()
            began = self._now()
            try:
                found = reading.read()
            except Exception as error:  # noqa: BLE001 - the thread has to outlive a bug
                self._end(lane, reading, PAGE_ERROR_KEPT, self._failure(error))
            else:
                self._silence.end()
                lasted = self._now() - began
                seconds = max(PAGE_KEPT, found.queries * PAGE_PER_QUERY, lasted * PAGE_KEPT_TIMES)
                self._end(lane, reading, seconds, found._replace(number=next(self._numbers)))

    def _next(self) -> tuple[_Lane, _Reading]:
        with self._changed:
            while True:
                for name, lane in self._lanes.items():
                    if lane.turns:
                        self._lanes.move_to_end(name)
                        return lane, lane.turns.popleft()
                self._changed.wait()

    def _failure(self, error: Exception) -> OncecronError:
        """Return what those who wait get; a name that is unknown is an answer of the store."""
        if isinstance(error, NotFoundError | UsageError):
            self._silence.end()
            return _bare(error)
        known = known_error(error)
        if known is None:
            show_trace()
            return BrokenError()
        return self._silence.begin(str(known))

    def _end(
        self, lane: _Lane, reading: _Reading, kept_for: float, outcome: Found | OncecronError
    ) -> None:
        size = 0 if isinstance(outcome, Exception) else size_of(outcome)
        with self._changed:
            reading.kept_until = self._now() + kept_for
            reading.answer.set_result(outcome)
            reading.size, reading.before = size, None
            lane.make_room()
        if size > _COLLECTED:  # templates leave cycles of few and large objects
            gc.collect()


def known_error(error: Exception) -> OncecronError | None:
    """Return what a failed reading says; None: it is a bug."""
    if isinstance(error, OncecronError):
        return error
    return shortage_of(error) or (
        OncecronError(reason_of(error)) if isinstance(error, OSError) else None
    )


def _bare(error: OncecronError) -> OncecronError:
    """Return an error without what it was raised from, which has all that was read in its frames."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def size_of(value: object) -> int:
    """Return about how many bytes a value of plain tuples, texts and numbers has in memory."""
    size, left, seen = 0, [value], set()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            size += sys.getsizeof(each)
            if isinstance(each, dict):
                left += (*each.keys(), *each.values())
            elif isinstance(each, tuple | list | set | frozenset):
                left += each
    return size
