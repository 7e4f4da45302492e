"""What is set for a role, a database or a server: a session sets itself what oncecron needs."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Database, PgBouncer, PostgresServer
from servers.oncecron import Ended, Oncecron

STRANGE = {
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "synchronous_commit": "off",
    "search_path": "evil, pg_catalog",
    "extra_float_digits": "-15",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Australia/Lord_Howe",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "jit_above_cost": "0",
    "plan_cache_mode": "force_generic_plan",
}
EVIL = """
create schema evil;
grant usage on schema evil to public;
create function evil.now() returns timestamptz language sql as $$ select '1999-01-01'::timestamptz $$;
create function evil.set_config(text, text, boolean) returns text language sql as $$ select 'evil' $$;
create function evil.pg_backend_pid() returns integer language sql as $$ select 1 $$;
create function evil.current_setting(text) returns text language sql as $$ select 'evil' $$;
create function evil.version() returns text language sql as $$ select 'evil' $$
"""


def alter(database: Database, whose: str, settings: dict[str, str]) -> None:
    """Set what new sessions have: those of a role, or all of the database."""
    for name, value in settings.items():
        words = ", ".join(f"'{each.strip()}'" for each in value.split(","))
        database.server.execute(f"alter {whose} set {name} = {words}")


def fine(ended: Ended, status: int = 0) -> str:
    """Check the exit status, and that nothing was said on standard error; return the output."""
    assert (ended.status, ended.err) == (status, "")
    return ended.out.decode()


@pytest.mark.turns(1)
@pytest.mark.parametrize("source", ["database", "role"])
def test_settings_of_a_role_or_a_database_change_nothing(
    database: Database, public_path: Path, source: str
) -> None:
    """Every step of a firing, and what people ask: as with PostgreSQL's defaults."""
    database.execute(EVIL)
    whose = [f"database {database.name}"]
    if source == "role":
        whose = [f"role {role} in database {database.name}" for role in ("owner", "runner")]
    for each in whose:
        alter(database, each, STRANGE)
    owner = Oncecron(database.url("owner"), public_path)
    host = Oncecron(database.url("runner"), public_path)
    roles = ("--run-role", "runner", "--read-role", "runner", "--operator-role", "runner")
    assert owner("init", *roles).status == 0
    at = time.time()
    retried = ("--retries", "1", "--retry-delay", "0s")
    fine(host.run("k", "--tick", "1", *retried, "--capture", "4k", "--", "sh", "-c", "exit 3"), 3)
    fine(host.run("k", "--tick", "1", "--", "true"))
    fine(host.run("k", "--schedule", "0 0 1 * *", "--tz", "UTC", "--", "true"))
    fine(host.run("k", "--schedule", "0 0 1 * *", "--tz", "UTC", "--", "true"))
    rows = json.loads(fine(host("history", "k", "--json")))
    assert [row["outcome"] for row in rows] == ["succeeded", "failed", "failed"]
    assert abs(_seconds(host, rows[0]["started_at"]) - at) < 60
    skips = json.loads(fine(host("history", "k", "--skips", "--json")))
    assert {(row["tick"] == "1", row["reason"]) for row in skips} == {(True, "done"), (False, "done")}  # fmt: skip
    fine(host("why", "k"))
    fine(host("hosts"))
    fine(host("pause", "k"))
    fine(host.run("k", "--tick", "2", "--", "false"))
    fine(host("resume", "k"))
    fine(host("audit"))
    items = ("--items", "seq 30", "--slots", "2", "--jobs", "2", "--batch", "4")
    fine(host("each", "--key", "e", "--tick", "1", *items, "--", "true"))
    assert len(json.loads(fine(host("items", "e", "--state", "done", "--json")))) == 30
    fine(owner("prune"))
    doctor = {row["subject"]: row for row in json.loads(host("doctor", "--json").out)}
    assert doctor["isolation"]["text"] == "read committed"
    assert doctor["server"]["text"].startswith("PostgreSQL 1")
    assert doctor["clock"]["state"] == "ok"


def _seconds(host: Oncecron, text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_a_claim_waits_for_the_disk(database: Database, public_path: Path) -> None:
    """Also where the server lets others not wait: a claim that a crash loses would be granted again."""
    host = Oncecron(database.url("owner"), public_path)
    assert host("init").status == 0
    database.execute(
        """
        create function show() returns trigger language plpgsql as $$
        begin
          if current_setting('synchronous_commit') <> 'on' then raise 'does not wait'; end if;
          return null;
        end $$;
        create trigger show after insert or update on oncecron.job_execution execute function show()
        """
    )
    assert database.execute("show synchronous_commit") == [("off",)]
    fine(host.run("k", "--tick", "1", "--", "true"))


def test_a_server_that_is_read_only_is_refused(
    new_postgres: Callable[..., PostgresServer], public_path: Path
) -> None:
    """An administrator has shut it out, perhaps because another one is the primary now: exit 78, with the cure."""
    server = new_postgres()
    database = server.create_database()
    server.configure(default_transaction_read_only="on")
    host = Oncecron(database.url("owner"), public_path)
    for words in (("run", "--key", "k", "--tick", "1", "--", "true"), ("history",), ("init",)):
        ended = host(*words)
        assert ended.status == 78, ended
        assert "session is read-only" in ended.err
        assert "set default_transaction_read_only = off" in ended.err
        assert ended.err.count("\n") == 1


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("default_transaction_read_only", "on", "default_transaction_read_only = off"),
        ("default_transaction_isolation", "serializable", "default_transaction_isolation = 'read committed'"),
    ],
)  # fmt: skip
def test_behind_a_pooler_the_cure_is_told(
    database: Database, new_pgbouncer: Callable[..., PgBouncer], public_path: Path,
    name: str, value: str, said: str,
) -> None:  # fmt: skip
    """A session of a transaction pooler is also others', so nothing is set in it: exit 78."""
    assert Oncecron(database.url("owner"), public_path)("init").status == 0
    alter(database, f"database {database.name}", {name: value})
    pooler = new_pgbouncer(database.server, "transaction")
    host = Oncecron(database.url("owner", via=pooler), public_path)
    ended = host.run("k", "--tick", "1", "--", "true")
    assert ended.status == 78, ended
    assert said in ended.err
