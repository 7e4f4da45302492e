"""Fill a store in bulk with the log of many keys and hosts, as firings would have left it.

Each of `KEYS` keys ran once an hour, up to the last minutes. One host of the first half won; of the other hosts, those
of the second half skipped plainly, and those of the first half are recorded in full. A few ticks failed, a few were
retried. One tick of each key, half a day ago or less, was started by nobody, and each host skipped it: an outage.
"""

import itertools
import json
import sqlite3
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from servers import Database, RedisServer

from oncecron import __version__
from oncecron.core.decision import PLAIN_BITS, PLAIN_DONE, PLAIN_WINDOW
from oncecron.core.tick import minute_tick
from oncecron.core.timing import PLAIN_SKIP_EARLY
from oncecron.stores.redis import scripts

KEYS, HOSTS = 1000, 50
IN_FULL = HOSTS // 2
OLDEST_GAP = 12
HOUR = 3600
TICKS_IN_A_ROW = 34
"""Of a row of plain skips on PostgreSQL, which spans 2,047 minutes."""
AT_ONCE = 1000
COMMAND = "/usr/local/bin/bill.sh --all --month last"
_CODE = PLAIN_DONE | int((PLAIN_SKIP_EARLY + 2) * 1000)


class Run(NamedTuple):
    """A row of the job-execution log, by the names of the columns on SQLite."""

    execution_id: int
    key: str
    tick: str
    tick_instant: float
    attempt: int
    outcome: str
    cause: str
    exit_code: int
    host: str
    started_at: float
    fencing_token: int
    owner: str
    retries: int

    @property
    def finished_at(self) -> float:
        return self.started_at + 1.5


