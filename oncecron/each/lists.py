"""Read the list of items, from a command or from standard input, as chunks for the store.

Only one chunk is in memory. A list becomes visible in the store with its last chunk, and that is sent after the command
has succeeded: a list that breaks off, a wrong item, or a command that fails load nothing.
"""

from __future__ import annotations

import os

from oncecron.core.errors import OncecronError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import NEVER
from oncecron.each.values import (
    LARGEST_CHUNK,
    LARGEST_ITEM,
    Chunk,
    item_of_json,
    item_of_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncecron.each.processes import Processes
    from oncecron.each.values import Item

_BLOCK = 1 << 16


class Interrupted(OncecronError):  # noqa: N818 - the firing is to end
    """A signal has ended the firing."""


class UnlistedError(OncecronError):
    """The command that lists the items has failed."""

    def __init__(self, message: str, exit_status: int) -> None:
        """`exit_status`: that of the command."""
        super().__init__(message)
        self.exit_status = exit_status


def chunks(
    items: Iterator[Item], check_end: Callable[[], None], keep: float | None
) -> Iterator[Chunk]:
    """Yield the chunks of a list; `check_end` raises before the last one if the list is not complete.

    `keep`: that of the `Chunk`, in seconds.
    """
    number = 0
    waiting: list[Item] = []
    for item in items:
        if len(waiting) == LARGEST_CHUNK:
            yield Chunk(number, waiting, is_last=False)
            number, waiting = number + 1, []
        waiting.append(item)
    check_end()
    yield Chunk(number, waiting, is_last=True, keep=keep)


def items_in(blocks: Iterator[bytes], *, null: bool, json: bool) -> Iterator[Item]:
    """Yield the items of a stream; empty lines are none. Raises `ItemError`."""
    end, item_of = b"\0" if null else b"\n", item_of_json if json else item_of_line
    number, rest = 0, b""
    for block in blocks:
        *lines, rest = (rest + block).split(end)
        for line in lines:
            number += 1
            if line:
                yield item_of(line, number)
        if len(rest) > LARGEST_ITEM:
            item_of(rest, number + 1)  # raises: memory must not grow with a line
    if rest:
        yield item_of(rest, number + 1)


def blocks_of(descriptor: int, processes: Processes) -> Iterator[bytes]:
    """Yield what can be read from a descriptor, to its end. Raises `Interrupted`, `OSError`."""
    while True:
        if not processes.sleep(NEVER, descriptor):
            raise Interrupted
        data = os.read(descriptor, _BLOCK)
        if not data:
            return
        yield data
