"""The guard: the process that owns the job, and ends it when the lease or the wrapper is gone.

One loop waits for the wrapper (a pipe), for signals (a descriptor) and for the store thread (an event), at most a
second each time. Each event goes to the current state (`firing_states`), which returns the next state. While a job
runs, the loop looks once a second at the file for its place: that is one lstat(2) where nothing has changed.

Nothing on the way to a kill uses the store: only the store thread does, and the guard never waits for it there. The
lease is released only after `waitpid` has shown that no process of the job is left. A separate log store has its own
thread (`log_mirror`), and the guard waits briefly for it at the very end.

An error in the guard must not leave a job without a guard, even if the wrapper, which would kill it, is gone. So the
guard kills everything that it has started before it exits.
"""

from __future__ import annotations

import select

from oncecron.core import clock, system
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Ending
from oncecron.core.timing import (
    KILL_TIMEOUT,
    LONGEST_SLEEP,
    LOOK_AGAIN,
    LOOK_EVERY,
    NEVER,
    POLL_ROUNDING,
)
from oncecron.run import process_tree
from oncecron.run.events import Granted, Renewed
from oncecron.run.job import NOTHING_TO_FENCE, Job, wrong_with
from oncecron.run.reporter import Reporter
from oncecron.run.spool import execution_record, start_record
from oncecron.run.store_thread import StoreThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncecron.core.model import Lease
    from oncecron.run.capture.capture import Capture
    from oncecron.run.events import Event
    from oncecron.run.firing_states import State
    from oncecron.run.job import Trust
    from oncecron.run.place_file import PlaceFile
    from oncecron.run.repeated_input import RepeatedInput
    from oncecron.run.seams import EventKind, Observer, Processes
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore

NOTE_ONLY = 0x80
"""The wrapper adds this to a signal's number if the terminal has already sent the signal to the job."""


