"""The guard: the process that owns the job, and ends it when the lease or the wrapper is gone.

One loop waits for the wrapper (a pipe), for signals (a descriptor) and for the store thread (an event), at most a
second each time. Each event goes to the current state, which returns the next state. This module has the loop and the
base class of states. The module `states` has the states and the table of their transitions.

Nothing on the way to a kill uses the store: only the store thread does, and the guard never waits for it there. The
lease is released only after `waitpid` has shown that no process of the job is left. A separate log store has its own
thread (`log_mirror`), and the guard waits briefly for it at the very end.

An error in the guard must not leave a job without a guard, even if the wrapper, which would kill it, is gone. So the
guard kills everything that it has started before it exits.
"""

from __future__ import annotations

import os
import select

from oncecron.core import clock
from oncecron.core.errors import EX_TEMPFAIL, OncecronError
from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Ending, Unconfirmed
from oncecron.core.timing import KILL_TIMEOUT, LONGEST_SLEEP, NEVER, POLL_ROUNDING
from oncecron.run import process_tree, spool_records
from oncecron.run.events import (
    Failed,
    Granted,
    Kept,
    Lost,
    NoShardLeft,
    NotRetried,
    Recorded,
    Refused,
    Renewed,
)
from oncecron.run.job import ENDING_SIGNALS, Job, signal_note
from oncecron.run.kill_deadlines import NOTHING_TO_FENCE
from oncecron.run.reporter import Reporter
from oncecron.run.store_thread import StoreThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncecron.alerts.pinger import EventKind, Pinger
    from oncecron.core.model import Lease
    from oncecron.each.spec import ItemsSpec
    from oncecron.run.capture.capture import Capture
    from oncecron.run.events import Event
    from oncecron.run.kill_deadlines import Trust
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore

NOTE_ONLY = 0x80
"""The wrapper adds this to a signal's number if the terminal has already sent the signal to the job."""
WRAPPER_KILLED = "the oncecron process that cron started was killed"


class ImpossibleEventError(OncecronError):
    """An event came in a state in which it is impossible."""


class Tally:
    """The shards that have run."""

    def __init__(self) -> None:
        self.ran = False
        """Whether there are any."""
        self.exit_status = 0
        """That of the first shard that failed."""

    def add(self, exit_status: int) -> None:
        """Count a shard whose end is on record."""
        self.ran = True
        self.exit_status = self.exit_status or exit_status


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
        pinger: Pinger | None = None,
    ) -> None:
        """`orders` is read, `reports` is written: the pipes from and to the wrapper."""
        self.spec = spec
        self.trust = trust
        self.store_thread = StoreThread(spec, open_store)
        self.reporter = Reporter(spec)
        self.tally = Tally()
        self._capture = capture
        self._pinger = pinger
        self._orders = orders
        self._reports = reports
        self._wrapper_gone = False
        self._ignored: str | None = None
        self._job_group: int | None = None
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
            os.write(self._reports, line.encode() + b"\n")
        except OSError:  # the wrapper is gone, or does not read: never wait for it
            return

    def _watch(self, signals: process_tree.Signals) -> int:
        poll = select.poll()
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
        return self._state.exit_status

    def _without_wrong_request(self, event: Event) -> Event:
        """Return the event without a request that must not be obeyed, which is reported once."""
        if not isinstance(event, (Granted, Renewed)) or event.lease.request is None:
            return event
        from oncecron.run.requests import wrong_with  # noqa: PLC0415 - most runs are never stopped

        why = wrong_with(event.lease.request)
        if why is None:
            return event
        if why != self._ignored:
            self._ignored = why
            self.reporter.say(f"a request in the store is ignored: {why}")
        return event._replace(lease=event.lease._replace(request=None))

    def _poll_timeout(self) -> float:
        """Return the seconds to wait, at most one: timers stop while the machine is suspended."""
        return min(LONGEST_SLEEP, self._state.poll_timeout(self.now()) + POLL_ROUNDING)

    def _take_orders(self) -> bool:
        """Take what the wrapper has written; return False once, when the wrapper is gone."""
        if self._wrapper_gone:
            return True
        try:
            orders = os.read(self._orders, 256)
        except BlockingIOError:
            return True
        for order in orders:
            already_there = bool(order & NOTE_ONLY)
            self._state = self._state.signalled(order & ~NOTE_ONLY, already_there=already_there)
        if orders:
            return True
        self._wrapper_gone = True
        self._state = self._state.wrapper_gone()
        return False

    # What the states call

    def now(self) -> float:
        """Return the lease clock."""
        return clock.lease_time(self.spec.address.lease_clock)

    def may_start(self, lease: Lease) -> bool:
        """Return whether half of the trust is left, both before and after the wrapper can see its end.

        From then on the wrapper kills a guard that is stopped between reading the clock and starting the job.
        """
        if self.spec.items:
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
        ttl, say = spec.firing.ttl, self.reporter.say
        job = Job(grace=spec.grace, timeout=spec.timeout, ttl=ttl, say=say)
        try:
            environment = spec.job_environment(lease)
            outputs = self._capture.begin() if self._capture else ()
            body = self._runner(spec.items, lease, environment) if spec.items and lease else None
            job.start(
                spec.program, spec.command, environment, group, mask, self.now(), outputs, body
            )
        finally:
            self.reporter.log.resume()
        if lease is None:
            running = Ending("running", None, None, 0.0)
            record = spool_records.execution_record(spec.firing, None, running)
            self.ping("start", {**record, "execution_id": None})
        return job

    def _runner(
        self, items: ItemsSpec, lease: Lease, environment: dict[str, str]
    ) -> Callable[[], int]:
        """Return what runs in place of the command: it loads the list, or runs the command for each batch."""
        from oncecron.each.runner import body  # noqa: PLC0415 - only `each` has items

        items.page.begin_slot(items.number, lease.shard)
        return body(self.spec, items, lease, environment)

    def announce_job(self, lease: Lease) -> None:
        """Begin the heartbeats; report the start to the wrapper and to the log."""
        fields = (lease.shard, lease.execution_id, lease.attempt, lease.token, lease.started_at)
        self.report(f"job {' '.join(map(str, fields))} {lease.cause}")
        self.store_thread.begin()
        self.reporter.started(lease)
        record = spool_records.start_record(self.spec.firing_of(lease), lease)
        self.reporter.log.send(record)
        self.ping("start", {**record, "execution_id": lease.execution_id})

    def keep(self, ending: Ending, record: dict[str, object]) -> None:
        """Record the end of an attempt and keep the lease for the next one."""
        self.store_thread.keep(ending)
        self.ping("keep", record)

    def end(self, ending: Ending, record: dict[str, object]) -> None:
        """Record the end of the last attempt and release the lease."""
        self.store_thread.end(ending)
        self.ping("end", record)

    def ping(self, kind: EventKind, record: dict[str, object]) -> None:
        """Report to the monitoring services that hear of this key."""
        if self._pinger:
            self._pinger.send(kind, record)

    def finish_job(self, ending: Ending) -> Ending:
        """Show the wrapper that no job is left; return the end with the captured output."""
        self.trust.until = NOTHING_TO_FENCE
        if self.spec.items:
            ending = self.spec.items.judged(ending)
        return self._capture.ended(ending) if self._capture else ending


