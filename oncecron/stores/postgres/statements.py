"""The statements of `reader.sql` by name."""

from __future__ import annotations

import os

from oncecron.stores.postgres import schema


def statements(namespace: str) -> dict[str, str]:
    """Return the statements of reader.sql by name, for this namespace."""
    path = os.path.join(os.path.dirname(__file__), "sql", "reader.sql")
    with open(path, encoding="utf-8") as file:
        parts = (part.partition("\n") for part in file.read().split("\n-- name: ")[1:])
    sections = {name.strip(): _without_comments(text) for name, _, text in parts}
    of_keys = sections["executions_of_keys"]
    sections = {
        name: text.replace("{executions_of_keys}", of_keys) for name, text in sections.items()
    }
    shared = (
        "execution_columns",
        "execution_filters",
        "skip_columns",
        "skip_filters",
        "plain_filters",
        "pause_columns",
    )
    for name in shared:
        sections = {
            key: text.replace("{" + name + "}", sections[name]) for key, text in sections.items()
        }
    ns = schema.quoted(namespace)
    return {name: text.replace("{ns}", ns) for name, text in sections.items()}


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
