"""A batch of items: the words and the variables of its command, and what the command says about its items.

A word that contains `{}` is given once for each item, with the item in its place. Without such a word the items follow
the command. With `--stdin` they are lines of its standard input.

On descriptor 3 the command may write a line for each item, `ok ITEM` or `fail ITEM REASON`. ITEM is what identifies the
item, or its id. It counts more than the exit status, which decides about the items that are not named:

    exit status 0          They are done.
    another exit status    A single item has failed. Of several, any may be done, so they are in doubt.
    a timeout              The same.
    a signal               They are in doubt: the command has not said that it failed.
"""

from __future__ import annotations

import os

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.each.values import LONGEST_REASON, ItemResult, after_failure, item_id, item_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oncecron.core.retry import RetryPolicy
    from oncecron.each.processes import CommandEnd
    from oncecron.each.spec import ItemsSpec
    from oncecron.each.values import DrawnItem, ItemList

_PLACEHOLDER = b"{}"
_LONGEST_REPORT = 1 << 22
"""Bytes of descriptor 3 that count: a thousand items with the longest reasons."""


class Command(NamedTuple):
    """The command of all batches."""

    words: Sequence[bytes]
    environment: Mapping[bytes, bytes]
    items_of: ItemList
    items: ItemsSpec

    def arguments(self, batch: Sequence[DrawnItem]) -> list[bytes]:
        """Return the words for a batch."""
        if self.items.stdin:
            return list(self.words)
        given = [item.payload.encode() for item in batch]
        if self.items.in_shell or not any(_PLACEHOLDER in word for word in self.words):
            return [*self.words, *given]
        return list(self._replaced(given))

    def _replaced(self, given: Sequence[bytes]) -> Iterator[bytes]:
        for word in self.words:
            if _PLACEHOLDER in word:
                yield from (word.replace(_PLACEHOLDER, item) for item in given)
            else:
                yield word

    def variables(self, batch: Sequence[DrawnItem]) -> dict[bytes, bytes]:
        """Return the environment for a batch: the ids of its items, in their order; and of a single one, its id."""
        ids = " ".join(item_ids(self.items_of, (item.identity for item in batch))).encode()
        added = {b"ONCECRON_ITEM_IDS": ids}
        if len(batch) == 1:
            added[b"ONCECRON_ITEM_ID"] = ids
        return {**self.environment, **added}

    def input(self, batch: Sequence[DrawnItem]) -> int:
        """Return a descriptor from which the command reads the items of a batch. Raises `OSError`."""
        end = b"\0" if self.items.null else b"\n"
        try:
            descriptor = os.memfd_create("oncecron-items")
        except OSError:
            from oncecron.run.unnamed_file import unnamed_file  # noqa: PLC0415 - almost never

            descriptor = unnamed_file()
        with open(descriptor, "wb", closefd=False) as lines:
            lines.writelines(item.payload.encode() + end for item in batch)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


class Report:
    """What commands write on descriptor 3, one after the other."""

    def __init__(self) -> None:
        """Make the pipe; `write_end` is the command's."""
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self._data = bytearray()

    def begin(self) -> None:
        """Begin with another command."""
        self._data.clear()

    def read(self) -> None:
        """Take what has been written. It never waits for the end: what the command leaves behind may keep it open."""
        try:
            while data := os.read(self.read_end, 1 << 16):
                if len(self._data) < _LONGEST_REPORT:
                    self._data += data
        except BlockingIOError:
            return

    def lines(self) -> list[str]:
        """Return the lines."""
        return self._data.decode("utf-8", "backslashreplace").split("\n")

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.read_end)
        os.close(self.write_end)


def said_of(
    batch: Sequence[DrawnItem], items_of: ItemList, lines: Sequence[str]
) -> dict[int, str | None]:
    """Return what the command said, by the position of the item: None for `ok`, else the reason of its failure.

    The last line about an item counts. Others are ignored: they may be meant for people.
    """
    said: dict[int, str | None] = {}
    reports = [line for line in lines if line.startswith(("ok ", "fail "))]
    if not reports:
        return said
    names = {
        name: item for item in batch for name in (item.identity, item_id(items_of, item.identity))
    }
    longest_first = sorted(names, key=len, reverse=True)  # an item may begin with another one
    for line in reports:
        word, _, rest = line.partition(" ")
        name = next(
            (each for each in longest_first if rest == each or rest.startswith(f"{each} ")), None
        )
        if name is None:
            continue
        reason = rest[len(name) + 1 :].replace("\0", "")[: LONGEST_REASON // 4]
        said[names[name].position] = None if word == "ok" else reason or "failed"
    return said


def results_of(
    batch: Sequence[DrawnItem],
    end: CommandEnd,
    said: Mapping[int, str | None],
    policy: RetryPolicy,
) -> list[ItemResult]:
    """Return how the items of a batch ended that are not done."""
    succeeded = end.status == 0 and not end.timed_out
    if succeeded and not said:
        return []
    code = 124 if end.timed_out else end.exit_code
    results = []
    for item in batch:
        if item.position in said:
            reason = said[item.position]
            if reason is not None:
                results.append(after_failure(item, policy, exit_code=code, reason=reason))
        elif succeeded:
            continue
        elif len(batch) == 1 and code is not None:
            results.append(after_failure(item, policy, exit_code=code, reason=end.reason))
        else:
            results.append(ItemResult(item.position, "lost", reason=end.reason))
    return results
