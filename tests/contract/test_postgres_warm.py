"""The twins of SQL functions on PostgreSQL: a pooler's sessions call them, and they differ in their language alone."""

import re
from typing import Any

import pytest
from hosts import Host
from postgres_stores import PooledPostgresKind, PostgresKind, UnheldPostgresKind

from oncecron.core import clock
from oncecron.core.tick import minute_tick, named_tick
from oncecron.stores.postgres.session import PostgresSession

DIFFERENCES = """
with functions as (
  select p.proname::text as name, l.lanname::text as language,
         (to_jsonb(p) - '{oid,proname,prolang,prosrc,proacl,procost,proargdefaults}'::text[]) as others,
         pg_get_function_arguments(p.oid) as arguments
    from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'oncecron'::regnamespace)
select w.name, s.name, w.language from functions w
  left join functions s on s.name = substr(w.name, 6) and (s.others, s.arguments) = (w.others, w.arguments)
 where w.name like 'warm\\_%'
"""


@pytest.mark.parametrize("store_kind", ["postgres"])
def test_twins_differ_in_their_language_alone(store: PostgresKind) -> None:
    """Arguments, answers, rights of the owner, settings."""
    found = store.database.execute(DIFFERENCES)
    assert len(found) == 10
    for twin, original, language in found:
        assert (original, language) == (twin.removeprefix("warm_"), "plpgsql")


@pytest.mark.parametrize(
    ("made", "is_warm"),
    [(PostgresKind, False), (UnheldPostgresKind, False), (PooledPostgresKind, True)],
)
def test_a_session_of_a_pooler_calls_the_twins(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    made: type[PostgresKind],
    is_warm: bool,
) -> None:
    """And one of the server's own the functions that cost a new session less."""
    called: list[str] = []
    select = PostgresSession._select

    def watch(self: PostgresSession, sources: str, *values: Any, **named: Any) -> Any:
        called.extend(re.findall(r"oncecron\"?\.(\w+)\(", sources))
        return select(self, sources, *values, **named)

    monkeypatch.setattr(PostgresSession, "_select", watch)
    kind = made(request)
    a, b = Host(kind.firing(), "a"), Host(kind.firing(), "b")
    at = clock.wall()
    for number in range(-3, 0):  # a pooler's random number may look like a pid
        tick = minute_tick(at + 60 * number)
        a.run(tick, fired_at=at)
        b.lose(tick, fired_at=at)
        a.run(named_tick(f"name{number}"), key="named")
        b.lose(named_tick(f"name{number}"), key="named")
    doors = ("finish_v1", "grant_v1", "look_at_tick_v1", "look_v1", "see_again_v1", "skip_v1")
    found = {name for name in called if name.removeprefix("warm_") in doors}
    assert found >= {f"warm_{name}" if is_warm else name for name in doors}
    assert is_warm or found == set(doors)
    kind.close()
