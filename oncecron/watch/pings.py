"""The process that pings: which events of a firing are pings, and what each monitoring service is sent.

For each shard: its first start is the start ping. Its end is the end ping, unless another attempt follows. That is so
between two attempts of --retries, and after a loss with --failover, when another host may run the next attempt and ping
its end. If guard and wrapper are both killed, the end is that of the firing whose claim declares the run lost, or of
the person who releases its key.

The id of a run is made of the digest of the owner's id that `history` shows, so every host knows it. The owner's id
itself is the secret of the lease.
"""

from __future__ import annotations

import json
import os
import syslog
import time
from hashlib import sha256
from queue import SimpleQueue
from threading import Thread
from urllib.parse import quote, urlencode

from oncecron.config.ping_table import PING_PAUSE, PING_TIMEOUT
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.masking import visible
from oncecron.core.model import owner_digest
from oncecron.core.text import Clock
from oncecron.host import stderr
from oncecron.watch.http_request import Request, RequestError, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Literal

    from oncecron.config.ping_table import Ping
    from oncecron.run.seams import EventKind
    from oncecron.run.spec import RunSpec

    PingKind = Literal["start", "end"]
    Record = Mapping[str, Any]
    Events = tuple[list[tuple[EventKind, dict[str, Any]]], int]
    _Part = tuple[int, str | None]
    """A shard of a tick: a firing may run several shards, and make up several ticks."""

BODY_LIMIT = 10_000
"""Bytes that a healthchecks server keeps if its answers do not say otherwise (hc/settings.py, PING_BODY_LIMIT)."""
_LARGEST_BODY = 1_000_000
# Cronitor's, in characters; here in bytes, of which each becomes three in a URL at most.
_LARGEST_MESSAGE = 2_000
_LARGEST_OUTPUT = 100_000
_PUBLISHED = (
    *("execution_id", "key", "shard", "shards", "tick", "attempt", "cause", "outcome", "exit_code"),
    *("signal", "lost_reason", "requested_by", "host", "pid", "user", "duration", "note"),
)
"""The fields of a record that a webhook gets as they are."""
_TRIES = 2


def deliver(spec: RunSpec, read: Callable[[int], Events], woken: int) -> None:
    """Ping until wrapper and guard have exited and every ping has been sent or given up.

    `read` returns the events from a place on, and how many bytes they take.
    """
    channels = [Channel(ping, spec.firing.key, verbose=spec.verbose) for ping in spec.pings]
    story = Story(failover=spec.firing.failover)
    for kind, record in _pings(story, read, woken):
        for channel in channels:
            channel.send(kind, record)
    for channel in channels:
        channel.finish()


def report_end(pings: Sequence[Ping], record: dict[str, Any], *, verbose: int) -> None:
    """Report the end of a run that no firing reports; it takes as long as the slowest service."""
    channels = [Channel(ping, record["key"], verbose=verbose) for ping in pings]
    for channel in channels:
        channel.send("end", record)
    for channel in channels:
        channel.finish()


def _pings(
    story: Story, read: Callable[[int], Events], woken: int
) -> Iterator[tuple[PingKind, dict[str, Any]]]:
    at, more = 0, b"\0"
    while more:
        found, size = read(at)
        at += size
        for kind, record in found:
            yield from story.take(kind, record)
        more = os.read(woken, 4096)
    for kind, record in read(at)[0]:
        yield from story.take(kind, record)
    yield from story.close()


class Story:
    """What has been reported of one firing."""

    def __init__(self, *, failover: bool) -> None:
        self._failover = failover
        self._executions: dict[_Part, int | None] = {}
        """The newest execution of each part that has started."""
        self._kept: dict[_Part, dict[str, Any]] = {}
        """The last attempt of each part after which another is to follow."""
        self._ended: set[_Part] = set()

    def take(
        self, kind: EventKind, record: dict[str, Any]
    ) -> Iterator[tuple[PingKind, dict[str, Any]]]:
        """Yield the ping that an event is, if it is one."""
        part = record["shard"], record["tick"]
        if kind == "lost":
            yield "end", record
        elif kind == "start":
            first = part not in self._executions
            self._executions[part] = record["execution_id"]
            if first:
                yield "start", record
        elif part in self._executions and part not in self._ended:
            full = {**record, "execution_id": self._executions[part]}
            self._kept[part] = full
            if kind == "end" and not self._goes_on_elsewhere(record):
                self._ended.add(part)
                yield "end", full

    def close(self) -> Iterator[tuple[PingKind, dict[str, Any]]]:
        """Yield the end of each part whose next attempt never came, and which no other host continues."""
        for part, record in self._kept.items():
            if part not in self._ended and not self._failover:
                yield "end", record

    def _goes_on_elsewhere(self, record: dict[str, Any]) -> bool:
        lost = record["outcome"] == "lost"
        return lost and self._failover and record["attempt"] <= record["retries"]


