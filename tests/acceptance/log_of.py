"""The log of a store as the tests read it: straight from its data, whatever `oncecron` says of it."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from servers import Database, RedisServer


class Record(NamedTuple):
    tick: str | None
    attempt: int
    outcome: str
    exit_code: int | None
    signal: int | None
    note: str | None
    host: str
    command: str
    execution_id: int
    fencing_token: int | None
    cause: str
    lost_reason: str | None
    request: str | None
    requested_by: str | None
    owner: str


class Skipped(NamedTuple):
    tick: str
    reason: str
    host: str
    holder_host: str | None
    count: int


class Store(Protocol):
    """A store that hosts share."""

    url: str
    owner_url: str
    """For whoever may remove records."""
    operator_url: str
    """For whoever may pause and drain."""
    environment: dict[str, str]
    """What its hosts have in their environment beside the store's address."""

    def executions(self, key: str) -> list[Record]:
        """Return the executions of a key, the oldest first."""

    def skips(self, key: str) -> list[Skipped]:
        """Return the refusals of a key, the oldest first."""

    def heartbeat(self, key: str) -> float | None:
        """Return when the lease of a key was last renewed, in seconds since the epoch."""

    def plant_request(self, key: str, kind: str, number: object, grace: object) -> None:
        """Write a request to the holder of a key into the store itself, whatever it says."""


_COLUMNS = ", ".join(Record._fields[:-1])
_EXECUTIONS = f"select {_COLUMNS}, {{}} from {{}} e where key = {{}} order by execution_id"
_OWNER = "(select cast(x.owner as text) from oncecron.job_execution x where x.execution_id = e.execution_id)"
_SKIPS = (
    "select coalesce(tick, ''), reason, host, holder_host, count from {} where key = {} order by at"
)


class PostgresLog:
    environment: ClassVar[dict[str, str]] = {}

    def __init__(self, database: Database) -> None:
        self.url = database.url()
        self.owner_url = database.url("owner")
        self.operator_url = database.url("operator")
        self._database = database

    def executions(self, key: str) -> list[Record]:
        rows = self._database.execute(_EXECUTIONS.format(_OWNER, "oncecron.executions", "%s"), key)
        return [Record(*row) for row in rows]

    def skips(self, key: str) -> list[Skipped]:
        rows = self._database.execute(_SKIPS.format("oncecron.skips", "%s"), key)
        return [Skipped(*row) for row in rows]

    def heartbeat(self, key: str) -> float | None:
        rows = self._database.execute(
            "select extract(epoch from heartbeat_at)::float8 from oncecron.leases"
            " where key = %s and heartbeat_at is not null",
            key,
        )
        return rows[0][0] if rows else None

    def plant_request(self, key: str, kind: str, number: object, grace: object) -> None:
        """Write it as superuser, where no constraint stops what is impossible."""
        self._database.execute(
            "alter table oncecron.job_key alter column request_signal type integer,"
            " alter column request_grace type double precision"
        )
        self._database.execute(
            "update oncecron.job_key set request_kind = %s, request_author = 'eve', request_signal = %s,"
            " request_grace = %s where key = %s",
            kind, number, grace, key,
        )  # fmt: skip


class SQLiteLog:
    environment: ClassVar[dict[str, str]] = {}

    def __init__(self, path: Path) -> None:
        self.url = self.owner_url = self.operator_url = f"sqlite://{path}"
        self._path = path
        path.parent.mkdir(mode=0o700, exist_ok=True)

    def executions(self, key: str) -> list[Record]:
        return [
            Record(*row)
            for row in self._query(_EXECUTIONS.format("owner", "job_execution", "?"), key)
        ]

    def skips(self, key: str) -> list[Skipped]:
        rows = [Skipped(*row) for row in self._query(_SKIPS.format("skip", "?"), key)]
        plain = self._query("select window, host, words from plain_skips where key = ?", key)
        holders = dict(
            self._query("select execution_id, host from job_execution where key = ?", key)
        )
        return [*rows, *(each for row in plain for each in _plain(*row, holders))]

    def heartbeat(self, key: str) -> float | None:
        rows = self._query("select heartbeat_at from lease where key = ?", key)
        return rows[0][0] if rows else None

    def plant_request(self, key: str, kind: str, number: object, grace: object) -> None:
        with closing(sqlite3.connect(self._path, timeout=10)) as database, database:
            database.execute("pragma ignore_check_constraints = on")
            database.execute(
                "update lease set request = ?, requested_by = 'eve', request_signal = ?, request_grace = ?"
                " where key = ?",
                [kind, number, grace, key],
            )

    def _query(self, statement: str, key: str) -> list[Any]:
        if not self._path.exists():
            return []  # nobody has asked this store yet
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
            if not database.execute("select 1 from sqlite_master").fetchall():
                return []  # somebody is asking for the first time
            return database.execute(statement, [key]).fetchall()


