"""The claim, step by step as the text of `oncecron.core.decision` numbers it."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import COMMAND, INTERVAL, KEY, TTL, Host, minute

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError
from oncecron.core.model import AskAgain, Lease, owner_digest, trust_after
from oncecron.core.tick import NO_TICK, Tick, named_tick
from oncecron.core.timing import MAX_CLOCK_SKEW

SILENT = 2.5 * INTERVAL
"""Longer than two heartbeats, shorter than the ttl."""


# 0. A known owner


@pytest.mark.parametrize("tick", [minute(1), named_tick("deploy-17")])
def test_a_claim_sent_again_gets_the_same_lease(a: Host, b: Host, log: Log, tick: Tick) -> None:
    """Its answer was lost: no second execution, the same token, whatever this client remembers."""
    firing = a.firing(tick)
    first, second, third = a.ask(firing), a.ask(firing), b.ask(firing)
    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    assert isinstance(third, Lease)
    assert second._replace(trusted_until=first.trusted_until) == first
    assert third.execution_id == first.execution_id
    assert len(log.executions()) == 1


def test_a_claim_sent_again_renews(a: Host, store: StoreKind, log: Log) -> None:
    """The lease that it gets is a whole ttl long."""
    firing = a.firing(minute(1))
    a.ask(firing)
    store.age(SILENT)
    a.ask(firing)
    [lease] = log.leases()
    assert lease.heartbeat_at == pytest.approx(clock.wall(), abs=20)
    assert lease.expires_at == pytest.approx(clock.wall() + TTL, abs=20)
    store.expire(KEY)
    assert isinstance(a.ask(firing), Lease), "nobody took it"


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


def test_a_name_does_not_depend_on_clocks(a: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock made it, so that a wrong one cannot have made it wrong."""
    wall = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() + 2 * MAX_CLOCK_SKEW)
    assert isinstance(a.fire(named_tick("2026-11")), Lease)


# 2. Looking


@pytest.mark.parametrize(
    ("tick", "other"), [(minute(1), minute(n)) for n in range(3)] + [(NO_TICK, NO_TICK)]
)
def test_a_key_that_runs_is_held(a: Host, b: Host, tick: Tick, other: Tick) -> None:
    """Never two at a time, whatever tick the second means; the answer names who runs it and since when."""
    lease = a.win(tick)
    refusal = b.lose(other)
    assert (refusal.reason, refusal.holder) == ("held", a.holder)
    assert refusal.since == pytest.approx(lease.started_at, abs=0.001)


def test_another_tick_waits_for_a_silent_holder(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """The holder may be dead: the next tick asks again, which is no refusal yet, until the lease has ended."""
    lease = a.win(minute(1))
    store.age(SILENT)
    answer = b.fire(minute(2))
    assert isinstance(answer, AskAgain)
    assert (answer.why, answer.refusal.reason, answer.refusal.holder) == (
        "orphaned",
        "held",
        a.holder,
    )
    assert answer.ends_in == pytest.approx(TTL - SILENT, abs=20)
    assert 0 < answer.after <= answer.ends_in
    assert log.skips() == []
    assert b.lose(minute(1)).reason == "held", "dead or not, its own tick has had its start"
    assert a.renew(lease)
    assert b.lose(minute(2)).reason == "held", "it was alive after all"


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


def test_names_run_once_in_any_order(a: Host, b: Host) -> None:
    """Names have no older and newer."""
    a.run(named_tick("2026-12"))
    b.run(named_tick("2026-11"))
    assert a.lose(named_tick("2026-11")).reason == "done"
    assert b.lose(named_tick("2026-12")).reason == "done"


def test_a_word_that_it_did_not_start_opens_the_tick(a: Host, b: Host) -> None:
    """Only that positive word does."""
    a.run(minute(1), "not-started")
    assert b.run(minute(1)).attempt == 2
    assert a.lose(minute(1)).reason == "done"


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
    assert lease.started_at == pytest.approx(clock.wall(), abs=20)
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
