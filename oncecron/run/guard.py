"""The guard: the process that owns the job, and ends it when the lease or the wrapper is gone.

One loop waits for the wrapper's orders (a pipe), for signals (a descriptor) and for the heartbeat thread (an
event), at most a second:

    claiming   an answer -> start the job, or leave.  A lease too old to start with -> renewed first, within the
               budget of a claim, or given back.  The wrapper is gone, or tells a signal that ends -> give up;
               a lease that comes all the same, or that does not count (`Unconfirmed`), is given back as
               `not-started`, which alone re-opens the tick; for one that may have been granted, since a claim
               was not answered, that word is spooled
    running    a signal from the wrapper -> to the job.  The wrapper is gone -> TERM, grace, KILL.  The lease is
               renewed -> trust moves.  It is lost for good -> KILL.  Somebody asks for the end (`stop`, `release`) ->
               the signal, the grace, KILL.  All else that ends a job is `job`'s
    over       the tree is gone: trust is cleared, the output taken, and the end recorded (`endings`), which tells what
               follows: another attempt after a delay, another part, or the exit status.  Until the next start a
               signal that ends, or HUP, the end of the wrapper, and whoever asks for it say that it is enough.  The
               lease is lost between two attempts -> leave, with the status of the last

The lease is released only after `waitpid` has said that nothing is left. Nothing on the way to a kill touches
the store: that is the heartbeat thread's, and it is never waited for. A log beside the store is told by a thread
of its own (`joblog`), for which the guard waits a moment when all else is done.
"""

from __future__ import annotations

import errno
import os
import select
import signal

from oncecron.core import clock
from oncecron.core.errors import EX_NOT_EXECUTABLE, EX_TEMPFAIL, OncecronError, StoreUnavailable
from oncecron.core.light import TYPE_CHECKING
from oncecron.core.model import Ending, Unconfirmed
from oncecron.core.timing import ABANDON_TIMEOUT, NEVER
from oncecron.run import spool_records
from oncecron.run.endings import Endings
from oncecron.run.events import Failed, Granted, Kept, Lost, NotRetried, Over, Refused, Renewed
from oncecron.run.job import ENDING_SIGNALS, Job, JobEnd, Stop, request_note, signal_note
from oncecron.run.reporter import Reporter
from oncecron.run.store_thread import StoreThread
from oncecron.run.trust import NOTHING_TO_FENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Lease, Request
    from oncecron.run import process_tree
    from oncecron.run.capture.capture import Capture
    from oncecron.run.events import Event
    from oncecron.run.spec import RunSpec
    from oncecron.run.trust import Trust
    from oncecron.stores.api import LeaseStore

NOTE_ONLY = 0x80
"""Added to a signal's number by the wrapper: the terminal has sent it to the job already."""


