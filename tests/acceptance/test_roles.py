"""Least privilege: what each role may do, and what it may not."""

import re
from pathlib import Path

import psycopg
import pytest
from servers import Database
from servers.oncecron import Oncecron

from oncecron.core import clock
from oncecron.core.errors import StoreRefusesError
from oncecron.core.model import Ending, Firing, Holder, Lease, Request
from oncecron.core.tick import named_tick
from oncecron.stores.postgres.lease_store import PostgresLeaseStore
from oncecron.stores.postgres.reader import PostgresReader

OWNER = "0b8f4a52-8d0e-4c57-8d8f-6a4b0c1d2e3f"


def deadline() -> float:
    return clock.lease_time(clock.BOOTTIME) + 30


def firing(key: str) -> Firing:
    return Firing(
        key=key,
        shard=0,
        tick=named_tick("one"),
        owner=OWNER,
        holder=Holder("a.example", 1, "batch"),
        command="true",
        fired_at=clock.wall(),
        ttl=60,
        min_gap=None,
        starting_deadline=None,
        again=False,
        schedule=None,
        zone=None,
        retries=1,
    )


def refused(database: Database, role: str, statement: str) -> bool:
    """Return whether a statement is refused for want of a right."""
    with database.connect(role) as connection:
        try:
            connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return True
    return False


def test_a_run_role_runs(granted: Database, public_path: Path) -> None:
    """Claim, heartbeat and end need no right on any table."""
    ended = Oncecron(granted.url("runner"), public_path).run(
        "k", "--tick", "one", "--", "sh", "-c", "exit 3"
    )
    assert (ended.status, ended.err) == (3, "")
    assert granted.execute("select outcome from oncecron.executions") == [("failed",)]


def test_a_run_role_can_neither_change_nor_delete_a_record(granted: Database) -> None:
    """Every way to the tables but the firing functions is refused."""
    for statement in (
        "delete from oncecron.job_execution",
        "update oncecron.job_execution set outcome = 'succeeded'",
        "update oncecron.job_key set expires_at = now()",
        "delete from oncecron.skip",
        "update oncecron.job_key set fence = 0",
        "truncate oncecron.job_execution cascade",
        "select oncecron.prune_v1(1, '0 s', '0 s', 100, 0)",
        "select oncecron.request_v1('k', 0, 1, 'stop', 'me', 15, null)",
        "select * from oncecron.release_v1('k', 0, 1, 'me')",
        "select oncecron.give_up_v1(1, null, null)",
        "select oncecron.lose_v1(1, 'expired', 'me')",
        "select oncecron.notify_v1(1)",
        "select oncecron.put_output_v1(1, 'x', 0)",
        "select * from oncecron.executions",
        "select * from oncecron.outputs",
        "select * from oncecron.job_key",
        "drop table oncecron.job_execution",
        "create table oncecron.x ()",
    ):
        assert refused(granted, "runner", statement), statement


def test_who_runs_and_reads_does_not_learn_the_secret_of_a_lease(
    granted: Database, public_path: Path
) -> None:
    """Whoever knows the owner id of another host's living lease could end it, and start a second job."""
    assert Oncecron(granted.url("owner"), public_path)("init", "--read-role", "runner").status == 0
    store = PostgresLeaseStore(granted.url("runner"), namespace="oncecron", ttl=60)
    lease = store.claim(firing("k"), deadline=deadline())
    assert isinstance(lease, Lease)
    with granted.connect("runner") as connection:
        views = connection.execute(
            "select c.oid::regclass::text from pg_class c where c.relnamespace = 'oncecron'::regnamespace"
            " and c.relkind in ('r', 'v') and has_table_privilege(c.oid, 'select')"
        ).fetchall()
        assert ("oncecron.executions",) in views
        rows = [connection.execute(f"select * from {name}").fetchall() for (name,) in views]  # type: ignore[arg-type]
    assert OWNER not in str(rows)
    assert OWNER.replace("-", "") not in str(rows)
    store.close()


def test_a_read_role_reads_and_does_nothing_else(granted: Database, public_path: Path) -> None:
    """History and locks work; a firing is refused with exit 78 and the cure."""
    reader = Oncecron(granted.url("reader"), public_path)
    assert reader("history").status == 0
    assert reader("locks").status == 0
    ended = reader.run("k", "--tick", "one", "--", "true")
    assert ended.status == 78
    assert "--run-role" in ended.err