class Guard:
    """One firing, in the guard's process: the loop, and what all states share."""

    def __init__(
        self,
        spec: RunSpec,
        trust: Trust,
        orders: int,
        reports: int,
        open_store: Callable[[], LeaseStore],
        capture: Capture | None = None,
        observer: Observer | None = None,
        processes: Processes = process_tree,
    ) -> None:
        """`orders` is read, `reports` is written: the pipes from and to the wrapper."""
        self.spec = spec
        self.trust = trust
        self.store_thread = StoreThread(spec, open_store, observer)
        self.reporter = Reporter(spec)
        self.shard_statuses: list[int] = []
        """The exit statuses of the shards whose end is on record."""
        self._capture = capture
        self._input = _repeated_input(spec)
        self._observer = observer
        self._processes = processes
        self._orders = orders
        self._reports = reports
        self._place: PlaceFile | None = None
        """Set by the first start."""
        self._look_at = NEVER
        """When to look at it (lease clock)."""
        self._wrapper_gone = False
        self._ignored: str | None = None
        self._job_group: int | None = None
        """The process group that the job joins: the wrapper's, on a terminal; None: one of its own."""
        self._signal_mask: Iterable[int] = ()

    # What the wrapper calls in the guard's process

    @property
    def pipes(self) -> tuple[int, int]:
        """The descriptors of the pipes from and to the wrapper."""
        return self._orders, self._reports

    def run(
        self, signals: process_tree.Signals, wrapper_group: int, first: Callable[[Guard], State]
    ) -> int:
        """Go from the first state to the last; return the exit status for the wrapper."""
        self._signal_mask = signals.mask_before
        self._job_group = wrapper_group if self.spec.terminal else None
        self.reporter.reserve_descriptor()
        self._state = first(self)
        try:
            exit_status = self._watch(signals)
        except BaseException:
            process_tree.Tree().kill_all(KILL_TIMEOUT)
            raise
        self.reporter.log.close()
        return exit_status

    def report(self, line: str) -> None:
        """Write a line to the wrapper."""
        try:
            system.calls.write(self._reports, line.encode() + b"\n")
        except OSError:  # the wrapper is gone, or does not read: never wait for it
            return

    def _watch(self, signals: process_tree.Signals) -> int:
        poll = system.calls.poll()
        for descriptor in (self._orders, signals.fd, self.store_thread.event_fd):
            poll.register(descriptor, select.POLLIN)
        self.store_thread.start()
        while self._state.exit_status is None:
            poll.poll(self._poll_timeout() * 1000)
            signals.read()  # the wrapper reports the signals that count; SIGCHLD only wakes the loop
            if not self._take_orders():
                poll.unregister(self._orders)
            for event in self.store_thread.events():
                self._state = self._state.take(self._without_wrong_request(event))
            self._state = self._state.judge(self.now())
            if self.now() >= self._look_at:
                self._look_at_place()
        return self._state.exit_status

    def _look_at_place(self) -> None:
        """Have a place that the job has left sent at once; the end of the job brings the last one."""
        self._look_at = self.now() + LOOK_EVERY
        if self._place is None:
            return
        place = self._place.look()
        if place is not None:
            self.store_thread.leave(place)
        if self._place.is_half_written:
            self._look_at = self.now() + LOOK_AGAIN

    def _without_wrong_request(self, event: Event) -> Event:
        """Return the event without a request that must not be obeyed, which is reported once."""
        if not isinstance(event, (Granted, Renewed)) or event.lease.request is None:
            return event
        why = wrong_with(event.lease.request)
        if why is None:
            return event
        if why != self._ignored:
            self._ignored = why
            self.reporter.say(f"a request in the store is ignored: {why}")
        return event._replace(lease=event.lease._replace(request=None))

    def _poll_timeout(self) -> float:
        """Return the seconds to wait, at most one: timers stop while the machine is suspended."""
        now = self.now()
        until = min(self._state.poll_timeout(now), max(0.0, self._look_at - now))
        return min(LONGEST_SLEEP, until + POLL_ROUNDING)

    def _take_orders(self) -> bool:
        """Take what the wrapper has written; return False once, when the wrapper is gone."""
        if self._wrapper_gone:
            return True
        try:
            orders = system.calls.read(self._orders, 256)
        except BlockingIOError:
            return True
        for order in orders:
            already_there = bool(order & NOTE_ONLY)
            self._state = self._state.take_signal(order & ~NOTE_ONLY, already_there=already_there)
        if orders:
            return True
        self._wrapper_gone = True
        self._state = self._state.lose_wrapper()
        return False

    # What the states call

    def now(self) -> float:
        """Return the lease clock."""
        return clock.lease_time(self.spec.address.lease_clock)

    def may_start(self, lease: Lease) -> bool:
        """Return whether half of the trust is left, both before and after the wrapper can see its end.

        From then on the wrapper kills a guard that is stopped between reading the clock and starting the job.
        """
        if self.spec.body:
            self.reporter.log.hold()  # before the look at the clock: it may wait
        if self._trusts(lease):
            self.trust.until = lease.trusted_until
            if self._trusts(lease):
                return True
            self.trust.until = NOTHING_TO_FENCE  # stopped before the wrapper could see it
        self.reporter.log.resume()
        return False

    def _trusts(self, lease: Lease) -> bool:
        return lease.trusted_until - self.now() >= lease.ttl / 2

    def start_job(self, lease: Lease | None) -> Job:
        """Start the command, under a lease or without one. Raises `OSError`."""
        spec, group, mask = self.spec, self._job_group, self._signal_mask
        ttl, say, processes = spec.firing.ttl, self.reporter.say, self._processes
        job = Job(
            grace=spec.grace, timeout=spec.timeout, ttl=ttl, say=say, processes=processes,
            why_not_renewed=lambda: self.store_thread.failure,
        )  # fmt: skip
        try:
            environment = spec.job_environment(lease, self._make_place(lease))
            outputs = self._capture.begin() if self._capture else ()
            streams = (*outputs, *(self._input.begin() if self._input else ()))
            body = spec.body.begin(spec, lease, environment) if spec.body and lease else None
            job.start(
                spec.program, spec.command, environment, group, mask, self.now(), streams, body
            )
        finally:
            self.reporter.log.resume()
        if lease is None:
            running = Ending("running", None, None, 0.0)
            record = execution_record(spec.firing, None, running)
            self.observe("start", {**record, "execution_id": None})
        return job

    def is_own(self, lease: Lease) -> bool:
        """Return whether a lease is for the firing's own tick, and not for one that it makes up."""
        return lease.owner == self.spec.firing.owner

    def _make_place(self, lease: Lease | None) -> str | None:
        if self.spec.place is None:
            return None
        self._place = self._place or self.spec.place(self.spec, self.reporter.say)
        path = self._place.make(lease)
        if path and lease:
            self._look_at = self.now() + LOOK_EVERY
        return path

    @property
    def lacks_input(self) -> bool:
        """Whether another start would not get the standard input that an earlier one may have read."""
        return self._input is not None and self._input.is_lost

    def why_not_again(self, exit_status: int) -> str | None:
        """Return why no retry follows an attempt that failed; None if one does."""
        if exit_status in self.spec.retry_policy.permanent:
            return f"exit status {exit_status} is not retried"
        return self.reporter.say_no_input("no retry") if self.lacks_input else None

    def announce_job(self, lease: Lease) -> None:
        """Begin the heartbeats; report the start to the wrapper and to the log."""
        fields = (lease.shard, lease.execution_id, lease.attempt, lease.token, lease.started_at)
        missed = "" if self.is_own(lease) else f" {lease.tick} {lease.owner}"
        self.report(f"job {' '.join(map(str, fields))} {lease.cause}{missed}")
        self.store_thread.beat()
        self.reporter.say_start(lease)
        record = start_record(self.spec.firing_of(lease), lease)
        self.reporter.log.send(record)
        self.observe("start", {**record, "execution_id": lease.execution_id})

    def keep(self, ending: Ending, record: dict[str, object]) -> None:
        """Record the end of an attempt and keep the lease for the next one."""
        self.store_thread.keep(ending)
        self.observe("keep", record)

    def end(self, ending: Ending, record: dict[str, object]) -> None:
        """Record the end of the last attempt and release the lease."""
        self.store_thread.end(ending)
        self.observe("end", record)

    def observe(self, kind: EventKind, record: dict[str, object]) -> None:
        """Report an event to the observer, if there is one."""
        if self._observer:
            self._observer.send(kind, record)

    def finish_job(self, ending: Ending) -> Ending:
        """Show the wrapper that no job is left; return the end with the captured output and the place."""
        self.trust.until = NOTHING_TO_FENCE
        if self._place:
            ending = ending._replace(place=self._place.end(ending.outcome))
            self._look_at = NEVER
        if self.spec.body:
            ending = self.spec.body.judge(ending)
        return self._capture.with_output(ending) if self._capture else ending


def _repeated_input(spec: RunSpec) -> RepeatedInput | None:
    firing = spec.firing
    starts_again = spec.retry_policy.retries or firing.shards > 1 or firing.previous is not None
    if spec.body or not starts_again:
        return None
    from oncecron.run.repeated_input import RepeatedInput  # noqa: PLC0415 - only who may start again pays

    return RepeatedInput()
