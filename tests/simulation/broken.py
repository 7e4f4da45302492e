"""The product, broken on purpose in one way each: the simulator must find each of these."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import memory_store
from server import Server

from oncecron.core import decision, facts
from oncecron.core.retry import RetryPolicy
from oncecron.run import catch_up, claimer, firing_states, guard, store_thread
from oncecron.stores import claim_loop
from oncecron_each import item_model, worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_store import Part, Row

    from oncecron.core.decision import State
    from oncecron.core.model import Firing


def _decide(change: Callable[[State, Firing], State]) -> None:
    real = claim_loop.decide
    claim_loop.decide = lambda state, firing, **named: real(change(state, firing), firing, **named)


def trust_without_margin() -> None:
    """Trust a lease for longer than it lasts."""
    memory_store.trust_after = facts.trust_after = lambda sent, ttl: sent + ttl * 1.3


def grant_beside_lease() -> None:
    """Do not look at the lease, on a store without constraints."""
    Server.constraints = False
    _decide(lambda state, _: state._replace(lease=None, running=False))


def claim_forgotten() -> None:
    claimer.Claimer.unanswered = []


def retries_success() -> None:
    RetryPolicy.wanted = lambda self, _ending, attempt: attempt <= self.retries


def dead_holder_is_held() -> None:
    """Do not wait for the end of a dead holder."""

    def ask_again(_why: str, lease: Any, _firing: Firing, _after: float) -> Any:
        way = decision.BlockingLease(lease.execution_id, lease.ends_in, lease.heartbeat, False)
        return decision.Refusal("held", lease.holder, lease.started_at, blocked_by=way)

    decision._ask_again = ask_again


def takes_over_living() -> None:
    def change(state: State, firing: Firing) -> State:
        if firing.failover and state.lease and state.lease.tick == firing.tick.text:
            return state._replace(lease=state.lease._replace(ends_in=0.0))
        return state

    real = Server.expire

    def expire(self: Server, firing: Firing, *args: Any) -> Row | None:
        part: Part = self.parts[firing.key, firing.shard]
        if lease := part.lease:
            lease["expires_at"] = min(lease["expires_at"], self.now())
        return real(self, firing, *args)

    Server.expire = expire
    _decide(change)


def guard_outlives_wrapper() -> None:
    """Let the guard go on without its wrapper."""
    firing_states._WithJob.lose_wrapper = lambda self: self
    firing_states.Running.lose_wrapper = lambda self: self


def token_is_the_clock() -> None:
    """Let the fencing token fall when the store's clock is set back."""
    real = Server.grant

    def grant(self: Server, firing: Firing, *args: Any) -> Row | None:
        self.parts[firing.key, firing.shard].marks["fence"] = 0
        return real(self, firing, *args)

    Server.grant = grant


def starts_while_paused() -> None:
    _decide(lambda state, _: state._replace(stop=None))


def end_is_not_recorded() -> None:
    """Take the end for recorded without a word to the store."""
    store_thread.StoreThread._answer = lambda _self, _ask: True


def store_forgets() -> None:
    """Lose the writes of the last ten seconds in a restart, without a restart guard."""
    real = Server.__init__

    def init(self: Server, kernel: Any, *, guarded: bool, sessions: bool) -> None:
        real(self, kernel, guarded=False, sessions=sessions)

    Server.forgets, Server.__init__ = 10.0, init


def place_is_looked_at_rarely() -> None:
    """Send a place when the job has left it for a while."""
    guard.LOOK_EVERY = 8.0


def place_is_of_the_first_attempt() -> None:
    """Begin where the attempt before began, not where it stopped."""
    real = Server._begin

    def begin(self: Server, part: Part, values: Row, *args: Any) -> Row:
        row = real(self, part, values, *args)
        self.began[row["execution_id"]] = row["place"]
        before = max((each for each in part.rows if each < row["execution_id"]), default=None)
        is_further = row["place"] is not None and before in self.began
        return part.put(row, place=self.began[before]) if is_further else row

    Server.began, Server._begin = {}, begin


def end_brings_no_place() -> None:
    """Let only what the guard has looked at count."""
    guard.Guard.finish_job = lambda self, ending: _finish(self, ending)._replace(place=None)


_finish = guard.Guard.finish_job


def missed_is_left() -> None:
    """Start the own tick whatever was missed before it."""
    real = claim_loop.decide
    claim_loop.decide = lambda state, firing, **named: real(
        state, firing._replace(previous=None), **named
    )


def missed_comes_backward() -> None:
    """Make up the newest tick first, and let older ones follow."""
    real = catch_up.missed_firings

    def missed_firings(*args: Any) -> Any:
        firings, left = real(*args)
        return firings[::-1], left

    catch_up.missed_firings = missed_firings
    _decide(
        lambda state, firing: (
            state._replace(high_water=None) if firing.tick.rule == "catch-up" else state
        )
    )


def failed_item_is_done() -> None:
    """Take an item whose command failed for done."""
    worker.after_failure = lambda item, *_, **__: item_model.ItemResult(item.position, "done")


def doubt_is_run_again() -> None:
    """Run again what is in doubt, whatever the firing says."""
    worker.Draw = lambda *args, **named: item_model.Draw(*args, **{**named, "redraw_below": 3})


def lost_draw_is_another() -> None:
    """Repeat a draw whose answer was lost under the next number."""

    def draw(self: Any, draw: Any) -> Any:
        draws = (draw._replace(number=draw.number + more) for more in count())
        ask = lambda deadline: self._store.draw(self._lease, next(draws), deadline=deadline)  # noqa: E731
        return self._ask(ask)

    worker.Worker._draw = draw


ALL: dict[str, Callable[[], None]] = {
    name: value
    for name, value in list(globals().items())
    if getattr(value, "__module__", "") == __name__ and not name.startswith("_")
}
