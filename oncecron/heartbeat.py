"""The thread of the guard that talks to the store: claim, heartbeats, the record of the end.

Everything that can block in the network, in name resolution or in TLS happens here, and nobody ever waits for
this thread on the way to a kill. It is the only user of its store object.

    claim    asks until there is an answer; a store that is away is asked again with full jitter until the
             budget (--connect-timeout) ends; `AskAgain` is obeyed.  Granted -> parked until the job has been
             started (the guard forks while this thread holds no lock of any library).  Granted, but not as
             safely as the store's address asks for -> asked again; when the budget ends it is given back.
             Asked, and never answered -> the guard is told that it may have been granted
    beat     renews every sixth of the ttl, at once when the session's socket stirs (the first sign that a
             server is going), and again and again with jitter while the store is away.  Each renewal
             moves the end of trust; a lease that is lost for good is an event for the guard.
    end      records how the job ended, within a bounded time; what cannot be recorded is spooled by the guard.
"""

from __future__ import annotations

import collections
import os
import select
import threading
from typing import TYPE_CHECKING, NamedTuple

from oncecron import clock, messages, records
from oncecron.backoff import Backoff, jittered, random_fraction
from oncecron.errors import StoreError, StoreUnavailable
from oncecron.model import HEARTBEATS_PER_TTL, AskAgain, Ending, Lease, Refusal, Unconfirmed
from oncecron.spool import OTHERS_AT_ONCE, SpoolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.plan import Plan
    from oncecron.store import FiringStore

_ALONE_AFTER = 2.0  # seconds of `contended` after which the key's row lock decides alone
_RECORD_WITHIN = 10.0  # seconds to record an end before it is spooled
_ASK_WITHIN = 5.0  # seconds for one call, at most; less with a short ttl


class Granted(NamedTuple):
    """The claim was answered by a lease."""

    lease: Lease


class Refused(NamedTuple):
    """The claim was answered by a refusal."""

    refusal: Refusal
    unanswered: bool


class Failed(NamedTuple):
    """The claim was not answered; nothing was started."""

    error: Exception
    unanswered: bool
    """Whether the store was asked, so that it may have granted a lease."""


class Renewed(NamedTuple):
    """The lease was renewed and is trusted until then (lease clock)."""

    trusted_until: float


class Lost(NamedTuple):
    """The lease is lost for good: somebody else may have it."""


class Recorded(NamedTuple):
    """The end was recorded, or could not be."""

    error: Exception | None


Event = Granted | Unconfirmed | Refused | Failed | Renewed | Lost | Recorded


class Abandoned(Exception):  # noqa: N818 - no error: the guard gave up waiting
    """The firing was told to stop before it got an answer."""


