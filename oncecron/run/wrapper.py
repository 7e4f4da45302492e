"""The wrapper: the process that cron waits for. It starts the guard, forwards signals, and watches the guard.

- The guard reports `exit N`: the wrapper exits with N, after captured output has been forwarded. `job` means that a
  job runs; `idle` means that none runs, and that the end of the last attempt or shard is on record.
- The guard dies without that report: its processes are our children now (subreaper). The wrapper kills them all,
  records `lost`, and exits with 75.
- Trust ends in a twentieth of the ttl: the guard is stopped, hung or blocked. The wrapper kills job and guard, records
  `lost`, and exits with 75. It does no store I/O here: the record is spooled.
- A signal comes: the wrapper writes it to the guard's pipe, without waiting.
- The wrapper itself is killed: the guard sees the end of that pipe and ends the job.

It imports no driver, and it forks the guard before any thread starts.
"""

from __future__ import annotations

import os
import select

from oncecron.core import clock, system
from oncecron.core.errors import EX_CONFIG, EX_SOFTWARE, EX_TEMPFAIL, ShortageError
from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Ending, Lease, Refusal
from oncecron.core.timing import KILL_TIMEOUT, LONGEST_SLEEP, NEVER, OUTPUT_TIMEOUT, POLL_ROUNDING
from oncecron.host import stderr
from oncecron.run import process_tree
from oncecron.run.firing_states import Claiming
from oncecron.run.guard import NOTE_ONLY, Guard
from oncecron.run.job import ENDING_SIGNALS, Trust, wrapper_kills_at
from oncecron.run.spool import execution_record, skip_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from oncecron.core.model import LostByHolder
    from oncecron.run.capture.capture import Capture
    from oncecron.run.firing_states import State
    from oncecron.run.seams import Observer, Processes
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore

_GUARD_LEAVES_WITHIN = 1.0
"""The wrapper waits this long for the guard to exit after its last report."""


def supervise(
    spec: RunSpec,
    open_store: Callable[[], LeaseStore],
    processes: Processes = process_tree,
    first: Callable[[Guard], State] = Claiming,
) -> int:
    """Run one firing to its end; return the exit status. `first` makes the state with which its guard begins.

    Raises `ShortageError` or `ConfigurationError` if nothing could be started.
    """
    try:
        wrapper = _start_guard(spec, open_store, processes, first)
    except (OSError, MemoryError, ImportError) as error:
        cause = process_tree.cause_of(error)
        if isinstance(cause, ShortageError):
            process_tree.close_above_standard()  # the spool needs some
            spool_unstarted(spec)
        if cause:
            raise cause from error
        raise
    return wrapper.watch()


def _start_guard(
    spec: RunSpec,
    open_store: Callable[[], LeaseStore],
    processes: Processes,
    first: Callable[[Guard], State],
) -> Wrapper:
    trust, calls = Trust(), system.calls
    signals = processes.Signals()
    tree = process_tree.Tree()
    tree.set_apart()  # what a shell started before it executed us, and what the test of --only-if has left
    capture = _capture(spec)  # before this process is a subreaper: init must adopt the forwarder
    observer = _observer(spec)  # likewise
    processes.become_subreaper()
    orders_read, orders_write = calls.pipe()
    reports_read, reports_write = calls.pipe()
    group = os.getpgrp()

    def make_guard() -> Guard:
        calls.close(orders_write)
        calls.close(reports_read)
        pipes = (orders_read, reports_write)
        return Guard(spec, trust, *pipes, open_store, capture, observer, processes)

    guard_pid = calls.fork(lambda: _be_guard(make_guard, first, signals, group, spec, processes))
    calls.close(orders_read)
    calls.close(reports_write)
    if capture:
        capture.close_outputs()
    tree.expect(guard_pid)
    pipes = (orders_write, reports_read)
    return Wrapper(spec, trust, signals, tree, guard_pid, *pipes, capture, observer)


def _observer(spec: RunSpec) -> Observer | None:
    """Return what hears of the firing; None without one, and where it cannot be made: no job depends on it."""
    if not (spec.observe and spec.pings):
        return None
    try:
        return spec.observe(spec)
    except Exception as error:  # noqa: BLE001 - a module that does not load, whatever it is
        if spec.verbose or system.calls.isatty(2):
            why = f"{type(error).__name__}: {error}"
            stderr.complain(f"key {spec.firing.key}: no ping is sent: {why}; reinstall oncecron")
        return None


