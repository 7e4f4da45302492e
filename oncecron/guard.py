"""The guard: the process that owns the job, and ends it when the lease or the wrapper is gone.

One loop waits for the wrapper's orders (a pipe), for signals (a descriptor) and for the heartbeat thread (an
event), at most a second:

    claiming   an answer -> start the job, or leave.  The wrapper is gone, or tells a signal that ends -> give up;
               a lease that comes all the same, or that does not count (`Unconfirmed`), is given back as
               `not-started`, which alone re-opens the tick; for one that may have been granted, since a claim
               was not answered, that word is spooled
    running    a signal from the wrapper -> to the job.  The wrapper is gone -> TERM, grace, KILL.  The lease is
               renewed -> trust moves.  It is lost for good -> KILL.  All else that ends a job is `job`'s
    recording  the tree is gone: trust is cleared, the end recorded or spooled, the exit status told

The lease is released only after `waitpid` has said that nothing is left. Nothing on the way to a kill touches
the store: that is the heartbeat thread's, and it is never waited for. A log beside the store is told by a thread
of its own (`joblog`), for which the guard waits a moment when all else is done.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from typing import TYPE_CHECKING

from oncecron import clock, messages, records
from oncecron.errors import (
    EX_NOT_EXECUTABLE,
    EX_SOFTWARE,
    EX_TEMPFAIL,
    OncecronError,
    StoreUnavailable,
)
from oncecron.heartbeat import Failed, Granted, Heartbeat, Lost, Recorded, Refused, Renewed
from oncecron.job import ENDING_SIGNALS, Job, Stop
from oncecron.joblog import JobLog
from oncecron.model import Ending, Refusal, Unconfirmed
from oncecron.spool import SpoolError
from oncecron.trust import NOTHING_TO_FENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron import child
    from oncecron.heartbeat import Event
    from oncecron.model import Lease
    from oncecron.plan import Plan
    from oncecron.store import FiringStore
    from oncecron.trust import Trust

NOTE_ONLY = 0x80
"""Added to a signal's number by the wrapper: the terminal has sent it to the job already."""

_ABANDON_WITHIN = 5.0  # seconds for a claim to come back after the firing was told to stop
_RECORD_WITHIN = 15.0  # seconds after which the heartbeat thread is not waited for
_NEVER = float("inf")


