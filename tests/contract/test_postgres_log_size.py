"""What an end reads on PostgreSQL does not depend on the size of the log."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hosts import Host, minute
from postgres_stores import PostgresKind
from servers import PostgresServer, eventually

from oncecron.core.model import Retention

ROWS = int(os.environ.get("ONCECRON_TEST_ROWS", "40000"))
KEYS = 50

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"])

FILL = (
    "insert into oncecron.job_key (key) select 'filled-' || n from generate_series(1, {keys}) n",
    """
    insert into oncecron.job_execution
        (key_id, tick, tick_at, attempt, owner_attempt, outcome, cause, host, pid, user_name, command, started_at,
         finished_at, owner)
      select k.key_id, format('%s', n), now() - n * interval '1 minute', 1, 1, 'succeeded', 'schedule', 'h', 1, 'u',
             'c', now() - n * interval '1 minute', now() - n * interval '1 minute', gen_random_uuid()
        from generate_series({rows} / {keys}, 1, -1) n, oncecron.job_key k
    """,
    """
    insert into oncecron.skip (key_id, tick, host, reason, pid, at)
      select k.key_id, format('%s', n), 'h', 'late', 1, now() - n * interval '1 minute'
        from generate_series({rows} / {keys}, 1, -1) n, oncecron.job_key k
    """,
    "vacuum analyze oncecron.job_execution",
    "vacuum analyze oncecron.skip",
)


def pages_of_an_end(a: Host, store: PostgresKind, number: int) -> int:
    """Return how many pages an end looks at in a session that knows every plan: analyze may make it forget them."""
    pages = []
    with store.database.connect("owner") as session:
        for tick in range(number, number + 6):
            lease = a.win(minute(tick))
            store.database.execute("update oncecron.job_key set prunes = true")
            call = (
                f"select oncecron.finish_v1({lease.execution_id}, '{lease.owner}', 'succeeded', 0, null, 1, null, null,"
                " null, null, null, null, 1e9, 1e9)"
            )
            rows = session.execute(f"explain (analyze, buffers, format json) {call}").fetchall()
            a.store.close()
            plan = rows[0][0][0]["Plan"]
            pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return min(pages)


def test_an_end_reads_as_much_of_a_large_log_as_of_an_empty_one(
    a: Host, store: PostgresKind
) -> None:
    """But for a few more levels of larger indexes: 26 pages at a million rows."""
    before = pages_of_an_end(a, store, 1)
    for statement in FILL:
        store.database.execute(statement.format(rows=ROWS, keys=KEYS))
    after = pages_of_an_end(a, store, 10)
    assert after <= before + 40, f"{before} pages became {after}"


NEVER_BY_CHANCE = """
create or replace function oncecron.prunes(p_prunes boolean) returns boolean
language sql volatile as $$ select p_prunes $$
"""
EXPIRED_SKIPS = """
insert into oncecron.skip (key_id, tick, host, reason, pid, at)
  select k.key_id, n::text, 'h', 'late', 1, 'epoch' from generate_series(1, 2100) n, oncecron.job_key k
"""


@pytest.mark.parametrize("note", [None, "not plain"])
def test_ends_remove_expired_rows_until_none_are_left(
    a: Host, store: PostgresKind, note: str | None
) -> None:
    """The first end of a key, and then those after one that has removed as many as it may."""
    retention = Retention(executions=1e7, skips=1e7)
    store.database.execute(NEVER_BY_CHANCE)
    a.finish(a.win(minute(1)), note=note, retention=retention)
    store.database.execute(EXPIRED_SKIPS)
    left = [2100]
    for number, is_due in ((2, False), (3, True), (4, True), (5, True), (6, False)):
        if number == 3:
            store.database.execute("update oncecron.job_key set prunes = true")
        a.finish(a.win(minute(number)), note=note, retention=retention)
        left.append(max(0, left[-1] - 1000 * is_due))
        assert store.database.execute("select count(*) from oncecron.skip") == [(left[-1],)]


def test_an_end_removes_expired_rows_by_chance(store: PostgresKind) -> None:
    """Retention costs a new session as much as five ends. One of 16 is within five standard deviations."""
    statement = "select count(*) from generate_series(1, 16000) where oncecron.prunes(false)"
    [(chosen,)] = store.database.execute(statement)
    assert 845 < chosen < 1155


def test_an_error_of_retention_costs_one_end(a: Host, store: PostgresKind) -> None:
    """Not every end of the key from then on; the run is recorded all the same."""
    lease = a.win(minute(1))
    store.database.execute("drop function oncecron.expiry_v1")
    assert a.finish(lease, retention=Retention(executions=1e7, skips=1e7))
    assert store.database.execute("select prunes from oncecron.job_key") == [(False,)]


# Plain skips

DAYS = int(os.environ.get("ONCECRON_TEST_LOG_DAYS", "0"))
SEEN = """
select oncecron.see_first_v1(k.key_id, format('app-%s.example.org', h), repeat('s', 400), null, null)
  from oncecron.job_key k, generate_series(1, {hosts}) h
"""
CALL = """
do $$ declare
  v_minute integer := {first};
