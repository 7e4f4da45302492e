"""Draw batches of items, and run the command for each.

A draw settles the last batch and takes the next one, in one step of the store, before anything of that batch is run. A
draw whose answer was lost is repeated under the same number: the answer is the same.

A word of the command that contains `{}` is given once for each item, with the item in its place. Without such a word
the items follow the command. With `--stdin` they are lines of its standard input.

On descriptor 3 the command may write a line for each item, `ok ITEM` or `fail ITEM REASON`. ITEM is what identifies the
item, or its id. It counts more than the exit status, which decides about the items that are not named:

    exit status 0          They are done.
    another exit status    A single item has failed. Of several, any may be done, so they are in doubt.
    a timeout              The same.
    a signal               They are in doubt: the command has not said that it failed.
"""

from __future__ import annotations

import errno
import os

from oncecron.core import clock
from oncecron.core.errors import EX_NOT_EXECUTABLE, EX_TEMPFAIL, StoreError, shortage_of
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import CALL_TIMEOUT
from oncecron.host.safe_paths import memory_file
from oncecron_each.item_model import (
    LONGEST_REASON,
    Draw,
    ItemResult,
    after_failure,
    item_id,
    item_ids,
)
from oncecron_each.item_times import PROGRESS_INTERVAL
from oncecron_each.loader import check_drawn
from oncecron_each.runner import LEASE_LOST, RESULTS, Runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oncecron.core.retry import RetryPolicy
    from oncecron_each.item_model import Drawn, DrawnItem, ItemCounts, ItemList
    from oncecron_each.runner import CommandEnd
    from oncecron_each.spec import ItemsSpec

_PLACEHOLDER = b"{}"
_LONGEST_REPORT = 1 << 22
"""Bytes of descriptor 3 that count: a thousand items with the longest reasons."""


class Worker(Runner):
    """Runs the command for one batch after another."""

    def run(self) -> int:
        """Draw until nothing is left; return the exit status."""
        command = Command(
            [os.fsencode(word) for word in self._spec.command],
            self._environment,
            self._items_of,
            self._items,
        )
        self._progress_at = 0.0
        self._report: Report | None = None
        self._processes.close_input()
        draw = Draw(
            1,
            wanted=self._items.batch,
            slots=self._spec.firing.shards,
            redraw_below=self._items.redraw_below,
        )
        while True:
            self._show_progress()
            if self._processes.stopped_by:
                draw = draw._replace(wanted=0)
            drawn = self._draw(draw)
            if drawn is None:
                return self._end("interrupted", LEASE_LOST, EX_TEMPFAIL)
            if self._processes.stopped_by:
                self._give_back(draw, drawn.items, "not started")
                self._count_what_is_left()
                return self._end_interrupted()
            if drawn.stopped:
                self._count_what_is_left()
                return self._end("interrupted", drawn.stopped, EX_TEMPFAIL)
            if drawn.items:
                try:
                    results = self._run(command, drawn.items)
                except OSError as error:
                    return self._cannot_start(draw, drawn.items, error)
                draw = draw._replace(number=draw.number + 1, results=results)
            elif drawn.wait is None:
                return self._end_over()
            else:
                draw = draw._replace(results=())
                # Others may queue items meanwhile, and a draw tells whether the lease lives.
                self._processes.sleep(min(drawn.wait, self._spec.firing.ttl))

    def _draw(self, draw: Draw) -> Drawn | None:
        drawn = self._ask(lambda deadline: self._store.draw(self._lease, draw, deadline=deadline))
        for item in drawn.items if drawn else ():
            check_drawn(item)
        return drawn

    def _run(self, command: Command, batch: Sequence[DrawnItem]) -> list[ItemResult]:
        """Run the command for a batch; return the items that are not done. Raises `OSError` if it cannot start."""
        report = self._report = self._report or Report()
        report.begin()
        descriptors = {RESULTS: report.write_end}
        if self._items.stdin:
            descriptors[0] = command.input(batch)
        try:
            pid = self._processes.start(
                self._spec.program, command.arguments(batch), command.variables(batch), descriptors
            )
            end = self._processes.finish(pid, self._items.timeout, report.read_end, report.read)
        finally:
            if self._items.stdin:
                os.close(descriptors[0])
        if not end.is_alone:  # what lives on may write there
            report.close()
            self._report = None
        said = reports_of(batch, self._items_of, report.lines())
        return results_of(batch, end, said, self._items.retry_policy)

    def _give_back(self, draw: Draw, batch: Sequence[DrawnItem], why: str) -> None:
        results = [ItemResult(item.position, "failed", delay=0.0, reason=why) for item in batch]
        if results:
            self._draw(draw._replace(number=draw.number + 1, results=results, wanted=0))

    def _cannot_start(self, draw: Draw, batch: Sequence[DrawnItem], error: OSError) -> int:
        shortage = shortage_of(error)
        why = f"cannot start {self._spec.shown_program}: {shortage or error.strerror}"
        if error.errno == errno.E2BIG:
            why += "; use a smaller --batch, or --stdin"
        self._give_back(draw, batch, why)
        self._say(why)
        return self._end(
            "interrupted", why, shortage.exit_status if shortage else EX_NOT_EXECUTABLE
        )

    def _counts(self) -> ItemCounts | None:
        return self._ask(lambda deadline: self._store.progress(self._items_of, deadline=deadline))

    def _count_what_is_left(self) -> None:
        """Read the counts for the summary of the host, once: nothing waits for a store that is away."""
        deadline = clock.lease_time(self._store.lease_clock) + CALL_TIMEOUT
        try:
            counts = self._store.progress(self._items_of, deadline=deadline)
        except StoreError:
            return
        if counts:
            self._items.page.counts = counts

    def _end_over(self) -> int:
        counts = self._counts()
        if counts is None:
            return self._end("over", "", 0)
        self._items.page.counts = counts
        return self._end("over", "", 1 if counts.lost or counts.dead else 0)

    def _show_progress(self) -> None:
        if not self._items.shows_progress:
            return
        now = clock.lease_time(self._store.lease_clock)
        if now < self._progress_at:
            return
        self._progress_at = now + PROGRESS_INTERVAL
        counts = self._counts()
        if counts:
            self._items.page.counts = counts


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
        return list(self._expand(given))

    def _expand(self, given: Sequence[bytes]) -> Iterator[bytes]:
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
        descriptor = memory_file("oncecron-items")
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


def reports_of(
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
    batch: Sequence[DrawnItem], end: CommandEnd, said: Mapping[int, str | None], policy: RetryPolicy
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
