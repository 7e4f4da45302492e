"""The claim, step by step as the text of `oncecron.core.claim` numbers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosts import COMMAND, INTERVAL, KEY, TTL, Host, minute

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError
from oncecron.core.log_rows import owner_digest
from oncecron.core.model import AskAgain, Lease, trust_after
from oncecron.core.tick import NO_TICK, minute_tick, named_tick
from oncecron.core.timing import MAX_CLOCK_SKEW

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

    from oncecron.core.tick import Tick

SILENT = 2.5 * INTERVAL
"""Longer than two heartbeats, shorter than the ttl."""


# 0. A known owner


def test_a_claim_sent_again_gets_the_same_lease(a: Host, log: Log) -> None:
    """Its answer was lost: no second execution, the same token."""
    firing = a.firing(minute(1))
    first, second = a.ask(firing), a.ask(firing)
    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    assert second._replace(trusted_until=first.trusted_until) == first
    assert len(log.executions()) == 1


@pytest.mark.parametrize("tick", [minute(1), named_tick("deploy-17")])
def test_a_claim_sent_again_on_another_connection_gets_the_same_lease(
    a: Host, b: Host, log: Log, tick: Tick
) -> None:
    """What it is told does not depend on what this client remembers."""
    firing = a.firing(tick)
    first, second = a.ask(firing), b.ask(firing)
    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    assert second.execution_id == first.execution_id
    assert len(log.executions()) == 1


def test_a_claim_sent_again_renews(a: Host, store: StoreKind, log: Log) -> None:
    """The lease that it gets is a whole ttl long."""
    firing = a.firing(minute(1))
    a.ask(firing)
    store.age(SILENT)
    a.ask(firing)
    [lease] = log.leases()
    assert lease.heartbeat_at == pytest.approx(clock.wall(), abs=5)
    assert lease.expires_at == pytest.approx(clock.wall() + TTL, abs=5)


def test_a_claim_sent_again_gets_a_lease_that_nobody_took(a: Host, store: StoreKind) -> None:
    """It has expired, but it is still there and its owner's."""
    firing = a.firing(minute(1))
    a.ask(firing)
    store.expire(KEY)
    assert isinstance(a.ask(firing), Lease)


def test_a_claim_sent_again_after_its_end_is_done(a: Host) -> None:
    """An owner never starts twice, even where its tick is open to others."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    a.finish(lease, "not-started")
    answer = a.ask(firing)
    assert getattr(answer, "reason", answer) == "done"


def test_a_claim_sent_again_after_it_was_lost_is_done(a: Host, b: Host, store: StoreKind) -> None:
    """Somebody has taken the lease away: it is not given back."""
    firing = a.firing(minute(1))
    a.ask(firing)
    store.expire(KEY)
    b.run(minute(2))
    answer = a.ask(firing)
    assert getattr(answer, "reason", answer) == "done"


def test_a_known_owner_comes_before_a_pause(a: Host, store: StoreKind) -> None:
    """A pause holds up new starts; this one has been granted."""
    firing = a.firing(minute(1))
    a.ask(firing)
    store.people().pause(KEY, author="ann", reason=None, seconds=None)
    assert isinstance(a.ask(firing), Lease)


def test_an_owner_is_known_by_key_and_shard(a: Host) -> None:
    """A firing takes several parts of its tick, each with a lease of its own."""
    firing = a.firing(minute(1))
    first, second = a.ask(firing), a.ask(firing._replace(shard=1))
    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    assert first.execution_id != second.execution_id


# 1. Clocks (pauses are among the refusals)


@pytest.mark.parametrize("off", [MAX_CLOCK_SKEW + 30, -MAX_CLOCK_SKEW - 30])
def test_a_host_whose_clock_is_off_is_refused(
    a: Host, store: StoreKind, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    """It would burn ticks that are not due, or start what is over."""
    if not store.own_clock:
        pytest.skip("this store has no clock but the host's")
    wall = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() + off)
    with pytest.raises(ConfigurationError) as error:
        a.fire(minute(59))
    assert error.value.exit_status == 78


def test_a_name_does_not_depend_on_clocks(
    a: Host, store: StoreKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clock made it, so that a wrong one cannot have made it wrong."""
    wall = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() + 2 * MAX_CLOCK_SKEW)
    assert isinstance(a.fire(named_tick("2026-11")), Lease)


def test_an_instant_named_far_ahead_is_refused_whatever_clocks_show(a: Host, log: Log) -> None:
    """It would use up all ticks before it; no clock is blamed, for none made it."""
    ahead = minute_tick(clock.wall() + 86400 * 3).text
    with pytest.raises(ConfigurationError) as error:
        a.fire(named_tick(str(ahead)))
    assert error.value.exit_status == 78
    assert f"the tick {ahead} is 3d0h ahead of the store's clock" in str(error.value)
    assert "is not an instant" in str(error.value)
    assert "wrong" not in str(error.value)
    assert log.executions() == []


