"""What people ask of a holder, and how a lease is freed by hand."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, TTL, Host, minute

from oncecron.core import clock
from oncecron.core.log_rows import Released
from oncecron.core.model import Lease, Request

pytestmark = pytest.mark.usefixtures("sessions_end")

ANN = "ann@a.example"
BOB = "bob@b.example"
STOP = Request("stop", ANN, 15, None)


def ask(log: Log, lease: Lease, request: Request = STOP) -> bool:
    """Ask the holder of a lease for something."""
    return log.people.request(lease.key, lease.shard, lease.execution_id, request)


def heard(host: Host, lease: Lease) -> Request | None:
    renewed = host.renew(lease)
    assert renewed is not None
    return renewed.request


def release(log: Log, execution_id: int | None, *, shard: int = 0, force: bool = False) -> Released:
    return log.people.release(KEY, shard, execution_id, author=BOB, force=force)


# Requests


@pytest.mark.parametrize(
    "request_", [STOP, Request("stop", ANN, 2, 0.5), Request("release", BOB, 9, 30.0)]
)
def test_a_holder_is_told_by_its_next_renewal(a: Host, log: Log, request_: Request) -> None:
    """As it was asked, and as often as it renews; people see who asks, and when it was told first."""
    lease = a.win(minute(1))
    assert heard(a, lease) is None
    assert ask(log, lease, request_)
    [view] = log.leases()
    assert (view.requested_by, view.request_acknowledged_at) == (request_.author, None)
    assert heard(a, lease) == request_
    [view] = log.leases()
    assert view.requested_by == request_.author
    assert view.request_acknowledged_at == pytest.approx(clock.wall(), abs=20)
    assert heard(a, lease) == request_
    assert log.leases()[0].request_acknowledged_at == view.request_acknowledged_at


def test_only_a_renewal_tells(a: Host, log: Log) -> None:
    """Nobody has heard of it by a claim that is sent again, or when the end of an attempt is kept."""
    firing = a.firing(minute(1), retries=2)
    lease = a.ask(firing)
    assert isinstance(lease, Lease)
    ask(log, lease)
    assert isinstance(a.ask(firing), Lease)
    assert a.keep(lease)
    [view] = log.leases()
    assert (view.requested_by, view.request_acknowledged_at) == (ANN, None)
    assert heard(a, lease) == STOP


def test_a_later_request_takes_the_place_of_the_first(a: Host, log: Log) -> None:
    """It has not been heard until it is told."""
    lease = a.win(minute(1))
    ask(log, lease)
    a.renew(lease)
    harder = Request("stop", BOB, 9, 0.0)
    assert ask(log, lease, harder)
    [view] = log.leases()
    assert (view.requested_by, view.request_acknowledged_at) == (BOB, None)
    assert heard(a, lease) == harder


def test_nobody_is_asked_who_has_no_lease(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Ended, lost, another execution, another part: whoever has the key now is not meant."""
    ended = a.run(minute(1))
    assert not ask(log, ended)
    lost = a.win(minute(2))
    store.expire(KEY)
    lease = b.win(minute(3))
    assert not ask(log, ended)
    assert not ask(log, lost)
    assert not ask(log, lease._replace(shard=1))
    assert not ask(log, lease._replace(key="weekly"))
    assert heard(b, lease) is None


def test_a_request_ends_with_its_execution(a: Host, b: Host, log: Log) -> None:
    """The next holder has nothing to do with it."""
    lease = a.win(minute(1))
    ask(log, lease)
    a.finish(lease, "stopped")
    following = b.win(minute(2))
    assert heard(b, following) is None
    [view] = log.leases()
    assert (view.requested_by, view.request_acknowledged_at) == (None, None)


def test_a_request_does_not_go_over_to_the_next_attempt(a: Host, log: Log) -> None:
    """It was asked of one execution; the next can be asked again."""
    first = a.win(minute(1), retries=2)
    ask(log, first)
    second = a.retried(first)
    assert second.request is None
    assert heard(a, second) is None
    [view] = log.leases()
    assert (view.requested_by, view.request_acknowledged_at) == (None, None)
    assert not ask(log, first)
    assert ask(log, second)
    assert heard(a, second) == STOP


