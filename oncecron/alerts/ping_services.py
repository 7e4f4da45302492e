"""What each monitoring service is sent: one function for each, from the record of an execution to a request.

The id of a run is a digest of the owner's id, which is the secret of the lease. Its first twelve digits are those of
`owner` in `history`.
"""

from __future__ import annotations

import json
from hashlib import sha256
from urllib.parse import quote, urlencode

from oncecron.alerts.http_request import Request
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import owner_digest
from oncecron.core.stderr import visible
from oncecron.core.text import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal

    PingKind = Literal["start", "end"]
    Record = Mapping[str, Any]

BODY_LIMIT = 10_000
"""Bytes that a healthchecks server keeps if its answers do not say otherwise (hc/settings.py, PING_BODY_LIMIT)."""
_LARGEST_BODY = 1_000_000
_LARGEST_MESSAGE = (
    2_000  # Cronitor's, in characters; here in bytes, of which each becomes three in a URL at most
)
_LARGEST_OUTPUT = 100_000
_PUBLISHED = (
    *("execution_id", "key", "shard", "shards", "tick", "attempt", "cause", "outcome", "exit_code"),
    *("signal", "lost_reason", "requested_by", "host", "pid", "user", "duration", "note"),
)
"""The fields of a record that a webhook gets as they are."""


def request_for(
    service: str, url: str, kind: PingKind, record: Record, body_limit: int = BODY_LIMIT
) -> Request:
    """Return what a service is sent. `url`: without placeholders; `body_limit`: the last that it has named."""
    if service == "healthchecks":
        return _healthchecks(url, kind, record, min(body_limit, _LARGEST_BODY))
    return _OTHERS[service](url, kind, record)


def run_id(record: Record) -> str:
    """Return the id of a run of a shard: a UUID of version 8 (RFC 9562), which applications make as they like."""
    run = sha256(f"{record['owner']}/{record['shard']}".encode()).hexdigest()
    known = owner_digest(record["owner"])
    return (
        f"{known[:8]}-{known[8:12]}-8{run[:3]}-{'89ab'[int(run[3], 16) % 4]}{run[4:7]}-{run[7:19]}"
    )


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
    return f" after {record['duration']:.1f} s{why}"


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
            "metric": f"duration:{record['duration']:.3f}",
        }
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
        values["duration"] = f"{record['duration']:.3f}"
    return Request("GET", _with_query(url, **values))


def _webhook(url: str, kind: PingKind, record: Record) -> Request:
    """Return a JSON object with the fields of a record, for any server."""
    clock = Clock(utc=True)
    output = record["output"]
    fields = {
        "event": kind,
        "run_id": run_id(record),
        **{name: record[name] for name in _PUBLISHED},
        "owner": owner_digest(record["owner"]),
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
    """Return a URL with more values in its query, which may have some already."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(values, quote_via=quote)}"


def _report(kind: PingKind, record: Record, limit: int) -> bytes:
    """Return the summary, and as much of the end of the output as the limit leaves."""
    head = _head(summary(kind, record), limit)
    left = limit - len(head.encode()) - 2
    if not record["output"] or left <= 0:
        return head.encode()
    return f"{head}\n\n{_tail(record['output'], left)}".encode()


def _head(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _tail(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[-limit:].decode("utf-8", "ignore")
