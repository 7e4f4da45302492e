"""The SQL that people need: it upgrades a schema, gives rights, sets the least retention, and reads."""

from __future__ import annotations

import os

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import Roles
from oncecron.stores import schema_version
from oncecron.stores.postgres import schema
from oncecron.stores.postgres.sql_files import DIRECTORY, LAST, filled, of_plugins, script, text_of
from oncecron.stores.schema_version import Recorded

if TYPE_CHECKING:
    from oncecron.core.log_rows import LeastRetention

STEPS = os.path.join(DIRECTORY, "steps")
_MARKS = "update {ns}.meta set version = {version}, oldest = {oldest};\n"


def upgrade(namespace: str, found: Recorded) -> str:
    """Return the SQL that upgrades a schema, for a transaction that has locked it; none if it has this version.

    A step waits for a table at most a second, because heartbeats wait behind it. Raises `StoreRefusesError`.
    """
    steps = schema_version.missing(schema.where(namespace), found, schema.VERSION, STEPS)
    if not steps:
        return ""
    parts = ("set local lock_timeout = '1s';\n", *steps, _MARKS, *map(text_of, LAST))
    rights = {part: grants(namespace, Roles(**{part: ("{role}",)})) for part in Roles._fields}
    return filled("".join([*parts, text_of("kept_rights.sql")]), namespace, **rights)


def printed(namespace: str) -> str:
    """Return the SQL that creates the schema, or upgrades one, for a transaction of its owner."""
    made = script(namespace)
    first = min(schema_version.steps(STEPS), default=schema.VERSION + 1) - 1
    if first == schema.VERSION:
        return made
    branches = (
        f"  elsif v_version = {number} then execute $step$\n{upgrade(namespace, Recorded(number))}$step$;\n"
        for number in range(first, schema.VERSION)
    )
    return filled(text_of("printed.sql"), namespace, made=made, upgrades="".join(branches))


def settings(namespace: str, least: LeastRetention) -> str:
    """Return the SQL that sets the least retention, as far as it is given."""
    changes = ", ".join(f"least_{name} = {seconds!r}" for name, seconds in least.given().items())
    return f"update {schema.quoted(namespace)}.meta set {changes};\n" if changes else ""


def grants(namespace: str, roles: Roles) -> str:
    """Return the SQL that grants the roles their rights."""
    rights, ns = _sections("grants.sql"), schema.quoted(namespace)
    found = [
        rights[part].replace("{ns}", ns).replace("{role}", '"' + role.replace('"', '""') + '"')
        for part, names in roles._asdict().items()
        for role in names
    ]
    return "".join(f"{text}\n" for text in found)


def statements(namespace: str) -> dict[str, str]:
    """Return the queries of people by name; they read only views and catalogs."""
    ns = schema.quoted(namespace)
    return {name: text.replace("{ns}", ns) for name, text in _sections("reader.sql").items()}


def _sections(name: str) -> dict[str, str]:
    """Return the sections of a file, and of those of plugins; `{NAME}` in one stands for an earlier one."""
    found: dict[str, str] = {}
    for text in (text_of(name), *of_plugins(name)):
        for part in text.split("\n-- name: ")[1:]:
            title, *lines = part.splitlines()
            section = "\n".join(line for line in lines if not line.startswith("--")).strip()
            for other, piece in found.items():
                section = section.replace("{" + other + "}", piece)
            found[title] = "\n".join(filter(None, (found.get(title), section)))
    return found
