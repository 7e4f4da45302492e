"""A log of many executions in Redis: what it costs to read the last of a key, to end a run, and to keep."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import RedisServer
from servers.oncecron import Oncecron

from oncecron.core.log_rows import HistoryQuery
from oncecron.stores.redis import scripts
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.reader import RedisReader

ROWS = int(os.environ.get("ONCECRON_TEST_ROWS", "40000"))
"""Executions of the large log, a multiple of 40; the long form has a million."""
KEYS = 40
LAST_FIFTY = HistoryQuery(key="k7")
FILL = """
for number = given.first, given.first + given.count - 1 do
  local at = seconds(now - (given.rows - number) * 60)
  insert_execution({key = given.key, shard = '0', tick = '2026-11-20T02:' .. number .. 'Z', attempt = '1',
    tick_instant = seconds(number * 60), owner_attempt = '1', cause = 'schedule',
    outcome = 'succeeded', exit_code = '0', pid = '12345',
    host = 'app-1.example.org', user = 'root', command = '/usr/local/bin/bill.sh --all --month last', fired_at = at,
    started_at = at, finished_at = at, duration = '1.500000', fencing_token = '1700000000000000',
    owner = given.key .. '-fad0-4b1c-9a5e-3cd39bc1' .. number})
end
register()
"""


def fill(server: RedisServer, rows: int) -> None:
    """Insert executions by the product's own step, the same number for every key."""
    names = scripts.Names("oncecron")
    script = scripts.text("skip").rpartition("-- Count")[0] + FILL
    client = server.connect()
    for number in range(KEYS):
        part = scripts.shard_of(f"k{number}", 0)
        for first in range(0, rows // KEYS, 1000):
            count = min(1000, rows // KEYS - first)
            values = {
                "part": part,
                "key": f"k{number}",
                "first": first,
                "count": count,
                "rows": rows // KEYS,
            }
            keys = names.keys(part)
            client.eval(script, len(keys), *keys, *scripts.arguments(values))


@pytest.fixture
def large(new_redis: Callable[..., RedisServer]) -> RedisServer:
    server = new_redis(aof=True, appendfsync="no")
    fill(server, ROWS)
    return server


def test_the_last_fifty_of_a_key_cost_the_same_in_a_large_log(
    large: RedisServer, new_redis: Callable[..., RedisServer]
) -> None:
    """The same questions to the server."""
    small = new_redis(aof=True)
    fill(small, 4000)  # a hundred for each key
    asked = []
    for server in (small, large):
        store = RedisReader(parse(server.url()), namespace="oncecron")
        client = server.connect()
        list(store.history(LAST_FIFTY))
        client.config_resetstat()
        assert len(list(store.history(LAST_FIFTY))) == LAST_FIFTY.limit
        stats = client.info("commandstats")
        asked.append({name: stat["calls"] for name, stat in stats.items()})
        store.close()
    assert asked[0] == asked[1]


def test_a_tick_is_not_looked_for_before_its_time(large: RedisServer) -> None:
    """A page of the key's log, and not all of it."""
    tomorrow = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(time.time() + 86400))
    store = RedisReader(parse(large.url()), namespace="oncecron")
    client = large.connect()
    asked = []
    for wanted in ("never", tomorrow):
        client.config_resetstat()
        assert not list(store.history(HistoryQuery(key="k7", tick=wanted, limit=None)))
        asked.append(client.info("commandstats")["cmdstat_hmget"]["calls"])
    assert asked[1] == 1 < asked[0]
    store.close()


def test_reports_read_what_they_show(large: RedisServer, public_path: Path) -> None:
    """An audit of the last hour: a page of each key. Without a dead letter: no execution at all."""
    client = large.connect()
    host = Oncecron(large.url(), public_path)
    for words, most in (
        (("history", "--exhausted"), 1),
        (("audit", "--since", "50m"), 3 * KEYS + 6),
    ):
        client.config_resetstat()
        assert host(*words, "--json").status in (0, 1)
        read = client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"]
        assert read <= most, words


def test_an_end_costs_the_same_in_a_large_log(large: RedisServer, public_path: Path) -> None:
    """A backlog goes a hundred at a time, of the key that ended and of the one that has waited longest."""
    config = public_path / "oncecron.toml"
    config.write_text('[retention]\nexecutions = "60s"\n')
    client = large.connect(decode_responses=True)
    host = Oncecron(large.url(), public_path)
    assert host("init", "--keep-executions", "0s").status == 0
    before = total(client)
    for number in range(3):
        client.config_resetstat()
        ended = host.run("k7", "--config", config, "--tick", f"t{number}", "--", "true")
        assert (ended.status, ended.err) == (0, "")
        stats = client.info("commandstats")
        assert stats["cmdstat_xrange"]["calls"] == 2
        assert stats["cmdstat_hget"]["calls"] < 1000
    assert before - total(client) == 3 * 2 * 100 - 3


def total(client: Any) -> int:
    return int(client.hlen("oncecron:{oncecron}:executions"))


def test_everything_comes_page_by_page(large: RedisServer, public_path: Path) -> None:
    """Everything once, in order."""
    lines = Oncecron(large.url(), public_path)(
        "history", "--limit", "0", "--format", "ndjson", deadline=300
    )
    numbers = [json.loads(line)["execution_id"] for line in lines.out.splitlines()]
    assert len(numbers) == ROWS
    assert numbers == sorted(numbers, reverse=True)


def test_a_key_keeps_as_many_as_the_address_says(
    new_redis: Callable[..., RedisServer], public_path: Path
) -> None:
    """`?keep=` bounds what is in memory by count, whatever the retention by age."""
    server = new_redis(aof=True)
    fill(server, 40 * 150)
    host = Oncecron(f"{server.url()}?keep=100", public_path)
    for number in range(3):
        assert host.run("k7", "--tick", f"t{number}", "--", "true").status == 0
    client = server.connect(decode_responses=True)
    assert client.xlen("oncecron:{oncecron}:log:k7#0") == 100
    assert host("prune").status == 0
    assert total(client) == 40 * 100