def spool_unstarted(spec: RunSpec) -> None:
    """Spool that this host could not start the command. Nothing is claimed, so another host may run the tick."""
    refusal = Refusal("broken", detail="the host is short of processes, memory or descriptors")
    _spool(spec, skip_record(spec.firing, refusal), releases=True)


def _spool(spec: RunSpec, record: dict[str, object], *, releases: bool) -> None:
    """Spool a record for the store and for the log store.

    The delivery of an end releases the lease. While a process of the job lives (`releases` is false), the lease must
    keep other hosts out until it expires, so the record goes to the log store only.
    """
    for spool in (*([spec.spool] if releases else []), *([spec.log.spool] if spec.log else [])):
        spool.keep(record)


def _capture(spec: RunSpec) -> Capture | None:
    if not spec.capture:
        return None
    from oncecron.run.capture.capture import Capture  # noqa: PLC0415 - only a firing with --capture pays

    return Capture(spec.capture, f"key {spec.firing.key}: ")


def _be_guard(
    make: Callable[[], Guard],
    first: Callable[[Guard], State],
    signals: process_tree.Signals,
    group: int,
    spec: RunSpec,
    processes: Processes,
) -> NoReturn:
    status = EX_SOFTWARE
    try:
        guard = make()
        processes.become_guard(terminal=spec.terminal)
        for descriptor in guard.pipes:
            system.calls.set_blocking(descriptor, False)
        status = guard.run(signals, group, first)
        guard.report(f"exit {status}")
    except BaseException as error:  # noqa: BLE001 - the process ends here, with a word
        status = failed(error, spec)
    finally:
        system.calls.exit(status if 0 <= status <= 255 else EX_SOFTWARE)  # noqa: PLR2004


def failed(error: BaseException, spec: RunSpec) -> int:
    """Report why a process of a firing ends; return its exit status."""
    if cause := process_tree.cause_of(error):
        stderr.complain(f"key {spec.firing.key}: {cause}")
        return cause.exit_status
    stderr.complain(f"internal error: {type(error).__name__}: {error}; -vv shows where")
    if spec.verbose > 1:
        stderr.show_trace()
    return EX_SOFTWARE