# 2. Looking


def test_the_tick_of_a_running_execution_is_held(a: Host, b: Host) -> None:
    """The answer names who runs it and since when."""
    lease = a.win(minute(1))
    refusal = b.lose(minute(1))
    assert (refusal.reason, refusal.holder) == ("held", a.holder)
    assert refusal.since == pytest.approx(lease.started_at, abs=0.001)


@pytest.mark.parametrize("number", [0, 2])
def test_another_tick_is_held_too(a: Host, b: Host, number: int) -> None:
    """Never two at a time, whatever tick the second means."""
    a.win(minute(1))
    assert b.lose(minute(number)).reason == "held"


def test_without_a_tick_a_key_is_held(a: Host, b: Host) -> None:
    """Mutual exclusion is all that such a firing asks for, and all firings of it are different."""
    a.win(NO_TICK)
    assert b.lose(NO_TICK).reason == "held"


def test_another_tick_waits_for_a_silent_holder(a: Host, b: Host, store: StoreKind) -> None:
    """The holder may be dead: the next tick asks again until the lease has ended."""
    a.win(minute(1))
    store.age(SILENT)
    answer = b.fire(minute(2))
    assert isinstance(answer, AskAgain)
    assert (answer.why, answer.refusal.reason, answer.refusal.holder) == (
        "orphaned",
        "held",
        a.holder,
    )
    assert answer.ends_in == pytest.approx(TTL - SILENT, abs=5)
    assert 0 < answer.after <= answer.ends_in


def test_without_a_tick_a_silent_holder_is_waited_for(a: Host, b: Host, store: StoreKind) -> None:
    """Two firings without a tick are never of the same one."""
    a.win(NO_TICK)
    store.age(SILENT)
    assert isinstance(b.fire(NO_TICK), AskAgain)


def test_the_same_tick_does_not_wait_for_a_silent_holder(
    a: Host, b: Host, store: StoreKind
) -> None:
    """Dead or not, its tick has had its start."""
    a.win(minute(1))
    store.age(SILENT)
    assert b.lose(minute(1)).reason == "held"


def test_a_silent_holder_that_renews_holds(a: Host, b: Host, store: StoreKind) -> None:
    """It was alive after all."""
    lease = a.win(minute(1))
    store.age(SILENT)
    assert a.renew(lease)
    assert b.lose(minute(2)).reason == "held"


def test_asking_again_is_no_refusal_yet(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Only the last answer is counted."""
    a.win(minute(1))
    store.age(SILENT)
    b.fire(minute(2))
    assert log.skips() == []


def test_a_lease_too_far_ahead_is_cut(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """The store's clock was set back: whoever meets the lease gives it a ttl from now, and no more."""
    a.win(minute(1))
    store.age(-3600)
    b.fire(minute(2))
    [lease] = log.leases()
    assert lease.expires_at is not None
    assert lease.expires_at <= clock.wall() + TTL + 5
    store.age(SILENT)
    assert isinstance(b.fire(minute(2)), AskAgain)
    a.store.close()
    store.age(TTL)
    assert isinstance(b.fire(minute(2)), Lease)


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "timed-out", "stopped"])
def test_a_tick_that_has_run_is_done(a: Host, b: Host, outcome: str) -> None:
    """However it ended: at most one start."""
    a.run(minute(1), outcome)
    refusal = b.lose(minute(1))
    assert (refusal.reason, refusal.holder, refusal.detail) == ("done", a.holder, outcome)


def test_an_overtaken_tick_has_passed(a: Host, b: Host) -> None:
    """It never ran, so that it is not `done`; and it comes too late."""
    a.run(minute(2))
    assert b.lose(minute(1)).reason == "passed"


def test_an_old_tick_that_ran_is_done(a: Host, b: Host) -> None:
    """Even if newer ones ran since."""
    a.run(minute(1))
    a.run(minute(2))
    assert b.lose(minute(1)).reason == "done"


def test_names_run_once_in_any_order(a: Host, b: Host) -> None:
    """Names have no older and newer."""
    a.run(named_tick("2026-12"))
    b.run(named_tick("2026-11"))
    assert a.lose(named_tick("2026-11")).reason == "done"
    assert b.lose(named_tick("2026-12")).reason == "done"


def test_names_do_not_move_the_high_water(a: Host, b: Host) -> None:
    """A name between two instants changes nothing for them."""
    a.run(minute(1))
    a.run(named_tick("zebra"))
    b.run(minute(2))