def test_a_job_role_checks_its_fence_and_nothing_else(granted: Database, public_path: Path) -> None:
    """assert_fence alone."""
    ended = Oncecron(granted.url("runner"), public_path).run(
        "k", "--tick", "one", "--", "sh", "-c", 'printf %s "$ONCECRON_FENCING_TOKEN"'
    )
    with granted.connect("jobber") as connection:
        connection.execute("select oncecron.assert_fence('k', %s)", (int(ended.out),))
    assert refused(granted, "jobber", "select * from oncecron.executions")
    assert refused(
        granted,
        "jobber",
        "select oncecron.finish_v1(1, null, 'lost', 0, 0, 0, '', null, null, null, null, null, 0, 0)",
    )


@pytest.mark.turns(3)
@pytest.mark.parametrize("role", ["runner", "reader", "jobber"])
@pytest.mark.parametrize(
    "words", [("pause", "--all"), ("resume", "--all"), ("drain",), ("undrain", "host-a")]
)
def test_only_an_operator_role_pauses_and_drains(
    granted: Database, public_path: Path, role: str, words: tuple[str, ...]
) -> None:
    """Anybody else is refused with exit 78 and the cure, and nothing is changed."""
    told = Oncecron(granted.url(role), public_path)(*words)
    assert (told.status, told.out) == (78, b"")
    assert "`oncecron init --operator-role" in told.err
    assert granted.execute("select * from oncecron.pauses") == []


def test_an_operator_role_pauses_and_drains_and_does_nothing_else(
    granted: Database, public_path: Path
) -> None:
    """It sees what it does and how that ended; neither what jobs wrote nor any table."""
    operator = Oncecron(granted.url("operator"), public_path)
    Oncecron(granted.url("runner"), public_path).run("key", "--tick", "one", "--", "true")
    hint = operator("pause", "kee")
    assert (hint.status, "did you mean key?" in hint.err) == (66, True)
    for words in (
        ("pause", "kee", "--new"),
        ("resume", "kee"),
        ("drain",),
        ("undrain",),
        ("pause", "--all"),
        ("locks", "--pauses"),
    ):
        assert (operator(*words).status, operator(*words).err) == (0, "")
    assert operator("prune").status == 78
    assert operator.run("key", "--tick", "two", "--", "true").status == 78
    for statement in (
        "delete from oncecron.pause",
        "insert into oncecron.pause (kind, name, author) values ('host', 'h', 'me')",
        "select * from oncecron.look_v1('key', 0, 'h', null, null, 60)",
        "select oncecron.stop_starts_v1('key', 'key', 'me', null, null)",
        "select oncecron.lose_v1(1, 'expired', 'me')",
        "select oncecron.keep_v1(1, null, 'failed', 1, null, 0, null, null, null)",
        "select * from oncecron.outputs",
        "select * from oncecron.job_key",
    ):
        assert refused(granted, "operator", statement)


def test_an_operator_role_stops_and_releases(granted: Database) -> None:
    """It sees the lease, asks its holder, frees it once it has ended, and sees what became of it."""
    holder = PostgresLeaseStore(granted.url("runner"), namespace="oncecron", ttl=60)
    operator = PostgresReader(granted.url("operator"), namespace="oncecron")
    lease = holder.claim(firing("k"), deadline=deadline())
    assert isinstance(lease, Lease)
    holder.listen(firing("k"), deadline=deadline())
    [view] = operator.leases()
    assert view.execution_id == lease.execution_id
    assert operator.request("k", 0, lease.execution_id, Request("stop", "ann@a", 15, None))
    told = holder.renew(lease, deadline=deadline())
    assert told
    assert told.request == Request("stop", "ann@a", 15, None)
    kept = holder.keep(lease, Ending("failed", 1, None, 0.5), deadline=deadline())
    assert kept
    assert holder.retry(lease, deadline=deadline())
    holder.close()
    granted.execute("update oncecron.job_key set expires_at = now()")
    assert (
        operator.release("k", 0, lease.execution_id, author="ann@a", force=False).answer == "other"
    )
    [view] = operator.leases()
    assert view.execution_id
    answer = operator.release("k", 0, view.execution_id, author="ann@a", force=False)
    assert answer.answer == "free"
    execution = operator.execution(view.execution_id)
    assert execution
    assert execution.outcome == "lost"
    operator.close()


