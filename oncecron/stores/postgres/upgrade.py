"""The SQL of `oncecron init` for a schema that is there: the steps to this version, and the rights that roles have."""

from __future__ import annotations

import os

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import Roles
from oncecron.stores import schema_version
from oncecron.stores.postgres import schema
from oncecron.stores.schema_version import Recorded

if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS = os.path.join(schema.DIRECTORY, "steps")
_MARKS = "update {ns}.meta set version = {version}, oldest = {oldest};\n"


def upgrade(namespace: str, found: Recorded) -> str:
    """Return the SQL that upgrades a schema, for a transaction that has locked it; none if it has this version.

    A step waits for a table at most a second, because heartbeats wait behind it. Raises `StoreRefusesError`.
    """
    where = schema.where(namespace)
    steps = schema_version.missing(where, found, schema.VERSION, STEPS)
    if not steps:
        return ""
    rights = {
        part: schema.grants(namespace, Roles(**{part: ("{role}",)})) for part in Roles._fields
    }
    parts = ("set local lock_timeout = '1s';\n", *steps, _MARKS, schema.part("rights.sql"))
    return schema.filled("".join(parts), namespace) + _filled("kept_rights.sql", namespace, rights)


def printed(namespace: str) -> str:
    """Return the SQL that creates the schema, or upgrades one, for a transaction of its owner."""
    made = schema.script(namespace)
    first = min(schema_version.steps(STEPS), default=schema.VERSION + 1) - 1
    if first == schema.VERSION:
        return made
    branches = (
        f"  elsif v_version = {number} then execute $step$\n{upgrade(namespace, Recorded(number))}$step$;\n"
        for number in range(first, schema.VERSION)
    )
    return _filled("printed.sql", namespace, {"made": made, "upgrades": "".join(branches)})


def _filled(name: str, namespace: str, values: Mapping[str, str]) -> str:
    text = schema.filled(schema.part(name), namespace)
    for place, value in values.items():
        text = text.replace("{" + place + "}", value)
    return text
