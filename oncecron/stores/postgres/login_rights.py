"""Say which SQL, or which line of pg_hba.conf, lets a role in that the server has refused."""

from __future__ import annotations

import re

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SQL = (
    (r'role "(.+?)" is not permitted to log in', "alter role {} login"),
    (r'role "(.+?)" does not exist', "create role {} login"),
    (r'database "(.+?)" does not exist', "create database {}"),
    (r'permission denied for database "(.+?)"', "grant connect on database {} to {role}"),
)
_HBA = re.compile(r'no pg_hba\.conf entry for host "(.+?)", user "(.+?)", database "(.+?)"(.*)')
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def cure_of(text: str, settings: Mapping[str, str | None] | None = None) -> str | None:
    """Return the cure for a message of the server on one line; None: it is not about such a right.

    `settings`: what libpq used; the role in them is meant where the message names none.
    """
    if found := _HBA.search(text):
        return f"add the line `{_line(*found.groups())}` to the server's pg_hba.conf and reload it"
    for pattern, statement in _SQL:
        if found := re.search(pattern, text):
            role = (settings or {}).get("user") or "ROLE"
            sql = statement.format(quoted(found[1]), role=quoted(role))
            otherwise = (
                ", or correct the store's URL" if "FATAL" in text and "create" in sql else ""
            )
            return f"have a superuser run `{sql}`{otherwise}"
    return None


def _line(host: str, user: str, database: str, rest: str) -> str:
    names = " ".join(name if _PLAIN.fullmatch(name) else f'"{name}"' for name in (database, user))
    if host == "[local]":
        return f"local {names} scram-sha-256"
    encrypted = "SSL on" in rest or "SSL encryption" in rest
    network = f"{host}/{128 if ':' in host else 32}"
    return f"{'hostssl' if encrypted else 'host'} {names} {network} scram-sha-256"


def quoted(name: str) -> str:
    """Return a name for SQL that people read: in quotes if it needs them."""
    return name if _PLAIN.fullmatch(name) else '"{}"'.format(name.replace('"', '""'))