class Channel:
    """The pings to one service, in order, each with two tries, in a thread of its own."""

    def __init__(self, ping: Ping, key: str, *, verbose: int) -> None:
        self._ping = ping
        self._key = key
        self._verbose = verbose
        self._body_limit = BODY_LIMIT
        self._waiting: SimpleQueue[tuple[PingKind, dict[str, Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, kind: PingKind, record: dict[str, Any]) -> None:
        """Send a ping after those before it."""
        self._waiting.put((kind, record))

    def finish(self) -> None:
        """Wait until every ping has been sent or given up."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            kind, record = waiting
            try:
                self._try(kind, record)
            except Exception as error:  # noqa: BLE001 - a bug here must not keep the next ping back
                self._report(kind, type(error).__name__)  # its text may hold the URL

    def _try(self, kind: PingKind, record: dict[str, Any]) -> None:
        """Send one ping. A start is not tried again when the end is waiting behind it."""
        url = self._ping.url_of(self._key, record["shard"])
        for tries_left in reversed(range(_TRIES)):
            request = request_for(self._ping.service, url, kind, record, self._body_limit)
            try:
                headers = send(request, PING_TIMEOUT)
            except RequestError as error:
                if tries_left and error.again and (kind == "end" or self._waiting.empty()):
                    time.sleep(PING_PAUSE)
                    continue
                self._report(kind, str(error))
                return
            limit = headers.get("Ping-Body-Limit", "")
            if limit.isdecimal():
                self._body_limit = int(limit)
            return

    def _report(self, kind: PingKind, why: str) -> None:
        """Report a ping that failed where it is no mail: cron must not send one for each."""
        text = f"key {self._key}: the {kind} ping to {self._ping.shown} failed: {why}"
        syslog.openlog("oncecron", syslog.LOG_PID, syslog.LOG_CRON)
        syslog.syslog(syslog.LOG_WARNING, visible(text))
        if self._verbose:
            stderr.complain(text)


def request_for(
    service: str, url: str, kind: PingKind, record: Record, body_limit: int = BODY_LIMIT
) -> Request:
    """Return what a service is sent. `url`: without placeholders; `body_limit`: the last that it has named."""
    if service == "healthchecks":
        return _healthchecks(url, kind, record, min(body_limit, _LARGEST_BODY))
    return _OTHERS[service](url, kind, record)


def run_id(record: Record) -> str:
    """Return the id of a run of a shard: a UUID of version 8 (RFC 9562), which applications make as they like."""
    known = _digest_of(record)
    run = sha256(f"{known}/{record['shard']}".encode()).hexdigest()
    return (
        f"{known[:8]}-{known[8:12]}-8{run[:3]}-{'89ab'[int(run[3], 16) % 4]}{run[4:7]}-{run[7:19]}"
    )


def _digest_of(record: Record) -> str:
    """Return the digest of the owner's id; the record of another firing's run has nothing else."""
    digest: str | None = record.get("owner_digest")
    return digest or owner_digest(record["owner"])


def summary(kind: PingKind, record: Record) -> str:
    """Return one line for people: what happened, where, and to which execution."""
    tick = [f"tick {record['tick']}"] if record["tick"] else []
    shard = [f"shard {record['shard']} of {record['shards']}"] if record["shards"] > 1 else []
    attempt = [f"attempt {record['attempt']}"] if (record["attempt"] or 1) > 1 else []
    execution = [f"execution {record['execution_id']}"] if record["execution_id"] else []
    where = ", ".join([record["key"], *tick, *shard, *attempt, *execution])
    what = "started" if kind == "start" else record["outcome"]
    how = _how(record) if kind == "end" else ""
    return visible(f"{what} on {record['host']}{how} ({where})")


def _how(record: Record) -> str:
    how = [f"exit status {record['exit_code']}"] if record["exit_code"] else []
    how += [f"signal {record['signal']}"] if record["signal"] else []
    how += [record["note"]] if record["note"] else []
    why = f": {'; '.join(how)}" if how else ""
    after = "" if record["duration"] is None else f" after {record['duration']:.1f} s"
    return f"{after}{why}"


def _healthchecks(url: str, kind: PingKind, record: Record, limit: int) -> Request:
    """Return a ping for a healthchecks server.

    Its pinging API (https://healthchecks.io/docs/http_api/) has `URL/start`, `URL/EXIT-STATUS` (0 is a success) and
    `URL/fail`. `rid` is a UUID in its canonical form. The body of a POST is a log, of which the server keeps the first
    `Ping-Body-Limit` bytes.
    """
    if kind == "start":
        action = "start"
    elif record["outcome"] == "succeeded":
        action = "0"
    else:  # an exit status of 0 after a timeout is no success
        action = str((record["outcome"] == "failed" and record["exit_code"]) or "fail")
    path, _, query = url.partition("?")
    address = _with_query(f"{path.rstrip('/')}/{action}{query and '?'}{query}", rid=run_id(record))
    return Request("POST", address, _report(kind, record, limit), "text/plain; charset=utf-8")


def _cronitor(url: str, kind: PingKind, record: Record) -> Request:
    """Return a telemetry event (https://cronitor.io/docs/telemetry-api).

    `state` is run, complete or fail, `series` connects the events of a run, `message` has at most 2,000 characters.
    """
    if kind == "start":
        values = {"state": "run"}
    else:
        values = {
            "state": "complete" if record["outcome"] == "succeeded" else "fail",
        }
        if record["duration"] is not None:
            values["metric"] = f"duration:{record['duration']:.3f}"
        if record["exit_code"] is not None:
            values["status_code"] = record["exit_code"]
    message = _report(kind, record, _LARGEST_MESSAGE).decode()
    more = {"series": run_id(record), "host": record["host"], "message": message}
    return Request("GET", _with_query(url, **values, **more))


def _sentry(url: str, kind: PingKind, record: Record) -> Request:
    """Return a check-in (https://docs.sentry.io/product/crons/getting-started/http/).

    The endpoint is relay-server/src/endpoints/monitor.rs in the repository getsentry/relay. `status` is in_progress, ok
    or error; `check_in_id` connects the two check-ins of a run; `duration` is in seconds.
    """
    values = {"check_in_id": run_id(record), "status": "in_progress"}
    if kind == "end":
        values["status"] = "ok" if record["outcome"] == "succeeded" else "error"
        if record["duration"] is not None:
            values["duration"] = f"{record['duration']:.3f}"
    return Request("GET", _with_query(url, **values))


def _webhook(url: str, kind: PingKind, record: Record) -> Request:
    clock = Clock(utc=True)
    output = record["output"]
    fields = {
        "event": kind,
        "run_id": run_id(record),
        **{name: record[name] for name in _PUBLISHED},
        "owner": _digest_of(record),
        "started_at": clock.exactly(record["started_at"]),
        "finished_at": clock.exactly(record["finished_at"]),
        "output": None if output is None else _tail(output, _LARGEST_OUTPUT),
    }
    return Request("POST", url, json.dumps(fields).encode(), "application/json")


_OTHERS: dict[str, Callable[[str, PingKind, Record], Request]] = {
    "cronitor": _cronitor,
    "sentry": _sentry,
    "webhook": _webhook,
}


def _with_query(url: str, **values: object) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(values, quote_via=quote)}"


def _report(kind: PingKind, record: Record, limit: int) -> bytes:
    head = summary(kind, record).encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
    left = limit - len(head.encode()) - 2
    if not record["output"] or left <= 0:
        return head.encode()
    return f"{head}\n\n{_tail(record['output'], left)}".encode()


def _tail(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[-limit:].decode("utf-8", "ignore")
