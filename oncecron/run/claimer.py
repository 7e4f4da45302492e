"""Claim the shards of a tick, retry while the store is unreachable, and wait for shards that other hosts run.

A key without --shards has one shard. Shards are claimed in turn, from a random one on, so that hosts spread. Each
claim has one of these results:

- The store is unreachable: the claim is retried with full jitter until the budget (--connect-timeout) ends.
- `AskAgain`: the claim is repeated as the answer says.
- Granted: the lease goes to the guard. After that run the next shard is claimed, and every shard that was `held`.
- `Unconfirmed`, a lease that too few replicas have: it is claimed again, and given back when the budget ends.
- No answer: the lease may have been granted, or it does not count yet. No other shard is claimed before this is
  settled, because nothing would renew that lease.
- `held`: with --failover, if it is the firing's own tick, or with --wait, the claimer waits. Else it is a refusal.
- `Behind`, with --catch-up: the ticks that were missed are claimed first, the oldest first, each like any other, with
  an owner of its own. One that has been run meanwhile (`done`, `passed`) is passed over. If the key is held or stopped,
  the firing claims its own tick, and is told so.
- Refused: it is reported to the guard. When every shard is refused, the firing is over.
- Lost: an earlier claim was granted, and the lease ended before its answer came. That it never began is recorded.

To wait, the connection listens to the shard and claims it once more, because the lease may have ended before. Then the
thread sleeps until the first of three: a notification, the end of the lease, or a random time of at most a third of the
ttl. After the first two it adds a random half second, so that many waiting hosts do not claim at once. Where the store
cannot notify, the connection is closed, and the claimer polls: after 1 s, then less often, up to every 5 s. Each time
it makes a new claim, and the store decides whether anything is left to do.

A firing that waits with --failover is a standby, and no budget ends its wait. It keeps polling while the store is
unreachable, and while a job's transaction holds the fence of a dead holder. Without a tick it also waits through a
pause or a drain.
"""

from __future__ import annotations

from oncecron.core import clock, system
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import AskAgain, Behind, BlockingLease, Lease, Refusal, Unconfirmed
from oncecron.core.retry import Backoff, jittered, random_fraction
from oncecron.core.timing import CALL_TIMEOUT, SILENT_FOR, SILENT_WAIT
from oncecron.host import stderr
from oncecron.run.reporter import waiting_message
from oncecron.run.spool import not_started_record, skip_record
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Firing
    from oncecron.run.spec import RunSpec
    from oncecron.run.spool import Spool
    from oncecron.stores.api import LeaseStore

_MOST_TAKEOVERS = 1000
"""How often the firings of `each` that wait take over a slot of one tick."""
CONTENDED_FOR = 2.0
"""After this long without the session lock, the row lock of the key decides alone."""
_NOTIFY_SPREAD = 0.5
"""After a notification, waiting firings claim at random moments within this time, not all at once."""
_RECHECK_SPREAD = 0.25
"""The same for firings that wait until an old lease ends: they must not start much later than they could."""
_WAIT_OVERRUN = 0.05
"""The last claim of --wait comes this long after the wait has ended, so that it is the last one."""
_FIRST_POLL = 1.0
"""Without notifications, a waiting firing polls for the first time after this long."""
_POLL_GROWTH = 1.5
"""Each later pause is longer by this factor."""
_LONGEST_POLL = 5.0
"""The longest pause between two polls."""


