"""What a failed connection means, and what cures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from oncecron.errors import StoreRefusesError, StoreUnavailable
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from oncecron.errors import StoreError

# libpq tells no SQLSTATE of a connection that failed, and servers translate their messages: what is not known here
# is tried again until the budget ends, which costs time but never a run.
_PERMANENT = (
    ("password authentication failed", "check the password in the store's URL or in ~/.pgpass"),
    ("no password supplied", "give the password in ~/.pgpass, in store_file or by a service"),
    ("no pg_hba.conf entry", "let this host in by the server's pg_hba.conf"),
    ("not permitted to log in", "give the role the right LOGIN"),
    ("definition of service", "check PGSERVICE and the service file"),
    ("permission denied for database", "grant CONNECT on the database to the role"),
    ("does not exist", "create it, or correct the store's URL"),
    ("certificate verify failed", "check sslrootcert"),
    ("does not support SSL", "set sslmode=prefer, or turn SSL on at the server"),
    ("session is read-only", "name the primary, or all servers: postgresql://a,b/database"),
    ("hot standby", "name the primary, or all servers: postgresql://a,b/database"),
    ("Servname not supported", "correct the port in the store's URL"),
)


def explain(error: Exception, url: str) -> StoreError:
    """Return the oncecron error for a connection that failed."""
    text = " ".join(str(error).split())
    if isinstance(error, psycopg.ProgrammingError):  # libpq could not even read it
        return StoreRefusesError(
            f"PostgreSQL {masked(url)}: {masked(text)}; correct the store's URL"
        )
    for found, cure in _PERMANENT:
        if found in text:
            return StoreRefusesError(f"PostgreSQL {masked(url)}: {masked(text)}; {cure}")
    return StoreUnavailable(f"PostgreSQL {masked(url)}: {masked(text)}")
