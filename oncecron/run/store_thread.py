"""The store thread of the guard: it claims, renews and records.

Everything that can block in the network, in name resolution or in TLS happens here, and nothing on the way to a kill
waits for this thread. It is the only user of its store object. It takes the guard's orders from a mailbox, one after
another, and posts events as answers, in the order in which things happen:

    claim        The thread begins with it (see `claimer`), after it has delivered what a claim needs of the spool: how
                 runs of this key ended.  `Granted` or `Unconfirmed`: the lease is parked until the next order, so that
                 the guard forks while this thread holds no lock of a library.  `NoShardLeft`, `Lost`, or `Failed`
                 with the shards that may have been granted: the thread ends.  `Refused` may come before.
    renew        Renews once a lease that was granted too late to start with, within the budget of a claim:
                 `Granted`, `Lost` or `Failed`.
    beat         The job runs, and the heartbeats start.  The lease is renewed every sixth of the ttl, and immediately
                 when the connection is readable: the server is closing it, or has sent a notification (the thread
                 listens after a second).  While the store is unreachable, renewals are retried with jitter.
                 `Renewed` moves the end of trust and may bring a request; after `Lost` there are no more heartbeats.
                 A store that does not hold its connection (`LeaseStore.holds_connection`) gives it back after a
                 second, and after each heartbeat; the first one comes at a random moment, so that jobs that began
                 together do not connect together.
    leave        Sends a place that the job has left with a renewal at once, or with the next one that succeeds.
    keep         Records how an attempt ended and keeps the lease, with its heartbeats: `Kept`.  If the store does not
                 answer, or the lease is lost, it is treated like `end`: `Recorded`.
    retry        Begins the next attempt, within the budget of a claim: `Granted` (parked like a claim), `NotRetried`
                 (the heartbeats continue) or `Lost`.
    end          Records how the job ended, within `RECORD_TIMEOUT`: `Recorded`, with an error if the guard is to
                 spool it. Where other shards or ticks may follow, it renews first: to hear of a request (`Renewed`).
    claim next   Claims the next shard after `Recorded`.  Any other order ends the thread then.
    withdraw     Ends an unanswered claim or retry: `Failed` or `NotRetried`.  It may come at any time.

The rest of the spool is delivered when nothing else is to be done: before `NoShardLeft`, and before the `Recorded` of a
key without shards, whose lease is then released. Between two heartbeats the thread does nothing that could delay one.

An attempt that was, or may have been, granted and never began is recorded before `Lost`. A bug ends the thread with
`Crashed`.
"""

from __future__ import annotations

import os
import select

