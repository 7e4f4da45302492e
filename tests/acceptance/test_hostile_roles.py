"""Each role calls every function with hostile arguments, and every table and view with every verb.

A call begins as a plausible one, against a key that another host holds, one that it holds between two attempts, the
role's own key, or a paused one. Then some of its arguments become hostile. ONCECRON_TEST_HOSTILE says how many
programs of calls are tried for each role.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import story_stores
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from psycopg import sql
from servers import eventually

from oncecron.core import clock
from oncecron.core.model import Ending, Firing, Holder, Lease, Output, Refusal, Retention
from oncecron.core.tick import named_tick
from oncecron.stores.postgres.lease_store import PostgresLeaseStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from servers import Database

PROGRAMS_TRIED = int(os.environ.get("ONCECRON_TEST_HOSTILE", "25"))
ROLES = ("runner", "reader", "operator", "jobber", "outsider")
INSUFFICIENT_PRIVILEGE = "42501"
DOCUMENTED = re.compile(r"22...|23...|42501|42846|54000|55P03|P0002|OC00[1-3]")
"""Data exceptions, violated constraints, rights, a value too long for an index, a lock that is not free, and our own.

No syntax error, which would be an injection; no internal error; no timeout.
"""
KEYS = ("held", "between", "mine", "free", "paused")
WIDE = "x" * 20_000
TEXTS = (
    *(*KEYS, "*", "host-a", "evil", "one", "two", "three", "key", "host", "skip", "stop", "release"),
    *("running", "succeeded", "failed", "lost", "not-started", "unclaimed", "schedule", "retry"),
    *("", " ", "-", "NaN", "%s %I %%", "'; drop table oncecron.job_key; --", '"', "\\", "\n", "\x01"),
    *("2999-01-01T00:00Z", "00000000-0000-0000-0000-000000000000", "\u202e\U0001f480", WIDE),
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 15, 64, 9999, 2**31 - 1, -(2**31), 2**53)
LARGE = (*NUMBERS, 2**31, 2**62, 2**63 - 1, -(2**63))
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 60.0, 1e-300, 1e9, 1e12, 1e18, 1e308),
    *map(float, ("nan", "inf", "-inf")),
)
TIMES = ("infinity", "-infinity", "epoch", "1900-01-01", "294276-12-31", "4713-01-01 BC")
HOSTILE: dict[str, tuple[Any, ...]] = {
    "text": (None, *TEXTS),
    "integer": (None, *NUMBERS),
    "bigint": (None, *LARGE),
    "double precision": (None, *FLOATS),
    "boolean": (None, True, False),
    "uuid": (None, "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "timestamp with time zone": (None, *TIMES),
    "json": (None, *TEXTS, *LARGE, *FLOATS[:10], 10**400, True, False, [], {}, ["held"], {"a": 1}),
}
HOSTILE["jsonb"] = (None, "[]", "1", '"held"', "{}", "[1,2]", '{"key": null}', '{"kind": "skip"}')
VERBS = {
    "select": "select * from {}",
    "insert": "insert into {} default values",
    "update": "update {} set {} = {}",
    "delete": "delete from {}",
    "truncate": "truncate {}",
    "lock": "lock table {}",
    "drop": "drop {kind} {}",
    "alter": "alter {kind} {} rename to mine",
    "trigger": "create trigger mine before update on {} execute function suppress_redundant_updates_trigger()",
}  # fmt: skip


@dataclass
class Call:
    """One call: which function, against which key, and which arguments are hostile."""

    function: int
    key: str
    hostile: dict[int, tuple[int, str]]


CALLS = st.builds(
    Call,
    function=st.integers(0, 99),
    key=st.sampled_from(KEYS),
    hostile=st.dictionaries(
        st.integers(0, 29), st.tuples(st.integers(0, 999), st.text(max_size=12)), max_size=3
    ),
)


@dataclass
class Function:
    """A function of the schema as the catalogue has it."""

    name: str
    arguments: list[tuple[str, str]]
    is_variadic: bool
    is_granted: bool

    def call(self) -> str:
        places = [f"%s::{kind}" for _, kind in self.arguments]
        if self.is_variadic:
            places[-1] = f"variadic {places[-1]}"
        return f"select * from oncecron.{self.name}({','.join(places)})"


FUNCTIONS = """
select p.proname, p.provariadic <> 0, has_function_privilege(%s, p.oid, 'execute'),
       array(select coalesce(p.proargnames[a.place], '') from generate_series(1, p.pronargs) a (place)),
       array(select format_type(case t.typtype when 'd' then t.typbasetype else t.oid end, null)
               from unnest(p.proargtypes::oid[]) with ordinality a (kind, place) join pg_type t on t.oid = a.kind
              order by place), p.prosrc
  from pg_proc p where p.pronamespace = 'oncecron'::regnamespace order by p.proname
