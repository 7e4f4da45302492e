"""The guard: the process that owns the job, and ends it when the lease or the wrapper is gone.

One loop waits for the wrapper's orders (a pipe), for signals (a descriptor) and for the heartbeat thread (an
event), at most a second, and then judges:

    claiming   an answer -> start the job, or leave.  The wrapper is gone, or tells a signal that ends -> give up;
               a lease that comes all the same is given back as `not-started`, which alone re-opens the tick
    running    the job has ended -> its leftovers, unless it succeeded, are ended too
               a signal from the wrapper -> to the job (USR1, USR2) or to its tree; a second one that ends
               starts the grace, a third ends it
               --timeout, or the wrapper is gone -> TERM to the tree, KILL after the grace
               trust ends in a quarter of the ttl -> TERM; in a twelfth -> KILL
               the lease is lost for good -> KILL
    recording  the tree is gone: trust is cleared, the end recorded or spooled, the exit status told

The lease is released only after `waitpid` has said that nothing is left. Nothing on the way to a kill touches
the store: that is the heartbeat thread's, and it is never waited for.
"""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, NamedTuple

from oncecron import child, clock, messages, records
from oncecron.errors import (
    EX_NOT_EXECUTABLE,
    EX_SOFTWARE,
    EX_TEMPFAIL,
    EX_TIMED_OUT,
    OncecronError,
    StoreUnavailable,
)
from oncecron.heartbeat import Failed, Granted, Heartbeat, Lost, Recorded, Refused, Renewed
from oncecron.model import Ending, Refusal
from oncecron.spool import SpoolError
from oncecron.trust import GUARD_KILLS_BEFORE, NOTHING_TO_FENCE, TERM_BEFORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.heartbeat import Event
    from oncecron.model import Lease, Outcome
    from oncecron.plan import Plan
    from oncecron.store import FiringStore
    from oncecron.trust import Trust

NOTE_ONLY = 0x80
"""Added to a signal's number by the wrapper: the terminal has sent it to the job already."""

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_ABANDON_WITHIN = 5.0  # seconds for a claim to come back after the firing was told to stop
_RECORD_WITHIN = 15.0  # seconds after which the heartbeat thread is not waited for
_FOREVER = float("inf")