class Heartbeat:
    """The thread and its two mailboxes. The guard calls the public methods; none of them blocks."""

    def __init__(self, plan: Plan, open_store: Callable[[], FiringStore]) -> None:
        self._plan = plan
        self._open_store = open_store
        self._events: collections.deque[Event] = collections.deque()
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._abandoned = False
        self._unanswered = False
        self._started = False
        self._lost = False
        self._renewal_wanted = False
        self._ending: Ending | None = None
        self._interval = plan.firing.ttl / HEARTBEATS_PER_TTL
        self._patience = min(_ASK_WITHIN, self._interval)

    def start(self) -> None:
        """Begin to claim."""
        threading.Thread(target=self._run, daemon=True).start()

    def events(self) -> list[Event]:
        """Return what has happened since the last call."""
        try:
            os.eventfd_read(self.event_fd)
        except BlockingIOError:
            return []
        return [self._events.popleft() for _ in range(len(self._events))]

    def renew(self) -> None:
        """Renew before the job is started; answered by `Renewed` or `Lost`."""
        self._renewal_wanted = True
        self._wake()

    def begin(self) -> None:
        """Begin the heartbeats: the job has been started."""
        self._started = True
        self._wake()

    def end(self, ending: Ending) -> None:
        """Record the end and release the lease; answered by `Recorded`."""
        self._ending = ending
        self._wake()

    def abandon(self) -> None:
        """Stop claiming: the firing was told to end. A lease that comes all the same is given back."""
        self._abandoned = True
        self._wake()

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _post(self, event: Event) -> None:
        self._events.append(event)
        os.eventfd_write(self.event_fd, 1)

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            self._store = self._open_store()
            self._clock = self._store.lease_clock
            answer = self._claim()
        except Exception as error:  # noqa: BLE001 - the guard tells the user, whatever it is
            self._post(Failed(error, self._unanswered))
            return
        if isinstance(answer, Refusal):
            self._store.close()
            self._post(Refused(answer, self._unanswered))
            return
        lease = answer.lease if isinstance(answer, Unconfirmed) else answer
        self._post(answer if isinstance(answer, Unconfirmed) else Granted(lease))
        try:
            self._beat(lease)
        except Exception as error:  # noqa: BLE001 - a bug of ours: the guard's deadline ends the job
            self._post(Recorded(error))

    def _now(self) -> float:
        return clock.lease_time(self._clock)

    def _sleep(self, seconds: float, fd: int | None = None) -> bool:
        """Wait, or until the guard wants something; return whether the descriptor stirred."""
        poll = select.poll()
        poll.register(self._wake_fd, select.POLLIN)
        if fd is not None:
            poll.register(fd, select.POLLIN)
        # A timer of poll(2) stands still while the machine is suspended: look at the clock every second.
        end = self._now() + seconds
        while (left := end - self._now()) > 0:
            stirred = [descriptor for descriptor, _ in poll.poll(min(1.0, left) * 1000 + 1)]
            if self._wake_fd in stirred:
                os.eventfd_read(self._wake_fd)
            if stirred:
                return fd in stirred
        return False

    def _claim(self) -> Lease | Unconfirmed | Refusal:
        self._deliver_spooled(self._plan.firing.key)
        claim = _Claim(self._plan, self._store, self._now())
        while not self._abandoned:
            try:
                answer, pause = claim.ask(self._now())
            finally:
                self._unanswered = claim.unanswered
            if answer is not None:
                return answer
            self._sleep(pause)
        if claim.unconfirmed:
            return claim.unconfirmed
        self._store.close()
        raise Abandoned

    def _beat(self, lease: Lease) -> None:
        backoff = Backoff(cap=max(0.2, self._interval / 4))
        due = self._now() + self._interval
        others_spooled = self._plan.spool.has()
        while self._ending is None:
            if not self._renewal_wanted:
                if self._lost or not self._started:
                    self._sleep(3600)
                    continue
                if others_spooled:
                    others_spooled = False
                    self._deliver_spooled(None)
                left = due - self._now()
                if left > 0 and not self._sleep(left, self._store.watch_fd()):
                    continue
            try:
                renewed = self._store.renew(lease, deadline=self._now() + self._patience)
            except StoreError as error:
                if self._plan.verbose:
                    messages.complain(f"key {lease.key}: not renewed yet: {error}")
                self._store.close()
                due = self._now()
                self._sleep(0.01 + backoff.delay())
                continue
            self._renewal_wanted = False
            if renewed is None:
                self._lost = True
                self._post(Lost())
                continue
            lease = renewed
            self._post(Renewed(lease.trusted_until))
            backoff.reset()
            due = self._now() + self._interval
        self._record(lease, self._ending)

    def _record(self, lease: Lease, ending: Ending) -> None:
        give_up = self._now() + _RECORD_WITHIN
        backoff = Backoff()
        while True:
            try:
                self._store.finish(
                    lease, ending, self._plan.retention, deadline=self._now() + self._patience
                )
            except StoreError as error:
                self._store.close()
                pause = backoff.delay()
                if self._now() + pause > give_up:
                    self._post(Recorded(error))
                    return
                self._sleep(pause)
            else:
                self._store.close()
                self._post(Recorded(None))
                return

    def _deliver_spooled(self, key: str | None) -> None:
        """Deliver this key's records, or a few of all."""

        def wanted(number: int) -> bool:
            return key is not None or (number < OTHERS_AT_ONCE and not self._ending)

        self._plan.spool.deliver(self._store, key, wanted=wanted, within=self._patience)


