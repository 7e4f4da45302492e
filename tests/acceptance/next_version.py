"""A next version of oncecron, whose schema has one more column: a patched copy of the package.

It records on each execution which oncecron ended it (`ended_by`), by a new function, and changes a function that has a
twin (warm.sql). The schema is made anew by it, or brought to its version by the step 0002.
"""

import re
from pathlib import Path
from typing import NamedTuple

from proof.patched import INSTALLED, Change, Mutation, copy

NEXT = "0.2.0"
FINISH = """
create function {ns}.finish_v2(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer,
  p_duration double precision, p_note text, p_output text, p_output_cut bigint, p_lost_reason text,
  p_request text, p_requested_by text, p_keep_executions double precision, p_keep_skips double precision,
  p_ended_by text
) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update {ns}.job_execution x set ended_by = p_ended_by where x.execution_id = p_execution_id and x.owner = p_owner;
  select {ns}.finish_v1(p_execution_id, p_owner, p_outcome, p_exit_code, p_signal, p_duration, p_note, p_output,
                        p_output_cut, p_lost_reason, p_request, p_requested_by, p_keep_executions, p_keep_skips)
$$;
"""
OLD_ROOM, NEW_ROOM = "cardinality(h.plain) < 240", "cardinality(h.plain) < 239"
_PRESENCE = (INSTALLED / "stores/postgres/sql/presence.sql").read_text()
[_ROOM] = re.findall(r"(function \{ns\}\.see_again_v1\(.*?\$\$;\n)", _PRESENCE, re.DOTALL)
STEPS = {
    "stores/postgres/sql/steps/0002_ended_by.sql": "-- Who ended an execution.\n"
    "alter table {ns}.job_execution add column ended_by text;\n"
    f"{FINISH}create or replace {_ROOM.replace(OLD_ROOM, NEW_ROOM)}",
    "stores/sqlite/sql/steps/0002_ended_by.sql": "-- name: ended_by\n"
    "ALTER TABLE job_execution ADD COLUMN ended_by TEXT\n",
    "stores/redis/lua/steps/0002_ended_by.lua": """
for id, text in pairs(hash(shared.executions)) do
  local row = cjson.decode(text)
  row.ended_by = 'before'
  write('HSET', shared.executions, id, cjson.encode(row))
end
""",
}


def _after(name: str, text: str, more: str) -> Change:
    return Change(name, text, text + more)


def _versions(name: str, constant: str) -> tuple[Change, Change]:
    """Return the changes to a store that makes version 2, which serves programs of version 1 too."""
    return (
        Change(name, f"\n{constant} = 1\n", f"\n{constant} = 2\n"),
        Change(name, "OLDEST: int | None = None", "OLDEST: int | None = 1"),
    )


def _changes() -> tuple[Change, ...]:
    text = (INSTALLED / "stores/postgres/sql/lease.sql").read_text()
    [finish] = re.findall(r"create function \{ns\}\.finish_v1\(.*?\$\$;\n", text, re.DOTALL)
    postgres, sqlite, redis = "stores/postgres/", "stores/sqlite/", "stores/redis/"
    last = "  place         {ns}.place_text,             -- where the next attempt of the tick goes on, in ASCII\n"
    ends = "    given.finished_at = seconds(now)\n    conclude("
    return (
        Change("__init__.py", '__version__ = "0.1.0"', f'__version__ = "{NEXT}"'),
        *_versions(f"{postgres}schema.py", "VERSION"),
        *_versions(f"{sqlite}connection.py", "SCHEMA_VERSION"),
        *_versions(f"{redis}scripts.py", "LAYOUT"),
        Change(f"{postgres}sql/grants.sql", "{ns}.finish_v1,", "{ns}.finish_v1, {ns}.finish_v2,"),
        Change(
            f"{postgres}lease_store.py",
            'self._value(self._door("finish_v1", deadline), values, deadline)',
            f'self._value("finish_v2", {{**values, "ended_by": "{NEXT}"}}, deadline)',
        ),
        _after(f"{postgres}sql/tables.sql", last, "  ended_by      text,\n"),
        _after(f"{postgres}sql/lease.sql", finish, FINISH),
        Change(f"{postgres}sql/presence.sql", OLD_ROOM, NEW_ROOM),
        _after(f"{sqlite}sql/schema.sql", "goes on (`place_text`)\n", "  ended_by      TEXT,\n"),
        Change(
            f"{sqlite}sql/firing.sql",
            "       finished_at = :finished_at, note",
            f"       ended_by = '{NEXT}', finished_at = :finished_at, note",
        ),
        Change(f"{redis}lua/finish.lua", ends, f"    row.ended_by = '{NEXT}'\n{ends}"),
        _after(
            "run/spool.py", '        "kind": "execution",\n', f'        "ended_by": "{NEXT}",\n'
        ),
    )


class Release(NamedTuple):
    """An installed version."""

    script: Path
    library: Path


def next_version(to: Path, ends_with: str = "") -> Release:
    """Make the next version in a new directory; `ends_with` is added to the step of every store."""
    script = copy(Mutation("next", "", (), (), _changes()), to)
    for name, text in STEPS.items():
        path = to / INSTALLED.name / name
        path.parent.mkdir()
        path.write_text(text + ends_with)
    return Release(script, to)
