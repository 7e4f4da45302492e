"""What a claim is answered: what holds for every state of a store, every firing, and all that a claimer may say."""

import math

import pytest
from claim_states import INSTANTS, NOW, Answer, Claim, claims, expired, has_unknown_end
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st
from one_key import OneKey, claim

from oncecron.core.decision import Cut, Expire, Grant, LookCloser, Regain
from oncecron.core.errors import ConfigurationError
from oncecron.core.model import AskAgain, Behind, BlockingLease, Lease, Refusal
from oncecron.core.tick import NO_TICK, minute_tick
from oncecron.core.timing import MAX_CLOCK_SKEW, NEVER
from oncecron.core.units import DAY
from oncecron.run.claimer import CONTENDED_FOR

many = settings(suppress_health_check=[HealthCheck.filter_too_much])
anything = claims() | claims("lease") | claims(tick=NO_TICK)
MOST_CLAIMS = 60
"""Two seconds of `contended`, a ttl of `orphaned`, and one or two of each other answer."""


def kind(answer: Answer) -> str:
    if isinstance(answer, Refusal):
        return answer.reason
    if isinstance(answer, AskAgain):
        return answer.why
    if isinstance(answer, ConfigurationError):
        return "other clock" if "clock" in str(answer) else "other shards"
    return answer.cause if isinstance(answer, Grant) else type(answer).__name__


def test_every_answer_is_drawn() -> None:
    """The properties below would hold of an answer that never comes."""
    missing = {
        *("schedule", "manual", "takeover", "Expire", "Cut", "Regain", "LookCloser"),
        *("paused", "drained", "held", "done", "passed", "recent", "late", "exhausted"),
        *("contended", "orphaned", "stale", "recovering", "other clock", "other shards"),
    }

    def completes(claim: Claim) -> bool:
        missing.discard(kind(claim.answer()))
        return not missing

    find(anything, completes, settings=settings(max_examples=20000, phases=[Phase.generate]))


# A grant


@many
@given(claims())
def test_nothing_is_granted_beside_a_lease_or_a_run(claim: Claim) -> None:
    """Not even beside a lease that has expired, or a run without a lease: they are expired first."""
    assume(isinstance(claim.answer(), Grant))
    state = claim.state
    assert state.lease is None
    assert not state.running
    assert state.newest is None or state.newest.outcome != "running"


@many
@given(claims())
def test_nothing_is_granted_while_a_safeguard_is_in_the_way(claim: Claim) -> None:
    """A pause, a drain, a server that may have forgotten a lease, a session lock that was looked at."""
    assume(isinstance(claim.answer(), Grant))
    state = claim.state
    assert state.stop is None
    assert state.lock == "unknown" or state.recovering_for == 0
    assert state.lock not in ("taken", "busy") or claim.alone


@many
@given(anything)
def test_nothing_is_expired_while_a_safeguard_is_in_the_way(claim: Claim) -> None:
    """Nor before it was looked at. A session whose heartbeat has not changed since is dead."""
    assume(isinstance(claim.answer(), Expire))
    state, lease = claim.state, claim.state.lease
    assert state.lock != "unknown"
    assert state.recovering_for == 0
    is_dead = state.lock == "taken" and lease is not None and lease.heartbeat == claim.watched
    assert state.lock not in ("taken", "busy") or claim.alone or is_dead


@many
@given(claims())
def test_a_tick_that_may_have_started_is_granted_only_for_a_cause(claim: Claim) -> None:
    """`manual`: a person asked for it. `takeover`: its last attempt was lost, or a retry never came; within limits."""
    answer, firing, newest = claim.answer(), claim.firing, claim.state.newest
    assume(isinstance(answer, Grant))
    assert isinstance(answer, Grant)
    assert answer.attempt == claim.state.attempts + 1
    assert (answer.cause == "manual") == firing.again
    if answer.cause == "takeover":
        assert newest is not None
        if firing.resumes:  # `each`
            assert newest.outcome in ("lost", "stopped")
            return
        assert firing.failover
        assert newest.outcome == "lost" or newest.retrying
        assert firing.tick.text is None or newest.attempt <= firing.retries
    elif firing.tick.text is not None and not firing.again:
        assert newest is None or newest.outcome == "not-started"


@many
@given(claims("newest", tick=NO_TICK))
def test_a_standby_without_a_tick_does_not_follow_what_ended_as_intended(claim: Claim) -> None:
    """Only a shutdown without a request, what was lost or never began, and a retry that never came."""
    newest, firing = claim.state.newest, claim.firing
    assert newest is not None
    assume(not firing.again and not firing.resumes and isinstance(claim.answer(), Grant))
    shut_down = newest.outcome == "stopped" and newest.requested_by is None
    left_over = firing.failover and (newest.outcome == "lost" or newest.retrying)
    assert shut_down or left_over or newest.outcome == "not-started"


