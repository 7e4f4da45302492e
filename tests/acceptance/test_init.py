"""`oncecron init` and roles on PostgreSQL, and what a log of many rows costs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from answers import refused
from servers import Database
from servers.oncecron import Ended, Oncecron
from terminals import answered

Hosts = Callable[..., Oncecron]
ROWS = int(os.environ.get("ONCECRON_TEST_ROWS", "40000"))
"""Executions, and as many skips, of a large log, a multiple of 40; the long form has a million."""
ROLES = ("--run-role", "runner", "--read-role", "reader", "--job-role", "jobber")
OBJECTS = """
    select 'function', p.oid::regprocedure::text, p.prosrc, p.proacl::text from pg_proc p
     where p.pronamespace = 'oncecron'::regnamespace
    union all
    select c.relkind::text, c.oid::regclass::text,
           coalesce(pg_get_viewdef(c.oid),
                    (select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ',' order by a.attnum)
                       from pg_attribute a where a.attrelid = c.oid and a.attnum > 0)), c.relacl::text
      from pg_class c where c.relnamespace = 'oncecron'::regnamespace and c.relkind in ('r', 'v', 'i')
    order by 1, 2"""


@pytest.fixture
def as_role(database: Database, public_path: Path) -> Hosts:
    """Give a function that makes a host which connects as a role."""
    return lambda role="owner": Oncecron(database.url(role), public_path, f"host-{role}")


# init


def test_init_makes_the_schema_once(as_role: Hosts) -> None:
    """And says what it has done, or found, and how long records are kept."""
    owner, kept = as_role(), b"; keeps executions at least 7d, skips at least 1d\n"
    assert owner("init") == Ended(0, b"made schema oncecron, version 1" + kept, "")
    assert owner("init").out == b"schema oncecron has version 1 already" + kept
    staging = owner("init", "--namespace", "staging")
    assert staging.out == b"made schema staging, version 1" + kept
    assert owner("history", "--namespace", "staging").status == 0


CTRL_D = "\x04"


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("words", "answers", "rights"),
    [
        ((), "runner\n\n", {"runner": {"fire", "read"}}),
        ((), " runner , operator \nreader\n", {"runner": {"fire"}, "operator": {"fire"}, "reader": {"read"}}),
        ((), "\nreader\n", {"reader": {"read"}}),
        ((), CTRL_D * 2, {}),
        (("--read-role", "reader"), "", {"reader": {"read"}}),
    ],
)  # fmt: skip
def test_init_asks_for_the_roles_at_a_terminal(
    as_role: Hosts, words: tuple[str, ...], answers: str, rights: dict[str, set[str]]
) -> None:
    """Unless they are given; once a role has rights, never again."""
    status, shown = answered(as_role(), "init", *words, answers=answers)
    assert (status, "Role that" in shown) == (0, not words), shown
    assert ("roles that may log in: jobber, operator, outsider, reader, runner\n" in shown) != bool(
        words
    )
    for role in ("runner", "reader", "operator"):
        may = rights.get(role, set())
        assert (as_role(role)("history").status == 0) == ("read" in may)
        assert (as_role(role).run("k", "--no-tick", "--", "true").status == 0) == ("fire" in may)
    if rights:
        status, shown = answered(as_role(), "init", answers="")
        assert (status, "Role that" in shown) == (0, False), shown


def test_init_asks_for_the_store_at_a_terminal(database: Database, as_role: Hosts) -> None:
    """A wrong answer is refused as the option would be; without a terminal nobody is asked."""
    host = as_role()
    url = host.environment.pop("ONCECRON_STORE")
    status, shown = answered(host, "init", answers="nowhere\n")
    assert (status, "--store: " in shown) == (78, True), shown
    status, shown = answered(host, "init", answers=f"{url}\n\n\n")
    assert (status, "made schema oncecron" in shown) == (0, True), shown
    refused(host("init"), 78, "no store is configured")
    assert host("init", "--print-sql").status == 0


def test_eight_hosts_may_do_it_at_once(database: Database, as_role: Hosts) -> None:
    """One makes it, the others find it, all of them give the same rights."""
    firings = [as_role().start("init", *ROLES) for _ in range(8)]
    ended = [firing.wait(100) for firing in firings]
    assert [each.status for each in ended] == [0] * 8
    assert sorted(each.out.split(b",")[0].split(b";")[0] for each in ended) == [
        b"made schema oncecron",
        *[b"schema oncecron has version 1 already"] * 7,
    ]
    assert database.execute("select count(*) from oncecron.meta") == [(1,)]


def test_init_changes_what_is_kept_only_where_told(database: Database, as_role: Hosts) -> None:
    """The two ages are independent; the printed SQL sets them too."""
    owner = as_role()
    for words, kept in (
        (["--keep-executions", "36h"], b"36h, skips at least 1d"),
        ([], b"36h, skips at least 1d"),
        (["--keep-skips", "0s", *ROLES], b"36h, skips at least 0s"),
    ):
        assert owner("init", *words).out.endswith(b"; keeps executions at least " + kept + b"\n")
    database.execute("drop schema oncecron cascade")
    with database.connect() as connection:
        printed = owner("init", "--print-sql", "--keep-skips", "90m", *ROLES).out.decode()
        connection.execute(printed)
    assert b"; keeps executions at least 7d, skips at least 90m\n" in owner("init").out


def test_what_is_printed_for_a_dba_is_what_init_does(database: Database, as_role: Hosts) -> None:
    """The same tables, views, functions and rights; nothing is done by printing."""
    printed = as_role()("init", "--print-sql", *ROLES)
    assert (printed.status, printed.err) == (0, "")
    refused(as_role()("history"), 78, "run `oncecron init --store ")
    with database.connect() as connection:
        connection.execute(printed.out.decode())
    by_hand = database.execute(OBJECTS)
    database.execute("drop schema oncecron cascade")
    assert as_role()("init", *ROLES).status == 0
    assert database.execute(OBJECTS) == by_hand


def test_several_roles_get_rights_at_once(as_role: Hosts) -> None:
    """One that does not exist is named, whatever its bytes."""
    refused(as_role()("init", "--run-role", b"\xff"), 78, r'role "\xff" does not exist')
    assert as_role()("init", "--run-role", "runner,reader").out.endswith(
        b"gave rights to runner, reader; keeps executions at least 7d, skips at least 1d\n"
    )


# A schema that is not ours


@pytest.mark.turns(1)
@pytest.mark.parametrize("tables", ["", "create table oncecron.meta (version integer)"])
def test_a_schema_of_another_role_is_not_adopted(
    database: Database, as_role: Hosts, tables: str
) -> None:
    """Its owner could replace every function; a firing makes nothing there either."""
    database.execute(f"grant create on database {database.name} to runner")
    with database.connect("runner") as connection:
        connection.execute(f"create schema oncecron; {tables}")
    before = database.execute(OBJECTS)
    refused(
        as_role()("init", *ROLES), 78, "schema oncecron belongs to runner; if that is right, run"
    )
    firing = as_role("runner").run("k", "--tick", "t", "--", "true")
    assert firing.status == 78
    assert database.execute(OBJECTS) == before


def test_a_schema_with_other_tables_is_not_adopted(database: Database, as_role: Hosts) -> None:
    """Not even the owner's own: its tables may be anything."""
    with database.connect() as connection:
        connection.execute("create schema oncecron; create table oncecron.orders (id integer)")
    why = ("schema oncecron exists and is not oncecron's", "choose another --namespace")
    refused(as_role()("init"), 78, *why)
    refused(as_role().run("k", "--tick", "t", "--", "true"), 78, *why)


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("alter view oncecron.leases owner to runner", "leases belongs to runner"),
        ("alter function oncecron.skip_v1 owner to runner", "skip_v1 belongs to runner"),
        ("alter schema oncecron owner to runner", "schema oncecron belongs to runner"),
        ("grant create on schema oncecron to reader", "role reader may create objects"),
        ("grant create on schema oncecron to public", "role public may create objects"),
    ],
)
def test_nobody_else_may_change_what_is_in_the_schema(
    database: Database, as_role: Hosts, statement: str, why: str
) -> None:
    """Init gives no rights in such a schema, and says what to undo."""
    as_role()("init")
    with database.server.superuser_connect(database.name) as connection:
        connection.execute(statement)
    refused(as_role()("init", "--run-role", "jobber"), 78, why)
    assert database.execute("select has_schema_privilege('jobber', 'oncecron', 'usage')") == [
        (False,)
    ]


