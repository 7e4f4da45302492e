"""An upgrade of the schema: `init` of a next version, and hosts of both versions before, during and after it."""

import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from answers import refused
from log_of import PostgresLog, RedisLog, SQLiteLog, Store
from next_version import NEXT, Release, next_version
from servers import Journal, assert_exclusive, eventually, job
from servers.oncecron import CONSOLE_SCRIPT, Oncecron, installed
from servers.process import public_directory

from oncecron.stores.redis.explain import acl_rule

TICKS = int(os.environ.get("ONCECRON_TEST_UPGRADE_TICKS", "12"))
"""Ticks of a second each, in which the schema and then three hosts are upgraded; the long form has 120."""
NAMESPACE = "oncecron:{oncecron}:namespace"
TOO_OLD = "oncecron 0.1.0 on this host is for version 1; upgrade oncecron on this host"
FAILS = {
    "postgres": "select 1 / 0;\n",
    "sqlite": "\n-- name: fails\nINSERT INTO no_table VALUES (1)\n",
    "redis": "write('HSET', shared.namespace, 'half', 'done')\nerror('it fails')\n",
}
TAKES_LONG = {
    "postgres": "select pg_sleep(4);\n",
    "sqlite": "\n-- name: takes_long\n"
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 20000000) SELECT count(*) FROM n\n",
    "redis": "for i = 1, 3e8 do end\n",
}
CATALOG = """
select 'function', p.oid::regprocedure::text,
       array[p.prosrc, p.prosecdef::text, p.provolatile::text, p.proconfig::text],
       array(select a::text from unnest(p.proacl) a order by 1)
  from pg_proc p where p.pronamespace = 'oncecron'::regnamespace
union all
select c.relkind::text, c.oid::regclass::text,
       array[pg_get_viewdef(c.oid), case when c.relkind = 'i' then pg_get_indexdef(c.oid) end, c.reloptions::text]
       || array(select concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                                 pg_get_expr(d.adbin, d.adrelid))
                  from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                 where a.attrelid = c.oid and a.attnum > 0 order by a.attnum),
       array(select a::text from unnest(c.relacl) a order by 1)
  from pg_class c where c.relnamespace = 'oncecron'::regnamespace and c.relkind <> 'c'
union all
select 'constraint', concat_ws(' ', r.conrelid::regclass, r.contypid::regtype, r.conname),
       array[pg_get_constraintdef(r.oid)], null
  from pg_constraint r where r.connamespace = 'oncecron'::regnamespace
union all
select 'version', '', array[m.version::text, m.oldest::text], null from oncecron.meta m
order by 1, 2, 3"""

pytestmark = pytest.mark.own_log


def kind(store: Store) -> str:
    names = {PostgresLog: "postgres", RedisLog: "redis", SQLiteLog: "sqlite"}
    return names[type(store)]


def contents(store: Store) -> Any:
    """Return the schema as it is: on Redis, which has none, all data."""
    if isinstance(store, PostgresLog):
        return store._database.execute(CATALOG)
    if isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database:
            names = "select type, name, tbl_name from sqlite_master order by name"
            objects = database.execute(names).fetchall()
            columns = {
                name: database.execute(f"pragma table_xinfo({name})").fetchall()
                for what, name, _ in objects
                if what == "table"
            }
            marks = "select * from meta where name like 'schema%' order by name"
            return objects, columns, database.execute(marks).fetchall()
    assert isinstance(store, RedisLog)
    found = {name: store._client.dump(name) for name in store._client.scan_iter("oncecron:*")}
    return found, store._client.hmget(NAMESPACE, "layout", "oldest")


def mark(store: Store, version: int, oldest: int | None) -> None:
    """Let the schema say that it has a version, and serves programs from another one on."""
    if isinstance(store, PostgresLog):
        store._database.execute(
            "update oncecron.meta set version = %s, oldest = %s", version, oldest
        )
    elif isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database, database:
            database.execute(
                "replace into meta values ('schema_version', ?), ('schema_oldest', ?)",
                [str(version), str(oldest or "")],
            )
    else:
        assert isinstance(store, RedisLog)
        store._client.hset(NAMESPACE, "layout", version)
        store._client.hdel(NAMESPACE, "oldest")
        if oldest:
            store._client.hset(NAMESPACE, "oldest", oldest)