class History:
    """What happened: `rows` executions, and as many skips of the last ticks."""

    def __init__(self, rows: int) -> None:
        self.now = time.time()
        self.ticks = max(rows // KEYS, 2)
        self.skipped_ticks = max(rows // KEYS // (HOSTS - 1), 1)
        self.gap = min(OLDEST_GAP, self.skipped_ticks // 2 or 1)
        self.holders: dict[tuple[int, int], int] = {}
        """The execution that has the tick, by key and tick, of those with skips."""

    def minute(self, key: int) -> int:
        """Return the minute of the hour at which a key runs: its next tick is more than half an hour away."""
        return int(self.now // 60 - 2 - key % 20) % 60

    def instant(self, key: int, tick: int) -> float:
        """Return the time of a tick; 0 is the newest."""
        first = int(self.now // 60 - 2 - key % 20) * 60
        return first - tick * HOUR

    def runs(self) -> Iterator[Run]:
        """Yield the executions in the order of their starts, a tick of all keys after the other."""
        numbers = itertools.count(1)
        for tick in reversed(range(self.ticks)):
            for key in range(KEYS):
                if tick == self.gap:
                    continue
                for run in self._of_tick(key, tick, numbers):
                    yield run
                    if tick < self.skipped_ticks and run.attempt == 1:
                        self.holders[key, tick] = run.execution_id

    def _of_tick(self, key: int, tick: int, numbers: Iterator[int]) -> Iterator[Run]:
        instant, number = self.instant(key, tick), next(numbers)
        failed, retried = (key + tick) % 50 == 3, (key + tick) % 1000 == 7
        run = Run(
            number, name(key), str(minute_tick(instant).text), instant, 1,
            "failed" if failed or retried else "succeeded", "schedule", int(failed or retried),
            host((key + tick) % IN_FULL), instant + 1, 1_700_000_000_000_000 + number,
            str(uuid.UUID(int=number << 64)), int(retried),
        )  # fmt: skip
        yield run
        if retried:
            again = {"execution_id": next(numbers), "attempt": 2, "started_at": instant + 3}
            ended = {"outcome": "succeeded", "cause": "retry", "exit_code": 0}
            yield run._replace(**again, **ended, fencing_token=run.fencing_token + 1)

    def skips(self, key: int) -> Iterator[tuple[str, str, str, float]]:
        """Yield the skips of a key that are recorded in full: tick, host, reason and time."""
        for tick in range(self.skipped_ticks):
            instant = self.instant(key, tick)
            text = str(minute_tick(instant).text)
            for number in range(HOSTS if tick == self.gap else IN_FULL):
                if tick == self.gap or number != (key + tick) % IN_FULL:
                    reason = "no-store" if tick == self.gap else "done"
                    yield text, host(number), reason, instant + 2

    def plain(self, key: int) -> Iterator[tuple[int, int]]:
        """Yield the ticks that the second half of the hosts skipped plainly, the oldest first: minute and execution."""
        for tick in reversed(range(self.skipped_ticks)):
            if (key, tick) in self.holders:
                yield int(self.instant(key, tick) // 60), self.holders[key, tick]

    def windows(self, key: int) -> Iterator[tuple[int, str, float]]:
        """Yield the same by windows, as Redis and SQLite keep them: the first minute, words, and when the last was."""
        words: dict[int, str] = defaultdict(str)
        last: dict[int, float] = {}
        for minute, execution in self.plain(key):
            window = minute - minute % PLAIN_WINDOW
            words[window] += f"{(minute - window) << PLAIN_BITS | _CODE:x}:{execution:x} "
            last[window] = minute * 60 + 2.0
        return ((window, text, last[window]) for window, text in words.items())

    def fired(self, key: int) -> tuple[list[str], list[float]]:
        """Return the last three ticks, the newest first, and when each host fired them."""
        instants = [self.instant(key, tick) for tick in range(3)]
        return [str(minute_tick(each).text) for each in instants], [each + 2 for each in instants]


def name(key: int) -> str:
    return f"job-{key:03}"


def host(number: int) -> str:
    return f"app-{number:02}.example.org"


def schedule(history: History, key: int) -> str:
    return f"{history.minute(key)} * * * *"


COUNTS = " ".join(["1"] * 24)


def fill_postgres(database: Database, history: History) -> None:
    with database.server.superuser_connect(database.name) as connection:
        connection.execute("set session_replication_role = replica")  # no check of each reference
        cursor = connection.cursor()

        def copy(table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
            statement = f"copy oncecron.{table} ({columns}) from stdin"
            with cursor.copy(statement) as copied:  # type: ignore[arg-type]
                for row in rows:
                    copied.write_row(row)

        copy("job_key", "key, schedule, zone, expected_shards, expected_since", (
            (name(key), schedule(history, key), "UTC", 1, at(history.instant(key, history.ticks - 1) - 60))
            for key in range(KEYS)
        ))  # fmt: skip
        found = cursor.execute("select key, key_id from oncecron.job_key").fetchall()
        ids: dict[str, int] = dict(found)
        copy(
            "job_execution",
            "execution_id, key_id, tick, tick_at, attempt, owner_attempt, outcome, cause, exit_code, host, pid,"
            "user_name, command, fired_at, started_at, finished_at, duration, fencing_token, owner, retries",
            (
                (
                    run.execution_id, ids[run.key], run.tick, at(run.tick_instant), run.attempt, run.attempt,
                    run.outcome, run.cause, run.exit_code, run.host, 12345, "root", COMMAND, at(run.started_at),
                    at(run.started_at), at(run.finished_at), 1.5, run.fencing_token, run.owner, run.retries,
                )
                for run in history.runs()
            ),
        )  # fmt: skip
        copy("skip", "key_id, tick, host, reason, pid, at", (
            (ids[name(key)], tick, by, reason, 12345, at(when))
            for key in range(KEYS) for tick, by, reason, when in history.skips(key)
        ))  # fmt: skip
        plain = {key: list(_chunks(history, key)) for key in range(KEYS)}
        copy("plain_skips", "key_id, host, plain_from, plain_until, plain", (
            (ids[name(key)], host(number), *chunk)
            for key in range(KEYS) for number in range(IN_FULL, HOSTS) for chunk in plain[key][:-1]
        ))  # fmt: skip
        copy("key_host", "key_id, host, seen_at, presence, plain_from, plain", (
            (
                ids[name(key)], host(number), at(history.instant(key, 0) + 2), _told(history, key),
                *((plain[key][-1][0], plain[key][-1][2]) if number >= IN_FULL and plain[key] else (None, [])),
            )
            for key in range(KEYS) for number in range(HOSTS)
        ))  # fmt: skip
        connection.execute("""
            update oncecron.job_key k
               set high_water = e.tick_at, seen_until = e.tick_at, newest_id = e.execution_id, tick = e.tick,
                   tick_attempt = e.attempt, newest_outcome = e.outcome, host = e.host, pid = e.pid,
                   user_name = e.user_name, newest_started_at = e.started_at, newest_owner = e.owner,
                   last_execution_id = e.execution_id, last_started_at = e.started_at, fence = e.fencing_token
              from (select distinct on (key_id) * from oncecron.job_execution
                     where execution_id > (select max(execution_id) from oncecron.job_execution) - 5000
                     order by key_id, execution_id desc) e
             where e.key_id = k.key_id""")
        connection.execute(
            "select setval(pg_get_serial_sequence('oncecron.job_execution', 'execution_id'), max(execution_id))"
            "  from oncecron.job_execution"
        )
        for table in ("job_key", "job_execution", "skip", "plain_skips", "key_host"):
            connection.execute(f"vacuum analyze oncecron.{table}")  # type: ignore[arg-type]


def at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S+00", time.gmtime(seconds))


def _chunks(history: History, key: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield rows of plain skips: the first and the last minute, and a number for each."""
    minutes = [minute for minute, _ in history.plain(key)]
    for first in range(0, len(minutes), TICKS_IN_A_ROW):
        some = minutes[first : first + TICKS_IN_A_ROW]
        yield (some[0], some[-1], [(minute - some[0]) << PLAIN_BITS | _CODE for minute in some])


def fill_sqlite(path: Path, history: History) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("pragma synchronous = off")
        columns = (*Run._fields, "shard", "named", "owner_attempt", "pid", "user", "command")
        columns = (*columns, "fired_at", "finished_at", "duration")
        _insert(database, "job_execution", columns, (
            (*run, 0, 0, run.attempt, 12345, "root", COMMAND, run.started_at, run.finished_at, 1.5)
            for run in history.runs()
        ))  # fmt: skip
        columns = ("key", "shard", "schedule", "zone", "expected_shards", "expected_since")
        _insert(database, "job_key", (*columns, "high_water", "last_start"), (
            (name(key), 0, schedule(history, key), "UTC", 1, history.instant(key, history.ticks - 1) - 60,
             history.instant(key, 0), history.instant(key, 0) + 1)
            for key in range(KEYS)
        ))  # fmt: skip
        _insert(database, "skip", ("key", "shard", "tick", "host", "reason", "pid", "at", "count"), (
            (name(key), 0, tick, by, reason, 12345, when, 1)
            for key in range(KEYS) for tick, by, reason, when in history.skips(key)
        ))  # fmt: skip
        _insert(database, "plain_skips", ("key", "shard", "window", "host", "words", "at"), (
            (name(key), 0, window, host(number), words, when)
            for key in range(KEYS) for window, words, when in history.windows(key)
            for number in range(IN_FULL, HOSTS)
        ))  # fmt: skip
        _insert(database, "key_host", ("key", "shard", "host", "seen_at", "presence"), (
            (name(key), 0, host(number), history.instant(key, 0) + 2, _told(history, key))
            for key in range(KEYS) for number in range(HOSTS)
        ))  # fmt: skip
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma wal_checkpoint(truncate)")


def _insert(
    database: sqlite3.Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    places = ", ".join("?" * len(columns))
    names = ", ".join(f'"{column}"' for column in columns)
    database.executemany(f"insert into {table} ({names}) values ({places})", rows)


def _told(history: History, key: int) -> str:
    """Return what is known of a host of a key, the same of every host."""
    ticks, times = history.fired(key)
    fields = {
        "version": __version__,
        "clock_ahead": "0.000000",
        "ticks": " ".join(ticks),
        "ticks_at": " ".join(f"{each:.6f}" for each in times),
        "schedule": schedule(history, key),
        "zone": "UTC",
        "command": COMMAND,
        "hour": int(history.now // HOUR),
        "wins": COUNTS,
        "skips": COUNTS,
        "machine": "m",
    }
    return "\n".join(f"{name} {value}" for name, value in fields.items())


def fill_redis(server: RedisServer, history: History) -> None:
    client: Any = server.connect(socket_timeout=60)
    names = scripts.Names("oncecron")
    of_all = names.of_namespace
    runs = history.runs()
    while some := list(itertools.islice(runs, AT_ONCE)):
        pipe = client.pipeline(transaction=False)
        pipe.hset(of_all("executions"), mapping={run.execution_id: _row(run) for run in some})
        for run in some:
            number, shard = run.execution_id, scripts.shard_of(run.key, 0)
            pipe.xadd(names.of_shard("log", shard), {"id": number}, id=f"{number}-0")
            ids, owned = f"{number}", f"{run.attempt}:{number}"
            if run.attempt > 1:
                ids, owned = f"{number - 1} {ids}", f"1:{number - 1} {owned}"
            pipe.hset(names.of_shard("ticks", shard), run.tick, ids)
            pipe.hset(names.of_shard("owners", shard), run.owner, owned)
            if run.retries and run.outcome == "failed":
                pipe.zadd(of_all("given_up"), {number: number})
        pipe.execute()
    client.hset(of_all("namespace"), mapping={"layout": scripts.LAYOUT})
    for key in range(KEYS):
        _fill_shard(client, names, history, key)
    newest = client.xrevrange(names.of_shard("log", scripts.shard_of(name(KEYS - 1), 0)), count=1)
    client.hset(of_all("namespace"), "last_execution_id", int(newest[0][0].partition(b"-")[0]) + 1)


def _fill_shard(client: Any, names: scripts.Names, history: History, key: int) -> None:
    pipe = client.pipeline(transaction=False)
    shard = scripts.shard_of(name(key), 0)
    of_shard = {
        each: names.of_shard(each, shard)
        for each in ("key", "skips", "skip_rows", "plain", "plain_rows", "hosts")
    }
    pipe.zadd(names.of_namespace("parts"), {shard: 0})
    pipe.hset(of_shard["key"], mapping={
        "schedule": schedule(history, key), "zone": "UTC", "expected_shards": 1,
        "expected_since": history.instant(key, history.ticks - 1) - 60,
        "high_water": history.instant(key, 0), "last_start": history.instant(key, 0) + 1,
    })  # fmt: skip
    row = json.dumps({"pid": "12345", "count": "1"})
    found = {_member(tick, by, reason): when for tick, by, reason, when in history.skips(key)}
    pipe.zadd(of_shard["skips"], found)
    pipe.hset(of_shard["skip_rows"], mapping=dict.fromkeys(found, row))
    for window, words, when in history.windows(key):
        members = [f"{window} {host(number)}" for number in range(IN_FULL, HOSTS)]
        pipe.zadd(of_shard["plain"], dict.fromkeys(members, when))
        pipe.hset(of_shard["plain_rows"], mapping=dict.fromkeys(members, words))
    text = f"{history.instant(key, 0) + 2:.6f} {_told(history, key)}"
    pipe.hset(of_shard["hosts"], mapping={host(number): text for number in range(HOSTS)})
    pipe.execute()


def _member(tick: str, by: str, reason: str) -> str:
    return json.dumps([tick, by, reason], separators=(",", ":"))


def _row(run: Run) -> str:
    row = {field: str(value) for field, value in run._asdict().items() if field != "execution_id"}
    for field in ("tick_instant", "started_at"):
        row[field] = f"{getattr(run, field):.6f}"
    row |= {"shard": "0", "owner_attempt": row["attempt"], "pid": "12345", "user": "root"}
    row |= {"command": COMMAND, "fired_at": row["started_at"], "duration": "1.500000"}
    row |= {"finished_at": f"{run.finished_at:.6f}", "shards": "1"}
    return json.dumps(row, separators=(",", ":"))