"""
RELATIONS = """
select c.relname, case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end,
       has_table_privilege(%s, c.oid, 'select'),
       (select min(a.attname) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0)
  from pg_class c where c.relnamespace = 'oncecron'::regnamespace and c.relkind in ('r', 'v', 'S')
"""
LEASES = """
select k.key, k.owner, k.execution_id, k.acquired_at, k.ttl, k.expires_at > clock_timestamp() + interval '20 s'
  from oncecron.job_key k where k.key in ('held', 'between') and k.shard = 0 order by k.key
"""
RUNS = """
select to_jsonb(e) - %s::text[], o.output
  from oncecron.job_execution e left join oncecron.job_output o using (execution_id)
 where e.execution_id = any (%s) order by e.execution_id
"""


class Victims:
    """What another host has: runs that have ended, a lease with a running job, and one between two attempts."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._owner = database.server.superuser_connect(database.name)
        self._fresh = count(1)
        self._stores = [
            PostgresLeaseStore(database.url("runner"), namespace="oncecron", ttl=60)
            for _ in KEYS[:2]
        ]
        self._leases: list[Lease] = []
        self._executions: list[int] = []

    def execute(self, statement: str, *values: object) -> list[Any]:
        """Run one statement as superuser, in a session that stays."""
        cursor = self._owner.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def begin(self) -> None:
        tables = ("skip", "key_host", "pause", "job_output", "job_execution", "job_key")
        self.execute("; ".join(f"delete from oncecron.{table}" for table in tables))
        self._leases = [
            self._run(store, key) for store, key in zip(self._stores, KEYS[:2], strict=True)
        ]
        failed = Ending("failed", 1, None, 1.0)
        assert self._stores[1].keep(self._leases[1], failed, deadline=deadline())
        self.execute("select oncecron.pause_v1('paused', 'me', null, null)")
        for key in KEYS:
            self.execute("select oncecron.register_v1(%s, 0)", key)
        rows = self.execute("select execution_id from oncecron.job_execution")
        self._executions = [number for (number,) in rows]

    @staticmethod
    def _run(store: PostgresLeaseStore, key: str) -> Lease:
        """Run one tick of a key, skip it, and begin the next one."""
        store.close()
        ended = claimed(store, firing(key))
        ending = Ending("failed", 3, None, 1.0, "a note", Output("what it wrote", 0))
        store.finish(ended, ending, Retention(), deadline=deadline())
        store.skip(firing(key), Refusal("done"), deadline=deadline())
        store.close()  # as the end of a firing does
        return claimed(store, firing(key, "2026-01-01T00:01Z"))

    def seen(self, role: str) -> tuple[Any, ...]:
        """Return what no call of a role may change."""
        requested = ["request", "requested_by"] if role == "operator" else []
        pauses = "select to_jsonb(p) from oncecron.pause p order by 1"
        return (
            self.execute(LEASES),
            self.execute(RUNS, requested, self._executions),
            None if role == "operator" else self.execute(pauses),
        )

    def fences(self) -> list[int]:
        """Return the fencing tokens of the two keys."""
        statement = "select fence from oncecron.job_key where key in ('held', 'between') and shard = 0 order by key"
        return [fence for (fence,) in self.execute(statement)]

    def still_hold(self) -> None:
        """Fail unless both leases can be renewed, and a firing of another key starts and ends."""
        self.execute("delete from oncecron.pause where name <> 'paused'")
        for store, lease in zip(self._stores, self._leases, strict=True):
            assert store.renew(lease, deadline=deadline())
        assert isinstance(self._stores[1].retry(self._leases[1], deadline=deadline()), Lease)
        honest = PostgresLeaseStore(self.database.url("runner"), namespace="oncecron", ttl=60)
        lease = claimed(honest, firing(f"fresh-{next(self._fresh)}"))
        assert honest.finish(
            lease, Ending("succeeded", 0, None, 1.0), Retention(), deadline=deadline()
        )
        honest.close()

    def close(self) -> None:
        self._owner.close()
        for store in self._stores:
            store.close()