class Wrapper:
    """The watching half of one firing."""

    def __init__(
        self,
        spec: RunSpec,
        trust: Trust,
        signals: process_tree.Signals,
        tree: process_tree.Tree,
        guard_pid: int,
        orders: int,
        reports: int,
        capture: Capture | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._spec = spec
        self._trust = trust
        self._signals = signals
        self._guard_pid = guard_pid
        self._orders = orders
        self._reports = reports
        self._capture = capture
        self._observer = observer
        self._tree = tree
        self._lease: Lease | None = None
        self._started = 0.0
        self._asked_to_end = False

    def watch(self) -> int:
        """Wait for the guard's last report, or do what the guard can no longer do."""
        system.calls.set_blocking(self._orders, False)
        system.calls.set_blocking(self._reports, False)
        poll = system.calls.poll()
        poll.register(self._reports, select.POLLIN)
        poll.register(self._signals.fd, select.POLLIN)
        unread = b""
        while True:
            poll.poll(self._poll_timeout() * 1000)
            self._forward_signals()
            self._tree.reap()  # as PID 1 of a container too
            # The clock first: who is stopped between two of these must not take for hung a guard that renews or left.
            now, until = self._now(), self._trust.until
            is_late = until and now >= self._kill_at(until)
            data = self._read_reports()
            unread += data or b""
            while b"\n" in unread:
                line, _, unread = unread.partition(b"\n")
                word, *fields = line.decode().split()
                if word == "exit":
                    self._wait_for_guard()
                    if self._capture:
                        timeout = OUTPUT_TIMEOUT if self._asked_to_end else None
                        self._capture.pass_on(self._signals, timeout)
                    if self._observer:
                        self._observer.close(self._signals)
                    return int(fields[0])
                self._lease = self._lease_of(fields) if word == "job" else None
            if data == b"":
                return self._fence("the oncecron guard was killed", "guard-killed")
            if is_late:
                why = "the oncecron guard did not stop the command in time"
                return self._fence(why, "guard-hung")

    def _now(self) -> float:
        return clock.lease_time(self._spec.address.lease_clock)

    def _kill_at(self, trusted_until: float) -> float:
        return wrapper_kills_at(trusted_until, self._spec.firing.ttl)

    def _poll_timeout(self) -> float:
        until = self._trust.until
        due = self._kill_at(until) if until else NEVER
        return min(LONGEST_SLEEP, max(0.0, due - self._now()) + POLL_ROUNDING)

    def _read_reports(self) -> bytes | None:
        try:
            return system.calls.read(self._reports, 4096)
        except BlockingIOError:
            return None

    def _forward_signals(self) -> None:
        for number, from_terminal in self._signals.read():
            if number == signal.SIGCHLD:
                continue
            self._asked_to_end |= number in ENDING_SIGNALS
            note = NOTE_ONLY if self._spec.terminal and from_terminal else 0
            try:
                system.calls.write(self._orders, bytes([number | note]))
            except OSError:  # the guard is gone, or its pipe is full of signals
                continue

    def _wait_for_guard(self) -> None:
        """Let the guard exit first: cron waits for every process that holds the command's output."""
        poll = system.calls.poll()
        poll.register(self._signals.fd, select.POLLIN)  # for SIGCHLD
        deadline = self._now() + _GUARD_LEAVES_WITHIN
        self._tree.reap()
        while self._guard_pid in self._tree.awaited and (remaining := deadline - self._now()) > 0:
            poll.poll(remaining * 1000)
            self._forward_signals()  # a signal to end now ends the wait for a slow reader
            self._tree.reap()

    def _lease_of(self, fields: list[str]) -> Lease:
        firing = self._spec.firing
        shard, execution_id, attempt, token, started_at, cause, *missed = fields
        tick, owner = missed or (firing.tick.text, firing.owner)
        self._started = self._now()
        return Lease(
            key=firing.key,
            shard=int(shard),
            tick=tick,
            owner=owner or "",
            attempt=int(attempt),
            execution_id=int(execution_id),
            token=int(token),
            ttl=firing.ttl,
            started_at=float(started_at),
            trusted_until=0.0,
            cause=cause,  # type: ignore[arg-type]
        )

    def _place_left(self) -> bytes | None:
        """Return what the job has left last; the guard can no longer tell, nor remove the file."""
        if self._spec.place is None:
            return None

        def say(text: str) -> None:
            stderr.complain(f"key {self._spec.firing.key}: {text}")

        try:
            return self._spec.place(self._spec, say).find(self._lease).end("lost")
        except (
            OSError,
            MemoryError,
            ImportError,
        ):  # the host is short of something; the record comes first
            return None

    def _fence(self, why: str, lost_reason: LostByHolder) -> int:
        # First: a stopped guard does not reap its zombies.
        self._tree.signal_awaited(signal.SIGKILL)
        gone = self._tree.kill_all(KILL_TIMEOUT)
        ended = self._now()  # what comes now may take a while, in which another host starts
        key = self._spec.firing.key
        exit_status = EX_TEMPFAIL
        status = self._tree.statuses.get(self._guard_pid, signal.SIGKILL)
        if has_told := os.WIFEXITED(status):
            why, lost_reason = "the oncecron guard failed", "guard-failed"
            told = os.WEXITSTATUS(status)
            exit_status = told if told in (EX_TEMPFAIL, EX_CONFIG) else EX_SOFTWARE
        place = self._place_left()
        if self._lease is None:
            if has_told and exit_status == EX_TEMPFAIL:
                system.calls.close(self._orders)  # the spool may need a descriptor
                spool_unstarted(self._spec)
            elif not has_told:
                end = "no command is running" if gone else "one of its processes cannot be killed"
                stderr.complain(f"key {key}: {why}; {end}")
            return exit_status
        end = "the command was killed" if gone else "one of its processes cannot be killed"
        stderr.complain(f"key {key}: {why}; {end}")
        ending = Ending("lost", None, signal.SIGKILL, ended - self._started, f"{why}: {end}")
        ending = ending._replace(lost_reason=lost_reason, place=place)
        if self._capture:
            ending = self._capture.with_output(ending)
        firing = self._spec.firing_of(self._lease)
        record = execution_record(firing, self._lease, ending)
        _spool(self._spec, record, releases=gone)
        if self._observer:
            self._observer.send("end", record)
        if self._capture:
            self._capture.pass_on(self._signals, OUTPUT_TIMEOUT)
        return exit_status
