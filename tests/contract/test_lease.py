"""Renewing, ending, and losing a lease: compare-and-set on the execution, its owner and the lease."""

import uuid

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import INTERVAL, KEY, TTL, Host, minute

from oncecron.core import clock
from oncecron.core.model import Lease, trust_after


def foreign(lease: Lease) -> Lease:
    """Return what somebody else would say of the same execution."""
    return lease._replace(owner=str(uuid.uuid4()))


# renew


def test_renewing_extends_trust(a: Host, store: StoreKind, log: Log) -> None:
    """Trust counts from when the renewal was sent, the lease from when the store saw it."""
    lease = a.win(minute(1))
    store.age(INTERVAL)
    before = clock.lease_time(a.store.lease_clock)
    renewed = a.renew(lease)
    after = clock.lease_time(a.store.lease_clock)
    assert renewed is not None
    assert trust_after(before, TTL) <= renewed.trusted_until <= trust_after(after, TTL)
    assert renewed._replace(trusted_until=lease.trusted_until) == lease
    [view] = log.leases()
    assert view.heartbeat_at == pytest.approx(clock.wall(), abs=20)
    assert view.expires_at == pytest.approx(clock.wall() + TTL, abs=20)


def test_renewing_sets_the_expiry(a: Host, store: StoreKind, log: Log) -> None:
    """It never takes the later one: a clock that was set back leaves no lease of an hour."""
    lease = a.win(minute(1))
    store.age(-3600)
    assert a.renew(lease)
    [view] = log.leases()
    assert view.expires_at == pytest.approx(clock.wall() + TTL, abs=20)


def test_an_expired_lease_that_nobody_took_can_be_renewed(
    a: Host, b: Host, store: StoreKind
) -> None:
    """The row is the authority."""
    lease = a.win(minute(1))
    store.expire(KEY)
    assert a.renew(lease)
    assert b.lose(minute(2)).reason == "held"


def test_a_lease_taken_away_cannot_be_renewed(a: Host, b: Host, store: StoreKind) -> None:
    """It is lost for good, also when the key is free again."""
    lease = a.win(minute(1))
    store.expire(KEY)
    taken = b.win(minute(2))
    assert a.renew(lease) is None
    b.finish(taken)
    assert a.renew(lease) is None


def test_nobody_else_can_renew(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Neither another owner nor another execution of it."""
    lease = a.win(minute(1))
    store.age(INTERVAL)
    [before] = log.leases()
    assert b.renew(foreign(lease)) is None
    assert b.renew(lease._replace(execution_id=lease.execution_id + 1)) is None
    assert log.leases() == [before]


def test_a_new_connection_renews(a: Host, b: Host, store: StoreKind) -> None:
    """A connection that was lost does not lose the lease."""
    lease = a.win(minute(1))
    again = Host(store.firing(), a.holder.host)
    a.store.close()
    assert again.renew(lease)
    assert b.lose(minute(1)).reason == "held"
    assert again.finish(lease)


# finish


def test_an_end_is_recorded_and_frees_the_key(a: Host, b: Host, log: Log) -> None:
    """With how it ended, how long it took, and the note."""
    lease = a.win(minute(1))
    assert a.finish(lease, "failed", note="retries used up")
    execution = log.newest()
    assert (execution.outcome, execution.exit_code, execution.signal) == ("failed", 3, None)
    assert (execution.duration, execution.note) == (1.5, "retries used up")
    assert execution.finished_at == pytest.approx(clock.wall(), abs=20)
    assert log.none_held()
    b.win(minute(2))


def test_an_end_sent_again_is_the_same_end(a: Host, b: Host, log: Log) -> None:
    """Its answer was lost: still in time, and nothing changes; the lease of the next holder is not meant."""
    lease = a.run(minute(1))
    first = log.newest()
    assert a.finish(lease, "failed")
    assert log.newest() == first
    taken = b.win(minute(2))
    assert a.finish(lease)
    assert b.renew(taken)


def test_an_end_after_the_loss_is_recorded_as_such(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """False; what really happened replaces `lost`, with a note; the new holder keeps its lease."""
    lease = a.win(minute(1))
    store.expire(KEY)
    taken = b.win(minute(2))
    assert not a.finish(lease)
    ended = log.people.execution(lease.execution_id)
    assert ended is not None
    assert (ended.outcome, ended.exit_code) == ("succeeded", 0)
    assert ended.note
    assert b.renew(taken)
    assert not a.finish(lease, "failed")
    assert log.outcomes() == ["succeeded", "running"]


def test_an_end_of_an_expired_lease_that_nobody_took_is_in_time(
    a: Host, store: StoreKind, log: Log
) -> None:
    """Nobody can have started since."""
    lease = a.win(minute(1))
    store.expire(KEY)
    assert a.finish(lease)
    assert log.outcomes() == ["succeeded"]


def test_nobody_else_can_end_an_execution(a: Host, b: Host, log: Log) -> None:
    """Neither another owner nor another execution of it."""
    lease = a.win(minute(1))
    assert not b.finish(foreign(lease))
    assert not b.finish(lease._replace(execution_id=lease.execution_id + 1))
    assert log.outcomes() == ["running"]
    assert a.renew(lease)


# What people see of it


def test_a_living_lease_is_held(a: Host, log: Log) -> None:
    """With its holder, its token and its times."""
    lease = a.win(minute(1))
    [view] = log.leases()
    assert view[:6] == (KEY, 0, minute(1).text, lease.execution_id, 1, "held")
    assert (view.host, view.pid, view.user) == a.holder
    assert view.acquired_at == pytest.approx(lease.started_at, abs=1.0)
    assert view.fencing_token == lease.token


def test_a_silent_lease_is_stale(a: Host, store: StoreKind, log: Log) -> None:
    """Its holder may be dead."""
    a.win(minute(1))
    store.age(2.5 * INTERVAL)
    assert [view.state for view in log.leases()] == ["stale"]
