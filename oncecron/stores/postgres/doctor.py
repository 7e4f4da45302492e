"""What a PostgreSQL server says about itself, for `oncecron doctor`."""

from __future__ import annotations

import psycopg

from oncecron.core import clock
from oncecron.core.diagnosis import Diagnosis, of_clock, of_encryption
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.postgres.login_rights import quoted
from oncecron.stores.postgres.session import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.log_rows import LeaseView
    from oncecron.stores.address import Hold

_ONE_PRIMARY = ("streaming_replication", "logical_replication")
"""The modes of pgpool-II in which it sends a write to one server."""


def examine(
    connection: psycopg.Connection[tuple[Any, ...]], sql: Mapping[str, str], hold: Hold, cure: str
) -> Iterator[Diagnosis]:
    """Yield what is known of the server and of this connection.

    `sql`: the sections `server` and `rights`; `cure`: how this role gets the right to start jobs.
    """
    before = clock.wall()
    row = connection.execute(sql["server"]).fetchone()
    assert row is not None  # noqa: S101 - a select without a table has one row
    version, role, isolation, backend, now, most, used = row
    yield Diagnosis("ok", "server", f"{version.split(' on ')[0]}, a primary")
    yield _of_role(role, [name for (name,) in connection.execute(sql["rights"])], cure)
    yield _of_isolation(isolation, role)
    yield _of_pgpool(connection) or _of_pooler(connection.info.backend_pid, backend)
    yield _of_connection(connection)
    yield of_clock(now, before, clock.wall())
    yield _of_room(used, most, hold)


def _of_role(role: str, may: list[str], cure: str) -> Diagnosis:
    rights = ", ".join(may) or "nothing"
    if "fire" in may:
        return Diagnosis("ok", "role", f"role {role} may {rights}")
    text = f"role {role} may {rights}, but start no job"
    return Diagnosis("warn", "role", text, cure)


def _of_isolation(isolation: str, role: str) -> Diagnosis:
    if isolation == "read committed":
        return Diagnosis("ok", "isolation", isolation)
    text = f"default_transaction_isolation is {isolation}: every claim is refused"
    cure = f"run `alter role {quoted(role)} set default_transaction_isolation = 'read committed'`"
    return Diagnosis("fail", "isolation", text, cure)


def _of_pgpool(connection: psycopg.Connection[tuple[Any, ...]]) -> Diagnosis | None:
    """Judge pgpool-II, which answers itself what PostgreSQL does not understand; None: it is not there."""
    try:
        row = connection.execute("pgpool show backend_clustering_mode").fetchone()
    except psycopg.ProgrammingError:
        return None
    mode = str(row[0]) if row else "unknown"
    if mode in _ONE_PRIMARY:
        text = "pgpool-II; the primary answers all that oncecron asks, also with load balancing"
        return Diagnosis("ok", "pooler", text)
    text = f"pgpool-II with backend_clustering_mode = {mode}: several servers get a claim and may decide differently"
    return Diagnosis("fail", "pooler", text, "set it to streaming_replication in pgpool.conf")


def _of_pooler(client: int, server: int) -> Diagnosis:
    if client == server:
        return Diagnosis(
            "ok", "pooler", "none, or one that keeps sessions: the session lock is taken too"
        )
    text = "a pooler shares its sessions: the lease row alone excludes, and a dead host is waited for until --ttl"
    return Diagnosis("ok", "pooler", text)


def _of_connection(connection: psycopg.Connection[tuple[Any, ...]]) -> Diagnosis:
    mode = connection.info.get_parameters().get("sslmode", "prefer")
    encrypted = bool(connection.pgconn.ssl_in_use)
    cure = "set sslmode=verify-full, and channel_binding=require with passwords, in the store's URL"
    return of_encryption(connection.info.host, encrypted, mode == "verify-full", cure)


def _of_room(used: int, most: int, hold: Hold) -> Diagnosis:
    holding = {
        "yes": "a running job holds one (hold=yes)",
        "no": "a running job holds none (hold=no)",
        "auto": f"a running job holds one, but none if {FULL} % are in use at its start (hold=auto)",
    }
    text = f"{used} of {most} connections are in use; {holding[hold]}"
    if 100 * used < FULL * most:
        return Diagnosis("ok", "connections", text)
    cure = "raise max_connections, put a pooler in front of the server, or write ?hold=no into the store's URL"
    return Diagnosis("warn", "connections", text, cure)


def of_foreign_locks(
    leases: Sequence[LeaseView], database: str, command: Callable[[str], str]
) -> Iterator[Diagnosis]:
    """Yield the sessions that hold the lock of a key without a lease; `command`: returns words as they are pasted."""
    foreign = [lease for lease in leases if lease.expires_at is None and lease.backend_pid]
    for lease in foreign:
        where = f" from {lease.client_address}" if lease.client_address else ""
        yield Diagnosis(
            "warn",
            "locks",
            f"backend {lease.backend_pid}{where} holds the lock of key {lease.key} without a lease, so starts wait 2 s",
            f"end it with {command(f'release {lease.key} --force')}, and keep others out: have a superuser run "
            f"`revoke connect on database {quoted(database)} from public`",
        )
    if not foreign:
        yield Diagnosis("ok", "locks", "no session holds a lock without a lease")