@many
@given(claims("lease", tick=NO_TICK))
def test_a_standby_without_a_tick_is_told_whom_it_awaits(drawn: Claim) -> None:
    """Else it would not know, after that execution, that there was one. Silent or not, until the lease has expired."""
    lease = drawn.state.lease
    assert lease is not None
    claim = drawn.but(lease=lease._replace(tick=None))
    assume(claim.firing.failover and not isinstance(claim.answer(), ConfigurationError))
    assume(claim.state.own is None and claim.state.stop is None and 0 < lease.ends_in <= lease.ttl)
    assert kind(claim.answer()) == "held"


@many
@given(claims(tick=minute_tick(NOW)), st.sampled_from((*INSTANTS, NOW + MAX_CLOCK_SKEW)))
def test_instants_are_granted_in_rising_order(drawn: Claim, high_water: float) -> None:
    """None below the high-water mark; at the mark only with an execution that allows it.

    A person may (`again`), and `each` resumes an older tick.
    """
    claim = drawn.but(high_water=high_water)
    answer, newest = claim.answer(), claim.state.newest
    assume(not claim.firing.again and isinstance(answer, Grant))
    if claim.firing.resumes and kind(answer) == "takeover":
        return
    assert high_water <= NOW
    if high_water == NOW:
        assert newest is not None
        given_back = newest.outcome == "not-started" and not claim.state.forgotten
        assert given_back or kind(answer) == "takeover"


@many
@given(claims(tick=minute_tick(NOW)), st.sampled_from((MAX_CLOCK_SKEW + 1, 40 * DAY, 1e11)))
def test_a_mark_of_a_wrong_clock_refuses_only_what_is_old(drawn: Claim, ahead: float) -> None:
    """It counts as a day ago, and is named; a tick that has an execution is `done` all the same."""
    wrong = drawn.but(high_water=NOW + ahead)
    assume(not isinstance(answer := wrong.answer(), ConfigurationError))
    expected = drawn.but(high_water=NOW - DAY).answer()
    assert kind(answer) == kind(expected)
    assert kind(answer) == "passed" or answer == expected
    old = wrong._replace(firing=drawn.firing._replace(tick=minute_tick(NOW - DAY - 60)))
    new_to_the_log = old.but(newest=None, lease=None, running=False)
    answer = new_to_the_log.answer()
    if isinstance(answer, Refusal) and answer.reason == "passed":
        assert answer.detail == f"by tick {minute_tick(NOW + ahead).text}"
    assert not isinstance(answer, Grant) or drawn.firing.again


@many
@given(claims(), st.sampled_from((MAX_CLOCK_SKEW + 1, 40 * DAY, 1e11)))
def test_a_last_start_of_a_wrong_clock_does_not_count(drawn: Claim, ahead: float) -> None:
    """Else it would forbid each start until then."""
    wrong = drawn.but(last_start=NOW + ahead)
    assume(not isinstance(answer := wrong.answer(), ConfigurationError))
    assert answer == drawn.but(last_start=None).answer()


@many
@given(claims())
def test_a_gap_and_a_deadline_are_kept(claim: Claim) -> None:
    """Without a tick, no start within the gap of the last one but a takeover; by itself none after its deadline."""
    state, firing = claim.state, claim.firing
    assume(isinstance(claim.answer(), Grant))
    has_deadline = firing.starting_deadline is not None and not firing.again
    if firing.tick.instant is not None and has_deadline:
        assert firing.starting_deadline is not None
        assert state.now - firing.tick.instant <= firing.starting_deadline
    last = state.last_start
    counts = last is not None and last <= state.now + MAX_CLOCK_SKEW
    if kind(claim.answer()) == "schedule" and firing.min_gap and counts:
        assert last is not None
        ago = max(0.0, state.now - last)
        assert firing.tick.rule != "none" or ago >= firing.min_gap


# Known owners


@many
@given(claims("own"))
def test_a_known_owner_is_never_refused_because_of_its_own_lease(claim: Claim) -> None:
    """Whatever else the store knows. If its execution has ended, the answer says how, and that it is its own."""
    own = claim.state.own
    assume(own is not None)
    assert own is not None
    has_lease, has_none = claim.but(own_has_lease=True), claim.but(own_has_lease=False)
    assert has_lease.answer() == Regain(own)
    done = Refusal("done", own.holder, own.started_at, own.outcome, own=True)
    assert has_none.answer() == done


# Clocks and shards


