"""The SQL files: what makes and upgrades a schema, the rights that `oncecron init` gives, and the queries of people.

The files of a plugin stand in a folder of its own beside the others. Its `schema.sql` and `draw.sql` come after the
kernel's tables and functions; other files add their sections to those of the same name. Without the folder, the program
has no such plugin.
"""

from __future__ import annotations

import os

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LEAST
from oncecron.core.timing import HOST_FORGOTTEN_AFTER
from oncecron.stores import schema_version
from oncecron.stores.postgres import schema
from oncecron.stores.postgres.client import StatementError
from oncecron.stores.schema_version import Recorded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncecron.core.log_rows import LeastRetention
    from oncecron.stores.postgres.client import PostgresClient

_ENDS_PER_PRUNE = 16
"""One end of so many removes expired rows, by chance: that costs a new session as much as five ends."""
MOST_KEYS = 20_000
"""How many keys, each shard counted, a schema takes."""

_DIRECTORY = os.path.join(os.path.dirname(__file__), "sql")
STEPS = os.path.join(_DIRECTORY, "steps")
_KERNEL = ("tables", "presence", "shared", "look", "grant", "prune", "lease", "deliver", "operator")
"""The files of the schema; each needs those before it."""
_OF_A_PLUGIN = ("schema", "draw")
_LAST = ("warm.sql", "rights.sql")
"""What a new schema and an upgrade end with: it is made of what is there."""
_MARKS = "update {ns}.meta set version = {version}, oldest = {oldest};\n"


def script(namespace: str) -> str:
    """Return the SQL that makes the schema."""
    kernel = [_text(f"{name}.sql") for name in _KERNEL]
    plugins = [text for name in _OF_A_PLUGIN for text in _of_plugins(f"{name}.sql")]
    return _filled("\n".join([*kernel, *plugins, *map(_text, _LAST)]), namespace)


def install(client: PostgresClient, namespace: str, *, deadline: float) -> None:
    """Create the schema, in one transaction; one that is there is left alone.

    CREATE SCHEMA waits for another session that is creating it, and then fails. Raises `StatementError`, which leaves
    nothing behind.
    """
    client.ask(b"begin", (), deadline=deadline)
    try:
        client.script(script(namespace).encode(), deadline=deadline)
        client.ask(b"commit", (), deadline=deadline)
    except StatementError as error:
        client.ask(b"rollback", (), deadline=deadline)
        if error.sqlstate not in schema.MADE_MEANWHILE:
            raise
    except BaseException:
        client.close()
        raise


def upgrade(namespace: str, found: Recorded) -> str:
    """Return the SQL that upgrades a schema, for a transaction that has locked it; none if it has this version.

    A step waits for a table at most a second, because heartbeats wait behind it. Raises `StoreRefusesError`.
    """
    steps = schema_version.missing(schema.where(namespace), found, schema.VERSION, STEPS)
    if not steps:
        return ""
    parts = ("set local lock_timeout = '1s';\n", *steps, _MARKS, *map(_text, _LAST))
    rights = {part: grants(namespace, {part: ("{role}",)}) for part in _sections("grants.sql")}
    return _filled("".join([*parts, _text("kept_rights.sql")]), namespace, **rights)


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
    return _filled(_text("printed.sql"), namespace, made=made, upgrades="".join(branches))


def settings(namespace: str, least: LeastRetention) -> str:
    """Return the SQL that sets the least retention, as far as it is given."""
    changes = ", ".join(f"least_{name} = {seconds!r}" for name, seconds in least.given().items())
    return f"update {schema.quoted(namespace)}.meta set {changes};\n" if changes else ""


def grants(namespace: str, roles: Mapping[str, Sequence[str]]) -> str:
    """Return the SQL that grants the roles their rights, by the fields of `Roles`."""
    rights, ns = _sections("grants.sql"), schema.quoted(namespace)
    found = [
        rights[part].replace("{ns}", ns).replace("{role}", '"' + role.replace('"', '""') + '"')
        for part, names in roles.items()
        for role in names
    ]
    return "".join(f"{text}\n" for text in found)


def statements(namespace: str) -> dict[str, str]:
    """Return the queries of people by name; they read only views and catalogs."""
    ns = schema.quoted(namespace)
    return {name: text.replace("{ns}", ns) for name, text in _sections("reader.sql").items()}


def _text(name: str) -> str:
    with open(os.path.join(_DIRECTORY, name), encoding="utf-8") as file:
        return file.read()


def _of_plugins(name: str) -> list[str]:
    files = (os.path.join(folder, name) for folder in sorted(os.listdir(_DIRECTORY)))
    return [_text(file) for file in files if os.path.isfile(os.path.join(_DIRECTORY, file))]


def _sections(name: str) -> dict[str, str]:
    """Return the sections of a file, and of those of plugins; `{NAME}` in one stands for an earlier one."""
    found: dict[str, str] = {}
    for text in (_text(name), *_of_plugins(name)):
        for part in text.split("\n-- name: ")[1:]:
            title, *lines = part.splitlines()
            section = "\n".join(line for line in lines if not line.startswith("--")).strip()
            for other, piece in found.items():
                section = section.replace("{" + other + "}", piece)
            found[title] = "\n".join(filter(None, (found.get(title), section)))
    return found


def _filled(text: str, namespace: str, **values: str) -> str:
    known = {
        "ns": schema.quoted(namespace),
        "version": schema.VERSION,
        "oldest": schema.OLDEST or "null",
        "host_forgotten_after": HOST_FORGOTTEN_AFTER,
        "ends_per_prune": _ENDS_PER_PRUNE,
        "most_keys": MOST_KEYS,
        **{f"least_{name}": seconds for name, seconds in LEAST._asdict().items()},
        **values,
    }
    for name, value in known.items():
        text = text.replace("{" + name + "}", str(value))
    return text
