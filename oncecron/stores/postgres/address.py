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

_TLS_REQUIRED = ("require", "verify-ca", "verify-full")
SOCKET = ("", "/", "@")
"""How the name of a Unix socket begins; without a name libpq takes its default socket."""
_READ_ONLY = "session is read-only"
_STANDBY = (_READ_ONLY, "hot standby")
NAME_PRIMARY = (
    "name the primary, or all servers: postgresql://a,b/database; if it is the primary, set "
    "default_transaction_read_only = off"
)
_LATER = ("08", "25P", "40", "53", "55006", "55P03", "57", "58", "XX")
"""How the SQLSTATEs begin after which a retry may help: of a server that starts, stops, is full, busy or broken."""
_LENGTH_OF_CODE = 5
_POOLER = "08P01"
"""What PgBouncer says of everything before 1.19, in words that are never translated."""
_CURES = {
    "28P01": "check the password in the store's URL or in ~/.pgpass",
    "28000": "let this role log in from this host: by the right LOGIN, and by the server's pg_hba.conf",
    "3D000": "create the database, or correct the store's URL",
    "42501": "grant CONNECT on the database to the role",
}
"""Of a server's refusal, by SQLSTATE: servers translate their messages."""
_OTHER_CURE = "correct the store's URL, or what the server's log says of this login"
_OF_POOLERS = (
    ("authentication failed", _CURES["28P01"]),
    ("no such user", _CURES["28000"]),
    ("does not exist", _CURES["3D000"]),
    ("no such database", _CURES["3D000"]),
)
# What no server said, libpq has found out itself, and has no code for it. In this process nothing sets its language.
_OF_LIBPQ = (
    ("no password supplied", "give the password in ~/.pgpass, in store_file or by a service"),
    ("definition of service", "check PGSERVICE and the service file"),
    ('service file "', "correct the file, or $PGSERVICEFILE"),
    (
        'requirement "!password" failed',
        "use TLS, with sslmode=verify-full in the store's URL, or let the server ask for scram-sha-256",
    ),
    ("authentication method requirement", "correct require_auth, or the server's pg_hba.conf"),
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

Said = tuple[str, str]
"""A server, by the name in the address, and libpq's message of a login there; it contains the SQLSTATE."""


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


class LoginError(Exception):
    """No login succeeded; `said` is what libpq said of each."""

    def __init__(self, said: Sequence[Said]) -> None:
        super().__init__("\n".join(message for _, message in said))
        self.said = said


def may_be_writable(error: LoginError, settings: Mapping[str, str | None]) -> bool:
    """Return whether a server that was refused as read-only may be a primary, and this libpq (14) can ask for one."""
    chosen = settings.get("target_session_attrs") or "any"
    return _READ_ONLY in str(error) and chosen == "any" and "sslsni" in settings


def seconds_for_a_server(parameters: Mapping[str, str], settings: Mapping[str, str | None]) -> int:
    """Return how long a login may take at one address: what the user says to libpq, else what is wanted.

    libpq itself has this limit only where it connects at one go, and then a server that goes on sending prolongs it.
    """
    try:
        chosen = int(settings.get("connect_timeout") or 0)
    except ValueError:  # libpq says so
        chosen = 0
    return (
        max(SHORTEST_SERVER_TIMEOUT, chosen) if chosen > 0 else int(parameters["connect_timeout"])
    )


def places(settings: Mapping[str, str | None]) -> list[tuple[str, str, str]]:
    """Return host, address and port of each server in the settings; one without any is as libpq reads the settings."""
    hosts, addresses, ports = (
        (settings.get(name) or "").split(",") for name in ("host", "hostaddr", "port")
    )
    count = max(len(hosts), len(addresses))
    hosts, addresses = (each * count if each == [""] else each for each in (hosts, addresses))
    ports = ports * count if len(ports) == 1 else ports
    found = list(zip(hosts, addresses, ports, strict=False))
    fit = len({len(hosts), len(addresses), len(ports)}) == 1
    if not fit or (count > 1 and not all(host or at for host, at, _ in found)):
        return [("", "", "")]
    if settings.get("load_balance_hosts") == "random":
        found.sort(key=lambda _: os.urandom(4))
    return found


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
    return bool(settings["hostaddr"]) or not all(host[:1] in SOCKET for host in hosts)


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


def explain(
    said: Sequence[Said], url: str, settings: Mapping[str, str | None] | None = None
) -> StoreError:
    """Return the oncecron error for a connection that failed; `settings`: what libpq used.

    It names every server that was tried. The connection is retried if any of them may answer later. It is also retried
    if only standbys answered, because one of them may be about to be promoted.
    """
    settings = settings or {}
    own = (*_OF_LIBPQ, *_TLS_FILES) if settings.get("sslmode") in _TLS_REQUIRED else _OF_LIBPQ
    cures: dict[str, str | None] = {}  # one server may have several addresses
    for server, message in said:
        cures[server] = cures.get(server) or _cure(message, own)
    whole = "\n".join(message for _, message in said)
    line, text = one_line(whole), one_line(without(whole, url))
    failing_over = len(cures) > 1 and any(words in line for words in _STANDBY)
    if None in cures.values() or failing_over:
        return StoreUnavailable(f"PostgreSQL {masked(url)}: {text}")
    from oncecron.stores.postgres import login_files, login_rights  # noqa: PLC0415 - for this message alone

    codes = [_code(message) for _, message in said]
    of_this_login = login_files.cure_of(line, url, settings, codes)
    cure = of_this_login or login_rights.cure_of(line, settings) or next(iter(cures.values())) or ""
    return StoreRefusesError(f"PostgreSQL {masked(url)}: {text}; {without(cure, url)}")


def _cure(message: str, own: Sequence[tuple[str, str]]) -> str | None:
    """Return the cure of a failed login, None if a retry may help."""
    code = _code(message)
    if code is not None and code != _POOLER:
        return None if may_succeed_later(code) else _CURES.get(code, _OTHER_CURE)
    table = _OF_POOLERS if code else own
    return next((cure for words, cure in table if words in message), None)


def _code(message: str) -> str | None:
    return next(filter(None, map(sqlstate_of, message.splitlines())), None)


def may_succeed_later(sqlstate: str) -> bool:
    """Return whether a retry may help after a server's refusal; else it is an answer, and the server is not away."""
    return sqlstate.startswith(_LATER)


def sqlstate_of(line: str) -> str | None:
    """Return the SQLSTATE in a line of libpq (`FATAL:  28P01: ...`, `tell_codes`); a severity is translated, too."""
    code, found, _ = line.partition(":  ")[2].partition(": ")
    is_code = (
        len(code) == _LENGTH_OF_CODE and code.isascii() and code.isalnum() and code == code.upper()
    )
    return code if found and is_code else None


def one_line(message: str) -> str:
    """Return a message of libpq on one line: a hint in brackets, a semicolon between what two servers said.

    What libpq repeats word for word, because it tried with and without TLS, comes once. The SQLSTATE and the place in
    the server's source are left out.
    """
    parts: list[str] = []
    for line in filter(str.strip, message.splitlines()):
        if line.startswith("LOCATION:  "):
            continue
        code = sqlstate_of(line)
        words = " ".join((line.replace(f":  {code}: ", ": ", 1) if code else line).split())
        if line.startswith("\t") and parts:
            parts[-1] += f" ({words})"
        else:
            parts.append(words)
    return "; ".join(dict.fromkeys(parts))
