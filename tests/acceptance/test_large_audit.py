"""An audit of a log of many executions, on every store: memory does not grow with the log."""

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers.oncecron import CONSOLE_SCRIPT, Oncecron, installed
from test_redis_large_log import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Database, RedisServer

ROWS = int(os.environ.get("ONCECRON_TEST_ROWS", "40000"))
"""Executions of the large log, a multiple of 40; the long form has a million."""
KEYS = 40
ALLOWED = 40_000_000
"""Bytes by which the large log's audit may need more than that of a hundredth: pages and sorters, not rows."""

IN_POSTGRES = """
insert into oncecron.job_key (key) select 'k' || k from generate_series(0, 39) k;
insert into oncecron.job_execution (key_id, tick, tick_at, attempt, owner_attempt, outcome, exit_code, host, pid,
    user_name, command, started_at, finished_at, duration, fencing_token, owner, cause)
  select k.key_id, 't' || n, null, 1, 1, 'succeeded', 0, 'app-1.example.org', 12345, 'root', './bill.sh --all',
         now() - make_interval(secs => ({0} - n) * 60), now() - make_interval(secs => ({0} - n) * 60 - 2), 1.5,
         1700000000000000 + n, gen_random_uuid(), 'schedule'
    from oncecron.job_key k, generate_series(1, {0}) n
"""
IN_SQLITE = """
insert into job_execution (key, shard, tick, named, attempt, owner_attempt, outcome, exit_code, host, pid, user,
    command, started_at, finished_at, duration, fencing_token, owner, cause)
  with recursive n(n) as (select 1 union all select n + 1 from n where n < {0}),
       k(k) as (select 0 union all select k + 1 from k where k < 39)
  select 'k' || k, 0, 't' || n, 1, 1, 1, 'succeeded', 0, 'app-1.example.org', 12345, 'root', './bill.sh --all',
         1.7e9 + n * 60, 1.7e9 + n * 60 + 2, 1.5, 1700000000000000 + n, k || '-' || n, 'schedule'
    from k, n
"""


def filled_postgres(request: pytest.FixtureRequest, rows: int, path: Path) -> str:
    """Give a database with that many executions."""
    del path
    database: Database = installed(request.getfixturevalue("postgres").create_database())
    request.addfinalizer(database.drop)
    database.execute(IN_POSTGRES.replace("{0}", str(rows // KEYS)))
    return database.url()


def filled_sqlite(request: pytest.FixtureRequest, rows: int, path: Path) -> str:
    del request
    url = f"sqlite://{path}/{rows}.db"
    assert Oncecron(url, path)("init").status == 0
    with closing(sqlite3.connect(path / f"{rows}.db")) as database, database:
        database.execute(IN_SQLITE.replace("{0}", str(rows // KEYS)))
        database.execute(
            "insert into job_key (key, shard) select distinct key, 0 from job_execution"
        )
    return url


def filled_redis(request: pytest.FixtureRequest, rows: int, path: Path) -> str:
    del path
    new_redis: Callable[..., RedisServer] = request.getfixturevalue("new_redis")
    server = new_redis(aof=True, appendfsync="no")
    fill(server, rows)
    client: Any = server.connect(decode_responses=True)
    name = "oncecron:{oncecron}:executions"
    for numbers in _pages(rows):
        found = client.hmget(name, numbers)
        changed = {
            number: json.dumps(
                {**json.loads(text), "fencing_token": str(1700000000000000 + number)}
            )
            for number, text in zip(numbers, found, strict=True)
        }
        client.hset(name, mapping=changed)
    return server.url()


def _pages(rows: int) -> list[list[int]]:
    return [list(range(first, min(first + 1000, rows + 1))) for first in range(1, rows + 1, 1000)]


FILLED = {"postgres": filled_postgres, "redis": filled_redis, "sqlite": filled_sqlite}


def peak(url: str, path: Path) -> tuple[int, bytes, int]:
    """Return the exit status of an audit, what it printed, and the most memory that it had, in bytes."""
    host = Oncecron(url, path)
    script = (
        "import resource, subprocess, sys; ended = subprocess.run(sys.argv[1:], stdout=2);"
        "print(ended.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = ["python3", "-c", script, str(CONSOLE_SCRIPT), "audit", "--format", "ndjson"]
    done = subprocess.run(command, env=host.environment, capture_output=True, check=True)
    status, kilobytes = done.stdout.split()
    return int(status), done.stderr, int(kilobytes) * 1024


@pytest.mark.parametrize("kind", sorted(FILLED))
def test_an_audit_of_a_large_log_needs_no_more_memory(
    request: pytest.FixtureRequest, public_path: Path, kind: str
) -> None:
    """A clean log has no finding, however large."""
    status, printed, small = peak(
        FILLED[kind](request, max(KEYS, ROWS // 100), public_path), public_path
    )
    assert (status, printed) == (0, b"")
    status, printed, large = peak(FILLED[kind](request, ROWS, public_path), public_path)
    assert (status, printed) == (0, b"")
    assert large - small < ALLOWED
