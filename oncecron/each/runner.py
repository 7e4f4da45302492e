"""What runs as the job of a shard of `each`: the load of the list, or the commands for its items.

The runner is forked from its guard, so the lease and its owner pass to it in memory, and to nothing that it executes.
It has its own connection to the store. Each of its calls first proves that the lease still lives, so a runner that has
lost it loads, draws and settles nothing.

A draw settles the last batch and takes the next one, in one step, before anything of that batch is run. While the store
is unreachable the runner asks again with jitter, under the same number: the answer is the same. Its guard ends it
before the lease ends.

How it ends is on the page, for the record of the slot (`Verdict`), and its exit status is:

    0          Nothing is left for this slot, and all items that ended are done.
    1          Nothing is left for this slot, and items are in doubt or dead, of this slot or of another one.
    65         An item of the list is wrong: nothing was loaded.
    75         The key is paused, the host drained or short of resources, or the lease lost: the rest stays queued.
    126        The command cannot be started.
    128 + N    Signal N has ended the firing: the rest stays queued.
    other      That of the command that lists the items, which has failed: nothing was loaded.
"""

from __future__ import annotations

import errno
import os

from oncecron.core import clock, stderr
from oncecron.core.errors import (
    EX_DATAERR,
    EX_NOT_EXECUTABLE,
    EX_SOFTWARE,
    EX_TEMPFAIL,
    OncecronError,
    StoreError,
    StoreUnavailable,
    shortage_of,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.retry import Backoff
from oncecron.core.timing import CALL_TIMEOUT, LOAD_CALL_TIMEOUT, PROGRESS_INTERVAL
from oncecron.each import lists
from oncecron.each.batch import Command, Report, results_of, said_of
from oncecron.each.processes import RESULTS, Processes
from oncecron.each.values import Draw, ItemError, ItemList, ItemResult, check_drawn
from oncecron.run.job import signal_note
from oncecron.stores import open_item_store, steady

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from oncecron.core.model import Lease
    from oncecron.each.page import Verdict
    from oncecron.each.spec import ItemsSpec
    from oncecron.each.values import Chunk, Drawn, DrawnItem, ItemCounts, Loaded
    from oncecron.run.spec import RunSpec

    Answer = TypeVar("Answer")

_LEASE_LOST = "the lease was lost"


def body(
    spec: RunSpec, items: ItemsSpec, lease: Lease, environment: Mapping[str, str]
) -> Callable[[], int]:
    """Return the function that the process of the runner runs; it returns the exit status, and never raises."""

    def run() -> int:
        kind = _Load if items.loads else _Work
        runner = None
        try:
            runner = kind(spec, items, lease, environment)
            return runner.run()
        except OncecronError as error:
            items.page.judge(items.number, "interrupted", str(error))
            stderr.complain(f"key {spec.firing.key}: {error}")
            return error.exit_status
        except BaseException as error:  # noqa: BLE001 - the process ends here, with a word
            stderr.complain(f"internal error: {type(error).__name__}: {error}; -vv shows where")
            if spec.verbose > 1:
                stderr.show_trace()
            return EX_SOFTWARE

    return run


class _Runner:
    """What both kinds of runners do."""

    def __init__(
        self, spec: RunSpec, items: ItemsSpec, lease: Lease, environment: Mapping[str, str]
    ) -> None:
        self._spec = spec
        self._items = items
        self._lease = lease
        self._items_of = ItemList(lease.key, lease.tick or "")
        self._processes = Processes(spec.grace)
        store = open_item_store(spec.address, spec.namespace, spec.firing.ttl)
        self._store = steady(store, spec.address, spec.reread_address)
        named = {**environment, "ONCECRON_SHARDS": str(items.slots)}
        self._environment = {os.fsencode(name): os.fsencode(named[name]) for name in named}

    def _ask(self, call: Callable[[float], Answer], timeout: float = CALL_TIMEOUT) -> Answer:
        """Call the store until it answers. Raises `Interrupted`, `StoreError` if a retry does not help."""
        backoff = None
        while True:
            try:
                return call(clock.lease_time(self._store.lease_clock) + timeout)
            except StoreUnavailable as error:
                self._store.close()
                if self._spec.verbose:
                    self._say(f"the items are not reached yet, retrying: {error}")
            backoff = backoff or Backoff()
            if self._processes.stopped_by:  # the guard kills this process after the grace
                self._processes.stopped_by, number = None, self._processes.stopped_by
                self._processes.sleep(backoff.delay())
                self._processes.stopped_by = self._processes.stopped_by or number
            else:
                self._processes.sleep(backoff.delay())

    def _say(self, text: str) -> None:
        stderr.complain(f"key {self._lease.key}: {text}")

    def _ends(self, verdict: Verdict, note: str, exit_status: int) -> int:
        self._items.page.judge(self._items.number, verdict, note)
        return exit_status

    def _interrupted(self) -> int:
        """End after a signal."""
        number = self._processes.stopped_by or 0
        return self._ends("interrupted", signal_note(number), 128 + number)


class _Load(_Runner):
    """Loads the list."""

    def run(self) -> int:
        """Load the list; return the exit status."""
        try:
            loaded = self._load()
        except lists.Interrupted:
            return self._interrupted()
        except (ItemError, lists.UnlistedError, OSError) as error:
            cause = shortage_of(error) or error
            status = getattr(cause, "exit_status", EX_DATAERR)
            status = EX_DATAERR if isinstance(error, ItemError) else status
            self._say(f"{cause}; nothing was loaded")
            return self._ends("not-loaded", str(cause), status)
        if loaded is None:
            return self._ends("interrupted", _LEASE_LOST, EX_TEMPFAIL)
        if self._spec.verbose:
            self._say(_loaded(loaded))
        return self._ends("over", _loaded(loaded), 0)

    def _load(self) -> Loaded | None:
        """Send the list to the store; return what it has now, or None if the lease is lost."""
        source = self._items.source
        given = self._processes.nothing if os.isatty(0) else 0  # a terminal: --again without a list
        descriptor, pid = (given, None) if source is None else self._list(source)
        blocks = lists.blocks_of(descriptor, self._processes)
        items = lists.items_in(blocks, null=self._items.null, json=self._items.json)
        loaded = None
        for chunk in lists.chunks(items, lambda: self._check(pid), self._items.keep):
            loaded = self._send(chunk)
            if loaded is None:
                return None
        return loaded

    def _send(self, chunk: Chunk) -> Loaded | None:
        def load(deadline: float) -> Loaded | None:
            return self._store.load(self._lease, self._items_of, chunk, deadline=deadline)

        return self._ask(load, LOAD_CALL_TIMEOUT)

    def _list(self, source: str) -> tuple[int, int]:
        """Start the command that lists the items; return the descriptor of its output, and its pid."""
        from oncecron.run.firing import look_up  # noqa: PLC0415 - a firing imports this module, not the other way
        from oncecron.run.spec import shell  # noqa: PLC0415 - as above

        program = shell()
        read_end, write_end = os.pipe()
        words = [os.fsencode(word) for word in (program, "-c", source)]
        pid = self._processes.start(
            look_up(program, program), words, self._environment, {1: write_end}
        )
        os.close(write_end)
        return read_end, pid

    def _check(self, pid: int | None) -> None:
        """Wait for the command that lists the items. Raises `UnlistedError`, `Interrupted`."""
        if pid is None:
            return
        end = self._processes.finish(pid, None, None, lambda: None)
        if self._processes.stopped_by:
            raise lists.Interrupted
        if end.status != 0:
            code = end.exit_code
            status = 128 + os.WTERMSIG(end.status) if code is None else code
            raise lists.UnlistedError(f"--items has failed: {end.reason}", status)


def _loaded(loaded: Loaded) -> str:
    known = f", {loaded.known:,} known" if loaded.known else ""
    repeated = f", {loaded.repeated:,} repeated in the list" if loaded.repeated else ""
    return f"{loaded.added:,} items loaded{known}{repeated}"


class _Work(_Runner):
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
            if self._processes.stopped_by:
                draw = draw._replace(wanted=0)
            drawn = self._draw(draw)
            if drawn is None:
                return self._ends("interrupted", _LEASE_LOST, EX_TEMPFAIL)
            if self._processes.stopped_by:
                self._give_back(draw, drawn.items, "not started")
                self._count_what_is_left()
                return self._interrupted()
            if drawn.stopped:
                self._count_what_is_left()
                return self._ends("interrupted", drawn.stopped, EX_TEMPFAIL)
            if drawn.items:
                try:
                    results = self._run(command, drawn.items)
                except OSError as error:
                    return self._cannot_start(draw, drawn.items, error)
                draw = draw._replace(number=draw.number + 1, results=results)
            elif drawn.wait is None:
                return self._over()
            else:
                draw = draw._replace(results=())
                self._processes.sleep(min(drawn.wait, self._spec.firing.ttl))
            self._show_progress()

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
                self._spec.program,
                command.arguments(batch),
                command.variables(batch),
                descriptors,
            )
            end = self._processes.finish(pid, self._items.timeout, report.read_end, report.read)
        finally:
            if self._items.stdin:
                os.close(descriptors[0])
        if not end.is_alone:  # what lives on may write there
            report.close()
            self._report = None
        said = said_of(batch, self._items_of, report.lines())
        return results_of(batch, end, said, self._items.retry_policy)

    def _give_back(self, draw: Draw, batch: Sequence[DrawnItem], why: str) -> None:
        """Give a batch back that was not run, to be drawn at once by another slot or a later firing."""
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
        return self._ends(
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

    def _over(self) -> int:
        """End where nothing is left for this slot."""
        counts = self._counts()
        if counts is None:
            return self._ends("over", "", 0)
        self._items.page.counts = counts
        return self._ends("over", "", 1 if counts.lost or counts.dead else 0)

    def _show_progress(self) -> None:
        """Read the counts for the display now and then, if there is one."""
        if not self._items.shows_progress:
            return
        now = clock.lease_time(self._store.lease_clock)
        if now < self._progress_at:
            return
        self._progress_at = now + PROGRESS_INTERVAL
        counts = self._counts()
        if counts:
            self._items.page.counts = counts
