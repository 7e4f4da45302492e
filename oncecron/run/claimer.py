"""Claiming: asking the store for the parts of a tick, and waiting for those that others run.

A part is asked for until it is answered; a key that is not divided has one. Parts are asked for in turn, from a random
one on, so that hosts spread:

    the store is away   asked again with full jitter until the budget (--connect-timeout) ends
    AskAgain            is obeyed
    granted             given to the guard.  When that run has ended the next part is asked for, and whatever was
                        `held` before; not as safely as the store's address asks for: asked again, and given back
                        when the budget ends
    perhaps             a claim was not answered, or its lease does not count yet: no other part is asked for before
                        that is settled, for its lease would have nobody who renews it
    held                waited for: by --failover if it is the firing's own tick, by --wait for so long; or refused
    refused             reported to the guard.  When all parts are, the firing is over

Waiting: the connection listens to the shard, which is asked for once more since it may have ended before. Then the
thread sleeps until the connection is notified (and a random half second, so that many hosts that wait do not ask in
one moment), the lease's end (likewise), or a random time of at most a third of the ttl, whichever is first. Where
nothing can notify, the connection is given back and the polls come after 1 s, then rarer, up to 5 s. Each time the
claim is made anew, by the rules of the store: it says whether there is still anything to do.

Who waits by --failover is a standby: no budget ends that. While the store is away, or a job's transaction holds the
fence of who has vanished, it continues with those polls; without a tick through a pause or a drain as well.
"""

from __future__ import annotations

from oncecron.core import clock, stderr
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import AskAgain, BlockingLease, Lease, Refusal, Unconfirmed
from oncecron.core.retry import Backoff, jittered, random_fraction
from oncecron.core.timing import (
    CALL_TIMEOUT,
    CONTENDED_FOR,
    FIRST_POLL,
    LONGEST_POLL,
    NOTIFY_SPREAD,
    POLL_GROWTH,
    RECHECK_SPREAD,
    SILENT_FOR,
    WAIT_OVERRUN,
)
from oncecron.run import spool_records
from oncecron.run.spool import SpoolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Firing
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore


