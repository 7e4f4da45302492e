"""Convert the rows in Redis, JSON and hashes of texts, to the values of `core.log_rows`."""

from __future__ import annotations

import json

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import (
    Execution,
    JobKey,
    LeaseView,
    Skip,
    SkipReason,
    Traced,
    TracedSkip,
    job_key_of,
    owner_digest,
)
from oncecron.core.model import Output, recordable_values
from oncecron.core.tick import instant_of
from oncecron.core.timing import CLOCK_SET_BACK, HEARTBEATS_PER_TTL, MAX_CLOCK_SKEW

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.log_rows import HistoryQuery

_INTEGERS = (
    *("shard", "attempt", "exit_code", "signal", "pid", "fencing_token"),
    *("holder_pid", "count", "execution_id", "shards", "retries"),
)
_FLOATS = (
    *("started_at", "finished_at", "duration", "acquired_at", "heartbeat_at", "expires_at"),
    *(
        "fired_at",
        "tick_instant",
        "lost_at",
        "at",
        "until",
        "ttl",
        "request_acknowledged_at",
    ),
)

_decode = json.JSONDecoder().raw_decode
"""Without a search for blanks around the value, which takes longer than the rest."""

if TYPE_CHECKING:
    Row = dict[str, Any]


class StoredExecution(NamedTuple):
    """An execution, with what only the store itself needs."""

    traced: Traced
    owner: str
    """The owner's id itself."""
    retries: int
    late: bool
    """Whether it was inserted after later starts."""


def text_fields(fields: Any) -> dict[str, str]:
    """Return a hash as texts."""
    return {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}


def json_of(text: bytes) -> dict[str, str]:
    """Return a row as texts."""
    decoded_text = text.decode("utf-8", "replace")
    fields: dict[str, str]
    fields, end = _decode(decoded_text)
    if end != len(decoded_text):
        fields = json.loads(decoded_text)  # blanks, or an error
    # Only an escape makes a value of a printable row unprintable, but not `\/`. Reports read tens of thousands of rows.
    plain = decoded_text.isprintable() and decoded_text.count("\\") == decoded_text.count("\\/")
    return fields if plain else recordable_values(fields)


def decoded(fields: dict[str, str]) -> Row:
    """Return a row whose numbers are numbers."""
    row: Row = dict(fields)
    for name in _INTEGERS:
        if name in row:
            row[name] = int(row[name])
    for name in _FLOATS:
        if name in row:
            row[name] = float(row[name])
    return row


def stored_execution(text: bytes, execution_id: int | str) -> StoredExecution:
    """Return an execution from its row."""
    row = {"shards": 1, **decoded(json_of(text)), "execution_id": int(execution_id)}
    known = {**row, "owner": owner_digest(row["owner"])}
    execution = Execution._make([known.get(name) for name in Execution._fields])
    traced = Traced(execution, row.get("tick_instant"), row.get("fired_at"), row.get("lost_at"))
    return StoredExecution(traced, row["owner"], row.get("retries", 0), "late" in row)


def output_of(text: bytes) -> Output:
    """Return captured output."""
    cut, _, output = text.decode("utf-8", "replace").partition(":")
    return Output(output, int(cut))


def key_of(part: str, values: list[bytes | None]) -> JobKey:
    """Return a shard of a key from its name and the fields of its hash, in the order of `KEY_FIELDS`."""
    key, _, shard = part.rpartition("#")
    schedule, zone = (
        None if value is None else value.decode("utf-8", "replace") for value in values[:2]
    )
    shards, *times = (None if value is None else float(value) for value in values[2:])
    return job_key_of(key, int(shard), schedule, zone, int(shards or 1), *times)


class ShardName(NamedTuple):
    """KEY#SHARD, and the key."""

    name: str
    key: str


def shard_name(name: bytes) -> ShardName:
    """Return the name of a shard of a key. Raises `ValueError`: oncecron uses no other names."""
    text = name.decode("ascii")
    key, _, shard = text.rpartition("#")
    if not key or not shard.isdigit():
        raise ValueError("the name is not KEY#SHARD")
    return ShardName(text, key)


