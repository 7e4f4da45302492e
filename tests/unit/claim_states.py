"""What a claim is decided about: states of a store and firings, drawn widely."""

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from hypothesis import strategies as st

from oncecron.core.decision import (
    Attempt,
    Cut,
    Expire,
    Grant,
    HeldLease,
    LookCloser,
    Regain,
    State,
    Stop,
    decide,
)
from oncecron.core.errors import ConfigurationError
from oncecron.core.model import CAUSES, OUTCOMES, AskAgain, Firing, Holder, Refusal
from oncecron.core.tick import NO_TICK, Tick, minute_tick, named_tick
from oncecron.core.timing import MAX_CLOCK_SKEW

NOW = 1_800_000_000.0
OWNER = "6a1f"
HERE = Holder("web1", 1001, "batch")
FAR_AHEAD = NOW + 3600
INSTANTS = (NOW - 120, NOW - 60, NOW, NOW + 60)

Answer = Refusal | AskAgain | Grant | Expire | Cut | Regain | LookCloser | ConfigurationError


class Claim(NamedTuple):
    """What `decide` is given."""

    state: State
    firing: Firing
    watched: float | str | None = None
    alone: bool = False

    def answer(self) -> Answer:
        """Return the decision, or the error that ends the firing."""
        try:
            return decide(self.state, self.firing, watched=self.watched, alone=self.alone)
        except ConfigurationError as error:
            return error

    def but(self, **facts: Any) -> "Claim":
        """Return the same claim in a state that differs in these facts."""
        return self._replace(state=self.state._replace(**facts))


def has_unknown_end(state: State) -> bool:
    """Return whether the newest execution of the firing's own tick has no recorded end, or still has its lease."""
    newest, lease = state.newest, state.lease
    return newest is not None and (
        newest.outcome == "running"
        or (lease is not None and lease.execution_id == newest.execution_id)
    )


def expired(state: State) -> State:
    """Return the state after an `expire`: neither a lease nor anything that runs."""
    newest = state.newest
    if (
        newest is not None and newest.outcome == "running"
    ):  # a lease that was kept is one of an ended attempt
        newest = newest._replace(outcome="lost")
    return state._replace(lease=None, running=False, newest=newest, fence=state.fence + 1)


# Strategies. One draw for each thing, from all its forms: a draw of every field takes ten times as long.

_HOLDERS = (Holder("web2", 4711, "root"), Holder("web1", 7, "batch"))
_STARTED = (NOW - 5000, NOW - 45, NOW - 20, NOW, NOW + 200, NOW + 500)
_HEARTBEATS = ("1-0", "2-0", NOW - 20)
_TICKS = (
    *(minute_tick(instant)._replace(rule=rule) for instant in INSTANTS for rule in ("schedule", "minute", "name")),
    NO_TICK, NO_TICK, named_tick("2027-01"), named_tick("campaign"),
)  # fmt: skip
_TOO_EARLY = tuple(minute_tick(FAR_AHEAD)._replace(rule=rule) for rule in ("schedule", "name"))


def _all(shape: Callable[..., Any], *values: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for all forms of a tuple that these values of its fields can make."""
    return st.sampled_from(list(product(*values))).map(lambda chosen: shape(*chosen))


_attempts = _all(
    Attempt,
    *((1, 2, 3), (1, 2, 3, 4), OUTCOMES, (False, True), (None, "ann@desk")),
    *(_STARTED, _HOLDERS, (7,), CAUSES[:2]),
)
_stops = _all(
    Stop, ("paused", "drained"), ("ann@desk", "root@web2"), (None, "a migration"), _STARTED
)


def _lease(ends_in: float, silent_for: float, ttl: float, *fields: Any) -> HeldLease:
    execution_id, tick, *others = fields
    parts = (execution_id, tick, _HOLDERS[0], NOW - 45, ttl, ends_in * ttl, silent_for * ttl)
    return HeldLease(*parts, *others)


_leases = _all(
    _lease,
    *((0, -0.01, -2, 1e-6, 0.1, 0.5, 1, 1.001, 10), (0, 0.2, 1 / 3, 0.34, 2), (60.0, 6.0)),
    *((1, 2, 3), (None, "campaign", *(minute_tick(instant).text for instant in INSTANTS[1:3]))),
    *(_HEARTBEATS, (False, True), (None, 811), (None, "2027-01-15")),
)


def _firing(tick: Tick, ttl: float, *fields: Any) -> Firing:
    min_gap, deadline, again, failover, retries, resumes = fields
    return Firing(
        *("nightly", 0, tick, OWNER, HERE, "./bill.sh", NOW, ttl, min_gap, deadline, again),
        *(None, None, 2, failover, retries, resumes and tick.text is not None),
    )


firings = _all(
    _firing,
    *(_TICKS, (60.0, 6.0), (None, 30.0, 3600.0), (None, 90.0, 3600.0)),
    *((False, False, False, True), (False, True), (0, 1, 2, 3), (False, False, False, True)),
)
_marks = _all(
    lambda *values: dict(
        zip(("forgotten", "high_water", "last_start", "last_lateness"), values, strict=True)
    ),
    *(
        (False, True),
        (None, None, None, *INSTANTS, FAR_AHEAD),
        (None, *_STARTED),
        (None, 0.0, 35.0, 59.0),
    ),
)
_counts = _all(
    lambda *values: dict(
        zip(("last_holder", "own_has_lease", "attempts", "fence", "version"), values, strict=True)
    ),
    *((None, *_HOLDERS), (False, True), (0, 1, 2, 3, 4), (0, 9), (1, 2)),
)
_locks = st.sampled_from(["none", "unknown", "free", "taken", "busy"])
_ahead = st.sampled_from([-MAX_CLOCK_SKEW - 1, MAX_CLOCK_SKEW + 1, 1e9])
_in_the_way: dict[str, st.SearchStrategy[Any]] = {
    "own": _attempts, "stop": _stops, "other_shards": st.just(5), "lease": _leases, "running": st.just(True),
    "recovering_for": st.sampled_from([0.01, 45.0]),
    "host_ahead": _ahead, "tick": st.sampled_from(_TOO_EARLY),
}  # fmt: skip
_facts = {**_in_the_way, "newest": _attempts}
_TOGETHER = [
    names
    for number, often in ((0, 336), (1, 33), (2, 4), (3, 1))
    for names in [*combinations(_in_the_way, number)] * often
]


@st.composite
def claims(draw: st.DrawFn, *always: str, tick: Tick | None = None) -> Claim:
    """Draw any facts together, also such as no store would know together, for any tick or this one.

    Up to three facts are in the way of a start, besides those that `always` names; `newest` may be one.
    """
    others = draw(st.sampled_from(_TOGETHER))
    facts = {name: draw(_facts[name]) for name in (*always, *others)}
    firing = draw(firings)
    if tick is not None:
        firing = firing._replace(tick=tick)
    if "tick" in facts:
        firing = firing._replace(tick=facts.pop("tick"))
    if "newest" not in facts:
        facts["newest"] = draw(st.none() | _attempts)
    facts = {"now": NOW, "host_ahead": 0.0, "lock": draw(_locks)} | facts
    state = State(**facts | draw(_marks) | draw(_counts))
    return Claim(state, firing, draw(st.sampled_from([None, *_HEARTBEATS])), draw(st.booleans()))