class StoreConnection:
    """The connection to the store, and the parts to which it listens."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self._listening: dict[int, bool] = {}

    def listens(self, firing: Firing) -> bool:
        """Return whether this connection was told to listen to the part, be it in vain."""
        return firing.shard in self._listening

    def listen(self, firing: Firing, deadline: float) -> bool:
        """Listen to a part; return whether it can be had. Raises `StoreError`."""
        if firing.shard not in self._listening:
            self._listening[firing.shard] = self.store.listen(firing, deadline=deadline)
        return self._listening[firing.shard]

    def fd(self) -> int | None:
        """Return what becomes readable when something happens, if anything can."""
        return self.store.watch_fd() if any(self._listening.values()) else None

    def close(self) -> None:
        """Give the connection back."""
        self._listening.clear()
        self.store.close()


class Claimer:
    """The parts that a firing may still get."""

    def __init__(
        self,
        spec: RunSpec,
        connection: StoreConnection,
        sleep: Callable[[float, int | None], bool],
        refused: Callable[[Firing, Refusal, bool, bool], None],
    ) -> None:
        """`sleep` waits, or until the descriptor is readable: then it returns True; raises when the firing is to end.

        `refused` is reason a part's firing, why, whether a claim of it was not answered, and whether it is waited for.
        """
        self._connection = connection
        self._sleep = sleep
        self._refused = refused
        shards = spec.firing.shards
        first = int(random_fraction() * shards)
        parts = [(first + number) % shards for number in range(shards)]
        self._open = [
            _ShardClaim(spec, connection, spec.firing._replace(shard=part)) for part in parts
        ]
        self.asked_for: Firing | None = None
        """The part of the newest claim, answered or not."""

    @property
    def unanswered(self) -> list[Firing]:
        """The parts for which a claim was not answered: it may have been granted."""
        return [claim.firing for claim in self._open if claim.unanswered]

    def unconfirmed(self) -> Unconfirmed | None:
        """Return what was granted and does not count, to be given back."""
        return next((claim.unconfirmed for claim in self._open if claim.unconfirmed), None)

    def next(self) -> Lease | Unconfirmed | None:
        """Ask until a part is granted; None when there is none to be had. Raises `StoreError`."""
        asking = list(self._open)
        for claim in asking:
            claim.begin(self._now())
        while asking:
            claim = min(asking, key=lambda each: (not each.unsettled, each.due))
            self._pause_until(claim.due, asking)
            self.asked_for = claim.firing
            answer = claim.ask(self._now())
            if isinstance(answer, Refusal):
                self._refused(claim.firing, answer, claim.unanswered, False)
                asking.remove(claim)
                if answer.reason in ("paused", "drained"):
                    break  # all parts are
                if answer.reason != "held":
                    self._open.remove(claim)
            elif answer is not None:
                self._open.remove(claim)
                return answer
            elif refusal := claim.waiting_for():
                self._refused(claim.firing, refusal, claim.unanswered, True)
        self._connection.close()
        return None

    def _pause_until(self, due: float, asking: list[_ShardClaim]) -> None:
        """Sleep until then, or for a moment from when the connection has been notified, for all that wait the same."""
        fd = self._connection.fd()
        self._sleep(0.0, None)  # raises when the firing is to end
        while (remaining := due - self._now()) > 0:
            if self._sleep(remaining, fd):
                fd = None  # readable until the next call
                asked_at = self._now() + NOTIFY_SPREAD * random_fraction()
                due = min(due, asked_at)
                for claim in asking:
                    claim.notify(asked_at)

    def _now(self) -> float:
        return clock.lease_time(self._connection.store.lease_clock)


class _ShardClaim:
    """One claim until its answer: budgets, and what earlier answers asked to hand back."""

    def __init__(self, spec: RunSpec, connection: StoreConnection, firing: Firing) -> None:
        self.firing = firing
        self.due = 0.0
        """When to ask (lease clock)."""
        self.unconfirmed: Unconfirmed | None = None
        self.unanswered = False
        self.unsettled = False
        """Whether the last claim may have been granted: nobody would renew that lease while another part runs."""
        self._spec = spec
        self._connection = connection
        self._backoff = Backoff()
        self._reason_to_wait: Refusal | None = None
        self._known: set[str] = set()
        self._blocker: BlockingLease | None = None
        self._silent_since = 0.0
        self._polls = 0
        self._waiting = False

    def begin(self, now: float) -> None:
        """Ask from now on, with a budget of its own."""
        self.due = now
        self._wait_until = now + self._spec.wait
        self._forget(now)

    def notify(self, asked_at: float) -> None:
        """Ask then if it waits: something has happened."""
        if self._waiting:
            self.due = min(self.due, asked_at)

    def waiting_for(self) -> Refusal | None:
        """Return what is waited for, once."""
        reason, self._reason_to_wait = self._reason_to_wait, None
        return reason

    def ask(self, now: float) -> Lease | Unconfirmed | Refusal | None:
        """Ask once; return the answer, or None, with `due` set, if it is to be asked again."""
        if self._waiting:
            self._forget(now)
        try:
            answer = self._connection.store.claim(
                self.firing,
                deadline=max(self._budget_end, now + CALL_TIMEOUT),
                watched=self._watched(now),
                alone=self._alone,
                awaited=self._blocker.execution_id if self._blocker else None,
            )
        except StoreError as error:
            self.unanswered |= error.unanswered
            self.unsettled |= error.unanswered
            self._connection.close()
            return self._failed(error)
        if isinstance(answer, Unconfirmed):
            self.unconfirmed, self.unsettled = answer, True
            return self._failed(answer.error)
        self._spec.spool.note_reached(self.firing.key)
        self._backoff.reset()
        now = self._now()
        if not (isinstance(answer, AskAgain) and answer.why == "contended"):  # else perhaps by us
            self.unsettled, self.unconfirmed = False, None
        if isinstance(answer, AskAgain):
            return self._ask_again(answer, now)
        if isinstance(answer, Lease):
            if self._stale:
                self._evict(self._stale, now + CALL_TIMEOUT)
            return answer
        way = answer.blocked_by
        if way and self._waits_for(way, now):
            self._wait(way, now)
        elif self._waits_through(answer):
            self._waiting, self.due = True, now + self._poll()
            self._connection.close()
        else:
            return answer
        self._reason_to_wait = None if answer.reason in self._known else answer
        self._known.add(answer.reason)
        return None

    def _now(self) -> float:
        return clock.lease_time(self._connection.store.lease_clock)

    def _evict(self, stale: AskAgain, deadline: float) -> None:
        """End the session of whom was taken over in silence: it is dead by rule."""
        try:
            self._connection.store.evict(stale, deadline=deadline)
        except (
            StoreError
        ):  # the lease is granted without that; whether it lasts the heartbeat will tell
            self._connection.close()

    def _failed(self, error: StoreError) -> Unconfirmed | None:
        """Ask again after a pause; if it is too late, return what was granted, or raise."""
        self.due = self._now() + self._backoff.delay()
        if isinstance(error, StoreUnavailable) and self._within_budget(self.due):
            if self.due > self._budget_end and self._spec.spool.note_unreachable(self.firing.key):
                stderr.complain(f"key {self.firing.key}: {error}; still waiting (--failover)")
            return None
        if self.unconfirmed is None:
            raise error
        return self.unconfirmed._replace(error=error)

    def _within_budget(self, now: float) -> bool:
        """Return whether the budget has not ended; who is a standby has none, and asks more rarely then."""
        if now < self._budget_end:
            return True
        self.due = now + self._poll()
        return self._is_standby

    def _forget(self, now: float) -> None:
        """Start afresh after a pause, with a new budget."""
        self._waiting = False
        self._budget_end = now + self._spec.connect_timeout
        self._orphan_end: float | None = None
        self._contended_since: float | None = None
        self._recovered_by: float | None = None
        self._stale: AskAgain | None = None
        self._alone = False

    # Waiting for a holder

    @property
    def _is_standby(self) -> bool:
        """Whether only the end of the holder, or of the tick, ends the wait."""
        waits = self.firing.failover and self._blocker is not None and self._blocker.same_tick
        return waits and self.unconfirmed is None

    def _waits_through(self, refusal: Refusal) -> bool:
        """Return whether it is a standby through a pause; one with a tick would be a burst when that ends."""
        paused = refusal.reason in ("paused", "drained")
        return paused and self._is_standby and self.firing.tick.rule == "none"

    def _poll(self) -> float:
        """Return the seconds until it is asked where nothing can notify."""
        poll = min(
            self.firing.ttl * SILENT_FOR, LONGEST_POLL, FIRST_POLL * POLL_GROWTH**self._polls
        )
        self._polls = min(self._polls + 1, 10)
        return poll * (0.5 + 0.5 * random_fraction())

    def _waits_for(self, way: BlockingLease, now: float) -> bool:
        return (self.firing.failover and way.same_tick) or now < self._wait_until

    def _wait(self, way: BlockingLease, now: float) -> None:
        """Decide when to ask again, and listen until then."""
        self._waiting = True
        known, self._blocker = self._blocker, way
        if known is None or (known.execution_id, known.heartbeat) != (
            way.execution_id,
            way.heartbeat,
        ):
            self._silent_since = now
        fresh = not self._connection.listens(self.firing)
        try:
            notified = self._connection.listen(self.firing, now + CALL_TIMEOUT)
        except StoreError:
            notified = False
        if notified and fresh:  # what happened before it listened has been notified nobody
            self.due = now + NOTIFY_SPREAD * random_fraction()
            return
        if notified:
            pause = self.firing.ttl * SILENT_FOR * (0.5 + 0.5 * random_fraction())
        else:
            self._connection.close()
            pause = self._poll()
        pause = min(pause, way.ends_in + NOTIFY_SPREAD * random_fraction())
        if not (self.firing.failover and way.same_tick):
            pause = min(pause, self._wait_until - now + WAIT_OVERRUN)
        self.due = now + pause

    def _watched(self, now: float) -> float | str | None:
        """Return the heartbeat behind which the holder has been silent for long enough to be dead."""
        if self._stale:
            return self._stale.watched
        silent = self._blocker and now - self._silent_since >= self.firing.ttl * SILENT_FOR
        return self._blocker.heartbeat if self._blocker and silent else None

    # The store cannot tell yet

    def _ask_again(self, answer: AskAgain, now: float) -> Refusal | None:
        self.due = now + answer.after
        if answer.why == "contended":
            self._contended_since = self._contended_since or now
            self._alone = now - self._contended_since > CONTENDED_FOR
            self.due = now + jittered(answer.after)
            if not self._within_budget(now):
                raise StoreUnavailable(
                    f"key {self.firing.key}: another host was still claiming or releasing it after "
                    f"{self._spec.connect_timeout:g} s; see {self._spec.command_line('locks')}"
                )
            return None
        if answer.why == "fenced":
            self._alone = True
            return None if self._within_budget(now) else self._refused(answer, now)
        if answer.why == "stale":
            self._stale = answer
            self._budget_end = now + answer.after + self._spec.connect_timeout
            return None
        if answer.why == "recovering":
            self._recovered_by = self._recovered_by or now + 2 * answer.ends_in + CONTENDED_FOR
            if now > self._recovered_by and not self._is_standby:
                raise StoreUnavailable(
                    f"key {self.firing.key}: the store keeps restarting and may have forgotten a lease, "
                    "so nothing is started; check the server's log"
                )
        else:
            self._orphan_end = self._orphan_end or now + answer.ends_in + CONTENDED_FOR
            if now > self._orphan_end:  # renewed again and again, but too late each time
                return self._refused(answer, now)
        self._connection.close()
        self._budget_end = now + answer.after + self._spec.connect_timeout
        self.due = now + answer.after + RECHECK_SPREAD * random_fraction()
        return None

    def _refused(self, answer: AskAgain, now: float) -> Refusal:
        spec, refusal, deadline = self._spec, answer.refusal, now + CALL_TIMEOUT
        try:
            spool_records.tell_skip(
                self._connection.store, spec.spool, self.firing, refusal, deadline=deadline
            )
        except SpoolError as error:
            stderr.complain(f"key {self.firing.key}: a record is lost: {error}")
        return refusal