@pytest.mark.turns(1)
@pytest.mark.parametrize("name", ["public", "PUBLIC", "information_schema", "pg_temp"])
def test_a_schema_of_postgresql_is_refused(as_role: Hosts, name: str) -> None:
    """Init takes the rights of others away, and every other command would find nothing there."""
    for command in ("init", "history", "locks"):
        refused(as_role()(command, "--namespace", name), 78, f"namespace '{name}'", "reserved")


def test_no_lock_that_anybody_can_take_stops_init(database: Database, as_role: Hosts) -> None:
    """Advisory locks are everybody's; the schema's own table is not."""
    with database.connect("reader") as connection:
        connection.execute("select pg_advisory_lock(hashtextextended('oncecron init oncecron', 0))")
        assert as_role()("init").status == 0
        assert as_role()("init", *ROLES).status == 0
        connection.execute("begin; lock table oncecron.meta in access share mode")
        assert as_role()("init", *ROLES).status == 0


# What is not there, or another's


def test_a_function_that_was_removed_is_named(database: Database, as_role: Hosts) -> None:
    """The version fits, so neither an upgrade nor other rights would help, and nothing is created."""
    as_role()("init", *ROLES)
    database.execute("drop function oncecron.look_v1")
    before = database.execute(OBJECTS)
    for role in ("runner", "owner"):
        refused(
            as_role(role).run("k", "--tick", "t", "--", "true"),
            *(78, "look_v1", "does not exist", "removed or changed: restore it from a backup"),
        )
    assert database.execute(OBJECTS) == before


