"""The end of the job's output, in memory that wrapper, guard and forwarder share.

Only the forwarder adds. Guard and wrapper can read at any time, even if the forwarder was killed. They leave out the
bytes that the forwarder may be overwriting.
"""

from __future__ import annotations

import mmap

from oncecron.core.model import Output

_BEGUN, _TOTAL, _MARK, _OPEN, _COMPLETE = range(5)  # numbers in the head
_HEAD = 5 * 8
_LOOKS = 10  # reads of a ring that is being filled
_CONTINUATIONS = 3  # continuation bytes of the longest UTF-8 character


class Ring:
    """A ring of bytes, and the count of all bytes so far."""

    def __init__(self, size: int) -> None:
        """Make it in memory that a forked process shares; it keeps the last `size` bytes (`--capture`)."""
        self._size = size
        memory = memoryview(mmap.mmap(-1, _HEAD + size))
        self._counts = memory[:_HEAD].cast("Q")
        self._bytes = memory[_HEAD:]

    def add(self, data: bytes) -> None:
        """Append output of the job, over the oldest bytes."""
        total = self._counts[_TOTAL] + len(data)
        self._counts[_BEGUN] = total
        tail = data[-self._size :]
        at = (total - len(tail)) % self._size
        whole = min(len(tail), self._size - at)
        self._bytes[at : at + whole] = tail[:whole]
        self._bytes[: len(tail) - whole] = tail[whole:]
        self._counts[_TOTAL] = total

    @property
    def complete(self) -> bool:
        """Whether everything has been added and nothing more will come."""
        return bool(self._counts[_COMPLETE])

    @complete.setter
    def complete(self, value: bool) -> None:
        self._counts[_COMPLETE] = value

    def begin(self) -> None:
        """Mark the beginning of an attempt's output."""
        self._counts[_MARK] = self._counts[_TOTAL]
        self._counts[_OPEN] = 1

    def end(self) -> Output | None:
        """Return the output of the attempt; None if none has begun, or it has been returned before."""
        if not self._counts[_OPEN]:
            return None
        self._counts[_OPEN] = 0
        return output_of(*self._since_mark())

    def _since_mark(self) -> tuple[bytes, int]:
        mark = self._counts[_MARK]
        for _ in range(_LOOKS):
            total = self._counts[_TOTAL]
            copy = bytes(self._bytes)
            first = max(mark, self._counts[_BEGUN] - self._size)
            if first <= total:
                at = first % self._size
                return (copy[at:] + copy[:at])[: total - first], first - mark
        return b"", total - mark  # a daemon writes faster than this can be read


def output_of(data: bytes, cut: int) -> Output:
    """Return bytes as the log keeps them; `cut` bytes came before, perhaps within a UTF-8 character."""
    split = 0
    while cut and split < _CONTINUATIONS and data[split : split + 1] in _CONTINUING:
        split += 1
    text = data[split:].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    return Output(text, cut + split)


_CONTINUING = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))