class Guard:
    """One firing, in the guard's process."""

    def __init__(
        self,
        spec: RunSpec,
        trust: Trust,
        orders: int,
        reports: int,
        open_store: Callable[[], LeaseStore],
        capture: Capture | None = None,
    ) -> None:
        """`orders` is read, `reports` is written: the pipes from and to the wrapper."""
        self._spec = spec
        self._trust = trust
        self._orders = orders
        self._reports = reports
        self._capture = capture
        self._clock = spec.address.lease_clock
        self._heartbeat = StoreThread(spec, open_store)
        self._telling = Reporter(spec)
        self._wrapper_gone = False
        self._abandoned: int | None = None
        self._lease: Lease | None = None
        self._job: Job | None = None
        self._obeyed: Request | None = None
        self._started_wall = 0.0
        self._give_up_at = NEVER
        self._endings = Endings(
            spec, self._heartbeat, self._telling, idle=lambda: self._report("idle")
        )

    def run(self, signals: process_tree.Signals, wrapper_group: int) -> int:
        """Claim, start, watch, record; return the exit status for the wrapper."""
        self._signal_mask = signals.mask_before
        self._job_group = wrapper_group if self._spec.terminal else None
        poll = select.poll()
        for descriptor in (self._orders, signals.fd, self._heartbeat.event_fd):
            poll.register(descriptor, select.POLLIN)
        self._heartbeat.start()
        while not self._endings.left:
            poll.poll(self._timeout() * 1000)
            signals.read()  # only the wrapper tells which ones are meant; SIGCHLD wakes
            if not self._take_orders():
                poll.unregister(self._orders)
            for event in self._heartbeat.events():
                self._take(event)
            self._judge(self._now())
        self._telling.log.close()
        return self._endings.exit_status

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
        left = self._endings.wait(now)
        if not self._endings.recording:
            left = min(left, max(0.0, self._give_up_at - now))
        if self._job:
            left = min(left, self._job.wait(now, self._trust.until))
        return min(1.0, left + 0.001)

    def _judge(self, now: float) -> None:
        if self._job:
            end = self._job.judge(now, self._trust.until)
            if end:
                self._job = None
                self._record(*end)
        elif now >= self._give_up_at and not self._endings.left and not self._endings.recording:
            self._gave_up()
        else:
            self._endings.judge(now)

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
        why = "the oncecron process that cron started was killed"
        if self._job:
            self._endings.enough = why
            self._job.end(Stop("stopped", why), self._now())
        else:
            self._stop_short(why, EX_TEMPFAIL)
        return False

    def _forward(self, number: int, *, already_there: bool) -> None:
        why = signal_note(number)
        if self._job:
            self._job.forward(number, self._now(), already_there=already_there)
            if number in ENDING_SIGNALS:
                self._endings.enough = why
        elif number in (*ENDING_SIGNALS, signal.SIGHUP):
            self._stop_short(why, 128 + number)

    def _stop_short(self, why: str, exit_status: int) -> None:
        """End the firing while no job of it runs, as soon as the store has answered."""
        endings = self._endings
        endings.enough = endings.enough or why
        if endings.waiting:
            endings.end_retries(why, self._now())
        elif not endings.recording:
            self._abandoned = exit_status
            self._give_up_at = self._now() + ABANDON_TIMEOUT
            self._heartbeat.abandon()

    def _gave_up(self) -> None:
        """Leave although the store may be answering just now: it was told to end, and nothing runs."""
        lease = self._lease
        firing = self._spec.firing_of(lease) if lease else self._heartbeat.asked_for
        if firing:
            self._telling.not_started(firing, "told to stop")
        last = self._endings.last
        self._endings.leave(last.exit_status if last else self._abandoned or 0)

    # What the heartbeat thread tells

    def _take(self, event: Event) -> None:  # noqa: C901 - one line for each kind
        if isinstance(event, Granted):
            self._granted(event.lease)
        elif isinstance(event, Unconfirmed):
            self._unconfirmed(event)
        elif isinstance(event, Renewed):
            self._renewed(event.lease)
        elif isinstance(event, Lost):
            self._lost()
        elif isinstance(event, Refused):
            self._refused(event)
        elif isinstance(event, Over):
            self._endings.over()
        elif isinstance(event, Failed):
            self._failed(event)
        elif isinstance(event, Kept):
            self._endings.wait_to_retry(self._now())
        elif isinstance(event, NotRetried):
            self._endings.not_retried(event, self._now())
        elif self._endings.recording:
            if self._endings.recorded(event.error):
                self._lease = None
        elif event.error and not self._job:
            raise event.error  # a bug of ours: nothing runs

    def _granted(self, lease: Lease) -> None:
        self._lease = lease
        last, enough, self._endings.kept = self._endings.last, self._endings.enough, False
        if last and enough:
            note = f"{enough}, before the command was started"
            self._record(Ending("stopped", None, None, 0.0, note), last.exit_status)
        elif self._abandoned is not None:
            self._record(Ending("not-started", None, None, 0.0, "told to stop"), self._abandoned)
        elif lease.request:
            ending = Ending("stopped", None, None, 0.0, "before the command was started")
            self._record(ending._replace(request=lease.request), 128 + lease.request.signal)
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
            exit_status = self._telling.no_store(claim.error)
            if self._spec.on_store_error == "run":
                self._granted(claim.lease)
                return
        else:
            self._telling.say(str(claim.error))
        self._record(Ending("not-started", None, None, 0.0, str(claim.error)), exit_status)

    def _renewed(self, lease: Lease) -> None:
        if self._job:
            self._trust.until = lease.trusted_until
            if lease.request and lease.request != self._obeyed:  # each renewal tells it again
                self._obeyed = lease.request
                self._endings.enough = request_note(lease.request)
                self._job.obey(lease.request, self._now())
        elif self._endings.kept:
            if lease.request and not self._endings.enough:
                self._stop_short(request_note(lease.request), EX_TEMPFAIL)
        elif self._lease and not self._endings.recording:
            self._granted(lease)

    def _lost(self) -> None:
        if self._job:
            why = "the lease was lost: killed at once"
            self._job.kill(Stop("lost", why, EX_TEMPFAIL, "revoked"), self._now())
            self._telling.say("the lease was lost; the command was killed")
        elif not self._endings.recording:
            last = self._endings.last
            when = "between two attempts" if last else "before the command was started"
            self._telling.say(f"the lease was lost {when}")
            self._endings.leave(last.exit_status if last else EX_TEMPFAIL)

    def _refused(self, event: Refused) -> None:
        firing, refusal, unanswered, waits = event
        self._telling.refused(firing, refusal, waits=waits)
        if unanswered and (refusal.reason, refusal.holder) == ("done", firing.holder):
            self._telling.not_started(firing, "its claim was answered when the lease had ended")

    def _failed(self, event: Failed) -> None:
        error = event.error
        if self._abandoned is not None:
            why, exit_status = "told to stop", self._abandoned
        elif isinstance(error, StoreUnavailable):
            why, exit_status = str(error), self._telling.no_store(error)
            if self._spec.on_store_error == "run" and not self._endings.last:
                self._lease = None  # granted, and too old to start with: it ends by itself
                self._start()
                return
        elif isinstance(error, OncecronError):
            self._telling.say(str(error))
            why, exit_status = str(error), error.exit_status
        else:
            raise error  # a bug of ours: nothing runs yet
        if self._lease:
            last = self._endings.last
            ending = Ending("not-started", None, None, 0.0, why)
            self._record(ending, last.exit_status if last else exit_status)
            return
        for firing in event.unanswered:
            self._telling.not_started(firing, why)
        self._endings.leave(exit_status)

    # The job

    def _start(self) -> None:
        spec, lease = self._spec, self._lease
        self._endings.started()
        self._started_wall = clock.wall()
        say = self._telling.say
        job = Job(grace=spec.grace, timeout=spec.timeout, ttl=spec.firing.ttl, say=say)
        environment = spec.job_environment(lease)
        outputs = self._capture.begin() if self._capture else ()
        group, mask = self._job_group, self._signal_mask
        try:
            job.start(spec.command, environment, group, mask, self._now(), outputs)
        except OSError as error:
            cure = "; does it lack its #! line?" if error.errno == errno.ENOEXEC else ""
            say(f"cannot start {spec.command[0]}: {error.strerror}{cure}")
            note = f"cannot be started: {error.strerror}"
            self._record(Ending("not-started", None, None, 0.0, note), EX_NOT_EXECUTABLE)
            return
        self._job, self._obeyed = job, None
        if lease:
            fields = (lease.shard, lease.execution_id, lease.attempt, lease.token, lease.started_at)
            self._report(f"job {' '.join(map(str, fields))} {lease.cause}")
            self._heartbeat.begin()
            self._telling.log.tell(spool_records.start_record(spec.firing_of(lease), lease))

    def _record(self, ending: Ending, exit_status: int) -> None:
        self._trust.until = NOTHING_TO_FENCE
        if self._capture:
            ending = self._capture.ended(ending)
        self._endings.record(
            self._lease, JobEnd(ending, exit_status), self._now(), self._started_wall
        )

    def _report(self, line: str) -> None:
        try:
            os.write(self._reports, line.encode() + b"\n")
        except OSError:  # the wrapper is gone, or does not read: never waited for
            return