class State:
    """One state. Each event is a method that returns the next state; an event that is not overridden is impossible."""

    exit_status: int | None = None
    """The exit status of the guard, in the last state."""
    _deadline = NEVER
    """When `_due` is called (lease clock)."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    # What the guard calls

    def signalled(self, number: int, *, already_there: bool) -> State:  # noqa: ARG002 - a job's alone
        """Handle a signal to the wrapper. `already_there`: the terminal has sent it to the job as well."""
        if number in (*ENDING_SIGNALS, signal.SIGHUP):
            return self._stop(signal_note(number), 128 + number)
        return self

    def wrapper_gone(self) -> State:
        """Handle the end of the wrapper."""
        return self._stop(WRAPPER_KILLED, EX_TEMPFAIL)

    def poll_timeout(self, now: float) -> float:
        """Return the seconds until `judge` has something to do."""
        return max(0.0, self._deadline - now)

    def judge(self, now: float) -> State:
        """Do what is due."""
        return self._due() if now >= self._deadline else self

    def take(self, event: Event) -> State:  # noqa: C901, PLR0911 - one line for each kind
        """Handle an event of the store thread."""
        if isinstance(event, Granted):
            return self._granted(event.lease)
        if isinstance(event, Unconfirmed):
            return self._unconfirmed(event)
        if isinstance(event, Refused):
            return self._refused(event)
        if isinstance(event, NoShardLeft):
            return self._no_shard_left()
        if isinstance(event, Failed):
            return self._failed(event)
        if isinstance(event, Renewed):
            return self._renewed(event.lease)
        if isinstance(event, Lost):
            return self._lost()
        if isinstance(event, Kept):
            return self._kept()
        if isinstance(event, NotRetried):
            return self._not_retried(event)
        if isinstance(event, Recorded):
            return self._recorded(event.error)
        return self._crashed(event.error)

    # The events

    def _stop(self, _why: str, _exit_status: int) -> State:
        raise self._impossible("a stop")

    def _due(self) -> State:
        raise self._impossible("a deadline")

    def _granted(self, _lease: Lease) -> State:
        raise self._impossible("Granted")

    def _unconfirmed(self, _claim: Unconfirmed) -> State:
        raise self._impossible("Unconfirmed")

    def _refused(self, _event: Refused) -> State:
        raise self._impossible("Refused")

    def _no_shard_left(self) -> State:
        raise self._impossible("NoShardLeft")

    def _failed(self, _event: Failed) -> State:
        raise self._impossible("Failed")

    def _renewed(self, _lease: Lease) -> State:
        raise self._impossible("Renewed")

    def _lost(self) -> State:
        raise self._impossible("Lost")

    def _kept(self) -> State:
        raise self._impossible("Kept")

    def _not_retried(self, _event: NotRetried) -> State:
        raise self._impossible("NotRetried")

    def _recorded(self, _error: Exception | None) -> State:
        raise self._impossible("Recorded")

    def _crashed(self, error: Exception) -> State:
        raise error

    def _impossible(self, event: str) -> ImpossibleEventError:
        return ImpossibleEventError(f"{type(self).__name__} cannot take {event}")
