"""What a failed connection means, and what cures it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
    ("invalid port number", "correct the port in the store's URL"),
    ("invalid integer value", "correct the store's URL"),
)


def parameters(patience: float, name: str) -> dict[str, str]:
    """Return what oncecron asks of libpq where the address says nothing else.

    `patience`: seconds that one host may take; `name`: application_name.
    """
    seconds = max(2, int(patience))  # libpq's smallest connect_timeout
    wanted = {
        "connect_timeout": str(seconds),
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": str(seconds * 1000),
        "target_session_attrs": "read-write",
        "client_encoding": "utf8",
        "application_name": name[:63],
    }
    if "PGTARGETSESSIONATTRS" in os.environ:
        del wanted["target_session_attrs"]
    return wanted


def broken(message: str, url: str) -> StoreError:
    """Return the error for an address that libpq cannot even read."""
    text = " ".join(message.split())
    return StoreRefusesError(f"PostgreSQL {masked(url)}: {masked(text)}; correct the store's URL")


def explain(message: str, url: str) -> StoreError:
    """Return the oncecron error for a connection that failed, from libpq's message."""
    text = " ".join(message.split())
    for found, cure in _PERMANENT:
        if found in text:
            return StoreRefusesError(f"PostgreSQL {masked(url)}: {masked(text)}; {cure}")
    return StoreUnavailable(f"PostgreSQL {masked(url)}: {masked(text)}")
