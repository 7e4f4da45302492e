"""Junk of a host that may fire, in bulk: keys that miss their ticks, wrong clocks of hosts, skips, lists of items."""

import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from log_of import PostgresLog, RedisLog, SQLiteLog, Store

PRESENCE = (
    "version 0.1\nclock_ahead 100\nticks t%s\nticks_at %s\ncommand true\nhour 0\nwins 0\nskips 0"
)
PREFIX = "oncecron:{oncecron}:"
IN_POSTGRES = """
insert into oncecron.job_key (key, schedule, zone, expected_shards, expected_since)
  select 'junk-' || n, '* * * * *', 'UTC', 1, now() - interval '1 day' from generate_series(1, {rows}) n;
insert into oncecron.key_host (key_id, host, seen_at, presence, plain)
  select k.key_id, 'ghost-' || n, now(), format(E'{presence}', n, extract(epoch from now())), '{{}}'
    from generate_series(1, {rows}) n join oncecron.job_key k on k.key = 'junk-1';
insert into oncecron.skip (key_id, tick, host, reason, pid, at)
  select k.key_id, 't' || n, 'ghost-' || n, 'held', 1, now()
    from generate_series(1, {rows}) n join oncecron.job_key k on k.key = 'junk-1';
insert into oncecron.item_list (key, tick, loaded_at)
  select 'junk-' || n, 't', now() from generate_series(1, {rows}) n;
"""
SERIES = "with recursive n(n) as (select 1 union all select n + 1 from n where n < {rows})"
IN_SQLITE = """
insert into job_key (key, shard, schedule, zone, expected_shards, expected_since)
  {series} select 'junk-' || n, 0, '* * * * *', 'UTC', 1, {now} - 86400 from n;
insert into key_host (key, shard, host, seen_at, presence)
  {series} select 'junk-1', 0, 'ghost-' || n, {now}, printf('{presence}', n, {now}) from n;
insert into skip (key, shard, tick, host, reason, pid, at, count)
  {series} select 'junk-1', 0, 't' || n, 'ghost-' || n, 'held', 1, {now}, 1 from n;
insert into item_list (key, tick, loaded_at) {series} select 'junk-' || n, 't', {now} from n;
"""


def flood(store: Store, rows: int) -> None:
    """Write that many rows of each kind; the store has been used before."""
    now = time.time()
    if isinstance(store, RedisLog):
        _flood_redis(store._client, rows, now)
    elif isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database, database:
            series = SERIES.format(rows=rows)
            database.executescript(IN_SQLITE.format(series=series, now=now, presence=PRESENCE))
    else:
        assert isinstance(store, PostgresLog)
        store._database.execute(IN_POSTGRES.format(rows=rows, presence=PRESENCE))


def _flood_redis(client: Any, rows: int, now: float) -> None:
    for first in range(1, rows + 1, 10_000):
        pipe = client.pipeline(transaction=False)
        numbers = range(first, min(first + 10_000, rows + 1))
        expected = {"schedule": "* * * * *", "zone": "UTC", "expected_shards": "1"}
        expected |= {"expected_since": str(now - 86400)}
        for n in numbers:
            pipe.zadd(f"{PREFIX}parts", {f"junk-{n}#0": 0})
            pipe.hset(f"{PREFIX}key:junk-{n}#0", mapping=expected)
            ghost = f"{now} {PRESENCE % (n, now)}"
            pipe.hset(f"{PREFIX}hosts:junk-1#0", f"ghost-{n}", ghost)
            member = json.dumps([f"t{n}", f"ghost-{n}", "held"])
            pipe.zadd(f"{PREFIX}skips:junk-1#0", {member: now})
            pipe.hset(f"{PREFIX}skip_rows:junk-1#0", member, json.dumps({"pid": "1", "count": "1"}))
            pipe.zadd(f"{PREFIX}lists", {f"junk-{n}#t": now})
            pipe.hset(f"{PREFIX}list:junk-{n}#t", mapping={"total": "0", "loaded_at": str(now)})
        pipe.execute()


def put_notices(store: Store, rows: int, document: str, names: str = "junk-{}") -> None:
    """Write what so many channels were notified of, one by one and past what `put_notice` allows."""
    found = [(names.format(number), document) for number in range(rows)]
    if isinstance(store, RedisLog):
        for name, text in found:
            store._client.hset(f"{PREFIX}notices", name, f"1:{text}")
    elif isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database, database:
            statement = "insert or replace into notice values (?, 1, ?)"
            database.executemany(statement, found)
    else:
        assert isinstance(store, PostgresLog)
        statement = "insert into oncecron.notice select n, 1, %s from unnest(%s::text[]) n"
        store._database.execute(statement, document, [name for name, _ in found])


def forge_keys(store: Store, keys: Iterable[str]) -> None:
    """Write keys that no job can have, past all constraints."""
    if isinstance(store, RedisLog):
        for key in keys:
            store._client.zadd(f"{PREFIX}parts", {f"{key}#0": 0})
            store._client.hset(f"{PREFIX}key:{key}#0", "fence", "1")
    elif isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database, database:
            statement = "insert into job_key (key, shard) values (?, 0)"
            database.executemany(statement, ((key,) for key in keys))
    else:
        assert isinstance(store, PostgresLog)
        store._database.execute("alter domain oncecron.key_name drop constraint key_name_check")
        store._database.execute(
            "alter table oncecron.job_key drop constraint job_key_key_shard_key"
        )
        for key in keys:
            store._database.execute("insert into oncecron.job_key (key) values (%s)", key)