def test_a_word_that_it_did_not_start_opens_the_tick(a: Host, b: Host) -> None:
    """Only that positive word does."""
    a.run(minute(1), "not-started")
    assert b.run(minute(1)).attempt == 2
    assert a.lose(minute(1)).reason == "done"


def test_a_name_that_did_not_start_is_open(a: Host, b: Host) -> None:
    """Also when other names ran since."""
    a.run(named_tick("2026-11"), "not-started")
    a.run(named_tick("2026-12"))
    assert b.run(named_tick("2026-11")).attempt == 2


def test_a_newer_tick_closes_one_that_did_not_start(a: Host, b: Host) -> None:
    """A newer tick beats an older one's second try, and what never started is not `done`."""
    a.run(minute(1), "not-started")
    a.run(minute(2))
    assert b.lose(minute(1)).reason == "passed"


def test_a_tick_that_ran_in_the_end_is_done(a: Host, b: Host) -> None:
    """What did not start before is past."""
    a.run(minute(1), "not-started")
    a.run(minute(1))
    assert b.lose(minute(1)).reason == "done"


# 5. An expired lease


def test_a_newer_tick_takes_an_expired_lease_away(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """The execution is `lost`, says so in its note, and the next one has a higher token."""
    first = a.win(minute(1))
    store.expire(KEY)
    second = b.win(minute(2))
    lost = log.people.execution(first.execution_id)
    assert lost is not None
    assert (lost.outcome, lost.exit_code) == ("lost", None)
    assert b.holder.host in (lost.note or "")
    assert second.token > first.token


def test_the_tick_of_an_expired_lease_is_done(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """At most once: it is marked lost, and not run by another."""
    a.win(minute(1))
    store.expire(KEY)
    refusal = b.lose(minute(1))
    assert (refusal.reason, refusal.detail) == ("done", "lost")
    assert log.outcomes() == ["lost"]
    assert log.none_held()


def test_an_older_tick_passes_an_expired_lease(a: Host, b: Host, store: StoreKind) -> None:
    """A lost execution has moved the high-water mark as any other."""
    a.win(minute(2))
    store.expire(KEY)
    assert b.lose(minute(1)).reason == "passed"


# 7. Granted


def test_a_grant_is_a_lease(a: Host) -> None:
    """With all that the calls after it need."""
    firing = a.firing(minute(1), shard=3)
    before = clock.lease_time(a.store.lease_clock)
    lease = a.ask(firing)
    after = clock.lease_time(a.store.lease_clock)
    assert isinstance(lease, Lease)
    assert lease[:5] == (KEY, 3, firing.tick.text, firing.owner, 1)
    assert lease.ttl == TTL
    assert lease.started_at == pytest.approx(clock.wall(), abs=5)
    assert trust_after(before, TTL) <= lease.trusted_until <= trust_after(after, TTL)


def test_a_grant_is_an_execution_that_runs(a: Host, log: Log) -> None:
    """The start is recorded, with who and what."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    execution = log.newest()
    assert (execution.execution_id, execution.fencing_token) == (lease.execution_id, lease.token)
    assert execution[1:6] == (KEY, 0, firing.tick.text, 1, "running")
    assert (execution.host, execution.pid, execution.user) == a.holder
    assert (execution.command, execution.owner) == (COMMAND, owner_digest(firing.owner))
    assert (execution.finished_at, execution.exit_code, execution.note) == (None, None, None)


def test_tokens_rise_whatever_ended_before(a: Host, b: Host, store: StoreKind) -> None:
    """Strictly, also after an execution that was lost or did not start."""
    leases = [a.run(minute(1)), a.run(minute(2), "failed"), b.run(minute(3), "not-started")]
    leases.append(a.win(minute(3)))
    store.expire(KEY)
    leases.append(b.win(minute(4)))
    tokens = [lease.token for lease in leases]
    assert tokens == sorted(set(tokens))
    assert tokens[0] == pytest.approx(clock.wall() * 1_000_000, abs=60_000_000)


def test_keys_and_shards_do_not_meet(a: Host, b: Host) -> None:
    """Each part of each key has a lease and ticks of its own."""
    a.win(minute(2))
    b.win(minute(1), shard=1)
    b.win(minute(1), key="weekly")
    assert b.lose(minute(2), shard=1).reason == "held"


def test_without_a_tick_a_key_runs_as_often_as_it_is_fired(a: Host, b: Host, log: Log) -> None:
    """Each time as a first attempt."""
    a.run(NO_TICK)
    b.run(NO_TICK)
    assert [(execution.tick, execution.attempt) for execution in log.executions()] == [
        (None, 1)
    ] * 2
