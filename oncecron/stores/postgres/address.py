"""Choose libpq's parameters, and turn a failed connection into a message with a cure."""

from __future__ import annotations

import os

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.masking import masked, quoting, without
from oncecron.core.timing import (
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE,
    KEEPALIVE_INTERVAL,
    SHORTEST_SERVER_TIMEOUT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oncecron.core.errors import StoreError

# libpq has no SQLSTATE for a failed connection, and servers translate their messages. An unknown message is retried
# until the budget ends: that costs time, but never a run.
_EACH_SERVER = (
    "connection to server "  # the beginning of each server's message in libpq 14 and newer
)
_TLS_REQUIRED = ("require", "verify-ca", "verify-full")
_SOCKET = ("", "/", "@")
"""How the name of a Unix socket begins; without a name libpq takes its default socket."""
_READ_ONLY = "session is read-only"
_STANDBY = (_READ_ONLY, "hot standby")
NAME_PRIMARY = (
    "name the primary, or all servers: postgresql://a,b/database; if it is the primary, set "
    "default_transaction_read_only = off"
)
_PERMANENT = (
    ("password authentication failed", "check the password in the store's URL or in ~/.pgpass"),
    ("no password supplied", "give the password in ~/.pgpass, in store_file or by a service"),
    ("no pg_hba.conf entry", "let this host in by the server's pg_hba.conf"),
    ("not permitted to log in", "give the role the right LOGIN"),
    ("definition of service", "check PGSERVICE and the service file"),
    ('service file "', "correct the file, or $PGSERVICEFILE"),
    ("permission denied for database", "grant CONNECT on the database to the role"),
    ("does not exist", "create it, or correct the store's URL"),
    (
        'requirement "!password" failed',
        "use TLS, with sslmode=verify-full in the store's URL, or let the server ask for scram-sha-256",
    ),
    ("authentication method requirement", "correct require_auth, or the server's pg_hba.conf"),
    ("requires a valid client certificate", "give the role's certificate by sslcert and sslkey"),
    ("certificate authentication failed", "give the role's certificate by sslcert and sslkey"),
    ("certificate verify failed", "check sslrootcert"),
    ("does not support SSL", "set sslmode=prefer, or turn SSL on at the server"),
    *((words, NAME_PRIMARY) for words in _STANDBY),
    ("Servname not supported", "correct the port in the store's URL"),
    ("invalid port number", "correct the port in the store's URL"),
    ("invalid integer value", "correct the store's URL"),
)
_TLS_FILES = (
    ("private key file", "correct sslkey, or the file"),
    ("root certificate file", "correct sslrootcert, or the file"),
    ("certificate file", "correct sslcert, or the file"),
)
"""Where TLS is not required, libpq connects without it after such a failure: that attempt decides."""


NO_CONNECTION = {"password": "-", "ssl_min_protocol_version": "-"}
"""With these parameters libpq reads a URL, the service file and the environment, and fails before it connects.

A protocol version that does not exist is the failure; with a password libpq does not read ~/.pgpass.
"""


ANY_PRIMARY = {"target_session_attrs": "primary"}
WRITABLE = (
    "select pg_catalog.set_config(s.name, 'off', false) from pg_catalog.pg_settings s"
    " where s.name = 'default_transaction_read_only' and s.source in ('global', 'database', 'user', 'database user')"
    " and pg_catalog.pg_backend_pid() = {}"
)
"""Make the session of this backend writable if it is the role or the database that is read-only by default.

No row: it is the server, which an administrator has shut out, or a standby, or the session is a pooler's.
"""


def may_be_writable(message: str, settings: Mapping[str, str | None]) -> bool:
    """Return whether a server that was refused as read-only may be a primary, and this libpq (14) can ask for one."""
    chosen = settings.get("target_session_attrs") or "any"
    return _READ_ONLY in message and chosen == "any" and "sslsni" in settings


def parameters(
    server_timeout: float, name: str, settings: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the connection parameters for libpq; those in the address take precedence.

    `server_timeout`: seconds that one host may take; `name`: application_name; `settings`: what libpq would use.
    """
    seconds = max(SHORTEST_SERVER_TIMEOUT, int(server_timeout))
    wanted = {
        "connect_timeout": str(seconds),
        "keepalives_idle": str(KEEPALIVE_IDLE),
        "keepalives_interval": str(KEEPALIVE_INTERVAL),
        "keepalives_count": str(KEEPALIVE_COUNT),
        "tcp_user_timeout": str(seconds * 1000),
        "target_session_attrs": "read-write",
        "client_encoding": "utf8",
        "application_name": name[:63],
    }
    if "PGTARGETSESSIONATTRS" in os.environ:
        del wanted["target_session_attrs"]
    if _could_send_password_in_clear(settings):
        wanted["require_auth"] = "!password"
    return wanted


def _could_send_password_in_clear(settings: Mapping[str, str | None]) -> bool:
    """Return whether libpq would send the password as it is, over an unencrypted network, to a server that asks for it.

    Before version 16 it does, and cannot be kept from it.
    """
    if "require_auth" not in settings or settings["require_auth"] is not None:
        return False
    if settings["sslmode"] in _TLS_REQUIRED or settings.get("gssencmode") == "require":
        return False
    hosts = (settings["host"] or "").split(",")
    return bool(settings["hostaddr"]) or not all(host[:1] in _SOCKET for host in hosts)


def broken(message: str, url: str) -> StoreError:
    """Return the error for an address that libpq cannot read."""
    text = one_line(quoting(message, url))
    return StoreRefusesError(f"PostgreSQL {masked(url)}: {text}; correct the store's URL")


def wrong_server(parameter: Callable[[str], str | None], url: str) -> StoreError | None:
    """Return the error of a server that cannot be a store, or None; `parameter` returns what it sent at the start.

    In SQL_ASCII bytes are not checked, and in LATIN1 the end of a run with other letters in its note or its output
    could not be recorded.
    """
    if parameter("crdb_version") is not None:
        return StoreRefusesError(
            f"PostgreSQL {masked(url)}: this is CockroachDB, whose advisory locks always succeed; use PostgreSQL"
        )
    if "-YB-" in (parameter("server_version") or ""):
        return StoreRefusesError(
            f"PostgreSQL {masked(url)}: this is YugabyteDB, whose nodes do not share advisory locks; use PostgreSQL"
        )
    encoding = parameter("server_encoding")
    if encoding in (None, "UTF8"):
        return None
    return StoreRefusesError(
        f"PostgreSQL {masked(url)}: the encoding of the database is {encoding}, and oncecron needs UTF8; use another "
        "database: create database NAME encoding 'UTF8' locale 'C' template template0"
    )


def explain(message: str, url: str, settings: Mapping[str, str | None] | None = None) -> StoreError:
    """Return the oncecron error for a connection that failed, from libpq's message; `settings`: what libpq used.

    It names every server that was tried. The connection is retried if any of them may answer later. It is also retried
    if only standbys answered, because one of them may be about to be promoted.
    """
    settings = settings or {}
    needs_tls = settings.get("sslmode") in _TLS_REQUIRED
    cures = _cures(one_line(message), (*_PERMANENT, *_TLS_FILES) if needs_tls else _PERMANENT)
    text = one_line(without(message, url))
    failing_over = len(cures) > 1 and any(words in message for words in _STANDBY)
    if None not in cures and not failing_over:
        from oncecron.stores.postgres import login_files, login_rights  # noqa: PLC0415 - for this message alone

        line = one_line(message)
        of_this_login = login_files.cure_of(line, url, settings) or login_rights.cure_of(
            line, settings
        )
        cure = of_this_login or cures[0] or ""
        return StoreRefusesError(f"PostgreSQL {masked(url)}: {text}; {without(cure, url)}")
    return StoreUnavailable(f"PostgreSQL {masked(url)}: {text}")


def one_line(message: str) -> str:
    """Return a message of libpq on one line: a hint in brackets, a semicolon between what two servers said.

    What libpq repeats word for word, because it tried with and without TLS, comes once.
    """
    parts: list[str] = []
    for line in filter(str.strip, message.splitlines()):
        words = " ".join(line.split())
        if line.startswith("\t") and parts:
            parts[-1] += f" ({words})"
        else:
            parts.append(words)
    return "; ".join(dict.fromkeys(parts))


def _cures(text: str, permanent: Sequence[tuple[str, str]]) -> list[str | None]:
    """Return the cure for each server, None where a retry may help; one server may have several addresses."""
    by_server: dict[str, str | None] = {}
    for attempt in text.split(_EACH_SERVER):
        where = attempt.partition(" failed: ")[0]
        server = where.partition(" (")[0] + where.rpartition(")")[2]
        cure = next((cure for found, cure in permanent if found in attempt), None)
        if attempt:
            by_server[server] = by_server.get(server) or cure
    return list(by_server.values()) or [None]
