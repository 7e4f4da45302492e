"""A store of one key in memory, which has the steps of a claim (`ClaimSteps`)."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any
from unittest import mock

from claim_states import expired

from oncecron.core import clock
from oncecron.core.decision import Attempt, Grant, PlainSkip, State
from oncecron.core.facts import first_lease
from oncecron.core.model import LostRun
from oncecron.stores import claim_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.facts import Facts
    from oncecron.core.model import Firing, Lease, Refusal
    from oncecron.core.presence import Seen


def claim(store: OneKey, firing: Firing, **how: Any) -> Any:
    """Claim (key, tick) of a store whose looks answer a whole state."""
    with mock.patch.object(claim_loop, "state_of", itemgetter("state")):
        return store.claim(firing, **how)


class OneKey(claim_loop.ClaimLoop):
    """A store of one key, which keeps the contract of `ClaimSteps`: what was looked at must not have changed."""

    lease_clock = clock.MONOTONIC

    def __init__(self, state: State, *, looks_lightly: bool = True) -> None:
        """Take the first state. `looks_lightly`: a look that is not close leaves out the second safeguards."""
        self.state = state
        self.before_write: Callable[[], None] = lambda: None
        self.steps: list[str] = []
        self.skipped: list[Refusal] = []
        self.deadlines: dict[str, float] = {}
        self._looks_lightly = looks_lightly

    def change(self, **facts: Any) -> None:
        self.state = self.state._replace(version=self.state.version + 1, **facts)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in which no holder renews."""
        state, lease = self.state, self.state.lease
        if lease is not None:
            lease = lease._replace(
                ends_in=lease.ends_in - seconds, silent_for=lease.silent_for + seconds
            )
        recovering_for = max(0.0, state.recovering_for - seconds)
        self.state = state._replace(
            now=state.now + seconds, lease=lease, recovering_for=recovering_for
        )

    def look(self, firing: Firing, *, awaited: int | None, closely: bool, deadline: float) -> Facts:
        self._note("look closely" if closely else "look", deadline)
        if self._looks_lightly and not closely:
            return {"state": self.state._replace(lock="unknown", recovering_for=0.0)}
        assert self.state.lock != "unknown"
        return {"state": self.state}

    def grant(
        self,
        firing: Firing,
        state: State,
        grant: Grant,
        presence: Seen,
        *,
        alone: bool,
        deadline: float,
    ) -> Lease | None:
        del presence
        self._note("grant alone" if alone else "grant", deadline)
        unsafe = self.state.recovering_for > 0 or (
            self.state.lock in ("taken", "busy") and not alone
        )
        if unsafe or self._has_changed_since(state):
            return None
        attempt = Attempt(
            9, grant.attempt, "running", False, None, self.state.now, firing.holder, 99, grant.cause
        )
        self.change(own=attempt, own_has_lease=True, running=True)
        return self._lease(firing, attempt)

    def expire(self, firing: Firing, state: State, note: str, *, deadline: float) -> LostRun | None:
        self._note("expire", deadline)
        if self._has_changed_since(state):
            return None
        lease, newest = self.state.lease, self.state.newest
        assert lease is None or lease.ends_in <= 0
        self.state = expired(self.state)
        self.change()
        known = newest or lease
        return known and LostRun(
            *(known.execution_id, "", None, 1, "schedule", "lost", None, None, "expired", None),
            *("web2", 4711, "root", 0.0, None, note, 1),
        )

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:
        """Let a lease end a ttl from now."""
        self._note("cut", deadline)
        lease = self.state.lease
        if lease is not None and not self._has_changed_since(state):
            self.change(lease=lease._replace(ends_in=lease.ttl))

    def regain(self, firing: Firing, own: Attempt, *, deadline: float) -> Lease | None:
        """Renew the owner's lease, if it still has one."""
        self._note("regain", deadline)
        self.before_write()
        return self._lease(firing, own) if self.state.own_has_lease else None

    def record_skip(
        self,
        firing: Firing,
        refusal: Refusal,
        presence: Seen | None,
        plain: PlainSkip | None,
        *,
        deadline: float,
    ) -> bool:
        """Record a skip, if nothing has changed since."""
        del plain
        self._note("skip" if presence else "skip alone", deadline)
        self.before_write()
        if presence and presence.before != self.state.presence:
            return False
        self.skipped.append(refusal)
        return True

    def _note(self, step: str, deadline: float) -> None:
        self.steps.append(step)
        self.deadlines[step] = deadline

    def _has_changed_since(self, state: State) -> bool:
        self.before_write()
        return bool(self.state.version != state.version)

    def _lease(self, firing: Firing, own: Attempt) -> Lease:
        return first_lease(firing, own._asdict(), 0.0)