def deadline() -> float:
    return clock.lease_time(clock.BOOTTIME) + 30


def firing(key: str, tick: str = "2026-01-01T00:00Z") -> Firing:
    """Return a firing of host-a, of an instant: retention removes those first."""
    return Firing(
        key=key, shard=0, tick=named_tick(tick), owner=str(uuid.uuid4()), holder=Holder("host-a", 1, "batch"),
        command="true", fired_at=clock.wall(), ttl=60, min_gap=None, starting_deadline=None, again=False,
        schedule=None, zone=None, retries=2,
    )  # fmt: skip


def claimed(store: PostgresLeaseStore, firing: Firing) -> Lease:
    """Claim, as often as the session lock of a session that is closing is in the way."""
    answers: list[object] = []

    def is_granted() -> bool:
        answers.append(store.claim(firing, deadline=deadline()))
        return isinstance(answers[-1], Lease)

    eventually(is_granted)
    assert isinstance(answers[-1], Lease)
    return answers[-1]


@pytest.fixture
def victims(granted: Database) -> Iterator[Victims]:
    victims = Victims(granted)
    yield victims
    victims.close()


@pytest.fixture(params=("runner", "operator", "jobber"))
def attacker(request: pytest.FixtureRequest, victims: Victims) -> Iterator[Attacker]:
    """Give a role that may call some functions."""
    with victims.database.connect(request.param) as connection:
        connection.execute("set statement_timeout = '30s'")
        yield Attacker(request.param, connection, victims)


class Attacker:
    """A role with psql: it knows everything of the log and of the keys but the owner ids of others."""

    def __init__(self, role: str, connection: psycopg.Connection[Any], victims: Victims) -> None:
        self.role = role
        self.functions, self._fields = functions(victims.database, role)
        self._connection = connection
        self._victims = victims
        self._owner = str(uuid.uuid4())

    def call(self, call: Call) -> None:
        """Call a function; fail unless it succeeds or fails as documented, and the session is as before."""
        mine = [each for each in self.functions if each.is_granted]
        function = mine[call.function % len(mine)]
        values = self._values(function, call)
        note(f"{function.name}{tuple(values)}")
        try:
            self._connection.execute(function.call(), values)
        except psycopg.Error as error:
            state = error.sqlstate or ""
            assert DOCUMENTED.fullmatch(state), f"{function.name}{values}: {state} {error}"  # noqa: PT017 - or none
        assert self._connection.execute("select 1").fetchone() == (1,)

    def _values(self, function: Function, call: Call) -> list[Any]:
        known = self._known(call.key)
        values = [known.get(name.removeprefix("p_")) for name, _ in function.arguments]
        if function.name == "deliver_v1" and call.function % 8:
            record: dict[str, Any] = {name: known.get(name) for name in self._fields}
            for place, (choice, text) in call.hostile.items():
                record[self._fields[place % len(self._fields)]] = _hostile("json", choice, text)
            return [json.dumps(record), *values[1:]]
        for place, (choice, text) in call.hostile.items():
            index = place % len(values)
            kind = function.arguments[index][1]
            if kind in HOSTILE:
                values[index] = _hostile(kind, choice, text)
        return values

    def _known(self, key: str) -> Mapping[str, Any]:
        row = self._victims.execute(
            "select key_id, version, divisions, fence, execution_id, newest_id, tick_attempt, pg_backend_pid()"
            " from oncecron.job_key where key = %s and shard = 0", key
        )  # fmt: skip
        key_id, version, divisions, fence, leased, newest, attempt, _ = (
            row[0] if row else (None,) * 8
        )
        now = clock.wall()
        return {
            "key": key, "key_id": key_id, "shard": 0, "version": version, "divisions": divisions,
            "token": (fence or 0) + 1, "fencing_token": (fence or 0) + 1, "execution_id": leased or newest,
            "awaited": leased, "tick": "three", "attempt": (attempt or 0) + 1, "owner": self._owner,
            "cause": "schedule", "outcome": "succeeded", "host": "evil", "pid": 1, "user": "evil", "command": "true",
            "fired_at": now, "started_at": now, "finished_at": now, "at": now, "duration": 1.0, "lateness": 1.0,
            "ttl": 60.0, "shards": 1, "retries": 0, "client_backend": self._connection.info.backend_pid,
            "alone": True, "full": 80, "locked": False, "listens": True, "kind": "stop", "author": "evil", "signal": 15,
            "grace": 1.0, "reason": "held", "seconds": 60.0, "count": 1, "note": "evil",
            "keep_executions": 0.0, "keep_skips": 0.0,
        }  # fmt: skip


