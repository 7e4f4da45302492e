"""The thread of the guard that talks to the store: claim, heartbeats, the record of the end.

Everything that can block in the network, in name resolution or in TLS happens here, and nobody ever waits for
this thread on the way to a kill. It is the only user of its store object. The guard's orders come in a mailbox and
are obeyed one after another; its answers are events:

    claim    see `claiming`.  Granted -> parked until the job has been started (the guard forks while this thread
             holds no lock of any library).  Asked, and never answered -> the guard is told that it may have been
             granted.  Nothing is to be had -> `Over`
    renew    once, for a lease that was granted too slowly to start with; asked within the budget of a claim
    begin    the job has been started: renews every sixth of the ttl, at once when the connection stirs (the first
             sign that a server is going, or that somebody asks for something: it listens after a second), and
             again and again with jitter while the store is away.  Each renewal moves the end of trust and tells
             what is asked of the holder; a lease that is lost for good is an event for the guard
    keep     records how an attempt ended and keeps the lease, which is renewed on.  What cannot be recorded is
             treated as an end
    retry    begins the next attempt, parked like a claim; asked within the budget of a claim
    end      records how the job ended, within a bounded time; what cannot be recorded is spooled by the guard.
             Ordered to `go_on`, the next part is claimed
"""

from __future__ import annotations

import collections
import os
import select
import threading

from oncecron.core import clock, stderr
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light import TYPE_CHECKING, NamedTuple
from oncecron.core.model import Lease, Refusal, Unconfirmed
from oncecron.core.retry import Backoff
from oncecron.core.timing import (
    CALL_TIMEOUT,
    HEARTBEATS_PER_TTL,
    LISTEN_AFTER,
    NEVER,
    RECORD_TIMEOUT,
)
from oncecron.run.claimer import Claims, Line
from oncecron.run.events import (
    Failed,
    Granted,
    Kept,
    Lost,
    NotRetried,
    Over,
    Recorded,
    Refused,
    Renewed,
)
from oncecron.run.spool import OTHERS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Ending, Firing
    from oncecron.run.events import Event
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore


class _Order(NamedTuple):
    """What the guard wants."""

    name: str
    ending: Ending | None = None


class Abandoned(Exception):  # noqa: N818 - no error: the guard gave up waiting
    """The firing was told to stop before it got an answer."""