@pytest.mark.turns(1)
@pytest.mark.parametrize("role", ["runner", "reader", "jobber"])
def test_only_an_operator_role_stops_and_releases(granted: Database, role: str) -> None:
    """Anybody else is told what it needs; it takes more to end a session of the firings."""
    holder = PostgresLeaseStore(granted.url("runner"), namespace="oncecron", ttl=60)
    lease = holder.claim(firing("k"), deadline=deadline())
    assert isinstance(lease, Lease)
    granted.execute("update oncecron.job_key set expires_at = now()")
    other = PostgresReader(granted.url(role), namespace="oncecron")
    with pytest.raises(StoreRefusesError, match="--operator-role"):
        other.request("k", 0, lease.execution_id, Request("stop", "ann@a", 15, None))
    with pytest.raises(StoreRefusesError, match="--operator-role"):
        other.release("k", 0, lease.execution_id, author="ann@a", force=True)
    other.close()
    operator = PostgresReader(granted.url("operator"), namespace="oncecron")
    with pytest.raises(StoreRefusesError, match="pg_terminate_backend"):
        operator.release("k", 0, lease.execution_id, author="ann@a", force=True)
    operator.close()
    assert holder.renew(lease, deadline=deadline())
    holder.close()


RIGHTS = """
with roles (place, name) as (values (1, 'runner'), (2, 'reader'), (3, 'operator'), (4, 'jobber')),
verbs (verb) as (values ('select'), ('insert'), ('update'), ('delete'), ('truncate'), ('references'), ('trigger')),
rights (kind, name, place, verb) as (
  select case c.relkind when 'v' then 'view' when 'r' then 'table' else c.relkind::text end, c.relname, r.place, v.verb
    from pg_class c, roles r, verbs v
   where c.relnamespace = 'oncecron'::regnamespace and c.relkind in ('r', 'v', 'm', 'p', 'f')
     and has_table_privilege(r.name, c.oid, v.verb)
  union all
  select 'sequence', c.relname, r.place, v.verb
    from pg_class c, roles r, (values ('select'), ('usage'), ('update')) v (verb)
   where c.relnamespace = 'oncecron'::regnamespace and c.relkind = 'S' and has_sequence_privilege(r.name, c.oid, v.verb)
  union all
  select 'function', p.proname, r.place, case when p.prosecdef then 'call' else 'call as itself' end
    from pg_proc p, roles r
   where p.pronamespace = 'oncecron'::regnamespace and has_function_privilege(r.name, p.oid, 'execute')
  union all
  select 'schema', n.nspname, r.place, lower(v.verb)
    from pg_namespace n, roles r, (values ('USAGE'), ('CREATE')) v (verb)
   where n.nspname = 'oncecron' and has_schema_privilege(r.name, n.oid, v.verb))
select kind, name, string_agg(verb, ', ' order by verb) filter (where place = 1),
       string_agg(verb, ', ' order by verb) filter (where place = 2),
       string_agg(verb, ', ' order by verb) filter (where place = 3),
       string_agg(verb, ', ' order by verb) filter (where place = 4)
  from rights group by kind, name order by kind = 'function', kind, name
"""
"""Every right of the four roles on the schema and on what it contains."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
TABLE = re.compile(r"(?s)<!-- rights: begin, of the catalogue -->\n(.*)\n<!-- rights: end -->")
HEAD = (
    "| | `--run-role` | `--read-role` | `--operator-role` | `--job-role` |",
    "|---|---|---|---|---|",
)


def test_the_page_has_the_rights_of_the_catalogue(granted: Database) -> None:
    """Every right of every role on everything in the schema; what fails shows the table as it should be."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for kind, name, *verbs in granted.execute(RIGHTS):
        alike.setdefault((kind, *(verb or "-" for verb in verbs)), []).append(f"`{name}`")
    rows = [
        f"| {kind}{'s' * (len(names) > 1)} {', '.join(names)} | {' | '.join(verbs)} |"
        for (kind, *verbs), names in alike.items()
    ]
    table = "\n".join([*HEAD, *rows])
    assert TABLE.findall(PAGE.read_text(encoding="utf-8")) == [table], f"\n{table}"


def test_nobody_else_has_any_right(granted: Database) -> None:
    """The schema is closed to PUBLIC."""
    rows = granted.execute(
        "select p.proname from pg_proc p where p.pronamespace = 'oncecron'::regnamespace"
        " and has_function_privilege('public', p.oid, 'execute')"
    )
    assert rows == []


def test_every_function_that_runs_with_its_owners_rights_has_a_fixed_search_path(
    granted: Database,
) -> None:
    """SECURITY DEFINER only with search_path = pg_catalog, pg_temp."""
    rows = granted.execute(
        "select proname from pg_proc where pronamespace = 'oncecron'::regnamespace"
        " and prosecdef and not ('search_path=pg_catalog, pg_temp' = any (coalesce(proconfig, '{}')))"
    )
    assert rows == []