def _hostile(kind: str, choice: int, text: str) -> Any:
    values = HOSTILE[kind]
    value = values[choice % len(values)]
    return text.replace("\0", "") if kind in ("text", "json") and choice > 900 else value


def functions(database: Database, role: str) -> tuple[list[Function], list[str]]:
    """Return the functions of the schema, and the fields of a record that they read."""
    rows = database.execute(FUNCTIONS, role)
    found = [
        Function(name, list(zip(names, kinds, strict=True)), variadic, granted)
        for name, variadic, granted, names, kinds, _ in rows
    ]
    fields = sorted({name for *_, source in rows for name in re.findall(r"p ->> '(\w+)'", source)})
    return found, fields


@pytest.mark.turns(1)
@pytest.mark.slow
@pytest.mark.timeout(300 + 2 * PROGRAMS_TRIED)  # a failure is made short
@seed(story_stores.seed())
@settings(
    max_examples=PROGRAMS_TRIED,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
@given(program=st.lists(CALLS, min_size=1, max_size=20))
def test_hostile_arguments_do_no_harm(
    attacker: Attacker, victims: Victims, program: Sequence[Call]
) -> None:
    """No living lease, no run that has ended and no other key is touched; no call fails in an unknown way or hangs."""
    victims.begin()
    before, fences = victims.seen(attacker.role), victims.fences()
    for call in program:
        attacker.call(call)
    assert victims.seen(attacker.role) == before
    assert all(now >= then for now, then in zip(victims.fences(), fences, strict=True))
    victims.still_hold()


@pytest.mark.turns(2)
@pytest.mark.parametrize("role", ROLES)
def test_no_role_calls_what_it_was_not_granted(granted: Database, role: str) -> None:
    """However the function is called."""
    found, _ = functions(granted, role)
    assert len(found) > 30
    with granted.connect(role) as connection:
        for function in (each for each in found if not each.is_granted):
            with pytest.raises(psycopg.Error) as failed:
                connection.execute(function.call(), [None] * len(function.arguments))
            assert failed.value.sqlstate == INSUFFICIENT_PRIVILEGE, function


@pytest.mark.turns(2)
@pytest.mark.parametrize("role", ROLES)
def test_no_role_has_a_verb_but_select_on_its_views(granted: Database, role: str) -> None:
    """Every verb on every table, view and sequence, and everything that makes or changes an object."""
    relations = granted.execute(RELATIONS, role)
    assert len(relations) > 12
    statements = [
        "create table oncecron.mine ()",
        "create function oncecron.mine() returns int language sql as 'select 1'",
        "create operator oncecron.= (leftarg = text, rightarg = text, function = texteq)",
        "alter schema oncecron rename to mine",
        "drop schema oncecron cascade",
        "drop function oncecron.look_v1",
        "alter function oncecron.next_number(bigint) volatile",
        "create or replace function oncecron.next_number(bigint) returns bigint language sql as 'select 1'",
        "alter default privileges in schema oncecron grant all on tables to public",
        "set role owner",
        "set session authorization owner",
    ]
    with granted.connect(role) as connection:
        for statement in statements[:-3]:
            assert refused(connection, statement), statement
        for statement in statements[-2:]:
            assert refused(connection, statement), statement
        for name, kind, may_select, column in relations:
            for verb, form in VERBS.items():
                names = [
                    sql.Identifier("oncecron", name),
                    sql.Identifier(column),
                    sql.Identifier(column),
                ]
                statement = sql.SQL(form).format(*names, kind=sql.SQL(kind)).as_string(connection)
                if verb == "select" and may_select and kind != "sequence":
                    connection.execute(statement)
                else:
                    assert refused(connection, statement), (role, statement)


def refused(connection: psycopg.Connection[Any], statement: str) -> bool:
    """Return whether a statement fails, for want of a right or because such an object cannot do that."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)
    except psycopg.Error as error:
        # Or, asked before the right: object_not_in_prerequisite_state, wrong_object_type, of a view or a sequence.
        return error.sqlstate in (INSUFFICIENT_PRIVILEGE, "55000", "42809")
    return False