KEY_FIELDS = (
    *("schedule", "zone", "expected_shards", "starting_deadline", "expected_since"),
    *("high_water", "last_start", "forgotten_at"),
)


def skip_of(part: str, member: bytes, at: float, text: bytes) -> TracedSkip:
    """Return a skip from its member of the set, its score, and its row."""
    key, _, shard = part.rpartition("#")
    tick, host, reason = json.loads(member)
    row = decoded(json_of(text))
    skip = Skip(
        key=key,
        shard=int(shard),
        tick=tick or None,
        reason=reason,
        holder_host=row.get("holder_host"),
        holder_pid=row.get("holder_pid"),
        host=host,
        pid=row["pid"],
        at=float(at),
        count=row["count"],
        detail=row.get("detail"),
    )
    return TracedSkip(skip, row.get("fired_at"))


def reason_of(part: str, member: bytes) -> SkipReason:
    """Return why a tick was skipped from the member of the set alone."""
    tick, host, reason = json.loads(member)
    return SkipReason(part.rpartition("#")[0], tick, host, reason)


def order_of(traced: TracedSkip) -> tuple[object, ...]:
    """Return the sort key of skips: newest first."""
    skip = traced.skip
    return (-skip.at, skip.key, skip.shard, skip.host, skip.reason)


def lease_of(
    part: str, fields: dict[bytes, bytes], execution: Execution | None, asked_at: float
) -> LeaseView:
    """Return a lease from its hash and its execution."""
    key, _, shard = part.rpartition("#")
    lease = decoded(text_fields(fields))
    row = {} if execution is None else execution._asdict()
    silent = asked_at - lease["heartbeat_at"] > 2 * float(lease["ttl"]) / HEARTBEATS_PER_TTL
    stale = silent or lease["expires_at"] <= asked_at
    return LeaseView(
        key=key,
        shard=int(shard),
        tick=row.get("tick"),
        execution_id=lease["execution_id"],
        attempt=row.get("attempt"),
        state="stale" if stale else "held",
        host=row.get("host"),
        pid=row.get("pid"),
        user=row.get("user"),
        acquired_at=lease["acquired_at"],
        heartbeat_at=lease["heartbeat_at"],
        expires_at=lease["expires_at"],
        fencing_token=row.get("fencing_token"),
        backend_pid=None,
        client_address=None,
        shards=row.get("shards", 1),
        requested_by=lease.get("requested_by"),
        request_acknowledged_at=lease.get("request_acknowledged_at"),
        asked_at=asked_at,
    )


def start_of(row: StoredExecution) -> float:
    """Return when an execution started."""
    return row.traced.execution.started_at


def is_wanted(row: Execution | Skip, query: HistoryQuery) -> bool:
    """Return whether a row of the right key matches the query."""
    if isinstance(row, Execution):
        at, result = row.started_at, row.outcome
    else:
        at, result = row.at, row.reason
    return (
        (query.host is None or row.host == query.host)
        and (query.outcome is None or result == query.outcome)
        and (query.tick is None or row.tick == query.tick)
        and (query.since is None or at >= query.since)
    )


def oldest_start(query: HistoryQuery) -> float | None:
    """Return a time before which nothing started that a query wants, by the server's clock; None: there is none.

    The claim refuses a tick whose instant is more than `MAX_CLOCK_SKEW` ahead.
    """
    if query.after_id is not None:
        return None
    instant = instant_of(query.tick)
    bounds = (query.since, None if instant is None else instant - MAX_CLOCK_SKEW)
    return max((bound for bound in bounds if bound is not None), default=None)


def all_older(row: StoredExecution, oldest: float) -> bool:
    """Return whether this row and all with older ids started before a time.

    An execution that was inserted late started long before it got its id, so it proves nothing about the others.
    """
    return not row.late and start_of(row) < oldest - CLOCK_SET_BACK
