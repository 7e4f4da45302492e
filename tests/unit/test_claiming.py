"""The loop of a claim: what is looked at again, what is handed back, and what is recorded."""

from collections.abc import Callable
from typing import Any

import pytest
from claim_states import HERE, NOW, OWNER
from one_key import OneKey, claim

from oncecron.core import clock
from oncecron.core.decision import CONTENDED_PAUSE, Attempt, HeldLease, State
from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.model import AskAgain, Firing, Holder, Lease, Refusal, Unconfirmed
from oncecron.core.tick import minute_tick
from oncecron.core.timing import NEVER, SKIP_TIMEOUT
from oncecron.stores.claim_loop import MOST_LOOKS

WEB2 = Holder("web2", 4711, "root")
FIRING = Firing(
    *("nightly", 0, minute_tick(NOW), OWNER, HERE, "./bill.sh", NOW, 60.0),
    *(None, None, False, None, None),
)
FREE = State(version=1, now=NOW, host_ahead=0.0, lock="free")
LEASE = HeldLease(41, minute_tick(NOW - 60).text, WEB2, NOW - 60, 60.0, 40.0, 1.0, "1-0")
HELD = FREE._replace(lease=LEASE)
EXPIRED = FREE._replace(lease=LEASE._replace(ends_in=-1.0), running=True)
AHEAD = FREE._replace(lease=LEASE._replace(ends_in=500.0, silent_for=0.0))
OWN = Attempt(41, 1, "running", False, None, NOW, HERE, 7)
REGAINED = FREE._replace(own=OWN, own_has_lease=True)
DONE = FREE._replace(newest=OWN._replace(outcome="succeeded", holder=WEB2))
CONTENDED = AskAgain("contended", CONTENDED_PAUSE, 0.0, Refusal("held"))
FENCED = AskAgain("fenced", 0.05, 0.0, Refusal("held", WEB2))
UNCONFIRMED = Unconfirmed(
    Lease("nightly", 0, FIRING.tick.text, OWNER, 1, 41, 7, 60.0, NOW, 60.0),
    StoreUnavailable("two replicas are missing"),
)


def ask(store: OneKey, **how: Any) -> Any:
    return claim(store, FIRING, deadline=how.pop("deadline", NEVER), **how)


def interfere(store: OneKey, times: int) -> None:
    """Let other firings change something between a look and its write, so many times."""

    def change() -> None:
        nonlocal times
        if times:
            times -= 1
            store.change(own_has_lease=store.state.own_has_lease and times == 0)

    store.before_write = change


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def unanswered() -> StoreUnavailable:
    """Return the error of a request that was sent."""
    error = StoreUnavailable("the connection is cut")
    error.unanswered = True
    return error


# Looks and writes


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (FREE, ["look", "grant"]),
        (DONE, ["look", "skip"]),
        (HELD, ["look", "skip"]),
        (REGAINED, ["look", "regain"]),
        (EXPIRED, ["look", "look closely", "expire", "look closely", "grant"]),
        (AHEAD, ["look", "cut", "look closely", "skip"]),
        (FREE._replace(lock="taken"), ["look", "grant", "look closely"]),
        (FREE._replace(recovering_for=9.0), ["look", "grant", "look closely"]),
    ],
)
def test_most_claims_need_one_look(state: State, steps: list[str]) -> None:
    """The second safeguards are looked at when they may be in the way."""
    store = OneKey(state)
    ask(store)
    assert store.steps == steps


DEAD = Attempt(41, 2, "running", False, None, NOW - 60, WEB2)
TAKING_OVER = FIRING._replace(failover=True, retries=2)


@pytest.mark.parametrize(
    ("newest", "firing", "reported"),
    [
        (None, FIRING, [41]),
        (None, TAKING_OVER, [41]),
        (DEAD, FIRING, [41]),
        (DEAD, TAKING_OVER, []),
        (DEAD, TAKING_OVER._replace(retries=1), [41]),
        (DEAD, TAKING_OVER._replace(again=True), [41]),
        (DEAD, FIRING._replace(resumes=True), []),
    ],
    ids=["other tick", "other tick, failover", "alone", "takes over", "exhausted", "again", "resumes"],
)  # fmt: skip
def test_a_lost_run_is_reported_by_the_claim_that_declares_it(
    newest: Attempt | None, firing: Firing, reported: list[int]
) -> None:
    """Once, and not if the firing goes on with its tick: the end of that is reported then."""
    store = OneKey(EXPIRED._replace(newest=newest))
    found: list[int] = []
    store.on_lost = lambda _, lost: found.append(lost.execution_id)
    interfere(store, 1)
    claim(store, firing, deadline=NEVER)
    claim(store, firing, deadline=NEVER)
    assert found == reported


@pytest.mark.parametrize("times", [1, 2, MOST_LOOKS - 1])
def test_what_has_changed_is_looked_at_again_closely(times: int) -> None:
    """A write that is refused has written nothing; the next look leaves out nothing."""
    store = OneKey(FREE)
    interfere(store, times)
    assert isinstance(ask(store), Lease)
    assert store.steps == ["look", "grant"] + ["look closely", "grant"] * times
    assert store.state.version == FREE.version + times + 1