class Guard:
    """One firing, in the guard's process."""

    def __init__(
        self,
        plan: Plan,
        trust: Trust,
        orders: int,
        reports: int,
        open_store: Callable[[], FiringStore],
    ) -> None:
        """`orders` is read, `reports` is written: the pipes from and to the wrapper."""
        self._plan = plan
        self._trust = trust
        self._orders = orders
        self._reports = reports
        self._clock = plan.address.lease_clock
        self._heartbeat = Heartbeat(plan, open_store)
        self._log = JobLog(plan)
        self._wrapper_gone = False
        self._abandoned: int | None = None
        self._lease: Lease | None = None
        self._job: Job | None = None
        self._started_wall = 0.0
        self._end: dict[str, object] | None = None
        self._give_up_at = _NEVER
        self._exit_status = EX_SOFTWARE
        self._left = False

    def run(self, signals: child.Signals, wrapper_group: int) -> int:
        """Claim, start, watch, record; return the exit status for the wrapper."""
        self._signal_mask = signals.mask_before
        self._job_group = wrapper_group if self._plan.terminal else None
        poll = select.poll()
        for descriptor in (self._orders, signals.fd, self._heartbeat.event_fd):
            poll.register(descriptor, select.POLLIN)
        self._heartbeat.start()
        while not self._left:
            poll.poll(self._timeout() * 1000)
            signals.read()  # only the wrapper tells which ones are meant; SIGCHLD wakes
            if not self._take_orders():
                poll.unregister(self._orders)
            for event in self._heartbeat.events():
                self._take(event)
            self._judge(self._now())
        self._log.close()
        return self._exit_status

    @property
    def pipes(self) -> tuple[int, int]:
        """The descriptors of the pipes from and to the wrapper."""
        return self._orders, self._reports

    def report_exit(self, status: int) -> None:
        """Tell the wrapper with which status to leave."""
        self._report(f"exit {status}")

    def _now(self) -> float:
        return clock.lease_time(self._clock)

    def _timeout(self) -> float:
        """Return the seconds until something is to be judged, at most one: timers sleep in suspend."""
        now = self._now()
        left = max(0.0, self._give_up_at - now)
        if self._job:
            left = min(left, self._job.wait(now, self._trust.until))
        return min(1.0, left + 0.001)

    def _judge(self, now: float) -> None:
        if self._job:
            end = self._job.judge(now, self._trust.until)
            if end:
                self._job = None
                self._record(*end)
        elif now >= self._give_up_at and not self._left:
            self._gave_up()

    # What the wrapper tells

    def _take_orders(self) -> bool:
        """Obey what the wrapper has written; return False when it is gone."""
        if self._wrapper_gone:
            return True
        try:
            orders = os.read(self._orders, 256)
        except BlockingIOError:
            return True
        for order in orders:
            self._forward(order & ~NOTE_ONLY, already_there=bool(order & NOTE_ONLY))
        if orders:
            return True
        self._wrapper_gone = True
        if self._job:
            stop = Stop("stopped", "the oncecron process that cron started was killed")
            self._job.end(stop, self._now())
        elif self._end is None:
            self._abandon(EX_TEMPFAIL)
        return False

    def _forward(self, number: int, *, already_there: bool) -> None:
        if self._job:
            self._job.forward(number, self._now(), already_there=already_there)
        elif self._end is None and number in (*ENDING_SIGNALS, signal.SIGHUP):
            self._abandon(128 + number)

    def _abandon(self, exit_status: int) -> None:
        self._abandoned = exit_status
        self._give_up_at = self._now() + _ABANDON_WITHIN
        self._heartbeat.abandon()

    # What the heartbeat thread tells

    def _take(self, event: Event) -> None:
        if isinstance(event, Granted):
            self._granted(event.lease)
        elif isinstance(event, Unconfirmed):
            self._unconfirmed(event)
        elif isinstance(event, Renewed):
            self._renewed(event.trusted_until)
        elif isinstance(event, Lost):
            self._lost()
        elif isinstance(event, Refused):
            self._refused(*event)
        elif isinstance(event, Failed):
            self._failed(*event)
        elif isinstance(event, Recorded) and self._end is not None:
            self._recorded(event.error)

    def _granted(self, lease: Lease) -> None:
        self._lease = lease
        if self._abandoned is not None:
            self._record(Ending("not-started", None, None, 0.0, "told to stop"), self._abandoned)
        elif self._may_start(lease):
            self._start()
        else:
            self._heartbeat.renew()  # the answer was slow: not enough trust left to start with

    def _may_start(self, lease: Lease) -> bool:
        """Look at the clock, with the wrapper told: it fences whoever is stopped between the look and the start."""
        if not self._trusted_enough(lease):
            return False
        self._trust.until = lease.trusted_until
        if not self._trusted_enough(lease):  # stopped before the wrapper was told
            self._trust.until = NOTHING_TO_FENCE
            return False
        return True

    def _trusted_enough(self, lease: Lease) -> bool:
        return lease.trusted_until - self._now() >= lease.ttl / 2

    def _unconfirmed(self, claim: Unconfirmed) -> None:
        """Give back what was granted and does not count: only a positive word re-opens its tick."""
        if self._abandoned is not None:
            self._granted(claim.lease)
            return
        self._lease = claim.lease
        exit_status = claim.error.exit_status
        if isinstance(claim.error, StoreUnavailable):
            exit_status = self._no_store(claim.error)
            if self._plan.on_store_error == "run":
                self._granted(claim.lease)
                return
        else:
            self._say(str(claim.error))
        self._record(Ending("not-started", None, None, 0.0, str(claim.error)), exit_status)

    def _renewed(self, trusted_until: float) -> None:
        if self._job:
            self._trust.until = trusted_until
        elif self._lease and self._end is None:
            self._granted(self._lease._replace(trusted_until=trusted_until))

    def _lost(self) -> None:
        if self._job:
            self._job.kill(
                Stop("lost", "the lease was lost: killed at once", EX_TEMPFAIL), self._now()
            )
            self._say("the lease was lost; the command was killed")
        elif self._end is None:
            self._say("the lease was lost before the command was started")
            self._leave(EX_TEMPFAIL)

    def _refused(self, refusal: Refusal, unanswered: bool) -> None:
        if self._plan.verbose or os.isatty(2):
            self._say(messages.refusal_sentence(self._plan.firing, refusal), key=False)
        self._log.tell(records.skip_record(self._plan.firing, refusal))
        by = (refusal.reason, refusal.holder)
        if unanswered and by == ("done", self._plan.firing.holder):
            self._spool_not_started("its claim was answered when the lease had ended")
        self._leave(self._plan.skip_exit)

    def _failed(self, error: Exception, unanswered: bool) -> None:
        if self._abandoned is not None:
            self._exit_status = self._abandoned
        elif isinstance(error, StoreUnavailable):
            self._exit_status = self._no_store(error)
            if self._plan.on_store_error == "run":
                self._start()
                return
        elif isinstance(error, OncecronError):
            self._say(str(error))
            self._exit_status = error.exit_status
        else:
            raise error  # a bug of ours: nothing runs yet
        if unanswered:
            self._spool_not_started("told to stop" if self._abandoned is not None else str(error))
        self._leave(self._exit_status)

    def _no_store(self, error: StoreUnavailable) -> int:
        """Say and record that the store is away; return the exit status of a firing that starts nothing."""
        plan = self._plan
        if plan.spool.note_unreachable(plan.firing.key):
            self._say(str(error))
        if plan.on_store_error != "run":
            record = records.skip_record(plan.firing, Refusal("no-store", detail=str(error)))
            self._spool(record)
            self._log.tell(record)
        return plan.skip_exit if plan.on_store_error == "skip" else error.exit_status

    # The job

    def _start(self) -> None:
        plan, lease = self._plan, self._lease
        self._started_wall = clock.wall()
        job = Job(grace=plan.grace, timeout=plan.timeout, ttl=plan.firing.ttl, say=self._say)
        environment = plan.job_environment(lease)
        try:
            job.start(plan.command, environment, self._job_group, self._signal_mask, self._now())
        except OSError as error:
            cure = "; does it lack its #! line?" if error.errno == errno.ENOEXEC else ""
            self._say(f"cannot start {plan.command[0]}: {error.strerror}{cure}")
            note = f"cannot be started: {error.strerror}"
            self._record(Ending("not-started", None, None, 0.0, note), EX_NOT_EXECUTABLE)
            return
        self._job = job
        if lease:
            fields = (lease.execution_id, lease.attempt, lease.token, lease.started_at)
            self._report(f"job {' '.join(map(str, fields))}")
            self._heartbeat.begin()
            self._log.tell(records.start_record(plan.firing, lease))

    # The end

    def _record(self, ending: Ending, exit_status: int) -> None:
        plan = self._plan
        self._trust.until = NOTHING_TO_FENCE
        self._exit_status = exit_status
        if self._lease is None:
            note = "; ".join(filter(None, (f"without a lease, {ending.outcome}", ending.note)))
            ending = ending._replace(outcome="unclaimed", note=note)
        self._end = records.execution_record(
            plan.firing, self._lease, ending, started_at=self._started_wall
        )
        self._log.tell(self._end)
        if self._lease is None:
            self._recorded(StoreUnavailable("the store was away when the command was started"))
            return
        self._give_up_at = self._now() + _RECORD_WITHIN
        self._heartbeat.end(ending)

    def _recorded(self, error: Exception | None) -> None:
        if error is not None and self._end is not None:
            if self._lease:
                self._say(f"the end could not be recorded and is kept for later: {error}")
            self._spool(self._end)
        self._leave(self._exit_status)

    def _gave_up(self) -> None:
        if self._end is not None:
            self._recorded(StoreUnavailable("the store does not answer"))
        elif self._abandoned is not None:
            self._spool_not_started("told to stop")  # a claim may be under way
            self._leave(self._abandoned)

    def _spool_not_started(self, why: str) -> None:
        """Keep the positive word that alone re-opens a tick, for a lease that may have been granted."""
        ending = Ending("not-started", None, None, 0.0, why)
        self._spool(records.execution_record(self._plan.firing, self._lease, ending))

    def _spool(self, record: dict[str, object]) -> None:
        try:
            self._plan.spool.add(record)
        except SpoolError as error:
            self._say(f"a record is lost: {error}: {record}")

    def _leave(self, exit_status: int) -> None:
        self._exit_status = exit_status
        self._left = True

    def _report(self, line: str) -> None:
        try:
            os.write(self._reports, line.encode() + b"\n")
        except OSError:  # the wrapper is gone, or does not read: never waited for
            return

    def _say(self, text: str, *, key: bool = True) -> None:
        messages.complain(f"key {self._plan.firing.key}: {text}" if key else text)