@many
@given(claims() | claims("host_ahead") | claims("tick"))
def test_a_clock_that_is_wrong_ends_a_firing_that_it_concerns(claim: Claim) -> None:
    """The host's clock named the tick, or the tick is so far ahead that it would use up all before it."""
    answer, state, tick = claim.answer(), claim.state, claim.firing.tick
    off = tick.rule in ("schedule", "minute") and abs(state.host_ahead) > MAX_CLOCK_SKEW
    ahead = tick.instant is not None and tick.instant > state.now + MAX_CLOCK_SKEW
    first = state.own is not None or state.stop is not None
    assert (kind(answer) == "other clock") == (not first and (off or ahead))
    if state.other_shards is not None and not first:
        assert isinstance(answer, ConfigurationError)
        other = state.other_shards
        named = f"--slots {other - 1}" if claim.firing.resumes else f"--shards {other}"
        assert off or ahead or named in str(answer)


# Ends


@many
@given(anything)
def test_what_must_be_done_first_is_not_asked_for_twice(claim: Claim) -> None:
    """What was expired, cut or looked at is out of the way, so the loop ends."""
    answer, lease = claim.answer(), claim.state.lease
    if isinstance(answer, Expire):
        assert not isinstance(claim._replace(state=expired(claim.state)).answer(), Expire | Cut)
    elif isinstance(answer, Cut):
        assert lease is not None
        cut = claim.but(lease=lease._replace(ends_in=lease.ttl)).answer()
        assert not isinstance(cut, Expire | Cut)
    else:
        assume(isinstance(answer, LookCloser))
        for lock in ("none", "free", "taken", "busy"):
            assert not isinstance(claim.but(lock=lock).answer(), LookCloser)


@many
@given(anything)
def test_who_asks_again_gets_an_answer(claim_made: Claim) -> None:
    """As a claimer does, while no holder renews and a session lock that is taken stays taken."""
    assume(claim_made.state.lock != "unknown")
    store = OneKey(claim_made.state)
    watched, alone, contended_since = None, False, None
    for _ in range(MOST_CLAIMS):
        store.steps.clear()
        try:
            answer = claim(store, claim_made.firing, deadline=NEVER, watched=watched, alone=alone)
        except ConfigurationError:
            return
        assert len([step for step in store.steps if step.startswith("look")]) <= 4
        if not isinstance(answer, AskAgain):
            assert isinstance(answer, Refusal | Lease)
            return
        now = store.state.now
        watched = answer.watched if answer.why == "stale" else watched
        if answer.why == "contended":
            contended_since = contended_since or now
            alone = now - contended_since > CONTENDED_FOR
        assert answer.after > 0
        store.pass_time(answer.after)
    pytest.fail(f"no answer after {MOST_CLAIMS} claims, the last is {answer}")


@many
@given(anything)
def test_an_answer_for_a_while_says_for_how_long(claim: Claim) -> None:
    """`orphaned` is asked again at the end of that lease at the latest, and `stale` comes only after the end."""
    answer, lease = claim.answer(), claim.state.lease
    assume(isinstance(answer, AskAgain))
    assert isinstance(answer, AskAgain)
    assert 0 < answer.after < math.inf
    if answer.why == "orphaned":
        assert lease is not None
        assert answer.after <= answer.ends_in == lease.ends_in
    elif answer.why == "stale":
        assert lease is not None
        assert lease.ends_in <= answer.ends_in == 0
        assert claim._replace(watched=answer.watched).answer() != answer
    elif answer.why == "recovering":
        assert answer.after == answer.ends_in == claim.state.recovering_for
    else:
        assert not claim.alone
        assert kind(claim._replace(alone=True).answer()) != "contended"


# Who and why


@settings(many, max_examples=200)
@given(anything)
def test_a_refusal_says_who_and_why(claim: Claim) -> None:
    """With what the store knows about it."""
    refusal, state, lease = claim.answer(), claim.state, claim.state.lease
    assume(isinstance(refusal, Refusal))
    assert isinstance(refusal, Refusal)
    said = (refusal.holder, refusal.since, refusal.detail)
    if refusal.reason in ("paused", "drained"):
        assert state.stop is not None
        why = state.stop.reason
        words = f"by {state.stop.author}" + (f": {why}" if why else "")
        assert said == (None, state.stop.since, words)
    elif refusal.reason == "held":
        assert lease is not None
        assert said == (lease.holder, lease.started_at, None)
        assert refusal.blocked_by == blocking(claim, lease.ends_in)
        assert lease.ends_in > 0
    elif refusal.reason == "passed":
        newer = minute_tick(state.high_water or 0.0).text
        assert said == (None, None, f"by tick {newer}")
        assert claim.firing.tick.text != newer or state.newest is None or state.forgotten
    elif refusal.reason == "recent":
        assert said == (state.last_holder, state.last_start, None)
    elif refusal.reason == "late":
        assert said == (None, claim.firing.tick.instant, None)
    else:
        assert refusal.reason in ("done", "exhausted")
        attempt = state.own or state.newest
        assert attempt is not None
        assert said == (attempt.holder, attempt.started_at, attempt.outcome)


