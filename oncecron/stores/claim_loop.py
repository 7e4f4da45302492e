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
from oncecron.core.model import AskAgain, LostRun, Refusal
from oncecron.core.timing import SKIP_TIMEOUT
from oncecron.stores import steadied

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from oncecron.core.decision import Attempt, PlainSkip, State
    from oncecron.core.facts import Facts
    from oncecron.core.model import Firing, Lease, Unconfirmed
    from oncecron.stores import Steadiness

    Write = Grant | Expire | Cut | Regain | LookCloser

    class ClaimSteps(Protocol):
        """What a claim asks of a store.

        Each method ends by `deadline` (lease clock) or raises `StoreUnavailable`. None from a
        grant: something has changed since the look, or a safeguard that was not looked at is in the way. Nothing was
        written then, and the loop looks again.
        """

        lease_clock: int
        on_lost: Callable[[Firing, LostRun], None] | None

        def prepare(self, firing: Firing) -> None:
            """Get ready for a claim."""

        def conclude(self, answer: Lease | Refusal | AskAgain | Unconfirmed) -> None:
            """Take note of the answer to a claim."""

        def look(
            self, firing: Firing, *, awaited: int | None, closely: bool, deadline: float
        ) -> Facts:
            """Return what the store knows (`core.facts`), all of one instant. It writes nothing.

            A look may leave out what only few claims need: the second safeguards (`lock` is `unknown` then), and past
            executions that no claim of this store object can be about. `closely`: it leaves out nothing.
            """

        def grant(
            self, firing: Firing, state: State, grant: Grant, *, alone: bool, deadline: float
        ) -> Lease | Unconfirmed | AskAgain | None:
            """Write the execution, the lease and the marks of the key, with the next fencing token.

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

        def skip(
            self,
            firing: Firing,
            refusal: Refusal,
            *,
            deadline: float,
            plain: PlainSkip | None = None,
        ) -> None:
            """Record a skip; a plain one in less space."""


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
    ) -> Lease | Refusal | AskAgain | Unconfirmed:
        """Claim (key, tick); see `LeaseStore.claim`."""
        self.prepare(firing)
        answer = _claim(self, firing, deadline, watched, awaited, alone=alone)
        self.conclude(answer)
        return answer

    def prepare(self, firing: Firing) -> None:
        """Get ready for a claim."""

    def conclude(self, answer: Lease | Refusal | AskAgain | Unconfirmed) -> None:
        """Take note of the answer to a claim."""


def _claim(
    store: ClaimSteps,
    firing: Firing,
    deadline: float,
    watched: float | str | None,
    awaited: int | None,
    *,
    alone: bool,
) -> Lease | Refusal | AskAgain | Unconfirmed:
    closely = False
    for _ in range(MOST_LOOKS):
        try:
            state = _look(store, firing, awaited, deadline, closely=closely)
            answer = decide(state, firing, watched=watched, alone=alone)
        except UNREADABLE as error:
            raise unreadable(firing, error) from error
        if isinstance(answer, AskAgain):
            return answer
        if isinstance(answer, Refusal):
            if not answer.own and (answer.reason != "held" or awaited is None):
                plain = plain_skip(state, firing, answer)
                recorded = _record_skip(store, firing, answer, plain, deadline)
                return answer._replace(recorded=recorded)
            return answer
        written = _write(store, firing, state, answer, deadline, alone=alone)
        if written is not None:
            return written
        if isinstance(answer, Expire) and state.lock == "taken":
            alone = True  # it is a dead session that holds the lock
        closely = True
    return contention()


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
        return store.grant(firing, state, answer, alone=alone, deadline=deadline)
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
    store: ClaimSteps, firing: Firing, refusal: Refusal, plain: PlainSkip | None, deadline: float
) -> bool:
    """Record a skip; return whether it is on record. If it is not, the answer stands all the same."""
    patience = clock.lease_time(store.lease_clock) + SKIP_TIMEOUT
    try:
        store.skip(firing, refusal, deadline=min(deadline, patience), plain=plain)
    except StoreError:
        return False
    return True