@pytest.mark.parametrize(("state", "write"), [(FREE, "grant"), (EXPIRED, "expire")])
def test_a_claim_that_never_comes_through_asks_again(state: State, write: str) -> None:
    """After as many looks as no herd makes necessary."""
    store = OneKey(state, looks_lightly=False)
    interfere(store, 1000)
    assert ask(store) == CONTENDED
    assert store.steps.count(write) == len(store.steps) / 2 == MOST_LOOKS


def test_an_owner_whose_lease_is_lost_meanwhile_looks_again() -> None:
    """Its lease was not renewed, so it may not use it. That it did not start is its own to say: no skip is recorded."""
    store = OneKey(REGAINED)
    store.before_write = lambda: store.change(own_has_lease=False)
    assert ask(store) == Refusal("done", HERE, NOW, "running", own=True)
    assert store.steps == ["look", "regain", "look closely"]


def test_what_comes_between_decides() -> None:
    """Another host's grant between look and grant: the claim is refused because of that lease."""
    store = OneKey(FREE)
    lease = LEASE._replace(tick=FIRING.tick.text)
    store.before_write = lambda: store.change(lease=lease)
    answer = ask(store)
    assert (answer.reason, answer.holder) == ("held", WEB2)


@pytest.mark.parametrize(("lock", "grant"), [("taken", "grant alone"), ("free", "grant")])
def test_the_session_lock_of_a_dead_holder_is_no_longer_waited_for(lock: Any, grant: str) -> None:
    """Its lease has expired and its heartbeat has not changed since: the session is dead."""
    store = OneKey(EXPIRED._replace(lock=lock))
    assert isinstance(ask(store, watched=LEASE.heartbeat), Lease)
    assert store.steps[-1] == grant


@pytest.mark.parametrize(
    ("step", "state", "answer"),
    [("grant", FREE, FENCED), ("expire", EXPIRED, FENCED), ("grant", FREE, UNCONFIRMED)],
)
def test_the_answer_of_a_write_is_handed_back(step: str, state: State, answer: object) -> None:
    """A job's transaction that holds the fence, and a lease that too few replicas have."""
    store = OneKey(state)
    setattr(store, step, lambda *_, **__: answer)
    assert ask(store) is answer


# Failures


def test_a_look_without_an_answer_has_granted_nothing() -> None:
    """So no other host has to wait for a ttl, and the shard needs no settling."""
    store = OneKey(FREE)
    store.look = failing(unanswered())  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable) as raised:
        ask(store)
    assert not raised.value.unanswered


def test_a_grant_without_an_answer_may_have_been_made() -> None:
    """Only its own claim can settle that."""
    store = OneKey(FREE)
    store.grant = failing(unanswered())  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable) as raised:
        ask(store)
    assert raised.value.unanswered


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreRefusesError("read only")])
def test_a_skip_that_cannot_be_recorded_changes_no_answer(error: Any) -> None:
    """It says that the skip is not on record."""
    store = OneKey(DONE)
    assert ask(store).recorded
    store.record_skip = failing(error)  # type: ignore[method-assign]
    answer = ask(store)
    assert (answer.reason, answer.recorded) == ("done", False)


@pytest.mark.parametrize(
    ("times", "again"), [(0, []), (1, ["look", "skip"]), (2, ["look", "skip", "skip alone"])]
)
def test_a_skip_that_loses_a_race_of_its_host_is_not_lost(times: int, again: list[str]) -> None:
    """It looks once more; where the host's row has changed again, the skip is recorded without it."""
    store, changes = OneKey(DONE), iter(range(times))

    def change() -> None:
        if (number := next(changes, None)) is not None:
            store.change(presence=f"hour {number}")

    store.before_write = change
    assert ask(store).recorded
    assert store.steps == ["look", "skip", *again]
    assert [refusal.reason for refusal in store.skipped] == ["done"]


def test_a_skip_waits_for_less_than_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step has the deadline of the claim, and a skip one of its own if that is later."""
    monkeypatch.setattr(clock, "lease_time", lambda _: 1000.0)
    for deadline, skip in ((1100.0, 1000.0 + SKIP_TIMEOUT), (1000.5, 1000.5)):
        store = OneKey(DONE)
        ask(store, deadline=deadline)
        assert store.deadlines == {"look": deadline, "skip": skip}
    store = OneKey(EXPIRED)
    ask(store, deadline=1100.0)
    assert set(store.deadlines.values()) == {1100.0}


# Records


def test_a_state_that_cannot_be_read_starts_nothing() -> None:
    """Some row is damaged: the firing says so in one line, and a retry does not help."""
    for error in (ValueError("no number: 'x'"), TypeError("'str' - 'float'"), KeyError("ttl")):
        store = OneKey(FREE)
        store.look = failing(error)  # type: ignore[method-assign]
        with pytest.raises(StoreRefusesError, match=r"key nightly: .* cannot be read"):
            ask(store)
    store = OneKey(FREE._replace(lease=LEASE._replace(ends_in="x")))  # type: ignore[arg-type]
    with pytest.raises(StoreRefusesError, match=r"key nightly: .* cannot be read"):
        ask(store)