from oncecron.core import clock, system
from oncecron.core.errors import OncecronError, StoreError, StoreUnavailable
from oncecron.core.light_modules import deque
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Lease, Refusal, Unconfirmed
from oncecron.core.retry import Backoff, random_fraction
from oncecron.core.timing import (
    BACKLOG_AFTER_END,
    CALL_TIMEOUT,
    HEARTBEATS_PER_TTL,
    LONGEST_SLEEP,
    NEVER,
    POLL_ROUNDING,
    RECORD_TIMEOUT,
)
from oncecron.host import stderr
from oncecron.run.claimer import Claimer, StoreConnection
from oncecron.run.events import (
    Crashed,
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
from oncecron.run.spool import lost_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Ending, Firing, LostRun
    from oncecron.run.events import Event
    from oncecron.run.seams import Observer
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore

_RENEW_PAUSE = 0.01
"""Added to the delay before a failed renewal is retried: full jitter may give 0."""
_LONGEST_RENEW_PAUSE = 1 / 4
"""The largest upper bound of the delay before a renewal is retried, as a fraction of the heartbeat interval."""
_SHORTEST_RENEW_PAUSE = 0.2
"""That bound is never smaller than this."""
_LISTEN_AFTER = 1.0
"""The holder listens for requests after the job has run for this long, so that short jobs do not pay for it."""
_BACKLOG_BEFORE_CLAIM = 5.0
"""Before its claim a firing delivers spooled ends for at most this long, and for half of --connect-timeout at most:
a tick that is claimed late may be overtaken by the next one."""


class Withdrawn(OncecronError):  # noqa: N818 - the firing is to end
    """The firing was stopped before the store answered."""


class StoreThread:
    """The thread and its two mailboxes. The guard calls the public methods; none of them blocks."""

    def __init__(
        self, spec: RunSpec, open_store: Callable[[], LeaseStore], observer: Observer | None = None
    ) -> None:
        """`observer` gets the runs of other firings that a claim declares lost."""
        self._spec = spec
        self._open_store = open_store
        self._observer = observer
        self._claimer: Claimer | None = None
        self._events: deque[Event] = deque()
        self._orders: deque[Callable[[], None]] = deque()
        """The guard's orders: what the thread is to do."""
        self.event_fd = system.calls.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_fd = system.calls.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._patience = stderr.Patience(wanted=spec.verbose)
        self._withdrawn = False
        self._holding = self._beating = False
        self._place: bytes | None = None
        """What the job has left and no renewal has brought; None: nothing."""
        self.failure = ""
        """Why the last renewal has failed: the next one goes without the place, which must not endanger it."""
        self._is_refused = False
        """Whether the store has refused a renewal with a place: it waits for the usual one."""
        self._renew_at = self._listen_at = NEVER
        self._renew_deadline = NEVER
        """Until when a renewal before the start is tried again; `NEVER`: no start waits for the renewals."""
        self._interval = spec.firing.ttl / HEARTBEATS_PER_TTL
        self._ask_timeout = min(CALL_TIMEOUT, self._interval)

    def start(self) -> None:
        """Begin to claim."""
        system.calls.start_thread(self._run, ())

    def events(self) -> list[Event]:
        """Return what has happened since the last call."""
        try:
            # Before the look: what is posted from now on makes it readable again.
            system.calls.eventfd_read(self.event_fd)
        except BlockingIOError:
            return []
        return [self._events.popleft() for _ in range(len(self._events))]

    @property
    def newest_claim(self) -> Firing | None:
        """The shard of the newest claim, answered or not."""
        return self._claimer.newest_claim if self._claimer else None

    def renew(self) -> None:
        """Renew before the job is started; answered by `Granted`, `Lost` or `Failed`."""
        self._order(self._renew_for_start)

    def beat(self) -> None:
        """Begin the heartbeats: the job has been started."""
        self._order(self._beat)

    def leave(self, place: bytes) -> None:
        """Send a new place; answered by `Renewed`."""
        self._order(lambda: self._leave(place))

    def keep(self, ending: Ending) -> None:
        """Record the end of an attempt and keep the lease; answered by `Kept` or `Recorded`."""
        self._order(lambda: self._keep(ending))

    def retry(self) -> None:
        """Begin the next attempt; answered by `Granted`, `NotRetried` or `Lost`."""
        self._order(self._retry)

    def end(self, ending: Ending) -> None:
        """Record the end and release the lease; answered by `Recorded`."""
        self._order(lambda: self._record(ending))

    def claim_next(self) -> None:
        """Claim the next shard after an end was recorded; answered like the first claim."""
        self._order(_claim_next)

    def withdraw(self) -> None:
        """Stop claiming. The guard gives back a lease that is still granted."""
        self._withdrawn = True
        self._wake()

    def _order(self, step: Callable[[], None]) -> None:
        self._orders.append(step)
        self._wake()

    def _wake(self) -> None:
        system.calls.eventfd_write(self._wake_fd, 1)

    def _post(self, event: Event) -> None:
        self._events.append(event)  # before the guard is woken, which must find it
        system.calls.eventfd_write(self.event_fd, 1)

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            self._connection = StoreConnection(self._open_store())
            self._clock = self._connection.store.lease_clock
            if self._observer:
                self._connection.store.on_lost = self._report_lost
            claimer = Claimer(self._spec, self._connection, self._pause, self._post_refusal)
            self._claimer = claimer
            began = self._now()
            self._deliver_ends(began)
            while lease := self._claim(claimer, began):
                if not self._hold_to_its_end(lease):
                    return
                began = self._now()
        except OncecronError as error:
            self._post(Failed(error, self._claimer.unanswered if self._claimer else []))
        except Exception as error:  # noqa: BLE001 - the guard reports it, whatever it is
            self._post(Crashed(error))

    def _now(self) -> float:
        return clock.lease_time(self._clock)

    def _sleep(self, seconds: float, fd: int | None = None) -> bool:
        poll = system.calls.poll()
        poll.register(self._wake_fd, select.POLLIN)
        if fd is not None:
            poll.register(fd, select.POLLIN)
        deadline = self._now() + seconds
        while (remaining := deadline - self._now()) > 0:
            timeout = min(LONGEST_SLEEP, remaining) + POLL_ROUNDING
            readable = [descriptor for descriptor, _ in poll.poll(timeout * 1000)]
            if self._wake_fd in readable:
                system.calls.eventfd_read(self._wake_fd)
            if readable:
                return fd in readable
        return False

    # Claiming

    def _claim(self, claimer: Claimer, began: float) -> Lease | None:
        """Claim; return the lease that was posted to the guard, or None after `NoShardLeft` or `Lost`."""
        try:
            answer = claimer.next(began)
        except Withdrawn:
            answer = claimer.unconfirmed()
            if answer is None:
                self._connection.close()
                raise
        if answer is None:
            self._deliver_rest()
            self._post(NoShardLeft())
            return None
        if isinstance(answer, Refusal):
            self._post(Lost())
            return None
        if isinstance(answer, Unconfirmed):
            self._post(answer)
            return answer.lease
        self._grant(answer)
        return answer

    def _grant(self, lease: Lease) -> None:
        """Post the lease to start a job with; the guard forks next."""
        if self._spec.body and not self._connection.store.survives_fork:
            self._connection.close()  # the forked process opens the same store
        self._post(Granted(lease))

    def _pause(self, seconds: float, fd: int | None) -> bool:
        readable = not self._withdrawn and seconds > 0 and self._sleep(seconds, fd)
        if self._withdrawn:
            raise Withdrawn
        return readable

    def _post_refusal(self, firing: Firing, refusal: Refusal, waits: bool) -> None:
        self._post(Refused(firing, refusal, waits))

    def _report_lost(self, firing: Firing, lost: LostRun) -> None:
        if self._observer:
            self._observer.send("lost", lost_record(firing, lost))

    # Holding a lease

    def _hold_to_its_end(self, lease: Lease) -> bool:
        """Hold the lease until its end is on record; return whether the guard wants another shard."""
        try:
            self._hold(lease)
        except Exception as error:  # noqa: BLE001 - the guard ends a job before its lease ends
            self._post(Crashed(error))
            return False
        while not self._orders:
            self._sleep(NEVER)
        return self._orders.popleft() is _claim_next

    def _hold(self, lease: Lease) -> None:
        self._lease, self._place = lease, None
        self.failure, self._is_refused = "", False
        longest = max(_SHORTEST_RENEW_PAUSE, self._interval * _LONGEST_RENEW_PAUSE)
        self._backoff = Backoff(cap=longest)
        self._holding = True
        self._park()
        while self._holding:
            if self._orders:
                self._orders.popleft()()
                continue
            now = self._now()
            if now >= self._renew_at:
                self._renew()
            elif now >= self._listen_at:
                self._listen()
            else:
                fd = self._connection.store.watch_fd() if self._beating else None
                if self._sleep(min(self._renew_at, self._listen_at) - now, fd):
                    self._renew_at = self._now()

    def _renew_for_start(self) -> None:
        self._renew_at = self._now()
        self._renew_deadline = self._renew_at + self._spec.connect_timeout

    def _park(self) -> None:
        self._beating = False
        self._renew_at = self._listen_at = self._renew_deadline = NEVER

    def _beat(self) -> None:
        now = self._now()
        self._beating = True
        self._renew_deadline = NEVER
        holds = self._connection.store.holds_connection
        if not holds and self._spec.verbose:
            stderr.complain(
                f"key {self._lease.key}: no connection to PostgreSQL is held between heartbeats "
                "(hold=no, or the server is nearly full)"
            )
        self._renew_at = now + self._interval * (1.0 if holds else random_fraction())
        self._listen_at = now + _LISTEN_AFTER

    def _leave(self, place: bytes) -> None:
        self._place = place
        if self._beating and not (self.failure or self._is_refused):
            self._renew_at = self._now()

    def _listen(self) -> None:
        self._listen_at = NEVER
        if self._close_unless_held():
            return
        try:
            self._connection.listen(
                self._spec.firing_of(self._lease), self._now() + self._ask_timeout
            )
        except StoreError:
            self._connection.close()
            self._renew_at = self._now()
            self._listen_at = self._renew_at + self._interval  # it may fail each time

    def _close_unless_held(self) -> bool:
        holds = self._connection.store.holds_connection
        if not holds:
            self._connection.close()
        return not holds

    def _renew(self) -> None:
        firing, place = self._spec.firing_of(self._lease), None if self.failure else self._place
        try:
            renewed = self._connection.store.renew(
                self._lease, deadline=self._now() + self._ask_timeout, place=place
            )
        except StoreError as error:
            self.failure = str(error)
            self._is_refused |= place is not None and not isinstance(error, StoreUnavailable)
            if self._spec.verbose:
                stderr.complain(f"key {firing.key}: lease not renewed yet, retrying: {error}")
            self._connection.close()
            self._renew_at = self._now() + _RENEW_PAUSE + self._backoff.delay()
            if self._renew_at > self._renew_deadline:
                self._park()
                self._post(Failed(error, []))
            return
        if renewed is None:
            self._lose(unbegun=self._renew_deadline < NEVER)
            return
        self._lease, self.failure = renewed, ""
        if place is not None:
            self._place, self._is_refused = None, False
        self._backoff.reset()
        if self._renew_deadline < NEVER:  # to start a job with
            self._park()
            self._grant(renewed)
            return
        self._post(Renewed(renewed))
        self._renew_at = self._now() + self._interval if self._beating else NEVER
        if self._place is not None and not self._is_refused:  # the store is back
            self._leave(self._place)
        if not self._beating or self._close_unless_held():
            return
        if self._listen_at == NEVER and not self._connection.listens(firing):
            self._listen_at = self._now()  # a new connection

    def _lose(self, *, unbegun: bool) -> None:
        """Post that the lease is lost; record an attempt that was, or may have been, granted and never began."""
        self._park()
        if unbegun:
            firing, why = self._spec.firing_of(self._lease), "its lease ended before it could start"
            self._connection.record_not_started(firing, self._spec.spool, why)
        self._post(Lost())

    def _keep(self, ending: Ending) -> None:
        store, lease, self._place = self._connection.store, self._lease, None  # the end has it
        answer = self._answer(lambda deadline: store.keep(lease, ending, deadline=deadline))
        if answer is True:
            self._renew_at = self._now() + self._interval
            self._close_unless_held()
            self._post(Kept())
        elif answer is False:  # the lease is lost: record the end
            self._record(ending)
        else:
            self._post_end(answer)

    def _retry(self) -> None:
        deadline, backoff, unanswered = self._now() + self._spec.connect_timeout, Backoff(), False
        self._wait_for("no answer from the store yet", self._spec.connect_timeout)
        answer: Lease | Refusal | OncecronError | None = Withdrawn()
        while not self._withdrawn:
            try:
                answer = self._connection.store.retry(
                    self._lease, deadline=self._now() + self._ask_timeout
                )
                break
            except StoreError as error:
                # A traceback would lead to this frame, and the frame to the error.
                answer = error.with_traceback(None)
                unanswered |= error.unanswered
                self._connection.close()
                pause = backoff.delay()
                if not isinstance(error, StoreUnavailable) or self._now() + pause > deadline:
                    break
                self._sleep(pause)
        self._patience.over()
        if answer is None:
            self._lose(unbegun=unanswered)
        elif isinstance(answer, Lease):
            self._lease = answer
            self._park()
            self._post(Granted(answer))
        else:
            self._post(NotRetried(answer, unanswered))

    def _record(self, ending: Ending) -> None:
        firing = self._spec.firing
        others_follow = firing.shards > 1 or self._lease.owner != firing.owner
        if others_follow and not self.failure:
            self._renew()  # none does where somebody has asked for the end since the last heartbeat
        store, lease, retention = self._connection.store, self._lease, self._spec.retention
        answer = self._answer(
            lambda deadline: store.finish(lease, ending, retention, deadline=deadline)
        )
        self._post_end(None if isinstance(answer, bool) else answer)

    def _post_end(self, error: StoreError | None) -> None:
        self._connection.close()
        self._holding = False
        if error is None and self._spec.firing.shards == 1:
            self._deliver_rest()
        self._post(Recorded(error))

    def _answer(self, ask: Callable[[float], bool]) -> bool | StoreError:
        deadline, backoff = self._now() + RECORD_TIMEOUT, Backoff()
        self._wait_for("the store has not recorded the end yet", RECORD_TIMEOUT)
        try:
            while True:
                try:
                    return ask(self._now() + self._ask_timeout)
                except StoreError as error:
                    self._connection.close()
                    pause = backoff.delay()
                    if self._now() + pause > deadline:
                        return error.with_traceback(None)  # likewise
                self._sleep(pause)
        finally:
            self._patience.over()

    def _wait_for(self, what: str, seconds: float) -> None:
        self._patience.wait(what, f"{self._spec.firing.key}: {what}; it has {seconds:g} s")

    # The spool

    def _deliver_ends(self, began: float) -> None:
        """Deliver how runs of this key ended; most of the time that the claim has stays for the claim."""
        budget = self._spec.connect_timeout
        until = began + min(_BACKLOG_BEFORE_CLAIM, budget / 2)
        self._wait_for("the store has not taken all spooled records yet", budget)
        self._deliver(self._spec.firing.key, until, began + budget, ends=True)
        self._patience.over()

    def _deliver_rest(self) -> None:
        """Deliver what is left, this key's records first, on a connection that holds no lock of the key."""
        until = self._now() + BACKLOG_AFTER_END
        if self._deliver(self._spec.firing.key, until, until):
            self._deliver(None, until, until)
        self._connection.close()

    def _deliver(
        self, key: str | None, until: float, deadline: float, *, ends: bool = False
    ) -> bool:
        """Begin no record after `until`, and end by the deadline; return whether there was time for all."""

        def seconds() -> float:
            now = self._now()
            over = self._withdrawn or now >= until
            return 0.0 if over else min(self._ask_timeout, deadline - now)

        return self._spec.spool.deliver(self._connection.store, key, seconds, ends=ends)


def _claim_next() -> None:
    """Stand for the order to claim the next shard, which counts when the end of the last one is on record."""