class RedisLog:
    environment: ClassVar[dict[str, str]] = {}

    def __init__(self, server: RedisServer) -> None:
        self.url = self.owner_url = self.operator_url = server.url()
        self._client = server.connect(decode_responses=True)

    def executions(self, key: str) -> list[Record]:
        streams = self._client.scan_iter(_name("log", key, "*"))
        entries = [entry for stream in streams for entry, _ in self._client.xrange(stream)]
        ids = sorted((entry.partition("-")[0] for entry in entries), key=int)
        rows = [json.loads(self._client.hget("oncecron:{oncecron}:executions", i)) for i in ids]
        return [_record(int(i), row) for i, row in zip(ids, rows, strict=True)]

    def skips(self, key: str) -> list[Skipped]:
        # Members hold tick, host and reason; rows the rest.
        found = []
        for part in sorted(self._client.scan_iter(_name("skips", key, "*"))):
            rows = part.replace(":skips:", ":skip_rows:")
            for member in self._client.zrange(part, 0, -1):
                (tick, host, reason), row = (
                    json.loads(member),
                    json.loads(self._client.hget(rows, member)),
                )
                found.append(Skipped(tick, reason, host, row.get("holder_host"), int(row["count"])))
        rows_of = "oncecron:{oncecron}:executions"
        holders = {int(i): json.loads(t)["host"] for i, t in self._client.hgetall(rows_of).items()}
        for part in sorted(self._client.scan_iter(_name("plain_rows", key, "*"))):
            for place, words in self._client.hgetall(part).items():
                window, _, host = place.partition(" ")
                found += _plain(int(window), host, words, holders)
        return found

    def heartbeat(self, key: str) -> float | None:
        at = self._client.hget(_name("lease", key), "heartbeat_at")
        return None if at is None else float(at)

    def plant_request(self, key: str, kind: str, number: object, grace: object) -> None:
        fields = {"request": kind, "requested_by": "eve", "request_signal": str(number)}
        fields["request_grace"] = "" if grace is None else str(grace)
        self._client.hset(_name("lease", key), mapping=fields)


def _plain(window: int, host: str, words: str, holders: dict[int, str]) -> list[Skipped]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for word in words.split():
        code, execution_id = (int(part, 16) for part in word.split(":"))
        tick = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime((window + (code >> 20)) * 60))
        which = tick, "done" if code >> 19 & 1 else "held"
        found[which] = found.get(which, (0, 0))[0] + 1, execution_id
    return [
        Skipped(tick, reason, host, holders.get(execution_id), count)
        for (tick, reason), (count, execution_id) in found.items()
    ]


def between_firings(store: Store, key: str, ttl: float) -> None:
    """Pause between two firings of a host that waits for the end of another one's lease.

    Each costs a tenth of a second of a processor. Close to the end, where a start that comes too early would be,
    they follow one another without a pause.
    """
    left = (store.heartbeat(key) or 0) + ttl - time.time()
    time.sleep(min(0.3, max(0, left - 1)))


def _name(name: str, key: str, part: str = "0") -> str:
    return f"oncecron:{{oncecron}}:{name}:{key}#{part}"


def _record(execution_id: int, row: dict[str, str]) -> Record:
    def number(name: str) -> int | None:
        return int(row[name]) if name in row else None

    return Record(
        tick=row.get("tick"),
        attempt=int(row["attempt"]),
        outcome=row["outcome"],
        exit_code=number("exit_code"),
        signal=number("signal"),
        note=row.get("note"),
        host=row["host"],
        command=row["command"],
        execution_id=execution_id,
        fencing_token=number("fencing_token"),
        cause=row["cause"],
        lost_reason=row.get("lost_reason"),
        request=row.get("request"),
        requested_by=row.get("requested_by"),
        owner=row["owner"],
    )


class LoggedRedis(RedisLog):
    """A server beside a database that has the log, which is the one that is read."""

    def __init__(self, server: RedisServer, log: Database) -> None:
        super().__init__(server)
        self.environment = {"ONCECRON_LOG": log.url()}  # type: ignore[misc]
        self._log = PostgresLog(log)

    def executions(self, key: str) -> list[Record]:
        """Read the log; its ids are its own, those of the server are what the job was told."""
        known = {row.owner: row.execution_id for row in super().executions(key)}
        rows = self._log.executions(key)
        return [row._replace(execution_id=known.get(row.owner, 0)) for row in rows]

    def skips(self, key: str) -> list[Skipped]:
        return self._log.skips(key)
