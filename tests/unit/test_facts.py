"""The state that a store's facts mean: numbers or their texts, one meaning."""

from typing import Any

import pytest

from oncecron.core.decision import Attempt, HeldLease, State, Stop
from oncecron.core.errors import UNREADABLE
from oncecron.core.facts import state_of
from oncecron.core.model import Holder

NOW = 1_800_000_000.0
WEB2 = {"host": "web2", "pid": 4711, "user": "root"}
FACTS: dict[str, Any] = {
    "version": 7, "now": NOW, "host_now": NOW + 5, "other_shards": 3, "fence": 9,
    **{f"own_{name}": value for name, value in WEB2.items()},
    "own_execution_id": 41, "own_attempt": 2, "own_outcome": "lost", "own_started_at": NOW,
    "own_fencing_token": 9, "own_cause": "retry", "own_requested_by": "ann@desk", "newest_execution_id": 41,
    "newest_attempt": 2, "newest_outcome": "failed", "newest_started_at": NOW - 9, "newest_retrying": 1,
    **{f"newest_{name}": value for name, value in WEB2.items()},
    "lease_execution_id": 41, "lease_tick": "t", "lease_started_at": NOW, "lease_ttl": 60, "lease_now": 100,
    "lease_expires_at": 140, "lease_heartbeat_at": 90, "lease_has_session": 1, "lease_backend_pid": 811,
    "lease_backend_start": 10**15, "stop_kind": "key", "stop_author": "ann@desk", "stop_reason": "why",
    "stop_since": NOW, "high_water": NOW, "last_start": NOW - 1, "last_lateness": 2, "running": 41,
    "attempts": 2, "lock": "free", "recovering_for": 3, "forgotten": 1, "own_has_lease": 1,
}  # fmt: skip
HOLDER = Holder("web2", 4711, "root")
STATE = State(
    version=7, now=NOW, host_ahead=5.0, other_shards=3, fence=9,
    own=Attempt(41, 2, "lost", False, "ann@desk", NOW, HOLDER, 9, "retry"),
    own_has_lease=True, newest=Attempt(41, 2, "failed", True, None, NOW - 9, HOLDER),
    lease=HeldLease(41, "t", None, NOW, 60.0, 40.0, 10.0, 90, True, 811, 10**15),
    stop=Stop("paused", "ann@desk", "why", NOW), high_water=NOW, last_start=NOW - 1, last_lateness=2.0,
    running=True, attempts=2, lock="free", recovering_for=3.0, forgotten=True,
)  # fmt: skip


def test_numbers_and_their_texts_mean_the_same() -> None:
    """A store answers as it has them; the heartbeat is only compared, and stays as it is."""
    assert state_of(FACTS) == STATE
    texts = {name: str(value) for name, value in FACTS.items()}
    state = state_of({**texts, "version": 7, "lease_heartbeat_at": 90})
    assert state == STATE


def test_what_is_absent_is_not_so() -> None:
    """Absent and None are the same; a flag may be 0."""
    nothing = State(version=7, now=NOW, host_ahead=0.0)
    assert state_of({"version": 7, "now": NOW}) == nothing
    absent = dict.fromkeys(FACTS, None) | {"lock": "none", "own_has_lease": 0, "forgotten": 0}
    assert state_of({**absent, "version": 7, "now": NOW, "host_now": NOW}) == nothing


@pytest.mark.parametrize("name", ["now", "own_attempt", "lease_ttl", "stop_since", "newest_pid"])
def test_a_fact_that_is_missing_or_no_number_cannot_be_read(name: str) -> None:
    """So a damaged row starts nothing."""
    for facts in ({**FACTS, name: "x"}, {**FACTS, name: None}):
        with pytest.raises(UNREADABLE):
            state_of(facts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fence", (1 << 53) - 1), ("fence", str(1 << 63)), ("attempts", 10**400), ("fence", "9" * 5000),
        ("high_water", "nan"), ("last_start", float("nan")), ("recovering_for", "nan"),
    ],
)  # fmt: skip
def test_a_number_that_no_store_can_have_made(name: str, value: Any) -> None:
    """A fencing token that a store writes as a double would no longer rise."""
    with pytest.raises(UNREADABLE):
        state_of({**FACTS, name: value})
    assert state_of({**FACTS, "fence": (1 << 53) - 2}).fence == (1 << 53) - 2
