"""What is left on Redis of executions that retention has removed."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hosts import KEY, Host, minute
from redis_stores import PREFIX
from servers import RedisServer

from oncecron.core.errors import RecordRefusedError
from oncecron.core.model import Output, Retention
from oncecron.core.tick import NO_TICK, named_tick
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.reader import RedisReader


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """Give a server that keeps no record longer than a test wants."""
    with redis_server.connect(decode_responses=True) as client:
        client.hset(f"{PREFIX}namespace", mapping={"least_executions": 0, "least_skips": 0})
        yield client


@pytest.fixture
def a(redis_server: RedisServer, connect: Callable[..., Host]) -> Host:
    return connect(redis_server.url())


@pytest.fixture
def people(redis_server: RedisServer) -> Iterator[RedisReader]:
    target = parse(redis_server.url(), {})
    with closing(RedisReader(target, namespace="oncecron")) as store:
        yield store


def test_nothing_of_an_execution_outlives_it(a: Host, people: RedisReader, client: Any) -> None:
    """Neither its owner nor its tick nor that tick's number of shards: they would take memory for ever."""
    for tick in (minute(1), named_tick("2026-11"), NO_TICK):
        a.finish(a.retried(a.win(tick, retries=1)), output=Output("the end", 3))
    last = a.run(named_tick("newest"))
    assert people.prune(Retention(executions=0.0, skips=0.0), names_kept=1) == (6, 0)
    number = str(last.execution_id)
    assert client.hgetall(f"{PREFIX}ticks:{KEY}#0") == {"newest": number}
    assert client.zrange(f"{PREFIX}names:{KEY}#0", 0, -1) == ["newest"]
    assert client.hgetall(f"{PREFIX}owners:{KEY}#0") == {last.owner: f"1:{number}"}
    assert client.xlen(f"{PREFIX}log:{KEY}#0") == 1
    assert client.hkeys(f"{PREFIX}executions") == [number]
    assert client.hkeys(f"{PREFIX}outputs") == []
    assert client.hget(f"{PREFIX}divisions", KEY) == "1 newest"


def test_a_key_with_an_unreadable_execution_says_where_to_look(a: Host, client: Any) -> None:
    """Nothing tells whether it runs, so nothing starts."""
    lease = a.run(minute(1))
    client.hset(f"{PREFIX}executions", lease.execution_id, "no JSON")
    with pytest.raises(RecordRefusedError, match="named by `oncecron locks` or `oncecron history`"):
        a.fire(minute(2))


@pytest.mark.parametrize("text", ["no JSON", "3", "{}", '{"key": "nightly", "started_at": "soon"}'])
def test_an_unreadable_execution_keeps_no_other_one(
    a: Host, people: RedisReader, client: Any, text: str
) -> None:
    """It stays, for people to see. An end is recorded at once, and what is older goes with it."""
    bad, good = a.run(minute(1)), a.run(minute(1), again=True)
    a.run(minute(2))
    client.hset(f"{PREFIX}executions", bad.execution_id, text)
    last = a.win(minute(3))
    assert a.finish(last, retention=Retention(executions=0.0, skips=0.0))
    assert client.hkeys(f"{PREFIX}executions") == [str(bad.execution_id)]
    assert people.prune(Retention(executions=0.0, skips=0.0)) == (0, 0)
    assert good.attempt == 2
