"""Install the schema, check its version, and write its grants. Only `oncecron init` changes an existing schema."""

from __future__ import annotations

import time

from oncecron.core.clock import BOOTTIME
from oncecron.core.errors import (
    ConfigurationError,
    RecordRefusedError,
    StoreRefusesError,
    StoreUnavailable,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import CALL_TIMEOUT
from oncecron.stores.address import as_role, command_line, masked, shell_quoted
from oncecron.stores.postgres.address import NAME_PRIMARY, may_succeed_later
from oncecron.stores.postgres.client import StatementError

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.errors import StoreError
    from oncecron.stores.postgres.client import PostgresClient
    from oncecron.stores.schema_version import Recorded

VERSION = 1
"""The version of the schema that this program needs and makes."""
OLDEST: int | None = None
"""The oldest version of a program that this schema serves too (stores/schema_version.py)."""
AS_MADE = (str(VERSION), None if OLDEST is None else str(OLDEST))
"""The two, as a look tells them."""

MISSING = ("3F000", "42883", "42P01", "42703")
"""invalid_schema_name, undefined_function, undefined_table, undefined_column."""

_RESERVED = ("public", "information_schema")
MADE_MEANWHILE = ("42P06", "23505")
"""duplicate_schema; unique_violation: another session committed the same name while this one waited for it."""


def quoted(namespace: str) -> str:
    """Return the namespace as a quoted SQL name. Raises `ConfigurationError` for an invalid one."""
    if not (
        namespace.isascii()
        and namespace.replace("_", "").isalnum()
        and not namespace[0].isdigit()
        and len(namespace) <= 40  # noqa: PLR2004 - PostgreSQL cuts names at 63 bytes
    ):
        raise ConfigurationError(
            f"namespace {namespace!r}: 1 to 40 letters, digits and _, not starting with a digit"
        )
    if namespace.lower() in _RESERVED or namespace.lower().startswith("pg_"):
        raise ConfigurationError(
            f"namespace {namespace!r} is reserved by PostgreSQL; choose a name of your own"
        )
    return f'"{namespace}"'


def _recorded(client: PostgresClient, namespace: str) -> Recorded | None:
    from oncecron.stores.schema_version import Recorded  # noqa: PLC0415 - only where it does not fit

    deadline = time.clock_gettime(BOOTTIME) + CALL_TIMEOUT
    table = f"{quoted(namespace)}.meta"
    exists = client.ask(
        b"select pg_catalog.to_regclass($1) is not null", (table,), deadline=deadline
    )
    if exists[0][0] != b"t":
        return None
    [row] = client.ask(f"select version, oldest from {table}".encode(), (), deadline=deadline)
    return Recorded(*(None if value is None else int(value) for value in row))  # type: ignore[arg-type]


def misfit(
    schema: Recorded, namespace: str, url: str, rights: Callable[[], tuple[str, str]]
) -> StoreRefusesError | None:
    """Return the error of a schema that does not serve this program. `rights`: this role and the schema's owner."""
    from oncecron.stores import schema_version  # noqa: PLC0415 - only where it may not fit

    if schema_version.serves(schema, VERSION):
        return None
    role, owner = rights()
    init = f"run {command_line('init', url, namespace)}"
    if role != owner:
        init = (
            f"have {owner}, the owner, run {command_line('init', as_role(url, owner), namespace)}"
        )
    return schema_version.misfit(where(namespace), schema, VERSION, init)


def where(namespace: str) -> str:
    """Return the name of the schema in messages."""
    return f"PostgreSQL, schema {namespace}"


_CURES = {
    "25006": NAME_PRIMARY,
    "OC003": NAME_PRIMARY,
    "OC004": "connect to the primary itself, or switch the pooler's load balancing off",
    "OC002": "run `alter role {role} set default_transaction_isolation = 'read committed'`",
}


_BAD_VALUES = ("23502", "23514", "54000")
"""not_null_violation, check_violation, program_limit_exceeded (a value that no index can hold)."""
_DATA_EXCEPTION = "22"
"""The class of SQLSTATEs for values that a type cannot have."""
INSUFFICIENT_PRIVILEGE = "42501"
EXISTS = b"select pg_catalog.to_regnamespace($1) is not null for update"
"""Whether there is a schema of this name, whoever's, on the primary (`PostgresSession._select`)."""
ROLE_AND_OWNER = """
select current_user, pg_catalog.pg_get_userbyid(coalesce(n.nspowner, d.datdba)), n.nspname is null
  from pg_catalog.pg_database d left join pg_catalog.pg_namespace n on n.nspname = '{namespace}'
  where d.datname = pg_catalog.current_database()
"""
"""Who lacks a right, who can give it, and whether there is no schema: then that is the owner of the database."""


def rights_cure(role: str, owner: str, url: str, namespace: str, option: str = "run") -> str:
    """Return who has to run which command so that a role gets the rights that `--OPTION-role` gives."""
    words = f"init --{option}-role {shell_quoted(role)}"
    return f"have {owner}, the owner, run {command_line(words, as_role(url, owner), namespace)}"


def explain(
    error: StatementError, namespace: str, client: PostgresClient | None, url: str
) -> StoreError:
    """Return the oncecron error of a statement that the server refused."""
    if error.sqlstate in MISSING:
        return _explain_missing(error, namespace, client, url)
    if error.sqlstate == INSUFFICIENT_PRIVILEGE:
        return _explain_rights(error, namespace, client, url)
    if error.sqlstate.startswith(_DATA_EXCEPTION) or error.sqlstate in _BAD_VALUES:
        return RecordRefusedError(f"PostgreSQL, schema {namespace}: {error}")
    cure = _CURES.get(error.sqlstate)
    if cure:
        if "{role}" in cure:
            cure = cure.format(role=rights(client, namespace)[0])
        return StoreRefusesError(f"PostgreSQL, schema {namespace}: {error}; {cure}")
    kind = StoreUnavailable if may_succeed_later(error.sqlstate) else StoreRefusesError
    return kind(f"PostgreSQL, schema {namespace}: {error} (SQLSTATE {error.sqlstate})")


def _explain_rights(
    error: StatementError, namespace: str, client: PostgresClient | None, url: str
) -> StoreError:
    role, owner, without_schema = rights(client, namespace)
    cure = rights_cure(role, owner, url, namespace)
    if without_schema:
        return StoreRefusesError(
            f"PostgreSQL {masked(url)} has no schema {namespace}, and role {role} may not create it; {cure}"
        )
    return StoreRefusesError(f"PostgreSQL, schema {namespace}: {error}; {cure}")


def rights(client: PostgresClient | None, namespace: str) -> tuple[str, str, bool]:
    """Return this role, the owner, and whether there is no schema, as far as the server still answers."""
    role, owner, without_schema = "ROLE", "OWNER", False
    if client is not None:
        statement = ROLE_AND_OWNER.format(namespace=namespace).encode()
        try:
            [row] = client.ask(statement, (), deadline=time.clock_gettime(BOOTTIME) + CALL_TIMEOUT)
            role, owner = ((value or b"").decode() for value in row[:2])
            without_schema = row[2] == b"t"
        except Exception:  # noqa: BLE001, S110 - the first error is the one to report
            pass
    return role, owner, without_schema


def _explain_missing(
    error: StatementError, namespace: str, client: PostgresClient | None, url: str
) -> StoreError:
    incomplete = StoreRefusesError(
        f"{where(namespace)}: {error}; something in the schema was removed or changed: restore it from a backup"
    )
    if client is None:
        return incomplete
    try:
        found = _recorded(client, namespace)
        deadline = time.clock_gettime(BOOTTIME) + CALL_TIMEOUT
        [[is_there]] = client.ask(EXISTS, (quoted(namespace),), deadline=deadline)
    except StatementError as failure:
        missing = failure.sqlstate in MISSING
        return incomplete if missing else explain(failure, namespace, client, url)
    except Exception:  # noqa: BLE001 - the first error is the one to report
        return incomplete
    if found is not None:
        return misfit(found, namespace, url, lambda: rights(client, namespace)[:2]) or incomplete
    if is_there == b"t":
        return not_ours(namespace, url)
    role, owner, _ = rights(client, namespace)
    return absent(namespace, url, role, owner, "run")


def absent(namespace: str, url: str, role: str, owner: str, option: str) -> StoreRefusesError:
    """Return the error of a schema that is not there; the role needs what `--OPTION-role` gives."""
    cure = f"run {command_line('init', url, namespace)}"
    if role != owner:
        cure = rights_cure(role, owner, url, namespace, option)
    return StoreRefusesError(
        f"PostgreSQL {masked(url)} has no schema {namespace}; check --namespace, or {cure}"
    )


def not_ours(namespace: str, url: str) -> StoreRefusesError:
    """Return the error of a schema that has no tables of oncecron."""
    return StoreRefusesError(
        f"PostgreSQL {masked(url)}: schema {namespace} exists and is not oncecron's; choose another --namespace, or "
        "drop the schema if nothing needs it"
    )