class StoreThread:
    """The thread and its two mailboxes. The guard calls the public methods; none of them blocks."""

    def __init__(self, spec: RunSpec, open_store: Callable[[], LeaseStore]) -> None:
        self._spec = spec
        self._open_store = open_store
        self._claims: Claims | None = None
        self._events: collections.deque[Event] = collections.deque()
        self._orders: collections.deque[_Order] = collections.deque()
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._abandoned = False
        self._holding = self._beating = False
        self._renew_at = self._listen_at = NEVER
        self._give_up_at = NEVER
        self._interval = spec.firing.ttl / HEARTBEATS_PER_TTL
        self._patience = min(CALL_TIMEOUT, self._interval)

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

    @property
    def asked_for(self) -> Firing | None:
        """The part that is being claimed, or was last; the thread may be waiting for the answer."""
        return self._claims.asked_for if self._claims else None

    def renew(self) -> None:
        """Renew before the job is started; answered by `Renewed`, `Lost` or `Failed`."""
        self._order("renew")

    def begin(self) -> None:
        """Begin the heartbeats: the job has been started."""
        self._order("begin")

    def keep(self, ending: Ending) -> None:
        """Record the end of an attempt and keep the lease; answered by `Kept` or `Recorded`."""
        self._order("keep", ending)

    def retry(self) -> None:
        """Begin the next attempt; answered by `Granted`, `NotRetried` or `Lost`."""
        self._order("retry")

    def end(self, ending: Ending) -> None:
        """Record the end and release the lease; answered by `Recorded`."""
        self._order("end", ending)

    def go_on(self) -> None:
        """Claim the next part, when an end has been recorded."""
        self._order("go on")

    def abandon(self) -> None:
        """Stop asking: the firing was told to end. A lease that comes all the same is given back."""
        self._abandoned = True
        self._wake()

    def _order(self, name: str, ending: Ending | None = None) -> None:
        self._orders.append(_Order(name, ending))
        self._wake()

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _post(self, event: Event) -> None:
        self._events.append(event)
        os.eventfd_write(self.event_fd, 1)

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            self._line = Line(self._open_store())
            self._clock = self._line.store.lease_clock
            self._deliver_spooled(self._spec.firing.key)
            self._others_spooled = self._spec.spool.has()
            claims = Claims(self._spec, self._line, self._pause, self._tell_refused)
            self._claims = claims
            while lease := self._claim(claims):
                if not self._held_to_its_end(lease):
                    return
        except Exception as error:  # noqa: BLE001 - the guard tells the user, whatever it is
            self._post(Failed(error, self._claims.unanswered if self._claims else []))

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

    # Claiming

    def _claim(self, claims: Claims) -> Lease | None:
        """Return a lease of which the guard was told; None when it was told that there is none."""
        try:
            answer = claims.next()
        except Abandoned:
            answer = claims.unconfirmed()
            if answer is None:
                self._line.close()
                raise
        if answer is None:
            self._post(Over())
            return None
        if isinstance(answer, Unconfirmed):
            self._post(answer)
            return answer.lease
        self._post(Granted(answer))
        return answer

    def _pause(self, seconds: float, fd: int | None) -> bool:
        stirred = not self._abandoned and seconds > 0 and self._sleep(seconds, fd)
        if self._abandoned:
            raise Abandoned
        return stirred

    def _tell_refused(
        self, firing: Firing, refusal: Refusal, unanswered: bool, waits: bool
    ) -> None:
        self._post(Refused(firing, refusal, unanswered, waits))

    # Holding a lease

    def _held_to_its_end(self, lease: Lease) -> bool:
        """Hold the lease until its end is on record; return whether the guard wants another part."""
        try:
            self._hold(lease)
        except Exception as error:  # noqa: BLE001 - a bug of ours: the guard's deadline ends the job
            self._post(Recorded(error))
            return False
        while not self._orders:
            self._sleep(3600)
        return self._orders.popleft().name == "go on"

    def _hold(self, lease: Lease) -> None:
        self._lease = lease
        self._backoff = Backoff(cap=max(0.2, self._interval / 4))
        self._holding = True
        self._park()
        while self._holding:
            if self._orders:
                self._obey(self._orders.popleft())
                continue
            now = self._now()
            if now >= self._renew_at:
                self._renew()
            elif now >= self._listen_at:
                self._listen()
            else:
                fd = self._line.store.watch_fd() if self._beating else None
                if self._sleep(min(3600.0, self._renew_at - now, self._listen_at - now), fd):
                    self._renew_at = self._now()

    def _obey(self, order: _Order) -> None:
        if order.name == "renew":
            self._renew_at = self._now()
            self._give_up_at = self._renew_at + self._spec.connect_timeout
        elif order.name == "begin":
            self._begin()
        elif order.name == "retry":
            self._retry()
        elif order.ending and order.name == "keep":
            self._keep(order.ending)
        elif order.ending:
            self._record(order.ending)

    def _park(self) -> None:
        """Do nothing but what is ordered."""
        self._beating = False
        self._renew_at = self._listen_at = self._give_up_at = NEVER

    def _begin(self) -> None:
        now = self._now()
        self._beating = True
        self._give_up_at = NEVER
        self._renew_at = now + self._interval
        self._listen_at = now + LISTEN_AFTER
        if self._others_spooled:
            self._others_spooled = False
            self._deliver_spooled(None)

    def _listen(self) -> None:
        self._listen_at = NEVER
        try:
            self._line.listen(self._spec.firing_of(self._lease), self._now() + self._patience)
        except StoreError:
            self._line.close()
            self._renew_at = self._now()

    def _renew(self) -> None:
        firing = self._spec.firing_of(self._lease)
        try:
            renewed = self._line.store.renew(self._lease, deadline=self._now() + self._patience)
        except StoreError as error:
            if self._spec.verbose:
                stderr.complain(f"key {firing.key}: not renewed yet: {error}")
            self._line.close()
            self._renew_at = self._now() + 0.01 + self._backoff.delay()
            if self._renew_at > self._give_up_at:
                self._park()
                self._post(Failed(error, []))
            return
        if renewed is None:
            self._park()
            self._post(Lost())
            return
        self._lease = renewed
        self._post(Renewed(renewed))
        self._backoff.reset()
        self._renew_at = self._now() + self._interval if self._beating else NEVER
        if self._beating and self._listen_at == NEVER and not self._line.listens(firing):
            self._listen_at = self._now()  # a new connection

    def _keep(self, ending: Ending) -> None:
        store, lease = self._line.store, self._lease
        answer = self._told(lambda deadline: store.keep(lease, ending, deadline=deadline))
        if answer is True:
            self._renew_at = self._now() + self._interval
            self._post(Kept())
        elif answer is False:  # lost: recorded as an end is
            self._record(ending)
        else:
            self._ended(answer)

    def _retry(self) -> None:
        give_up, backoff, unanswered = self._now() + self._spec.connect_timeout, Backoff(), False
        answer: Lease | Refusal | Exception | None = Abandoned()
        while not self._abandoned:
            try:
                answer = self._line.store.retry(self._lease, deadline=self._now() + self._patience)
                break
            except StoreError as error:
                answer = error
                unanswered |= error.unanswered
                self._line.close()
                pause = backoff.delay()
                if not isinstance(error, StoreUnavailable) or self._now() + pause > give_up:
                    break
                self._sleep(pause)
        if answer is None:
            self._park()
            self._post(Lost())
        elif isinstance(answer, Lease):
            self._lease = answer
            self._park()
            self._post(Granted(answer))
        else:
            self._post(NotRetried(answer, unanswered))

    def _record(self, ending: Ending) -> None:
        store, lease, retention = self._line.store, self._lease, self._spec.retention
        answer = self._told(
            lambda deadline: store.finish(lease, ending, retention, deadline=deadline)
        )
        self._ended(None if isinstance(answer, bool) else answer)

    def _ended(self, error: StoreError | None) -> None:
        self._line.close()
        self._holding = False
        self._post(Recorded(error))

    def _told(self, tell: Callable[[float], bool]) -> bool | StoreError:
        """Tell the store, again and again for a bounded time; return its answer, or why there is none."""
        give_up, backoff = self._now() + RECORD_TIMEOUT, Backoff()
        while True:
            try:
                return tell(self._now() + self._patience)
            except StoreError as error:
                self._line.close()
                pause = backoff.delay()
                if self._now() + pause > give_up:
                    return error
            self._sleep(pause)

    def _deliver_spooled(self, key: str | None) -> None:
        """Deliver this key's records, or a few of all."""

        def wanted(number: int) -> bool:
            return key is not None or (number < OTHERS_AT_ONCE and not self._orders)

        self._spec.spool.deliver(self._line.store, key, wanted=wanted, within=self._patience)
