"""The states of one firing in the guard's process, and what follows each event.

    Claiming   The store is asked for a lease.
    Renewing   A lease was granted too late to start with. It is renewed first.
    Leaving    The firing is to end while the store is asked. The store has 5 s more to answer.
    Running    The job runs under a lease.
    Unclaimed  The job runs without a lease (--on-store-error run).
    Keeping    An attempt has ended and another follows. Its end is being recorded and the lease kept.
    Recording  An attempt has ended and none follows. Its end is being recorded and the lease released.
    Waiting    The delay before the next attempt is running. The lease is renewed.
    Retrying   The store is asked for the next attempt.
    Over       The guard leaves with an exit status. It ignores whatever comes now.

A cell names what may follow. `=`: the state stays. `-`: the event cannot happen. `!`: it is an error of its own.

                Claiming   Renewing   Leaving    Running    Unclaimed  Keeping    Recording  Waiting    Retrying
    Granted     Running    Running    Recording  -          -          -          -          -          Running
                Renewing   Renewing                                                                     Renewing
                Recording  Recording                                                                    Recording
    Unconfirmed Recording  -          Recording  -          -          -          -          -          -
                Running
                Renewing
    Refused     =          -          =          -          -          -          -          -          -
    NoShardLeft Over       -          Over       -          -          -          -          -          -
    Failed      Over       Recording  Over       -          -          -          -          -          -
                Unclaimed  Unclaimed  Recording
                           Over
    Renewed     -          -          =          =          -          =          =          =          =
                                                                                             Recording  Leaving
    Lost        Over       Over       Over       =          -          =          =          Over       Over
    Kept        -          -          -          -          -          Waiting    -          -          -
                                                                       Recording
    NotRetried  -          -          Recording  -          -          -          -          -          Recording
    Recorded    -          -          -          -          -          Over       Over       -          -
                                                                       Claiming   Claiming
    Crashed     !          !          !          =          =          Over       Over       !          !

    stop        Leaving    Leaving    =          =          =          =          =          Recording  Leaving
    USR1        =          =          =          =          =          =          =          =          =
    clock       =          =          Over       Keeping    Over       Over       Over       Retrying   =
                                                 Recording

The first group comes from the store thread (`events`). That thread obeys one order after another and posts in that
order. So an order is followed by its own answer, except for what was posted before the thread read the order: a
`Renewed` or `Lost` may still come in Leaving, Keeping, Recording and Retrying. The wrapper writes at any time: `stop`
is TERM, INT, QUIT, HUP (which only concerns the job while one runs) or the end of the wrapper. `clock`: a deadline has
passed, or the job is gone.

An impossible event is a bug. The guard then kills everything that it has started before it exits: no job runs without
its guard.
"""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.errors import EX_CONFIG, EX_TEMPFAIL, OncecronError, StoreUnavailable
from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Ending, Unconfirmed
from oncecron.core.timing import NEVER, RECORD_GIVE_UP
from oncecron.run import events
from oncecron.run.job import ENDING_SIGNALS, JobEnd, Stop, request_note, signal_note
from oncecron.run.spool import execution_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oncecron.core.model import Firing, Lease, Outcome
    from oncecron.run.guard import Guard
    from oncecron.run.job import Job

# ruff: noqa: SLF001 - the table has the handlers of `State` itself

_ABANDON_TIMEOUT = 5.0
"""After a signal to stop, the firing waits this long for the answer to its claim."""

WRAPPER_KILLED = "the oncecron process that cron started was killed"
_NEXT_SHARD_AFTER = ("succeeded", "failed", "timed-out")
_ASKED_TO_STOP = "asked to stop"
_BEFORE_THE_START = "before the command was started"


class ImpossibleEventError(OncecronError):
    """An event came in a state in which it is impossible."""


