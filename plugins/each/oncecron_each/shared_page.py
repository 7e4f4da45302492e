"""What the processes of one `oncecron each` on one host share: a page of memory, made before the first is forked.

The host process starts firings: one for the load, then one for each of its `--jobs`. A firing claims slots, and its
runner runs the batches. The page has what they tell each other, and nothing that has to survive them:

- The progress of the tick, as a runner last read it from the store, for the display.
- Why the store refused a shard: the reason, and the first message, which is shown when no firing got a slot.
- For each firing: the slot that it holds, how its runner ended, and a note for the record of the slot.

Every number is eight aligned bytes that one process writes at a time, so it is read whole.
"""

from __future__ import annotations

import mmap

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import REFUSAL_REASONS
from oncecron_each.item_model import ItemCounts

if TYPE_CHECKING:
    from typing import Literal

    from oncecron.core.model import RefusalReason

    Verdict = Literal["running", "over", "interrupted", "not-loaded"]
    """How a runner ended. `over`: nothing was left for it. `interrupted`: items are left in the queue. `not-loaded`:
    the list could not be read or loaded. `running`: it was killed, if it has ended at all."""

VERDICTS: tuple[Verdict, ...] = ("running", "over", "interrupted", "not-loaded")
_NOTE = 256
"""Bytes of a note."""
_MESSAGE = 1024
"""Bytes of the message of a skip."""
_REASON, _LOADING, _COUNTS = 0, 1, 2
_FIRINGS = _COUNTS + len(ItemCounts._fields)
"""The places of the numbers."""
_PER_FIRING = 3
"""Numbers of a firing: the slot that it holds and one more, 1 if it has held any, the verdict of its runner."""


class Page:
    """The shared page of `firings` firings."""

    def __init__(self, firings: int) -> None:
        """Make memory that forked processes share."""
        self._firings = firings
        numbers = (_FIRINGS + firings * _PER_FIRING) * 8
        self._page = mmap.mmap(-1, numbers + _MESSAGE + firings * _NOTE)
        view = memoryview(self._page)
        self._numbers = view[:numbers].cast("q")
        self._texts = view[numbers:]

    # The tick

    @property
    def counts(self) -> ItemCounts:
        """The counts of the list as they were last read from the store; all 0 before."""
        return ItemCounts(*self._numbers[_COUNTS:_FIRINGS])

    @counts.setter
    def counts(self, counts: ItemCounts) -> None:
        for place, value in enumerate(counts, _COUNTS):
            self._numbers[place] = value

    @property
    def loading(self) -> int:
        """How many items of the list have been sent to the store so far."""
        return self._numbers[_LOADING]

    @loading.setter
    def loading(self, items: int) -> None:
        self._numbers[_LOADING] = items

    @property
    def refusal(self) -> RefusalReason | None:
        """Why the store refused a shard last."""
        number = self._numbers[_REASON]
        return REFUSAL_REASONS[number - 1] if number else None

    @property
    def skip(self) -> str:
        """The message of the first refusal since `forget_refusals`; empty: there is none, or nobody wants it."""
        return self._read(0, _MESSAGE)

    def note_refusal(self, reason: RefusalReason, message: str) -> None:
        """Keep the reason of a refusal, and its message if it is the first."""
        self._numbers[_REASON] = REFUSAL_REASONS.index(reason) + 1
        if not self.skip:
            self._write(0, _MESSAGE, message)

    def forget_refusals(self) -> None:
        """Forget what was refused so far."""
        self._numbers[_REASON] = 0
        self._write(0, _MESSAGE, "")

    # The firings

    def begin_slot(self, index: int, slot: int) -> None:
        """Note that a firing starts the runner of a slot."""
        self._write(self._note_at(index), _NOTE, "")
        place = _place(index)
        self._numbers[place], self._numbers[place + 1], self._numbers[place + 2] = slot + 1, 1, 0

    def end_slot(self, index: int) -> None:
        """Note that the runner is gone."""
        self._numbers[_place(index)] = 0

    def has_run(self, index: int) -> bool:
        """Return whether a firing has held a slot."""
        return bool(self._numbers[_place(index) + 1])

    def is_taken(self, slot: int, index: int) -> bool:
        """Return whether another firing of this host holds a slot."""
        return any(
            self._numbers[_place(other)] == slot + 1
            for other in range(self._firings)
            if other != index
        )

    def judge(self, index: int, verdict: Verdict, note: str = "") -> None:
        """Note how a runner ends, and why."""
        self._write(self._note_at(index), _NOTE, note)
        self._numbers[_place(index) + 2] = VERDICTS.index(verdict)

    def verdict(self, index: int) -> tuple[Verdict, str]:
        """Return how the runner of a firing ended, and why."""
        note = self._read(self._note_at(index), _NOTE)
        return VERDICTS[self._numbers[_place(index) + 2]], note

    def _note_at(self, index: int) -> int:
        return _MESSAGE + index * _NOTE

    def _write(self, start: int, size: int, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")[: size - 1]
        self._texts[start : start + size] = data.ljust(size, b"\0")

    def _read(self, start: int, size: int) -> str:
        data = bytes(self._texts[start : start + size])
        return data.partition(b"\0")[0].decode("utf-8", "ignore")


def _place(index: int) -> int:
    return _FIRINGS + index * _PER_FIRING