class _Claim:
    """One claim until its answer: budgets, and what earlier answers told to hand back."""

    def __init__(self, plan: Plan, store: FiringStore, now: float) -> None:
        self._plan = plan
        self._store = store
        self._backoff = Backoff()
        self._wait_until = now + plan.wait
        self._budget_end = now + plan.connect_timeout
        self._orphan_end: float | None = None
        self._contended_since: float | None = None
        self._recovered_by: float | None = None
        self._stale: AskAgain | None = None
        self._alone = False
        self.unconfirmed: Unconfirmed | None = None
        self.unanswered = False

    def ask(self, now: float) -> tuple[Lease | Unconfirmed | Refusal | None, float]:
        """Ask once; return the answer, or None and the seconds after which to ask again."""
        try:
            answer = self._store.claim(
                self._plan.firing,
                deadline=max(self._budget_end, now + _ASK_WITHIN),
                watched=self._stale.watched if self._stale else None,
                alone=self._alone,
            )
        except StoreError as error:
            self.unanswered |= error.unanswered
            return self._failed(error)
        if isinstance(answer, Unconfirmed):
            self.unconfirmed = answer
            return self._failed(answer.error)
        self._plan.spool.note_reached(self._plan.firing.key)
        self._backoff.reset()
        now = clock.lease_time(self._store.lease_clock)
        if isinstance(answer, AskAgain):
            return self._again(answer, now)
        if isinstance(answer, Lease):
            if self._stale:  # taken over in silence: its session is dead by rule
                self._store.evict(self._stale, deadline=now + _ASK_WITHIN)
            return answer, 0.0
        if answer.reason == "held" and now < self._wait_until:
            self._forget(now)
            return None, min(jittered(1.0), self._wait_until - now + 0.05)
        return answer, 0.0

    def _failed(self, error: StoreError) -> tuple[Unconfirmed | None, float]:
        """Return the pause before the next try; if there is none, what was granted, or raise."""
        pause = self._backoff.delay()
        now = clock.lease_time(self._store.lease_clock)
        if isinstance(error, StoreUnavailable) and now + pause < self._budget_end:
            return None, pause
        if self.unconfirmed is None:
            raise error
        return self.unconfirmed._replace(error=error), 0.0

    def _forget(self, now: float) -> None:
        """Start afresh after a pause: the connection is given back, a new one has its own budget."""
        self._store.close()
        self._budget_end = now + self._plan.connect_timeout
        self._orphan_end = self._contended_since = self._recovered_by = self._stale = None
        self._alone = False

    def _again(self, answer: AskAgain, now: float) -> tuple[Refusal | None, float]:
        if answer.why == "contended":
            self._contended_since = self._contended_since or now
            self._alone = now - self._contended_since > _ALONE_AFTER
            if now > self._budget_end:
                raise StoreUnavailable(
                    f"key {self._plan.firing.key}: somebody has been claiming or releasing it for "
                    f"{self._plan.connect_timeout:g} s without an end"
                )
            return None, jittered(answer.after)
        if answer.why == "fenced":
            self._alone = True
            if now > self._budget_end:
                return self._refused(answer, now), 0.0
            return None, answer.after
        if answer.why == "stale":
            self._stale = answer
            self._budget_end = now + answer.after + self._plan.connect_timeout
            return None, answer.after
        if answer.why == "recovering":
            self._recovered_by = self._recovered_by or now + 2 * answer.ends_in + _ALONE_AFTER
            if now > self._recovered_by:
                raise StoreUnavailable(
                    f"key {self._plan.firing.key}: the store is restarted again and again, and cannot tell "
                    "whether somebody runs"
                )
        else:
            self._orphan_end = self._orphan_end or now + answer.ends_in + _ALONE_AFTER
            if now > self._orphan_end:  # renewed again and again, but too late each time
                return self._refused(answer, now), 0.0
        self._store.close()
        self._budget_end = now + answer.after + self._plan.connect_timeout
        return None, answer.after + 0.25 * random_fraction()

    def _refused(self, answer: AskAgain, now: float) -> Refusal:
        plan, refusal, deadline = self._plan, answer.refusal, now + _ASK_WITHIN
        try:
            records.tell_skip(self._store, plan.spool, plan.firing, refusal, deadline=deadline)
        except SpoolError as error:
            messages.complain(f"key {plan.firing.key}: a record is lost: {error}")
        return refusal