class Stop(NamedTuple):
    """Why we end the job."""

    outcome: Outcome
    note: str | None
    exit_status: int | None = None
    """None: the child's own."""


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
        self._tree = child.Tree()
        self._lease: Lease | None = None
        self._wrapper_gone = False
        self._abandoned: int | None = None
        self._job: int | None = None
        self._started = self._started_wall = 0.0
        self._stop: Stop | None = None
        self._told_to_end: list[int] = []
        self._kill_at = _FOREVER
        self._kill_pause = 0.002
        self._ending: Ending | None = None
        self._give_up_at = _FOREVER
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
        moments = [self._kill_at, self._give_up_at]
        if self._running:
            if now >= self._kill_at:
                return self._kill_pause
            ttl = self._plan.firing.ttl
            moments.append(self._started + (self._plan.timeout or _FOREVER))
            if until := self._trust.until:
                moments += [until - ttl * TERM_BEFORE, until - ttl * GUARD_KILLS_BEFORE]
        left = min((moment - now for moment in moments if moment > now), default=1.0)
        return min(1.0, left + 0.001)

    @property
    def _running(self) -> bool:
        return self._job is not None and self._ending is None

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
        if self._running:
            self._end_job(Stop("stopped", "the oncecron process that cron started was killed"))
        elif self._job is None:
            self._abandon(EX_TEMPFAIL)
        return False

    def _forward(self, number: int, *, already_there: bool) -> None:
        ends = number in _ENDING_SIGNALS
        if ends:
            self._told_to_end.append(number)
        if not self._running:
            if ends and self._job is None:
                self._abandon(128 + number)
            return
        if not already_there:
            if ends:
                self._tree.signal(number)
            else:
                child.signal_one(self._job or 0, number)
        if len(self._told_to_end) == 2:  # noqa: PLR2004 - the second is for faster, the third for now
            self._kill_at = min(self._kill_at, self._now() + self._plan.grace)
        elif len(self._told_to_end) > 2:  # noqa: PLR2004
            self._kill_at = self._now()

    def _abandon(self, exit_status: int) -> None:
        self._abandoned = exit_status
        self._give_up_at = self._now() + _ABANDON_WITHIN
        self._heartbeat.abandon()

    # What the heartbeat thread tells

    def _take(self, event: Event) -> None:
        if isinstance(event, Granted):
            self._granted(event.lease)
        elif isinstance(event, Renewed):
            self._renewed(event.trusted_until)
        elif isinstance(event, Lost):
            self._lost()
        elif isinstance(event, Refused):
            self._refused(event.refusal)
        elif isinstance(event, Failed):
            self._failed(event.error)
        elif isinstance(event, Recorded) and self._ending is not None:
            self._recorded(event.error)

    def _granted(self, lease: Lease) -> None:
        self._lease = lease
        if self._abandoned is not None:
            self._record(Ending("not-started", None, None, 0.0, "told to stop"), self._abandoned)
        elif lease.trusted_until - self._now() < lease.ttl / 2:
            self._heartbeat.renew()  # the answer was slow: not enough trust left to start with
        else:
            self._start()

    def _renewed(self, trusted_until: float) -> None:
        if self._running:
            self._trust.until = trusted_until
        elif self._lease and self._job is None and self._ending is None:
            self._granted(self._lease._replace(trusted_until=trusted_until))

    def _lost(self) -> None:
        if self._running:
            self._stop = Stop("lost", "the lease was lost: killed at once", EX_TEMPFAIL)
            self._kill_at = self._now()
            self._say("the lease was lost; the command was killed")
        elif self._job is None:
            self._say("the lease was lost before the command was started")
            self._leave(EX_TEMPFAIL)

    def _refused(self, refusal: Refusal) -> None:
        if self._plan.verbose or os.isatty(2):
            self._say(messages.refusal_sentence(self._plan.firing, refusal), key=False)
        self._leave(self._plan.skip_exit)

    def _failed(self, error: Exception) -> None:
        if self._abandoned is not None:
            self._leave(self._abandoned)
        elif isinstance(error, StoreUnavailable):
            self._no_store(error)
        else:
            self._say(str(error) or type(error).__name__)
            self._leave(error.exit_status if isinstance(error, OncecronError) else EX_SOFTWARE)

    def _no_store(self, error: StoreUnavailable) -> None:
        plan = self._plan
        if plan.spool.note_unreachable(plan.firing.key):
            self._say(str(error))
        if plan.on_store_error == "run":
            self._start()
            return
        refusal = Refusal("no-store", detail=str(error))
        self._spool(records.skip_record(plan.firing, refusal))
        self._leave(plan.skip_exit if plan.on_store_error == "skip" else error.exit_status)

    # The job

    def _start(self) -> None:
        plan, lease = self._plan, self._lease
        if lease:
            self._trust.until = lease.trusted_until
        self._started, self._started_wall = self._now(), clock.wall()
        try:
            self._job = child.start(
                plan.command, job_environment(plan, lease), self._job_group, self._signal_mask
            )
        except OSError as error:
            self._trust.until = NOTHING_TO_FENCE
            self._say(f"cannot start {plan.command[0]}: {error.strerror}")
            note = f"cannot be started: {error.strerror}"
            self._record(Ending("not-started", None, None, 0.0, note), EX_NOT_EXECUTABLE)
            return
        if lease:
            fields = (lease.execution_id, lease.attempt, lease.token, lease.started_at)
            self._report(f"job {' '.join(map(str, fields))}")
            self._heartbeat.begin()

    def _judge(self, now: float) -> None:
        if not self._running:
            if now >= self._give_up_at and not self._left:
                self._gave_up()
            return
        children_left = self._tree.reap()
        if self._job in self._tree.statuses and not self._job_ended(
            now, children_left=children_left
        ):
            return
        self._judge_trust(now)
        if self._plan.timeout and now >= self._started + self._plan.timeout:
            self._end_job(Stop("timed-out", f"after {self._plan.timeout:g} s", EX_TIMED_OUT))
        if now >= self._kill_at:
            self._tree.kill()
            self._kill_pause = min(0.5, self._kill_pause * 1.5)

    def _judge_trust(self, now: float) -> None:
        until, ttl = self._trust.until, self._plan.firing.ttl
        if not until or now < until - ttl * TERM_BEFORE:
            return
        if self._stop is None or self._stop.outcome != "lost":
            self._say("the lease could not be renewed in time; the command is stopped")
            self._tree.signal(signal.SIGTERM)
            self._stop = Stop("lost", "the lease could not be renewed in time", EX_TEMPFAIL)
            self._kill_at = min(self._kill_at, now + self._plan.grace)
        self._kill_at = min(self._kill_at, until - ttl * GUARD_KILLS_BEFORE)

    def _end_job(self, stop: Stop) -> None:
        """TERM now, KILL after the grace; the first reason is the one that is recorded."""
        if self._stop is None:
            self._stop = stop
            self._tree.signal(signal.SIGTERM)
            self._kill_at = min(self._kill_at, self._now() + self._plan.grace)

    def _job_ended(self, now: float, *, children_left: bool) -> bool:
        """Record the end if the run is over; return whether something of it is still to be ended."""
        status = self._tree.statuses[self._job or 0]
        succeeded = status == 0 and self._stop is None and not self._told_to_end
        if children_left and not succeeded:
            if self._kill_at == _FOREVER:
                self._tree.signal(signal.SIGTERM)
                self._kill_at = now + self._plan.grace
            return True
        self._record(*self._outcome_of(status, now - self._started))
        return False

    def _outcome_of(self, status: int, duration: float) -> tuple[Ending, int]:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number else os.WEXITSTATUS(status)
        exit_status = child.exit_status(status)
        outcome: Outcome = "succeeded" if code == 0 else "failed"
        note = None
        if self._stop:
            outcome, note, override = self._stop
            exit_status = exit_status if override is None else override
        elif outcome == "failed" and self._told_to_end:
            outcome = "stopped"
            note = f"after {signal.Signals(self._told_to_end[0]).name} to oncecron"
        if self._lease is None:
            note = "; ".join(filter(None, (f"without a lease, {outcome}", note)))
            outcome = "unclaimed"
        return Ending(outcome, code, number, duration, note), exit_status

    # The end

    def _record(self, ending: Ending, exit_status: int) -> None:
        self._trust.until = NOTHING_TO_FENCE
        self._ending = ending
        self._exit_status = exit_status
        if self._lease is None:
            self._recorded(StoreUnavailable("the store was away when the command was started"))
            return
        self._give_up_at = self._now() + _RECORD_WITHIN
        self._heartbeat.end(ending)

    def _recorded(self, error: Exception | None) -> None:
        if error is not None and self._ending is not None:
            plan = self._plan
            if self._lease:
                self._say(f"the end could not be recorded and is kept for later: {error}")
            record = records.execution_record(
                plan.firing, self._lease, self._ending, started_at=self._started_wall
            )
            self._spool(record)
        self._leave(self._exit_status)

    def _gave_up(self) -> None:
        if self._ending is not None:
            self._recorded(StoreUnavailable("the store does not answer"))
        elif self._abandoned is not None:
            # A claim may be under way: only a positive word re-opens its tick.
            ending = Ending("not-started", None, None, 0.0, "told to stop")
            self._spool(records.execution_record(self._plan.firing, self._lease, ending))
            self._leave(self._abandoned)

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


def job_environment(plan: Plan, lease: Lease | None) -> dict[str, str]:
    """Return the environment of the child: what is there, and what oncecron tells it."""
    firing = plan.firing
    told = {"ONCECRON_KEY": firing.key, "ONCECRON_SHARD": str(firing.shard), "ONCECRON_SHARDS": "1"}
    if firing.tick.text:
        told["ONCECRON_TICK"] = firing.tick.text
    if lease:
        told["ONCECRON_EXECUTION_ID"] = str(lease.execution_id)
        told["ONCECRON_FENCING_TOKEN"] = str(lease.token)
    told["ONCECRON_ATTEMPT"] = str(lease.attempt if lease else 1)
    inherited = {name: value for name, value in os.environ.items() if name not in _TOLD_NAMES}
    return {**inherited, **told}


_TOLD_NAMES = frozenset(
    (
        "ONCECRON_KEY",
        "ONCECRON_TICK",
        "ONCECRON_EXECUTION_ID",
        "ONCECRON_FENCING_TOKEN",
        "ONCECRON_ATTEMPT",
        "ONCECRON_SHARD",
        "ONCECRON_SHARDS",
    )
)