def test_reading_makes_nothing(database: Database, as_role: Hosts) -> None:
    """An empty database stays empty, and the cure is named."""
    for command in ("history", "locks", "prune"):
        refused(
            as_role()(command),
            78,
            "has no schema oncecron; check --namespace, or run `oncecron init --store ",
        )
    assert database.execute("select 1 from pg_namespace where nspname = 'oncecron'") == []


def test_a_store_that_is_away_is_told_without_its_password(
    database: Database, public_path: Path
) -> None:
    """Exit status 69; a wrong password is 78."""
    away = Oncecron("postgresql://u:secret-word@127.0.0.1:1/d", public_path)
    wrong = Oncecron(database.url().replace("owner-password", "secret-word"), public_path)
    for host, status in ((away, 69), (wrong, 78)):
        for command in ("history", "locks", "init", "prune"):
            ended = host(command)
            refused(ended, status, "PostgreSQL postgresql://")
            assert "secret-word" not in ended.err
            assert ":***@127.0.0.1:" in ended.err
            assert "connection failed" not in ended.err  # psycopg before the words of libpq


# Many rows


@pytest.fixture
def large(database: Database, as_role: Hosts) -> Database:
    """Give a log of forty thousand rows and as many skips; one key ran first and never again."""
    as_role()("init", "--keep-executions", "0s", "--keep-skips", "0s")
    database.execute(
        "insert into oncecron.job_key (key) select 'k' || g from generate_series(1, 40) g"
    )
    database.execute(
        f"""
        insert into oncecron.job_execution
            (key_id, tick, tick_at, attempt, outcome, host, pid, user_name, command, started_at, owner,
                 owner_attempt, cause)
        select case when g <= 60 then 40 else 1 + g % 39 end, 'n' || g, case when g % 39 <> 5 then at end, 1,
               'succeeded', 'h', 1, 'u', 'c', at, gen_random_uuid(), 1, 'schedule'
          from generate_series(1, {ROWS}) g, lateral (select now() - make_interval(mins => {ROWS} - g) as at) x"""
    )
    database.execute(
        f"""
        insert into oncecron.skip (key_id, tick, host, reason, pid, at)
        select 1 + g % 40, 'n' || g, 'h', 'held', 1, now() - make_interval(secs => {ROWS} - g)
          from generate_series(1, {ROWS}) g"""
    )
    with database.server.superuser_connect(database.name) as connection:
        for table in ("job_execution", "skip", "job_key"):
            connection.execute(f"vacuum analyze oncecron.{table}")
    return database


@pytest.mark.turns(1)
@pytest.mark.parametrize("key", ["k7", "k40", "k5", "nothing"])
def test_the_last_fifty_of_a_key_do_not_read_the_log(large: Database, key: str) -> None:
    """Whether it runs always, ran long ago, has names for ticks, or does not exist."""
    from oncecron.core.log_rows import HistoryQuery
    from oncecron.stores.postgres.reader import PostgresReader

    store = PostgresReader(large.url(), namespace="oncecron")
    found = [execution.execution_id for execution in store.history(HistoryQuery(key=key))]
    expected = large.execute(
        "select execution_id from oncecron.executions where key = %s order by execution_id desc limit 50",
        key,
    )
    assert found == [row[0] for row in expected]
    values = {**HistoryQuery(key=key)._asdict(), "before": None, "page": 50}
    with large.connect() as connection:
        lines = connection.execute(
            "explain (analyze, buffers) " + store._sql["history_of_key"],
            values,  # type: ignore[arg-type]
        ).fetchall()
    store.close()
    plan = "\n".join(line[0] for line in lines)
    assert "job_execution_others" in plan
    assert "job_execution_names" in plan
    assert "Seq Scan on job_execution" not in plan
    assert "job_execution_pkey" not in plan


@pytest.mark.turns(1)
@pytest.mark.parametrize("key", [None, "k7"])
def test_dead_letters_do_not_read_the_log(large: Database, key: str | None) -> None:
    """However few they are among all that ran."""
    from oncecron.core.log_rows import HistoryQuery
    from oncecron.stores.postgres.reader import PostgresReader

    given_up = large.execute(
        "update oncecron.job_execution set outcome = 'failed', retries = 2 where execution_id in"
        f" (select min(execution_id) from oncecron.executions where key = 'k7' union select {ROWS // 2})"
        " returning execution_id"
    )
    with large.server.superuser_connect(large.name) as connection:
        connection.execute("vacuum analyze oncecron.job_execution")
    store = PostgresReader(large.url(), namespace="oncecron")
    query = HistoryQuery(key=key, exhausted=True)
    found = [execution.execution_id for execution in store.history(query)]
    assert found == sorted((row[0] for row in given_up), reverse=True)[-1 if key else 0 :]
    values = {**query._asdict(), "before": None, "page": 50}
    with large.connect() as connection:
        lines = connection.execute(
            "explain (analyze, buffers) " + store._sql["history_of_key" if key else "history"],
            values,  # type: ignore[arg-type]
        ).fetchall()
    store.close()
    plan = "\n".join(line[0] for line in lines)
    assert "job_execution_given_up" in plan or key, plan
    assert "job_execution_pkey" not in plan, plan