@many
@given(anything)
def test_what_is_asked_again_can_be_refused_meanwhile(claim: Claim) -> None:
    """A claimer whose time is over is `held` by that lease; it sends back which heartbeat it saw."""
    answer, lease = claim.answer(), claim.state.lease
    assume(isinstance(answer, AskAgain))
    assert isinstance(answer, AskAgain)
    if answer.why not in ("orphaned", "stale"):
        assert answer.refusal == Refusal("held")
        return
    assert lease is not None
    stale = answer.why == "stale"
    detail = f"by PostgreSQL backend {lease.backend_pid}" if stale else None
    backend = (lease.backend_pid, lease.backend_start) if stale else (None, None)
    blocked_by = blocking(claim, max(0.0, lease.ends_in))
    assert answer.refusal == Refusal("held", lease.holder, lease.started_at, detail, blocked_by)
    assert answer.watched == lease.heartbeat
    assert (answer.backend_pid, answer.backend_start) == backend


def blocking(claim: Claim, ends_in: float) -> BlockingLease:
    """Return what is in the way, as it is told to a firing."""
    lease = claim.state.lease
    assert lease is not None
    same_tick = lease.tick == claim.firing.tick.text
    return BlockingLease(lease.execution_id, ends_in, lease.heartbeat, same_tick)


# Nothing besides


@many
@given(claims("lease"))
def test_who_is_refused_takes_no_lease_away(drawn: Claim) -> None:
    """An expired lease of another tick is taken away only for a start. The end of the own tick must be known first."""
    lease = drawn.state.lease
    assert lease is not None
    claim = drawn.but(lease=lease._replace(ends_in=min(0.0, lease.ends_in)))
    assume(isinstance(claim.answer(), Expire) and not has_unknown_end(claim.state))
    no_safeguard = {"lock": "free", "recovering_for": 0.0}
    assert isinstance(claim.but(**expired(claim.state)._asdict() | no_safeguard).answer(), Grant)


@many
@given(claims("lease"))
def test_a_lease_that_has_not_expired_is_left_alone(claim: Claim) -> None:
    """Only its end is cut where it is further away than its ttl."""
    lease = claim.state.lease
    assume(lease is not None and lease.ends_in > 0)
    assert lease is not None
    assert not isinstance(claim.answer(), Expire | Grant)
    assert (lease.ends_in > lease.ttl) or not isinstance(claim.answer(), Cut)


@many
@given(anything)
def test_the_same_facts_get_the_same_answer(claim: Claim) -> None:
    """There is no clock, no chance and no memory in it; what is compared and the last token do not matter."""
    state, firing = claim.state._replace(), claim.firing._replace()
    answer = claim.answer()
    again = claim.but(version=object(), fence=claim.state.fence + 1).answer()
    assert (kind(again), str(again)) == (kind(answer), str(answer))
    assert (claim.state, claim.firing) == (state, firing)
    assert hash(state._replace(version=0)) is not None  # tuples, all the way down
    assert claim.state.now == NOW


# What was missed


@many
@given(anything, st.sampled_from(INSTANTS))
def test_who_is_behind_is_told_so_in_the_place_of_a_grant(claim: Claim, previous: float) -> None:
    """Everything else that is in its way comes first; and nobody is behind a mark that is not known."""
    mark, answer = claim.state.high_water, claim.answer()
    behind = claim._replace(firing=claim.firing._replace(previous=previous)).answer()
    if isinstance(answer, Grant) and mark is not None and mark < previous:
        assert behind == Behind(mark)
    else:
        assert kind(behind) == kind(answer)


@many
@given(anything)
def test_a_tick_that_was_missed_is_claimed_as_any_of_a_schedule(claim: Claim) -> None:
    """But no deadline counts from its instant, and its cause is told."""
    assume(claim.firing.tick.rule == "schedule" and not claim.firing.again)
    usual = claim._replace(firing=claim.firing._replace(starting_deadline=None)).answer()
    tick = claim.firing.tick._replace(rule="catch-up")
    answer = claim._replace(firing=claim.firing._replace(tick=tick)).answer()
    assert kind(answer) == ("catch-up" if kind(usual) == "schedule" else kind(usual))
