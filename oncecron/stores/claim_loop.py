"""The loop of a claim: look, decide, and write what was decided if nothing has changed; else look again.

A store that keeps the contract of `LeaseStore` gives the steps (`ClaimSteps`), each one atomic step by its own clock.
Most firings need one look. A start needs a look and a grant, and a takeover a look and an `expire` before.
"""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.decision import (
    Cut,
    Expire,
    Grant,
    LookCloser,
    Regain,
    contention,
    decide,
    goes_on_after,
    plain_skip,
)
from oncecron.core.errors import (
    UNREADABLE,
    StoreError,
    StoreRefusesError,
    StoreUnavailable,
    reason_of,
)
from oncecron.core.facts import state_of
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import AskAgain, Behind, LostRun, Refusal
from oncecron.core.presence import seen
from oncecron.core.timing import SKIP_TIMEOUT
from oncecron.stores import steadied

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from oncecron.core.decision import Attempt, PlainSkip, State
    from oncecron.core.facts import Facts
    from oncecron.core.model import Firing, Lease, Unconfirmed
    from oncecron.core.presence import Seen
    from oncecron.stores import Steadiness
    from oncecron.stores.address import Address

    Write = Grant | Expire | Cut | Regain | LookCloser

    class ClaimSteps(Protocol):
        """What a claim asks of a store.

        Each method ends by `deadline` (lease clock) or raises `StoreUnavailable`. None from a
        grant: something has changed since the look, or a safeguard that was not looked at is in the way. Nothing was
        written then, and the loop looks again.
        """

        lease_clock: int
        on_lost: Callable[[Firing, LostRun], None] | None

        def look(
            self, firing: Firing, *, awaited: int | None, closely: bool, deadline: float
        ) -> Facts:
            """Return what the store knows (`core.facts`), all of one instant. It writes nothing.

            A look may leave out what only few claims need: the second safeguards (`lock` is `unknown` then), and past
            executions that no claim of this store object can be about. `closely`: it leaves out nothing.
            """

        def grant(
            self,
            firing: Firing,
            state: State,
            grant: Grant,
            presence: Seen,
            *,
            alone: bool,
            deadline: float,
        ) -> Lease | Unconfirmed | AskAgain | None:
            """Write the execution, the lease and the marks of the key with the next fencing token, and of the host.

            It is refused if the state has changed, the key or the host has been stopped, the session lock is taken
            (unless `alone`), or the server is recovering. `AskAgain`: a job's own transaction holds the fence.
            """

        def expire(
            self, firing: Firing, state: State, note: str, *, deadline: float
        ) -> AskAgain | LostRun | None:
            """Remove the expired lease, declare its execution lost, and raise the fencing token, as above.

            It returns the execution, None also if that is no longer on record.
            """

        def cut(self, firing: Firing, state: State, *, deadline: float) -> None:
            """Let a lease that ends more than its ttl ahead end a ttl from now."""

        def regain(
            self, firing: Firing, own: Attempt, *, deadline: float
        ) -> Lease | Unconfirmed | None:
            """Renew the lease that this owner was granted before."""

        def record_skip(
            self,
            firing: Firing,
            refusal: Refusal,
            presence: Seen | None,
            plain: PlainSkip | None,
            *,
            deadline: float,
        ) -> bool:
            """Record a skip, a plain one in less space, and what is known of the host.

            Return False if that has changed, or the key has gone: nothing was written.
            """


MOST_LOOKS = 10
"""So many other claims of one key between a look and its write are more than a herd of 300 hosts makes."""


class ClaimLoop:
    """The base of each store of a firing: its claim, by the steps that the store brings."""

    on_lost: Callable[[Firing, LostRun], None] | None = None
    steadiness: Steadiness | None = None

    @steadied
    def claim(
        self: ClaimSteps,
        firing: Firing,
        *,
        deadline: float,
        watched: float | str | None = None,
        alone: bool = False,
        awaited: int | None = None,
    ) -> Lease | Refusal | AskAgain | Behind | Unconfirmed:
        """Claim (key, tick); see `LeaseStore.claim`."""
        return _claim(self, firing, deadline, watched, awaited, alone=alone)

    @steadied
    def skip(self: ClaimSteps, firing: Firing, refusal: Refusal, *, deadline: float) -> None:
        """Record a skip that no claim was answered; see `LeaseStore.skip`."""
        _write_skip(self, firing, refusal, _seen(self, firing, deadline), None, deadline)

    # What a store brings that has a server, its sessions and logins; see `LeaseStore`

    def listen(self, firing: Firing, *, deadline: float, awaited: int | None = None) -> bool:  # noqa: ARG002 - the contract's
        """Return False: nothing notifies, so that waiting firings poll."""
        return False

    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        """Do nothing: there is no session lock."""

    def watch_fd(self) -> int | None:
        """Return None: there is no connection to watch."""
        return None

    def readdress(self, address: Address) -> None:
        """Do nothing: another address is another store."""


