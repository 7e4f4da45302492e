"""What a Redis server does with an execution that it has lost: flushed, or promoted without it."""

from collections.abc import Callable, Iterator

import pytest
from hosts import Host, minute
from servers import RedisServer

from oncecron.core.log_rows import Execution
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.reader import RedisReader


@pytest.fixture
def a(redis_server: RedisServer, connect: Callable[..., Host]) -> Host:
    return connect(redis_server.url())


@pytest.fixture
def b(redis_server: RedisServer, connect: Callable[..., Host]) -> Host:
    return connect(redis_server.url(), "bb")


@pytest.fixture
def log(redis_server: RedisServer) -> Iterator[Callable[[], list[Execution]]]:
    """Give a function that returns the log, the oldest first."""
    from oncecron.core.log_rows import HistoryQuery

    people = RedisReader(parse(redis_server.url(), {}), namespace="oncecron")
    yield lambda: list(people.history(HistoryQuery()))[::-1]
    people.close()


def test_it_is_put_back_with_its_token(
    a: Host, b: Host, redis_server: RedisServer, log: Callable[[], list[Execution]]
) -> None:
    """Under another number perhaps; it keeps others out again, and ends as ever."""
    b.run(minute(1))
    lease = a.win(minute(2), again=True)
    redis_server.flush()
    again = a.renew(lease)
    assert again is not None
    assert again.execution_id != lease.execution_id
    assert (again.token, again.attempt) == (lease.token, lease.attempt)
    assert b.lose(minute(3)).reason == "held"
    assert a.finish(again)
    [execution] = log()
    assert (execution.outcome, execution.fencing_token) == ("succeeded", lease.token)
    assert execution.cause == "manual"
    assert "put back" in (execution.note or "")
    assert b.win(minute(3)).token > lease.token


def test_when_the_answer_was_lost_it_is_asked_for_by_its_old_number(
    a: Host, b: Host, redis_server: RedisServer, log: Callable[[], list[Execution]]
) -> None:
    """The holder learns the new number at its next renewal, and never a second one; the end is told by the old."""
    b.run(minute(1))
    lease = a.win(minute(2))
    redis_server.flush()
    first = a.renew(lease)
    again = a.renew(lease)
    assert first is not None
    assert again is not None
    assert again.execution_id == first.execution_id
    assert [execution.outcome for execution in log()] == ["running"]
    assert a.finish(lease)
    assert [execution.outcome for execution in log()] == ["succeeded"]
    b.win(minute(3))


@pytest.mark.parametrize("state", ["running", "ended"])
def test_it_is_not_put_back_when_somebody_has_claimed_since(
    a: Host, b: Host, redis_server: RedisServer, log: Callable[[], list[Execution]], state: str
) -> None:
    """Lost for good, whether the other one runs or has run; the other one's lease is left alone."""
    lease = a.win(minute(1))
    redis_server.flush()
    taken = b.win(minute(2))
    if state == "ended":
        b.finish(taken)
    assert a.renew(lease) is None
    assert not a.finish(lease, "lost")
    if state == "running":
        assert b.renew(taken)
        assert b.finish(taken)
    assert sorted(execution.outcome for execution in log()) == ["lost", "succeeded"]


def test_another_owner_is_never_put_back_in_its_place(
    a: Host, b: Host, redis_server: RedisServer
) -> None:
    """Its old number opens nothing to anybody else."""
    b.run(minute(1))
    lease = a.win(minute(2))
    redis_server.flush()
    assert a.renew(lease)
    stranger = lease._replace(owner="00000000-0000-4000-8000-000000000000")
    assert b.renew(stranger) is None
    assert not b.finish(stranger)
    assert a.renew(lease)
