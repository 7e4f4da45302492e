"""A large log on each store: keys that many hosts fire every hour, for the benchmark of commands that read them all.

The store itself writes the oldest and the newest execution of each key, by a claim and an end. The executions and skips
between them are copies of what it wrote, with other times, ticks and hosts.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import PostgresServer, RedisServer
from servers.oncecron import installed

from oncecron.core import clock
from oncecron.core.model import AskAgain, Ending, Firing, Holder, Lease, Refusal, Retention
from oncecron.core.tick import Tick, named_tick, scheduled_tick
from oncecron.stores import open_inspector, open_lease_store
from oncecron.stores.address import parse_address
from oncecron.stores.redis import scripts

COMMAND = "/usr/local/bin/bill.sh --all --month last"
HOUR = 3600
_KEPT = Retention(executions=400 * 86400.0, skips=7 * 86400.0)
_CHUNK = 250


class Size(NamedTuple):
    """How much there is in the log."""

    keys: int
    hosts: int
    executions: int
    """In all; as many of each key."""
    skipped: int
    """Of how many ticks there are skips, by all hosts but the winner."""

    @property
    def ticks(self) -> int:
        """Of each key."""
        return self.executions // self.keys

    @property
    def skips(self) -> int:
        """In all."""
        return self.keys * self.skipped * (self.hosts - 1)


class Filled(Protocol):
    """A store with a large log."""

    name: str
    url: str

    def copy(self, size: Size) -> None:
        """Copy the executions and skips of each key to all ticks but the newest."""

    def copy_hosts(self, size: Size) -> None:
        """Copy what the store knows of a host that fires a key to all hosts but the first two."""

    def stop_for(self, seconds: int) -> None:
        """Let all keys be due every minute, and none have been fired for this long."""

    def close(self) -> None:
        """Stop the server."""


def keys_of(size: Size) -> list[str]:
    """Return the names of the keys."""
    return [f"job-{number:03}" for number in range(size.keys)]


def host(number: int) -> str:
    """Return the name of a host."""
    return f"app-{number:02}.example.org"


def fill(store: Filled, size: Size) -> None:
    """Write the log. The next tick of all keys is at least fifty minutes away."""
    schedule = f"{int(time.time() // 60 - 5) % 60} * * * *"
    newest = scheduled_tick(schedule, "UTC", clock.wall())
    oldest = named_tick(_instant(newest, 1 - size.ticks))
    _fire(store, size, oldest, schedule)
    store.copy(size)
    _fire(store, size, newest, schedule)
    store.copy_hosts(size)


def _fire(store: Filled, size: Size, tick: Tick, schedule: str) -> None:
    """Let one host run the tick of each key, and another one skip it."""
    first = firing("", tick, host(0))._replace(schedule=schedule, zone="UTC")
    for key in keys_of(size):
        claims = (first, first._replace(owner="", holder=first.holder._replace(host=host(1))))
        won, lost = (
            claim(store.url, each._replace(key=key, owner=str(uuid.uuid4()))) for each in claims
        )
        assert isinstance(won, Lease), won
        assert isinstance(lost, Refusal), lost


def firing(key: str, tick: Tick, name: str) -> Firing:
    """Return a firing of a host."""
    return Firing(
        key, 0, tick, str(uuid.uuid4()), Holder(name, 12345, "root"), COMMAND,
        (tick.instant or clock.wall()) + 1, 60.0, None, None,
        again=False, schedule=None, zone=None,
    )  # fmt: skip


def claim(url: str, wanted: Firing) -> object:
    """Claim, and end the execution if there is one, as a whole process does; return the answer to the claim."""
    store = open_lease_store(parse_address(url), "oncecron", wanted.ttl)
    deadline = clock.lease_time(store.lease_clock) + 30
    while isinstance(answer := store.claim(wanted, deadline=deadline), AskAgain):
        time.sleep(answer.after)  # as a firing: the session before has not ended yet
    if isinstance(answer, Lease):
        ended = Ending("succeeded", 0, None, 1.5, None, None, None)
        assert store.finish(answer, ended, _KEPT, deadline=deadline)
    store.close()
    return answer


def _instant(newest: Tick, hours: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime((newest.instant or 0) + hours * HOUR))


class FilledPostgres:
    """A PostgreSQL."""

    name = "PostgreSQL"
    _EXECUTIONS = """
    insert into oncecron.job_execution (key_id, tick, tick_at, attempt, owner_attempt, outcome, cause, exit_code, host,
        pid, user_name, command, fired_at, started_at, finished_at, duration, fencing_token, owner, shards)
      select key_id, to_char((tick_at + n * interval '1 hour') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"'),
             tick_at + n * interval '1 hour', attempt, owner_attempt, outcome, cause, exit_code,
             format('app-%s.example.org', to_char(n % {hosts}, 'FM00')), pid, user_name, command,
             fired_at + n * interval '1 hour', tick_at + n * interval '1 hour 1 second',
             tick_at + n * interval '1 hour 2.5 seconds', duration, fencing_token + n, gen_random_uuid(), shards
        from generate_series(1, {ticks} - 2) n, (select * from oncecron.job_execution) t
       order by n
    """
    _SKIPS = """
    insert into oncecron.skip (key_id, tick, host, reason, pid, fired_at, holder_host, holder_pid, detail, at, count)
      select s.key_id, e.tick, format('app-%s.example.org', to_char(h, 'FM00')), s.reason, s.pid, e.fired_at,
             e.host, e.pid, s.detail, e.started_at, s.count
        from oncecron.skip s
        join oncecron.job_execution e using (key_id)
        cross join generate_series(1, {hosts} - 1) h
       where e.tick_at > (select max(tick_at) from oncecron.job_execution) - {skipped} * interval '1 hour'
    """
    _HOSTS = """
    insert into oncecron.key_host
      select k.key_id, format('app-%s.example.org', to_char(h, 'FM00')), k.seen_at, k.version, k.clock_ahead, k.ticks,
             k.ticks_at, k.schedule, k.zone, k.command, k.hour, k.wins, k.skips, k.plain_from, k.plain
        from oncecron.key_host k, generate_series(2, {hosts} - 1) h
       where k.host = '{host}'
    """
    _OLD = (
        """
        update oncecron.job_execution
           set started_at = tick_at + interval '1 second', finished_at = tick_at + interval '2.5 seconds'
         where tick_at < now() - interval '2 hours'
        """,
        "update oncecron.job_key set expected_since = high_water",
        "delete from oncecron.skip where tick = (select min(tick) from oncecron.skip)",
        "vacuum (analyze) oncecron.job_execution",
        "vacuum (analyze) oncecron.skip",
        "vacuum (analyze) oncecron.job_key",
    )

    def __init__(self, directory: Path) -> None:
        del directory
        self.server = PostgresServer().start()
        self.database = installed(self.server.create_database())
        self.url = self.database.url()

    def copy(self, size: Size) -> None:
        """Insert the rows."""
        for statement in (self._EXECUTIONS, self._SKIPS, *self._OLD):
            values = {"ticks": size.ticks, "hosts": size.hosts, "skipped": size.skipped}
            self.database.execute(statement.format(**values))

    def copy_hosts(self, size: Size) -> None:
        """Insert the rows."""
        self.database.execute(self._HOSTS.format(hosts=size.hosts, host=host(1)))
        self.database.execute("vacuum (analyze) oncecron.key_host")

    def stop_for(self, seconds: int) -> None:
        """Update the rows."""
        self.database.execute(
            "update oncecron.job_key set schedule = '* * * * *', expected_since = now() - interval '90 days', "
            f"high_water = date_trunc('minute', now()) - {seconds} * interval '1 second'"
        )
        for statement in (
            "delete from oncecron.skip",
            "delete from oncecron.plain_skips",
            "update oncecron.key_host set plain = '{}', plain_from = null",
        ):
            self.database.execute(statement)

    def close(self) -> None:
        """Remove it."""
        self.server.remove()


class FilledSQLite:
    """A file."""

    name = "SQLite"
    _EXECUTIONS = """
    insert into job_execution (key, shard, tick, tick_instant, named, attempt, owner_attempt, outcome, cause, exit_code,
        host, pid, user, command, started_at, finished_at, duration, fencing_token, owner, shards)
      with recursive n(n) as (select 1 union all select n + 1 from n where n < {ticks} - 2)
      select key, shard, strftime('%Y-%m-%dT%H:%MZ', tick_instant + n * 3600, 'unixepoch'), tick_instant + n * 3600,
             named, attempt, owner_attempt, outcome, cause, exit_code, printf('app-%02d.example.org', n % {hosts}), pid,
             user, command, tick_instant + n * 3600 + 1, tick_instant + n * 3600 + 2.5, duration, fencing_token + n,
             lower(hex(randomblob(16))) || n, shards
        from n, (select * from job_execution) order by n
    """
    _SKIPS = """
    insert or ignore into skip (key, shard, tick, host, reason, pid, holder_host, holder_pid, at, count, detail)
      with recursive h(h) as (select 1 union all select h + 1 from h where h < {hosts} - 1)
      select s.key, s.shard, e.tick, printf('app-%02d.example.org', h), s.reason, s.pid, e.host, e.pid, e.started_at,
             s.count, s.detail
        from skip s join job_execution e using (key, shard), h
       where e.tick_instant > (select max(tick_instant) from job_execution) - {skipped} * 3600
    """
    _HOSTS = """
    insert into key_host
      with recursive h(h) as (select 2 union all select h + 1 from h where h < {hosts} - 1)
      select key, shard, printf('app-%02d.example.org', h), seen_at, version, ticks, ticks_at, schedule, zone, command,
             hour, wins, skips, machine, twice
        from key_host, h where host = '{host}'
    """
    _OLD = (
        """
        update job_execution set started_at = tick_instant + 1, finished_at = tick_instant + 2.5
         where tick_instant < unixepoch() - 7200
        """,
        "update job_key set expected_since = high_water",
        "delete from skip where tick = (select min(tick) from skip)",
    )

    def __init__(self, directory: Path) -> None:
        self.path = directory / "large.db"
        self.url = f"sqlite://{self.path}"
        inspector = open_inspector(parse_address(self.url), "oncecron")
        from oncecron.core.log_rows import Roles

        inspector.initialise(Roles())
        inspector.close()

    def _run(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as database, database:
            for statement in statements:
                database.execute(statement)

    def copy(self, size: Size) -> None:
        """Insert the rows."""
        values = {"ticks": size.ticks, "hosts": size.hosts, "skipped": size.skipped}
        self._run(*(text.format(**values) for text in (self._EXECUTIONS, self._SKIPS, *self._OLD)))

    def copy_hosts(self, size: Size) -> None:
        """Insert the rows."""
        self._run(self._HOSTS.format(hosts=size.hosts, host=host(1)))

    def stop_for(self, seconds: int) -> None:
        """Update the rows."""
        now = time.time() // 60 * 60
        self._run(
            "delete from skip",
            "delete from plain_skips",
            f"update job_key set schedule = '* * * * *', high_water = {now - seconds}, "
            f"expected_since = {now - 90 * 86400}",
        )

    def close(self) -> None:
        """Leave the file to the directory."""


class FilledRedis:
    """A Redis; its own Lua functions insert the rows."""

    name = "Redis"
    _EXECUTIONS = """
    local oldest = redis.call('XRANGE', own.log, '-', '+', 'COUNT', 1)[1]
    local template = execution(string.match(oldest[1], '^%d+'))
    local first = tonumber(template.tick_instant)
    for number, tick in ipairs(cjson.decode(given.ticks)) do
      local n = given.first + number - 1
      local row = cjson.decode(cjson.encode(template))
      local at = first + n * 3600
      row.tick, row.tick_instant, row.fired_at, row.started_at = tick, seconds(at), seconds(at + 1), seconds(at + 1)
      row.finished_at, row.fencing_token = seconds(at + 2.5), whole(template.fencing_token + n)
      row.host = string.format('app-%02d.example.org', n % given.hosts)
      row.owner = string.format('%08x', n) .. string.sub(template.owner, 9)
      insert_execution(row)
      for other = 1, n >= tonumber(given.skipped_from) and given.hosts - 1 or 0 do
        count_skip({tick = tick, host = string.format('app-%02d.example.org', other), reason = 'done',
          pid = '12345', holder_host = row.host, holder_pid = row.pid, at = at + 1})
      end
    end
    """

    def __init__(self, directory: Path) -> None:
        del directory
        self.server = RedisServer(aof=True, appendfsync="everysec").start()
        self.url = self.server.url()
        self.names = scripts.Names("oncecron")

    def copy(self, size: Size) -> None:
        """Let the server insert the rows."""
        script = scripts.text("skip").rpartition("-- Count")[0] + self._EXECUTIONS
        client = self.server.connect()
        for key in keys_of(size):
            part = scripts.shard_of(key, 0)
            names = self.names.keys(part)
            high_water = client.hget(self.names.of_shard("key", part), "high_water")
            client.hset(self.names.of_shard("key", part), "expected_since", high_water)
            for first in range(1, size.ticks - 1, _CHUNK):
                numbers = range(first, min(first + _CHUNK, size.ticks - 1))
                ticks = [
                    time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(float(high_water) + n * HOUR))
                    for n in numbers
                ]
                values: dict[str, Any] = {
                    "part": part, "first": first, "ticks": json.dumps(ticks),
                    "hosts": size.hosts, "skipped_from": size.ticks - 1 - size.skipped,
                }  # fmt: skip
                client.eval(script, len(names), *names, *scripts.arguments(values))

    def copy_hosts(self, size: Size) -> None:
        """Set the fields."""
        client: Any = self.server.connect(decode_responses=True)
        for key in keys_of(size):
            name = self.names.of_shard("hosts", scripts.shard_of(key, 0))
            told = client.hget(name, host(1))
            client.hset(name, mapping={host(number): told for number in range(2, size.hosts)})

    def stop_for(self, seconds: int) -> None:
        """Change the hashes."""
        client: Any = self.server.connect(decode_responses=True)
        pipe = client.pipeline(transaction=False)
        now = time.time() // 60 * 60
        for part in client.zrange(self.names.of_namespace("parts"), 0, -1):
            pipe.delete(
                *(
                    self.names.of_shard(name, part)
                    for name in ("skips", "skip_rows", "plain", "plain_rows")
                )
            )
            changed = {
                "schedule": "* * * * *",
                "high_water": f"{now - seconds:.6f}",
                "expected_since": f"{now - 90 * 86400:.6f}",
            }
            pipe.hset(self.names.of_shard("key", part), mapping=changed)
        pipe.execute()

    def close(self) -> None:
        """Remove it."""
        self.server.remove()


STORES: tuple[type[Filled], ...] = (FilledPostgres, FilledRedis, FilledSQLite)
