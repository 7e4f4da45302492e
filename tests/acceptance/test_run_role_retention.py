"""The run role and the log: what a caller of the granted functions may expire, by hand and with hostile arguments."""

import uuid
from pathlib import Path

import psycopg
import pytest
from servers import Database
from servers.oncecron import Oncecron

from oncecron.core import clock
from oncecron.core.model import Firing, Holder, Lease
from oncecron.core.tick import named_tick
from oncecron.stores.postgres.lease_store import PostgresLeaseStore

OWNER = "0b8f4a52-8d0e-4c57-8d8f-6a4b0c1d2e3f"
OTHER = "5f0c7a1e-2b1d-4e0f-9a3c-7d6e5f4a3b2c"


def won(store: PostgresLeaseStore) -> Lease:
    """Return the lease of a claim."""
    firing = Firing(
        *(
            "real",
            0,
            named_tick("one"),
            OWNER,
            Holder("a.example", 1, "batch"),
            "true",
            clock.wall(),
        ),
        *(60.0, None, None, False, None, None),
    )
    lease = store.claim(firing, deadline=clock.lease_time(clock.BOOTTIME) + 30)
    assert isinstance(lease, Lease)
    return lease


@pytest.fixture
def logged(ready: Database) -> Database:
    """Record executions and skips on both sides of what a new store keeps: seven days, and one day."""
    ready.execute(
        """
        with k as (insert into oncecron.job_key (key) values ('real') returning key_id)
        insert into oncecron.job_execution
            (key_id, attempt, outcome, host, pid, user_name, command, started_at, owner, owner_attempt, cause)
          select key_id, 1, 'succeeded', 'h', 1, 'u', 'c', now() - age, gen_random_uuid(), 1, 'schedule'
            from k, unnest('{169 h, 167 h, 1 h}'::interval[]) age"""
    )
    ready.execute(
        """
        insert into oncecron.skip (key_id, tick, host, reason, pid, at)
          select key_id, age::text, 'h', 'held', 1, now() - age
            from oncecron.job_key, unnest('{1 h, 23 h, 25 h}'::interval[]) age"""
    )
    return ready


def kept(database: Database) -> tuple[int, int]:
    """Return how many rows of `logged` are left."""
    [row] = database.execute(
        "select (select count(*) from oncecron.job_execution where host = 'h'), (select count(*) from oncecron.skip)"
    )
    return row[0], row[1]


def end(execution_id: int, owner: str, age: str) -> str:
    """Return the call that ends an execution, with an age for both kinds of records."""
    return (
        f"select oncecron.finish_v1({execution_id}, '{owner}', 'succeeded', 0, null, 1, null, null, null, null,"
        f" null, null, {age}, {age})"
    )


def record(owner: str, outcome: str, age: str, number: str = "1") -> str:
    """Return the call that delivers a record that somebody has made up."""
    made_up = (
        f"""{{"kind": "execution", "key": "real", "shard": 0, "attempt": 1, "outcome": "{outcome}", "host": "x","""
        f""" "pid": 1, "user": "x", "command": "x", "started_at": 1, "fired_at": 1, "duration": 1, "cause": "manual","""
        f""" "owner": "{owner}", "fencing_token": {number}}}"""
    )
    return f"select oncecron.deliver_v1('{made_up}', {age}, {age})"


AGES = ("0", "1", "-1e300", "'-Infinity'", "'NaN'", "null")
"""How long a caller wants to keep records: as good as not at all."""


@pytest.mark.turns(2)
@pytest.mark.parametrize("age", AGES)
def test_a_run_role_expires_nothing_by_an_end_that_is_none(logged: Database, age: str) -> None:
    """Of an execution that is made up or another owner's, by a record of nothing new, or of a start."""
    [(foreign,)] = logged.execute("select min(execution_id) from oncecron.job_execution")
    with logged.connect("runner") as connection:
        connection.execute(record(OWNER, "failed", "null"))
        for call in (
            *(end(10**9, OWNER, age), end(foreign, OWNER, age)),
            *(record(OWNER, "failed", age), record(OWNER, "running", age)),
            *(record(str(uuid.uuid4()), "running", age), record(OTHER, "not-started", age, "null")),
            f"select oncecron.retry_v1({foreign}, '{OWNER}', false, null, null)",
            f"select oncecron.keep_v1({foreign}, '{OWNER}', 'failed', 1, null, 1, null, null, null)",
        ):
            connection.execute(call)
            assert kept(logged) == (3, 3), call


@pytest.mark.parametrize("age", AGES)
def test_a_run_role_cannot_empty_the_log(logged: Database, age: str) -> None:
    """Neither by a real end nor by one that it makes up: what is younger than its owner wants to keep stays."""
    store = PostgresLeaseStore(logged.url("runner"), namespace="oncecron", ttl=60)
    lease = won(store)
    with logged.connect("runner") as connection:
        connection.execute(end(lease.execution_id, OWNER, age))
        connection.execute(record(OTHER, "failed", age))
    store.close()
    assert kept(logged) in ((2, 2), (3, 3))  # an impossible age is no age: nothing goes
    if age in ("0", "1"):
        assert kept(logged) == (2, 2)
    assert logged.execute(
        "select outcome from oncecron.executions where key = 'real' and host = 'a.example'"
    ) == [("succeeded",)]


def test_a_run_role_cannot_lower_what_is_kept(logged: Database, public_path: Path) -> None:
    """Only the owner can, and then a real end removes the rest."""
    change = ("init", "--keep-executions", "0s", "--keep-skips", "0s")
    told = Oncecron(logged.url("runner"), public_path)(*change)
    assert (told.status, told.out) == (78, b"")
    with (
        logged.connect("runner") as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("update oncecron.meta set least_executions = 0")
    ended = Oncecron(logged.url("owner"), public_path)(*change)
    assert ended.out.endswith(b"; keeps executions at least 0s, skips at least 0s\n")
    with logged.connect("runner") as connection:
        connection.execute(record(OTHER, "failed", "0"))
    assert kept(logged) == (0, 0)