def _claim(
    store: ClaimSteps,
    firing: Firing,
    deadline: float,
    watched: float | str | None,
    awaited: int | None,
    *,
    alone: bool,
) -> Lease | Refusal | AskAgain | Behind | Unconfirmed:
    closely = False
    for _ in range(MOST_LOOKS):
        try:
            state = _look(store, firing, awaited, deadline, closely=closely)
            answer = decide(state, firing, watched=watched, alone=alone)
        except UNREADABLE as error:
            raise unreadable(firing, error) from error
        if isinstance(answer, AskAgain | Behind):
            return answer
        if isinstance(answer, Refusal):
            if _is_recorded(answer, firing, awaited):
                recorded = _record_skip(store, firing, answer, state, deadline)
                return answer._replace(recorded=recorded)
            return answer
        written = _write(store, firing, state, answer, deadline, alone=alone)
        if written is not None:
            return written
        if isinstance(answer, Expire) and state.lock == "taken":
            alone = True  # it is a dead session that holds the lock
        closely = True
    return contention()


def _is_recorded(refusal: Refusal, firing: Firing, awaited: int | None) -> bool:
    """Return whether a refusal is a skip: one of a missed tick is none, and says nothing of why it was missed."""
    is_repeated = refusal.reason == "held" and awaited is not None
    return not (refusal.own or is_repeated or firing.tick.rule == "catch-up")


def unreadable(firing: Firing, error: Exception) -> StoreRefusesError:
    """Return the error of facts that mean nothing."""
    return StoreRefusesError(
        f"key {firing.key}: what the store has about it cannot be read ({reason_of(error)}); "
        "`oncecron locks` and `oncecron history` name the row; correct it in the store"
    )


def _write(
    store: ClaimSteps, firing: Firing, state: State, answer: Write, deadline: float, *, alone: bool
) -> Lease | Unconfirmed | AskAgain | None:
    """Write what was decided; return the end of the claim, or None to look again."""
    if isinstance(answer, Grant):
        presence = seen(state, firing, won=True)
        return store.grant(firing, state, answer, presence, alone=alone, deadline=deadline)
    if isinstance(answer, Expire):
        lost = store.expire(firing, state, answer.note, deadline=deadline)
        if not isinstance(lost, LostRun):
            return lost
        if store.on_lost and not goes_on_after(state, firing, lost.execution_id):
            store.on_lost(firing, lost)
    if isinstance(answer, Cut):
        store.cut(firing, state, deadline=deadline)
    elif isinstance(answer, Regain):
        return store.regain(firing, answer.own, deadline=deadline)
    return None


def _look(
    store: ClaimSteps, firing: Firing, awaited: int | None, deadline: float, *, closely: bool
) -> State:
    try:
        return state_of(store.look(firing, awaited=awaited, closely=closely, deadline=deadline))
    except StoreUnavailable as error:
        error.unanswered = False  # a look without an answer has granted nothing
        raise


def _record_skip(
    store: ClaimSteps, firing: Firing, refusal: Refusal, state: State, deadline: float
) -> bool:
    """Record a skip; return whether it is on record. If it is not, the answer stands all the same."""
    patience = clock.lease_time(store.lease_clock) + SKIP_TIMEOUT
    presence, plain = seen(state, firing, won=False), plain_skip(state, firing, refusal)
    try:
        _write_skip(store, firing, refusal, presence, plain, min(deadline, patience))
    except StoreError:
        return False
    return True


def _write_skip(
    store: ClaimSteps,
    firing: Firing,
    refusal: Refusal,
    presence: Seen | None,
    plain: PlainSkip | None,
    deadline: float,
) -> None:
    """Write a skip and what is known of the host. If that has changed, look once more; else write the skip alone."""
    if not store.record_skip(firing, refusal, presence, plain, deadline=deadline):
        presence = _seen(store, firing, deadline)
        if not store.record_skip(firing, refusal, presence, plain, deadline=deadline):
            store.record_skip(firing, refusal, None, None, deadline=deadline)


def _seen(store: ClaimSteps, firing: Firing, deadline: float) -> Seen | None:
    """Look at what is known of the host of a firing that is skipped; None if what the store answers cannot be read."""
    try:
        return seen(_look(store, firing, None, deadline, closely=False), firing, won=False)
    except UNREADABLE:
        return None
