"""The SQL that makes a schema, in files. `people_sql` has what people need besides.

The files of a plugin stand in a folder of its own beside the others. Its `schema.sql` and `draw.sql` come after the
kernel's tables and functions; other files add their sections to those of the same name. Without the folder, the program
has no such plugin.
"""

from __future__ import annotations

import os

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LEAST
from oncecron.core.timing import HOST_FORGOTTEN_AFTER
from oncecron.stores.postgres import schema
from oncecron.stores.postgres.client import StatementError

if TYPE_CHECKING:
    from oncecron.stores.postgres.client import PostgresClient

_ENDS_PER_PRUNE = 16
"""One end of so many removes expired rows, by chance: that costs a new session as much as five ends."""
MOST_KEYS = 20_000
"""How many keys, each shard counted, a schema takes."""

DIRECTORY = os.path.join(os.path.dirname(__file__), "sql")
_KERNEL = ("tables", "presence", "shared", "look", "grant", "prune", "lease", "deliver", "operator")
"""The files of the schema; each needs those before it."""
_OF_A_PLUGIN = ("schema", "draw")
LAST = ("warm.sql", "rights.sql")
"""What a new schema and an upgrade end with: it is made of what is there."""


def script(namespace: str) -> str:
    """Return the SQL that makes the schema."""
    kernel = [text_of(f"{name}.sql") for name in _KERNEL]
    plugins = [text for name in _OF_A_PLUGIN for text in of_plugins(f"{name}.sql")]
    return filled("\n".join([*kernel, *plugins, *map(text_of, LAST)]), namespace)


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


def text_of(name: str) -> str:
    """Return the text of a file."""
    with open(os.path.join(DIRECTORY, name), encoding="utf-8") as file:
        return file.read()


def of_plugins(name: str) -> list[str]:
    """Return the texts of the files of this name that plugins have."""
    files = (os.path.join(folder, name) for folder in sorted(os.listdir(DIRECTORY)))
    return [text_of(file) for file in files if os.path.isfile(os.path.join(DIRECTORY, file))]


def filled(text: str, namespace: str, **values: str) -> str:
    """Return a text with its places filled: `{ns}`, those of the product's constants, and some values."""
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