# Freeing a lease


def test_a_living_lease_is_not_freed(a: Host, log: Log) -> None:
    """Not by force either: its job may run. It is told how long it will last."""
    lease = a.win(minute(1))
    fences = log.newest().fencing_token
    for force in (False, True):
        answer = release(log, lease.execution_id, force=force)
        assert answer.answer == "alive"
        assert answer.ends_in == pytest.approx(TTL, abs=20)
    assert a.renew(lease)
    assert log.outcomes() == ["running"]
    assert log.newest().fencing_token == fences


@pytest.mark.parametrize("force", [False, True])
def test_an_expired_lease_is_freed(
    a: Host, b: Host, store: StoreKind, log: Log, force: bool
) -> None:
    """Its execution is lost, and says by whom; the token has risen; the holder cannot come back."""
    lease = a.win(minute(1))
    store.expire(KEY)
    assert release(log, lease.execution_id, force=force).answer == "free"
    [execution] = log.executions()
    assert execution.outcome == "lost"
    assert BOB in (execution.note or "")
    assert log.none_held()
    assert store.fence(KEY) > lease.token
    assert a.renew(lease) is None
    assert not a.finish(lease)
    assert b.win(minute(2)).token > store.fence(KEY) - 1


def test_what_is_free_is_free(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """The holder ended while it was asked to: the token rises all the same, and the end stays."""
    lease = a.run(minute(1), "stopped")
    for _ in range(2):
        before = store.fence(KEY)
        assert release(log, lease.execution_id).answer == "free"
        assert store.fence(KEY) > before
    assert log.outcomes() == ["stopped"]
    assert log.notes() == [""]
    assert b.win(minute(2)).token == store.fence(KEY)


def test_a_part_that_never_was_is_not_made(a: Host, log: Log) -> None:
    """It is free, and stays unknown: a mistyped number leaves nothing behind."""
    a.run(minute(1))
    assert release(log, None, shard=7).answer == "free"
    assert [part.shard for part in log.people.job_keys()] == [0]


def test_who_has_the_key_by_now_is_left_alone(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Alive or expired: somebody else's execution was meant, or none."""
    first = a.win(minute(1))
    store.expire(KEY)
    second = b.win(minute(2))
    for expired in (False, True):
        if expired:
            store.expire(KEY)
        before = store.fence(KEY)
        assert release(log, first.execution_id, force=True).answer == "other"
        assert release(log, None).answer == "other"
        assert store.fence(KEY) == before
    assert b.renew(second)
    assert log.outcomes() == ["lost", "running"]


def test_a_lease_that_was_kept_can_be_freed(a: Host, store: StoreKind, log: Log) -> None:
    """Alive between attempts as any other; when it has ended, what was recorded stays."""
    lease = a.win(minute(1), retries=2)
    a.keep(lease)
    assert release(log, lease.execution_id).answer == "alive"
    store.expire(KEY)
    assert release(log, lease.execution_id).answer == "free"
    assert a.retry(lease) is None
    assert log.outcomes() == ["failed"]
    assert store.fence(KEY) > lease.token


def test_one_part_is_freed(a: Host, store: StoreKind, log: Log) -> None:
    """The others keep their leases."""
    first, second = (a.win(minute(1), shard=shard, shards=2) for shard in (0, 1))
    store.expire(KEY, shard=1)
    assert release(log, second.execution_id, shard=1).answer == "free"
    assert a.renew(first)
    assert a.renew(second) is None


def test_a_lease_too_far_ahead_is_not_freed_for_ever(a: Host, store: StoreKind, log: Log) -> None:
    """The store's clock was set back: what is left of it is a ttl at most, as for a claim."""
    lease = a.win(minute(1))
    store.age(-3600)
    answer = release(log, lease.execution_id)
    assert answer.answer == "alive"
    assert answer.ends_in <= TTL + 5
    store.age(TTL + 5)
    a.store.close()
    assert (
        release(log, lease.execution_id).answer == "free"
    )  # not by force: its session may be ending still
