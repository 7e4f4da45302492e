"""Carry out `oncecron each` on one host: the load of the list, then a firing for each of its slots.

Every firing is one of `oncecron run`, with its own wrapper and guard: it claims a shard, and its runner is the job.
This process starts them, passes signals on, shows the progress, and sums their exit statuses up. It holds nothing: when
it is killed, the firings get TERM and end as if they had been stopped.

1. The load, shard N. If another host loads, it waits. If the tick has been loaded, the firing is skipped (`done`).
2. The slots, shards 0 to N - 1: up to `--jobs` firings at a time, each of which claims one slot after another.
"""

from __future__ import annotations

import os
import select
import time

from oncecron.core.errors import EX_SOFTWARE, EX_TEMPFAIL, OncecronError, shortage_of
from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import LONGEST_SLEEP
from oncecron.host import stderr
from oncecron.run import process_tree
from oncecron.run.firing import begin
from oncecron.run.wrapper import failed, spool_unstarted, supervise
from oncecron.stores.address import shell_quoted
from oncecron_each.item_times import PROGRESS_LINE_INTERVAL
from oncecron_each.spec import make_each_spec, slot_specs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn, Protocol

    from oncecron.config.run_parser import ParsedRun
    from oncecron.run.seams import Observer
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore
    from oncecron_each.item_model import ItemCounts
    from oncecron_each.spec import ItemsSpec

    OpenStore = Callable[[], LeaseStore]

    class Display(Protocol):
        """Shows the progress at a terminal."""

        def show(self, counts: ItemCounts) -> None:
            """Draw it; about once a second."""

        def show_load(self, items: int) -> None:
            """Draw how many items of the list have been sent to the store; about once a second."""

        def close(self) -> None:
            """Clear what was drawn; `show` is not called again."""


_SIGNAL = 128
"""An exit status above it stands for a signal."""


def each(
    parsed: ParsedRun,
    display: Display | None,
    observe: Callable[[RunSpec], Observer | None] | None = None,
) -> int:
    """Carry out `oncecron each`; return the exit status. Raises `OncecronError` before anything runs.

    `display` shows the progress; None: there is no terminal.
    """
    load, items, wait = make_each_spec(parsed, shows_progress=display is not None)
    load = load._replace(observe=observe)
    return begin(load, lambda load, open_store: _Host(load, items, wait, open_store, display).run())


class _Host:
    def __init__(
        self,
        load: RunSpec,
        items: ItemsSpec,
        wait: float,
        open_store: OpenStore,
        display: Display | None,
    ) -> None:
        """`load`: the spec of the firing that loads the list; `wait`: how long the others wait for a slot."""
        self._load, self._items, self._wait = load, items, wait
        self._page = items.page
        self._open_store = open_store
        self._display = display
        self._line_at = time.monotonic() + PROGRESS_LINE_INTERVAL
        self._signals = process_tree.Signals()
        self._stopped = False

    def run(self) -> int:
        """Load, then run the slots; return the exit status."""
        [status] = self._carry_out([self._load])
        loaded = self._page.has_run(self._items.number)
        refusal = self._page.refusal
        if (status and loaded) or self._stopped or (not loaded and refusal != "done"):
            self._show_skip()
            return status
        self._page.forget_refusals()
        specs = slot_specs(self._load, self._items, self._wait)
        statuses = self._carry_out(specs)
        ran = [self._page.has_run(index) for index in range(len(specs))]
        if not any(ran):
            self._show_skip()
        self._summarise(statuses)
        skipped = self._load.skip_exit
        counted = [
            status
            for status, has_run in zip(statuses, ran, strict=True)
            if has_run or status != skipped
        ]
        return next(filter(None, counted), 0) if counted else skipped

    def _show_skip(self) -> None:
        if self._page.skip:
            stderr.complain(self._page.skip)

    def _summarise(self, statuses: Sequence[int]) -> None:
        """Say which items need a person, or another firing if this one was stopped: cron mails it."""
        counts = self._page.counts
        if self._display:
            self._display.close()
        parts = [f"{counts.lost:,} in doubt"] if counts.lost else []
        parts += [f"{counts.dead:,} dead"] if counts.dead else []
        stopped = any(status == EX_TEMPFAIL or status > _SIGNAL for status in statuses)
        left = counts.queued + counts.failed
        parts += [f"{left:,} left"] if stopped and left else []
        if parts:
            firing = self._load.firing
            tick = shell_quoted(firing.tick.text or "")
            cure = self._load.command_line(f"items {firing.key} --tick {tick}")
            all_parts = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
            self._say(f"of {counts.total:,} items, {all_parts}; see {cure}")

    def _say(self, text: str) -> None:
        stderr.complain(f"key {self._load.firing.key}: {text}")

    def _carry_out(self, specs: Sequence[RunSpec]) -> list[int]:
        started = [self._start(spec) for spec in specs]
        # As PID 1 of a container, it reaps what firings leave behind too.
        tree = process_tree.Tree(*filter(None, started))
        poll = select.poll()
        poll.register(self._signals.fd, select.POLLIN)
        while tree.awaited:
            poll.poll(LONGEST_SLEEP * 1000)
            self._pass_on(tree)
            tree.reap()
            self._show_progress()
        return [
            process_tree.exit_status(tree.statuses[pid]) if pid else EX_TEMPFAIL for pid in started
        ]

    def _start(self, spec: RunSpec) -> int:
        """Fork a firing; return its pid, 0 if this host is short of processes: the others go on."""
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            shortage = shortage_of(error)
            if shortage is None:
                raise
            spool_unstarted(spec)
            self._say(str(shortage))
            return 0
        if pid == 0:
            self._be_firing(spec, parent)
        return pid

    def _be_firing(self, spec: RunSpec, parent: int) -> NoReturn:
        status = EX_SOFTWARE
        try:
            process_tree.die_with(parent, signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._signals.mask_before)
            os.close(self._signals.fd)
            holder = spec.firing.holder._replace(pid=os.getpid())
            spec = spec._replace(firing=spec.firing._replace(holder=holder))
            status = supervise(spec, self._open_store)
        except OncecronError as error:
            self._say(str(error))
            status = error.exit_status
        except KeyboardInterrupt:
            status = EX_TEMPFAIL
        except BaseException as error:  # noqa: BLE001 - the process ends here, with a word
            status = failed(error, spec)
        finally:
            os._exit(status)

    def _pass_on(self, tree: process_tree.Tree) -> None:
        """Pass signals on to the firings; those of a terminal reach them by themselves."""
        for number, from_terminal in self._signals.read():
            if number == signal.SIGCHLD:
                continue
            self._stopped |= number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
            if not from_terminal:
                tree.signal_awaited(number)

    def _show_progress(self) -> None:
        counts = self._page.counts
        if not counts.total:
            if self._display and self._page.loading:
                self._display.show_load(self._page.loading)
            return
        if self._display:
            self._display.show(counts)
        elif self._load.verbose and time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + PROGRESS_LINE_INTERVAL
            self._say(progress_line(counts))


def progress_line(counts: ItemCounts) -> str:
    """Return the progress of a tick on one line."""
    more = [
        f"{number:,} {what}"
        for number, what in (
            (counts.failed, "wait for a retry"),
            (counts.lost, "in doubt"),
            (counts.dead, "dead"),
        )
        if number
    ]
    return ", ".join((f"{counts.done:,}/{counts.total:,} items are done", *more))