begin
  for v_tick in 0 .. {ticks} - 1 loop
    perform oncecron.see_again_v1(
        k.key_id, format('app-%s.example.org', h), repeat('s', 400), repeat('s', 400), (v_minute + v_tick) & -2048,
        (v_minute + v_tick & 2047) << 20 | 524288 + 21000 + floor(random() * 3000)::integer)
      from oncecron.job_key k, generate_series(1, {hosts}) h;
    commit;
  end loop;
end $$
"""
FULL_ROWS = """
insert into oncecron.plain_skips (key_id, host, plain_from, plain_until, plain)
  select k.key_id, format('app-%s.example.org', h), {first} + 240 * n, {first} + 240 * n + 239,
         array(select (i << 20) + 524288 + 21000 + floor(random() * 3000 + 0 * h)::integer
                 from generate_series(0, 239) i)
    from generate_series(0, {ticks} / 240 - 1) n, oncecron.job_key k, generate_series(1, {hosts}) h
"""
OTHERS = """
select from pg_stat_activity
 where (backend_xid is not null or backend_xmin is not null or backend_type = 'autovacuum worker')
   and pid <> pg_backend_pid()
"""
MOST_BYTES = 8
"""200 hosts that fire 50 keys each minute have 101 million skips in a week: 800 MB."""


def size_of(store: PostgresKind, table: str) -> int:
    """Return the bytes of a table with its indexes."""
    [(size,)] = store.database.execute(f"select pg_total_relation_size('oncecron.{table}')")
    return int(size)


@contextmanager
def no_transaction_beside(server: PostgresServer) -> Iterator[None]:
    """Keep autovacuum away: while any database has a transaction open, no row's old versions make room."""
    server.configure(autovacuum="off")
    try:
        eventually(lambda: server.execute(OTHERS) == [])
        yield
    finally:
        server.configure(autovacuum="on")


@pytest.mark.timeout(3600 if DAYS else 300)
def test_plain_skips_of_many_hosts_take_little_space(store: PostgresKind) -> None:
    """In the long form, a week of 200 hosts and 50 keys.

    Its last ticks are called; the rows before are inserted as calls leave them.
    """
    hosts, keys, ticks = (200, 50, DAYS * 1440) if DAYS else (5, 4, 360)
    called = 2 if DAYS else ticks
    first = 29_000_000
    database, empty = store.database, size_of(store, "plain_skips")
    database.execute(FILL[0].format(keys=keys))
    if DAYS:
        database.execute(FULL_ROWS.format(first=first, ticks=ticks, hosts=hosts))
    database.execute(SEEN.format(hosts=hosts))
    with no_transaction_beside(database.server):
        database.execute(CALL.format(first=first + DAYS * 1440, ticks=called, hosts=hosts))
    [(counted,)] = database.execute(
        "select sum(cardinality(plain)) from (select plain from oncecron.plain_skips"
        " union all select plain from oncecron.key_host) each"
    )
    assert counted == hosts * keys * (DAYS * 1440 + called)
    size, of_hosts = size_of(store, "plain_skips") - empty, size_of(store, "key_host")
    print(f"{counted} skips: {size} bytes, and {of_hosts} of key_host")
    assert size / int(counted) < MOST_BYTES
    # No page for each host and key: the old versions of its row make room for new ones.
    assert of_hosts / (hosts * keys) < 8192


SKIP_AND_PRUNE = """
do $$ declare
  v_key integer := (select key_id from oncecron.job_key);
  v_prunes boolean := true;
begin
  for v_minute in {first} .. {first} + {ticks} - 1 loop
    perform oncecron.see_again_v1(
        v_key, format('app-%s.example.org', h), repeat('s', 400), repeat('s', 400), v_minute & -2048,
        (v_minute & 2047) << 20 | 524288 + h)
      from generate_series(1, {hosts}) h;
    v_prunes := oncecron.prunes(v_prunes)
      and oncecron.prune_key_v1(v_key, '-infinity', to_timestamp((v_minute - {kept}) * 60.0));
    commit;
  end loop;
end $$
"""


@pytest.mark.timeout(3600 if DAYS else 300)
def test_ends_remove_plain_skips_as_fast_as_hosts_add_them(store: PostgresKind) -> None:
    """An end at each tick, and every host skips. In the long form, three times the retention of 200 hosts."""
    hosts, kept = (200, DAYS * 1440) if DAYS else (10, 480)
    late = 250  # ticks without an end that prunes: one of two million such tests is unlucky
    store.database.execute(FILL[0].format(keys=1))
    store.database.execute(SEEN.format(hosts=hosts))
    first = 29_000_000
    for part in range(6):
        ticks = kept // 2
        store.database.execute(
            SKIP_AND_PRUNE.format(first=first + part * ticks, ticks=ticks, hosts=hosts, kept=kept)
        )
        [(held, until)] = store.database.execute(
            "select coalesce(sum(cardinality(plain)), 0), min(plain_until) from oncecron.plain_skips"
        )
        size = size_of(store, "plain_skips")
        print(f"{hosts} hosts, {(part + 1) * ticks} ticks, {kept} kept: {held} skips, {size} bytes")
        newest = first + (part + 1) * ticks
        assert until is None or until >= newest - kept - late
        assert held <= hosts * (kept + 240 + late)
    assert held > hosts * (kept - 240)
