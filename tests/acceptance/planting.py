"""A store's data changed behind its back: what an audit has to find."""

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from typing import Any

from log_of import LoggedRedis, PostgresLog, RedisLog, SQLiteLog, Store

TIMES = ("started_at", "finished_at", "lost_at")
PREFIX = "oncecron:{oncecron}:"


def alter(store: Store, key: str, tick: str, attempt: int = 1, /, **fields: Any) -> None:
    """Change fields of an execution, everywhere where it is; times are seconds since the epoch."""
    if isinstance(store, LoggedRedis):
        alter(store._log, key, tick, attempt, **fields)
    if isinstance(store, RedisLog):
        _alter_row(store, key, tick, attempt, fields)
        return
    sign = "?" if isinstance(store, SQLiteLog) else "%s"
    values = ", ".join(f"{name} = {_value(store, name, sign)}" for name in fields)
    statement = f"update {_table(store)} set {values} where {_part(store, sign)} and tick = {sign} and attempt = {sign}"
    run(store, statement, *fields.values(), key, tick, attempt)


def forget(store: Store, key: str, tick: str) -> None:
    """Remove the executions of a tick from the log."""
    if isinstance(store, LoggedRedis):
        forget(store._log, key, tick)
    if isinstance(store, RedisLog):
        name = f"{PREFIX}executions"
        for number, text in store._client.hgetall(name).items():
            row = json.loads(text)
            if (row["key"], row.get("tick")) == (key, tick):
                store._client.hdel(name, number)
        return
    sign = "?" if isinstance(store, SQLiteLog) else "%s"
    run(
        store,
        f"delete from {_table(store)} where {_part(store, sign)} and tick = {sign}",
        key,
        tick,
    )


def expect_since(store: Store, key: str, since: str) -> None:
    """Let a key be expected to run since the time of a tick."""
    _set_time(store, key, "expected_since", since)


def last_started(store: Store, key: str, tick: str) -> None:
    """Let this be the newest tick of a key that was started, and let it be expected since then."""
    _set_time(store, key, "high_water", tick)
    expect_since(store, key, tick)


def _set_time(store: Store, key: str, name: str, tick: str) -> None:
    at = datetime.fromisoformat(tick).timestamp()
    if isinstance(store, RedisLog):
        store._client.hset(f"{PREFIX}key:{key}#0", name, at)
    elif isinstance(store, SQLiteLog):
        run(store, f"update job_key set {name} = ? where key = ?", at, key)
    else:
        statement = f"update oncecron.job_key set {name} = to_timestamp(%s::float8) where key = %s"
        run(store, statement, at, key)


def run(store: Store, statement: str, *values: object) -> None:
    if isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path, isolation_level=None)) as database:
            assert database.execute(statement, values).rowcount
    else:
        assert isinstance(store, PostgresLog)
        store._database.execute(statement, *values)


def _alter_row(store: RedisLog, key: str, tick: str, attempt: int, fields: dict[str, Any]) -> None:
    name = f"{PREFIX}executions"
    for number, text in store._client.hgetall(name).items():
        row = json.loads(text)
        if (row["key"], row.get("tick"), row["attempt"]) == (key, tick, str(attempt)):
            row |= {name: str(value) for name, value in fields.items() if value is not None}
            for field, value in fields.items():
                if value is None:
                    row.pop(field, None)
            store._client.hset(name, number, json.dumps(row))


def _table(store: Store) -> str:
    return "job_execution" if isinstance(store, SQLiteLog) else "oncecron.job_execution"


def _part(store: Store, sign: str) -> str:
    if isinstance(store, SQLiteLog):
        return f"key = {sign}"
    return f"key_id = (select key_id from oncecron.job_key where key = {sign})"


def _value(store: Store, name: str, sign: str) -> str:
    if name in TIMES and not isinstance(store, SQLiteLog):
        return f"to_timestamp({sign}::float8)"
    return sign
