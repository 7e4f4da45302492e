"""What runs as the job of a shard of `each`: its calls to the store, its signals, and the commands that it starts.

The runner is forked from its guard, so the lease and its owner pass to it in memory, and to nothing that it executes.
It has its own connection to the store. Each of its calls first proves that the lease still lives, so a runner that has
lost it loads, draws and settles nothing. While the store is unreachable the runner asks again with jitter. Its guard
ends it before the lease ends.

The guard kills the runner and everything below it when the lease or the wrapper is gone, and sends the signals that end
a firing to every process of the tree. So the runner only notes those, and passes on the others. It gets TERM when its
guard dies. Then it kills what it has started, and exits: the wrapper, which would do that too, may be dead as well.

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

import os
import select
import time

from oncecron.core import clock
from oncecron.core.errors import EX_TEMPFAIL, OncecronError, StoreUnavailable
from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.retry import Backoff
from oncecron.core.timing import CALL_TIMEOUT, KILL_TIMEOUT, LONGEST_SLEEP, NEVER, POLL_ROUNDING
from oncecron.host import stderr
from oncecron.run import process_tree
from oncecron.run.job import ENDING_SIGNALS, signal_note
from oncecron.run.program import as_execvp
from oncecron.run.wrapper import failed
from oncecron.stores import steady
from oncecron_each.item_model import ItemList
from oncecron_each.store import open_item_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from oncecron.core.model import Lease
    from oncecron.run.spec import RunSpec
    from oncecron_each.shared_page import Verdict
    from oncecron_each.spec import ItemsSpec

    Answer = TypeVar("Answer")

_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU)
"""The interpreter and the guard ignore them; a command must not."""
LEASE_LOST = "the lease was lost"
RESULTS = 3
"""The descriptor on which a command names the items that it has done or failed."""


class Runner:
    """What runs as the job of a shard: the load of the list (`loader`), or the commands for its items (`worker`)."""

    @classmethod
    def body(
        cls, spec: RunSpec, items: ItemsSpec, lease: Lease, environment: Mapping[str, str]
    ) -> Callable[[], int]:
        """Return the function that the process of the runner calls; see `Body.begin`."""

        def run() -> int:
            try:
                return cls(spec, items, lease, environment).run()
            except OncecronError as error:
                items.page.judge(items.number, "interrupted", str(error))
                stderr.complain(f"key {spec.firing.key}: {error}")
                return error.exit_status
            except BaseException as error:  # noqa: BLE001 - the process ends here, with a word
                return failed(error, spec)

        return run

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

    def run(self) -> int:
        """Do the work; return the exit status."""
        raise NotImplementedError

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

    def _end(self, verdict: Verdict, note: str, exit_status: int) -> int:
        self._items.page.judge(self._items.number, verdict, note)
        return exit_status

    def _end_interrupted(self) -> int:
        number = self._processes.stopped_by or 0
        return self._end("interrupted", signal_note(number), 128 + number)


class CommandEnd(NamedTuple):
    """How a command ended."""

    status: int
    """As waitpid(2) reports it."""
    timed_out: bool
    is_alone: bool = True
    """Nothing that it has started lives on."""

    @property
    def exit_code(self) -> int | None:
        """Its exit status; None: a signal ended it."""
        return None if os.WIFSIGNALED(self.status) else os.WEXITSTATUS(self.status)

    @property
    def reason(self) -> str:
        """How it ended, for people."""
        if self.timed_out:
            return "timed out"
        code = self.exit_code
        return f"signal {os.WTERMSIG(self.status)}" if code is None else f"exit status {code}"


class Processes:
    """What runs below this runner."""

    def __init__(self, grace: float) -> None:
        """Take over the signals of this process. `grace`: seconds from TERM to KILL after a timeout."""
        self.stopped_by: int | None = None
        """The first signal that ends the firing."""
        self.nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # takes the number 3
        self._grace = grace
        self._guard = os.getppid()
        self._signals = process_tree.Signals()
        self._tree = process_tree.Tree()
        self._may_have_ended = False
        """A child has ended since the last start."""
        self._poll = select.poll()
        self._poll.register(self._signals.fd, select.POLLIN)
        process_tree.become_subreaper()

    def close_input(self) -> None:
        """Read nothing from now on, and neither does a command that is given no other input."""
        os.dup2(self.nothing, 0)

    def sleep(self, seconds: float, fd: int | None = None) -> bool:
        """Wait until a descriptor is readable (True), a signal ends the firing, or the time has passed."""
        deadline = time.monotonic() + seconds
        if fd is not None:
            self._poll.register(fd, select.POLLIN)
        try:
            while self.stopped_by is None and (left := deadline - time.monotonic()) > 0:
                ready = self._wait(left)
                if fd in ready:
                    return True
        finally:
            if fd is not None:
                self._poll.unregister(fd)
        return False

    def start(
        self,
        program: str,
        arguments: list[bytes],
        environment: Mapping[bytes, bytes],
        descriptors: Mapping[int, int],
    ) -> int:
        """Execute a program; return its pid. `descriptors`: ours by those of the program. Raises `OSError`.

        posix_spawn(3) does not copy the memory of this process, as fork(2) does: that is half of what a start costs.
        """
        actions = [(os.POSIX_SPAWN_DUP2, ours, its) for its, ours in descriptors.items()]

        def spawn(file: str, words: list[Any]) -> int:
            return os.posix_spawn(
                file,
                words,
                environment,
                file_actions=actions,
                setsigmask=self._signals.mask_before,
                setsigdef=_DEFAULT_SIGNALS,
            )

        self._may_have_ended = False
        process_tree.restore_core_limit()  # which posix_spawn cannot set
        try:
            pid = as_execvp(spawn, program, arguments)
        finally:
            process_tree.refuse_core()
        self._tree.expect(pid)
        return pid

    def finish(
        self, pid: int, timeout: float | None, results: int | None, read: Callable[[], None]
    ) -> CommandEnd:
        """Wait for the end of a command; after a failure nothing that it left behind lives on.

        `read` is called when the descriptor `results` is readable, and once more at the end.
        """
        kill_at, timed_out = NEVER, False
        term_at = NEVER if timeout is None else time.monotonic() + timeout
        if results is not None:
            self._poll.register(results, select.POLLIN)
        while True:
            if self._may_have_ended:
                self._tree.reap()
            status = self._tree.statuses.pop(pid, None)
            if status is not None:
                break
            now = time.monotonic()
            if now >= kill_at:
                self._tree.kill()
            elif now >= term_at and not timed_out:
                timed_out, kill_at = True, now + self._grace
                self._tree.signal(signal.SIGTERM)
            due = kill_at if timed_out else term_at
            if results in self._wait(max(0.0, due - now)):
                read()
        if results is not None:
            self._poll.unregister(results)
            read()
        is_alone = not self._tree.reap()
        if (status != 0 or timed_out) and not is_alone:
            self._end_what_is_left()
        return CommandEnd(status, timed_out, is_alone)

    def kill_all(self) -> None:
        """Kill what still runs below this process."""
        self._tree.kill_all(KILL_TIMEOUT)

    def _wait(self, seconds: float) -> list[int]:
        timeout = min(LONGEST_SLEEP, seconds) + POLL_ROUNDING
        ready = [descriptor for descriptor, _ in self._poll.poll(timeout * 1000)]
        if self._signals.fd in ready:
            for number, _ in self._signals.read():
                self._heed(number)
        return ready

    def _heed(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._may_have_ended = True
            return
        if os.getppid() != self._guard:
            self.kill_all()
            os._exit(EX_TEMPFAIL)
        if number in ENDING_SIGNALS:
            self.stopped_by = self.stopped_by or number
        else:
            self._tree.signal_awaited(number)

    def _end_what_is_left(self) -> None:
        self._tree.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._grace
        while self._tree.reap():
            if time.monotonic() >= deadline:
                self.kill_all()
                return
            self._wait(deadline - time.monotonic())
