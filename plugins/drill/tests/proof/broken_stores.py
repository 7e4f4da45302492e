"""Stores that break what every store promises, on purpose: a drill must find each of them.

Each stands on loopback and is well at first. `begin` starts a time in which it misbehaves, or in which what it
acknowledges will be forgotten; `end` finishes that, and makes the store well again, so that it can be broken once more.

    promoted     PostgreSQL. Its synchronous standby is away, so the operator lets commits go on without it. Then the
                 primary dies, and that standby is promoted: all that was committed meanwhile is forgotten.
    forgetful    Redis without an append-only file, which crashes: it starts empty, or from its last dump.
    two-masters  Redis. A replica is promoted while its old master goes on, and hosts reach the one or the other.
                 Then the old master follows the new one, and forgets what it has granted.
    leaky        PostgreSQL behind PgBouncer in transaction mode. The `SET synchronous_commit = off` of another
                 program with the same login stays in the pooled sessions, and with it claims are committed. Then the
                 server crashes, and forgets them.
    stepped      PostgreSQL without a session lock, whose clock shows an hour more for a while: each lease that somebody
                 holds has expired.

The thread that begins and ends is the one that made the store, because its servers die with that thread.
"""

import contextlib
import dataclasses
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from clusters.database import SETTINGS
from servers import FaultProxy, PgBouncer, PostgresServer, RedisServer, SteppedClock, eventually
from servers.process import public_directory, remove_directory

HOUR = 3600.0
POOLED = 2
"""Sessions that the leaky pooler has at the server, so that the other program reaches all of them."""
BUFFERED = {"wal_buffers": "16MB"}
"""What is committed without waiting for the disk stays in the server's memory as long as no other process writes it."""
WRITERS = """
select pid from pg_stat_activity where backend_type in ('background writer', 'checkpointer', 'walwriter')"""
"""Those processes; they write it within seconds, unless they are stopped."""


@dataclasses.dataclass(frozen=True)
class BrokenStore:
    """One of them, while it stands."""

    url: str
    """Of a login that may make its own namespace."""
    begin: Callable[[], None]
    end: Callable[[], None]
    rules: frozenset[str]
    """Those of a drill that show the hole: what the jobs wrote, or what the watch over the store saw."""


@contextlib.contextmanager
def promoted() -> Iterator[BrokenStore]:
    """Lose what was committed while the synchronous standby was away."""
    with ExitStack() as stack:
        servers = [_removed(stack, PostgresServer(**SETTINGS)).start()]
        database = servers[0].create_database()
        wire = stack.enter_context(_proxy(servers[0]))
        servers.append(_removed(stack, servers[0].make_standby(through=wire)))
        first, second = servers
        url = database.url("owner").replace(
            f":{first.port}/", f":{first.port},{second.host}:{second.port}/"
        )

        def begin() -> None:
            primary, _ = servers
            wire.deaf()
            primary.configure(synchronous_standby_names="")

        def end() -> None:
            primary, standby = servers
            primary.kill()
            standby.promote()
            servers.reverse()
            wire.passing()
            wire.lead_to(standby)
            primary.copy_from(standby, wire)
            primary.start()
            _follow(standby)

        _follow(first)
        yield BrokenStore(url, begin, end, frozenset({"double", "lost-write"}))


def _follow(primary: PostgresServer) -> None:
    """Let the commits of a primary wait for its standby, from when it follows."""
    follows = "select 1 from pg_stat_replication where state = 'streaming'"
    eventually(lambda: primary.execute(follows) != [], 30)
    primary.configure(synchronous_standby_names="*")


@contextlib.contextmanager
def forgetful() -> Iterator[BrokenStore]:
    """Forget all, or, every other time, what came after the last dump."""
    with ExitStack() as stack:
        server = _removed(stack, RedisServer(aof=False)).start()
        dumps = itertools.cycle([False, True])

        def begin() -> None:
            (server.directory / "dump.rdb").unlink(missing_ok=True)
            if next(dumps):
                with server.connect() as client:
                    client.save()

        def end() -> None:
            server.kill()
            server.start()

        yield BrokenStore(server.url(), begin, end, frozenset({"double", "lost-write"}))


@contextlib.contextmanager
def two_masters() -> Iterator[BrokenStore]:
    """Let two servers grant leases; the second one's data win."""
    with ExitStack() as stack:
        old = _removed(stack, RedisServer(aof=True)).start()
        new = _removed(stack, RedisServer(aof=True)).start()
        way = stack.enter_context(_proxy(old))
        servers = [old, new]

        def begin() -> None:
            master, replica = servers
            _follow_redis(replica, None)
            way.lead_to(replica, master)

        def end() -> None:
            servers.reverse()
            master, replica = servers
            way.lead_to(master)
            way.sever()
            _follow_redis(replica, master)

        _follow_redis(new, old)
        url = f"redis://{way.host}:{way.port}/0"
        yield BrokenStore(url, begin, end, frozenset({"double", "overlap", "lost-write"}))


def _follow_redis(replica: RedisServer, master: RedisServer | None) -> None:
    """Make a server the replica of another one, and wait until it has its data; or a master."""
    with replica.connect() as client:
        if master is None:
            client.execute_command("REPLICAOF", "NO", "ONE")
            return
        client.execute_command("REPLICAOF", master.host, master.port)
        eventually(lambda: client.info("replication")["master_link_status"] == "up", 30)


@contextlib.contextmanager
def leaky() -> Iterator[BrokenStore]:
    """Commit claims with the settings of another program, and lose them in a crash."""
    with ExitStack() as stack:
        server = _removed(stack, PostgresServer(**SETTINGS | BUFFERED)).start()
        database = server.create_database()
        pooler = _removed(
            stack,
            PgBouncer(server, "transaction", POOLED, server_login_retry=1, query_wait_timeout=5),
        ).start()

        def begin() -> None:
            with ExitStack() as others:
                sessions = [
                    others.enter_context(pooler.connect("owner", database.name))
                    for _ in range(POOLED)
                ]
                for session in sessions:  # each has a pooled session of its own until it commits
                    session.execute("begin")
                    session.execute("set synchronous_commit = off")
                for session in sessions:
                    session.execute("commit")
            for (writer,) in server.execute(WRITERS):
                os.kill(writer, signal.SIGSTOP)

        def end() -> None:
            server.kill()
            server.start()

        yield BrokenStore(
            database.url("owner", via=pooler), begin, end, frozenset({"double", "lost-write"})
        )


@contextlib.contextmanager
def stepped() -> Iterator[BrokenStore]:
    """Show an hour more for a while."""
    with ExitStack() as stack:
        place = public_directory("stepped")
        stack.callback(remove_directory, place)
        clock = SteppedClock(place)
        server = _removed(stack, PostgresServer(clock=clock, **SETTINGS)).start()
        url = f"{server.create_database().url('owner')}?hold=no"
        yield BrokenStore(
            url,
            lambda: clock.step(HOUR),
            lambda: clock.step(0),
            frozenset({"overlap", "clock-step"}),
        )


KINDS: dict[str, Callable[[], AbstractContextManager[BrokenStore]]] = {
    "promoted": promoted,
    "forgetful": forgetful,
    "two-masters": two_masters,
    "leaky": leaky,
    "stepped": stepped,
}


@contextlib.contextmanager
def _proxy(server: Any) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server.port)
    try:
        yield proxy
    finally:
        proxy.close()


def _removed(stack: ExitStack, server: Any) -> Any:
    stack.callback(server.remove)
    return server