def ended_by(store: Store) -> list[str | None]:
    """Return which version ended each execution, in order."""
    if isinstance(store, PostgresLog):
        rows = store._database.execute(
            "select ended_by from oncecron.job_execution order by execution_id"
        )
        return [row[0] for row in rows]
    if isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database:
            rows = database.execute("select ended_by from job_execution order by execution_id")
            return [row[0] for row in rows]
    assert isinstance(store, RedisLog)
    rows = store._client.hgetall("oncecron:{oncecron}:executions")
    return [json.loads(rows[number]).get("ended_by") for number in sorted(rows, key=int)]


@pytest.fixture(scope="session")
def newer() -> Release:
    return next_version(public_directory("next-version") / "library")


@pytest.fixture
def owner(store: Store, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host of whoever owns the store."""
    return lambda release=None: after(Oncecron(store.owner_url, public_path, "host-o"), release)


@pytest.fixture
def hosts(new_host: Callable[..., Oncecron]) -> list[Oncecron]:
    found = [new_host(f"host-{name}") for name in "abc"]
    assert found[0].run("first", "--tick", "t", "--", "true").status == 0
    return found


def after(host: Oncecron, release: Release | None) -> Oncecron:
    """Upgrade a host, or take it back to this version."""
    host.script = release.script if release else CONSOLE_SCRIPT
    return host


@pytest.mark.slow
def test_no_tick_is_lost_or_started_twice_while_the_schema_and_then_the_hosts_are_upgraded(
    hosts: list[Oncecron], owner: Callable[..., Oncecron], newer: Release, journal: Journal
) -> None:
    """Three hosts fire each second, with the least of rights; nobody says a word; the order is any."""
    order, tick = random.sample(hosts, 3), 0
    firings, init = [], None
    while tick < TICKS or (order and tick < 5 * TICKS):
        if tick == TICKS // 4:
            init = owner(newer).start("init")
        elif init and order and init.process.poll() is not None and tick % (TICKS // 6) == 0:
            after(order.pop(), newer)
        words = ("--wait", "60s", "--tick", f"t{tick}", "--", *job(journal))
        firings += [host.fire("k", *words) for host in hosts]
        tick += 1
        time.sleep(1)  # the interval of the ticks
    assert init
    assert (init.wait().status, order) == (0, [])
    assert {tuple(firing.wait(100)) for firing in firings} == {(0, b"", "")}
    assert sorted(line.tick for line in journal.starts()) == sorted(f"t{n}" for n in range(tick))
    assert_exclusive(journal)


def test_an_upgraded_schema_is_the_same_as_a_new_one(
    store: Store,
    hosts: list[Oncecron],
    owner: Callable[..., Oncecron],
    newer: Release,
    public_path: Path,
) -> None:
    """With the rights of all roles; the SQL that is printed for a DBA does the same, new or old."""
    if isinstance(store, RedisLog):
        done = owner(newer)("init")
        assert b": upgraded the data of oncecron from version 1 to 2; keeps" in done.out
        assert store._client.hmget(NAMESPACE, "layout", "oldest") == ["2", "1"]
        assert ended_by(store) == ["before"]
        store._client.flushall()
        assert b"needs no preparation" in owner(newer)("init").out
        assert store._client.hmget(NAMESPACE, "layout", "oldest") == ["2", "1"]
    elif isinstance(store, SQLiteLog):
        done = owner(newer)("init")
        assert done.out.startswith(
            f"upgraded the store {store._path} from schema version 1 to 2; ".encode()
        )
        anew = SQLiteLog(public_path / "anew" / "oncecron.db")
        assert Oncecron(anew.url, public_path, script=newer.script)("init").status == 0
        assert contents(anew) == contents(store)
        printed = owner(newer)("init", "--print-sql").out.decode()
        with closing(sqlite3.connect(store._path.with_name("printed.db"))) as database:
            database.executescript(printed)
        assert contents(SQLiteLog(store._path.with_name("printed.db"))) == contents(store)
    else:
        assert isinstance(store, PostgresLog)
        database = store._database
        printed = owner(newer)("init", "--print-sql").out.decode()
        with database.connect("owner") as connection:
            connection.execute(printed)
        by_hand = contents(store)
        database.execute("drop schema oncecron cascade")
        installed(database)
        done = owner(newer)("init")
        assert done.out.startswith(b"upgraded schema oncecron from version 1 to 2; keeps")
        upgraded = contents(store)
        assert owner(newer)("init").out.startswith(b"schema oncecron has version 2 already")
        with database.connect("owner") as connection:
            connection.execute(printed)
        assert contents(store) == upgraded
        database.execute("drop schema oncecron cascade")
        installed(database, script=newer.script)
        assert contents(store) == upgraded == by_hand
    assert after(hosts[1], newer).run("k", "--tick", "t", "--", "true") == (0, b"", "")
    assert ended_by(store)[-1] == NEXT
    assert hosts[0].run("k", "--tick", "t", "--", "true") == (0, b"", "")
    assert hosts[0].run("k", "--tick", "t2", "--", "true") == (0, b"", "")


def test_a_step_that_fails_leaves_the_old_schema_whole(
    store: Store,
    hosts: list[Oncecron],
    owner: Callable[..., Oncecron],
    newer: Release,
    public_path: Path,
) -> None:
    """Hosts fire on as before, and the next try does it all."""
    before = contents(store)
    broken = next_version(public_path / "broken", FAILS[kind(store)])
    for _ in range(2):
        ended = owner(broken)("init")
        assert (ended.status != 0, ended.err.count("\n")) == (True, 1), ended
        assert contents(store) == before
    assert hosts[0].run("k", "--tick", "t", "--", "true") == (0, b"", "")
    assert owner(newer)("init").status == 0
    assert after(hosts[1], newer).run("k", "--tick", "t2", "--", "true") == (0, b"", "")


def test_an_init_that_is_killed_leaves_the_old_schema_whole_or_the_new_one(
    store: Store,
    hosts: list[Oncecron],
    owner: Callable[..., Oncecron],
    newer: Release,
    public_path: Path,
) -> None:
    """On Redis the server ends the step all the same. The next try does it, or finds it done."""
    slow = next_version(public_path / "slow", TAKES_LONG[kind(store)])
    before = contents(store)
    firing = owner(slow).start("init")
    eventually(lambda: is_upgrading(store), 30)
    os.kill(firing.process.pid, signal.SIGKILL)
    firing.wait()
    if isinstance(store, RedisLog):
        eventually(
            lambda: store._client.hget(NAMESPACE, "layout") == "2", 60, retry_on=redis.RedisError
        )
        assert ended_by(store) == ["before"]
    else:
        assert contents(store) == before
    assert hosts[0].run("k", "--tick", "t", "--", "true") == (0, b"", "")
    assert owner(newer)("init").status == 0
    assert after(hosts[1], newer).run("k", "--tick", "t2", "--", "true") == (0, b"", "")
    assert [row.outcome for row in store.executions("k")] == ["succeeded"] * 2


def is_upgrading(store: Store) -> bool:
    """Return whether a step is under way."""
    if isinstance(store, PostgresLog):
        return bool(
            store._database.execute("select 1 from pg_stat_activity where wait_event = 'PgSleep'")
        )
    if isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path, timeout=0, isolation_level=None)) as database:
            try:
                database.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            return False
    assert isinstance(store, RedisLog)
    place = {**store._client.connection_pool.connection_kwargs, "socket_timeout": 1.0}
    pool = redis.ConnectionPool(store._client.connection_pool.connection_class, **place)
    try:
        redis.Redis(connection_pool=pool).ping()
    except redis.TimeoutError:
        return True
    finally:
        pool.disconnect()
    return False


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_user_who_could_not_undo_a_step_upgrades_nothing(
    store: Store, hosts: list[Oncecron], owner: Callable[..., Oncecron], newer: Release
) -> None:
    """Neither the user of the firings, nor one without the dangerous commands; the cure can be pasted."""
    assert isinstance(store, RedisLog)
    before = contents(store)
    safe = "ACL SETUSER safe on >secret ~* &* +@all -@dangerous +info"
    for rule in (" ".join(acl_rule("oncecron", "oncecron", login="on >secret")), safe):
        store._client.execute_command(*rule.split())
        host = owner(newer)
        host.environment["ONCECRON_STORE"] = store.url.replace(
            "://", f"://{rule.split()[2]}:secret@"
        )
        why = (
            'also needs the right to RESTORE; run `oncecron init --store "$ONCECRON_STORE"` as the'
        )
        refused(host("init"), 78, why)
        assert contents(store) == before
        store._client.execute_command("ACL", "DELUSER", rule.split()[2])


@pytest.mark.parametrize(
    "words", ["pause k --new", "drain web1 --new", "init", "run --key k --tick t -- /none"]
)
@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_namespace_has_the_version_of_the_program_that_writes_first(
    store: Store, owner: Callable[..., Oncecron], newer: Release, words: str
) -> None:
    """Also before the first start; a program that is too new then writes nothing."""
    assert isinstance(store, RedisLog)
    owner()(*words.split())
    before = contents(store)
    assert before[1] == ["1", None]
    for command in ("pause j", "run --key k --tick t2 -- /none", "run --key k --tick t2 -- true"):
        assert owner(newer)(*command.split()).status in (78, 127)
    assert contents(store) == before
    store._client.flushall()
    owner(newer)(*words.split())
    assert store._client.hmget(NAMESPACE, "layout", "oldest") == ["2", "1"]
    assert owner(newer).run("j", "--tick", "t2", "--", "echo", "ran") == (0, b"ran\n", "")


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_long_report_holds_up_the_upgrade_and_no_firing(
    store: Store, hosts: list[Oncecron], owner: Callable[..., Oncecron], newer: Release
) -> None:
    """The upgrade waits for its tables at most a second at a time, and begins again when the report has ended."""
    assert isinstance(store, PostgresLog)
    with store._database.connect("reader", autocommit=False) as connection:
        connection.execute("select count(*) from oncecron.executions")
        firing = owner(newer).start("init")
        waits = "select 1 from pg_locks where not granted and mode = 'AccessExclusiveLock'"
        eventually(lambda: store._database.execute(waits) != [])
        words = ("--ttl", 12, "--tick", "t", "--", "sleep", "3")
        assert hosts[0].run("k", *words) == (0, b"", "")
        connection.rollback()
    assert firing.wait().out.startswith(b"upgraded schema oncecron")


def test_an_older_program_is_served_and_cannot_change_a_newer_schema(
    store: Store, hosts: list[Oncecron], owner: Callable[..., Oncecron], newer: Release
) -> None:
    """A host that is taken back fires and reads, whatever newer hosts have recorded."""
    assert owner(newer)("init").status == 0
    host = after(hosts[0], newer)
    assert host.run("k", "--tick", "t", "--", "true") == (0, b"", "")
    after(host, None)
    # A restart, after which a claim writes to what the namespace has on record. It waits for nothing, as the server has
    # been up for longer than any lease lasts.
    if isinstance(store, RedisLog):
        client = store._client
        eventually(lambda: client.info("server")["uptime_in_seconds"] > 6 + 1)
        client.hset(NAMESPACE, mapping={"run_id": "another", "largest_ttl": "1"})
    assert host.run(
        "k", "--ttl", "6s", "--tick", "t2", "--capture", "1k", "--", "echo", "hello"
    ) == (0, b"hello\n", "")
    for command in ("history", "locks", "jobs", "check", "audit"):
        ended = host(command)
        assert (ended.status, ended.err) == (0, ""), command
    before = contents(store)
    refused(
        owner()("init", "--keep-skips", "9d"), 78,
        f"the schema has version 2, and {TOO_OLD}",
    )  # fmt: skip
    assert contents(store) == before


@pytest.mark.parametrize(("version", "oldest"), [(2, None), (3, 2)])
def test_a_program_that_is_too_old_starts_and_changes_nothing(
    store: Store,
    hosts: list[Oncecron],
    owner: Callable[..., Oncecron],
    version: int,
    oldest: int | None,
) -> None:
    """Neither in a firing, nor in a report; the cure is to upgrade it, for whatever role."""
    mark(store, version, oldest)
    if isinstance(store, PostgresLog) and oldest:
        store._database.execute("drop function oncecron.look_v1, oncecron.skip_v1")
    before = contents(store)
    said = f"the schema has version {version}, and {TOO_OLD}"
    for host in (hosts[0], owner()):
        refused(host.run("k", "--tick", "t", "--", "echo", "ran"), 78, said)
        for command in ("history", "locks", "pause k", "check"):
            ended = host(*command.split())
            assert ended.status in (78, 3), ended
            assert said in ended.err + ended.out.decode()
    refused(owner()("init"), 78, said)
    assert contents(store) == before


def test_a_program_that_is_too_new_names_who_upgrades(
    store: Store, hosts: list[Oncecron], owner: Callable[..., Oncecron], newer: Release
) -> None:
    """It starts nothing and changes nothing; the command that it names works."""
    before = contents(store)
    says = f"the schema has version 1, and oncecron {NEXT} on this host needs version 2; run `oncecron init"
    for host in (owner(newer), after(hosts[0], newer)):
        if host is hosts[0] and isinstance(store, PostgresLog):
            says = says.replace(
                "; run `oncecron init",
                "; have owner, the owner, run `oncecron init --store postgresql://owner@",
            )
        refused(host.run("k", "--tick", "t", "--", "echo", "ran"), 78, says, "` of this release")
        for command in ("history", "locks", "pause k"):
            refused(host(*command.split()), 78, says)
        assert says in host("doctor").out.decode()
    assert contents(store) == before
    assert owner(newer)("init").status == 0
    assert hosts[0].run("k", "--tick", "t", "--", "echo", "ran") == (0, b"ran\n", "")