class State:
    """One state. Each event is a method that returns the next state; an event that is not overridden is impossible."""

    exit_status: int | None = None
    """The exit status of the guard, in the last state."""
    _deadline = NEVER
    """When `_on_due` is called (lease clock)."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def take_signal(self, number: int, *, already_there: bool) -> State:  # noqa: ARG002 - a job's alone
        """Handle a signal to the wrapper. `already_there`: the terminal has sent it to the job as well."""
        if number in (*ENDING_SIGNALS, signal.SIGHUP):
            return self._on_stop(signal_note(number), 128 + number)
        return self

    def lose_wrapper(self) -> State:
        """Handle the end of the wrapper."""
        return self._on_stop(WRAPPER_KILLED, EX_TEMPFAIL)

    def poll_timeout(self, now: float) -> float:
        """Return the seconds until `judge` has something to do."""
        return max(0.0, self._deadline - now)

    def judge(self, now: float) -> State:
        """Do what is due."""
        return self._on_due() if now >= self._deadline else self

    def take(self, event: events.Event) -> State:
        """Handle an event of the store thread."""
        return _TAKEN[type(event)](self, event)

    def _impossible(self, event: Any) -> State:
        raise ImpossibleEventError(f"{type(self).__name__} cannot take {type(event).__name__}")

    _on_granted = _on_unconfirmed = _on_refused = _on_no_shard_left = _on_failed = _impossible
    _on_renewed = _on_lost = _on_kept = _on_not_retried = _on_recorded = _impossible

    def _on_crashed(self, event: events.Crashed) -> State:
        raise event.error

    def _on_stop(self, _why: str, _exit_status: int) -> State:
        raise NotImplementedError

    def _on_due(self) -> State:
        raise NotImplementedError


_TAKEN: dict[type[events.Event], Callable[[State, Any], State]] = {
    events.Granted: lambda state, event: state._on_granted(event),
    Unconfirmed: lambda state, event: state._on_unconfirmed(event),
    events.Refused: lambda state, event: state._on_refused(event),
    events.NoShardLeft: lambda state, event: state._on_no_shard_left(event),
    events.Failed: lambda state, event: state._on_failed(event),
    events.Renewed: lambda state, event: state._on_renewed(event),
    events.Lost: lambda state, event: state._on_lost(event),
    events.Kept: lambda state, event: state._on_kept(event),
    events.NotRetried: lambda state, event: state._on_not_retried(event),
    events.Recorded: lambda state, event: state._on_recorded(event),
    events.Crashed: lambda state, event: state._on_crashed(event),
}
"""What is called for each event of the store thread."""


class Claiming(State):
    """The store is asked for a lease."""

    _last: JobEnd | None = None
    """How the last attempt ended; only `Leaving`, which is this state as well, has one."""

    def _on_granted(self, event: events.Granted) -> State:
        return _after_grant(self._guard, event.lease, None)

    def _on_unconfirmed(self, claim: Unconfirmed) -> State:
        """Give back a lease that does not count: only a record of `not-started` re-opens its tick."""
        exit_status = self._guard.reporter.say_store_failure(claim.error)
        if _runs_without(self._guard, claim.error):
            return self._on_granted(events.Granted(claim.lease))
        return _give_back(self._guard, claim.lease, str(claim.error), exit_status)

    def _on_refused(self, event: events.Refused) -> State:
        firing, refusal, waits = event
        self._guard.reporter.say_refusal(firing, refusal, waits=waits)
        return self

    def _on_no_shard_left(self, _: events.NoShardLeft) -> State:
        return _leave(self._guard, 0 if self._guard.shard_statuses else self._guard.spec.skip_exit)

    def _on_lost(self, _: events.Lost) -> State:
        return _lost(self._guard, self._last)

    def _on_failed(self, event: events.Failed) -> State:
        without = _runs_without(self._guard, event.error)
        for firing in () if without else event.unanswered:  # before the log needs descriptors
            self._guard.reporter.spool_not_started(firing, str(event.error))
        exit_status = self._guard.reporter.say_store_failure(event.error)
        return _start(self._guard, None) if without else _leave(self._guard, exit_status)

    def _on_stop(self, why: str, exit_status: int) -> State:
        return Leaving(self._guard, None, None, why, exit_status)


class Renewing(State):
    """A lease was granted too late to start with. It is renewed first."""

    def __init__(self, guard: Guard, lease: Lease, last: JobEnd | None) -> None:
        """Remember how the last attempt ended, if there was one."""
        super().__init__(guard)
        self._lease = lease
        self._last = last

    def _on_granted(self, event: events.Granted) -> State:
        return _after_grant(self._guard, event.lease, self._last)

    def _on_lost(self, _: events.Lost) -> State:
        return _lost(self._guard, self._last)

    def _on_failed(self, event: events.Failed) -> State:
        exit_status = self._guard.reporter.say_store_failure(event.error)
        if self._last is None and _runs_without(self._guard, event.error):
            return _start(self._guard, None)  # the lease ends by itself
        if self._last:
            exit_status = self._last.exit_status
        return _give_back(self._guard, self._lease, str(event.error), exit_status)

    def _on_stop(self, why: str, exit_status: int) -> State:
        return Leaving(self._guard, self._lease, self._last, why, exit_status)


class Leaving(Claiming):
    """The firing is to end while the store is asked. What it grants now is given back."""

    def __init__(
        self, guard: Guard, lease: Lease | None, last: JobEnd | None, why: str, exit_status: int
    ) -> None:
        """`lease` is the one that is renewed or retried under, if there is one."""
        super().__init__(guard)
        self._lease = lease
        self._last = last
        self._why = why
        self._exit_status = last.exit_status if last else exit_status
        self._deadline = guard.now() + _ABANDON_TIMEOUT
        guard.store_thread.withdraw()

    def _on_granted(self, event: events.Granted) -> State:
        if self._last is None:
            return _give_back(self._guard, event.lease, _ASKED_TO_STOP, self._exit_status)
        ending = _no_start("stopped", f"{self._why}, {_BEFORE_THE_START}")
        return _record(self._guard, event.lease, JobEnd(ending, self._exit_status))

    def _on_unconfirmed(self, claim: Unconfirmed) -> State:
        return self._on_granted(events.Granted(claim.lease))

    def _on_failed(self, event: events.Failed) -> State:
        if self._lease:
            return _give_back(self._guard, self._lease, _ASKED_TO_STOP, self._exit_status)
        return self._leave(event.unanswered)

    def _on_renewed(self, event: events.Renewed) -> State:
        return self if self._last else super()._on_renewed(event)

    def _on_not_retried(self, event: events.NotRetried) -> State:
        if self._lease is None or self._last is None:
            return super()._on_not_retried(event)
        why = self._guard.reporter.say_no_retry(self._lease, event, self._why)
        return _end_retries(self._guard, self._lease, self._last, why, self._why)

    def _on_stop(self, _why: str, exit_status: int) -> State:
        self._exit_status = self._last.exit_status if self._last else exit_status
        return self  # the store gets no further time

    def _on_due(self) -> State:
        """Exit, although the store may still grant the claim."""
        guard, newest = self._guard, self._guard.store_thread.newest_claim
        if self._lease is None:
            return self._leave([newest] if newest else [])
        guard.reporter.spool_not_started(guard.spec.firing_of(self._lease), _ASKED_TO_STOP)
        return _leave(guard, self._exit_status)

    def _leave(self, unanswered: list[Firing]) -> State:
        guard = self._guard
        for firing in unanswered:
            guard.reporter.spool_not_started(firing, _ASKED_TO_STOP)
        guard.reporter.record_interrupted(
            guard.store_thread.newest_claim or guard.spec.firing, self._why
        )
        return _leave(guard, self._exit_status)


class _WithJob(State):
    def __init__(self, guard: Guard, job: Job) -> None:
        super().__init__(guard)
        self._job = job

    def take_signal(self, number: int, *, already_there: bool) -> State:
        """Forward a signal to the job."""
        self._job.forward(number, self._guard.now(), already_there=already_there)
        return self

    def lose_wrapper(self) -> State:
        """End the job."""
        self._job.terminate(Stop("stopped", WRAPPER_KILLED), self._guard.now())
        return self

    def poll_timeout(self, now: float) -> float:
        """Return the seconds until `judge` has something to do."""
        return self._job.poll_timeout(now, self._guard.trust.until)

    def judge(self, now: float) -> State:
        """Do what is due; record how the job ended once none of its processes is left."""
        end = self._job.judge(now, self._guard.trust.until)
        return self._gone(end) if end else self

    def _gone(self, end: JobEnd) -> State:
        raise NotImplementedError

    def _on_crashed(self, _: events.Crashed) -> State:
        """Let the job run while its lease, which is no longer renewed, can be trusted."""
        return self


class Unclaimed(_WithJob):
    """The job runs without a lease (--on-store-error run)."""

    def __init__(self, guard: Guard, job: Job, started: float) -> None:
        """Remember when the job started (wall time): there is no lease that has it."""
        super().__init__(guard, job)
        self._started = started

    def _gone(self, end: JobEnd) -> State:
        return _record_unclaimed(self._guard, end, self._started)


class Running(_WithJob):
    """The job runs under a lease."""

    def __init__(self, guard: Guard, job: Job, lease: Lease) -> None:
        super().__init__(guard, job)
        self._lease = lease
        self._stop_reason: str | None = None

    def take_signal(self, number: int, *, already_there: bool) -> State:
        """Forward a signal to the job; an ending signal ends the whole firing."""
        if number in ENDING_SIGNALS:
            self._stop_reason = signal_note(number)
        return super().take_signal(number, already_there=already_there)

    def lose_wrapper(self) -> State:
        """End the job and the firing."""
        self._stop_reason = WRAPPER_KILLED
        return super().lose_wrapper()

    def _on_renewed(self, event: events.Renewed) -> State:
        lease = event.lease
        self._guard.trust.until = lease.trusted_until
        if lease.request:
            self._stop_reason = request_note(lease.request)
            self._job.obey(lease.request, self._guard.now())
        return self

    def _on_lost(self, _: events.Lost) -> State:
        stop = Stop("lost", "the lease was lost: killed at once", EX_TEMPFAIL, "revoked")
        self._job.kill(stop, self._guard.now())
        self._guard.reporter.say("the lease was lost; the command was killed")
        return self

    def _gone(self, end: JobEnd) -> State:
        return _record(self._guard, self._lease, end, self._stop_reason)


class Recording(State):
    """An attempt has ended and none follows. Its end is being recorded and the lease released."""

    def __init__(
        self,
        guard: Guard,
        lease: Lease,
        end: JobEnd,
        record: dict[str, object],
        stop_reason: str | None = None,
    ) -> None:
        """`record` is spooled if the store does not record the end; `stop_reason`: why no attempt follows."""
        super().__init__(guard)
        self._lease = lease
        self._end = end
        self._record = record
        self._stop_reason = stop_reason
        self._deadline = guard.now() + RECORD_GIVE_UP

    def _on_recorded(self, event: events.Recorded | events.Crashed) -> State:
        """Claim the next shard or tick, unless this one failed to be recorded or was stopped."""
        guard, (ending, exit_status), error = self._guard, self._end, event.error
        if error is not None:
            spooled = guard.reporter.spool(self._record)
            then = "; the record is spooled, and the next firing delivers it" if spooled else ""
            guard.reporter.say(f"the end of the run could not be recorded: {error}{then}")
        last = self._stop_reason or ending.outcome not in _NEXT_SHARD_AFTER
        if error is not None or last or not self._others_follow():
            return _leave(guard, exit_status)
        guard.shard_statuses.append(exit_status)
        guard.report("idle")
        guard.store_thread.claim_next()
        return Claiming(guard)

    def _others_follow(self) -> bool:
        """Return whether there are other shards, or after a tick that was made up, others; each with its own input."""
        guard = self._guard
        if guard.is_own(self._lease):
            return guard.spec.firing.shards > 1
        if guard.lacks_input:
            guard.reporter.say_no_input("no other tick is started by this firing")
        return not guard.lacks_input

    _on_crashed = _on_recorded

    def _on_due(self) -> State:
        return self._on_recorded(events.Recorded(StoreUnavailable("the store does not answer")))

    def _on_renewed(self, event: events.Renewed) -> State:
        request = event.lease.request
        return self._on_stop(request_note(request), EX_TEMPFAIL) if request else self

    def _on_lost(self, _: events.Lost) -> State:
        return self

    def _on_stop(self, why: str, _exit_status: int) -> State:
        self._stop_reason = self._stop_reason or why
        return self


class Keeping(Recording):
    """An attempt has ended and another follows. Its end is being recorded and the lease kept."""

    def _on_kept(self, _: events.Kept) -> State:
        self._guard.report("idle")
        if self._stop_reason:
            return _end_retries(
                self._guard, self._lease, self._end, self._stop_reason, self._stop_reason
            )
        return Waiting(self._guard, self._lease, self._end)


class _BetweenAttempts(State):
    """An attempt was recorded, the lease is kept, and another attempt is to follow."""

    def __init__(self, guard: Guard, lease: Lease, last: JobEnd) -> None:
        super().__init__(guard)
        self._lease = lease
        self._last = last

    def _on_renewed(self, event: events.Renewed) -> State:
        request = event.lease.request
        return self._on_stop(request_note(request), EX_TEMPFAIL) if request else self

    def _on_lost(self, _: events.Lost) -> State:
        return _lost(self._guard, self._last)


class Waiting(_BetweenAttempts):
    """The delay before the next attempt is running. The lease is renewed."""

    def __init__(self, guard: Guard, lease: Lease, last: JobEnd) -> None:
        super().__init__(guard, lease, last)
        self._deadline = guard.now() + guard.reporter.delay_after(lease)

    def _on_stop(self, why: str, _exit_status: int) -> State:
        return _end_retries(self._guard, self._lease, self._last, why, why)

    def _on_due(self) -> State:
        self._guard.store_thread.retry()
        return Retrying(self._guard, self._lease, self._last)


class Retrying(_BetweenAttempts):
    """The store is asked for the next attempt."""

    def _on_granted(self, event: events.Granted) -> State:
        return _after_grant(self._guard, event.lease, self._last)

    def _on_not_retried(self, event: events.NotRetried) -> State:
        why = self._guard.reporter.say_no_retry(self._lease, event)
        return _end_retries(self._guard, self._lease, self._last, why, None)

    def _on_stop(self, why: str, exit_status: int) -> State:
        return Leaving(self._guard, self._lease, self._last, why, exit_status)


class Over(State):
    """The guard leaves with an exit status. It ignores whatever comes now."""

    def __init__(self, guard: Guard, exit_status: int) -> None:
        super().__init__(guard)
        self.exit_status = exit_status

    def take(self, _event: events.Event) -> State:
        """Ignore it: the thread may have posted it before it got the last order."""
        return self

    def _on_stop(self, _why: str, _exit_status: int) -> State:
        return self


# Transitions from more than one state


def _after_grant(guard: Guard, lease: Lease, last: JobEnd | None) -> State:
    """Start the job, unless its end is requested, its input is gone, or too little trust is left."""
    if lease.request:
        ending = _no_start("stopped", _BEFORE_THE_START)._replace(request=lease.request)
        return _record(guard, lease, JobEnd(ending, 128 + lease.request.signal))
    if guard.lacks_input:
        why = guard.reporter.say_no_input(f"shard {lease.shard} is not started here")
        return _give_back(guard, lease, why, EX_CONFIG)
    if guard.may_start(lease):
        return _start(guard, lease)
    guard.store_thread.renew()
    return Renewing(guard, lease, last)


def _start(guard: Guard, lease: Lease | None) -> State:
    started = clock.wall()
    try:
        job = guard.start_job(lease)
    except OSError as error:
        exit_status = guard.reporter.say_no_start(error)
        ending = _no_start("not-started", f"cannot be started: {error.strerror}")
        end = JobEnd(ending, exit_status)
        return _record(guard, lease, end) if lease else _record_unclaimed(guard, end, started)
    if lease is None:
        return Unclaimed(guard, job, started)
    guard.announce_job(lease)
    return Running(guard, job, lease)


def _record(guard: Guard, lease: Lease, end: JobEnd, stop_reason: str | None = None) -> State:
    spec, (ending, exit_status) = guard.spec, end
    ending = guard.finish_job(ending)
    guard.reporter.say_end(ending)
    follows = not stop_reason and spec.retry_policy.wanted(ending, lease.attempt)
    if follows and (why := guard.why_not_again(exit_status)):
        ending, follows = ending._replace(note=_join(ending.note, why)), False
    record = execution_record(spec.firing_of(lease), lease, ending)
    guard.reporter.log.send(record)
    (guard.keep if follows else guard.end)(ending, record)
    state = Keeping if follows else Recording
    return state(guard, lease, JobEnd(ending, exit_status), record, stop_reason)


def _give_back(guard: Guard, lease: Lease, note: str, exit_status: int) -> State:
    """Record `not-started`, which alone re-opens the tick."""
    return _record(guard, lease, JobEnd(_no_start("not-started", note), exit_status))


def _record_unclaimed(guard: Guard, end: JobEnd, started: float) -> State:
    """Spool the end of a job that ran without a lease: nothing follows."""
    ending = guard.finish_job(end.ending)
    if ending.outcome == "succeeded":
        ending = ending._replace(place=None)  # `unclaimed` would not end it
    guard.reporter.say_end(ending)
    note = _join(f"without a lease, {ending.outcome}", ending.note)
    ending = ending._replace(outcome="unclaimed", note=note)
    record = execution_record(guard.spec.firing, None, ending, started_at=started)
    guard.reporter.log.send(record)
    guard.observe("end", {**record, "outcome": end.ending.outcome})
    guard.reporter.spool(record)
    return _leave(guard, end.exit_status)


def _end_retries(
    guard: Guard, lease: Lease, last: JobEnd, why: str, stop_reason: str | None
) -> State:
    """Release the lease that was kept; the record of the last attempt stays and gets a note."""
    noted = last.ending._replace(note=_join(last.ending.note, why))
    record = execution_record(guard.spec.firing_of(lease), lease, noted)
    guard.end(last.ending._replace(note=why), record)
    return Recording(guard, lease, last, record, stop_reason)


def _lost(guard: Guard, last: JobEnd | None) -> State:
    when = "between two attempts" if last else _BEFORE_THE_START
    guard.reporter.say(f"the lease was lost {when}")
    return _leave(guard, last.exit_status if last else EX_TEMPFAIL)


def _leave(guard: Guard, exit_status: int) -> State:
    """Leave with the status of the first shard that failed, if one did, else with this one."""
    return Over(guard, next(filter(None, guard.shard_statuses), exit_status))


def _runs_without(guard: Guard, error: OncecronError) -> bool:
    return isinstance(error, StoreUnavailable) and guard.spec.on_store_error == "run"


def _no_start(outcome: Outcome, note: str) -> Ending:
    return Ending(outcome, None, None, 0.0, note)


def _join(*notes: str | None) -> str:
    return "; ".join(filter(None, notes))