class StoreConnection:
    """The connection to the store, and the shards that it listens to."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self._listening: dict[int, bool] = {}

    def listens(self, firing: Firing) -> bool:
        """Return whether `listen` was called for the shard on this connection, whatever it returned."""
        return firing.shard in self._listening

    def listen(self, firing: Firing, deadline: float, awaited: int | None = None) -> bool:
        """Listen to a shard; return whether the store can notify. Raises `StoreError`."""
        if firing.shard not in self._listening:
            self._listening[firing.shard] = self.store.listen(
                firing, deadline=deadline, awaited=awaited
            )
        return self._listening[firing.shard]

    def fd(self) -> int | None:
        """Return the descriptor that becomes readable at a notification, if there is one."""
        return self.store.watch_fd() if any(self._listening.values()) else None

    def close(self) -> None:
        """Close the connection."""
        self._listening.clear()
        self.store.close()

    def record_not_started(self, firing: Firing, spool: Spool, why: str) -> None:
        """Record that an attempt never began which was granted, or may have been: only that re-opens its tick."""
        record = not_started_record(firing, why)
        deadline = clock.lease_time(self.store.lease_clock) + CALL_TIMEOUT
        try:
            self.store.deliver(record, deadline=deadline)
        except StoreError:
            self.close()
            spool.keep(record)


class Claimer:
    """The shards that a firing may still get."""

    def __init__(
        self,
        spec: RunSpec,
        connection: StoreConnection,
        sleep: Callable[[float, int | None], bool],
        report_refusal: Callable[[Firing, Refusal, bool], None],
    ) -> None:
        """Take two functions.

        `sleep(seconds, descriptor)` returns True as soon as the descriptor is readable, and raises when the firing is
        to end. `report_refusal(firing, refusal, waits)` reports a refused shard: `waits` if it is claimed again.
        """
        self._connection = connection
        self._sleep = sleep
        self._report_refusal = report_refusal
        self._patience = patience = stderr.Patience(wanted=spec.verbose)
        self._spec = spec
        self._body = spec.body
        shards = spec.firing.shards
        first = int(random_fraction() * shards)
        parts = [(first + number) % shards for number in range(shards)]
        if spec.body:
            parts = list(spec.body.shards)
        self._open = [
            _ShardClaim(spec, connection, spec.firing._replace(shard=part), patience)
            for part in parts
        ]
        self.newest_claim: Firing | None = None
        """The shard of the newest claim, answered or not."""

    @property
    def unanswered(self) -> list[Firing]:
        """The shards with an unanswered claim, which may have been granted."""
        return [claim.firing for claim in self._open if claim.unanswered]

    def unconfirmed(self) -> Unconfirmed | None:
        """Return a lease that was granted and does not count, to be given back."""
        return next((claim.unconfirmed for claim in self._open if claim.unconfirmed), None)

    def next(self, began: float) -> Lease | Unconfirmed | Refusal | None:
        """Claim until a shard is granted; return None when no shard is left. Raises `StoreError`.

        A `Refusal` is the firing's own: it had the lease, and has lost it. `began`: when the budget began, with what
        had to be done before the claim (lease clock).
        """
        if self._patience.is_wanted:
            spec = self._spec
            left = f"no answer from {masked(spec.address.target)} yet; it has {spec.connect_timeout:g} s"
            self._patience.wait("answer", f"{spec.firing.key}: {left}")
        try:
            return self._next(began)
        finally:
            self._patience.over()

    def _next(self, began: float) -> Lease | Unconfirmed | Refusal | None:
        asking = list(self._open)
        for claim in asking:
            claim.begin(began)
        while asking:
            claim = min(asking, key=lambda each: (not each.unsettled, each.due))
            self._pause_until(claim.due, asking)
            if self._body and self._body.skips(claim.firing):
                asking.remove(claim)
                continue
            self.newest_claim = claim.firing
            answer = claim.ask(self._now())
            if isinstance(answer, Refusal) and answer.own:
                why = "the answer to its claim came after the lease had ended"
                self._connection.record_not_started(claim.firing, self._spec.spool, why)
                return answer
            if isinstance(answer, Refusal):
                self._report_refusal(claim.firing, answer, False)
                asking.remove(claim)
                if answer.reason in ("paused", "drained"):
                    break  # this holds for all shards
                if answer.reason != "held":
                    self._open.remove(claim)
            elif answer is not None:
                self._leave(claim, answer)
                return answer
            elif refusal := claim.waiting_for():
                self._patience.over()  # that is reported at once
                self._report_refusal(claim.firing, refusal, True)
        self._connection.close()
        return None

    def _leave(self, claim: _ShardClaim, answer: Lease | Unconfirmed) -> None:
        if not (isinstance(answer, Lease) and claim.goes_on()):
            self._open.remove(claim)

    def _pause_until(self, due: float, asking: list[_ShardClaim]) -> None:
        """Sleep until `due`, or until shortly after a notification, which is for all waiting shards."""
        fd = self._connection.fd()
        self._sleep(0.0, None)  # raises when the firing is to end
        while (remaining := due - self._now()) > 0:
            if self._sleep(remaining, fd):
                fd = None  # readable until the next call
                asked_at = self._now() + _NOTIFY_SPREAD * random_fraction()
                due = min(due, asked_at)
                for claim in asking:
                    claim.notify(asked_at)

    def _now(self) -> float:
        return clock.lease_time(self._connection.store.lease_clock)


class _ShardClaim:
    def __init__(
        self, spec: RunSpec, connection: StoreConnection, firing: Firing, patience: stderr.Patience
    ) -> None:
        self.firing = self._own = firing
        """What is claimed: the firing's own tick, or one that it makes up."""
        self._missed: list[Firing] = []
        """What else is to be made up, the oldest last."""
        self._left: tuple[Firing, int] | None = None
        """The oldest of that, and how many older ones are not made up."""
        self._patience = patience
        self.due = 0.0
        """When to claim (lease clock)."""
        self.unconfirmed: Unconfirmed | None = None
        self.unanswered = False
        """Whether a claim may have been granted without a lease that counts."""
        self.unsettled = False
        """Whether the last claim may have been granted: nothing would renew that lease while another shard runs."""
        self._spec = spec
        self._connection = connection
        self._backoff = Backoff()
        self._reason_to_wait: Refusal | None = None
        self._known: set[str] = set()
        self._blocker: BlockingLease | None = None
        self._silent_since = 0.0
        self._next_poll = _FIRST_POLL
        self._waiting = False

    def begin(self, now: float) -> None:
        """Start claiming, with a new budget from `now` on."""
        self.due = now
        self._wait_until = now + self._spec.wait
        self._forget(now)

    def notify(self, asked_at: float) -> None:
        """Claim at `asked_at` if this shard is waiting: a notification has come."""
        if self._waiting:
            self.due = min(self.due, asked_at)

    def waiting_for(self) -> Refusal | None:
        """Return the refusal that this shard waits for, once."""
        reason, self._reason_to_wait = self._reason_to_wait, None
        return reason

    def ask(self, now: float) -> Lease | Unconfirmed | Refusal | None:
        """Claim once; return the final answer, or None with `due` set for the next claim."""
        if self._waiting:
            self._forget(now)
        try:
            answer = self._connection.store.claim(
                self._firing_to_claim(),
                deadline=max(self._budget_end, now + CALL_TIMEOUT),
                watched=self._silent_heartbeat(now),
                alone=self._alone,
                awaited=self._blocker.execution_id if self._blocker else None,
            )
        except StoreError as error:
            self.unanswered |= error.unanswered
            self.unsettled |= error.unanswered
            self._connection.close()
            return self._failed(error)
        if isinstance(answer, Unconfirmed):
            self.unconfirmed, self.unsettled, self.unanswered = answer, True, True
            return self._failed(answer.error)
        self._spec.spool.note_reached(self.firing.key)
        self._backoff.reset()
        now = self._now()
        # A contended one may have met our own earlier claim.
        if not (isinstance(answer, AskAgain) and answer.why == "contended"):
            self.unsettled, self.unconfirmed = False, None
        if isinstance(answer, AskAgain):
            return self._ask_again(answer, now)
        if isinstance(answer, Behind):
            self._look_back(answer, now)
            return None
        if isinstance(answer, Lease):
            if self._stale:
                self._evict(self._stale, now + CALL_TIMEOUT)
            self._say_left()
            return answer
        return self._take_refusal(answer, now)

    def _firing_to_claim(self) -> Firing:
        """Return the firing to claim with: one that has waited resumes what was lost, not what a person has stopped."""
        if self._blocker is None or not self.firing.resumes:
            return self.firing
        return self.firing._replace(resumes=False, failover=True, retries=_MOST_TAKEOVERS)

    def _take_refusal(self, answer: Refusal, now: float) -> Refusal | None:
        if self._makes_up and not answer.own:
            self._pass_over(answer, now)
            return None
        if not answer.recorded:
            self._spec.spool.keep(skip_record(self.firing, answer))
        way = answer.blocked_by
        if way and ((self.firing.failover and way.same_tick) or now < self._wait_until):
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
        try:
            self._connection.store.evict(stale, deadline=deadline)
        except StoreError:
            # The lease is granted in any case; the next heartbeat shows whether it lasts.
            self._connection.close()

    def _failed(self, error: StoreError) -> Unconfirmed | None:
        """Set `due` for a retry; when the budget has ended, return the unconfirmed lease or raise the error."""
        self._patience.wait(str(error), f"{self.firing.key}: {error}")
        self.due = self._now() + self._backoff.delay()
        if isinstance(error, StoreUnavailable) and self._within_budget(self.due):
            if self.due > self._budget_end and self._spec.spool.note_unreachable(self.firing.key):
                stderr.complain(f"key {self.firing.key}: {error}; still waiting (--failover)")
            return None
        if self.unconfirmed is None:
            raise error
        return self.unconfirmed._replace(error=error)

    def _within_budget(self, now: float) -> bool:
        """Return whether to claim again; a standby continues after its budget, with longer pauses."""
        if now < self._budget_end:
            return True
        self.due = now + self._poll()
        return self._is_standby

    def _forget(self, now: float) -> None:
        self._waiting = False
        self._budget_end = now + self._spec.connect_timeout
        self._orphan_end: float | None = None
        self._contended_since: float | None = None
        self._recovered_by: float | None = None
        self._stale: AskAgain | None = None
        self._alone = False

    # Making up

    @property
    def _makes_up(self) -> bool:
        return self.firing.owner != self._own.owner

    def _look_back(self, behind: Behind, now: float) -> None:
        """Find what is to be made up, and claim that first."""
        from oncecron.run.catch_up import missed_firings, say  # noqa: PLC0415 - a firing that is behind

        store, own = self._connection.store, self._own
        try:
            firings, left = missed_firings(store, own, behind, now + CALL_TIMEOUT)
        except StoreError as error:
            self._connection.close()
            self._failed(error)
            return
        say(self._spec, firings)
        self._left = (firings[0], left) if left else None
        self._own = own._replace(previous=None)
        self._missed = firings[::-1]
        self.goes_on()
        self._begin_anew(now)

    def _say_left(self) -> None:
        """Say once what is never made up: where the oldest of the others starts, which only one host starts."""
        oldest, left = self._left or (self.firing, 0)
        if left and oldest.owner == self.firing.owner and "left" not in self._patience.said:
            from oncecron.run.catch_up import say_left  # noqa: PLC0415 - a firing that was behind

            self._patience.said.add("left")
            say_left(self._spec, oldest, left)

    def goes_on(self) -> bool:
        """Turn to what is claimed next for this shard, if this was a tick to be made up; return whether it was."""
        was_missed = self._makes_up or bool(self._missed)
        self.firing = self._missed.pop() if self._missed else self._own
        self._blocker = self._reason_to_wait = self.unconfirmed = None
        self.unanswered = self.unsettled = False
        return was_missed

    def _pass_over(self, answer: Refusal, now: float) -> None:
        """Go on after a tick that another host has run; if none may start now, claim the own one, to be told why."""
        if answer.reason in ("held", "paused", "drained"):
            self._own = self._own._replace(previous=self._spec.firing.previous)
            self._missed.clear()
        self.goes_on()
        self._begin_anew(now)

    def _begin_anew(self, now: float) -> None:
        self.due = now
        self._forget(now)

    # Waiting for a holder

    @property
    def _is_standby(self) -> bool:
        waits = self.firing.failover and self._blocker is not None and self._blocker.same_tick
        return waits and self.unconfirmed is None

    def _waits_through(self, refusal: Refusal) -> bool:
        """Return whether it waits through a pause; standbys with a tick would all run at once after it."""
        paused = refusal.reason in ("paused", "drained")
        return paused and self._is_standby and self.firing.tick.rule == "none"

    def _poll(self) -> float:
        """Return the seconds until the next claim when the store cannot notify."""
        longest = min(self.firing.ttl * SILENT_FOR, _LONGEST_POLL)
        poll = min(longest, self._next_poll)
        self._next_poll = min(longest, self._next_poll * _POLL_GROWTH)
        return poll * (0.5 + 0.5 * random_fraction())

    def _wait(self, way: BlockingLease, now: float) -> None:
        self._waiting = True
        known, self._blocker = self._blocker, way
        if known is None or (known.execution_id, known.heartbeat) != (
            way.execution_id,
            way.heartbeat,
        ):
            self._silent_since = now
        fresh = not self._connection.listens(self.firing)
        try:
            notified = self._connection.listen(self.firing, now + CALL_TIMEOUT, way.execution_id)
        except StoreError:
            notified = False
        if notified and fresh:  # nothing has notified us of what happened before
            self.due = now + _NOTIFY_SPREAD * random_fraction()
            return
        if notified:
            pause = self.firing.ttl * SILENT_FOR * (0.5 + 0.5 * random_fraction())
        else:
            self._connection.close()
            pause = self._poll()
        pause = min(pause, way.ends_in + _NOTIFY_SPREAD * random_fraction())
        if not (self.firing.failover and way.same_tick):
            pause = min(pause, self._wait_until - now + _WAIT_OVERRUN)
        self.due = now + pause

    def _silent_heartbeat(self, now: float) -> float | str | None:
        if self._stale:
            return self._stale.watched
        silent = self._blocker and now - self._silent_since >= self.firing.ttl * SILENT_FOR
        return self._blocker.heartbeat if self._blocker and silent else None

    # The store cannot decide yet

    def _say_once(self, answer: AskAgain) -> None:
        """Say that nothing starts for a while, also where standard error is no terminal: to cron once a day."""
        if self._patience.is_wanted or answer.why in self._patience.said:
            return
        self._patience.said.add(answer.why)
        if any(map(system.calls.isatty, (0, 1))) or self._spec.spool.note_waiting():
            stderr.complain(f"waiting: {self.firing.key}: {waiting_message(self._spec, answer)}")

    def _ask_again(self, answer: AskAgain, now: float) -> Refusal | None:
        self._patience.wait(answer.why, f"{self.firing.key}: {waiting_message(self._spec, answer)}")
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
            return None if self._within_budget(now) else self._refuse(answer, now)
        if answer.why == "stale":
            self._stale = answer
            self._budget_end = now + answer.after + self._spec.connect_timeout
            return None
        if answer.why == "recovering":
            if answer.ends_in > SILENT_WAIT:
                self._say_once(answer)
            self._recovered_by = self._recovered_by or now + 2 * answer.ends_in + CONTENDED_FOR
            if now > self._recovered_by and not self._is_standby:
                raise StoreUnavailable(
                    f"key {self.firing.key}: the store keeps restarting and may have forgotten a lease, "
                    "so nothing is started; check the server's log"
                )
        else:
            self._orphan_end = self._orphan_end or now + answer.ends_in + CONTENDED_FOR
            if now > self._orphan_end:  # the holder still renews, but each time too late
                return self._refuse(answer, now)
        self._connection.close()
        self._budget_end = now + answer.after + self._spec.connect_timeout
        self.due = now + answer.after + _RECHECK_SPREAD * random_fraction()
        return None

    def _refuse(self, answer: AskAgain, now: float) -> Refusal | None:
        refusal = answer.refusal
        if self._makes_up:
            return self._take_refusal(refusal, now)
        try:
            self._connection.store.skip(self.firing, refusal, deadline=now + CALL_TIMEOUT)
        except StoreError:
            refusal = refusal._replace(recorded=False)
        return self._take_refusal(refusal, now)
